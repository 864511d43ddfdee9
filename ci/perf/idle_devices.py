"""What idle devices cost: a host and a guest process with N connected devices that did some I/O and now rest.

One fio process holds all guests, a job each: it reads some blocks and then thinks until it is ended. The same fio with
its null engine is watched too, since its jobs and its clock wake up as well; that share is not the devices'.
"""
import json
import signal
import time

import perf_lib
import verdicts
from perf_lib import CannotRun, EmulatedHost, Workplace

BAR_PERCENT = 1.0    # of one CPU, for all devices together, both ends
BLOCKS = 16          # that each device reads before it rests
SETTLE_S = 1.0
THINK_S = 600
XENBUS_CONNECTED = "4"


def job_file(path, jobs):
    common = {"thread": 1, "rw": "randread", "bs": "4k", "iodepth": 1, "size": "1g", "time_based": 1,
              "runtime": f"{2 * THINK_S}s", "thinktime": f"{THINK_S}s", "thinktime_blocks": BLOCKS}
    sections = {"global": common, **{f"device-{number}": options for number, options in enumerate(jobs, 1)}}
    text = "".join(f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in options.items())
                   for name, options in sections.items())
    path.write_text(text, encoding="utf-8")
    return path


def start_fio(place, name, jobs):
    """The process, and where its report will be."""
    report = place.directory / f"{name}.json"
    fio = place.start(["fio", "--output-format=json", "--eta=never", f"--output={report}",
                       job_file(place.directory / f"{name}.fio", jobs)])
    return fio, report


def finish_fio(place, fio, report, devices):
    """Ends it, and makes sure that every device did its reads and no more."""
    fio.send_signal(signal.SIGINT)
    fio.wait(perf_lib.PATIENCE_S)
    text = report.read_text(encoding="utf-8")
    reads = [job["read"]["total_ios"] for job in json.loads(text[text.find("{"):])["jobs"]]
    if reads != [BLOCKS] * devices:
        raise CannotRun(f"fio did {sum(reads)} reads on {len(reads)} devices, not {BLOCKS} on each of {devices}")


def watch(groups, seconds):
    """Percent of one CPU that each group of processes used."""
    def used():
        return {name: sum(perf_lib.cpu_seconds(pid) for pid in pids) for name, pids in groups.items()}

    before = used()
    start = time.monotonic()
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    return {name: 100 * (after - before[name]) / elapsed for name, after in used().items()}


def measure(args):
    devices = args.idle_devices
    with Workplace(args.verbose) as place, EmulatedHost(place, args.build, guests=devices) as host:
        null, null_report = start_fio(place, "null", [{"ioengine": "null"}] * devices)
        guests = range(1, devices + 1)
        fio, report = start_fio(place, "guests", [host.engine_options(guest) for guest in guests])
        perf_lib.wait_until(
            lambda: fio.poll() is not None or host.backend_states(guests) == [XENBUS_CONNECTED] * devices,
            f"{devices} devices did not connect")
        if fio.poll() is not None:
            raise CannotRun(f"fio exited with {fio.returncode} (--verbose shows its command)")
        time.sleep(SETTLE_S)
        back = [host.pid(), *perf_lib.descendants_of(host.pid())]
        percent = watch({"back": back, "front": [fio.pid], "generator": [null.pid]}, args.idle_seconds)
        if host.backend_states(guests) != [XENBUS_CONNECTED] * devices:
            raise CannotRun("a device did not stay connected")
        finish_fio(place, fio, report, devices)
        finish_fio(place, null, null_report, devices)
    total = percent["back"] + max(0.0, percent["front"] - percent["generator"])
    return {"devices": devices, "seconds": args.idle_seconds, "back_percent": percent["back"],
            "front_percent": percent["front"], "generator_percent": percent["generator"], "devices_percent": total,
            "bar_percent": BAR_PERCENT, "verdict": verdicts.PASS if total < BAR_PERCENT else verdicts.MISSED}


def as_line(idle):
    if "why" in idle:
        return f"{idle['verdict']} ({idle['why']})"
    return (f"{idle['devices']} for {idle['seconds']:g} s: {idle['devices_percent']:.2f} % of a CPU "
            f"(host {idle['back_percent']:.2f}, guests {idle['front_percent']:.2f} of which fio itself "
            f"{idle['generator_percent']:.2f}); bar {idle['bar_percent']:g} %: {idle['verdict']}")
