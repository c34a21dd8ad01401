"""Ranks that are all asked to stop at once, early in the run: the job ends as a stopped one, and what the swap path holds goes on."""
import os
import pathlib
import re
import signal
import time

import headrace_job
import job_test

RANKS = 3


def catches_the_signal(pid):
    """Whether the process has its handlers: before, the signal ends it by itself."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
    return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (signal.SIGUSR1 - 1) & 1)


class Stop(job_test.JobTest):
    def setUp(self):
        super().setUp()
        if headrace_job.most_ranks() < RANKS:
            self.skipTest(f"{RANKS} ranks need a device each")

    def stopped(self, name, delay_seconds, **more):
        """A new run whose ranks are all signalled `delay_seconds` after the last of them has begun to listen."""
        folder = self.folder / name
        folder.mkdir()
        job = headrace_job.Job(self.program, self.options(**more), folder, RANKS)
        self.addCleanup(lambda: job.process.poll() is None and job.kill())
        while len(pids := job.rank_pids()) < RANKS or not all(map(catches_the_signal, pids)):
            self.assertIsNone(job.process.poll(), job.err.read_text())
            time.sleep(0.001)
        time.sleep(delay_seconds)
        for pid in pids:
            os.kill(pid, signal.SIGUSR1)
        outcome = job.wait(60)
        self.assert_status(130, outcome)
        return outcome

    def stored_hash(self):
        status, report = headrace_job.inspect_json(self.program, self.folder / "swap", "--hash")
        self.assertEqual(0, status, report)
        return report["state_hash"]

    def test_of_all_ranks_before_anything_is_replaced_leaves_the_earlier_run_whole(self):
        earlier = self.train(RANKS, name="earlier")
        self.assert_status(0, earlier)
        outcome = self.stopped("stopped", 0, steps=1000)
        self.assertEqual([], outcome.steps)
        self.assertEqual(earlier.state_hash, self.stored_hash())

    def test_of_all_ranks_at_other_moments_leaves_a_step_that_all_of_them_have(self):
        steps = 400
        expected = self.train(RANKS, name="whole", steps=steps, swap_path=self.swap("other"))
        self.assert_status(0, expected)
        self.assert_status(0, self.train(RANKS, name="earlier", steps=2))
        for number, delay in enumerate((0.03, 0.1, 0.3, 0.6)):
            with self.subTest(delay=delay):
                self.stopped(f"stopped-{number}", delay, steps=steps)
        resumed = self.train(RANKS, name="resumed", steps=steps, resume="swap")
        self.assert_status(0, resumed)
        self.assertEqual(expected.state_hash, resumed.state_hash)

    def swap(self, name):
        (self.folder / name).mkdir()
        return self.folder / name


if __name__ == "__main__":
    job_test.main()
