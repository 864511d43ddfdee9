#include "drivers/store/null_store.hpp"

#include <atomic>
#include <cerrno>

#include <fmt/format.h>

#include "drivers/store/immediate_queue.hpp"
#include "drivers/store/range.hpp"

namespace xblk::store {
namespace {

class NullQueue final : public ImmediateQueue {
 public:
  explicit NullQueue(const std::atomic<std::uint64_t>& capacity) : capacity_(capacity) {}
  void submit(std::span<const Operation> batch) override {
    const Sectors capacity(capacity_.load(std::memory_order_relaxed));
    for (const auto& operation : batch) finish(operation.cookie, within(operation, capacity) ? 0 : EIO);
  }

 private:
  const std::atomic<std::uint64_t>& capacity_;  // sectors
};

class NullStore final : public Store {
 public:
  explicit NullStore(Sectors capacity) : capacity_(capacity.value()) {}
  [[nodiscard]] Geometry geometry() const override {
    Geometry geometry;
    geometry.capacity = Sectors(capacity_.load(std::memory_order_relaxed));
    geometry.secure_discard = true;  // nothing was ever readable
    return geometry;
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override { return std::make_unique<NullQueue>(capacity_); }
  Status resize(Sectors capacity) override {
    if (capacity == Sectors(0)) return fail(EINVAL, "a null store needs a size");
    capacity_.store(capacity.value(), std::memory_order_relaxed);
    return {};
  }
  [[nodiscard]] std::string description() const override {
    return fmt::format("null, {} sectors", capacity_.load(std::memory_order_relaxed));
  }

 private:
  std::atomic<std::uint64_t> capacity_;  // sectors
};

}  // namespace

std::unique_ptr<Store> make_null_store(Sectors capacity) {
  return std::make_unique<NullStore>(capacity);
}

}  // namespace xblk::store
