"""The same global batch gives the same losses at every world size, within rounding of the sums."""
import headrace_job
import job_test


class WorldSize(job_test.JobTest):
    def losses(self, ranks, **more):
        outcome = self.train(ranks, name=f"ranks-{ranks}", dtype="fp32", steps=10, batch_size=8 // ranks, learning_rate=1e-3,
                             stage=2, offload_optimizer="cpu", swap_path=None, **more)
        self.assert_status(0, outcome)
        self.assertEqual(10, len(outcome.steps), outcome)
        return [step["loss"] for step in outcome.steps]

    def test_losses_of_1_2_and_4_ranks_agree(self):
        alone = self.losses(1)
        self.assertNotAlmostEqual(alone[0], alone[-1], places=2)  # something was learned
        for ranks in (n for n in (2, 4) if n <= headrace_job.most_ranks()):
            for step, (expected, loss) in enumerate(zip(alone, self.losses(ranks))):
                self.assertLess(abs(loss - expected) / expected, 1e-5, f"{ranks} ranks, step {step + 1}")

    def test_losses_of_accumulated_micro_batches_agree(self):
        alone = self.losses(1)
        outcome = self.train(1, name="accumulated", dtype="fp32", steps=10, batch_size=2, accumulation=4, learning_rate=1e-3,
                             stage=0, offload_optimizer="none", swap_path=None)
        self.assert_status(0, outcome)
        for expected, step in zip(alone, outcome.steps):
            self.assertLess(abs(step["loss"] - expected) / expected, 1e-5)


if __name__ == "__main__":
    job_test.main()
