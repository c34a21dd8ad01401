"""On CUDA devices, emulated or real, the final state is the same by every bit whatever the placement and the timing.

Under emulation each run but the references holds its stream work back by random times of its own seed, and ends at the first
pair of accesses that no event orders.
"""
import job_test
import state_grid

SEEDS = 20
TIERS_OF_STATES = [{"ranks": ranks, "accumulation": 1, **state_grid.REFERENCE, "stage": stage, "offload_optimizer": tier}
                   for ranks in (1, 2, 4) if ranks in state_grid.FACTORS["ranks"]
                   for stage in state_grid.FACTORS["stage"] for tier in state_grid.TIERS]


class CudaGrid(job_test.JobTest):
    def test_state_hash_depends_on_neither_placement_nor_delays(self):
        comparison = state_grid.Comparison(self.program, self.corpus, self.folder)
        for case in state_grid.references():
            outcome = comparison.add(case)
            self.assertIsNotNone(outcome, comparison.differing)
            state_grid.check_clipping(outcome)
        cases = TIERS_OF_STATES + state_grid.pairwise()
        if 4 in state_grid.FACTORS["ranks"]:
            self.assertGreaterEqual(len(cases), SEEDS)
        for seed, case in enumerate(cases, start=1):
            comparison.add(case, HEADRACE_EMULATED_DELAYS=str(seed))
        self.assertEqual([], comparison.differing)
        print(f"{comparison.runs} runs in {len(comparison.hashes)} groups are equal, {len(cases)} of them delayed")

    def test_state_hash_of_llama_depends_on_neither_placement_nor_delays(self):
        comparison = state_grid.Comparison(self.program, self.corpus, self.folder)
        for seed, case in enumerate(state_grid.llama_cases(), start=1):
            comparison.add(case, HEADRACE_EMULATED_DELAYS=str(seed))
        self.assertEqual([], comparison.differing)


if __name__ == "__main__":
    job_test.main()
