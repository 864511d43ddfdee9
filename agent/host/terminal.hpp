// What a progress display may do. Pure rules plus one function that asks the OS.
#pragma once

namespace xblk::host {

struct Terminal {
  bool interactive = false;  // a TTY that can move its cursor: bars are allowed
  bool colour = false;       // NO_COLOR (no-color.org) unset, TERM not "dumb"
  int columns = 80;
};

struct TerminalFacts {
  bool tty = false;
  int columns = 0;                 // 0: unknown
  const char* no_color = nullptr;  // environment; nullptr: unset
  const char* term = nullptr;
};

Terminal decide(const TerminalFacts& facts);
Terminal terminal_of(int fd);

}  // namespace xblk::host
