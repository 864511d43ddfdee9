#include "drivers/fio/job.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::fio_engine {

Result<std::unique_ptr<Job>> Job::join(Registry& registry, const JobOptions& options) {
  auto membership = registry.join(options);
  if (!membership) return tl::unexpected(membership.error());
  return std::unique_ptr<Job>(new Job(registry, *membership));
}

Job::~Job() {
  static_cast<void>(finish());
}

Status Job::start(unsigned depth, Nanos stall_limit) {
  stall_limit_ = stall_limit;
  auto channel = shared_.device().open_channel(number_);
  if (!channel) return tl::unexpected(channel.error());
  channel_ = std::move(*channel);
  events_.resize(depth);
  stash_.reserve(depth);
  return {};
}

Status Job::finish() {
  if (!member_) return {};
  member_ = false;
  channel_.reset();
  free_buffers();
  return registry_.leave(shared_);
}

Result<std::byte*> Job::allocate_buffers(Bytes size) {
  XBLK_CHECK(buffers_.empty(), "fio allocates a job's buffers once");
  auto block = shared_.device().allocate_buffers(size);
  if (!block) return tl::unexpected(block.error());
  buffers_ = *block;
  return buffers_.data();
}

void Job::free_buffers() {
  if (!buffers_.empty()) shared_.device().free_buffers(std::exchange(buffers_, {}));
}

Status Job::submit_when_full(const blkfront::Io& io) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::nanoseconds(stall_limit_.value());
  while (std::chrono::steady_clock::now() < give_up) {
    if (auto status = make_room(); !status) return status;
    Status status = channel_->submit(io);
    if (status || status.error().code != EAGAIN) return status;
  }
  return stalled();
}

Status Job::make_room() {
  channel_->commit();
  const std::size_t kept = stash_.size();
  stash_.resize(events_.size());
  const unsigned arrived = channel_->reap(outstanding_ > 0 ? 1 : 0, std::span(stash_).subspan(kept), stall_limit_);
  stash_.resize(kept + arrived);
  if (arrived == 0 && outstanding_ > 0) return stalled();
  // The ring is full of other jobs' I/Os: they reap it, or our next round does.
  if (outstanding_ == 0) std::this_thread::yield();
  outstanding_ -= arrived;
  return {};
}

tl::unexpected<Error> Job::stalled() const {
  return fail(ETIMEDOUT, fmt::format("{}: no completion for {} ms: the backend hangs", shared_.options().device.device,
                                     stall_limit_.value() / 1'000'000));
}

unsigned Job::take_stashed(unsigned max) {
  const auto count = std::min<std::ptrdiff_t>(max, std::ssize(stash_));
  std::copy_n(stash_.begin(), count, events_.begin());
  stash_.erase(stash_.begin(), stash_.begin() + count);
  return static_cast<unsigned>(count);
}

Result<unsigned> Job::reap(unsigned min, unsigned max) {
  max = std::min<unsigned>(max, static_cast<unsigned>(events_.size()));
  min = std::min(min, max);
  const unsigned stashed = stash_.empty() ? 0 : take_stashed(max);
  const unsigned missing = min > stashed ? min - stashed : 0;
  const auto room = std::span(events_).subspan(stashed, max - stashed);
  const unsigned arrived = room.empty() ? 0 : channel_->reap(missing, room, missing > 0 ? stall_limit_ : Nanos(0));
  outstanding_ -= arrived;
  if (stashed + arrived == 0 && min > 0) return stalled();
  return stashed + arrived;
}

}  // namespace xblk::fio_engine
