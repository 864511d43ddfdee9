// What a user of the reference frontend sees: a block device with queues. The templates over a platform hide behind
// it (architecture, decision 1), so that the fio engine, tests and tools include no platform.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"

namespace xblk::blkfront {

// flush: all that was written before is durable when it completes. barrier: a write, or nothing, that is executed after
// everything before it and before everything after it, and is durable as a flush is.
enum class IoOp : std::uint8_t { read, write, flush, discard, barrier };

// One I/O of the caller. The device may split it over several ring requests.
struct Io {
  IoOp op = IoOp::read;
  Sectors sector{};             // first sector, in 512-byte units
  Sectors count{};              // length; 0 for flush, and for a barrier without data
  std::byte* buffer = nullptr;  // count * 512 bytes, 512-aligned, inside a block of allocate_buffers(); else unused
  void* cookie = nullptr;       // given back in the completion
  bool secure = false;          // discard: no copy of the data may be recoverable (BLKIF_DISCARD_SECURE)
};

struct Completion {
  void* cookie = nullptr;
  int error = 0;  // errno value: 0, EIO, EOPNOTSUPP, ENODEV (backend gone)
};

// What both ends agreed on at the last connect. Offers are in xenstore; this is the result.
struct Negotiated {
  bool persistent = false;
  std::uint16_t queues = 0;
  std::uint32_t ring_page_order = 0;
  std::uint32_t indirect_segments_max = 0;  // 0: direct requests only
  // Optional operations. One that the backend refuses after all is no longer offered (EOPNOTSUPP), until the next
  // connect.
  bool flush = false;  // else a flush is sent as an empty barrier, if there are barriers
  bool barrier = false;
  bool discard = false;
  bool discard_secure = false;
  std::uint32_t discard_granularity = kSectorSize;  // bytes; a discard is a multiple of it,
  std::uint32_t discard_alignment = 0;              // beginning at this offset, bytes

  friend bool operator==(const Negotiated&, const Negotiated&) = default;
};

struct DeviceInfo {
  Sectors capacity{};
  std::uint32_t sector_size = kSectorSize;  // bytes; I/O must be a multiple of it
  bool readonly = false;
  Negotiated negotiated;
};

// One submitter's view of one queue: a fio job, a test thread. Several channels may share a queue; each sees only its
// own completions, whoever reaped them from the ring. A channel is used by one thread at a time.
class Channel {
 public:
  virtual ~Channel() = default;

  // Puts the I/O on the ring without telling the backend. EAGAIN: the ring or the grant pool is full; commit and reap
  // first. EINVAL: misaligned, out of range or outside grantable memory. EROFS, EOPNOTSUPP, ENODEV as named.
  virtual Status submit(const Io& io) = 0;
  // Makes everything submitted visible: one push, at most one notification.
  virtual void commit() = 0;
  // Completions of this channel: waits until `min` have arrived, `timeout` has passed or nothing is in flight any more;
  // returns how many were stored.
  virtual unsigned reap(unsigned min, std::span<Completion> into, Nanos timeout) = 0;
};

class BlockDevice {
 public:
  virtual ~BlockDevice() = default;

  [[nodiscard]] virtual DeviceInfo info() const = 0;
  // Page-aligned memory that the device can grant. Freed by the matching call, when no I/O uses it.
  virtual Result<std::span<std::byte>> allocate_buffers(Bytes size) = 0;
  virtual void free_buffers(std::span<std::byte> block) = 0;
  // Channels outlive no device. Queue numbers are taken modulo the negotiated queues, so that jobs can simply count.
  virtual Result<std::unique_ptr<Channel>> open_channel(unsigned number) = 0;
  // Path of this end's statistics file, and of the backend's if this host can read it (else empty).
  [[nodiscard]] virtual std::string statistics_path() const = 0;
  [[nodiscard]] virtual std::string backend_statistics_path() const = 0;
  // Orderly: waits for I/O in flight, ends all grants, reaches XenbusStateClosed. Also done by the destructor.
  virtual Status disconnect() = 0;
};

}  // namespace xblk::blkfront
