"""A save that is killed, fails or runs out of space: the newest complete checkpoint stays, and training goes on."""
import shutil
import subprocess
import time
import unittest

import headrace_job
import job_test

RESIDENT = {"offload_optimizer": "none", "swap_path": None, "overwrite_swap": None, "stage": 0}
PARITY = {"checkpoint_parity": 1}
EIO, ENOSPC = 5, 28


@unittest.skipIf(job_test.with_system_calls() is None, "nothing can be preloaded into this build")
class Saves(job_test.JobTest):
    def setUp(self):
        super().setUp()
        self.runs = 0
        self.more = {}

    def train_with(self, ranks=1, more=None, **variables):
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        self.checkpoints, self.calls = folder / "checkpoints", folder / "calls"
        prefix = job_test.with_system_calls(calls=self.calls, **variables)
        options = self.options(**{**RESIDENT, "steps": 2, "save_every": 1, "io": "threads", "checkpoint_dir": self.checkpoints,
                                  **self.more, **(more or {})})
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

    def train_in_new(self, swap, **variables):
        shutil.rmtree(swap, ignore_errors=True)
        swap.mkdir()
        return self.train_with(**variables)

    # C5
    def test_a_kill_at_any_call_leaves_the_newest_complete_one(self):
        self.more = PARITY
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

    def test_a_repair_that_is_killed_at_any_call_can_be_done_again(self):
        self.assert_status(0, self.train_with(2, more=PARITY))
        path = self.checkpoints / "step-00000002"
        whole = {file.name: file.read_bytes() for file in path.iterdir()}
        damaged = ["rank-00001-of-00002.safetensors", "manifest.json"]

        def repair(**variables):
            command = [*job_test.with_system_calls(calls=self.calls, **variables), str(self.program), "inspect", "--repair", str(path)]
            return subprocess.run(command, capture_output=True, text=True)

        def harm():
            (path / damaged[0]).unlink()
            (path / damaged[1]).write_bytes(whole[damaged[1]][:-1])

        self.calls.unlink()
        harm()
        self.assertEqual(0, repair().returncode)
        calls = sum("/step-00000002" in line for line in self.calls.read_text().splitlines())
        self.assertGreater(calls, 10)
        for call in range(calls):
            harm()
            self.assertEqual(-9, repair(kill=f"/step-00000002:{call}").returncode)
            again = repair()
            self.assertEqual(0, again.returncode, again.stdout + again.stderr)
            self.assertEqual(whole, {file.name: file.read_bytes() for file in path.iterdir()}, call)

    def test_a_kill_at_any_call_of_a_pinned_save_leaves_it_whole_or_invisible_and_no_pin_that_stays(self):
        swap = self.folder / "pinned-swap"
        self.more = {"offload_optimizer": "nvme", "swap_path": swap, "overwrite_swap": True, "stage": 1,
                     "checkpoint_mode": "pin", "keep_last": 1}
        steps = []
        for paths in ("/checkpoints", "/pin-"):
            self.assert_status(0, self.train_in_new(swap))
            calls = sum(paths in line for line in self.calls.read_text().splitlines())
            self.assertGreater(calls, 5)
            for call in range(calls):
                killed = self.train_in_new(swap, kill=f"{paths}:{call}")
                self.assertNotEqual(0, killed.status)
                steps.append(self.newest())
                if call % 5 == 2:
                    options = self.options(steps=3, checkpoint_dir=self.checkpoints, resume="swap",
                                           **{**RESIDENT, **self.more, "overwrite_swap": None})
                    resumed = headrace_job.train(self.program, options, self.folder / "resumed")
                    self.assert_status(0, resumed)
                    pins = headrace_job.inspect_json(self.program, swap)[1]["ranks"][0]["pins"]
                    self.assertEqual([3], [pin["step"] for pin in pins])
        self.assertEqual({0, 1, 2}, set(steps))

    # C7, C10
    def test_a_call_that_fails_is_told_and_the_run_and_the_checkpoint_before_it_go_on(self):
        self.fail_each_call()

    def test_a_call_of_a_save_beside_the_steps_that_fails_is_told_at_the_end(self):
        self.more = {"async_save": True}
        self.fail_each_call()

    def fail_each_call(self):
        faults = (("open", ".safetensors", 1, EIO), ("pwrite", ".safetensors", 1, ENOSPC), ("fallocate", ".safetensors", 1, ENOSPC),
                  ("fdatasync", ".safetensors", 1, EIO), ("pwrite", "manifest.json.new", 1, ENOSPC), ("rename", ".partial", 1, EIO),
                  ("mkdir", "step-00000002.partial", 0, ENOSPC))
        parity_faults = (("open", ".bin", 1, EIO), ("fallocate", ".bin", 1, ENOSPC), ("pread", ".safetensors", 1, EIO),
                         ("pwrite", ".bin", 1, EIO), ("fdatasync", ".bin", 1, EIO), ("pwrite", "manifest-copy.json.new", 1, ENOSPC))
        for more, (call, suffix, skip, code) in [({}, fault) for fault in faults] + [(PARITY, fault) for fault in parity_faults]:
            with self.subTest(call=call, path=suffix):
                outcome = self.train_with(more=more, fault=f"{call}:{suffix}:{skip}:{code}")
                self.assertIn("FAULT ", self.calls.read_text())
                self.assert_status(1, outcome)  # the last save is the one that failed
                self.assert_says(outcome, "step 2 was not saved", "could not be saved", "step-00000001")
                self.assertEqual(2, len(outcome.steps))
                self.assertEqual(1, self.newest())
                self.assertFalse(list(self.checkpoints.glob("*.partial")))
                self.assertIn("state_hash", outcome.stdout)  # the summary is there all the same
                self.assertEqual(1, outcome.stderr.count("was not saved"))

    def test_what_fails_once_a_checkpoint_is_whole_is_told_as_saved_but(self):
        for call, suffix, skip, code, says in (("pwrite", "latest.new", 1, ENOSPC, "`latest`"), ("rename", "latest.new", 1, EIO, "`latest`"),
                                               ("rename", "step-00000001", 0, EIO, "old ones could be removed")):
            with self.subTest(call=call, path=suffix):
                outcome = self.train_with(more={"keep_last": 1}, fault=f"{call}:{suffix}:{skip}:{code}")
                self.assertIn("FAULT ", self.calls.read_text())
                self.assert_status(0, outcome)
                self.assert_says(outcome, "step-00000002, but", says)
                self.assertNotIn("was not saved", outcome.stderr)
                self.assertEqual(2, self.newest())

    def test_a_rank_that_fails_alone_beside_a_save_writes_it_to_its_end_and_the_job_ends_with_the_reason(self):
        more = {"async_save": True, "offload_optimizer": "nvme", "swap_path": self.folder / "swap", "overwrite_swap": True, "stage": 2}
        whole = self.train_with(2, more={**more, "steps": 1})
        self.assert_status(0, whole)
        written = sum(line.startswith("pwrite") and line.endswith("/rank-00001/extents.bin") for line in self.calls.read_text().splitlines())
        self.assertGreater(written, 0)
        begun = time.monotonic()
        outcome = self.train_with(2, more={**more, "steps": 3, "timeout": 40}, fault_rank=1, delay=".safetensors:300",
                                  fault=f"pwrite:/rank-00001/extents.bin:{written}:{EIO}:1000")
        self.assertNotEqual(0, outcome.status, outcome)
        self.assertLess(time.monotonic() - begun, 30)
        self.assert_says(outcome, "rank 1", "Input/output error", "The checkpoint of step 1 is written to its end")
        self.assertEqual(1, len(outcome.steps), outcome)
        self.assertEqual(1, self.newest())

    def test_a_call_of_a_pinned_save_that_fails_leaves_the_checkpoint_before_it_and_its_version_alone(self):
        swap = self.folder / "pinned-swap"
        self.more = {"offload_optimizer": "nvme", "swap_path": swap, "overwrite_swap": True, "stage": 1,
                     "checkpoint_mode": "pin", "keep_last": 1}
        faults = (("pwrite", ".bin.new", 1, ENOSPC), ("fdatasync", ".bin.new", 1, EIO), ("pwrite", "manifest.json.new", 1, ENOSPC),
                  ("rename", ".partial", 1, EIO), ("mkdir", "step-00000002.partial", 0, ENOSPC))
        for call, suffix, skip, code in faults:
            with self.subTest(call=call, path=suffix):
                outcome = self.train_in_new(swap, ranks=2, fault=f"{call}:{suffix}:{skip}:{code}", fault_rank=0)
                self.assertIn("FAULT ", self.calls.read_text())
                self.assertNotEqual(0, outcome.status)
                self.assert_says(outcome, "step 2 was not saved", "could not be saved", "step-00000001")
                self.assertEqual(1, self.newest())
                self.assertFalse(list(self.checkpoints.glob("*.partial")))
                options = self.options(steps=3, checkpoint_dir=self.checkpoints, resume="swap",
                                       **{**RESIDENT, **self.more, "overwrite_swap": None})
                self.assert_status(0, headrace_job.train(self.program, options, self.folder / f"resumed-{self.runs}", 2))
                for rank in headrace_job.inspect_json(self.program, swap)[1]["ranks"]:
                    self.assertEqual([3], [pin["step"] for pin in rank["pins"]])

    def test_what_fails_on_one_rank_is_told_by_all_and_the_next_save_succeeds(self):
        for fault, why in (("pwrite:.safetensors:0:28", "No space left"), ("pread:.safetensors:0:5", "Input/output error")):
            outcome = self.train_with(2, more=PARITY, fault=fault, fault_rank=1)
            self.assert_status(0, outcome)
            self.assert_says(outcome, "step 1 was not saved", "rank 1", why)
            self.assertEqual(2, self.newest())

    def test_what_fails_beside_the_steps_on_one_rank_is_told_at_the_next_save(self):
        self.more = {"async_save": True}
        outcome = self.train_with(2, fault="pwrite:.safetensors:0:28", fault_rank=1)
        self.assert_status(0, outcome)
        self.assert_says(outcome, "step 1 was not saved", "rank 1", "No space left")
        self.assertEqual(2, self.newest())


if __name__ == "__main__":
    job_test.main()
