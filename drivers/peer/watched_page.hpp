// Sees every access that the CPU makes to one page, by letting each of them fault: how often driver code reads a word
// of shared memory is then a fact and not an assumption (XSA-155). One page at a time, in one thread, on x86-64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace xblk::peer {

class WatchedPage {
 public:
  struct Access {
    std::uint32_t offset = 0;  // of the first byte; how wide the access was is not known
    bool write = false;
  };

  explicit WatchedPage(std::byte* page);
  ~WatchedPage();
  WatchedPage(const WatchedPage&) = delete;
  WatchedPage& operator=(const WatchedPage&) = delete;

  // Ends the watch; what was seen, oldest first.
  std::vector<Access> stop();

 private:
  std::byte* page_;
};

}  // namespace xblk::peer
