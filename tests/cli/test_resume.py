"""What a run may be continued with, and what is left of an earlier run."""

import pathlib
import re
import shutil
import signal
import unittest

from program import NANO, ON_NVME, TINY, ProgramTest
from test_ranks import MPIRUN, ranks


class Continuation(ProgramTest):
    def flags(self, *extra):
        return ["train", *TINY, *ON_NVME, *extra]

    def stored_hash(self):
        return re.search(r"state hash +(\w{16})", self.succeeds("inspect", "swap", "--hash").stdout)[1]

    def refused_and_unchanged(self, *flags, says):
        before = self.stored_hash()
        self.refused(*flags, says=says)
        self.assertEqual(self.stored_hash(), before)

    def test_other_samples_are_refused_and_the_store_is_unchanged(self):
        self.succeeds(*self.flags("--steps", 2, "--quiet"))
        self.write("other.txt", "".join(f"another line {i}\n" for i in range(900)))
        resume = self.flags("--steps", 4, "--resume", "swap", "--quiet")
        self.refused_and_unchanged(*resume, "--seed", 5, says=["--seed 5 (was 0)"])
        short = [17 if flag == "16" else flag for flag in resume]
        self.refused_and_unchanged(*short, says=["--sequence-length 17 (was 16)"])
        other = ["other.txt" if flag == "data.txt" else flag for flag in resume]
        self.refused_and_unchanged(*other, says=["data \""])

    def test_a_changed_byte_of_the_data_is_noticed(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        text = (self.folder / "data.txt").read_text()
        self.write("data.txt", "X" + text[1:])
        self.refused(*self.flags("--steps", 2, "--resume", "swap", "--quiet"), says=["data \""])

    def test_moved_data_and_a_moved_store_continue_without_a_word(self):
        self.succeeds(*self.flags("--steps", 2, "--quiet"))
        shutil.move(self.folder / "data.txt", self.folder / "moved.txt")
        shutil.move(self.folder / "swap", self.folder / "moved")
        moved = {"data.txt": "moved.txt", "swap": "moved"}
        flags = [moved.get(flag, flag) for flag in self.flags("--steps", 2)]
        result = self.succeeds(*flags, "--resume", "swap")
        self.assertNotIn("other settings", result.stderr)

    def test_other_settings_are_named_and_the_run_continues(self):
        self.succeeds(*self.flags("--steps", 2, "--quiet"))
        result = self.succeeds(*self.flags("--steps", 4, "--resume", "swap", "--accumulation", 2))
        self.assertIn("--accumulation 2 (was 1)", result.stderr)
        self.assertIn("finished after step 4", result.stdout)

    def test_a_longer_run_is_said_calmly(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        result = self.succeeds(*self.flags("--steps", 2, "--resume", "swap"))
        self.assertIn("in 2 steps", result.stderr)
        self.assertNotIn("warning", result.stderr)
        self.assertNotIn("other settings", result.stderr)

    def test_another_block_size_is_named_with_the_one_to_give(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        refused = ["--swap-block is 3MiB in the store", "1536KiB here", "give --swap-block 3MiB", "delete the states"]
        self.refused_and_unchanged(*self.flags("--steps", 2, "--resume", "swap", "--quiet", "--swap-block", "1536KiB"),
                                   says=refused)
        self.succeeds(*self.flags("--steps", 2, "--resume", "swap", "--quiet", "--swap-block", "3MiB"))

    def test_a_stop_before_the_earlier_run_is_replaced_leaves_it_whole(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        before = self.stored_hash()
        started = self.start(*self.flags("--steps", 300, "--overwrite-swap"))
        while not self.catches_interrupts(started):
            self.assertIsNone(started.poll())
        started.send_signal(signal.SIGINT)
        said = started.communicate(timeout=30)[1]
        self.assertEqual(started.returncode, 130, said)
        self.assertIn("nothing was replaced", said)
        self.assertNotIn("this step", said)
        self.assertEqual(self.stored_hash(), before)

    def catches_interrupts(self, process):
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGINT - 1) & 1

    def test_a_run_is_replaced_only_when_asked_for_and_what_would_be_lost_is_said(self):
        self.succeeds(*self.flags("--steps", 2, "--quiet"))
        lost = ["holds step 2 of an earlier run, written ", " ago, ", "MiB on the disk"]
        self.refused_and_unchanged(*self.flags("--steps", 1, "--quiet"),
                                   says=[*lost, "--resume swap", "--overwrite-swap", "another --swap-path"])
        self.refused_and_unchanged(*self.flags("--steps", 3, "--resume", "swap", "--overwrite-swap"),
                                   says=["--resume swap", "--overwrite-swap", "Give one"])
        result = self.succeeds(*self.flags("--steps", 1, "--overwrite-swap"))
        for words in [*lost, "this run replaces it"]:
            self.assertIn(words, result.stderr)

    def test_what_holds_no_step_is_replaced_without_being_asked_for(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet", "--durability", "none"))
        started = self.start(*self.flags("--steps", 2, "--quiet", "--accumulation", 200))  # seconds a step
        while not (self.folder / "swap" / "rank-00000" / "journal.bin").exists():
            self.assertIsNone(started.poll())
        started.kill()
        started.wait()
        self.succeeds(*self.flags("--steps", 1, "--quiet"))

    def test_a_store_of_other_paths_or_that_cannot_be_read_is_replaced_only_when_asked_for(self):
        (self.folder / "other").mkdir()
        self.succeeds(*self.flags("--steps", 1, "--quiet", "--swap-path", "other"))
        alone = self.flags("--steps", 1, "--quiet")
        self.refused(*alone, says=["step 1 of an earlier run", "--resume swap --swap-path ", "/other to continue"])
        self.succeeds(*alone, "--overwrite-swap")
        self.write("swap/rank-00000/store.json", "damaged")
        self.refused(*alone, says=["cannot be read", "is damaged", "--overwrite-swap"])
        self.succeeds(*alone, "--overwrite-swap")

    def test_every_run_on_the_paths_is_said_before_any_is_replaced(self):
        self.succeeds(*self.flags("--steps", 2, "--quiet"))
        (self.folder / "swap").rename(self.folder / "other")
        (self.folder / "swap").mkdir()
        both = self.flags("--steps", 1, "--quiet", "--swap-path", "other")
        self.refused(*both, says=["other/rank-00000 holds step 2", "--resume swap", "delete it"])
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        self.refused(*both, says=["swap/rank-00000 holds step 1", "other/rank-00000 holds step 2", "delete all of them"])
        self.succeeds(*both, "--overwrite-swap")

    def test_another_layout_is_said_in_words(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"))
        resume = self.flags("--steps", 2, "--resume", "swap", "--quiet")
        self.refused_and_unchanged(*resume, "--dtype", "fp32", says=["--dtype is bf16 in the store, fp32 here"])
        self.refused_and_unchanged(*resume, "--stage", 1, says=["--stage is 0 in the store, 1 here"])
        nano = ["gpt2-nano" if flag == "gpt2-mini" else flag for flag in resume]
        self.refused_and_unchanged(*nano, says=["the model has ", " parameters in the store, "])
        if MPIRUN is not None:
            two = self.run_program(*self.flags("--steps", 1, "--quiet", "--overwrite-swap", "--stage", 1), prefix=ranks(2))
            self.assertEqual(two.returncode, 0, two.stderr)
            self.refused(*resume, "--stage", 1, says=["the number of ranks is 2 in the store, 1 here"])

    def test_a_run_that_is_already_there_says_so(self):
        self.succeeds(*self.flags("--steps", 3, "--quiet"))
        result = self.succeeds(*self.flags("--steps", 2, "--resume", "swap"))
        self.assertIn("nothing to do: the run is already at step 3, and --steps is 2", result.stdout)
        self.assertNotIn("NVMe traffic", result.stdout)

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_a_run_of_fewer_ranks_leaves_nothing_of_the_earlier_ones(self):
        self.succeeds(*self.flags("--steps", 1, "--quiet"), prefix=ranks(3))
        self.assertEqual(len(list((self.folder / "swap").iterdir())), 3)
        shutil.rmtree(self.folder / "swap" / "rank-00000")
        self.refused(*self.flags("--steps", 1, "--quiet"), says=["rank-00001 holds step 1"])
        self.succeeds(*self.flags("--steps", 1, "--quiet", "--overwrite-swap"))
        self.assertEqual([path.name for path in (self.folder / "swap").iterdir()], ["rank-00000"])

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_a_job_that_is_refused_leaves_no_store_of_its_other_ranks(self):
        running = self.start(*self.flags("--steps", 10000, "--metrics", "m.jsonl"))
        self.wait_for_step(running, "m.jsonl", 1)
        refused = self.run_program(*self.flags("--steps", 1, "--quiet"), prefix=ranks(2))
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn(str(running.pid), refused.stderr)
        self.assertEqual([path.name for path in (self.folder / "swap").iterdir()], ["rank-00000"])

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_stores_of_different_runs_are_not_put_together(self):
        (self.folder / "other").mkdir()
        one, two = (["train", *TINY, "--offload-optimizer", "nvme", "--stage", 1, "--steps", 1, "--quiet", "--swap-path"]
                    for _ in range(2))
        self.succeeds(*one, "swap", prefix=ranks(2))
        self.succeeds(*two, "other", "--learning-rate", "1e-2", prefix=ranks(2))
        shutil.rmtree(self.folder / "swap" / "rank-00001")
        shutil.move(self.folder / "other" / "rank-00001", self.folder / "swap" / "rank-00001")
        result = self.run_program(*one, "swap", "--resume", "swap", prefix=ranks(2))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("not of the same run", result.stderr)
        inspected = self.run_program("inspect", "swap", "--hash")
        self.assertEqual(inspected.returncode, 1)
        self.assertIn("not of the same run", inspected.stdout)


class NotFinite(ProgramTest):
    OVERFLOWING = ["--learning-rate", "1e36", "--schedule", "constant", "--clip", 0]

    def test_weights_that_overflow_end_the_run_with_advice(self):
        result = self.run_program("train", *TINY, *self.OVERFLOWING, "--steps", 60)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("not finite in the last 20 steps", result.stderr)
        self.assertIn("--learning-rate", result.stderr)

    def test_a_run_whose_last_losses_are_not_finite_is_an_error_that_names_them(self):
        result = self.refused("train", *TINY, *self.OVERFLOWING, "--steps", 8, "--metrics", "m.jsonl", "--quiet", status=1,
                              says=["the training loss of step 8 is not finite", "smaller --learning-rate"])
        self.assertNotIn("nan", result.stderr)
        self.assertIsNone(self.metrics("m.jsonl")[-1]["loss"])
        self.refused("train", *NANO, *self.OVERFLOWING, "--steps", 1, "--eval-data", "data.txt", "--quiet", status=1,
                     says=["the held-out loss is not finite", "smaller --learning-rate"])

    def test_weights_lost_to_an_epsilon_of_nothing_are_said_to_be(self):
        # Over one token attention is 1 whatever queries and keys are: their gradient is 0.
        alone = ["--model", "gpt2-nano", "--sequence-length", "1", "--batch-size", "1", "--data", "data.txt"]
        self.refused("train", *alone, "--epsilon", 0, "--steps", 3, "--eval-data", "data.txt", "--quiet", status=1,
                     says=["the training loss of step 3 and the held-out loss are not finite", "epsilon is 0", "0 / 0",
                           "larger --epsilon"])

    def test_a_skipped_last_step_with_a_finite_loss_is_none(self):
        flags = ["train", *NANO, "--dtype", "fp16", "--quiet", "--loss-scale-window", 1, "--initial-scale-power", 30]
        self.succeeds(*flags, "--steps", 40, "--metrics", "m.jsonl", "--schedule", "constant")
        skipped = [line["step"] for line in self.metrics("m.jsonl")[:-1] if line["skipped"]]
        self.assertGreater(skipped[-1], 20)
        self.assertIn("skipped steps", self.succeeds(*flags, "--steps", skipped[-1], "--schedule", "constant").stdout)


if __name__ == "__main__":
    unittest.main()
