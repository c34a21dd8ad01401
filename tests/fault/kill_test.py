"""kill -9 at random moments: the state on disk is always the last step committed on every rank, by every bit.

A few moments; perf/grid/kill_resume.py tries many.
"""
import time

import job_test
import kill_resume


class Kill(job_test.JobTest):
    steps = {1: 16, 3: 7}  # of the run that nobody kills, by its ranks
    references = {}

    def expected(self, ranks, more=None):
        key = (ranks, more is not None)
        if key not in self.references:
            self.references[key] = kill_resume.reference(self.program, self.corpus, self.folder / "reference", ranks,
                                                         self.steps[ranks], more)
        return self.references[key]

    def kills_leave_the_last_commit(self, ranks, moments, **store):
        seed = time.time_ns() % 2**32
        print(f"seed {seed}")
        trials = kill_resume.KillResume(self.program, self.corpus, self.folder / "killed", ranks, seed,
                                        self.expected(ranks, store.get("more")), **store)
        for number in range(moments):
            text, good = trials.trial(number)
            print(text)
            self.assertTrue(good, f"seed {seed}: {text}")
        text, good = trials.finish()
        self.assertTrue(good, f"seed {seed}: {text}")

    def test_of_one_rank_leaves_the_last_commit(self):
        self.kills_leave_the_last_commit(ranks=1, moments=8)

    # FIELD-CASES N5, N9: the loss scale grows and falls within the run, and its steps are part of what is committed.
    def test_in_fp16_leaves_the_last_commit_and_the_search_for_a_loss_scale_goes_on(self):
        self.kills_leave_the_last_commit(ranks=1, moments=3, more={"dtype": "fp16", "loss_scale_window": 1})

    def test_with_parity_over_three_paths_leaves_the_last_commit(self):
        self.kills_leave_the_last_commit(ranks=1, moments=4, paths=3, parity=1)

    def test_of_ranks_at_different_times_leaves_the_last_step_committed_on_all(self):
        self.kills_leave_the_last_commit(ranks=3, moments=2)

    def test_of_ranks_over_two_paths_leaves_the_last_step_committed_on_all(self):
        self.kills_leave_the_last_commit(ranks=3, moments=2, paths=2)

    def test_of_ranks_with_parity_over_three_paths_leaves_the_last_step_committed_on_all_and_without_any_one_path(self):
        self.kills_leave_the_last_commit(ranks=3, moments=3, paths=3, parity=1)


if __name__ == "__main__":
    job_test.main()
