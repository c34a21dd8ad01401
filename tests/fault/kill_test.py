"""kill -9 at random moments: the state on disk is always the last step committed on every rank, by every bit.

A few moments; perf/grid/kill_resume.py tries many.
"""
import time

import job_test
import kill_resume


class Kill(job_test.JobTest):
    def kills_leave_the_last_commit(self, ranks, moments, **more):
        seed = time.time_ns() % 2**32
        print(f"seed {seed}")
        trials = kill_resume.KillResume(self.program, self.corpus, self.folder, ranks, seed, **more)
        for number in range(moments):
            text, good = trials.trial(number)
            print(text)
            self.assertTrue(good, f"seed {seed}: {text}")
        text, good = trials.finish()
        self.assertTrue(good, f"seed {seed}: {text}")

    def test_of_one_rank_leaves_the_last_commit(self):
        self.kills_leave_the_last_commit(ranks=1, moments=8)

    def test_with_parity_over_three_paths_leaves_the_last_commit(self):
        self.kills_leave_the_last_commit(ranks=1, moments=4, steps=8, paths=3, parity=1)

    def test_of_ranks_at_different_times_leaves_the_last_step_committed_on_all(self):
        self.kills_leave_the_last_commit(ranks=3, moments=3, steps=7)


if __name__ == "__main__":
    job_test.main()
