"""Models in fp16: the loss scale that a run shows, finds, keeps over a resume, and ends at."""

import json
import re
import unittest

from program import NANO, ON_NVME, ProgramTest
from test_ranks import MPIRUN, own_messages, ranks

CONSTANT = ["--schedule", "constant", "--quiet"]


class LossScale(ProgramTest):
    def steps(self, *flags, **options):
        self.succeeds("train", *NANO, *CONSTANT, "--metrics", "m.jsonl", *flags, **options)
        return [line for line in self.metrics("m.jsonl") if line["event"] == "step"]

    def test_fp16_learns_as_bf16_does(self):
        fp16 = self.steps("--dtype", "fp16", "--steps", 12)
        self.assertEqual({line["loss_scale"] for line in fp16}, {65536})
        bf16 = self.steps("--dtype", "bf16", "--steps", 12)
        self.assertEqual({line["loss_scale"] for line in bf16}, {1})
        for one, two in zip(fp16, bf16, strict=True):
            self.assertAlmostEqual(one["loss"], two["loss"], delta=0.02)
            self.assertAlmostEqual(one["grad_norm"], two["grad_norm"], delta=0.02 * two["grad_norm"])

    def test_the_scale_is_shown_where_there_is_one(self):
        shown = self.succeeds("train", *NANO, "--dtype", "fp16", "--steps", 1)
        self.assertIn("scale 65536", shown.stderr)
        self.assertRegex(shown.stdout, r"loss scale +65536")
        self.assertNotIn("scale", self.succeeds("train", *NANO, "--steps", 1).stderr)

    # FIELD-CASES N5, N9.
    def test_a_scale_that_is_too_large_comes_down_by_the_rule_and_a_resume_within_goes_on(self):
        flags = ["--dtype", "fp16", "--initial-scale-power", 30, "--loss-scale-hysteresis", 3, *ON_NVME]
        whole = self.steps(*flags, "--steps", 24)
        expected = self.summary("m.jsonl")["state_hash"]
        skipped = [line["skipped"] for line in whole].index(False)
        self.assertGreater(skipped, 4)
        self.assertEqual([line["loss_scale"] for line in whole[:skipped]],
                         [2.0**30] * 3 + [2.0 ** (30 - i) for i in range(1, skipped - 2)])
        for first in (2, 4, skipped):
            self.run_program("train", *NANO, *CONSTANT, *flags, "--overwrite-swap", "--steps", first)
            self.steps(*flags, "--steps", 24, "--resume", "swap")
            self.assertEqual(self.metrics("m.jsonl")[-1]["state_hash"], expected, first)

    # FIELD-CASES N5.
    def test_an_overflow_at_the_smallest_scale_ends_the_run_with_the_parameter_and_what_to_do(self):
        self.refused("train", *NANO, *CONSTANT, "--dtype", "fp16", "--initial-scale-power", 50, "--min-loss-scale", 2**50,
                     status=1, says=["step 2", "loss scale is at its minimum", "in the gradient of rank 0", "--dtype bf16"])

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_an_overflow_at_the_smallest_scale_ends_every_rank_with_one_message(self):
        result = self.run_program("train", *NANO, *CONSTANT, "--dtype", "fp16", "--stage", 3, "--initial-scale-power", 50,
                                  "--min-loss-scale", 2**50, prefix=ranks(3))
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(len(own_messages(result.stderr)), 1, result.stderr)
        self.assertRegex(result.stderr, r"The first such value is element \d+ of \S+, in the gradient of ranks? ")

    def test_a_fixed_scale_that_is_too_large_is_said(self):
        self.refused("train", *NANO, *CONSTANT, "--dtype", "fp16", "--loss-scale", 1e15, "--steps", 30, status=1,
                     says=["1 to 20", "smaller --loss-scale"])

    def test_steps_that_overflow_do_not_move_deepspeeds_schedulers_and_do_headraces(self):
        flags = ["train", *NANO, "--quiet", "--dtype", "fp16", "--initial-scale-power", 24, "--steps", 16, "--metrics", "m.jsonl"]
        self.write("run.json", json.dumps({"scheduler": {"type": "WarmupDecayLR", "params": {
            "total_num_steps": 8, "warmup_num_steps": 3, "warmup_type": "linear"}}}))
        self.succeeds(*flags, "--config", "run.json")
        steps = [line for line in self.metrics("m.jsonl") if line["event"] == "step"]
        self.assertTrue(steps[0]["skipped"])
        self.assertEqual([line["learning_rate"] for line in steps if line["skipped"]], [0] * sum(s["skipped"] for s in steps))
        applied = [line["learning_rate"] for line in steps if not line["skipped"]]
        for rate, expected in zip(applied, [0, 0, 1e-3 / 3, 2e-3 / 3, 1e-3, 8e-4, 6e-4], strict=False):
            self.assertAlmostEqual(rate, expected, delta=1e-12)
        self.succeeds(*flags, "--warmup-steps", 4, "--learning-rate", 1e-3)
        self.assertEqual(self.metrics("m.jsonl")[2]["learning_rate"], 7.5e-4)

    def test_too_few_steps_to_find_a_scale_are_said(self):
        self.refused("train", *NANO, *CONSTANT, "--dtype", "fp16", "--initial-scale-power", 50, "--steps", 3, status=1,
                     says=["every step of this run was skipped", "--initial-scale-power"])

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_every_stage_gives_the_same_state_while_the_scale_comes_down(self):
        hashes = set()
        for stage in range(4):
            text = self.succeeds("train", *NANO, *CONSTANT, "--dtype", "fp16", "--stage", stage, "--initial-scale-power", 22,
                                 "--steps", 12, prefix=ranks(2)).stdout
            hashes.add(re.search(r"state_hash +(\w+)", text)[1])
        self.assertEqual(len(hashes), 1)


if __name__ == "__main__":
    unittest.main()
