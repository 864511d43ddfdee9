"""What the measuring programs of this folder share: starting programs, the emulated host, fio and its figures.

Everything that can be lacking (a program, a build) is raised as CannotRun with one line that says what to do.
"""
import json
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 30
DISK = "1GiB"
DISK_BYTES = 1 << 30
DEVICE = "51712"
NULL_CO = ["--blockdev", f"driver=null-co,node-name=disk,size={DISK_BYTES},read-zeroes=off"]

EXIT_MISSED = 1
EXIT_INCONCLUSIVE = 3
EXIT_CANNOT_RUN = 5


class CannotRun(Exception):
    pass


def host_facts():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    version = subprocess.run(["fio", "--version"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cpus": os.cpu_count(), "kernel": platform.release(), "fio": version,
            "load_average": os.getloadavg()}


def need(program):
    if shutil.which(program) is None:
        raise CannotRun(f"{program} is not installed; run ci/setup")


def built(build, name):
    path = pathlib.Path(build).resolve() / "bin" / name
    if not path.exists():
        raise CannotRun(f"{path} is not built; run cmake --preset release && cmake --build --preset release")
    return path


def busy_share(seconds):
    """How much of all CPUs was in use, 0 to 1."""
    def ticks():
        fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
        return sum(fields), fields[3] + fields[4]  # idle and iowait
    all_before, idle_before = ticks()
    time.sleep(seconds)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def cpu_seconds(pid):
    """User and system time of a process, its ended threads included (proc(5), fields 14 and 15 of stat)."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descendants_of(pid):
    found = []
    for children in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            found += [child, *descendants_of(child)]
    return found


def wait_until(condition, what, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CannotRun(f"{what} within {seconds} s")
        time.sleep(0.02)


class Workplace:
    """A temporary directory and the programs that run in it; all of them end with it."""

    def __init__(self, verbose=False):
        self.verbose = verbose
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="xblk-perf-"))
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            self.end(child)
        shutil.rmtree(self.directory, ignore_errors=True)

    def show(self, command):
        if self.verbose:
            print("+ " + shlex.join(map(str, command)), file=sys.stderr, flush=True)

    def run(self, command, **options):
        """To its end; the caller looks at the exit code."""
        self.show(command)
        return subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=self.directory, **options)

    def start(self, command, output=subprocess.DEVNULL):
        self.show(command)
        child = subprocess.Popen(list(map(str, command)), cwd=self.directory, stdout=output, stderr=subprocess.STDOUT)
        self.children.append(child)
        return child

    def start_server(self, command, socket):
        """Returns when its socket is there."""
        child = self.start(command)
        wait_until(lambda: socket.exists() or child.poll() is not None, f"{command[0]} made no socket")
        if child.poll() is not None:
            raise CannotRun(f"{command[0]} exited with {child.returncode} (--verbose shows its command)")
        return child

    @staticmethod
    def end(child):
        if child.poll() is None:
            child.terminate()
            try:
                child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class EmulatedHost:
    """`xblk emu up`: a host with a null disk for each guest. The guests are whoever runs with engine_arguments()."""

    def __init__(self, place, build, guests=1):
        self.place = place
        self.xblk = built(build, "xblk")
        self.engine = built(build, "libxblk-fio.so")
        self.directory = place.directory / f"host-{guests}"
        need("xenstore-write")
        up = place.run([self.xblk, "emu", "up", "--dir", self.directory, "--guests", str(guests),
                        "--store", f"null:{DISK}"])
        if up.returncode != 0:
            raise CannotRun(up.stderr.strip())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.place.run([self.xblk, "emu", "down", "--dir", self.directory])

    def pid(self):
        return int((self.directory / "host.pid").read_text())

    def set_policy(self, values, guest=1):
        """Of both ends, in force from the next connect."""
        ends = (f"/local/domain/{guest}/device/vbd/{DEVICE}", f"/local/domain/0/backend/xblk/{guest}/{DEVICE}")
        pairs = [text for end in ends for name, value in values.items() for text in (f"{end}/xblk-policy/{name}", value)]
        done = self.xenstore("xenstore-write", *pairs)
        if done.returncode != 0:
            raise CannotRun(f"xenstore-write: {done.stderr.strip()}")

    def backend_states(self, guests):
        paths = [f"/local/domain/0/backend/xblk/{guest}/{DEVICE}/state" for guest in guests]
        return self.xenstore("xenstore-read", *paths).stdout.split()

    def xenstore(self, *command):
        return self.place.run(command, env=dict(os.environ, XENSTORED_PATH=str(self.directory / "xenstored" / "socket")))

    def engine_options(self, guest=1):
        return {"ioengine": f"external:{self.engine}", "thread": "1", "xblk_domid": guest,
                "xblk_hypervisor": self.directory / "hypervisor.sock", "xblk_device": f"device/vbd/{DEVICE}",
                "xblk_xenstore": self.directory / "xenstored" / f"xenbus-{guest}"}


def start_qsd_nbd(place):
    """qemu-storage-daemon's null-co over NBD; returns how fio reaches it."""
    need("qemu-storage-daemon")
    socket = place.directory / "qsd-nbd.sock"
    place.start_server(["qemu-storage-daemon", *NULL_CO, "--nbd-server", f"addr.type=unix,addr.path={socket}",
                        "--export", "type=nbd,id=export,node-name=disk,name=disk"], socket)
    return {"ioengine": "nbd", "uri": f"nbd+unix:///disk?socket={socket}"}


def as_arguments(options):
    return [f"--{name}={value}" for name, value in options.items()]


class Fio:
    """Random reads of 4 KiB by one job: the one generator for all."""

    def __init__(self, place, seconds, ramp):
        need("fio")
        self.place = place
        self.seconds = seconds
        self.ramp = ramp

    def command(self, options, depth):
        load = {"thread": "1", "rw": "randread", "bs": "4k", "iodepth": depth, "size": "1g", "time_based": "1",
                "ramp_time": f"{round(self.ramp * 1000)}ms", "runtime": f"{round(self.seconds * 1000)}ms"}
        return ["fio", "--output-format=json", "--eta=never", "--name=job", *as_arguments({**load, **options})]

    def measure(self, options, depth):
        return reads_of(self.place.run(self.command(options, depth)))

    def measure_xblk(self, host, policy, depth):
        """The figures, and what both ends counted per I/O while fio measured."""
        host.set_policy(policy)
        snapshots = self.place.directory / "snapshots"
        snapshots.unlink(missing_ok=True)
        options = {**host.engine_options(), "xblk_snapshots": snapshots, "xblk_statistics": self.place.directory / "front"}
        return self.measure(options, depth), mechanism_of(snapshots)


def reads_of(done):
    text = done.stdout[done.stdout.find("{"):] if "{" in done.stdout else ""
    if done.returncode != 0 or not text:
        raise CannotRun(f"fio exited with {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}")
    job = json.loads(text)["jobs"][0]
    if job["error"] != 0 or job["read"]["total_ios"] == 0:
        raise CannotRun(f"fio measured nothing: error {job['error']}")
    latency = job["read"]["clat_ns"]
    return {"iops": job["read"]["iops"], "latency_us": latency["mean"] / 1000,
            "latency_p99_us": latency["percentile"]["99.000000"] / 1000}


MECHANISM = {
    "back": {"maps": "maps_per_io", "unmaps": "unmaps_per_io", "copies": "copies_per_io",
             "notifications_sent": "back_notifications_per_io", "worker_cpu_ns": "back_cpu_ns_per_io",
             "polls": "back_polls_per_io", "batches": "back_batches_per_io"},
    "front": {"copied_bytes": "front_copied_bytes_per_io", "notifications_sent": "front_notifications_per_io",
              "events_received": "front_events_per_io", "polls": "front_polls_per_io"},
}


def mechanism_of(snapshots):
    """Counters of both ends per front I/O, between the end of the ramp and the end."""
    lines = {line["phase"]: line for line in map(json.loads, snapshots.read_text().splitlines())}

    def window(end, counter):
        def total(phase):
            return sum(queue["counters"][counter] for queue in lines[phase][end]["queues"])
        return total("end") - total("ramp_end")

    ios = window("front", "ios")
    if ios == 0:
        raise CannotRun("the frontend counted no I/O between ramp and end")
    return {label: window(end, counter) / ios for end, names in MECHANISM.items() for counter, label in names.items()}


def write_json(result, where):
    text = json.dumps(result, indent=2) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        pathlib.Path(where).write_text(text, encoding="utf-8")


def main_of(name, body):
    """Runs `body`; what is lacking ends it with one line and exit code 5."""
    try:
        sys.exit(body())
    except CannotRun as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(EXIT_CANNOT_RUN)
