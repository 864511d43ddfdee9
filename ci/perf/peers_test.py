#!/usr/bin/env python3
"""ci/perf/peers as a test: it runs, its JSON is whole, its verdicts follow the figures. No speed is asserted.

usage: peers_test.py BUILD_DIR [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import verdicts

PEERS = pathlib.Path(__file__).resolve().parent / "peers"
BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else str(PEERS.parent.parent.parent / "build" / "release")
SHORT = ["--rounds", "1", "--seconds", "0.2", "--ramp", "0.1", "--idle-devices", "3", "--idle-seconds", "0.5"]
JUDGED = (0, 1, 3)


def run_peers(*arguments, build=BUILD, **options):
    return subprocess.run([PEERS, "--build", build, *arguments], capture_output=True, text=True, **options)


def a_round(**iops):
    """All that the ratios need; what is not named does 1,000 IOPS."""
    points = {point for numerator, others, _ in verdicts.RATIOS.values() for point in (numerator, *others)}
    figures = {point: {"iops": 1000.0} for point in points}
    figures.update({name.replace("__", "/"): {"iops": value} for name, value in iops.items()})
    return figures


class Verdicts(unittest.TestCase):
    def judge(self, *rounds):
        return verdicts.judge(rounds, quiet_nbd_iops=20000)

    def test_a_ratio_is_taken_within_a_round_against_the_fastest(self):
        ratio = self.judge(a_round(qd64__xblk=8000, qd64__nbdkit=500),
                           a_round(qd64__xblk=30000, qd64__nbdkit=3000),
                           a_round(qd64__xblk=9000, qd64__qsd_nbd=900))["qd64_vs_best_nbd"]
        self.assertEqual((ratio["min"], ratio["median"], ratio["max"], ratio["n"]), (8, 9, 10, 3))
        self.assertEqual(ratio["verdict"], "pass")

    def test_the_bar_itself_passes_and_less_is_missed(self):
        self.assertEqual(self.judge(a_round(qd64__xblk=600))["qd64_vs_vhost_user"]["verdict"], "pass")
        self.assertEqual(self.judge(a_round(qd64__xblk=599))["qd64_vs_vhost_user"]["verdict"], "missed")

    def test_a_busy_neighbour_makes_polling_against_nbd_inconclusive_and_nothing_else(self):
        busy = dict(qd1__nbdkit=58000, qd1__qsd_nbd=30000, qd1__xblk_polling=500000, qd1__xblk_event=30000)
        judged = self.judge(a_round(**busy))
        self.assertEqual(judged["qd1_polling_vs_best_nbd"]["verdict"], "inconclusive")
        self.assertIn("58000 IOPS", judged["qd1_polling_vs_best_nbd"]["why"])
        self.assertEqual(judged["qd1_event_vs_best_nbd"]["verdict"], "missed")

    def test_with_quiet_nbd_a_missed_bar_is_missed(self):
        judged = self.judge(a_round(qd1__nbdkit=21000, qd1__xblk_polling=300000))
        self.assertEqual(judged["qd1_polling_vs_best_nbd"]["verdict"], "missed")

    def test_fast_enough_is_a_pass_whatever_the_neighbours(self):
        judged = self.judge(a_round(qd1__nbdkit=58000, qd1__xblk_polling=900000))
        self.assertEqual(judged["qd1_polling_vs_best_nbd"]["verdict"], "pass")

    def test_what_lacks_a_peer_is_not_measured(self):
        figures = a_round()
        del figures["qd64/nbdkit"]
        judged = self.judge(figures)
        self.assertEqual(judged["qd64_vs_best_nbd"]["verdict"], "not measured")
        self.assertIn("median", judged["qd64_vs_vhost_user"])

    def test_spdk_is_reported_without_a_bar(self):
        figures = a_round(qd64__spdk=2000, qd1__spdk=500)
        judged = verdicts.judge([figures], 20000, with_spdk=True)
        self.assertEqual(judged["qd64_vs_spdk"]["median"], 0.5)
        self.assertNotIn("verdict", judged["qd64_vs_spdk"])

    def test_the_worst_verdict_counts(self):
        self.assertEqual(verdicts.worst(["pass", "inconclusive", "missed"]), "missed")
        self.assertEqual(verdicts.worst(["pass", "not measured", "inconclusive"]), "inconclusive")
        self.assertEqual(verdicts.worst(["pass", "pass"]), "pass")


class Smoke(unittest.TestCase):
    def test_a_short_run_measures_every_point_and_its_json_is_whole(self):
        done = run_peers(*SHORT, "--seed", "7", "--json", "-", "--verbose")
        self.assertIn(done.returncode, JUDGED, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["missing"], {}, done.stderr)
        self.assertEqual(result["seed"], 7)
        self.assertEqual(set(result["ratios"]), set(verdicts.RATIOS))
        for name, ratio in result["ratios"].items():
            self.assertGreater(ratio["median"], 0, name)
            self.assertEqual(ratio["n"], 1)
            self.assertIn(ratio["verdict"], ("pass", "missed", "inconclusive"))
        for point in {p for numerator, others, _ in verdicts.RATIOS.values() for p in (numerator, *others)}:
            self.assertGreater(result["points"][point]["iops"]["median"], 0, point)
        for point in ("qd64/xblk", "qd1/xblk_polling", "qd1/xblk_event"):
            self.assertEqual(result["mechanism"][point]["unmaps_per_io"], 0, point)
        for fact in ("cpu", "cpus", "kernel", "fio", "load_average", "load_average_at_end", "busy_before_rounds"):
            self.assertIn(fact, result["host"])
        self.assertEqual(result["idle_devices"]["devices"], 3)
        self.assertGreaterEqual(result["idle_devices"]["devices_percent"], 0)
        expected = {"pass": 0, "missed": 1}.get(result["verdict"], 3)
        self.assertEqual(done.returncode, expected)
        self.assertIn("--ioengine=nbd", done.stderr)  # --verbose: the exact commands

    def test_a_missing_program_costs_its_peer_only(self):
        with tempfile.TemporaryDirectory() as programs:
            for name in ("fio", "xenstore-write", "xenstore-read", "sh", "python3", "env"):
                os.symlink(shutil.which(name), pathlib.Path(programs) / name)
            done = run_peers(*SHORT[:6], "--idle-devices", "0", "--json", "-", env=dict(os.environ, PATH=programs))
        self.assertIn(done.returncode, (1, 3), done.stderr)
        self.assertIn("peers: left out: nbdkit: nbdkit is not installed; run ci/setup\n", done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(len(result["missing"]), 3)
        self.assertEqual(result["ratios"]["qd64_vs_best_nbd"]["verdict"], "not measured")
        self.assertGreater(result["ratios"]["qd64_vs_fio_null"]["median"], 0)

    def test_the_table_names_every_ratio(self):
        done = run_peers("--rounds", "1", "--seconds", "0.1", "--ramp", "0", "--idle-devices", "0")
        self.assertIn(done.returncode, JUDGED, done.stderr)
        for name in verdicts.RATIOS:
            self.assertRegex(done.stdout, rf"{name} +\d")

    def test_says_what_it_cannot_do(self):
        unbuilt = run_peers(*SHORT, build="/nonexistent")
        self.assertEqual(unbuilt.returncode, 5)
        self.assertRegex(unbuilt.stderr, r"peers: /nonexistent/bin/xblk is not built; run cmake")
        self.assertEqual(run_peers("--rounds", "0").returncode, 2)


if __name__ == "__main__":
    unittest.main()
