"""A save that is killed, fails or runs out of space: the newest complete checkpoint stays, and training goes on."""
import unittest

import headrace_job
import job_test

RESIDENT = {"offload_optimizer": "none", "swap_path": None, "overwrite_swap": None, "stage": 0}
EIO, ENOSPC = 5, 28


@unittest.skipIf(job_test.with_system_calls() is None, "nothing can be preloaded into this build")
class Saves(job_test.JobTest):
    def setUp(self):
        super().setUp()
        self.runs = 0
        self.more = {}

    def train_with(self, ranks=1, **variables):
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        self.checkpoints, self.calls = folder / "checkpoints", folder / "calls"
        prefix = job_test.with_system_calls(calls=self.calls, **variables)
        options = self.options(steps=2, save_every=1, io="threads", checkpoint_dir=self.checkpoints, **RESIDENT, **self.more)
        return headrace_job.train(self.program, options, folder, ranks, prefix=prefix)

    def newest(self):
        """The step of the newest checkpoint, every byte of which is good; 0 where there is none."""
        status, listed = headrace_job.inspect_json(self.program, self.checkpoints)
        if not listed.get("checkpoints"):
            return 0
        for one in listed["checkpoints"]:
            status, report = headrace_job.inspect_json(self.program, one["path"], "--verify")
            self.assertEqual(0, status, report)
        return listed["checkpoints"][-1]["step"]

    # C5
    def test_a_kill_at_any_call_leaves_the_newest_complete_one(self):
        self.kill_at_each_call()

    def test_a_kill_at_any_call_of_saves_beside_the_steps_leaves_the_newest_complete_one(self):
        self.more = {"async_save": True}
        self.kill_at_each_call()

    def kill_at_each_call(self):
        whole = self.train_with()
        self.assert_status(0, whole)
        self.assertEqual(2, self.newest())
        calls = sum("/checkpoints" in line for line in self.calls.read_text().splitlines())
        self.assertGreater(calls, 20)
        steps = []
        for call in range(calls):
            killed = self.train_with(kill=f"/checkpoints:{call}")
            self.assertNotEqual(0, killed.status)
            steps.append(self.newest())
            if call % 9 == 4:  # and a run goes on in such a folder
                options = self.options(steps=2, save_every=1, checkpoint_dir=self.checkpoints, resume="latest", allow_fresh=True,
                                       **RESIDENT)
                resumed = headrace_job.train(self.program, options, self.folder / "resumed")
                self.assert_status(0, resumed)
                self.assertEqual(whole.state_hash, resumed.state_hash)
                self.assertFalse(list(self.checkpoints.glob("*.partial")))
        self.assertEqual(sorted(steps), steps)
        self.assertEqual({0, 1, 2}, set(steps))

    # C7, C10
    def test_a_call_that_fails_is_told_and_the_run_and_the_checkpoint_before_it_go_on(self):
        self.fail_each_call()

    def test_a_call_of_a_save_beside_the_steps_that_fails_is_told_at_the_end(self):
        self.more = {"async_save": True}
        self.fail_each_call()

    def fail_each_call(self):
        for call, suffix, skip, code in (("open", ".safetensors", 1, EIO), ("pwrite", ".safetensors", 1, ENOSPC),
                                         ("fallocate", ".safetensors", 1, ENOSPC), ("fdatasync", ".safetensors", 1, EIO),
                                         ("pwrite", "manifest.json.new", 1, ENOSPC), ("rename", ".partial", 1, EIO),
                                         ("mkdir", "step-00000002.partial", 0, ENOSPC)):
            with self.subTest(call=call, path=suffix):
                outcome = self.train_with(fault=f"{call}:{suffix}:{skip}:{code}")
                self.assertIn("FAULT ", self.calls.read_text())
                self.assert_status(1, outcome)  # the last save is the one that failed
                self.assert_says(outcome, "step 2 was not saved", "could not be saved", "step-00000001")
                self.assertEqual(2, len(outcome.steps))
                self.assertEqual(1, self.newest())
                self.assertFalse(list(self.checkpoints.glob("*.partial")))

    def test_what_fails_on_one_rank_is_told_by_all_and_the_next_save_succeeds(self):
        outcome = self.train_with(2, fault="pwrite:.safetensors:0:28", fault_rank=1)
        self.assert_status(0, outcome)
        self.assert_says(outcome, "step 1 was not saved", "rank 1", "No space left")
        self.assertEqual(2, self.newest())

    def test_what_fails_beside_the_steps_on_one_rank_is_told_at_the_next_save(self):
        self.more = {"async_save": True}
        outcome = self.train_with(2, fault="pwrite:.safetensors:0:28", fault_rank=1)
        self.assert_status(0, outcome)
        self.assert_says(outcome, "step 1 was not saved", "rank 1", "No space left")
        self.assertEqual(2, self.newest())


if __name__ == "__main__":
    job_test.main()
