#include "drivers/store/throttled_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <memory>
#include <vector>

#include "drivers/base/unique_fd.hpp"
#include "drivers/store/store_testing.hpp"

namespace xblk::store::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Instant now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

// Cookies in the order of delivery.
std::vector<std::uint64_t> delivered(Queue& queue, std::size_t count) {
  std::vector<std::uint64_t> order;
  std::array<Finished, 8> finished;
  while (order.size() < count && readable(queue.completion_fd(), 60'000)) {
    const unsigned n = queue.reap(finished);
    for (unsigned i = 0; i < n; ++i) order.push_back(finished[i].cookie);
  }
  return order;
}

// Time is only ever asserted from below, which no busy machine can break.
TEST(ThrottledStore, NothingComesBeforeTheLinkBringsIt) {
  const auto store = must_open("throttled:50MB/s:5ms:ram:1MiB");
  const auto queue = must_open_queue(*store);
  const Pages pages(1 << 20);
  const Piece piece = pages.piece(0, 1 << 20);
  const Instant start = now();
  EXPECT_EQ(run(*queue, {Op::write, Sectors(0), Sectors(2048), {&piece, 1}, 1}), 0);
  EXPECT_GE(now() - start, Nanos(5'000'000 + 20'971'520)) << "1 MiB at 50 MB/s, and the round trip";
}

TEST(ThrottledStore, AllQueuesShareOneLink) {
  const auto store = must_open("throttled:50MB/s:0ns:ram:1MiB");
  const auto one = must_open_queue(*store);
  const auto other = must_open_queue(*store);
  const Pages pages(1 << 20);
  const Piece piece = pages.piece(0, 1 << 20);
  const Operation write{Op::write, Sectors(0), Sectors(2048), {&piece, 1}, 1};
  const Instant start = now();
  one->submit({&write, 1});
  other->submit({&write, 1});
  reap_all(*other, 1);
  EXPECT_GE(now() - start, Nanos(2 * 20'971'520));
  EXPECT_EQ(delivered(*one, 1).size(), 1u);
}

TEST(ThrottledStore, DeliversInTheOrderOfTheLinkAndLetsCommandsPass) {
  const auto store = must_open("throttled:10MB/s:1us:ram:1MiB");
  const auto queue = must_open_queue(*store);
  const Pages pages(1 << 18);
  const Piece large = pages.piece(0, 1 << 18);
  const Piece small = pages.piece(0, kPageSize);
  const std::vector<Operation> batch = {{Op::write, Sectors(0), Sectors(512), {&large, 1}, 1},
                                        {Op::read, Sectors(0), Sectors(8), {&small, 1}, 2},
                                        {Op::discard, Sectors(8), Sectors(8), {}, 3},
                                        {Op::flush, {}, {}, {}, 4}};
  queue->submit(batch);
  const auto order = delivered(*queue, 4);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_THAT((std::vector(order.begin(), order.begin() + 2)), ::testing::UnorderedElementsAre(3, 4))
      << "26 ms before the transfers";
  EXPECT_THAT((std::vector(order.begin() + 2, order.end())), ElementsAre(1, 2));
}

// An inner store whose operations end when the test says so.
class HeldStore final : public Store {
 public:
  [[nodiscard]] Geometry geometry() const override { return {.capacity = Sectors(2048), .asynchronous = true}; }
  Result<std::unique_ptr<Queue>> open_queue() override { return std::make_unique<HeldQueue>(*this); }
  Status resize(Sectors) override { return {}; }
  [[nodiscard]] std::string description() const override { return "held"; }

  void finish(int error) {
    const std::uint64_t one = 1;
    finished.push_back({held.front().cookie, error});
    held.pop_front();
    ASSERT_EQ(::write(bell.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }

  struct HeldQueue final : Queue {
    explicit HeldQueue(HeldStore& s) : owner(s) {}
    void submit(std::span<const Operation> batch) override {
      owner.held.insert(owner.held.end(), batch.begin(), batch.end());
    }
    unsigned reap(std::span<Finished> into) override {
      std::uint64_t rung = 0;
      static_cast<void>(!::read(owner.bell.get(), &rung, sizeof rung));
      unsigned n = 0;
      for (; n < into.size() && !owner.finished.empty(); ++n, owner.finished.pop_front())
        into[n] = owner.finished.front();
      return n;
    }
    [[nodiscard]] int completion_fd() const override { return owner.bell.get(); }
    HeldStore& owner;
  };

  UniqueFd bell{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::deque<Operation> held;
  std::deque<Finished> finished;
};

TEST(ThrottledStore, ASlowInnerStoreIsWaitedForOnTheSameDescriptor) {
  auto inner = std::make_unique<HeldStore>();
  HeldStore& held = *inner;
  const auto store = make_throttled_store({1'000'000'000'000, Nanos(0)}, std::move(inner));
  const auto queue = must_open_queue(*store);
  const std::vector<Operation> batch = {{Op::flush, {}, {}, {}, 71}, {Op::flush, {}, {}, {}, 72}};
  queue->submit(batch);
  Finished finished;
  EXPECT_EQ(queue->reap({&finished, 1}), 0u);
  EXPECT_FALSE(readable(queue->completion_fd())) << "due, but not there";
  held.finish(EIO);
  ASSERT_EQ(delivered(*queue, 1), std::vector<std::uint64_t>{71});
  EXPECT_FALSE(readable(queue->completion_fd()));
  held.finish(0);
  EXPECT_EQ(reap_all(*queue, 1), (std::map<std::uint64_t, int>{{72, 0}}));
}

TEST(ThrottledStore, ErrorsAndGeometryAreTheInnerStores) {
  const auto inner = must_open("ram:1MiB");
  const auto store = must_open("throttled:70MB/s:500us:throttled:1000MB/s:0ns:ram:1MiB");
  EXPECT_EQ(store->geometry().capacity, inner->geometry().capacity);
  EXPECT_EQ(store->geometry().secure_discard, inner->geometry().secure_discard);
  EXPECT_TRUE(store->geometry().asynchronous);
  EXPECT_THAT(store->description(), HasSubstr("behind 70000000 bytes/s with a round trip of 500000 ns: behind"));
  const auto queue = must_open_queue(*store);
  EXPECT_EQ(write_at(*queue, 2048, 8, std::byte{1}), EIO);
}

}  // namespace
}  // namespace xblk::store::testing
