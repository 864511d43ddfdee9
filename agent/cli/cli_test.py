#!/usr/bin/env python3
"""The built xblk as a user meets it: real runs, stores, and what its commands say."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from cli_case import BIN, PATIENCE_S, SOURCE, Case, alive, main


class Measuring(Case):
    def test_run_proves_reports_and_compares(self):
        document = json.loads(self.xblk("run", self.profile(), "--out", self.out, "--json", "--no-progress").stdout)
        self.assertEqual(document, self.results())
        on, off = document["points"]
        self.assertEqual([on["status"], off["status"]], ["ok", "ok"])
        self.assertEqual(on["mechanism"]["unmaps_per_io"]["median"], 0)
        self.assertAlmostEqual(off["mechanism"]["unmaps_per_io"]["median"], 1, delta=0.01)
        for end in "front", "back":
            self.assertEqual([p["negotiated"][end]["persistent"] for p in (on, off)], ["1", "0"])
        for file in on["repeats"][0]["raw_files"]:
            self.assertGreater((self.out / file).stat().st_size, 0, file)
        self.assert_nothing_left()
        self.check_schema(document)
        self.check_reports()

    def check_reports(self):
        text = self.xblk("report", self.out, "--html", self.home / "a.html", "--junit", self.home / "a.xml").stdout
        self.assertIn("maps / I/O", text)
        self.assertIn("<html", (self.home / "a.html").read_text())
        self.assertIn("<testsuite", (self.home / "a.xml").read_text())
        self.assertEqual(self.xblk("report", self.out / "results.json", "--csv").stdout.count("\n"), 3)
        # One repeat shows no effect, however large.
        self.xblk("compare", self.out, "--by", "persistent=on:off", code=3)
        self.xblk("compare", self.out, self.out, code=3)

    def test_presets_and_policies_are_proven(self):
        path = self.home / "presets.yaml"
        path.write_text("""
name: presets
store: ram:64MiB
fixed: {rw: randrw, bs: 16k, iodepth: 8, numjobs: 2, front.queues: 2}
matrix:
  preset: [linux-6.x, seed-2011, seed-2015]
include:
  - preset: seed-2012
    persistent: on           # what the author changed
  - preset: none
    persistent: off
    data-path: [copy, hybrid]
    hybrid-threshold: 4096
fio: {runtime: 300ms, ramp_time: 100ms, time_based: on}
repeats: 1
""")
        document = json.loads(self.xblk("run", path, "--out", self.out, "--json", "--no-progress").stdout)
        self.check_schema(document)
        by_preset = {p["params"]["preset"]: p for p in document["points"]}
        self.assertEqual(by_preset["seed-2011"]["negotiated"]["back"]["final-check"], "response")
        self.assertEqual(by_preset["seed-2012"]["negotiated"]["back"]["data-path"], "persistent")
        self.assertEqual(by_preset["seed-2015"]["negotiated"]["front"]["queues"], "2")
        self.assertGreater(by_preset["seed-2012"]["mechanism"]["lookup_steps_per_io"]["median"],
                           by_preset["none"]["mechanism"]["lookup_steps_per_io"]["median"])
        for point in document["points"]:
            self.assertEqual(point["status"], "ok", point["reason"])
        self.xblk("compare", self.out, "--by", "preset=linux-6.x:seed-2011", code=3)  # one repeat shows nothing
        self.assert_nothing_left()

    def test_limits_are_those_of_a_real_host(self):
        path = self.home / "limits.yaml"
        path.write_text("""
name: limits
store: throttled:1000MB/s:10us:null:1GiB
fixed: {guests: 2, rw: randread, bs: 4k, iodepth: 4, numjobs: 3, queues: 3, ring-page-order: 1}
fio: {runtime: 2s, time_based: on}
repeats: 1
""")
        planned = {l["name"]: l for l in json.loads(self.xblk("plan", path, "--json").stdout)["limits"]}
        process = self.start("run", path, "--out", self.out, "--no-progress")
        self.wait_for_load(process)
        host = self.wait_for_child(process, "xblk-emu-host")
        time.sleep(0.5)  # both guests are connected
        files = len(list(pathlib.Path(f"/proc/{host}/fd").iterdir()))
        socket = next(self.temporary.glob("xblk-host-*")) / "xenstored/socket"
        listed = subprocess.run(["xenstore-ls", "-fp", "/local/domain/2"], env={**os.environ, "XENSTORED_PATH": socket},
                                capture_output=True, text=True, check=True).stdout
        mappings = len(pathlib.Path(f"/proc/{host}/maps").read_text().splitlines())
        self.finish(process, 0)
        owned = [line for line in listed.splitlines() if "(n2" in line]
        # Whether the reconnect counter is there depends on the visit; the backend's file adds one.
        self.assertIn(planned["xenstored entries"]["need"] - len(owned), range(0, 3), listed)
        self.assertIn(planned["RLIMIT_NOFILE"]["need"] - files, range(0, 24))
        self.assertLessEqual(mappings, planned["vm.max_map_count"]["need"])
        self.assertFalse(any(limit["exceeded"] for limit in planned.values()))
        self.assert_nothing_left()

    def test_stock_tools_see_and_drive_an_emulated_host(self):
        host = self.home / "h"
        self.xblk("emu", "up", "--dir", host, "--guests", "2")
        try:
            self.drive(host)
        finally:
            pid = json.loads(self.xblk("emu", "status", "--dir", host).stdout)["pid"]
            self.xblk("emu", "down", "--dir", host)
        self.assertFalse(alive(pid))
        self.assertFalse(host.exists())

    def drive(self, host):
        def shell(script, guest=()):
            line = f'eval "$({BIN}/xblk emu env --dir {host} {" ".join(guest)})"; {script}'
            return subprocess.run(["sh", "-ec", line], env=self.environment, capture_output=True, text=True,
                                  timeout=PATIENCE_S)
        self.assertIn("params", shell("xenstore-ls /local/domain/0/backend/xblk/1").stdout)
        self.assertIn("51712", shell("xenstore-ls device/vbd", ("--guest", "1")).stdout)
        denied = shell("xenstore-write /local/domain/2/name mine", ("--guest", "1"))
        self.assertNotEqual(denied.returncode, 0, "a guest must not write another one's keys")
        self.assertIn("runs in", self.complaint("emu", "up", "--dir", host, code=5))
        self.assertIn("back InitWait", self.xblk("vbd", "list", "--dir", host).stdout)
        command = self.xblk("emu", "env", "--dir", host).stdout.splitlines()[-1].removeprefix("# ")
        subprocess.run(["sh", "-ec", command.replace("5000ms", "300ms")], cwd=self.home, env=self.environment, check=True,
                       timeout=PATIENCE_S)
        self.assertIn("persistent_hits", (self.home / "guest-1.snapshots.jsonl").read_text())
        self.assertIn("front Closed", self.xblk("vbd", "list", "--dir", host).stdout)


class Stores(Case):
    def store(self, size="8MiB:"):
        return f"file:{size}{self.home}/disk-{{guest}}.img"

    def disks(self):
        return sorted(path.name for path in self.home.glob("*.img"))

    def test_a_file_that_is_created_is_removed(self):
        profile = self.profile(store=self.store(), guests=2, rw="randwrite")
        plan = json.loads(self.xblk("plan", profile, "--json").stdout)
        self.assertEqual([file["use"] for file in plan["store_files"]], ["create", "create"])
        self.assertIn("disk-2.img: will be created, 8m", self.xblk("plan", profile).stdout)
        self.assertEqual(self.disks(), [])

        def look(_process, _fio):
            self.assertEqual(self.disks(), ["disk-1.img", "disk-2.img"])
        family, _ = self.run_and(look, 0, "300ms", store=self.store(), guests=2, rw="randwrite")
        self.assertEqual(self.statuses(), ["ok", "ok"])
        self.assertEqual(self.disks(), [])
        self.assert_nothing_left(family)

    def test_a_killed_run_leaves_it_to_restore(self):
        family, _ = self.run_and(lambda process, _: process.kill(), -signal.SIGKILL, "60s", store=self.store())
        self.assert_no_orphan(family)
        self.assertEqual(self.disks(), ["disk-1.img"])
        self.assertIn("disk-1.img: created", self.xblk("restore", "--list").stdout)
        self.assertIn("1 files removed", self.xblk("restore").stdout)
        self.assertEqual(self.disks(), [])
        self.assert_nothing_left()

    def test_a_file_of_somebody_else(self):
        disk = self.home / "disk-1.img"
        content = os.urandom(1 << 20)
        disk.write_bytes(content)
        writes = self.profile(store=self.store(""), rw="randwrite", runtime="300ms")
        self.assertIn("WILL BE OVERWRITTEN", self.xblk("plan", writes).stdout)
        self.assertIn(f"add --overwrite {disk}", self.complaint("run", writes, "--out", self.out, code=5))
        self.assertFalse(self.out.exists())
        self.assertEqual(disk.read_bytes(), content)

        reads = self.profile(store=self.store(""), rw="randread", runtime="300ms")
        self.assertIn("attached read-only", self.xblk("plan", reads).stdout)
        self.xblk("run", reads, "--out", self.out, "--no-progress")
        self.assertEqual(self.statuses(), ["ok", "ok"])
        self.assertEqual(disk.read_bytes(), content)

        writes = self.profile(store=self.store(""), rw="randwrite", runtime="300ms")
        shutil.rmtree(self.out)
        self.xblk("run", writes, "--overwrite", disk, "--out", self.out, "--no-progress")
        self.assertEqual(self.statuses(), ["ok", "ok"])
        self.assertEqual(disk.stat().st_size, len(content), "it stays")
        self.assertNotEqual(disk.read_bytes(), content)
        self.assert_nothing_left()

    def test_an_emulated_host_overwrites_nothing_unasked(self):
        disk = self.home / "disk-1.img"
        disk.write_bytes(bytes(4096))
        up = "emu", "up", "--dir", self.home / "h", "--store", self.store("")
        self.assertIn("disk-2.img: cannot be used: no such file", self.complaint(*up, "--overwrite", disk, code=2))
        self.assertIn("add --overwrite", self.complaint(*up, "--guests", "1", code=2))
        self.assertIn("2 guests would share", self.complaint(*up[:-1], f"file:{disk}", code=2))
        self.assertFalse((self.home / "h").exists())
        self.xblk(*up, "--guests", "1", "--overwrite", disk)
        self.xblk("emu", "down", "--dir", self.home / "h")

    def test_what_no_host_can_use(self):
        for store, message in {f"file:1GiB:{self.home}/none/disk": "cannot create a file in",
                               f"file:{self.home}/absent": "no such file; write file:SIZE:",
                               f"file:1GiB:{self.home}": "is a directory"}.items():
            profile = self.profile(store=store)
            self.assertIn(message, self.xblk("plan", profile).stdout)
            self.assertIn(message, self.complaint("run", profile, "--out", self.out, code=5))
        for store, message in {f"file:1GiB:{self.home}/d": "tiny.yaml:3:8: 2 guests would share",
                               "file:1GiB:disk": "tiny.yaml:3:8: store 'file:1GiB:disk'",
                               "throttled:fast:1ms:ram:1GiB": "tiny.yaml:3:8: store 'throttled:fast"}.items():
            self.assertIn(message, self.complaint("plan", self.profile(store=store, guests=2), code=2))


class Usage(Case):
    def test_profile_errors_have_line_and_column(self):
        bad = self.home / "bad.yaml"
        bad.write_text("name: x\nstore: null:1GiB\nmatrix:\n  quues: [1]\n")
        for command in "plan", "run":
            self.assertIn("bad.yaml:4:3: unknown key 'quues' (did you mean 'queues'?)",
                          self.complaint(command, bad, code=2))
        self.complaint("plan", self.home / "absent.yaml", code=2)

    def test_plan_has_no_side_effect(self):
        before = sorted(self.home.rglob("*"))
        text = self.xblk("plan", SOURCE / "profiles/quick.yaml").stdout
        document = json.loads(self.xblk("plan", SOURCE / "profiles/quick.yaml", "--json").stdout)
        self.assertEqual(sorted(self.home.rglob("*")), before)
        self.assertEqual(len(document["points"]), 4)
        for point in document["points"]:
            self.assertEqual(len(point["fio_commands"]), 2)
            for line in point["fio_commands"]:
                self.assertIn(line, text)
            for write in point["xenstore_writes"]:
                self.assertIn(f"{write['path']} = {write['value']}\n", text)

    def test_every_command_teaches(self):
        for command in "doctor", "plan", "run", "report", "compare", "restore", "emu", "vbd":
            self.assertIn("Example", self.xblk(command, "--help").stdout, command)

    def test_manual_and_completion_know_every_option(self):
        manual = (SOURCE / "agent/cli/xblk.1").read_text().replace("\\-", "-")
        completion = (SOURCE / "agent/cli/xblk.bash").read_text()
        for command in "doctor", "plan", "run", "report", "compare", "restore", "emu", "vbd":
            texts = [self.xblk(command, "--help").stdout]
            listed = re.search(r"Subcommands:\n(.*?)\n\n", texts[0], re.S)
            verbs = re.findall(r"^  (\w+) ", listed.group(1), re.M) if listed else []
            texts += [self.xblk(command, verb, "--help").stdout for verb in verbs]
            options = {option for text in texts for option in re.findall(r"^ +(?:-\w,)?(--[a-z-]+)", text, re.M)}
            line = re.search(rf"^      {command}\) words=\"(.*)\" ;;", completion, re.M).group(1).split()
            self.assertEqual(options | set(verbs), set(line), command)
            for option in options - {"--help"}:
                self.assertIn(option, manual, f"{command} {option}")

    def test_completion_knows_the_parameters(self):
        script = (f'source {SOURCE}/agent/cli/xblk.bash; COMP_WORDS=(xblk compare a --by final-c); COMP_CWORD=4; '
                  'compopt() { :; }; _xblk; echo "${COMPREPLY[@]}"')
        path = f"{BIN}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "-c", script], env={**self.environment, "PATH": path}, capture_output=True, text=True)
        self.assertEqual(done.stdout, "final-check=\n", done.stderr)

    def test_policies_are_those_of_the_drivers(self):
        listed = json.loads(self.xblk("plan", "--list-policies", "--json").stdout)
        text = self.xblk("plan", "--list-policies").stdout
        table = (SOURCE / "drivers/blkif/policy.cpp").read_text()
        names = {parameter["name"] for parameter in listed["parameters"]}
        own = set(re.findall(r'^    (?:words|boolean|integer)\("([a-z-]+)"', table, re.M))
        self.assertGreater(len(own), 20)
        self.assertEqual(own - names, set())
        for name in names:
            self.assertIn(f"{name}  (", text)
        self.assertEqual(listed["presets"]["none"], {})
        self.assertEqual(listed["presets"]["seed-2011"]["back.final-check"], "response")
        schema = json.loads(self.xblk("plan", "--schema").stdout)
        self.assertEqual(set(schema["definitions"]["selection"]["properties"]), names)

    def test_usage_errors(self):
        for arguments in ([], ["frobnicate"], ["run"], ["report", "/nonexistent"], ["compare", "/nonexistent"]):
            self.xblk(*arguments, code=2)

    def test_doctor(self):
        checks = {c["check"]: c["grade"] for c in json.loads(self.xblk("doctor", "--json").stdout)["checks"]}
        for name in "fio", "engine", "engine in fio", "emulated host", "state directory":
            self.assertEqual(checks[name], "ok", name)
        nowhere = {**self.environment, "PATH": "/nonexistent"}
        self.assertIn("apt-get install fio", self.xblk("doctor", code=5, environment=nowhere).stdout)
        self.assert_nothing_left()


if __name__ == "__main__":
    main()
