"""The final state is the same by every bit whatever the placement: the pairwise part of tests/support/state_grid.py."""
import os
import unittest

import job_test
import state_grid


class StateHash(job_test.JobTest):
    def test_does_not_depend_on_stage_tiers_blocks_prefetch_or_threads(self):
        comparison = state_grid.Comparison(self.program, self.corpus, self.folder)
        for case in state_grid.references():
            outcome = comparison.add(case)
            self.assertIsNotNone(outcome, comparison.differing)
            state_grid.check_clipping(outcome)
        for case in state_grid.pairwise():
            comparison.add(case)
        self.assertEqual([], comparison.differing)
        print(f"{comparison.runs} runs in {len(comparison.hashes)} groups are equal")

    def test_of_llama_does_not_depend_on_stage_tiers_blocks_or_threads(self):
        comparison = state_grid.Comparison(self.program, self.corpus, self.folder)
        for case in state_grid.llama_cases():
            comparison.add(case)
        self.assertEqual([], comparison.differing)
        self.assertEqual(2, len(comparison.hashes))

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs two CPUs to bind to")
    def test_does_not_depend_on_the_numa_nodes_that_threads_and_states_are_on(self):
        comparison = state_grid.Comparison(self.program, self.corpus, self.folder)
        case = {"ranks": 1, "accumulation": 1, **state_grid.REFERENCE}
        comparison.add(case)
        for tier in ("cpu", "nvme"):
            placed = {**case, "stage": 3, "offload_optimizer": tier, "threads": 2}
            comparison.add(placed, HWLOC_SYNTHETIC="node:2 pu:1", HWLOC_THISSYSTEM="1")
        self.assertEqual([], comparison.differing)

    def test_depends_on_what_is_trained(self):
        hashes = set()
        for ranks in (1, 2):
            case = {"ranks": ranks, "accumulation": 1, **state_grid.REFERENCE}
            outcome = state_grid.run(self.program, self.corpus, case, self.folder / f"ranks-{ranks}")
            self.assert_status(0, outcome)
            hashes.add(outcome.state_hash)
        self.assertEqual(2, len(hashes))  # another batch: another state


if __name__ == "__main__":
    job_test.main()
