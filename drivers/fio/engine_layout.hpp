// Is the fio that loaded us the fio we were compiled against? fio itself compares only FIO_IOOPS_VERSION; structures
// whose layout differs would be read wrongly in silence. These probes compare what the running program exports and what
// it must have stored by now with the offsets of our headers, in an order in which no probe trusts an unproven offset.
#pragma once

#include "drivers/base/result.hpp"

struct ioengine_ops;
struct thread_data;
struct io_u;

namespace xblk::fio_engine {

// The version string of the running program, and the offsets of job options as its option table has them.
Status check_fio_program();
// In setup(): fields that fio has filled in for the job by then.
Status check_job_layout(thread_data* td, const ioengine_ops* ops);
// When fio has just made the I/O unit. Later would be too late: an error stored at a wrong offset is no error to fio.
Status check_io_layout(const io_u* io);

}  // namespace xblk::fio_engine
