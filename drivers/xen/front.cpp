#include "drivers/xen/front.hpp"

#define __XEN_TOOLS__ 1  // else <xen/xen-compat.h> selects interface version 0
extern "C" {
#include <xengnttab.h>
}

#include <fmt/format.h>

#include <charconv>
#include <utility>
#include <vector>

#include "drivers/base/check.hpp"
#include "drivers/keystore/client.hpp"
#include "drivers/xen/library.hpp"
#include "drivers/xen/locks.hpp"

namespace xblk::xen {
namespace {

constexpr const char* kSharedParameter = "/sys/module/xen_gntalloc/parameters/limit";
constexpr std::uint32_t kSharedDefault = 1024;  // of all processes of this domain together

tl::unexpected<Error> no_pages(DomId peer, std::uint32_t pages, std::uint32_t limit, const char* why) {
  return fail(ENOMEM,
              fmt::format("share {} pages with domain {}: {} (gntalloc's limit is {} pages for the whole domain; "
                          "write a larger one to {})",
                          pages, peer.value(), why, limit, kSharedParameter));
}

}  // namespace

Result<DomId> own_domain(keystore::Client& keys) {
  auto text = keys.read("domid");  // relative: xenstored resolves it below our own home
  if (!text) return forward(text.error(), "which domain is this");
  std::uint16_t number = 0;
  const char* end = text->data() + text->size();
  if (const auto [stop, error] = std::from_chars(text->data(), end, number); error != std::errc{} || stop != end) {
    return fail(EINVAL, fmt::format("xenstore: domid = '{}' is no domain number", *text));
  }
  return DomId(number);
}

void XenFront::Close::operator()(xengntdev_handle* handle) const {
  xengntshr_close(handle);
}

Result<std::unique_ptr<XenFront>> XenFront::open(env::RealEnv& env, DomId self) {
  Handle handle(xengntshr_open(quiet_logger(), 0));
  if (handle == nullptr) return open_failed(kGntalloc);
  if (auto events = Ports::available(); !events) return tl::unexpected(events.error());
  return std::unique_ptr<XenFront>(new XenFront(env, self, std::move(handle)));
}

XenFront::XenFront(env::RealEnv& env, DomId self, Handle gntalloc)
    : self_(self), gntalloc_(std::move(gntalloc)), lock_(env), ports_(env) {}

// The kernel hands out zeroed pages (XSA-403).
Result<platform::PageBlock> XenFront::allocate_pages(DomId peer, std::uint32_t pages) {
  if (pages == 0) return fail(EINVAL, "share 0 pages: a block has at least one");
  const std::uint32_t limit = page_limit(kSharedParameter, kSharedDefault);
  // Asked here first, because the library takes a signed count and allocates the references before it asks the kernel.
  if (pages > limit) return no_pages(peer, pages, limit, "more than there may ever be");
  std::vector<std::uint32_t> grefs(pages);
  void* address =
      xengntshr_share_pages(gntalloc_.get(), peer.value(), static_cast<int>(pages), grefs.data(), /*writable=*/1);
  if (address == nullptr) return no_pages(peer, pages, limit, std::strerror(errno));
  const Exclusive guard(lock_);
  return shared_.add(static_cast<std::byte*>(address), peer, grefs);
}

void XenFront::free_pages(const platform::PageBlock& block) {
  {
    const Exclusive guard(lock_);
    shared_.remove(block);  // first: as long as it is mapped, no other block can have this address
  }
  const int failed = xengntshr_unshare(gntalloc_.get(), block.address, block.pages);
  XBLK_CHECK(failed == 0, "what was shared can be unshared");
}

std::optional<FrameNumber> XenFront::frame_of(const std::byte* address) const {
  const Reading guard(lock_);
  return shared_.frame_of(address);
}

Result<GrantRef> XenFront::grant(DomId peer, FrameNumber frame, platform::Access) {
  const Reading guard(lock_);
  return shared_.gref_of(peer, frame);
}

std::string XenFront::leaks() {
  const std::size_t ports = ports_.open_ports();
  const Reading guard(lock_);
  if (ports == 0 && shared_.pages() == 0) return "";
  return fmt::format("frontend: {} ports, {} shared pages", ports, shared_.pages());
}

}  // namespace xblk::xen
