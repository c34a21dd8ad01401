"""kill -9 at random moments, then --resume swap: the end is the uninterrupted run's end, by every bit.

A few moments; perf/grid/kill_resume.py tries many.
"""
import time

import job_test
import kill_resume


class Kill(job_test.JobTest):
    def kills_leave_a_run_that_resumes(self, ranks, moments):
        seed = time.time_ns() % 2**32
        print(f"seed {seed}")
        trials = kill_resume.KillResume(self.program, self.corpus, self.folder, ranks, seed)
        for number in range(moments):
            text, same = trials.trial(number)
            print(text)
            self.assertTrue(same, f"seed {seed}: {text}")

    def test_one_rank_killed_at_any_moment_resumes_to_the_same_state(self):
        self.kills_leave_a_run_that_resumes(ranks=1, moments=3)

    def test_ranks_killed_at_any_moment_resume_to_the_same_state(self):
        self.kills_leave_a_run_that_resumes(ranks=2, moments=2)


if __name__ == "__main__":
    job_test.main()
