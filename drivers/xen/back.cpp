#include "drivers/xen/back.hpp"

#define __XEN_TOOLS__ 1  // else <xen/xen-compat.h> selects interface version 0
extern "C" {
#include <xengnttab.h>
}

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/xen/library.hpp"
#include "drivers/xen/locks.hpp"

namespace xblk::xen {
namespace {

using platform::CopyOp;
using platform::GrantStatus;
using platform::MapOp;
using platform::UnmapOp;

constexpr const char* kMappingsParameter = "/sys/module/xen_gntdev/parameters/limit";
constexpr std::uint32_t kMappingsDefault = 65536;
constexpr std::size_t kCopySegments = 64;  // per ioctl: bounds the stack; the kernel itself batches by fewer

// gntdev turns every refusal of the hypervisor into EINVAL; only its own reasons are distinct.
GrantStatus status_of(int code) {
  switch (code) {
    case ENOMEM:
    case ENOSPC:
      return GrantStatus::no_device_space;
    case EACCES:
    case EPERM:
      return GrantStatus::permission_denied;
    case EAGAIN:
      return GrantStatus::eagain;
    default:
      return GrantStatus::general_error;
  }
}

// The kernel refuses a whole batch for one malformed segment, so none is handed to it.
bool well_formed(const CopyOp& op) {
  return op.local != nullptr && std::size_t{op.offset} + op.length <= kPageSize;
}

// The local side may cross pages: the kernel splits there.
xengnttab_grant_copy_segment_t to_segment(DomId peer, const CopyOp& op) {
  xengnttab_grant_copy_segment_t segment{};
  const bool reading = op.direction == CopyOp::Direction::from_grant;
  auto& granted = reading ? segment.source : segment.dest;
  auto& local = reading ? segment.dest : segment.source;
  granted.foreign.ref = op.gref.value();
  granted.foreign.offset = op.offset;
  granted.foreign.domid = peer.value();
  local.virt = op.local;
  segment.len = op.length;
  segment.flags = reading ? GNTCOPY_source_gref : GNTCOPY_dest_gref;
  return segment;
}

// One ioctl, at most kCopySegments operations.
void copy_batch(xengntdev_handle* gntdev, DomId peer, std::span<CopyOp> ops) {
  std::array<xengnttab_grant_copy_segment_t, kCopySegments> segments;
  std::array<CopyOp*, kCopySegments> owners;
  std::uint32_t count = 0;
  for (CopyOp& op : ops) {
    op.status = GrantStatus::bad_copy_arg;
    if (!well_formed(op)) continue;
    segments[count] = to_segment(peer, op);
    owners[count++] = &op;
  }
  if (count == 0) return;
  const bool refused = xengnttab_grant_copy(gntdev, count, segments.data()) != 0;
  const GrantStatus why = refused ? status_of(errno) : GrantStatus::okay;
  for (std::uint32_t i = 0; i < count; ++i) {
    owners[i]->status = refused ? why : static_cast<GrantStatus>(segments[i].status);
  }
}

}  // namespace

void XenBack::Close::operator()(xengntdev_handle* handle) const {
  xengnttab_close(handle);
}

Result<std::unique_ptr<XenBack>> XenBack::open(env::RealEnv& env) {
  Handle handle(xengnttab_open(quiet_logger(), 0));
  if (handle == nullptr) return open_failed(kGntdev);
  // Old kernels count all mappings of a handle against this. Newer ones do not know the call, which the library takes
  // for success, and apply their limit to each request.
  const std::uint32_t limit = page_limit(kMappingsParameter, kMappingsDefault);
  if (xengnttab_set_max_grants(handle.get(), limit) != 0) {
    return fail_errno(fmt::format("set the mapping limit of {} to {}", kGntdev.path, limit));
  }
  if (auto events = Ports::available(); !events) return tl::unexpected(events.error());
  return std::unique_ptr<XenBack>(new XenBack(env, std::move(handle)));
}

XenBack::XenBack(env::RealEnv& env, Handle gntdev) : gntdev_(std::move(gntdev)), lock_(env), ports_(env) {}

// One mapping per grant, because a mapping is unmapped as a whole and persistent grants leave one by one.
void XenBack::map(DomId peer, std::span<MapOp> ops, platform::LockWait&) {
  for (MapOp& op : ops) {
    const int protection = op.access == platform::Access::read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    op.address =
        static_cast<std::byte*>(xengnttab_map_grant_ref(gntdev_.get(), peer.value(), op.gref.value(), protection));
    op.handle = {};
    op.status = op.address == nullptr ? status_of(errno) : GrantStatus::okay;
    if (op.address == nullptr) continue;
    const Exclusive guard(lock_);
    op.handle = mappings_.add(op.address);
  }
}

void XenBack::unmap(std::span<UnmapOp> ops, platform::LockWait&) {
  for (UnmapOp& op : ops) {
    op.status = GrantStatus::bad_handle;
    {
      const Exclusive guard(lock_);
      if (!mappings_.claim(op.handle, op.address)) continue;
    }
    const bool done = xengnttab_unmap(gntdev_.get(), op.address, 1) == 0;
    XBLK_CHECK(done, "a page that we mapped can be unmapped");
    op.status = GrantStatus::okay;
  }
}

void XenBack::copy(DomId peer, std::span<CopyOp> ops, platform::LockWait&) {
  while (!ops.empty()) {
    const auto batch = ops.first(std::min(ops.size(), kCopySegments));
    copy_batch(gntdev_.get(), peer, batch);
    ops = ops.subspan(batch.size());
  }
}

Result<std::byte*> XenBack::map_contiguous(DomId peer, std::span<const GrantRef> grefs) {
  if (grefs.empty()) return fail(EINVAL, fmt::format("map a ring of domain {}: no grants given", peer.value()));
  std::vector<std::uint32_t> references;
  for (const GrantRef gref : grefs) references.push_back(gref.value());
  const auto count = static_cast<std::uint32_t>(references.size());
  void* address =
      xengnttab_map_domain_grant_refs(gntdev_.get(), count, peer.value(), references.data(), PROT_READ | PROT_WRITE);
  if (address == nullptr) {
    return fail_errno(fmt::format("map a ring of {} pages of domain {} (grants {})", count, peer.value(),
                                  fmt::join(references, ", ")));
  }
  ring_pages_ += count;
  return static_cast<std::byte*>(address);
}

void XenBack::unmap_contiguous(std::byte* address, std::uint32_t pages) {
  const bool done = xengnttab_unmap(gntdev_.get(), address, pages) == 0;
  XBLK_CHECK(done, "unmap what map_contiguous() returned");
  ring_pages_ -= pages;
}

std::string XenBack::leaks() {
  const std::size_t ports = ports_.open_ports();
  const Exclusive guard(lock_);
  if (ports == 0 && mappings_.size() == 0 && ring_pages_ == 0) return "";
  return fmt::format("backend: {} ports, {} mappings, {} ring pages", ports, mappings_.size(), ring_pages_.load());
}

}  // namespace xblk::xen
