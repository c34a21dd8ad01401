"""Bad input is refused with one clear paragraph, before anything is created; help and plans are right."""

import json
import os
import re
import unittest

from program import NANO, ON_NVME, TINY, ProgramTest


class Help(ProgramTest):
    def test_each_command_explains_itself_once_with_an_example(self):
        for command in ("train", "plan", "inspect", "generate", "doctor", "bench", "bench link", "bench collectives", "bench adam", "bench nvme", "tune",
                        "checkpoint copy", "checkpoint release"):
            text = self.succeeds(*command.split(), "--help").stdout
            self.assertEqual(text.count("Usage:"), 1)
            self.assertIn("Example", text)
            self.assertIn("Exit status", text)
            self.assertLess(max(map(len, text.splitlines())), 130)

    def test_program_names_its_commands_and_version(self):
        text = self.succeeds("--help").stdout
        for command in ("train", "plan", "inspect", "generate", "checkpoint", "doctor", "bench", "tune"):
            self.assertIn(command, text)
        self.assertRegex(self.succeeds("--version").stdout, r"^headrace \d+\.\d+\.\d+\n$")

    def test_no_command_shows_the_help_and_fails(self):
        result = self.run_program()
        self.assertEqual(result.returncode, 2)
        self.assertIn("train", result.stdout)


class Names(ProgramTest):
    def test_unknown_flag_names_the_nearest(self):
        self.refused("train", *TINY, "--step", "3", says=["--step ", "Did you mean --steps?"])
        self.refused("train", *TINY, "--lerning-rate=3", says=["--lerning-rate ", "--learning-rate"])
        self.refused("inspect", "swap", "--verfy", says=["--verify"])

    def test_unknown_command_names_the_nearest(self):
        self.refused("trian", says=["trian", "Did you mean train?"])

    def test_stray_word_is_refused(self):
        self.refused("train", *TINY, "word", says=["word"])
        self.refused("train", *TINY, "plan", says=["plan cannot follow train"])
        self.refused("--steps", "3", says=["--steps comes behind its command"])
        self.refused("", says=['""'])

    def test_flag_given_twice_with_another_value_is_refused(self):
        self.refused("plan", *TINY, "--stage", "1", "--stage", "2", says=["--stage is given twice", "1", "2"])
        self.refused("plan", *TINY, "--world-size", "1", "--world-size", "2", says=["--world-size is given twice"])
        self.refused("plan", *TINY, "--config", "a", "--config", "b", says=["--config is given twice"])
        self.succeeds("plan", *TINY, "--stage", "1", "--stage", "1")

    def test_flag_without_its_value_is_refused(self):
        self.refused("plan", "--model", says=["--model needs a value"])
        self.refused("plan", *TINY, "--swap-path", "--stage", "3", says=["3"])
        self.refused("plan", *TINY, "--swap-path", "--stage", says=["--swap-path needs a value", "--stage"])
        self.refused("plan", *TINY, "--config", "", says=["--config", "empty"])

    def test_switch_takes_true_and_false_alone(self):
        printed = self.succeeds("plan", *TINY, "--recompute=false", "--print-config").stdout
        self.assertFalse(json.loads(printed)["headrace"]["recompute"])
        for value in ("5", "maybe"):
            self.refused("plan", *TINY, f"--recompute={value}", says=["--recompute", "true or false"])

    def test_every_model_is_listed_and_can_be_planned_by_its_name_alone(self):
        text = self.succeeds("train", "--help").stdout
        self.assertIn("gpt2-nano|mini|70m|124m|355m|774m|1.5b, llama-nano|mini|160m|1b", text)
        for model in ("gpt2-nano", "llama-nano"):
            self.succeeds("plan", "--model", model)

    def test_example_of_the_help_fits_into_the_memory_that_it_names(self):
        text = self.succeeds("train", "--help").stdout.replace("\\\n", " ")
        examples = [line.split() for line in text.splitlines() if line.startswith("  headrace train ")]
        self.assertTrue(examples)
        for words in examples:
            flags = [str(self.folder / "swap") if before == "--swap-path" else "data.txt" if "data" in before else word
                     for before, word in zip(words[1:], words[2:])]
            self.succeeds("plan", *flags)

    def test_unknown_key_names_the_nearest_and_its_section(self):
        self.write("c.json", '{"zero_optimization": {"stgae": 2}}')
        self.refused("train", *TINY, "--config", "c.json", says=["c.json", "zero_optimization.stgae", '"stage"'])

    def test_missing_configuration_is_named(self):
        self.refused("train", *TINY, "--config", "nowhere.json", says=["nowhere.json", "does not exist"])

    def test_unknown_model_names_the_nearest(self):
        self.refused("train", "--model", "gpt2-mni", "--data", "data.txt", says=["gpt2-mni", "gpt2-mini"])
        self.refused("train", "--data", "data.txt", says=["--model"])

    def test_wrong_values_name_the_flag_and_what_is_allowed(self):
        for flag, value, allowed in (
            ("--steps", "-3", "at least 1"), ("--steps", "many", "whole number"), ("--stage", "4", "from 0 to 3"),
            ("--learning-rate", "-1", "at least 0"), ("--learning-rate", "nan", "at least 0"),
            ("--device-memory", "12XB", "64MiB"), ("--offload-optimizer", "nvm", "Did you mean nvme?"),
            ("--swap-buffers", "2", "from 3"), ("--dtype", "fp17", "fp16"), ("--resume", "latest", "--checkpoint-dir"),
            ("--device-memory", "0", "no limit"), ("--host-memory", "1.5", "fraction"), ("--timeout", "0", "from 1"),
            ("--link-bandwidth", "1", "1MB/s"), ("--steps", "99999999999999999999", "The largest is"),
            ("--metrics", "", "empty"), ("--clip", "1e400", "64-bit"), ("--durability", "none", "--offload-optimizer nvme"),
        ):
            with self.subTest(flag=flag, value=value):
                self.refused("train", *TINY, flag, value, says=[flag, allowed])


class Data(ProgramTest):
    def data(self, path):
        return [*TINY[:-1], path]

    def test_missing_empty_and_short_data_are_refused(self):
        self.refused("train", *self.data("nothing.txt"), says=["nothing.txt", "No such file"])
        self.refused("train", *self.data(self.write("empty.txt", "")), says=["empty.txt", "empty"])
        self.refused("train", *self.data(self.write("short.txt", "0123456789abcdef")), says=["short.txt", "16", "17"])
        self.refused("train", *TINY[:-2], says=["--data"])

    def test_held_out_data_are_checked_before_the_run(self):
        self.refused("train", *TINY, "--eval-data", "nothing.txt", says=["nothing.txt"])
        self.refused("train", *TINY, "--eval-every", "5", says=["--eval-data"])

    def test_ids_of_another_vocabulary_are_refused_with_their_place(self):
        self.refused("train", *self.data(self.write("tokens.bin", "x" * 100)), says=["tokens.bin", "token 0", "--token-bits"])


class Batch(ProgramTest):
    # FIELD-CASES G1.
    def test_batch_that_does_not_divide_is_refused_with_the_numbers(self):
        self.refused("train", *TINY[:2], "--data", "data.txt", "--global-batch-size", 10, "--accumulation", 4,
                     says=["10", "4", "world size of 1"])
        self.write("c.json", '{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}')
        self.refused("train", *TINY[:2], "--data", "data.txt", "--config", "c.json", says=["32", "= 8", "no launcher"])


class Limits(ProgramTest):
    def test_limits_too_small_are_refused_with_ledger_and_change_and_nothing_is_left(self):
        result = self.refused("train", *TINY, *ON_NVME, "--device-memory", "20MiB", "--metrics", "m.jsonl", status=3,
                              says=["does not fit", "optimizer", "20.0 MiB", "It fits with"])
        self.assertIn("--", result.stderr[result.stderr.index("It fits with"):])
        self.assertEqual(list((self.folder / "swap").iterdir()), [])
        self.assertFalse((self.folder / "m.jsonl").exists())

    def test_host_limit_is_refused_too(self):
        self.refused("train", *TINY, "--offload-optimizer", "cpu", "--host-memory", "10MiB", status=3,
                     says=["host memory", "10.0 MiB"])

    def test_the_change_that_is_named_fits(self):
        flags = ["plan", *TINY, "--device-memory", "60MiB"]
        result = self.run_program(*flags)
        self.assertEqual(result.returncode, 3)
        change = re.search(r"It fits with (.*?), or as it is with (--device-memory \S+?)\.", result.stdout)
        self.assertIsNotNone(change, result.stdout)
        extra = change[1].split() + (["--swap-path", "swap"] if "nvme" in change[1] else [])
        self.succeeds(*flags, *extra)
        self.succeeds(*flags[:-2], *change[2].split())


    def test_only_limits_that_were_given_are_named(self):
        result = self.refused("plan", "--model", "gpt2-70m", "--batch-size", "2000000", status=3, says=["--batch-size"])
        self.assertNotIn("limit", result.stderr)

    def test_a_block_that_is_too_large_is_what_is_changed(self):
        result = self.run_program("plan", *TINY, *ON_NVME, "--swap-block", "1GiB", "--host-memory", "100MiB")
        self.assertEqual(result.returncode, 3)
        self.assertIn("It fits with --swap-block 8192KiB, or", result.stdout)


class Placement(ProgramTest):
    # FIELD-CASES A16, G2.
    def test_swap_path_that_cannot_be_used_is_refused_by_name(self):
        nvme = ["train", *TINY, "--offload-optimizer", "nvme"]
        self.refused(*nvme, says=["--swap-path"])
        self.refused(*nvme, "--swap-path", "no where é", says=["no where é", "does not exist"])
        self.refused(*nvme, "--swap-path", "data.txt", says=["data.txt", "not a folder"])
        os.symlink("gone", self.folder / "link")
        self.refused(*nvme, "--swap-path", "link", says=["link", "dangling"])

    def test_tiers_that_the_stage_does_not_allow_are_refused(self):
        self.refused("train", *TINY, "--offload-parameters", "cpu", says=["stage 3"])
        self.refused("train", *TINY, "--offload-gradients", "cpu", "--stage", "1", says=["stages 2 and 3"])
        self.refused("train", *TINY, "--swap-path", "swap", says=["--offload-optimizer nvme"])

    # FIELD-CASES C6.
    def test_resume_with_nothing_there_is_refused(self):
        self.refused("train", *TINY, *ON_NVME, "--resume", "swap", says=["nothing to continue from"])
        self.refused("train", *TINY, "--resume", "swap", says=["--offload-optimizer nvme"])
        self.assertEqual(list((self.folder / "swap").iterdir()), [])

    def test_inspect_of_something_else_is_refused(self):
        self.refused("inspect", "nowhere", says=["nowhere does not exist"])
        self.refused("inspect", "data.txt", says=["data.txt", "no swap store"])
        self.refused("inspect", "", says=["PATH", "empty"])
        self.refused("inspect", says=["PATH"])

    def test_cuda_says_how_to_get_it(self):
        self.refused("train", *TINY, "--device", "cuda", says=["CUDA"])


class Plan(ProgramTest):
    def test_json_has_the_documented_keys_and_adds_up(self):
        plan = json.loads(self.succeeds("plan", *TINY, "--json", "--stage", "3", "--world-size", "4", *ON_NVME).stdout)
        self.assertTrue(plan["fits"])
        self.assertEqual(plan["stage"], 3)
        for tier in ("device", "host", "nvme"):
            self.assertEqual(sum(plan["tiers"][tier].values()), plan["total"][tier])
        self.assertGreater(plan["tiers"]["nvme"]["optimizer"], 0)

    def test_plan_counts_the_bytes_of_each_type_of_state(self):
        for flags, bytes_a_parameter in (([], 12), (["--moments", "bf16"], 8), (["--moments", "int8"], 6.125),
                                         (["--moments", "int8", "--master-dtype", "bf16"], 4.125),
                                         (["--moments", "bf16", "--master-dtype", "none"], 4), (["--amsgrad"], 16),
                                         (["--optimizer", "lion"], 8), (["--optimizer", "sgd"], 4),
                                         (["--optimizer", "adagrad", "--moments", "bf16"], 6)):
            plan = json.loads(self.succeeds("plan", "--model", "gpt2-124m", "--json", *flags).stdout)
            self.assertEqual(plan["state_bytes_a_parameter"], bytes_a_parameter, flags)
            self.assertAlmostEqual(plan["tiers"]["device"]["optimizer"] / plan["parameters"] / bytes_a_parameter, 1, 2, flags)

    def test_plan_and_train_say_which_optimizer_it_is(self):
        for flags, line in (([], "adamw, betas 0.9 0.95, epsilon 1e-08, weight decay 0.1; fp32 master, fp32 moments"),
                            (["--optimizer", "adam"], "adam, betas 0.9 0.999, epsilon 1e-08, weight decay 0; fp32 master"),
                            (["--optimizer", "adam", "--amsgrad", "--weight-decay", 0.1, "--moments", "int8"],
                             "adam with amsgrad, betas 0.9 0.999, epsilon 1e-08, weight decay 0.1; fp32 master, int8 moments"),
                            (["--optimizer", "lion"], "lion, betas 0.9 0.99, weight decay 0; fp32 master, fp32 moments"),
                            (["--optimizer", "adagrad", "--lr-decay", 0.5],
                             "adagrad, epsilon 1e-10, weight decay 0, decay of the rate 0.5; fp32"),
                            (["--optimizer", "sgd", "--momentum", 0.9, "--nesterov", "--maximize"],
                             "sgd, momentum 0.9, nesterov, weight decay 0, up the gradient; fp32")):
            self.assertIn(f"optimizer: {line}", self.succeeds("plan", "--model", "gpt2-nano", "--batch-size", 1, *flags).stdout)
            said = self.succeeds("train", *NANO, "--steps", 1, *flags).stderr
            self.assertRegex(said, "optimizer +" + re.escape(line))

    def test_plan_takes_the_flags_of_train_and_shows_wear(self):
        text = self.succeeds("plan", *TINY, *ON_NVME, "--steps", "5", "--learning-rate", "1e-3", "--quiet").stdout
        self.assertIn("SSD wear", text)

    def test_stage_is_the_smallest_that_fits(self):
        text = self.run_program("plan", *TINY, "--world-size", "4", "--device-memory", "100MiB", "--json").stdout
        plan = json.loads(text)
        smallest = plan["smallest_stage_that_fits"]
        for stage in range(4):
            fits = self.run_program("plan", *TINY, "--world-size", "4", "--device-memory", "100MiB", "--stage", stage)
            self.assertEqual(fits.returncode == 0, stage >= smallest, f"stage {stage}, smallest {smallest}")


class Configuration(ProgramTest):
    def test_printed_configuration_gives_itself(self):
        self.write("c.json", '{"train_batch_size": 6, "zero_optimization": {"stage": 2}, "headrace": {"seed": 3}}')
        flags = ["--model", "gpt2-mini", "--data", "data.txt", "--config", "c.json", "--clip", "0.5", "--print-config"]
        first = self.succeeds("train", *flags).stdout
        effective = json.loads(first)["headrace"]
        self.assertEqual((effective["global_batch_size"], effective["stage"], effective["clip"]), (6, 2, 0.5))
        self.write("printed.json", first)
        self.assertEqual(self.succeeds("train", "--config", "printed.json", "--print-config").stdout, first)

    def test_printed_configuration_holds_at_another_world_size(self):
        self.write("c.json", '{"train_batch_size": 6}')
        for given in (["--config", "c.json"], ["--batch-size", "3"], []):
            self.write("printed.json", self.succeeds("plan", "--model", "gpt2-nano", *given, "--print-config").stdout)
            two = ["--world-size", "2"]
            self.assertEqual(self.succeeds("plan", "--config", "printed.json", *two).stdout,
                             self.succeeds("plan", "--model", "gpt2-nano", *given, *two).stdout)

    def test_what_is_no_regular_file_is_refused_at_once(self):
        os.mkfifo(self.folder / "pipe")
        for path in ("pipe", "/dev/zero", "swap"):
            self.refused("plan", *TINY, "--config", path, says=[path, "cannot be read"], timeout=10)

    def test_broken_json_is_told_with_line_and_column_and_no_words_of_a_library(self):
        self.write("c.json", '{"headrace": {\n  "steps": 3,\n}}')
        result = self.refused("plan", *TINY, "--config", "c.json", says=["c.json, line 3, column 1", "comma before the closing }"])
        self.assertNotIn("exception", result.stderr)

    def test_hints_are_one_note(self):
        self.write("c.json", '{"aio": {"block_size": 5, "queue_depth": 3}, "zero_optimization": {"overlap_comm": true}}')
        result = self.succeeds("plan", *TINY, "--config", "c.json")
        self.assertEqual(len(result.stderr.splitlines()), 1)
        for key in ("aio.block_size", "aio.queue_depth", "zero_optimization.overlap_comm"):
            self.assertIn(key, result.stderr)


if __name__ == "__main__":
    unittest.main()
