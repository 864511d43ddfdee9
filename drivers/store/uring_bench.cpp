// What io_uring's registrations are worth: 4 KiB reads of a cached file, so that nothing but the kernel's path is in
// the figure. file_queue.cpp registers its file; README.md says why it registers no buffers.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "drivers/base/unique_fd.hpp"
#include "drivers/base/units.hpp"

namespace xblk::store {
namespace {

constexpr std::uint64_t kPages = 2048;

struct Variant {
  unsigned setup = 0;
  bool file = false;
  bool buffer = false;
};

UniqueFd cached_file() {
  std::string path = std::filesystem::current_path().string() + "/uring-bench-XXXXXX";
  UniqueFd file(::mkstemp(path.data()));
  ::unlink(path.c_str());
  const std::vector<char> data(kPages * kPageSize, 'x');
  if (::write(file.get(), data.data(), data.size()) != static_cast<ssize_t>(data.size())) file.reset();
  return file;
}

void prepare_read(io_uring_sqe& entry, const Variant& variant, int fd, std::byte* memory, std::uint64_t page) {
  const int file = variant.file ? 0 : fd;
  if (variant.buffer) {
    io_uring_prep_read_fixed(&entry, file, memory, kPageSize, page * kPageSize, 0);
  } else {
    io_uring_prep_read(&entry, file, memory, kPageSize, page * kPageSize);
  }
  if (variant.file) entry.flags |= IOSQE_FIXED_FILE;
}

void cached_read(benchmark::State& state, Variant variant) {
  const auto count = static_cast<unsigned>(state.range(0));
  const UniqueFd file = cached_file();
  io_uring ring{};
  if (!file || io_uring_queue_init(256, &ring, variant.setup) != 0) return state.SkipWithError("no file or no ring");
  const std::unique_ptr<std::byte, decltype(&std::free)> memory(
      static_cast<std::byte*>(std::aligned_alloc(kPageSize, count * kPageSize)), &std::free);
  const int fd = file.get();
  const iovec buffer{memory.get(), count * kPageSize};
  if (variant.file && io_uring_register_files(&ring, &fd, 1) != 0) state.SkipWithError("register the file");
  if (variant.buffer && io_uring_register_buffers(&ring, &buffer, 1) != 0) state.SkipWithError("register the buffer");
  std::uint64_t done = 0;
  std::uint64_t errors = 0;
  for (auto _ : state) {
    for (unsigned i = 0; i < count; ++i) {
      const std::uint64_t page = (done + i) * 7919 % kPages;
      prepare_read(*io_uring_get_sqe(&ring), variant, fd, memory.get() + i * kPageSize, page);
    }
    io_uring_submit(&ring);
    std::array<io_uring_cqe*, 64> completions;
    for (unsigned left = count; left > 0;) {
      const unsigned n = io_uring_peek_batch_cqe(&ring, completions.data(), completions.size());
      for (unsigned i = 0; i < n; ++i) errors += completions[i]->res != static_cast<int>(kPageSize) ? 1 : 0;
      io_uring_cq_advance(&ring, n);
      left -= n;
    }
    done += count;
  }
  if (errors > 0) state.SkipWithError("a read failed");
  state.SetItemsProcessed(static_cast<std::int64_t>(done));
  io_uring_queue_exit(&ring);
}

constexpr unsigned kCooperative = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
BENCHMARK_CAPTURE(cached_read, plain, Variant{})->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(cached_read, registered_file, Variant{0, true})->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(cached_read, registered_file_and_buffer, Variant{0, true, true})->Arg(1)->Arg(32);
BENCHMARK_CAPTURE(cached_read, registered_file_cooperative, Variant{kCooperative, true})->Arg(1)->Arg(32);

}  // namespace
}  // namespace xblk::store
