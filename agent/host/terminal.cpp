#include "agent/host/terminal.hpp"

#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace xblk::host {

Terminal decide(const TerminalFacts& facts) {
  Terminal terminal;
  const bool dumb = facts.term == nullptr || std::string_view(facts.term) == "dumb";
  terminal.interactive = facts.tty && !dumb;
  // no-color.org: set and not empty, whatever the value.
  const bool refused = facts.no_color != nullptr && *facts.no_color != '\0';
  terminal.colour = terminal.interactive && !refused;
  if (facts.columns > 0) terminal.columns = facts.columns;
  return terminal;
}

Terminal terminal_of(int fd) {
  TerminalFacts facts;
  facts.tty = ::isatty(fd) == 1;
  winsize size{};
  if (facts.tty && ::ioctl(fd, TIOCGWINSZ, &size) == 0) facts.columns = size.ws_col;
  facts.no_color = std::getenv("NO_COLOR");
  facts.term = std::getenv("TERM");
  return decide(facts);
}

}  // namespace xblk::host
