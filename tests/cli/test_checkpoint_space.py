"""Checkpoints that the disk does not hold: said before the first byte, with the figures and what to do."""

import json
import shutil
import unittest

from program import NANO, ProgramTest, mounted
from test_ranks import MPIRUN, ranks

MIB = 1 << 20  # a checkpoint of gpt2-nano takes 1.4 of them
SAVING = ["train", *NANO, "--quiet", "--checkpoint-dir", "disk/checkpoints"]


class SpaceForCheckpoints(ProgramTest):
    def setUp(self):
        super().setUp()
        self.disk = self.folder / "disk"
        self.disk.mkdir()

    def disk_of(self, size):
        return mounted(["-t", "tmpfs", "-o", f"size={size}", "tmpfs"], self.disk)

    def saved(self):
        return sorted(path.name for path in (self.disk / "checkpoints").glob("step-*"))

    def test_plan_says_what_a_save_takes(self):
        for states in ([], ["--moments", "int8"], ["--optimizer", "lion", "--master-dtype", "bf16"]):
            for rank_count in (1, 2) if MPIRUN else (1,):
                with self.subTest(states=states, ranks=rank_count):
                    flags = [*NANO, "--stage", 1, "--checkpoint-dir", f"saved-{rank_count}-{len(states)}", *states]
                    plan = self.succeeds("plan", *flags, "--world-size", rank_count, "--json")
                    prefix = ranks(rank_count) if rank_count > 1 else ()
                    self.succeeds("train", *flags, "--steps", 1, "--quiet", prefix=prefix)
                    files = (self.folder / flags[-1 - len(states)]).glob("step-*/*")
                    taken = sum(path.stat().st_size for path in files)
                    planned = json.loads(plan.stdout)["checkpoint_bytes"]
                    self.assertLessEqual(taken, planned)
                    self.assertLess(planned - taken, 0.1 * taken)

    def test_a_disk_too_small_for_one_is_refused_at_the_start(self):
        with self.disk_of("1m"):
            refused = self.refused(*SAVING, "--steps", 1, status=3, says=["a checkpoint takes 1.4", "1.00 MiB free", "larger disk"])
            self.assertNotIn("initialising", refused.stderr)
            self.assertFalse((self.disk / "checkpoints").exists())
            planned = self.run_program("plan", *SAVING[1:-3], "--checkpoint-dir", "disk/checkpoints")
            self.assertEqual(3, planned.returncode, planned.stderr)
            self.assertIn("does not fit: a checkpoint takes", planned.stdout.splitlines()[-1])

    def test_more_than_the_disk_keeps_is_refused_with_a_number_that_runs(self):
        with self.disk_of("5m"):
            every = [*SAVING, "--steps", 4, "--save-every", 1]
            refused = self.refused(*every, "--keep-last", 3, status=3, says=["for 4 of them", "--keep-last 2"])
            self.assertFalse((self.disk / "checkpoints").exists(), refused.stderr)
            self.succeeds(*every, "--keep-last", 2)
            self.assertEqual(["step-00000003", "step-00000004"], self.saved())
            self.succeeds(*SAVING, "--steps", 6, "--save-every", 1, "--keep-last", 2, "--resume", "latest")
            self.assertEqual(["step-00000005", "step-00000006"], self.saved())

    # Whoever keeps all may move them away while the run goes on.
    def test_a_disk_that_fills_up_is_warned_of_and_a_save_that_does_not_fit_writes_nothing(self):
        with self.disk_of("4m"):
            ended = self.run_program(*SAVING, "--steps", 3, "--save-every", 1)
            self.assertEqual(1, ended.returncode, ended.stderr)
            self.assertIn("enough for 2 of the 3 checkpoints", ended.stderr)
            self.assertRegex(ended.stderr, r"step 3 was not saved: a checkpoint takes 1\.\d+ MiB .* are missing\. Nothing was written\.")
            self.assertIn("--keep-last N", ended.stderr)
            self.assertEqual(["step-00000001", "step-00000002"], self.saved())
            self.succeeds("inspect", "disk/checkpoints/step-00000002", "--verify")

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_ranks_of_a_host_are_counted_together(self):
        with self.disk_of("5m"):
            self.succeeds(*SAVING, "--steps", 1, "--stage", 1, prefix=ranks(2))
            (self.disk / "other").write_bytes(bytes(self.free() - MIB))  # more than each rank writes, less than both
            self.refused(*SAVING, "--steps", 2, "--stage", 1, status=3, says=["a checkpoint takes"], prefix=ranks(2))

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_a_disk_that_others_fill_during_the_run_is_told_by_all_ranks(self):
        with self.disk_of("8m"):
            process = self.start(*SAVING, "--steps", 400, "--save-every", 399, "--stage", 1, "--metrics", "metrics.jsonl", prefix=ranks(2))
            self.wait_for_step(process, "metrics.jsonl", 1)
            (self.disk / "other").write_bytes(bytes(self.free() - MIB))
            _, said = process.communicate(timeout=120)
            self.assertNotEqual(0, process.returncode)
            self.assertRegex(said, r"step 399 was not saved: a checkpoint takes 1\.\d+ MiB for 2 ranks")
            self.assertEqual([], self.saved())

    def free(self):
        return shutil.disk_usage(self.disk).free


if __name__ == "__main__":
    unittest.main()
