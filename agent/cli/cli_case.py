"""The built xblk in a home of its own, for the tests beside this file.

Each test has a home, a TMPDIR and a state directory of its own; what is left in them afterwards is a failure.
usage of such a test: FILE BIN_DIR SOURCE_DIR [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BIN = pathlib.Path(sys.argv[1]).resolve()
SOURCE = pathlib.Path(sys.argv[2]).resolve()
PATIENCE_S = 60
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup our children would inherit that it is ignored

PROFILE = """
name: tiny
store: %(store)s
fixed: {guests: %(guests)d, rw: %(rw)s, bs: 4k, iodepth: 16}
matrix:
  persistent: [on, off]
fio: {runtime: %(runtime)s, ramp_time: 200ms, time_based: on}
repeats: %(repeats)d
order: %(order)s
"""


def children_of(pid):
    """Process ids below `pid`, deepest last."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child)] + children_of(int(child))
    return found


def command_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


class Case(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="xblk-cli-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.temporary = self.home / "t"
        self.temporary.mkdir()
        self.state = self.home / "state"
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "XDG_STATE_HOME": str(self.state),
                            "XDG_RUNTIME_DIR": str(self.home)}
        self.out = self.home / "run"

    def profile(self, runtime="500ms", **given):
        values = {"runtime": runtime, "guests": 1, "repeats": 1, "order": "sequential", "store": "null:1GiB",
                  "rw": "randread", **given}
        path = self.home / "tiny.yaml"
        path.write_text(PROFILE % values)
        return str(path)

    def xblk(self, *arguments, code=0, environment=None):
        """`code` None: whatever it is."""
        done = subprocess.run([BIN / "xblk", *map(str, arguments)], env=environment or self.environment, cwd=self.home,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        if code is not None:
            self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def complaint(self, *arguments, code, environment=None):
        """The one line that stderr must hold."""
        error = self.xblk(*arguments, code=code, environment=environment).stderr
        self.assertEqual(error.count("\n"), 1, error)
        return error

    def start(self, *arguments):
        process = subprocess.Popen([BIN / "xblk", *map(str, arguments)], env=self.environment, cwd=self.home,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def wait_for_child(self, process, name):
        """The pid of a descendant that runs `name`; of fio one with a job, not the one asked for its version."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for pid in children_of(process.pid):
                words = command_of(pid)
                if os.path.basename(words[0].decode() if words else "") == name and b"--version" not in words:
                    return pid
            time.sleep(0.01)
        self.fail(f"no {name} was started")

    def wait_for_load(self, process):
        """Until the first fio is past its connection."""
        fio = self.wait_for_child(process, "fio")
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if any(file.stat().st_size > 0 for file in self.out.glob("raw/*/*/*.snapshots.jsonl")):
                return fio
            time.sleep(0.01)
        self.fail("fio wrote no snapshot")

    def run_and(self, act, code, runtime="2s", **profile):
        """Starts a run, acts when the first guest is under load; what it left, and what it printed on stderr."""
        process = self.start("run", self.profile(runtime, **profile), "--out", self.out, "--no-progress")
        fio = self.wait_for_load(process)
        family = children_of(process.pid)
        act(process, fio)
        _, error = self.finish(process, code)
        return family, error

    def finish(self, process, code):
        output, error = process.communicate(timeout=PATIENCE_S)
        self.assertEqual(process.returncode, code, f"{output}\n{error}")
        return output, error

    def results(self):
        return json.loads((self.out / "results.json").read_text())

    def statuses(self):
        return [point["status"] for point in self.results()["points"]]

    def check_schema(self, document):
        schema = SOURCE / "profiles/schema/results.schema.json"
        import jsonschema
        jsonschema.validate(document, json.loads(schema.read_text()))

    def assert_no_orphan(self, processes):
        deadline = time.monotonic() + 10
        while any(map(alive, processes)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual([command_of(pid) for pid in processes if alive(pid)], [], "orphans")

    def assert_nothing_left(self, processes=()):
        self.assert_no_orphan(processes)
        self.assertEqual(list(self.temporary.iterdir()), [], "left in TMPDIR")
        self.assertEqual(list(self.state.glob("xblk/*")), [], "journals left")


def main():
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
