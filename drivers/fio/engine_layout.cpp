#include "drivers/fio/engine_layout.hpp"

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "drivers/fio/fio_headers.hpp"

namespace xblk::fio_engine {
namespace {

// XBLK_FIO_VERSION comes from the source tree (drivers/fio/CMakeLists.txt).
tl::unexpected<Error> mismatch(const std::string& what) {
  return fail(EPROTO, fmt::format("engine was built for {} (ioops {}, sizeof thread_data {}, io_u {}) and does not fit "
                                  "this program: {}; run ci/setup and rebuild",
                                  XBLK_FIO_VERSION, FIO_IOOPS_VERSION, sizeof(thread_data), sizeof(io_u), what));
}

struct OptionOffset {
  const char* option;
  std::size_t offset;
};

// Every option that the engine reads, and one near the end of the structure, so that nothing in between has moved.
constexpr std::array kOptionOffsets = {
    OptionOffset{"description", offsetof(thread_options, description)},
    OptionOffset{"iodepth", offsetof(thread_options, iodepth)},
    OptionOffset{"size", offsetof(thread_options, size)},
    OptionOffset{"nrfiles", offsetof(thread_options, nr_files)},
    OptionOffset{"bsrange", offsetof(thread_options, min_bs)},
    OptionOffset{"iomem_align", offsetof(thread_options, mem_align)},
    OptionOffset{"ramp_time", offsetof(thread_options, ramp_time)},
    OptionOffset{"thread", offsetof(thread_options, use_thread)},
    OptionOffset{"steadystate", offsetof(thread_options, ss_state)},
    OptionOffset{"log_entries", offsetof(thread_options, log_entries)},
};

bool plausible_pointer(const void* pointer) {
  return pointer != nullptr && reinterpret_cast<std::uintptr_t>(pointer) % alignof(void*) == 0;
}

}  // namespace

Status check_fio_program() {
  const auto* running = static_cast<const char*>(::dlsym(RTLD_DEFAULT, "fio_version_string"));
  if (running == nullptr) return mismatch("it exports no fio_version_string");
  if (std::strcmp(running, XBLK_FIO_VERSION) != 0) return mismatch(fmt::format("it is {}", running));
  for (const OptionOffset& known : kOptionOffsets) {
    const fio_option* option = fio_option_find(known.option);
    if (option == nullptr) return mismatch(fmt::format("it has no option {}", known.option));
    if (option->off1 != known.offset) {
      return mismatch(fmt::format("option {} is at offset {}, here at {}", known.option, option->off1, known.offset));
    }
  }
  return {};
}

Status check_job_layout(thread_data* td, const ioengine_ops* ops) {
  if (td->io_ops != ops) return mismatch("thread_data.io_ops is elsewhere");
  // tnumber_to_td() strides by sizeof(thread_data); each job must find itself under its own number.
  if (td->thread_number == 0 || td->thread_number > REAL_MAX_JOBS || tnumber_to_td(td->thread_number - 1) != td) {
    return mismatch("thread_data has another size");
  }
  // fio stores the job in the first word of the engine's options while parsing and clears it afterwards.
  if (!plausible_pointer(td->eo) || *static_cast<void**>(td->eo) != nullptr)
    return mismatch("thread_data.eo is elsewhere");
  if (td->files_index == 0 || !plausible_pointer(td->files) || !plausible_pointer(td->files[0])) {
    return mismatch("thread_data.files is elsewhere");
  }
  const fio_file* file = td->files[0];
  // What an engine with FIO_DISKLESSIO is given: no descriptor, size not known.
  if (file->fd != -1 || file->real_file_size != UINT64_MAX) return mismatch("fio_file has another layout");
  if (td->io_ops_data != nullptr || td->orig_buffer != nullptr || td->error != 0) {
    return mismatch("thread_data has another layout");
  }
  return {};
}

Status check_io_layout(const io_u* io) {
  // fio links the list head to itself: its address proves where everything before it ends, error and index included.
  if (io->verify_list.next != &io->verify_list || io->flags != IO_U_F_FREE || io->error != 0 ||
      io->xfer_buf != nullptr) {
    return mismatch("io_u has another layout");
  }
  return {};
}

}  // namespace xblk::fio_engine
