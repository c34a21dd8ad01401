"""A rank that dies or hangs ends the whole job, soon, with a status that is not 0."""
import os
import signal
import time

import headrace_job
import job_test

TIMEOUT_SECONDS = 5
LAUNCHER_SECONDS = 10  # mpirun's own time to end what is left


class DeadRank(job_test.JobTest):
    def start(self):
        options = self.options(steps=100000, timeout=TIMEOUT_SECONDS)
        (self.folder / "run").mkdir()
        job = headrace_job.Job(self.program, options, self.folder / "run", ranks=3)
        self.assertTrue(job.wait_for_steps(2), "the job ended at its start")
        return job

    def end_after(self, signal_number):
        job = self.start()
        victim = job.rank_pids()[1]
        sent = time.monotonic()
        os.kill(victim, signal_number)
        outcome = job.wait(timeout=60)
        return outcome, time.monotonic() - sent

    def test_killed_rank_ends_the_job_with_its_status(self):
        outcome, seconds = self.end_after(signal.SIGKILL)
        self.assert_status(128 + signal.SIGKILL, outcome)
        self.assertLess(seconds, TIMEOUT_SECONDS + LAUNCHER_SECONDS)

    def test_hung_rank_ends_the_job_within_the_timeout_and_names_what_waited(self):
        outcome, seconds = self.end_after(signal.SIGSTOP)
        self.assertNotEqual(0, outcome.status, outcome)
        self.assertLess(seconds, TIMEOUT_SECONDS + LAUNCHER_SECONDS)
        self.assert_says(outcome, "rank", "5 s")
        self.assertRegex(outcome.stderr, r"all_gather|all_to_all|all_reduce|broadcast|barrier|all-gather|all-to-all|all-reduce")


if __name__ == "__main__":
    job_test.main()
