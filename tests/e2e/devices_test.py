"""A run on CUDA devices learns what the same run on the CPU device learns: equal losses within the rounding of fp32 sums.

usage: devices_test.py PROGRAM (for the jobs' device) CPU-PROGRAM
"""
import pathlib
import struct
import subprocess
import sys

import headrace_job
import job_test


class Devices(job_test.JobTest):
    cpu_program = None

    def losses(self, program, name, **options):
        device, headrace_job.DEVICE = headrace_job.DEVICE, "cpu" if program == self.cpu_program else headrace_job.DEVICE
        try:
            outcome = headrace_job.train(program, self.options(dtype="fp32", steps=8, batch_size=4, swap_path=None, stage=2,
                                                               offload_optimizer="cpu", learning_rate=1e-3, **options),
                                         self.folder / name)
        finally:
            headrace_job.DEVICE = device
        self.assert_status(0, outcome)
        self.assertEqual(8, len(outcome.steps))
        return [step["loss"] for step in outcome.steps]

    def check(self, **options):
        on_cpu = self.losses(self.cpu_program, f"cpu-{len(options)}", **options)
        self.assertNotAlmostEqual(on_cpu[0], on_cpu[-1], places=2)  # something was learned
        for step, (expected, loss) in enumerate(zip(on_cpu, self.losses(self.program, f"cuda-{len(options)}", **options))):
            self.assertLess(abs(loss - expected) / expected, 1e-5, f"step {step + 1} {options}")

    def test_losses_on_both_devices_agree(self):
        self.check()

    def test_losses_of_llama_agree(self):
        self.check(model="llama-nano")

    def test_losses_with_recomputation_and_accumulation_agree(self):
        self.check(recompute=True, accumulation=2)

    def test_logits_of_generate_agree(self):
        for model in ("gpt2-nano", "llama-nano"):
            subprocess.run([self.cpu_program, "train", "--model", model, "--data", __file__, "--steps", "2", "--batch-size", "2",
                            "--sequence-length", "16", "--checkpoint-dir", self.folder / model], check=True, capture_output=True)
            results = []
            for program, device in ((self.cpu_program, "cpu"), (self.program, "cuda")):
                path = self.folder / f"{model}-{device}.npy"
                done = subprocess.run([program, "generate", self.folder / model, "--prompt", "def test_it(", "--dtype", "fp32",
                                       "--temperature", "0", "--max-tokens", "20", "--device", device, "--logits", path],
                                      capture_output=True, text=True)
                self.assertEqual(0, done.returncode, done.stderr)
                results.append((done.stdout, path.read_bytes()))
            (text, on_cpu), (other_text, on_cuda) = results
            self.assertEqual(text, other_text)
            self.assertEqual(len(on_cpu), 128 + (12 + 20 - 1) * 256 * 4)
            self.assertEqual(on_cpu[:128], on_cuda[:128])
            for (a,), (b,) in zip(struct.iter_unpack("<f", on_cpu[128:]), struct.iter_unpack("<f", on_cuda[128:])):
                self.assertLess(abs(a - b), 1e-5 * max(1, abs(a)))


if __name__ == "__main__":
    Devices.cpu_program = pathlib.Path(sys.argv.pop(2)).resolve()
    job_test.main()
