#!/usr/bin/env python3
"""ci/checks on a planted tree: each violation is found on its line, and the clean neighbours are not reported."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECKS = pathlib.Path(__file__).resolve().parent / "checks"
LONG_BODY = "".join(f"  total += {n};\n" for n in range(80))

# path -> content. A line that must be reported ends in "// BAD rule".
TREE = {
    "drivers/base/units.hpp": "#pragma once\nint unit();\n",
    "drivers/base/README.md": "base\n",
    "drivers/base/CMakeLists.txt": "add_library(base unit.cpp units_test.cpp)\n",
    "drivers/base/unit.cpp": '#include "drivers/base/units.hpp"\n\nint unit() { return 1; }\n',
    "drivers/base/units_test.cpp": '#include <thread>\n\n#include "drivers/base/units.hpp"\n\n'
                                   "void spin() { std::thread(unit).join(); }\n",
    "drivers/base/orphan.cpp": "int orphan();  // BAD tree\n",
    "drivers/base/unguarded.hpp": "int unguarded();  // BAD tree\n",
    "drivers/base/upward.hpp": "#pragma once\n\n"
                               '#include "drivers/blkback/ring.hpp"  // BAD includes\n'
                               '#include "drivers/base/absent.hpp"  // BAD includes headers\n'
                               '#include "units.hpp"  // BAD includes\n',
    "drivers/blkback/README.md": "blkback\n",
    "drivers/blkback/ring.hpp": "#pragma once\n\nclass Ring;\n",
    "drivers/blkback/needy.hpp": "#pragma once\n\nstd::string name();  // BAD headers\n",
    "drivers/blkback/clock.hpp": "#pragma once\n\n#include <chrono>\n#include <mutex>\n#include <random>\n#include <thread>\n\n"
                                 "inline auto now() { return std::chrono::steady_clock::now(); }  // BAD bans\n"
                                 "inline auto draw() { return std::random_device()(); }  // BAD bans\n"
                                 "inline auto start(void (*f)()) { return std::thread(f); }  // BAD bans\n"
                                 "inline std::mutex lock;  // BAD bans\n"
                                 "inline volatile int shared;  // BAD bans\n"
                                 "inline void fence() { std::atomic_thread_fence(std::memory_order{}); }  // BAD bans\n"
                                 "// A comment may speak of std::thread, and so may a string.\n"
                                 'inline const char* text() { return "std::thread"; }\n'
                                 "// FIX" "ME later  // BAD bans\n",
    "drivers/blkback/xen.hpp": "#pragma once\n\n#include <xengnttab.h>  // BAD includes\n",
    "drivers/blkback/ugly.hpp": "#pragma once\n\nint  ugly( );  // BAD format\n",
    "drivers/blkback/long.hpp": "#pragma once\n\ninline int sum(int total) {  // BAD lengths\n" + LONG_BODY + "  return total;\n}\n",
    "drivers/blkback/wrapped.hpp": "#pragma once\n\nstruct Wrapped {\n"
                                   "  Wrapped(int the_first_of_the_parameters, int the_second_of_the_parameters, "
                                   "int the_third_of_the_parameters,\n"
                                   "          int the_fourth_of_the_parameters)\n"
                                   "      : first(the_first_of_the_parameters), second(the_second_of_the_parameters), "
                                   "third(the_third_of_the_parameters) {\n"
                                   "    first += the_fourth_of_the_parameters;\n  }\n" + "".join(f"  int member_{n} = {n};\n" for n in range(80)) +
                                   "  int first;\n  int second;\n  int third;\n};\n",
    "agent/run/README.md": "run\n",
    "agent/run/run.hpp": '#pragma once\n\n#include "drivers/base/units.hpp"\n#include "drivers/blkback/ring.hpp"  // BAD includes\n',
    "gui/app/README.md": "app\n",
    "gui/app/app.hpp": '#pragma once\n\n#include "drivers/base/units.hpp"  // BAD includes\n',
    ".clang-format": "BasedOnStyle: Google\nColumnLimit: 120\nAlignTrailingComments: false\n"
                     "IncludeBlocks: Preserve\nSortIncludes: Never\n",
}


def expected() -> set[tuple[str, int, str]]:
    wanted = set()
    for path, content in TREE.items():
        for number, line in enumerate(content.splitlines(), 1):
            if "// BAD " in line:
                wanted.update((path, number, rule) for rule in line.split("// BAD ")[1].split())
    return wanted


def run_checks(root: pathlib.Path) -> tuple[int, set[tuple[str, int, str]], str]:
    done = subprocess.run([sys.executable, str(CHECKS), "--root", str(root)], capture_output=True, text=True)
    found = set()
    for line in done.stdout.splitlines():
        place, rule, _message = line.split(": ", 2)
        path, number = place.rsplit(":", 1)
        found.add((path, int(number), rule))
    return done.returncode, found, done.stdout + done.stderr


class Checks(unittest.TestCase):
    def plant(self, tree: dict[str, str]) -> pathlib.Path:
        folder = tempfile.TemporaryDirectory(prefix="xblk-checks-")
        self.addCleanup(folder.cleanup)
        for path, content in tree.items():
            file = pathlib.Path(folder.name) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        return pathlib.Path(folder.name)

    def test_finds_exactly_what_was_planted(self):
        code, found, output = run_checks(self.plant(TREE))
        self.assertEqual(found, expected(), output)
        self.assertEqual(code, 1, output)

    def test_accepts_a_clean_tree(self):
        clean = {path: content for path, content in TREE.items() if "// BAD " not in content}
        code, found, output = run_checks(self.plant(clean))
        self.assertEqual(found, set(), output)
        self.assertEqual(code, 0, output)


if __name__ == "__main__":
    unittest.main()
