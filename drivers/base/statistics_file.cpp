#include "drivers/base/statistics_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk {
namespace {

std::size_t file_size(std::uint32_t queues) {
  return sizeof(StatisticsHeader) + queues * sizeof(QueueCounters);
}

void initialise(void* mapping, End end, std::uint32_t domid, std::uint32_t devid, std::uint32_t queues_max) {
  auto* header = new (mapping) StatisticsHeader;
  header->version = kStatisticsVersion;
  header->end = static_cast<std::uint32_t>(end);
  header->queues_max = queues_max;
  header->counter_count = kCounterCount;
  header->gauge_count = kGaugeCount;
  header->domid = domid;
  header->devid = devid;
  header->writer_pid = static_cast<std::uint32_t>(::getpid());
  auto* queues = static_cast<std::byte*>(mapping) + sizeof(StatisticsHeader);
  for (std::uint32_t q = 0; q < queues_max; ++q) new (queues + q * sizeof(QueueCounters)) QueueCounters;
  // Last, so that a reader that sees the magic sees the rest (release pairs with read_statistics' acquire).
  std::atomic_ref<std::uint64_t>(header->magic).store(kStatisticsMagic, std::memory_order_release);
}

}  // namespace

Result<StatisticsFile> StatisticsFile::create(const std::string& path, End end, std::uint32_t domid,
                                              std::uint32_t devid, std::uint32_t queues_max) {
  XBLK_CHECK(queues_max >= 1 && queues_max <= kStatisticsQueuesMax, "queue limit of the statistics layout");
  const std::string temporary = path + ".new";
  const int fd = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return fail_errno("create statistics file " + temporary);
  const std::size_t size = file_size(queues_max);
  if (const int code = ::posix_fallocate(fd, 0, static_cast<off_t>(size)); code != 0) {
    ::close(fd);
    ::unlink(temporary.c_str());
    return fail(code, fmt::format("allocate {} bytes for {}: {}", size, temporary, std::strerror(code)));
  }
  void* mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (mapping == MAP_FAILED) return fail_errno("map statistics file " + temporary);
  initialise(mapping, end, domid, devid, queues_max);
  StatisticsFile file;
  file.mapping_ = mapping;
  file.size_ = size;
  file.header_ = static_cast<StatisticsHeader*>(mapping);
  file.queues_ = reinterpret_cast<QueueCounters*>(static_cast<std::byte*>(mapping) + sizeof(StatisticsHeader));
  file.path_ = path;
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail_errno("rename " + temporary + " to " + path);
  return file;
}

StatisticsFile StatisticsFile::anonymous(End end, std::uint32_t queues_max) {
  const std::size_t size = file_size(queues_max);
  void* mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  XBLK_CHECK(mapping != MAP_FAILED, "a few pages of anonymous memory");
  initialise(mapping, end, 0, 0, queues_max);
  StatisticsFile file;
  file.mapping_ = mapping;
  file.size_ = size;
  file.header_ = static_cast<StatisticsHeader*>(mapping);
  file.queues_ = reinterpret_cast<QueueCounters*>(static_cast<std::byte*>(mapping) + sizeof(StatisticsHeader));
  return file;
}

void StatisticsFile::release() {
  if (mapping_ != nullptr) ::munmap(mapping_, size_);
  mapping_ = nullptr;
}

StatisticsFile::StatisticsFile(StatisticsFile&& other) noexcept
    : path_(std::move(other.path_)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      size_(other.size_),
      header_(other.header_),
      queues_(other.queues_) {}

StatisticsFile& StatisticsFile::operator=(StatisticsFile&& other) noexcept {
  release();
  path_ = std::move(other.path_);
  mapping_ = std::exchange(other.mapping_, nullptr);
  size_ = other.size_;
  header_ = other.header_;
  queues_ = other.queues_;
  return *this;
}

StatisticsFile::~StatisticsFile() {
  release();
}

std::uint64_t StatisticsSample::total(Counter c) const {
  std::uint64_t sum = 0;
  for (const auto& q : queues) sum += q.get(c);
  return sum;
}

std::uint64_t StatisticsSample::total(Gauge g) const {
  std::uint64_t sum = 0;
  for (const auto& q : queues) sum += q.get(g);
  return sum;
}

// read(2), not mmap: a file that another process truncates must give a short read, never SIGBUS.
Result<StatisticsSample> read_statistics(const std::string& path, std::uint32_t queues_min) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno("open statistics file " + path);
  std::vector<std::byte> content(file_size(kStatisticsQueuesMax));
  const ssize_t got = ::pread(fd, content.data(), content.size(), 0);
  const int code = errno;
  ::close(fd);
  if (got < 0) return fail(code, "read statistics file " + path + ": " + std::strerror(code));
  const auto have = static_cast<std::size_t>(got);
  if (have < sizeof(StatisticsHeader)) return fail(EINVAL, path + ": shorter than a statistics header");
  StatisticsHeader header;
  std::memcpy(static_cast<void*>(&header), content.data(), sizeof header);
  if (header.magic != kStatisticsMagic) return fail(EINVAL, path + ": not an xblk statistics file");
  if (header.version != kStatisticsVersion || header.counter_count != kCounterCount ||
      header.gauge_count != kGaugeCount) {
    return fail(EPROTO, fmt::format("{}: statistics version {} with {} counters, this program reads version {} with {}",
                                    path, header.version, header.counter_count, kStatisticsVersion, kCounterCount));
  }
  const std::uint32_t queues = std::max(header.queues.load(std::memory_order_relaxed), queues_min);
  if (queues > header.queues_max || header.queues_max > kStatisticsQueuesMax || have < file_size(queues)) {
    return fail(EINVAL, fmt::format("{}: header claims {} queues of {}, file has {} bytes", path, queues,
                                    header.queues_max, have));
  }
  StatisticsSample sample;
  sample.end = static_cast<End>(header.end);
  sample.domid = header.domid;
  sample.devid = header.devid;
  sample.generation = header.generation.load(std::memory_order_relaxed);
  sample.queues.resize(queues);
  for (std::uint32_t q = 0; q < queues; ++q) {
    const std::byte* from = content.data() + sizeof(StatisticsHeader) + q * sizeof(QueueCounters);
    std::memcpy(sample.queues[q].counters.data(), from, sizeof sample.queues[q].counters);
    std::memcpy(sample.queues[q].gauges.data(), from + sizeof sample.queues[q].counters,
                sizeof sample.queues[q].gauges);
  }
  return sample;
}

}  // namespace xblk
