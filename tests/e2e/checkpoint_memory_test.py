"""Saving and loading take little memory beside what training takes: buffers of a fixed size and one optimizer block."""
import headrace_job
import job_test

MIB = 1 << 20
CHECKPOINT_MEMORY = 16 * MIB  # checkpoint_memory_bytes
BLOCK = 3 * MIB  # --swap-block
NOISE = 4 * MIB  # stacks, the I/O engine of a run that has no other use for it, what the allocator keeps
RESIDENT = {"offload_optimizer": "cpu", "offload_gradients": "cpu", "offload_parameters": "cpu", "swap_path": None, "overwrite_swap": None}
ON_NVME = {"offload_optimizer": "nvme", "offload_gradients": "nvme", "offload_parameters": "nvme"}


class CheckpointMemory(job_test.JobTest):
    """States of 10.6 M parameters take 122 MiB, so that a second copy of them, or of a rank's share, would be seen."""

    def peak(self, ranks, name, **more):
        """The most that any rank had resident."""
        outcome = self.train(ranks, name, model="gpt2-mini", **more)
        self.assert_status(0, outcome)
        return outcome.summary["peak_rss_bytes"]

    def check(self, placement):
        if headrace_job.most_ranks() < 2:
            self.skipTest("two ranks need as many devices")
        allowed = CHECKPOINT_MEMORY + BLOCK + NOISE
        for saved_at in (1, 2):
            saved = self.folder / f"saved-{saved_at}"
            steady = self.peak(saved_at, "steady", steps=1, **placement)
            saving = self.peak(saved_at, "saving", steps=1, checkpoint_dir=saved, **placement)
            self.assertLessEqual(saving - steady, allowed, f"saving at {saved_at}: {saving / MIB:.1f} MiB, {steady / MIB:.1f} without")
            for ranks in (1, 2):
                steady = self.peak(ranks, "steady", steps=2, **placement)
                loading = self.peak(ranks, "loading", steps=2, resume=saved / "step-00000001", **placement)
                self.assertLessEqual(loading - steady, allowed,
                                     f"{saved_at} -> {ranks}: {loading / MIB:.1f} MiB, {steady / MIB:.1f} without")

    def test_of_states_on_the_host_is_bounded(self):
        self.check(RESIDENT)

    def test_of_states_on_nvme_is_bounded(self):
        self.check(ON_NVME)


if __name__ == "__main__":
    job_test.main()
