#include "drivers/scenarios/hostile/attacked_front.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "drivers/base/check.hpp"

namespace xblk::scenarios {
namespace {

constexpr std::uint32_t kFrontPages = 512;
constexpr hypervisor::DomainLimits kFrontLimits{.grant_frames = 1, .ports = 8};
constexpr const char* kFrontPath = "/local/domain/1/device/vbd/51712";
constexpr const char* kBackPath = "/local/domain/0/backend/scripted/1/51712";
constexpr std::uint8_t kUntouched = 0xa5;
constexpr std::size_t kHeldMax = 64;

hypervisor::HypervisorConfig small_hypervisor() {
  hypervisor::HypervisorConfig config;
  config.maptrack_limit = 256;
  config.maptrack_lists = 1;
  config.control_ports = 8;
  return config;
}

}  // namespace

AttackedFront::AttackedFront(const AttackedFrontSetup& setup) : hypervisor_(env_, small_hypervisor()) {
  using Guest = hypervisor::InProcessGuest<env::VirtualEnv>;
  guest_ = std::move(*Guest::create(hypervisor_, kGuest, kFrontPages, kFrontLimits));
  const std::string front = kFrontPath;
  for (const auto& [key, value] : blkif::KeyList{{std::string(kBackPath) + "/state", setup.starts_at},
                                                 {front + "/backend", kBackPath},
                                                 {front + "/backend-id", "0"}}) {
    static_cast<void>(back_keys_.write(key, value));
  }
  back_ = std::make_unique<peer::ScriptedBack<ModelPlatform>>(dom0_, back_keys_, kBackPath, kFrontPath, kGuest);
  blkif::BackendOffer& offer = back_->offer();
  offer.persistent = setup.backend_persistent;
  offer.flush = offer.barrier = offer.discard = true;
  offer.limits.ring_page_order_max = 1;
  offer.limits.indirect_segments_max = blkif::kIndirectSegmentsMax;
  device_ = std::make_unique<blkfront::Device<ModelPlatform>>(
      env_, *guest_, front_keys_, blkfront::Device<ModelPlatform>::Options{kFrontPath, setup.policy},
      StatisticsFile::anonymous(End::front, blkif::kQueuesMax));
  buffer_ = device_->allocate_buffers(Bytes(kBufferPages * kPageSize)).value();
  std::memset(buffer_.data(), kUntouched, buffer_.size());
  XBLK_CHECK(device_->start().has_value(), "the directory was written just above");
}

AttackedFront::~AttackedFront() = default;

bool AttackedFront::connect() {
  play({peer::back::Negotiate{}, peer::back::Turn{}, peer::back::Negotiate{}, peer::back::Turn{}});
  return device_->connected();
}

void AttackedFront::finish() {
  execute(peer::back::LetGo{});
  back_->release();
  device_->request_close();
  // A backend that closes, however little it cared before.
  for (const char* state : {"5", "6"}) {
    back_->set_state(state);
    for (int i = 0; i < 4; ++i) execute(peer::back::Turn{});
  }
  execute(peer::back::Reap{});
  // One that never was connected has no orderly end.
  device_->abandon();
  execute(peer::back::Turn{});
  if (!device_->closed()) find(fmt::format("the device stands at {}", blkif::to_string(device_->state())));
  const auto open = std::count(ios_.begin(), ios_.end(), IoStatus::in_flight);
  if (open > 0) find(fmt::format("{} I/Os never completed", open));
  check_untouched();
  channel_.reset();
  device_->free_buffers(buffer_);
  device_.reset();
  const auto usage = hypervisor_.usage();
  if (usage.mappings != 0 || usage.active_grants != 0 || usage.ports != 0) {
    find(fmt::format("{} mappings, {} grants, {} ports are left", usage.mappings, usage.active_grants, usage.ports));
  }
  if (!kept_pages_ && !guest_->allocate_pages(kDom0, kFrontPages)) find("pages of the guest are missing");
}

std::uint32_t AttackedFront::in_flight() const {
  return static_cast<std::uint32_t>(std::count(ios_.begin(), ios_.end(), IoStatus::in_flight));
}

std::string AttackedFront::front_key(const std::string& name) {
  return front_keys_.read(std::string(kFrontPath) + "/" + name).value_or("");
}

// ---- the backend ----

const std::vector<blkif::Request>& AttackedFront::open_requests() {
  while (back_->attached() && !ring_spoiled_) {
    const auto request = back_->take_request();
    if (!request) break;
    requests_.push_back(*request);
  }
  return requests_;
}

void AttackedFront::execute(const peer::back::Respond& respond) {
  if (!back_->attached() || open_requests().empty()) return;
  const std::size_t position = respond.request % requests_.size();
  blkif::Response response{requests_[position].id, requests_[position].op, respond.status};
  response.id ^= respond.id_xor;
  response.op = static_cast<blkif::Op>(static_cast<std::uint8_t>(response.op) ^ respond.op_xor);
  if (!respond.again) requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(position));
  back_->respond(response);
}

void AttackedFront::execute(const peer::back::RespondBytes& respond) {
  if (!back_->attached()) return;
  static_cast<void>(open_requests());  // before one of them is overwritten
  back_->put(respond.raw);
  back_->set_rsp_prod(back_->produced());
}

void AttackedFront::execute(const peer::SetIndex& set) {
  if (!back_->attached()) return;
  static_cast<void>(open_requests());
  ring_spoiled_ = ring_spoiled_ || set.index == peer::Index::req_prod;
  peer::execute(set, back_->indexes());
  back_->notify();
}

void AttackedFront::execute(const peer::Notify& notify) {
  for (unsigned i = 0; i < notify.times && back_->attached(); ++i) back_->notify();
}

void AttackedFront::execute(const peer::back::Hold& hold) {
  if (open_requests().empty()) return;
  const blkif::Request& request = requests_[hold.request % requests_.size()];
  if (request.indirect) return keep(request.indirect_grefs[0]);
  if (request.segment_count > 0) keep(request.segments[hold.segment % request.segment_count].gref);
}

void AttackedFront::keep(GrantRef gref) {
  if (held_.size() >= kHeldMax) return;
  auto mapped = back_->map(gref);
  if (mapped.status != platform::GrantStatus::okay) {
    mapped = back_->map(gref, platform::Access::read_only);
    if (mapped.status != platform::GrantStatus::okay) return;
  } else {
    ring_spoiled_ = ring_spoiled_ || is_ring(mapped.address);
    std::memset(mapped.address, 0xee, kPageSize);
  }
  held_.push_back(mapped);
}

// Without an MMU a page has the same address however it was mapped.
bool AttackedFront::is_ring(const std::byte* page) {
  return back_->attached() && page >= back_->ring() && page < back_->ring() + blkif::kRingPagesMax * kPageSize;
}

void AttackedFront::execute(const peer::back::LetGo&) {
  for (const auto& mapped : std::exchange(held_, {})) back_->unmap(mapped);
}

void AttackedFront::execute(const peer::back::RemoveKey& key) {
  static_cast<void>(back_keys_.remove(std::string(kBackPath) + "/" + key.name));
}

void AttackedFront::execute(const peer::back::Negotiate&) {
  const std::string state = back_->frontend_state();
  if (state == "1") {
    back_->release();
    back_->publish_limits();
  } else if (state == "3" && !back_->attached()) {
    requests_.clear();
    ring_spoiled_ = false;
    back_->connect();
  } else if (state == "6") {
    back_->release();
    back_->set_state("6");
  }
}

// ---- the frontend's user and control thread ----

void AttackedFront::start_channel() {
  if (channel_ != nullptr) return;
  if (auto opened = device_->open_channel(0)) channel_ = std::move(*opened);
}

void AttackedFront::execute(const peer::back::Submit& submit) {
  start_channel();
  if (channel_ == nullptr) return;
  const std::uint32_t page = submit.page % kBufferPages;
  const std::uint32_t most = (kBufferPages - page) * kSectorsPerPage;
  blkfront::Io io;
  io.op = static_cast<blkfront::IoOp>(submit.op);
  io.sector = Sectors(submit.sector);
  io.count = Sectors(std::min(submit.sectors, most));
  if (io.op == blkfront::IoOp::flush) io.count = Sectors(0);
  io.buffer = buffer_.data() + std::size_t{page} * kPageSize;
  io.cookie = reinterpret_cast<void*>(ios_.size());
  if (const auto taken = channel_->submit(io); !taken) {
    refused_ = taken.error().code;
  } else {
    ios_.push_back(IoStatus::in_flight);
    for (std::uint64_t p = page; p * kSectorsPerPage < page * kSectorsPerPage + io.count.value(); ++p) used_[p] = true;
  }
  channel_->commit();
}

void AttackedFront::execute(const peer::back::Reap& reap) {
  if (channel_ == nullptr) return;
  std::array<blkfront::Completion, 32> into;
  unsigned n = 0;
  unsigned min = reap.wait_us > 0 ? 1 : 0;
  do {
    n = channel_->reap(min, into, micros(reap.wait_us));
    for (unsigned i = 0; i < n; ++i) complete(into[i]);
    min = 0;
  } while (n == into.size());
}

void AttackedFront::complete(const blkfront::Completion& completion) {
  const auto io = reinterpret_cast<std::size_t>(completion.cookie);
  if (io >= ios_.size()) return find("a completion of no I/O");
  if (std::exchange(ios_[io], IoStatus::completed) == IoStatus::completed) find("an I/O completed twice");
  const int error = completion.error;
  if (error != 0 && error != EIO && error != EOPNOTSUPP && error != ENODEV && error != ENOMEM) {
    find(fmt::format("an I/O completed with error {}", error));
  }
  errors_.push_back(error);
}

void AttackedFront::execute(const peer::back::Turn&) {
  env_.advance_to(env_.now() + micros(10));
  const auto state = blkif::parse_xenbus_state(back_keys_.read(std::string(kBackPath) + "/state").value_or(""));
  const bool holds = back_->attached() || !held_.empty();
  kept_pages_ = kept_pages_ || (holds && !blkif::backend_serves_predecessor(state));
  device_->turn();
}

void AttackedFront::execute(const peer::back::Reconnect&) {
  static_cast<void>(
      back_keys_.write(std::string(kFrontPath) + "/xblk-policy/reconnect", std::to_string(++reconnects_)));
}

void AttackedFront::check_untouched() {
  for (std::uint32_t page = 0; page < kBufferPages; ++page) {
    const auto bytes = buffer_.subspan(std::size_t{page} * kPageSize, kPageSize);
    const bool same =
        std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == std::byte{kUntouched}; });
    if (!used_[page] && !same) return find(fmt::format("page {} of the user, which no I/O named, was written", page));
  }
}

}  // namespace xblk::scenarios
