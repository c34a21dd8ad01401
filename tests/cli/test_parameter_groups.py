"""Parameter groups by patterns of names: from a file and as a flag, what they change, show and say at a resume."""

import json
import re
import unittest

from program import NANO, ON_NVME, ProgramTest

CONSTANT = ["--schedule", "constant", "--steps", 3, "--quiet"]


def as_flag(*groups):
    return ["--parameter-groups", json.dumps(groups)]


class ParameterGroups(ProgramTest):
    def hash_of(self, *flags):
        return re.search(r"state_hash\s+(\w+)", self.succeeds("train", *NANO, *CONSTANT, *flags).stdout).group(1)

    def test_a_group_of_all_parameters_means_what_the_flags_mean(self):
        half = self.hash_of("--learning-rate", 1e-3, "--weight-decay", 0)
        everything = {"parameters": ["*"], "learning_rate_factor": 0.5, "weight_decay": 0}
        self.assertEqual(self.hash_of("--learning-rate", 2e-3, *as_flag(everything)), half)
        other = {"parameters": "*", "betas": [0.8, 0.97], "eps": 1e-6}
        flags = ["--beta1", 0.8, "--beta2", 0.97, "--epsilon", 1e-6]
        self.assertEqual(self.hash_of(*as_flag(other)), self.hash_of(*flags))

    def test_groups_of_a_file_are_those_of_the_flag_in_any_tier(self):
        groups = [{"parameters": ["w?e.*"], "learning_rate_factor": 0},
                  {"parameters": ["h.*.attn.*"], "weight_decay": 0.3}]
        self.write("run.json", json.dumps({"headrace": {"parameter_groups": groups}}))
        expected = self.hash_of(*as_flag(*groups))
        self.assertNotEqual(expected, self.hash_of())
        self.assertEqual(self.hash_of("--config", "run.json", *ON_NVME), expected)
        self.assertEqual(self.hash_of("--config", "run.json", "--stage", 2, "--offload-optimizer", "cpu"), expected)

    def test_a_resume_names_groups_that_changed(self):
        run = ["train", *NANO, *ON_NVME, "--schedule", "constant"]
        slow = as_flag({"parameters": ["wpe.*"], "learning_rate_factor": 0.1})
        self.succeeds(*run, *slow, "--steps", 1)
        same = self.succeeds(*run, *slow, "--steps", 2, "--resume", "swap")
        self.assertNotIn("other settings", same.stderr)
        changed = self.succeeds(*run, "--steps", 3, "--resume", "swap")
        self.assertIn('--parameter-groups default (was [{"parameters":["wpe.*"],"learning_rate_factor":0.1}])',
                      changed.stderr)

    def test_plan_train_and_the_effective_configuration_show_them(self):
        groups = as_flag({"parameters": ["wpe.*"], "weight_decay": 0})
        plan = self.succeeds("plan", "--model", "gpt2-nano", "--batch-size", 1, *groups).stdout
        for text in (plan, self.succeeds("train", *NANO, "--steps", 1, *groups).stderr):
            self.assertIn('group 1: 8192 parameters in 1 tensor: {"parameters":["wpe.*"],"weight_decay":0.0}', text)
            self.assertRegex(text, r"group 0: \d+ parameters in \d+ tensors: all others")
        shown = json.loads(self.succeeds("train", *NANO, *groups, "--print-config").stdout)
        self.assertEqual(shown["headrace"]["parameter_groups"], [{"parameters": ["wpe.*"], "weight_decay": 0.0}])

    def test_the_plan_the_trainer_and_the_engine_give_a_group_one_number(self):
        wpe, wte = ({"parameters": [name], "weight_decay": 0.0} for name in ("wpe.*", "wte.*"))
        plan = self.succeeds("plan", "--model", "gpt2-nano", *as_flag(wpe, wte)).stdout
        self.assertIn('parameter group 2: 16384 parameters in 1 tensor: {"parameters":["wte.*"],"weight_decay":0.0}', plan)
        run = ["train", *NANO, *CONSTANT]
        self.refused(*run, *as_flag(wpe, {**wte, "eps": -1}), says=['--parameter-groups, group 2, "eps": -1 is not'])
        self.refused(*run, "--learning-rate", 1e30, *as_flag(wpe, {**wte, "learning_rate_factor": 1e30}),
                     says=["--learning-rate is too large at 1e+30", "parameter group 2: optimizer: learning rate"])

    def test_a_pattern_that_matches_nothing_is_refused_with_the_nearest_names(self):
        self.refused("train", *NANO, *CONSTANT, *as_flag({"parameters": ["wpe.wieght"]}),
                     says=['"wpe.wieght" of group 1 matches no parameter of gpt2-nano', "nearest names are wpe.weight"])
        self.refused("train", *NANO, "--parameter-groups", '[{"parameters": ', says=["--parameter-groups"])


if __name__ == "__main__":
    unittest.main()
