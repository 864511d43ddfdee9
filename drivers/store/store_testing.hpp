// What the tests of stores share: a queue driven by hand.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "drivers/store/store.hpp"

namespace xblk::store::testing {

inline std::unique_ptr<Store> must_open(const std::string& specification) {
  auto store = open_store(specification);
  EXPECT_TRUE(store) << store.error().message;
  return store ? std::move(*store) : nullptr;
}

inline std::unique_ptr<Queue> must_open_queue(Store& store) {
  auto queue = store.open_queue();
  EXPECT_TRUE(queue) << queue.error().message;
  return queue ? std::move(*queue) : nullptr;
}

inline bool readable(int fd, int timeout_ms = 0) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

// Waits for `count` operations as a worker does, on the queue's descriptor. Errors by cookie.
inline std::map<std::uint64_t, int> reap_all(Queue& queue, std::size_t count) {
  constexpr int kPatienceMs = 60'000;  // a lost completion fails the test instead of hanging it
  std::map<std::uint64_t, int> errors;
  std::array<Finished, 64> finished;
  while (errors.size() < count) {
    const unsigned n = queue.reap(finished);
    for (unsigned i = 0; i < n; ++i)
      EXPECT_TRUE(errors.emplace(finished[i].cookie, finished[i].error).second) << "finished twice";
    if (n > 0 || errors.size() == count) continue;
    if (queue.completion_fd() < 0 || !readable(queue.completion_fd(), kPatienceMs)) {
      ADD_FAILURE() << count - errors.size() << " operations of " << count << " did not finish";
      return errors;
    }
  }
  EXPECT_EQ(queue.reap(finished), 0u) << "more finished than was submitted";
  return errors;
}

inline int run(Queue& queue, const Operation& operation) {
  queue.submit({&operation, 1});
  return reap_all(queue, 1)[operation.cookie];
}

// Page-aligned memory, as what is granted is.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes),
        base_(static_cast<std::byte*>(std::aligned_alloc(kPageSize, (bytes + kPageSize - 1) / kPageSize * kPageSize))) {
  }
  Pages(Pages&& other) noexcept : bytes_(other.bytes_), base_(std::exchange(other.base_, nullptr)) {}
  ~Pages() { std::free(base_); }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return base_ + offset; }
  [[nodiscard]] std::span<std::byte> all() const { return {base_, bytes_}; }
  [[nodiscard]] Piece piece(std::size_t offset, std::size_t bytes) const {
    return {base_ + offset, static_cast<std::uint32_t>(bytes)};
  }
  void fill(std::byte value) const { std::fill_n(base_, bytes_, value); }

 private:
  std::size_t bytes_;
  std::byte* base_;
};

inline int write_at(Queue& queue, std::uint64_t sector, std::span<const std::byte> data) {
  Pages pages(data.size());
  std::copy(data.begin(), data.end(), pages.at(0));
  const Piece piece = pages.piece(0, data.size());
  return run(queue, {Op::write, Sectors(sector), Sectors(data.size() / kSectorSize), {&piece, 1}, 1});
}

inline int write_at(Queue& queue, std::uint64_t sector, std::uint64_t sectors, std::byte value) {
  return write_at(queue, sector, std::vector<std::byte>(sectors * kSectorSize, value));
}

struct ReadBack {
  int error = 0;
  std::vector<std::byte> data;
};
inline ReadBack read_at(Queue& queue, std::uint64_t sector, std::uint64_t sectors) {
  Pages pages(sectors * kSectorSize);
  pages.fill(std::byte{0xee});
  const Piece piece = pages.piece(0, sectors * kSectorSize);
  const int error = run(queue, {Op::read, Sectors(sector), Sectors(sectors), {&piece, 1}, 1});
  return {error, {pages.all().begin(), pages.all().end()}};
}

// True: all of it reads as `value`.
inline ::testing::AssertionResult reads_as(Queue& queue, std::uint64_t sector, std::uint64_t sectors, std::byte value) {
  const ReadBack back = read_at(queue, sector, sectors);
  if (back.error != 0) return ::testing::AssertionFailure() << "errno " << back.error;
  for (std::size_t i = 0; i < back.data.size(); ++i) {
    if (back.data[i] != value)
      return ::testing::AssertionFailure() << "byte " << i << " is " << std::to_integer<int>(back.data[i]);
  }
  return ::testing::AssertionSuccess();
}

}  // namespace xblk::store::testing
