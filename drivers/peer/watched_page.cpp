#include "drivers/peer/watched_page.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <array>
#include <utility>

#include "drivers/base/check.hpp"
#include "drivers/base/units.hpp"

namespace xblk::peer {
namespace {

constexpr greg_t kTrapFlag = 0x100;          // of EFLAGS: SIGTRAP after the next instruction
constexpr greg_t kWriteFault = 2;            // of a page fault's error code
constexpr std::size_t kAccessesMax = 16384;  // a page copied byte by byte, four times

// For the signal handlers, which can be given nothing.
struct Watch {
  std::byte* page = nullptr;
  std::size_t count = 0;
  std::array<WatchedPage::Access, kAccessesMax> accesses;
  struct sigaction old_segv;
  struct sigaction old_trap;
};
Watch watch;

void protect(int protection) {
  XBLK_CHECK(::mprotect(watch.page, kPageSize, protection) == 0, "a page of this process");
}

// The page opens for the one instruction that wants it.
void on_fault(int, siginfo_t* info, void* context) {
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (watch.page == nullptr || address < watch.page || address >= watch.page + kPageSize) {
    ::sigaction(SIGSEGV, &watch.old_segv, nullptr);  // somebody else's: comes again at once
    return;
  }
  XBLK_CHECK(watch.count < kAccessesMax, "more accesses than a test makes");
  watch.accesses[watch.count++] = {static_cast<std::uint32_t>(address - watch.page),
                                   (registers[REG_ERR] & kWriteFault) != 0};
  protect(PROT_READ | PROT_WRITE);
  registers[REG_EFL] |= kTrapFlag;
}

void on_trap(int, siginfo_t*, void* context) {
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
  if (watch.page != nullptr) protect(PROT_NONE);
}

void handle(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction& old) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  XBLK_CHECK(::sigaction(signal, &action, &old) == 0, "a signal that can be handled");
}

}  // namespace

WatchedPage::WatchedPage(std::byte* page) : page_(page) {
  XBLK_CHECK(watch.page == nullptr, "one page at a time");
  watch.count = 0;
  watch.page = page;
  handle(SIGSEGV, on_fault, watch.old_segv);
  handle(SIGTRAP, on_trap, watch.old_trap);
  protect(PROT_NONE);
}

WatchedPage::~WatchedPage() {
  if (page_ != nullptr) static_cast<void>(stop());
}

std::vector<WatchedPage::Access> WatchedPage::stop() {
  XBLK_CHECK(page_ != nullptr, "stopped once");
  protect(PROT_READ | PROT_WRITE);
  watch.page = page_ = nullptr;
  ::sigaction(SIGSEGV, &watch.old_segv, nullptr);
  ::sigaction(SIGTRAP, &watch.old_trap, nullptr);
  return {watch.accesses.begin(), watch.accesses.begin() + static_cast<std::ptrdiff_t>(watch.count)};
}

}  // namespace xblk::peer
