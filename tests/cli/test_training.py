"""What a run prints and measures, how it stops, and that a stopped run continues to the same state."""

import math
import shutil
import signal
import subprocess
import unittest

from program import ON_NVME, PROGRAM, TINY, ProgramTest

STEP_KEYS = {
    "event", "step", "loss", "grad_norm", "learning_rate", "step_seconds", "tokens_per_second", "skipped",
    "loss_scale", "device_peak_bytes", "host_peak_bytes", "nvme_read_bytes", "nvme_written_bytes", "all_gather_bytes",
    "reduce_scatter_bytes", "all_reduce_bytes", "stall_seconds",
}
STALL_KEYS = {"upload", "download", "nvme", "communicate", "optimizer"}
SUMMARY_KEYS = {"event", "steps", "state_hash", "parameters", "peak_rss_bytes", "planned", "peak"}


class Report(ProgramTest):
    def test_metrics_have_the_documented_keys(self):
        self.succeeds("train", *TINY, *ON_NVME, "--steps", 4, "--eval-data", "data.txt", "--eval-batches", 2,
                      "--eval-every", 2, "--metrics", "m.jsonl")
        lines = self.metrics("m.jsonl")
        steps, summary = lines[:-1], lines[-1]
        self.assertEqual([line["step"] for line in steps], [1, 2, 3, 4])
        for line in steps:
            self.assertEqual(set(line) - {"eval_loss"}, STEP_KEYS)
            self.assertEqual(set(line["stall_seconds"]), STALL_KEYS)
        self.assertEqual(["eval_loss" in line for line in steps], [False, True, False, True])
        self.assertLessEqual(SUMMARY_KEYS, set(summary))
        self.assertEqual(summary["steps"], 4)
        self.assertEqual(set(summary["planned"]), set(summary["peak"]))
        # Adam reads and writes 12 bytes of state an element; a step moves whole blocks.
        for line in steps:
            self.assertGreaterEqual(line["nvme_read_bytes"], 12 * summary["parameters"])
            self.assertLess(line["nvme_read_bytes"], 12 * summary["parameters"] * 1.02)

    def test_first_loss_is_that_of_a_model_that_knows_nothing(self):
        self.succeeds("train", *TINY, "--steps", 1, "--metrics", "m.jsonl")
        self.assertAlmostEqual(self.metrics("m.jsonl")[0]["loss"], math.log(256), delta=0.3)

    def test_results_on_stdout_and_progress_on_stderr(self):
        result = self.succeeds("train", *TINY, "--steps", 3, "--eval-data", "data.txt", "--eval-batches", 1)
        for text in ("training loss", "held-out loss", "unigram entropy", "device memory", "state_hash"):
            self.assertIn(text, result.stdout)
        for text in ("parameters", "step 1/3", "step 3/3", "tok/s", "limit"):
            self.assertIn(text, result.stderr)
        self.assertNotIn("\r", result.stderr)

    def test_quiet_leaves_only_the_result(self):
        result = self.succeeds("train", *TINY, "--steps", 1, "--quiet")
        self.assertEqual(result.stderr, "")
        self.assertIn("state_hash", result.stdout)

    def test_a_refusal_shows_the_ledger_and_ends_with_what_fits(self):
        result = self.refused("train", *TINY, "--device-memory", "64MiB", status=3, says=["optimizer", "limit"])
        self.assertRegex(result.stderr.strip().splitlines()[-1], "^It fits with --")

    def test_learning_rate_of_zero_changes_no_weight(self):
        self.succeeds("train", *TINY, "--steps", 2, "--learning-rate", 0, "--schedule", "constant", "--metrics", "m.jsonl")
        self.assertEqual([line["learning_rate"] for line in self.metrics("m.jsonl")[:2]], [0, 0])

    def test_metrics_never_replace_anything_but_metrics(self):
        text = (self.folder / "data.txt").read_text()
        self.refused("train", *TINY, "--metrics", "data.txt", says=["data.txt", "lies in the data"])
        self.assertEqual((self.folder / "data.txt").read_text(), text)
        self.write("notes.txt", "mine\n")
        self.refused("train", *TINY, "--metrics", "notes.txt", says=["notes.txt", "does not hold metrics"])
        self.assertEqual((self.folder / "notes.txt").read_text(), "mine\n")

    def test_a_torn_last_line_of_metrics_is_dropped_when_they_are_continued(self):
        self.succeeds("train", *TINY, *ON_NVME, "--steps", 1, "--metrics", "m.jsonl", "--quiet")
        with open(self.folder / "m.jsonl", "a") as file:
            file.write('{"event":"step","st')
        self.succeeds("train", *TINY, *ON_NVME, "--steps", 2, "--metrics", "m.jsonl", "--quiet", "--resume", "swap")
        self.assertEqual([line["event"] for line in self.metrics("m.jsonl")], ["step", "summary", "step", "summary"])

    def test_results_that_cannot_be_written_are_an_error(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "plan", *TINY], cwd=self.folder, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("standard output", result.stderr)

    def test_a_device_larger_than_the_machine_is_refused(self):
        self.refused("train", *TINY, "--device-memory", "200TiB", status=3, says=["is taken at the start", "It fits with"])

    def test_what_grows_is_not_put_among_the_data(self):
        (self.folder / "text").mkdir()
        shutil.move(self.folder / "data.txt", self.folder / "text" / "data.txt")
        (self.folder / "text" / "swap").mkdir()
        flags = ["train", *TINY[:-1], "text"]
        self.refused(*flags, *ON_NVME[:-1], "text/swap", says=["--swap-path", "lies in the data"])
        self.refused(*flags, "--metrics", "text/m.jsonl", says=["--metrics", "lies in the data"])

    def test_unwritable_metrics_file_is_refused_before_the_run(self):
        self.refused("train", *TINY, *ON_NVME, "--metrics", "no/where.jsonl", says=["no/where.jsonl"])
        self.assertEqual(list((self.folder / "swap").iterdir()), [])


class Stop(ProgramTest):
    STEPS = 24

    def flags(self, *extra):
        return ["train", *TINY, *ON_NVME, "--steps", self.STEPS, *extra]

    def uninterrupted_hash(self):
        (self.folder / "other").mkdir()
        self.succeeds("train", *TINY, "--offload-optimizer", "nvme", "--swap-path", "other", "--steps", self.STEPS,
                      "--metrics", "whole.jsonl", "--quiet")
        return self.summary("whole.jsonl")["state_hash"]

    def stop_with(self, number, status):
        process = self.start(*self.flags("--metrics", "m.jsonl"))
        self.wait_for_step(process, "m.jsonl", 3)
        process.send_signal(number)
        output, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, status, errors)
        return output

    def resume_reaches(self, expected):
        self.succeeds(*self.flags("--resume", "swap", "--metrics", "m.jsonl"))
        lines = self.metrics("m.jsonl")
        steps = [line["step"] for line in lines if line["event"] == "step"]
        self.assertEqual(sorted(set(steps)), list(range(1, self.STEPS + 1)))
        self.assertEqual(lines[-1]["state_hash"], expected)

    def test_sigusr1_stops_after_the_step_and_resume_equals_an_uninterrupted_run(self):
        expected = self.uninterrupted_hash()
        output = self.stop_with(signal.SIGUSR1, 130)
        self.assertIn("stopped after step", output)
        self.assertIn("--resume swap", output)
        self.resume_reaches(expected)
        inspected = self.succeeds("inspect", "swap", "--hash")
        self.assertIn(expected, inspected.stdout)

    def test_ctrl_c_stops_after_the_step(self):
        self.assertIn("stopped after step", self.stop_with(signal.SIGINT, 130))

    def test_sigterm_stops_after_the_step_and_resume_equals_an_uninterrupted_run(self):
        expected = self.uninterrupted_hash()
        self.assertIn("stopped after step", self.stop_with(signal.SIGTERM, 143))
        self.resume_reaches(expected)

    def test_resume_of_a_finished_run_has_nothing_left_to_do(self):
        self.succeeds(*self.flags()[:-1], 2, "--metrics", "m.jsonl")
        again = self.succeeds(*self.flags()[:-1], 2, "--resume", "swap")
        self.assertIn(self.summary("m.jsonl")["state_hash"], again.stdout)


if __name__ == "__main__":
    unittest.main()
