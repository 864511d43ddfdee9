#include "agent/run/visit.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "agent/host/files.hpp"
#include "agent/run/record.hpp"
#include "agent/toggle/waiting.hpp"
#include "drivers/blkif/keys.hpp"
#include "drivers/blkif/xenbus_state.hpp"

namespace xblk::run {
namespace {

namespace keys = blkif::keys;

constexpr Nanos kClosePatience = seconds(5);     // of the former connection
constexpr Nanos kOfferPatience = seconds(5);     // the backend publishes its limits anew
constexpr Nanos kConnectPatience = seconds(15);  // fio's start and the negotiation
constexpr Nanos kConnectInterval = millis(2);
constexpr Nanos kTick = millis(200);
constexpr Nanos kEndPatience = seconds(30);         // beyond ramp and runtime
constexpr Nanos kUnboundedPatience = seconds(900);  // a load bounded by size, not by time

blkif::XenbusState state_of(toggle::KeyAccess& access, const std::string& directory) {
  const auto state = access.read(directory + "/state");
  return state ? blkif::parse_xenbus_state(*state) : blkif::XenbusState::unknown;
}

// A backend in InitWait has published its limits and does so again when its policies change; a frontend that came
// before would negotiate with the old ones. In any other state it publishes when the frontend comes.
bool offers(toggle::KeyAccess& access, const toggle::Vbd& vbd, const blkif::BackPolicy& policy) {
  if (state_of(access, vbd.backend_directory()) != blkif::XenbusState::init_wait) return true;
  const auto is = [&](std::string_view key, std::uint32_t value) {
    const auto seen = access.read(fmt::format("{}/{}", vbd.backend_directory(), key));
    return seen ? *seen == std::to_string(value) : value == 0;
  };
  return is(keys::kMaxQueues, policy.queues) && is(keys::kMaxRingPageOrder, policy.ring_page_order) &&
         is(keys::kMaxIndirectSegments, policy.indirect_segments);
}

}  // namespace

Visit::Visit(const VisitContext& context, const plan::Point& point, std::size_t repeat, std::size_t position)
    : context_(context), point_(point), directory_(RunLayout::visit(point.id, repeat)) {
  repeat_.index = repeat;
  repeat_.order_position = position;
  repeat_.status = report::Outcome::ok;
}

Result<report::Repeat> Visit::run() {
  std::error_code error;
  const auto directory = context_.run.directory / directory_;
  std::filesystem::remove_all(directory, error);  // of a visit that was cut off: its files are not ours
  std::filesystem::create_directories(directory, error);
  if (error) return tl::unexpected(host::storage_error(error.value(), "create", directory));
  const auto steps = {&Visit::toggle_policies, &Visit::start_guests, &Visit::connect, &Visit::measure};
  for (const auto step : steps) {
    const auto done = (this->*step)();
    if (done) continue;
    const bool by_user = done.error().code == EINTR;
    cut_short_ = true;
    worsen(repeat_, by_user ? report::Outcome::inconclusive : report::Outcome::failed, done.error().message);
    break;
  }
  stop_guests();
  prove();
  enter(VisitState::recorded);
  return repeat_;
}

Status Visit::check_stop() {
  if (context_.host.signals().stage >= 2) return fail(EINTR, "interrupted");
  if (const auto why = context_.rig.failure()) return fail(EIO, *why);
  return {};
}

Status Visit::toggle_policies() {
  enter(VisitState::toggling);
  auto agreement = toggle::agreement_of(policies_of(point_));
  if (!agreement) return tl::unexpected(agreement.error());
  agreement_ = *agreement;
  auto& access = context_.rig.keys();
  const auto wait = [&](const auto& condition, Nanos patience, const std::string& what) -> Status {
    const auto waited = toggle::wait_until(context_.host, context_.host.now() + patience,
                                           [&] { return context_.rig.failure().has_value() || condition(); });
    if (auto stop = check_stop(); !stop) return stop;
    return waited ? Status() : forward(waited.error(), what);
  };
  for (unsigned guest = 1; guest <= point_.guests; ++guest) {
    const auto vbd = vbd_of(guest);
    const auto closed = [&] { return state_of(access, vbd.backend_directory()) != blkif::XenbusState::connected; };
    auto status = wait(closed, kClosePatience, vbd.backend_directory() + " is still connected after fio has ended");
    if (!status) return status;
    if (status = context_.toggle.apply(vbd, policies_of(point_)); !status) return status;
  }
  for (unsigned guest = 1; guest <= point_.guests; ++guest) {
    const auto vbd = vbd_of(guest);
    auto status = wait([&] { return offers(access, vbd, agreement_.back); }, kOfferPatience,
                       vbd.backend_directory() + " does not offer what its policies allow");
    if (!status) return status;
  }
  return {};
}

Status Visit::start_guests() {
  enter(VisitState::starting);
  for (unsigned guest = 1; guest <= point_.guests; ++guest) {
    const auto vbd = vbd_of(guest);
    const auto files = GuestFiles::in(context_.run.directory / directory_, vbd.guest);
    const auto job = job_of(point_, context_.programs, context_.rig.layout(), guest, files);
    if (!job) return tl::unexpected(job.error());
    auto started = GuestRun::start(context_.host, *job, files, vbd);
    if (!started) return tl::unexpected(started.error());
    guests_.push_back(*std::move(started));
    const auto relative = GuestFiles::in(directory_, vbd.guest);
    for (const auto& file : {relative.fio_output, relative.snapshots}) repeat_.raw_files.push_back(file.string());
  }
  return {};
}

// Ends when all are verified, or when looking on is pointless: prove() then says what was seen.
Status Visit::connect() {
  enter(VisitState::connecting);
  const Instant deadline = context_.host.now() + kConnectPatience;
  for (;;) {
    bool all = true;
    for (GuestRun& guest : guests_) all = guest.verify_connection(context_.rig.keys(), agreement_) && all;
    if (all) return {};
    if (auto stop = check_stop(); !stop) return stop;
    const bool some_ended = std::any_of(guests_.begin(), guests_.end(), [](GuestRun& guest) { return guest.ended(); });
    if (some_ended) return {};
    if (context_.host.now() >= deadline) return never_connected();
    context_.host.wait({}, context_.host.now() + kConnectInterval);
  }
}

// Those that are connected, but not with what was agreed, go on: their counters may tell why.
Status Visit::never_connected() const {
  for (const GuestRun& guest : guests_) {
    if (guest.seen_connected() || !guest.verification()) continue;
    return fail(ETIMEDOUT,
                fmt::format("guest {} is not connected after {} s: {}", guest.vbd().guest.value(),
                            kConnectPatience.value() / 1'000'000'000, guest.verification()->first_failure()));
  }
  return {};
}

Status Visit::measure() {
  enter(VisitState::measuring);
  std::vector<host::Process*> processes;
  for (GuestRun& guest : guests_) processes.push_back(&guest.process());
  if (host::Process* rig = context_.rig.process()) processes.push_back(rig);
  const Nanos load = plan::load_time(point_);
  const bool by_time = expectation_of(point_).runtime.has_value();
  const Instant deadline = context_.host.now() + (by_time ? load + kEndPatience : kUnboundedPatience);
  while (!all_ended()) {
    if (auto stop = check_stop(); !stop) return stop;
    if (context_.host.now() >= deadline) return fail(ETIMEDOUT, "fio did not end in time and was stopped");
    context_.host.wait(processes, std::min(deadline, context_.host.now() + kTick));
    context_.observer.tick();
  }
  return check_stop();
}

bool Visit::all_ended() {
  return std::all_of(guests_.begin(), guests_.end(), [](GuestRun& guest) { return guest.ended(); });
}

void Visit::stop_guests() {
  for (GuestRun& guest : guests_) guest.stop();
}

void Visit::prove() {
  enter(VisitState::proving);
  const auto expectation = expectation_of(point_);
  std::vector<GuestRecord> records;
  for (GuestRun& guest : guests_) {
    if (cut_short_) {
      repeat_.fio_commands.push_back(guest.command());
      continue;
    }
    records.push_back({.guest = guest.vbd().guest.value(),
                       .command = guest.command(),
                       .keys = guest.verification(),
                       .negotiated = guest.negotiated(),
                       .outcome = guest.finish(expectation)});
  }
  if (records.empty()) return;
  record(repeat_, records,
         {.agreement = agreement_,
          .load = {.submitters = expectation.jobs,
                   .block = expectation.block_size,
                   .store_answers_late = context_.store_answers_late},
          .moves_data = moves_data(point_),
          .idle_tlb_rate = context_.idle_tlb_rate});
}

}  // namespace xblk::run
