// The reference frontend as a fio ioengine: translates fio's callbacks to Job (job.hpp), nothing more. fio is C, so no
// exception may leave a callback: all of them are noexcept, and what can fail comes back as Result.
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "drivers/fio/device_factory.hpp"
#include "drivers/fio/engine_layout.hpp"
#include "drivers/fio/engine_options.hpp"
#include "drivers/fio/job.hpp"
#include "drivers/fio/registry.hpp"

#include "drivers/fio/fio_headers.hpp"

namespace xblk::fio_engine {
namespace {

extern ioengine_ops g_ops;

// What td->io_ops_data points to, from setup() to cleanup().
struct EngineJob {
  std::unique_ptr<Job> job;
  bool measuring = false;  // the ramp time is over
};

EngineJob& engine_job(const thread_data* td) {
  return *static_cast<EngineJob*>(td->io_ops_data);
}
Job& job_of(const thread_data* td) {
  return *engine_job(td).job;
}

// Never destroyed while fio runs: the library is linked with -z nodelete, for each job's end closes it once.
Registry& registry() {
  static Registry devices(&open_device);
  return devices;
}

int report(const Error& error) {
  log_err("xblk: %s\n", error.message.c_str());
  return error.code == 0 ? EIO : error.code;
}

Bytes buffer_bytes_of(const thread_data* td) {
  // What fio asks of iomem_alloc at most: its blocks, and slack to align them itself (memory.c, allocate_io_mem).
  const std::uint64_t blocks = static_cast<std::uint64_t>(td_max_bs(const_cast<thread_data*>(td))) * td->o.iodepth;
  const std::uint64_t size = blocks + 2 * kPageSize + 2 * static_cast<std::uint64_t>(td->o.mem_align);
  return Bytes((size + kPageSize - 1) / kPageSize * kPageSize);
}

Bytes buffer_bytes_of_all_jobs() {
  Bytes sum;
  for (unsigned number = 0; number < thread_number; ++number) {
    const thread_data* td = tnumber_to_td(number);
    if (td->io_ops == &g_ops) sum += buffer_bytes_of(td);
  }
  return sum;
}

Status check_job(const thread_data* td) {
  if (!td->o.use_thread) {
    return fail(EINVAL,
                "jobs must be threads, since one process is one guest and its jobs share the device: add thread=1");
  }
  if (td->o.nr_files > 1) return fail(EINVAL, "a job has one device: remove nrfiles and extra file names");
  return {};
}

Status check_geometry(const thread_data* td, const blkfront::DeviceInfo& info) {
  const std::uint64_t capacity = to_bytes(info.capacity).value();
  if (td->o.size > capacity) {
    return fail(EINVAL, fmt::format("size={} is more than the device's {} bytes", td->o.size, capacity));
  }
  for (const unsigned long long size : td->o.min_bs) {
    if (size % info.sector_size != 0) {
      return fail(EINVAL,
                  fmt::format("block size {} is no multiple of the device's sector size {}", size, info.sector_size));
    }
  }
  return {};
}

Result<std::unique_ptr<EngineJob>> connect(thread_data* td) {
  if (auto status = check_fio_program(); !status) return tl::unexpected(status.error());
  if (auto status = check_job(td); !status) return tl::unexpected(status.error());
  if (auto status = check_job_layout(td, &g_ops); !status) return tl::unexpected(status.error());
  auto options = read_options(*static_cast<EngineOptions*>(td->eo), buffer_bytes_of_all_jobs());
  if (!options) return tl::unexpected(options.error());
  auto job = Job::join(registry(), *options);
  if (!job) return tl::unexpected(job.error());
  if (auto status = check_geometry(td, (*job)->info()); !status) return tl::unexpected(status.error());
  return std::make_unique<EngineJob>(EngineJob{std::move(*job)});
}

// In fio's main thread, before any job runs: fio wants the device's size here, so the device connects here.
int setup(thread_data* td) noexcept {
  auto connected = connect(td);
  if (!connected) return report(connected.error());
  fio_file* file = td->files[0];
  file->real_file_size = to_bytes((*connected)->job->info().capacity).value();
  fio_file_set_size_known(file);
  td->io_ops_data = connected->release();
  return 0;
}

int init(thread_data* td) noexcept {
  const Status status = job_of(td).start(td->o.iodepth);
  return status ? 0 : report(status.error());
}

void cleanup(thread_data* td) noexcept {
  const std::unique_ptr<EngineJob> engine_job(static_cast<EngineJob*>(std::exchange(td->io_ops_data, nullptr)));
  if (engine_job == nullptr) return;
  if (auto status = engine_job->job->finish(); !status) report(status.error());
}

int io_u_init(thread_data* td, io_u* unit) noexcept {
  const Status status = check_io_layout(unit);
  if (status) return 0;
  td_verror(td, report(status.error()), "io_u_init");  // fio ends the job, but with exit code 0 unless it has an error
  return 1;
}

int iomem_alloc(thread_data* td, std::size_t size) noexcept {
  auto block = job_of(td).allocate_buffers(Bytes(size));
  if (!block) return report(block.error());
  td->orig_buffer = reinterpret_cast<char*>(*block);
  return 0;
}

void iomem_free(thread_data* td) noexcept {
  if (td->io_ops_data != nullptr) job_of(td).free_buffers();
  td->orig_buffer = nullptr;
}

std::optional<blkfront::IoOp> operation(fio_ddir direction) {
  switch (direction) {
    case DDIR_READ:
      return blkfront::IoOp::read;
    case DDIR_WRITE:
      return blkfront::IoOp::write;
    case DDIR_TRIM:
      return blkfront::IoOp::discard;
    case DDIR_SYNC:
    case DDIR_DATASYNC:
    case DDIR_SYNC_FILE_RANGE:
      return blkfront::IoOp::flush;  // a device knows but one kind of flush
    default:
      return std::nullopt;
  }
}

fio_q_status refuse(io_u* unit, int code) {
  unit->error = static_cast<unsigned>(code);
  return FIO_Q_COMPLETED;
}

fio_q_status queue(thread_data* td, io_u* unit) noexcept {
  EngineJob& engine = engine_job(td);
  if (!engine.measuring && !in_ramp_time(td)) {
    engine.measuring = true;
    if (auto status = engine.job->begin_measuring(); !status) return refuse(unit, report(status.error()));
  }
  const auto op = operation(unit->ddir);
  if (!op) return refuse(unit, EINVAL);
  if (unit->offset % kSectorSize != 0 || unit->xfer_buflen % kSectorSize != 0) return refuse(unit, EINVAL);
  blkfront::Io io{*op, Sectors(unit->offset / kSectorSize), Sectors(unit->xfer_buflen / kSectorSize),
                  static_cast<std::byte*>(unit->xfer_buf), unit};
  if (*op == blkfront::IoOp::flush) io.sector = io.count = Sectors(0);
  const Status status = engine.job->submit(io);
  return status ? FIO_Q_QUEUED : refuse(unit, status.error().code);
}

int commit(thread_data* td) noexcept {
  job_of(td).commit();
  return 0;
}

int getevents(thread_data* td, unsigned min, unsigned max, const timespec*) noexcept {
  Job& job = job_of(td);
  const auto count = job.reap(min, max);
  if (!count) {
    // fio would record the negative number itself as the job's error, but an error that is there stays.
    td_verror(td, report(count.error()), "getevents");
    return -count.error().code;
  }
  for (unsigned i = 0; i < *count; ++i) {
    auto* unit = static_cast<io_u*>(job.completion(i).cookie);
    unit->error = static_cast<unsigned>(job.completion(i).error);
    // fio does not look at the error of a flush that completes here (io_u.c, io_completed), so the job must be told.
    if (unit->error != 0 && ddir_sync(unit->ddir)) td_verror(td, static_cast<int>(unit->error), "flush");
  }
  return static_cast<int>(*count);
}

io_u* event(thread_data* td, int index) noexcept {
  return static_cast<io_u*>(job_of(td).completion(static_cast<unsigned>(index)).cookie);
}

// The device is open from setup() to cleanup(); fio counts its files all the same.
int open_file(thread_data*, fio_file*) noexcept {
  return 0;
}
int close_file(thread_data*, fio_file*) noexcept {
  return 0;
}

ioengine_ops make_ops() {
  ioengine_ops ops{};
  ops.name = "xblk";
  ops.version = FIO_IOOPS_VERSION;
  ops.flags = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL;
  ops.setup = setup;
  ops.init = init;
  ops.cleanup = cleanup;
  ops.queue = queue;
  ops.commit = commit;
  ops.getevents = getevents;
  ops.event = event;
  ops.open_file = open_file;
  ops.close_file = close_file;
  ops.io_u_init = io_u_init;
  ops.iomem_alloc = iomem_alloc;
  ops.iomem_free = iomem_free;
  ops.options = option_table();
  ops.option_struct_size = sizeof(EngineOptions);
  return ops;
}

ioengine_ops g_ops = make_ops();

}  // namespace
}  // namespace xblk::fio_engine

// The one symbol that fio looks for.
extern "C" __attribute__((visibility("default"))) void get_ioengine(ioengine_ops** ops) {
  *ops = &xblk::fio_engine::g_ops;
}
