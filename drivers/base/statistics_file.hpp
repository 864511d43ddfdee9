// The statistics file of one end of one vbd: a versioned, fixed-layout file that the driver writes through a shared
// mapping and that anybody may map read-only (no privilege, no request, no lock).
//
//   offset 0    StatisticsHeader (256 bytes)
//   offset 256  QueueCounters[queues]  (counters then gauges, all u64, native byte order)
//
// The header's `generation` changes at each (re)connect: a reader that sees another generation discards its base
// sample.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "drivers/base/counters.hpp"
#include "drivers/base/result.hpp"

namespace xblk {

inline constexpr std::uint64_t kStatisticsMagic = 0x31304b4c42585358ULL;  // "XSXBLK01" in file order
inline constexpr std::uint32_t kStatisticsVersion = 1;
inline constexpr std::uint32_t kStatisticsQueuesMax = 64;

enum class End : std::uint32_t { front = 1, back = 2 };

struct alignas(64) StatisticsHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t end = 0;  // End
  std::uint32_t queues_max = 0;
  std::uint32_t counter_count = 0;
  std::uint32_t gauge_count = 0;
  std::uint32_t domid = 0;  // the frontend's domain
  std::uint32_t devid = 0;  // virtual-device number
  std::uint32_t writer_pid = 0;
  std::atomic<std::uint32_t> queues{0};      // negotiated; 0 while not connected
  std::atomic<std::uint32_t> generation{0};  // number of connects so far
  std::array<std::uint64_t, 25> reserved{};
};
static_assert(sizeof(StatisticsHeader) == 256);

// Writer. The file is created with its blocks allocated, so that a full disk fails here and not as SIGBUS later.
class StatisticsFile {
 public:
  static Result<StatisticsFile> create(const std::string& path, End end, std::uint32_t domid, std::uint32_t devid,
                                       std::uint32_t queues_max);
  // In-memory instance for tests and for platforms without files.
  static StatisticsFile anonymous(End end, std::uint32_t queues_max);

  StatisticsFile(StatisticsFile&& other) noexcept;
  StatisticsFile& operator=(StatisticsFile&& other) noexcept;
  ~StatisticsFile();  // unmaps; the file itself stays for readers

  [[nodiscard]] StatisticsHeader& header() { return *header_; }
  [[nodiscard]] std::span<QueueCounters> queues() { return {queues_, header_->queues_max}; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  StatisticsFile() = default;
  void release();
  std::string path_;
  void* mapping_ = nullptr;
  std::size_t size_ = 0;
  StatisticsHeader* header_ = nullptr;
  QueueCounters* queues_ = nullptr;
};

struct StatisticsSample {
  End end = End::front;
  std::uint32_t domid = 0;
  std::uint32_t devid = 0;
  std::uint32_t generation = 0;
  std::vector<QueueSample> queues;  // the negotiated ones

  // Sum over queues.
  [[nodiscard]] std::uint64_t total(Counter c) const;
  [[nodiscard]] std::uint64_t total(Gauge g) const;
};

// One-shot read with full validation: the file may be truncated, of another version, or hostile. `queues_min`: also
// those queues that are not connected at the moment (their counters and gauges stay readable).
Result<StatisticsSample> read_statistics(const std::string& path, std::uint32_t queues_min = 0);

}  // namespace xblk
