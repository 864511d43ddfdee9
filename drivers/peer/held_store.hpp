// A store that finishes an operation when the test says so, in any order and with any result. It reads what is written
// and fills what is read, so that a piece outside of its request's pages does not go unseen.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/base/result.hpp"
#include "drivers/base/units.hpp"
#include "drivers/store/store.hpp"

namespace xblk::peer {

class HeldStore final : public store::Store {
 public:
  static constexpr std::uint8_t kReadFill = 0x5a;

  [[nodiscard]] store::Geometry geometry() const override {
    store::Geometry geometry;
    geometry.capacity = Sectors(8192);
    geometry.sector_size = sector_size;
    geometry.secure_discard = true;
    return geometry;
  }
  Status resize(Sectors) override { return {}; }
  [[nodiscard]] std::string description() const override { return "held"; }
  Result<std::unique_ptr<store::Queue>> open_queue() override { return std::make_unique<Queue>(*this); }

  void finish_oldest(int error = 0) { finish(0, error); }
  void finish(std::size_t position, int error) {
    XBLK_CHECK(position < held.size(), "there is such an operation");
    const auto [queue, operation] = held[position];
    if (error == 0) execute(operation);
    queue->finished.push_back({operation.cookie, error});
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(position));
  }
  // What lies at the store, oldest first.
  [[nodiscard]] std::vector<store::Op> operations() const {
    std::vector<store::Op> ops;
    for (const auto& [queue, operation] : held) ops.push_back(operation.op);
    return ops;
  }

  struct Queue final : store::Queue {
    explicit Queue(HeldStore& s) : owner(s) {}
    void submit(std::span<const store::Operation> batch) override {
      for (const auto& operation : batch) owner.held.emplace_back(this, operation);
    }
    unsigned reap(std::span<store::Finished> into) override {
      unsigned n = 0;
      for (; n < into.size() && !finished.empty(); ++n, finished.pop_front()) into[n] = finished.front();
      return n;
    }
    HeldStore& owner;
    std::deque<store::Finished> finished;
  };
  std::deque<std::pair<Queue*, store::Operation>> held;
  std::uint32_t sector_size = kSectorSize;
  std::uint64_t bytes_written = 0;
  std::uint64_t sum_written = 0;  // of all bytes, so that they are looked at

 private:
  void execute(const store::Operation& operation) {
    for (const auto& piece : operation.pieces) {
      if (operation.op == store::Op::read) std::memset(piece.address, kReadFill, piece.bytes);
      if (operation.op != store::Op::write) continue;
      bytes_written += piece.bytes;
      for (std::uint32_t i = 0; i < piece.bytes; ++i) sum_written += std::to_integer<std::uint64_t>(piece.address[i]);
    }
  }
};

}  // namespace xblk::peer
