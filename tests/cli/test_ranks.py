"""Jobs of several ranks under mpirun: one error, one summary, one stop."""

import os
import re
import shutil
import signal
import unittest

import program
from program import ON_NVME, TINY, ProgramTest

MPIRUN = shutil.which("mpirun")


def ranks(count):
    return [MPIRUN, "-n", str(count), "--oversubscribe"]


def own_messages(errors):
    return re.findall(r"^headrace: ", errors, re.MULTILINE)


@unittest.skipIf(MPIRUN is None, "mpirun is not installed")
class Ranks(ProgramTest):
    def test_same_global_batch_gives_the_same_losses(self):
        losses = []
        for count in (1, 2):
            flags = ["--batch-size", 2 // count, "--dtype", "fp32", "--steps", 3, "--metrics", f"m{count}.jsonl"]
            self.succeeds("train", *TINY[:2], *TINY[4:], *flags, "--quiet", prefix=ranks(count) if count > 1 else ())
            losses.append([line["loss"] for line in self.metrics(f"m{count}.jsonl") if line["event"] == "step"])
        for one, two in zip(*losses, strict=True):
            self.assertAlmostEqual(one, two, delta=1e-5 * one)

    def test_wrong_usage_is_said_once_and_ends_every_rank(self):
        result = self.run_program("train", *TINY, "--stage", 7, prefix=ranks(3))
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(len(own_messages(result.stderr)), 1, result.stderr)

    def test_limit_is_refused_once_with_status_3(self):
        result = self.run_program("train", *TINY, "--device-memory", "10MiB", prefix=ranks(2))
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(len(own_messages(result.stderr)), 1, result.stderr)

    def test_batch_error_says_where_the_world_size_came_from(self):
        result = self.run_program("train", *TINY[:2], "--data", "data.txt", "--global-batch-size", 3, prefix=ranks(2))
        self.assertEqual(result.returncode, 2)
        self.assertIn("world size of 2 (mpirun", result.stderr)

    # FIELD-CASES L1.
    def test_ranks_with_other_options_are_refused_and_do_not_hang(self):
        second = [":", "-n", "1", program.PROGRAM, "train", *TINY, "--seed", "9"]
        result = self.run_program("train", *TINY, "--seed", "8", *second, prefix=ranks(1), timeout=60)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("other options", result.stderr)

    def test_sigusr1_to_mpirun_stops_every_rank_and_resume_continues(self):
        flags = ["train", *TINY, *ON_NVME, "--stage", "2", "--steps", "30"]
        job = self.start(*flags, "--metrics", "m.jsonl", prefix=ranks(2))
        self.wait_for_step(job, "m.jsonl", 2)
        os.kill(job.pid, signal.SIGUSR1)
        output, errors = job.communicate(timeout=120)
        self.assertEqual(job.returncode, 130, errors)
        self.assertIn("stopped after step", output)
        resumed = self.succeeds(*flags, "--resume", "swap", "--metrics", "m.jsonl", prefix=ranks(2))
        (self.folder / "other").mkdir()
        whole = self.succeeds("train", *TINY, "--offload-optimizer", "nvme", "--swap-path", "other", "--stage", 2,
                              "--steps", 30, prefix=ranks(2))
        expected = re.search(r"state_hash +(\w+)", whole.stdout)[1]
        self.assertIn(expected, resumed.stdout)


if __name__ == "__main__":
    unittest.main()
