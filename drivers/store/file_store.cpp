#include "drivers/store/file_store.hpp"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "drivers/store/file_queue.hpp"
#include "drivers/store/file_target.hpp"

namespace xblk::store {
namespace {

class FileStore final : public Store {
 public:
  explicit FileStore(FileTarget target) : target_(std::move(target)) {}

  [[nodiscard]] Geometry geometry() const override {
    Geometry geometry;
    geometry.capacity = Sectors(capacity_.load(std::memory_order_relaxed));
    geometry.sector_size = target_.block_bytes;
    geometry.readonly = target_.readonly;
    geometry.asynchronous = true;
    geometry.discard = target_.discard;
    geometry.discard_granularity = target_.discard_granularity;
    geometry.discard_alignment = target_.discard_alignment;
    return geometry;
  }

  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override {
    auto fd = target_.reopen();
    if (!fd) return tl::unexpected(fd.error());
    return FileQueue::open({.fd = std::move(*fd),
                            .readonly = target_.readonly,
                            .discard = target_.discard,
                            .memory_align = target_.direct ? target_.memory_align : 1,
                            .block_bytes = target_.direct ? target_.block_bytes : 1,
                            .capacity = capacity_});
  }

  Status resize(Sectors wanted) override {
    const auto available = target_.size();
    if (!available) return tl::unexpected(available.error());
    const Sectors size = wanted == Sectors(0) ? *available : wanted;
    if (size == Sectors(0))
      return fail(EINVAL, fmt::format("file store '{0}': is empty; write file:SIZE:{0} to size it", target_.path));
    if (to_bytes(size).value() % target_.block_bytes != 0) {
      return fail(EINVAL, fmt::format("file store '{}': {} sectors are not whole blocks of {} bytes", target_.path,
                                      size.value(), target_.block_bytes));
    }
    if (target_.block_device || target_.readonly) {
      if (size > *available) {
        return fail(EINVAL, fmt::format("file store '{}': has {} sectors and cannot be grown to {} from here",
                                        target_.path, available->value(), size.value()));
      }
    } else if (wanted != Sectors(0)) {
      return resize_file(size);
    }
    capacity_.store(size.value(), std::memory_order_relaxed);
    return {};
  }

  [[nodiscard]] std::string description() const override {
    const std::string path = target_.direct ? fmt::format("O_DIRECT in blocks of {} bytes", target_.block_bytes)
                                            : std::string("buffered, as its file system takes no O_DIRECT");
    return fmt::format("{} '{}', {}{}{}", target_.block_device ? "block device" : "file", target_.path, path,
                       target_.readonly ? ", read-only" : "", target_.discard ? "" : ", no discard");
  }

 private:
  // Queues see a smaller size before the file has it, and a larger one after. A write that was in flight across an
  // earlier shrink has made the file longer again: that tail goes first, so that growth begins with zeros.
  Status resize_file(Sectors size) {
    const Sectors before(capacity_.load(std::memory_order_relaxed));
    if (size < before) capacity_.store(size.value(), std::memory_order_relaxed);
    if (before != Sectors(0) && size > before) {
      if (auto cut = truncate(before); !cut) return cut;
    }
    if (auto done = truncate(size); !done) return done;
    capacity_.store(size.value(), std::memory_order_relaxed);
    return {};
  }

  Status truncate(Sectors size) {
    if (::ftruncate(target_.fd.get(), static_cast<off_t>(to_bytes(size).value())) != 0)
      return fail_errno(fmt::format("file store '{}': resize to {} sectors", target_.path, size.value()));
    return {};
  }

  FileTarget target_;
  std::atomic<std::uint64_t> capacity_{0};  // sectors
};

}  // namespace

Result<std::unique_ptr<Store>> make_file_store(const std::string& path, Sectors size) {
  auto target = open_file_target(path, size != Sectors(0));
  if (!target) return tl::unexpected(target.error());
  auto store = std::make_unique<FileStore>(std::move(*target));
  if (auto sized = store->resize(size); !sized) return tl::unexpected(sized.error());
  return store;
}

}  // namespace xblk::store
