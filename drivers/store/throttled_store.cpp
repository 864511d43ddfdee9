#include "drivers/store/throttled_store.hpp"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <queue>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "drivers/base/check.hpp"
#include "drivers/base/unique_fd.hpp"
#include "drivers/store/link_schedule.hpp"

namespace xblk::store {
namespace {

Instant now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant(t.tv_sec * 1'000'000'000LL + t.tv_nsec);
}

// The one link of a store. Its lock is a part of the model: the wire takes one transfer at a time.
class SharedLink {
 public:
  explicit SharedLink(Link link) : schedule_(link) {}

  void schedule(std::span<const Operation> batch, std::vector<Instant>& due) {
    const std::lock_guard guard(mutex_);
    const Instant submitted = now();
    for (const Operation& operation : batch) {
      const bool data = operation.op == Op::read || operation.op == Op::write;
      due.push_back(data ? schedule_.transfer(submitted, to_bytes(operation.count)) : schedule_.command(submitted));
    }
  }

 private:
  std::mutex mutex_;
  LinkSchedule schedule_;
};

// An operation is at the inner store, then on its way until it is due. The timer is set for the first one on its way.
class ThrottledQueue final : public Queue {
 public:
  static Result<std::unique_ptr<Queue>> open(SharedLink& link, std::unique_ptr<Queue> inner) {
    UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (!timer) return fail_errno("throttled store: timerfd_create");
    UniqueFd either;
    if (inner->completion_fd() >= 0) {
      either = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
      if (!either) return fail_errno("throttled store: epoll_create1");
      for (const int fd : {timer.get(), inner->completion_fd()}) {
        epoll_event event{};
        event.events = EPOLLIN;
        if (::epoll_ctl(either.get(), EPOLL_CTL_ADD, fd, &event) != 0) return fail_errno("throttled store: epoll_ctl");
      }
    }
    return std::make_unique<ThrottledQueue>(link, std::move(inner), std::move(timer), std::move(either));
  }

  ThrottledQueue(SharedLink& link, std::unique_ptr<Queue> inner, UniqueFd timer, UniqueFd either)
      : link_(link), inner_(std::move(inner)), timer_(std::move(timer)), either_(std::move(either)) {}

  void submit(std::span<const Operation> batch) override {
    due_.clear();
    link_.schedule(batch, due_);
    inner_batch_.assign(batch.begin(), batch.end());
    for (std::size_t i = 0; i < batch.size(); ++i) {
      inner_batch_[i].cookie = take_slot();
      slots_[inner_batch_[i].cookie] = {batch[i].cookie, due_[i]};
    }
    inner_->submit(inner_batch_);
    collect();
    set_timer();
  }

  unsigned reap(std::span<Finished> into) override {
    collect();
    unsigned n = 0;
    if (!on_their_way_.empty()) {
      const Instant current = now();
      for (; n < into.size() && !on_their_way_.empty() && on_their_way_.top().due <= current; ++n) {
        into[n] = on_their_way_.top().finished;
        on_their_way_.pop();
      }
    }
    set_timer();
    return n;
  }

  [[nodiscard]] int completion_fd() const override { return either_ ? either_.get() : timer_.get(); }

 private:
  struct AtInner {
    std::uint64_t cookie = 0;
    Instant due;
  };
  struct OnItsWay {
    Instant due;
    Finished finished;
    friend bool operator>(const OnItsWay& a, const OnItsWay& b) { return a.due > b.due; }
  };

  std::uint64_t take_slot() {
    if (free_slots_.empty()) {
      slots_.emplace_back();
      return slots_.size() - 1;
    }
    const std::uint64_t index = free_slots_.back();
    free_slots_.pop_back();
    return index;
  }

  void collect() {
    std::array<Finished, 64> finished;
    unsigned n = 0;
    do {
      n = inner_->reap(finished);
      for (unsigned i = 0; i < n; ++i) {
        const AtInner& slot = slots_[finished[i].cookie];
        on_their_way_.push({slot.due, {slot.cookie, finished[i].error}});
        free_slots_.push_back(finished[i].cookie);
      }
    } while (n == finished.size());
  }

  // An instant in the past makes the timer readable at once; setting it, or unsetting it, makes it unreadable again.
  void set_timer() {
    const Instant wanted = on_their_way_.empty() ? Instant::never() : on_their_way_.top().due;
    if (wanted == timer_set_for_) return;
    itimerspec when{};
    if (wanted != Instant::never()) when.it_value = {wanted.ns() / 1'000'000'000, wanted.ns() % 1'000'000'000};
    XBLK_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr) == 0, "an instant is a valid time");
    timer_set_for_ = wanted;
  }

  SharedLink& link_;
  std::unique_ptr<Queue> inner_;
  UniqueFd timer_;
  UniqueFd either_;  // polls both the timer and the inner queue, when that one finishes later, too
  std::vector<AtInner> slots_;
  std::vector<std::uint64_t> free_slots_;
  std::priority_queue<OnItsWay, std::vector<OnItsWay>, std::greater<>> on_their_way_;
  Instant timer_set_for_ = Instant::never();
  std::vector<Instant> due_;            // of the batch at hand
  std::vector<Operation> inner_batch_;  // likewise
};

class ThrottledStore final : public Store {
 public:
  ThrottledStore(Link link, std::unique_ptr<Store> inner) : link_(link), shared_(link), inner_(std::move(inner)) {}

  [[nodiscard]] Geometry geometry() const override {
    Geometry geometry = inner_->geometry();
    geometry.asynchronous = true;
    return geometry;
  }
  [[nodiscard]] Result<std::unique_ptr<Queue>> open_queue() override {
    auto inner = inner_->open_queue();
    if (!inner) return inner;
    return ThrottledQueue::open(shared_, std::move(*inner));
  }
  Status resize(Sectors capacity) override { return inner_->resize(capacity); }
  [[nodiscard]] std::string description() const override {
    return fmt::format("behind {} bytes/s with a round trip of {} ns: {}", link_.bytes_per_second,
                       link_.round_trip.value(), inner_->description());
  }

 private:
  Link link_;
  SharedLink shared_;
  std::unique_ptr<Store> inner_;
};

}  // namespace

std::unique_ptr<Store> make_throttled_store(Link link, std::unique_ptr<Store> inner) {
  return std::make_unique<ThrottledStore>(link, std::move(inner));
}

}  // namespace xblk::store
