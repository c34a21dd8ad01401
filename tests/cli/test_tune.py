"""`headrace tune`: what it prints and writes, its limits, and what is left behind."""

import json
import os
import re
import signal
import time
import unittest

from program import TINY, ProgramTest, mounted

IS_ROW = re.compile(r" +\d+[KM]iB +\d+ +(\d+|auto) +(\d+[KM]iB|auto) (io_uring|threads) ")
TUNE = ["tune", "--swap-path", "swap"]


class Tune(ProgramTest):
    def left(self):
        return list((self.folder / "swap").iterdir())

    def wait_for_trial(self, process):
        """Reads the program's lines until one of a trial has come."""
        for line in process.stdout:
            if IS_ROW.match(line):
                return
        self.fail(f"no trial: {process.communicate()}")

    def test_prints_trials_and_the_best_writes_a_report_and_a_configuration_that_train_takes(self):
        start = time.monotonic()
        result = self.succeeds(*TUNE, "--seconds", 4, "--host-memory", "16MiB", "--parameters", "1e9", "--endurance-tbw", 600,
                               "--to", "swap.json", "--json", "report.json")
        self.assertLess(time.monotonic() - start, 30)  # 4 s, on a machine that may be busy
        self.assertEqual(self.left(), [])
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["benchmark"], "tune")
        rows = [line for line in result.stdout.splitlines() if IS_ROW.match(line)]
        self.assertEqual(len(rows), len({json.dumps(trial["point"]) for trial in report["trials"]}))
        self.assertRegex(result.stdout, r"(?m)^\d+ s left: ")
        self.assertIn(report["best"], [trial["point"] for trial in report["trials"] if "failure" not in trial])
        for trial in report["trials"]:
            self.assertLessEqual(trial["point"]["swap_block"] * trial["point"]["swap_buffers"], 16 << 20)
        self.assertEqual(report["predicted"]["parameters"], 10**9)
        self.assertEqual(report["predicted"]["written_bytes_a_step"], 12 * 10**9)
        self.assertIn("600 TB last", result.stdout)
        printed = self.succeeds("train", *TINY, "--config", "swap.json", "--print-config").stdout
        native = json.loads(printed)["headrace"]
        for key, value in report["best"].items():
            if value == "auto":
                self.assertIn(native.get(key), (None, "auto"))
            else:
                self.assertEqual(native[key], value)
        self.succeeds("train", *TINY, "--config", "swap.json", "--steps", 2, "--quiet")

    def test_end_says_how_much_faster_than_the_defaults_the_best_is(self):
        result = self.succeeds(*TUNE, "--seconds", 5, "--parameters", "1e6", "--json", "report.json")
        report = json.loads((self.folder / "report.json").read_text())
        defaults = report["trials"][0]["point"]
        self.assertEqual((defaults["swap_block"], defaults["swap_buffers"]), (3 << 20, 8))
        self.assertEqual((defaults["io_depth"], defaults["io_request"]), ("auto", "auto"))  # as a run without settings
        if report["best"] == defaults:
            self.assertIn("these are the defaults", result.stdout)
            self.assertIsNone(report["over_defaults"])
        else:
            self.assertIn(f"{report['over_defaults']['ratio']:.2f} x the defaults", result.stdout)
        limited = self.succeeds(*TUNE, "--seconds", 2, "--host-memory", "16MiB").stdout
        self.assertRegex(limited, "not compared with the defaults .*--host-memory is 16")

    def test_interrupt_prints_the_best_so_far_and_leaves_nothing(self):
        for number in (signal.SIGINT, signal.SIGTERM):  # of Slurm, timeout(1)
            with self.subTest(number):
                process = self.start(*TUNE, "--seconds", 20, "--to", "swap.json")
                self.wait_for_trial(process)
                process.send_signal(number)
                rest, errors = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, errors)
                self.assertIn("best: ", rest)
                self.assertIn("stopped", rest)
                self.assertEqual(self.left(), [])
                self.assertIn("swap_block", (self.folder / "swap.json").read_text())

    def test_words_and_report_have_the_same_figures(self):
        result = self.succeeds(*TUNE, "--seconds", 6, "--threads", 1, "--to", "swap.json", "--json", "report.json")
        report = json.loads((self.folder / "report.json").read_text())
        self.assertIsNotNone(report["ceiling"], result.stdout)
        share = report["ceiling"]["share_of_closed_form"]
        self.assertEqual(report["results"][0]["ratio"], share)
        self.assertIn(f"  {share * 100:.0f}% of what its own reads and writes allow", result.stdout)
        self.assertIn(f"a step takes {report['ceiling']['step_seconds']:.3f} s", result.stdout)
        for name in report["untried"]:
            self.assertIn(f"one {name}", result.stdout)
        self.assertEqual(json.loads((self.folder / "swap.json").read_text())["headrace"]["threads"], 1)

    def test_path_in_memory_is_told(self):
        with mounted(["-t", "tmpfs", "-o", "size=64m", "tmpfs"], self.folder / "swap"):
            result = self.succeeds(*TUNE, "--seconds", 3)
            self.assertIn("swap is on a file system in memory", result.stdout)
            self.assertNotIn("errno", result.stdout)
            self.assertEqual(self.left(), [])

    def test_path_that_a_store_cannot_hold_is_refused(self):
        path = os.fsdecode(b"caf\xe9")
        (self.folder / path).mkdir()
        self.refused("tune", "--swap-path", path, says=["--swap-path", "not UTF-8"])

    def test_files_of_a_killed_search_are_removed_by_the_next(self):
        process = self.start(*TUNE, "--seconds", 20)
        self.wait_for_trial(process)
        self.refused(*TUNE, says=["another `headrace tune`", "--swap-path swap"])
        process.kill()
        process.wait()
        self.assertNotEqual(self.left(), [])
        self.succeeds(*TUNE, "--seconds", 2)
        self.assertEqual(self.left(), [])

    def test_drive_without_space_is_refused_and_left_empty(self):
        with mounted(["-t", "tmpfs", "-o", "size=4m", "tmpfs"], self.folder / "swap"):
            result = self.run_program(*TUNE, "--seconds", 2, "--to", "swap.json")
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("too little", result.stderr)
            self.assertEqual(self.left(), [])
        self.assertFalse((self.folder / "swap.json").exists())

    def test_states_of_the_run_are_those_of_the_trials_and_of_the_configuration(self):
        self.succeeds(*TUNE, "--seconds", 2, "--moments", "int8", "--master-dtype", "bf16", "--parameters", "1e6", "--to", "swap.json",
                      "--json", "report.json")
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["states"], "adamw or adam, bf16 master, int8 moments")
        self.assertEqual(report["predicted"]["written_bytes_a_step"], 2 * 10**6 + 2 * (10**6 + 4 * 10**6 // 64))
        printed = json.loads(self.succeeds("train", *TINY, "--config", "swap.json", "--print-config").stdout)["headrace"]
        self.assertEqual((printed["moments"], printed["master_dtype"]), ("int8", "bf16"))

    def test_wrong_usage_is_refused(self):
        self.refused("tune", says=["--swap-path"])
        self.refused("tune", "--swap-path", "nowhere", says=["nowhere", "does not exist"])
        self.refused("tune", "--swap-path", "data.txt", says=["not a folder"])
        self.refused("tune", "--swap-path", "", says=["--swap-path", "empty"])
        self.refused(*TUNE, "--swap-path", "./swap", says=["same folder"])
        (self.folder / "link").symlink_to("gone")
        self.refused("tune", "--swap-path", "link", says=["dangling link", "points to"])
        for name in ("no/such/folder.json", "swap", "data.txt/x"):
            self.refused(*TUNE, "--to", name, says=[f"--to {name} cannot be written", "Give a file"])
        self.refused(*TUNE, "--to", "x.json", "--json", "./x.json", says=["--json and --to are both"])
        for flags, word in (
                (["--seconds", 0], "--seconds"), (["--seconds", "nan"], "--seconds"), (["--seconds", "soon"], "--seconds"),
                (["--host-memory", "1KiB"], "--host-memory"), (["--parameters", 0], "--parameters"),
                (["--parameters", "1.5"], "--parameters"), (["--parameters", -1], "--parameters"),
                (["--moments", "int4"], "int8"), (["--master-dtype", "none"], "--master-dtype"),
                (["--optimizer", "adm"], "adamw"), (["--momentum", 0.9], "--optimizer sgd"),
                (["--optimizer", "sgd", "--momentum", 2], "--momentum"),
                (["--optimizer", "lion", "--amsgrad"], "--amsgrad"), (["--optimizer", "sgd", "--moments", "int8"], "--moments"),
                (["--durability", "perhaps"], "--durability"), (["--threads", 0], "--threads"),
                (["--endurance-tbw", "-3"], "--endurance-tbw"), (["--json", "no/such/folder.json"], "--json"),
                (["--to", "swap"], "--to"), (["--second", 3], "--seconds")):
            with self.subTest(flags=flags):
                self.refused(*TUNE, *flags, says=[word])
        self.refused(*TUNE, "--host-memory", "100TiB", status=3, says=["--host-memory"])
        self.assertEqual(self.left(), [])

    def test_help_has_an_example(self):
        self.assertIn("headrace tune --swap-path", self.succeeds("tune", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
