"""Each system call on a swap store's files fails once: the run goes on, or ends with an error that names the file and leaves
the last committed step, from which it ends in the same state."""
import os
import unittest

import headrace_job
import job_test

EIO, ENOSPC = 5, 28
STEPS = 3
# What a failing call may leave undone without an error: the lock is told by the kernel, not by what is written in it.
ABOUT_THE_LOCK = "lock"


@unittest.skipIf(job_test.with_system_calls() is None, "nothing can be preloaded into this build")
class SystemCalls(job_test.JobTest):
    def setUp(self):
        super().setUp()
        whole = self.train(name="whole", steps=STEPS)
        self.assert_status(0, whole)
        self.expected = whole.state_hash
        self.runs = 0

    def train_with(self, fault, ranks=1, rank=None, **more):
        """(outcome, whether the call failed) of a run in a new swap path."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        self.swap = folder / "swap"
        self.swap.mkdir(parents=True)
        calls = folder / "calls"
        prefix = job_test.with_system_calls(fault=fault, calls=calls, fault_rank="" if rank is None else rank)
        options = {**self.options(steps=STEPS, io="threads", swap_block="48KiB"), "swap_path": self.swap, **more}
        outcome = headrace_job.train(self.program, options, folder, ranks, prefix=prefix)
        self.calls = calls.read_text().splitlines()
        return outcome, any(line.startswith("FAULT ") for line in self.calls)

    def resume(self, ranks=1):
        """Ends the run in the swap path of the last one from its last commit; None where nothing was committed."""
        options = {**self.options(steps=STEPS, swap_block="48KiB"), "swap_path": self.swap, "resume": "swap"}
        outcome = headrace_job.train(self.program, options, self.folder / "resumed", ranks)
        nothing = ("nothing to continue", "no committed", "no swap store")
        return None if outcome.status == 2 and any(text in outcome.stderr for text in nothing) else outcome

    def sites(self):
        """(call, end of the path) -> how often, on files of the store in a run without faults."""
        outcome, _ = self.train_with("")
        self.assert_status(0, outcome)
        counts = {}
        for line in self.calls:
            call, path = line.split(" ", 1)
            if path.startswith(str(self.swap)) and not path.endswith(ABOUT_THE_LOCK):
                site = call, path[len(str(self.swap.parent)):]  # "/swap/..."
                counts[site] = counts.get(site, 0) + 1
        return counts

    # A7
    def test_that_fails_at_its_first_or_last_time_is_an_error_that_names_the_file_or_changes_nothing(self):
        sites = self.sites()
        for call in ("open", "pwrite", "pread", "fsync", "fdatasync", "fallocate", "rename"):
            self.assertTrue(any(site[0] == call for site in sites), f"no {call} in {sorted(sites)}")
        ended = 0
        for (call, name), count in sorted(sites.items()):
            for skip in sorted({0, count - 1}):
                with self.subTest(call=call, file=name, after=skip):
                    outcome, hit = self.train_with(f"{call}:{name}:{skip}:{EIO}")
                    self.assertTrue(hit, "the call did not fail")
                    if outcome.status == 0:
                        self.assertEqual(self.expected, outcome.state_hash)
                        continue
                    ended += 1
                    self.assertIn(outcome.status, (1, 2), outcome)
                    self.assert_says(outcome, str(self.swap))
                    if resumed := self.resume():
                        self.assert_status(0, resumed)
                        self.assertEqual(self.expected, resumed.state_hash)
                    else:
                        self.assertEqual([], outcome.steps, "a committed step is gone")
        self.assertGreater(ended, 10, "hardly any failing call ended a run")

    def test_that_fails_on_one_of_two_or_three_ranks_ends_the_job_and_leaves_the_last_commit(self):
        for ranks, call, file, skip, code in ((2, "pwrite", "extents.bin", 20, ENOSPC), (3, "pwrite", "extents.bin", 30, EIO),
                                              (3, "fdatasync", "journal.bin", 2, EIO), (2, "pread", "extents.bin", 5, EIO)):
            with self.subTest(ranks=ranks, call=call):
                whole = self.train(ranks=ranks, name=f"whole-{ranks}", steps=STEPS)
                self.assert_status(0, whole)
                outcome, hit = self.train_with(f"{call}:{file}:{skip}:{code}", ranks=ranks, rank=ranks - 1, timeout=10)
                self.assertTrue(hit, "the call did not fail")
                self.assertNotEqual(0, outcome.status, outcome)
                self.assert_says(outcome, f"{self.swap}/rank-0000{ranks - 1}", os.strerror(code))
                resumed = self.resume(ranks)
                self.assertIsNotNone(resumed, "nothing was committed")
                self.assert_status(0, resumed)
                self.assertEqual(whole.state_hash, resumed.state_hash)


if __name__ == "__main__":
    job_test.main()
