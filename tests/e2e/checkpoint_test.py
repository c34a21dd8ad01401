"""Checkpoints as users save and load them: at any number of ranks, in any placement, and what is said where one cannot."""
import fcntl
import os
import signal
import subprocess
import time

import headrace_job
import job_test

RESIDENT = {"offload_optimizer": "none", "swap_path": None, "overwrite_swap": None, "stage": 0}
ON_HOST = {**RESIDENT, "offload_optimizer": "cpu", "stage": 2}


class Checkpoints(job_test.JobTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"

    def run_with(self, ranks=1, **more):
        return self.train(ranks, **{"checkpoint_dir": self.checkpoints, "steps": 4, "dtype": "fp32", "batch_size": 4 // ranks, **more})

    def newest(self):
        return self.checkpoints / (self.checkpoints / "latest").read_text().strip()

    # C1, C8
    def test_a_run_goes_on_at_another_number_of_ranks_stage_and_tier(self):
        whole = self.train(1, steps=8, dtype="fp32", batch_size=4, **ON_HOST)
        self.assert_status(0, whole)
        first = self.run_with(4, steps=4, keep_last=1)
        self.assert_status(0, first)
        for ranks, placement in ((1, RESIDENT), (2, ON_HOST), (4, {})):
            resumed = self.run_with(ranks, steps=8, resume=self.checkpoints / "step-00000004", **placement)
            self.assert_status(0, resumed)
            self.assert_says(resumed, "continues after step 4")
            for expected, step in zip(whole.steps[4:], resumed.steps[-4:]):
                self.assertLess(abs(step["loss"] - expected["loss"]) / expected["loss"], 1e-5, (ranks, placement))
        again = self.run_with(4, steps=4, resume=None)
        self.assertEqual(first.state_hash, again.state_hash)

    def test_a_run_of_the_same_ranks_goes_on_to_the_same_bits_and_its_file_has_the_same_hash(self):
        for dtype, placement in (("bf16", {}), ("fp16", ON_HOST)):
            whole = self.train(2, name="whole", steps=6, dtype=dtype, batch_size=2, **placement)
            self.assert_status(0, whole)
            self.assert_status(0, self.run_with(2, dtype=dtype, steps=3, save_every=1, keep_last=2, **placement))
            resumed = self.run_with(2, dtype=dtype, steps=6, resume="latest", **placement)
            self.assert_status(0, resumed)
            self.assertEqual(whole.state_hash, resumed.state_hash)
            status, report = headrace_job.inspect_json(self.program, self.newest(), "--verify", "--hash")
            self.assertEqual((0, whole.state_hash), (status, report["state_hash"]), report)
            self.assertEqual(["good", "good"], [file["state"] for file in report["files"]])
            for kept in self.checkpoints.iterdir():
                if kept.is_dir():
                    subprocess.run(["rm", "-r", str(kept)], check=True)

    def test_what_is_saved_beside_the_steps_is_what_is_saved_between_them(self):
        def hashes():
            found = {}
            for path in sorted(self.checkpoints.glob("step-*")):
                status, report = headrace_job.inspect_json(self.program, path, "--verify", "--hash")
                self.assertEqual(0, status, report)
                found[path.name] = report["state_hash"]
                subprocess.run(["rm", "-r", str(path)], check=True)
            return found

        for ranks, placement in ((3, {}), (2, ON_HOST), (1, RESIDENT)):
            between = self.run_with(ranks, save_every=2, **placement)
            self.assert_status(0, between)
            expected = hashes()
            beside = self.run_with(ranks, save_every=2, async_save=True, save_buffers=1, **placement)
            self.assert_status(0, beside)
            self.assertEqual(between.state_hash, beside.state_hash)
            self.assertEqual(expected, hashes())
            self.assertEqual({"step-00000002", "step-00000004"}, set(expected))

    # C20
    def test_a_lost_file_is_rebuilt_by_a_resume_with_one_warning_and_by_a_repair(self):
        whole = self.train(3, steps=6, dtype="fp32", batch_size=1, **ON_HOST)
        self.assert_status(0, whole)
        self.assert_status(0, self.run_with(3, steps=3, checkpoint_parity=1, **ON_HOST))
        path = self.newest()
        lost = path / "rank-00001-of-00003.safetensors"
        before = lost.read_bytes()
        lost.unlink()
        manifest = path / "manifest.json"
        manifest.write_bytes(manifest.read_bytes()[:-1])
        resumed = self.run_with(3, steps=6, checkpoint_parity=1, resume="latest", **ON_HOST)
        self.assert_status(0, resumed)
        self.assertEqual(whole.state_hash, resumed.state_hash)
        self.assert_says(resumed, lost.name + " is missing", "manifest.json is damaged", f"`headrace inspect --repair {path}`")
        self.assertEqual(1, resumed.stderr.count("is damaged: "), resumed.stderr)
        status, report = headrace_job.inspect_json(self.program, path, "--repair", "--verify")
        self.assertEqual((0, []), (status, report["problems"]), report)
        self.assertEqual(["manifest.json", lost.name], [file["name"] for file in report["repaired"]["files"]])
        self.assertEqual(before, lost.read_bytes())
        lost.unlink()
        (path / "parity-00000-of-00001.bin").write_bytes(b"")
        refused = self.run_with(3, steps=6, resume=path, **ON_HOST)
        self.assertNotEqual(0, refused.status)
        self.assert_says(refused, lost.name + " is missing", "parity-00000-of-00001.bin has 0 bytes")

    def test_a_damaged_checkpoint_does_not_cost_the_swap_store_that_it_would_replace(self):
        whole = self.run_with(2, steps=6, checkpoint_dir=None)
        self.assert_status(0, self.run_with(2, steps=4))
        for path in self.newest().glob("rank-*"):
            contents = bytearray(path.read_bytes())
            contents[-5] ^= 4
            path.write_bytes(contents)
        for overwrite in (None, True):
            refused = self.run_with(2, steps=6, resume="latest", overwrite_swap=overwrite)
            self.assert_status(1, refused)
            self.assert_says(refused, "is damaged")
        goes_on = self.run_with(2, steps=6, resume="swap", checkpoint_dir=None)
        self.assert_status(0, goes_on)
        self.assertEqual(whole.state_hash, goes_on.state_hash)

    def test_a_folder_where_another_job_saves_is_refused_before_anything_is_replaced(self):
        self.assert_status(0, self.run_with(steps=2))
        with open(self.checkpoints / "lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            refused = self.run_with(steps=4, name="second")
        self.assert_status(2, refused)
        self.assert_says(refused, "another job")
        self.assert_status(0, self.run_with(steps=4, resume="swap"))

    # C6
    def test_a_checkpoint_whose_manifest_is_damaged_is_not_taken_for_none(self):
        self.assert_status(0, self.run_with(steps=4, save_every=2, **RESIDENT))
        (self.checkpoints / "step-00000004" / "manifest.json").write_text("{")
        for fresh in (None, True):
            refused = self.run_with(steps=6, resume="latest", allow_fresh=fresh, **RESIDENT)
            self.assert_status(2, refused)
            self.assert_says(refused, "step-00000004 is missing or damaged", f"--resume {self.checkpoints}/step-00000002")

    def test_a_new_run_saves_among_the_checkpoints_of_another_only_when_asked_for(self):
        first = self.run_with(steps=2, **RESIDENT)
        self.assert_status(0, first)
        for more in ({}, {"load_weights": self.newest()}):
            anew = self.run_with(steps=4, overwrite_checkpoints=None, **more, **RESIDENT)
            self.assert_status(2, anew)
            self.assert_says(anew, "holds 1 checkpoint of another run", "--resume latest", "--overwrite-checkpoints")
        self.assertEqual(["step-00000002"], [path.name for path in self.checkpoints.glob("step-*")])
        for more in ({"resume": "latest"}, {"overwrite_checkpoints": True}):
            self.assert_status(0, self.run_with(steps=4, **{"overwrite_checkpoints": None, **more}, **RESIDENT))

    def test_a_store_without_a_committed_step_is_refused_in_words_where_checkpoints_are_saved(self):
        self.assert_status(0, self.run_with(durability="none", checkpoint_dir=None))
        refused = self.run_with(resume="swap")
        self.assert_status(2, refused)
        self.assert_says(refused, "durability")

    # C6
    def test_nothing_to_go_on_from_is_an_error_unless_a_fresh_start_is_allowed(self):
        missing = self.run_with(resume="latest", **RESIDENT)
        self.assert_status(2, missing)
        self.assert_says(missing, "--allow-fresh", str(self.checkpoints))
        wrong = self.run_with(resume=self.folder / "nowhere", **RESIDENT)
        self.assert_status(2, wrong)
        self.assert_says(wrong, "no such folder")
        fresh = self.run_with(resume="latest", allow_fresh=True, **RESIDENT)
        self.assert_status(0, fresh)
        above = self.run_with(resume=self.checkpoints, **RESIDENT)
        self.assert_status(2, above)
        self.assert_says(above, "step-00000004")

    def test_goes_on_over_the_runs_own_swap_store_unless_that_is_later(self):
        self.assert_status(0, self.run_with(2, steps=4, save_every=2))
        back = self.run_with(2, steps=6, resume=self.checkpoints / "step-00000002", overwrite_swap=None)
        self.assert_status(2, back)
        self.assert_says(back, "step 4 of this very run, later than the checkpoint's 2", "--resume swap", "--overwrite-swap")
        goes_on = self.run_with(2, steps=6, save_every=2, resume="latest", overwrite_swap=None)
        self.assert_status(0, goes_on)
        self.assert_says(goes_on, "continues after step 4")
        fork = self.run_with(2, steps=8, resume=self.checkpoints / "step-00000004", overwrite_swap=None)
        self.assert_status(2, fork)  # what went on from the same checkpoint is another run
        self.assert_says(fork, "step 6 of an earlier run")
        again = self.run_with(2, steps=6, resume=self.checkpoints / "step-00000002")
        self.assert_status(0, again)
        self.assertEqual(goes_on.state_hash, again.state_hash)
        self.assert_status(0, self.train(2, name="another", steps=6, dtype="fp32", batch_size=2,
                                         checkpoint_dir=self.folder / "other"))
        other = self.run_with(2, steps=8, resume="latest", overwrite_swap=None)
        self.assert_status(2, other)
        self.assert_says(other, "step 6 of an earlier run")

    # C13
    def test_weights_alone_begin_a_new_run(self):
        self.assert_status(0, self.run_with(2))
        path = self.newest()
        fresh = self.train(1, steps=2, dtype="fp32", learning_rate=0, load_weights=path, **RESIDENT)
        self.assert_status(0, fresh)
        self.assertEqual([1, 2], [step["step"] for step in fresh.steps])
        self.assertLess(fresh.steps[0]["loss"], 5.5)  # not that of random weights

    # C11, C12
    def test_an_export_holds_the_weights_of_the_checkpoint_whatever_the_family_and_the_ranks(self):
        for model, ranks, placement in (("gpt2-nano", 3, {}), ("llama-nano", 1, RESIDENT)):
            more = {"model": model, "dtype": "fp32", "eval_data": self.corpus, "eval_batches": 2}
            saved = self.train(ranks, checkpoint_dir=self.checkpoints, keep_last=1, steps=3, **more, **placement)
            self.assert_status(0, saved)
            folder = self.folder / f"exported-{model}"
            export = [str(self.program), "export", str(self.newest()), "--to", str(folder)]
            self.assertEqual(0, subprocess.run(export, stdout=subprocess.DEVNULL).returncode)
            self.assertNotEqual(0, subprocess.run(export, stderr=subprocess.DEVNULL).returncode)  # it is there
            opened = self.train(ranks, name="opened", steps=1, learning_rate=0, **{**more, "model": folder}, **placement)
            self.assert_status(0, opened)
            losses = [run.steps[-1]["eval_loss"] for run in (saved, opened)]
            self.assertLess(abs(losses[0] - losses[1]) / losses[0], 1e-6, losses)
            for kept in self.checkpoints.glob("step-*"):
                subprocess.run(["rm", "-r", str(kept)], check=True)

    def stopped_by(self, signals, status, ranks=1, **more):
        """A run with `signals` sent to all its ranks, one every tenth of a second."""
        folder = self.folder / f"stopped-{len(list(self.folder.iterdir()))}"
        folder.mkdir()
        options = {"steps": 100000, "stage": 0, "checkpoint_dir": self.checkpoints, **RESIDENT, **more}
        job = headrace_job.Job(self.program, self.options(**options), folder, ranks)
        self.assertTrue(job.wait_for_steps(2))
        pids = job.rank_pids()
        for number in signals:
            for pid in pids:
                os.kill(pid, number)
            time.sleep(0.1)
        stopped = job.wait(60)
        self.assert_status(status, stopped)
        return stopped

    def test_sigterm_and_ctrl_c_end_a_run_after_a_step_that_all_ranks_have_and_save_it(self):
        for number, status, ranks, more in ((signal.SIGTERM, 143, 1, {}), (signal.SIGINT, 130, 1, {"async_save": True}),
                                            (signal.SIGTERM, 143, 3, {"offload_optimizer": "cpu", "stage": 2})):
            stopped = self.stopped_by([number], status, ranks, **more)
            self.assertIn(str(self.newest()), stopped.stdout)
            step = stopped.steps[-1]["step"]
            self.assert_says(stopped, f"stopping after step {step}, as a signal asked: it is saved")
            checked, report = headrace_job.inspect_json(self.program, self.newest(), "--verify")
            self.assertEqual((0, step, ranks), (checked, report["step"], report["world_size"]), report)
            resumed = self.run_with(1, steps=step + 1, resume="latest", dtype="bf16", **RESIDENT)
            self.assert_status(0, resumed)
            self.assert_says(resumed, f"continues after step {step}")

    def test_a_stop_right_after_a_save_saves_that_step_once(self):
        stopped = self.stopped_by([signal.SIGTERM], 143, save_every=1)
        self.assertEqual(len(stopped.steps), stopped.stderr.count("saved "))

    def test_a_second_signal_ends_a_run_at_once(self):
        slow = {"accumulation": 4096, "steps": 100000}  # steps that no test waits for
        folder = self.folder / "slow"
        folder.mkdir()
        job = headrace_job.Job(self.program, self.options(**{**slow, "checkpoint_dir": self.checkpoints, **RESIDENT}), folder)
        while "initialising" not in job.err.read_text():
            time.sleep(0.01)
        time.sleep(1)
        job.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        self.assertIsNone(job.process.poll())
        job.process.send_signal(signal.SIGTERM)
        self.assert_status(143, job.wait(10))
        self.assertEqual([], list(self.checkpoints.glob("step-*")))

    def test_a_stopped_run_saves_and_a_checkpoint_of_another_model_is_refused_by_name(self):
        job = headrace_job.Job(self.program, self.options(steps=100000, checkpoint_dir=self.checkpoints, **RESIDENT), self.folder)
        self.assertTrue(job.wait_for_steps(2))
        job.process.send_signal(10)  # SIGUSR1
        stopped = job.wait()
        self.assert_status(130, stopped)
        self.assertIn(str(self.newest()), stopped.stdout)
        other = self.train(1, model="gpt2-mini", resume=self.newest(), **RESIDENT)
        self.assert_status(2, other)
        self.assert_says(other, "of another model", "nothing was loaded")


if __name__ == "__main__":
    job_test.main()
