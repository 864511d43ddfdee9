#include "drivers/scenarios/hostile/attacked_ring.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

constexpr DomId kGuest{1};
constexpr std::uint32_t kGuestPages = 96;
constexpr unsigned kBudget = 64;      // requests of a round, as of the real worker
constexpr EventPort kBackendPort{1};  // the first that is free, at each connect
constexpr hypervisor::DomainLimits kGuestLimits{.grant_frames = 1, .ports = 8};

hypervisor::HypervisorConfig small_hypervisor(std::uint32_t mappings_max) {
  hypervisor::HypervisorConfig config;
  config.maptrack_limit = mappings_max;
  config.maptrack_lists = 1;
  config.control_ports = 8;
  return config;
}

}  // namespace

AttackedRing::AttackedRing(const AttackedRingSetup& setup)
    : setup_(setup), hypervisor_(env_, small_hypervisor(setup.mappings_max)) {
  guest_ =
      std::move(*hypervisor::InProcessGuest<env::VirtualEnv>::create(hypervisor_, kGuest, kGuestPages, kGuestLimits));
  store_.sector_size = setup.sector_size;
  front_ = std::make_unique<peer::ScriptedFront<ModelPlatform>>(*guest_, keys_, "/front", setup_.abi);
  front_->offer().ring_page_order = setup_.ring_page_order;
  front_->build_rings();
  auto* entries = reinterpret_cast<hypervisor::GrantEntry*>(guest_->raw().grant_memory.base());
  player_ = std::make_unique<peer::FrontPlayer<ModelPlatform>>(*front_, std::span(entries, hypervisor::kGrantsPerFrame),
                                                               [this] { turn(); });
}

AttackedRing::~AttackedRing() {
  disconnect();
}

std::optional<std::string> AttackedRing::connect() {
  disconnect();
  XBLK_CHECK(front_->withdraw(), "a backend that is disconnected holds no ring page");
  front_->build_rings();
  return attach();
}

std::optional<std::string> AttackedRing::attach() {
  blkback::Connection<ModelPlatform>::Agreement agreement{
      kGuest,
      front_->offer(),
      setup_.policy,
      {1, setup_.policy.ring_page_order, static_cast<std::uint16_t>(setup_.policy.indirect_segments)},
      setup_.readonly};
  agreement.offer.persistent = setup_.frontend_persistent;
  const std::uint32_t start = front_->indexes().rsp_prod;
  auto opened = blkback::Connection<ModelPlatform>::open(env_, dom0_, std::move(agreement), store_, {&counters_, 1});
  if (!opened) return opened.error().message;
  consumed_ = responded_ = start;
  requests_before_ = count(Counter::requests);
  responses_before_ = count(Counter::responses_ok) + count(Counter::responses_error);
  connection_ = std::move(*opened);
  blkback::RingRunner<env::VirtualEnv::Waitable>* const runners[] = {&runner_};
  connection_->start(runners);
  return std::nullopt;
}

void AttackedRing::ByHand::detach(blkback::RingStep& detached) {
  while (!detached.idle()) {
    const auto before = rig.pending(0);
    while (!rig.store_.held.empty()) rig.store_.finish_oldest();
    detached.step(0);
    rig.settle(before);
  }
  ring = nullptr;
}

void AttackedRing::disconnect() {
  if (connection_ == nullptr) return;
  connection_->stop();
  connection_.reset();
  check_disconnected();
  owed_.clear();
}

void AttackedRing::turn() {
  if (connection_ == nullptr) return;
  env_.advance_to(env_.now() + micros(10));
  if (*dom0_.waitable(kBackendPort)) runner_.ring->take_event();
  round(kBudget);
  const auto before = pending(0);
  if (runner_.ring->arm(env_.now())) runner_.ring->maintain(env_.now());
  settle(before);
}

std::vector<peer::WatchedPage::Access> AttackedRing::watched_turn(std::byte* page) {
  const auto before = pending(kBudget);
  peer::WatchedPage watched(page);
  step(kBudget);
  auto accesses = watched.stop();
  settle(before);
  return accesses;
}

blkback::StepResult AttackedRing::round(unsigned budget) {
  const auto before = pending(budget);
  const auto result = step(budget);
  settle(before);
  return result;
}

blkback::StepResult AttackedRing::step(unsigned budget) {
  const auto result = runner_.ring->step(budget);
  while (setup_.store_at_once && !store_.held.empty()) {
    store_.finish_oldest();
    runner_.ring->step(0);
  }
  return result;
}

void AttackedRing::finish(std::size_t position, int error) {
  if (store_.held.empty()) return;
  if (error != 0) store_failed_ = true;
  store_.finish(position % store_.held.size(), error);
}

// ---- the promises ----

std::vector<AttackedRing::Owed> AttackedRing::pending(std::uint32_t most) {
  std::vector<Owed> pending;
  const std::uint32_t produced = front_->indexes().req_prod - consumed_;
  for (std::uint32_t i = 0; i < std::min({produced, front_->slots(), most}); ++i) {
    blkif::RawRequest raw{};
    std::memcpy(raw.bytes.data(), front_->slot(consumed_ + i), blkif::request_slot_size(setup_.abi));
    pending.push_back({blkif::request_id(setup_.abi, raw), blkif::request_response_op(raw), expected_of(raw)});
  }
  return pending;
}

void AttackedRing::settle(const std::vector<Owed>& pending) {
  const std::uint64_t requests = count(Counter::requests);
  const auto taken = static_cast<std::uint32_t>(requests - std::exchange(requests_before_, requests));
  if (taken > pending.size()) return find(fmt::format("took {} requests where {} stood", taken, pending.size()));
  owed_.insert(owed_.end(), pending.begin(), pending.begin() + taken);
  consumed_ += taken;
  const std::uint64_t answers = count(Counter::responses_ok) + count(Counter::responses_error);
  const auto given = static_cast<std::uint32_t>(answers - std::exchange(responses_before_, answers));
  for (std::uint32_t i = 0; i < given; ++i) settle_response(responded_++);
}

void AttackedRing::settle_response(std::uint32_t index) {
  blkif::RawResponse raw{};
  std::memcpy(raw.bytes.data(), front_->slot(index), blkif::response_size(setup_.abi));
  const blkif::Response response = blkif::decode_response(raw);
  responses_.push_back(response);
  const bool known = response.status == blkif::ResponseStatus::okay ||
                     response.status == blkif::ResponseStatus::error ||
                     response.status == blkif::ResponseStatus::not_supported;
  if (!known) find(fmt::format("a response with status {}", static_cast<int>(response.status)));
  for (std::size_t i = 0; i < blkif::response_size(setup_.abi); ++i) {
    if ((i == 9 || i >= 12) && raw.bytes[i] != std::byte{0}) find("bytes of the backend in a response's padding");
  }
  // Of several requests that look alike, the strictest expectation that this response meets.
  const bool okay = response.status == blkif::ResponseStatus::okay;
  const bool may_fail = store_failed_ || !player_->grants_are_good();  // by now
  const auto answers = [&](const Owed& owed) { return owed.id == response.id && owed.op == response.op; };
  auto best = owed_.end();
  for (auto owed = owed_.begin(); owed != owed_.end(); ++owed) {
    const bool fits = owed->expected == Expected::anything || (owed->expected == Expected::success) == okay ||
                      (owed->expected == Expected::success && may_fail);
    if (answers(*owed) && fits && (best == owed_.end() || owed->expected > best->expected)) best = owed;
  }
  if (best != owed_.end()) {
    owed_.erase(best);
    return;
  }
  const bool asked = std::any_of(owed_.begin(), owed_.end(), answers);
  find(fmt::format("response to id {:#x} operation {} with status {}: {}", response.id, static_cast<int>(response.op),
                   static_cast<int>(response.status), asked ? "not what the request deserves" : "never asked for"));
}

blkif::DeviceLimits AttackedRing::limits() const {
  const auto ordering = setup_.policy.ordering;
  using blkif::Ordering;
  blkif::DeviceLimits limits;
  limits.capacity = store_.geometry().capacity;
  limits.sector_size = setup_.sector_size;
  limits.readonly = setup_.readonly;
  limits.flush = ordering == Ordering::flush || ordering == Ordering::both;
  limits.barrier = ordering == Ordering::barrier || ordering == Ordering::both;
  limits.discard = setup_.policy.discard != blkif::Discard::off && !setup_.readonly;
  limits.discard_secure = setup_.policy.discard == blkif::Discard::secure;
  limits.indirect_segments_max = static_cast<std::uint16_t>(setup_.policy.indirect_segments);
  return limits;
}

AttackedRing::Expected AttackedRing::expected_of(const blkif::RawRequest& raw) {
  const auto request = blkif::parse_request(setup_.abi, raw, limits());
  if (!request) return Expected::failure;
  std::vector<blkif::Segment> segments;
  bool good_grants = player_->grants_are_good();
  if (!request->indirect) {
    segments.assign(request->direct_segments().begin(), request->direct_segments().end());
  } else {
    if (request->indirect_grefs[0] != player_->indirect_gref()) return Expected::anything;
    segments.resize(request->segment_count);
    blkif::decode_indirect_page(player_->indirect_page(), segments);
    if (blkif::validate_segments(*request, segments, limits())) return Expected::failure;
  }
  for (const auto& segment : segments) good_grants = good_grants && player_->is_data_page(segment.gref);
  return good_grants && !store_failed_ ? Expected::success : Expected::anything;
}

void AttackedRing::check_disconnected() {
  if (!owed_.empty()) find(fmt::format("{} requests without a response", owed_.size()));
  for (std::size_t g = 0; g < kGaugeCount; ++g) {
    const auto value = gauge(static_cast<Gauge>(g));
    if (value != 0) find(fmt::format("gauge {} is {} after the disconnect", kGaugeNames[g], value));
  }
  const auto usage = hypervisor_.usage();
  if (usage.mappings != 0 || usage.active_grants != 0) {
    find(fmt::format("{} mappings and {} grants held after the disconnect", usage.mappings, usage.active_grants));
  }
  if (usage.ports != 1) find(fmt::format("{} ports open, the frontend has one", usage.ports));
  if (!player_->pages_between_are_untouched()) find("a page that was never granted was written");
}

}  // namespace xblk::scenarios
