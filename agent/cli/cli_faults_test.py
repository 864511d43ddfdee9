#!/usr/bin/env python3
"""Every fault of the environment that xblk documents, and runs that go on after one."""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

from cli_case import Case, children_of, main


class Faults(Case):
    def test_killed_fio_fails_one_point(self):
        family, error = self.run_and(lambda _, fio: os.kill(fio, signal.SIGKILL), 4, "1s", guests=2)
        self.assertIn("fio was killed by SIGKILL", error)
        self.assertEqual(self.statuses(), ["failed", "ok"], "the device of the dead guest serves the next one")
        self.assert_nothing_left(family)

    def test_killed_host(self):
        family, error = self.run_and(
            lambda process, _: os.kill(self.wait_for_child(process, "xblk-emu-host"), signal.SIGKILL), 4, "1s")
        self.assertIn("the emulated host ended (killed by SIGKILL)", error)
        self.assertEqual(self.statuses(), ["failed", "ok"], "the next point gets a new host")
        self.assert_nothing_left(family)

    def test_killed_xenstored(self):
        family, error = self.run_and(
            lambda process, _: os.kill(self.wait_for_child(process, "xenstored"), signal.SIGKILL), 4, "1s")
        self.assertIn("xenstored", error)
        self.assertEqual(self.statuses(), ["failed", "ok"])
        self.assert_nothing_left(family)

    def test_first_interrupt_finishes_the_visit(self):
        family, error = self.run_and(lambda process, _: process.send_signal(signal.SIGINT), 128 + signal.SIGINT, "1s")
        self.assertIn("everything is restored", error)
        self.assertEqual(self.statuses()[0], "ok")
        self.assertEqual(self.results()["points"][1]["repeats"], [])
        self.assert_nothing_left(family)

    def test_hang_up_finishes_the_visit_unless_nohup(self):
        family, error = self.run_and(lambda process, _: process.send_signal(signal.SIGHUP), 128 + signal.SIGHUP, "1s")
        self.assertIn("everything is restored", error)
        self.assertEqual(self.statuses()[0], "ok")
        self.assert_nothing_left(family)
        shutil.rmtree(self.out)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, signal.SIG_DFL)
        family, _ = self.run_and(lambda process, _: process.send_signal(signal.SIGHUP), 0, "300ms")
        self.assertEqual(self.statuses(), ["ok", "ok"])
        self.assert_nothing_left(family)

    def test_second_interrupt_stops_at_once(self):
        def interrupt_twice(process, _):
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        family, _ = self.run_and(interrupt_twice, 128 + signal.SIGTERM, "60s")
        self.assertLess(time.monotonic() - begun, 20)
        self.assertEqual(self.statuses()[0], "inconclusive")
        self.assert_nothing_left(family)

    def test_killed_xblk_leaves_no_process_and_restore_tidies_up(self):
        family, _ = self.run_and(lambda process, _: process.kill(), -signal.SIGKILL, "60s")
        self.assert_no_orphan(family)
        json.loads((self.out / "results.json").read_text())  # written whole before the kill
        self.assertIn("xblk-policy/persistent", self.xblk("restore", "--list").stdout)
        self.assertIn("the keys with it", self.xblk("restore").stdout)
        self.assertEqual(self.xblk("restore").stdout, "nothing to restore\n")
        self.assert_nothing_left()

    def test_full_disk(self):
        small = self.home / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1200k", "tmpfs", small], capture_output=True).returncode:
            self.out = pathlib.Path("/dev/full/run")  # not allowed to mount: the nearest thing
            self.complaint("run", self.profile(), "--out", self.out, "--no-progress", code=5)
            return
        self.addCleanup(subprocess.run, ["umount", small])
        self.assertIn("free some space", self.complaint("run", self.profile(), "--out", small / "run", code=5))
        subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
        self.out = small / "run"

        def fill(_process, _fio):
            with open(small / "fill", "wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
        family, error = self.run_and(fill, 5, "1s")
        self.assertIn("No space left on device", error)
        self.results()  # the last one that fitted, whole
        self.assert_nothing_left(family)
        self.assertIn("free some space", self.complaint("run", "--resume", self.out, code=5))
        (small / "fill").unlink()
        self.xblk("run", "--resume", self.out, "--no-progress")
        self.assertEqual(self.statuses(), ["ok", "ok"])
        self.assert_nothing_left()

    def test_output_that_cannot_be_written(self):
        file = self.home / "file"
        file.write_text("")
        self.assertIn("cannot create", self.complaint("run", self.profile(), "--out", file / "run", code=5))
        self.out.mkdir()
        self.assertIn("never overwritten", self.complaint("run", self.profile(), "--out", self.out, code=5))

    def test_wrong_fio(self):
        for version, reason in {"fio-2.1.10": "too old", "fio-3.99": "was built for fio"}.items():
            program = self.home / version
            program.write_text(f"#!/bin/sh\necho {version}\n")
            program.chmod(0o755)
            self.assertIn(reason, self.complaint("run", self.profile(), "--fio", program, code=5))
        nowhere = {**self.environment, "PATH": "/nonexistent"}
        self.assertIn("apt-get install fio", self.complaint("run", self.profile(), code=5, environment=nowhere))
        self.assert_nothing_left()

    def test_socket_in_use(self):
        host = self.home / "h"
        self.xblk("emu", "up", "--dir", host, "--guests", "1")
        try:
            description = (host / "host.json").read_text()
            (host / "host.json").unlink()
            self.assertIn("another emulated host", self.complaint("emu", "up", "--dir", host, code=5))
        finally:
            (host / "host.json").write_text(description)
            self.xblk("emu", "down", "--dir", host)

    def test_directory_too_long_for_a_socket(self):
        self.assertIn("socket path", self.complaint("emu", "up", "--dir", self.home / ("x" * 100), code=5))


class Resume(Case):
    VISITS = 6

    def whole(self, sittings):
        """The results are those of a run that was never cut off, but for how often it sat down."""
        document = self.results()
        self.check_schema(document)
        repeats = [r for point in document["points"] for r in point["repeats"]]
        self.assertEqual(sorted(r["order_position"] for r in repeats), list(range(self.VISITS)))
        self.assertEqual({r["status"] for r in repeats}, {"ok"}, [r["reason"] for r in repeats])
        self.assertEqual({p["status"] for p in document["points"]}, {"ok"})
        self.assertNotIn(True, [r.get("interrupted") for r in repeats])
        self.assertEqual(len(document["run"]["sittings"]), sittings)
        self.assertLess(max(r.get("sitting", 0) for r in repeats), sittings)
        self.assertNotEqual(document["run"]["ended"], "")
        for repeat in repeats:
            for file in repeat["raw_files"]:
                self.assertGreater((self.out / file).stat().st_size, 0, file)
        self.assert_nothing_left()
        self.assertEqual(list(self.out.glob("*.tmp")), [])

    def test_killed_at_random_moments(self):
        seed = random.randrange(1 << 32)
        dice = random.Random(seed)
        profile = self.profile("200ms", repeats=3, order="interleaved")
        sittings = 0
        with self.subTest(seed=seed):
            for _ in range(6):
                begun = (self.out / "results.json").exists()
                if not begun:
                    shutil.rmtree(self.out, ignore_errors=True)
                process = self.start("run", *(("--resume", self.out) if begun else (profile, "--out", self.out)))
                time.sleep(dice.uniform(0.0, 4.0))
                family = children_of(process.pid)
                process.kill()
                process.communicate()
                self.assert_no_orphan(family)
                if (self.out / "results.json").exists():
                    sittings = len(self.results()["run"]["sittings"])
            last = ("--resume", self.out) if sittings else (profile, "--out", self.out)
            text = self.xblk("run", *last, "--no-progress").stdout
            document = self.results()
            self.whole(len(document["run"]["sittings"]))
            self.assertIn(len(document["run"]["sittings"]), (sittings, sittings + 1))
            if sittings:
                self.assertIn(f"sitting 1 of {len(document['run']['sittings'])}", text)
            again = self.xblk("run", "--resume", self.out)
            self.assertIn("nothing is left to measure", again.stderr)
            self.assertEqual(self.results(), document)

    def test_order_and_seed_go_on(self):
        profile = self.profile("300ms", repeats=3, order="interleaved")
        self.xblk("run", profile, "--seed", "5", "--out", self.home / "whole", "--no-progress")
        process = self.start("run", profile, "--seed", "5", "--out", self.out, "--no-progress")
        self.wait_for_load(process)
        process.send_signal(signal.SIGTERM)
        _, error = self.finish(process, 128 + signal.SIGTERM)
        self.assertIn(f"after 1 of {self.VISITS} visits; everything is restored; go on with 'xblk run --resume "
                      f"{self.out}'", error)
        self.assertIn("not whole: 1 of 6 visits", self.xblk("report", self.out).stdout)
        self.xblk("run", "--resume", self.out / "results.json", profile, "--no-progress")
        self.whole(2)

        def order(directory):
            points = json.loads((directory / "results.json").read_text())["points"]
            return sorted((r["order_position"], p["id"], r["index"]) for p in points for r in p["repeats"])
        self.assertEqual(order(self.out), order(self.home / "whole"))
        text = self.xblk("report", self.out, "--html", self.home / "a.html").stdout
        self.assertIn("sitting 2 of 2", text)
        self.assertIn("sitting 2 of 2", (self.home / "a.html").read_text())
        self.assertIn("note  base: sitting 2 of 2", self.xblk("compare", self.out, self.home / "whole", code=None).stdout)

    def cut_off(self):
        process = self.start("run", self.profile("10s", repeats=3), "--out", self.out, "--no-progress")
        self.wait_for_load(process)
        return process

    def test_what_is_refused(self):
        process = self.cut_off()
        self.assertIn("in use by another process", self.complaint("run", "--resume", self.out, code=5))
        family = children_of(process.pid)
        process.kill()
        process.communicate()
        self.assert_no_orphan(family)
        results = self.out / "results.json"
        before = results.read_bytes()

        other = self.home / "other.yaml"
        other.write_text((self.home / "tiny.yaml").read_text().replace("iodepth: 16", "iodepth: 32"))
        self.assertIn("other.yaml:4: is 'fixed: {guests: 1, rw: randread, bs: 4k, iodepth: 32}'",
                      self.complaint("run", other, "--resume", self.out, code=2))
        kept = (self.out / "profile.yaml").read_text()
        (self.out / "profile.yaml").write_text(kept + "# a remark\n")
        self.assertIn("profile.yaml:10: is '# a remark', and nothing", self.complaint("run", "--resume", self.out, code=2))
        (self.out / "profile.yaml").write_text(kept)
        for option in ("--repeats", "4"), ("--seed", "4"), ("--out", self.home / "x"):
            self.xblk("run", "--resume", self.out, *option, code=2)

        document = json.loads(before)
        document["run"]["fingerprint"]["kernel"]["release"] = "2.6.18-xen"
        results.write_text(json.dumps(document))
        self.assertIn("kernel.release: 2.6.18-xen and", self.complaint("run", "--resume", self.out, code=5))
        for torn in (before[:len(before) // 2], b"", b"\0" * len(before), b"[" * 100000):
            results.write_bytes(torn)
            self.assertIn("results.json", self.complaint("run", "--resume", self.out, code=2))
        results.unlink()
        self.assertIn("nothing was measured there", self.complaint("run", "--resume", self.out, code=2))
        self.complaint("run", "--resume", self.home / "absent", code=5)
        self.assertNotEqual(list(self.state.glob("xblk/*")), [], "whoever is refused has put nothing back")
        results.write_bytes(before)
        self.xblk("restore")


if __name__ == "__main__":
    main()
