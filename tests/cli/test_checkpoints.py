"""Checkpoints on the command line: what a folder of them holds, and what is said where a path is something else."""

import json
import shutil
import unittest

from program import NANO, ON_NVME, TINY, ProgramTest

RUN = ["train", *NANO, "--quiet"]


class Checkpoints(ProgramTest):
    def save(self, *more, steps=2, folder="runs"):
        self.succeeds(*RUN, "--steps", steps, "--checkpoint-dir", folder, *more)
        return self.folder / folder

    def flip(self, path, place=-5):
        data = bytearray(path.read_bytes())
        data[place] ^= 4
        path.write_bytes(data)

    def listed(self, status=0):
        listing = self.run_program("inspect", "runs", "--json")
        self.assertEqual(status, listing.returncode, listing.stderr)
        return json.loads(listing.stdout)


class Listing(Checkpoints):
    def test_a_folder_shows_each_checkpoint_with_step_ranks_size_and_state(self):
        runs = self.save("--save-every", 1, steps=3)
        text = self.succeeds("inspect", "runs").stdout
        self.assertIn("3 checkpoints in runs", text)
        for step in (1, 2, 3):
            self.assertRegex(text, rf"runs/step-0000000{step} +{step} +1 +1\.\d+ MiB +20\d\d-\d\d-\d\d \d\d:\d\d +whole\n")
        for one in self.listed()["checkpoints"]:
            self.assertEqual(("whole", 1, []), (one["state"], one["world_size"], one["problems"]))
            self.assertEqual(one["bytes"], sum(file.stat().st_size for file in (self.folder / one["path"]).iterdir()))
        self.assertTrue(runs.exists())

    def test_damaged_ones_are_listed_with_what_is_wrong_and_status_1(self):
        runs = self.save("--save-every", 1, steps=4)
        (runs / "step-00000001" / "manifest.json").write_text("{")
        next((runs / "step-00000002").glob("*.safetensors")).unlink()
        (runs / "step-00000003" / "manifest.json").unlink()
        listing = self.listed(status=1)
        states = {one["step"]: one["state"] for one in listing["checkpoints"]}
        self.assertEqual({1: "damaged", 2: "damaged", 3: "damaged", 4: "whole"}, states)
        text = self.run_program("inspect", "runs")
        self.assertEqual(1, text.returncode)
        for problem in ("step-00000001: ", "step-00000002: rank-00000-of-00001.safetensors is missing", "step-00000003: "):
            self.assertIn("problem: runs/" + problem, text.stdout)
        shutil.rmtree(runs / "step-00000004")
        shutil.rmtree(runs / "step-00000002")
        self.assertEqual(2, len(self.listed(status=1)["checkpoints"]))  # where no manifest is good

    def test_one_that_parity_may_rebuild_is_told_as_such(self):
        runs = self.save("--checkpoint-parity", 1)
        next((runs / "step-00000002").glob("*.safetensors")).unlink()
        (one,) = self.listed(status=1)["checkpoints"]
        self.assertEqual(("damaged", True), (one["state"], one["parity_may_rebuild"]))
        self.succeeds("inspect", "runs", "--repair")
        self.assertEqual("whole", self.listed()["checkpoints"][0]["state"])

    def test_a_folder_that_a_save_left_half_done_is_told_as_partial_and_is_no_damage(self):
        runs = self.save()
        shutil.copytree(runs / "step-00000002", runs / "step-00000003.partial")
        self.assertEqual((["runs/step-00000003.partial"], 1), (self.listed()["partial"], len(self.listed()["checkpoints"])))
        self.assertRegex(self.succeeds("inspect", "runs").stdout, r"step-00000003\.partial .* partial\n")
        shutil.rmtree(runs / "step-00000002")
        self.assertEqual([], self.listed()["checkpoints"])


class OtherPaths(Checkpoints):
    def test_a_path_that_is_no_checkpoint_is_called_what_it_is(self):
        runs = self.save()
        (runs / "step-00000003.partial").mkdir()
        (runs / "step-00000004").mkdir()
        (self.folder / "empty").mkdir()
        self.succeeds("export", "runs/step-00000002", "--to", "model")
        self.succeeds("train", *TINY, *ON_NVME, "--steps", 1, "--quiet")
        for path, says in (("runs/step-00000003.partial", "ended half-way"), ("runs/step-00000004/", "manifest.json is missing"),
                           ("model", "--model"), ("./swap", "swap path"), ("empty", "step-00001200"), ("data.txt", "it is a file"),
                           ("nowhere", "no such folder")):
            for command in (["export", path, "--to", "out"], [*RUN, "--load-weights", path], [*RUN, "--resume", path]):
                with self.subTest(command=command):
                    self.refused(*command, says=[path, says])
        self.refused("inspect", "runs/step-00000003.partial", says=["ended half-way"])
        self.refused("inspect", "runs/step-00000004", says=["manifest.json is missing"])
        self.refused("inspect", "nowhere", says=["a checkpoint", "--swap-path"])
        self.refused("generate", "runs/step-00000003.partial", "--prompt", "x", says=["ended half-way"])

    def test_a_checkpoint_given_as_model_says_what_opens_it(self):
        self.save()
        self.refused("train", *RUN[3:], "--model", "runs/step-00000002", says=["--load-weights", "headrace export"])

    def test_an_export_of_a_runs_folder_is_of_the_newest_and_names_it(self):
        runs = self.save("--save-every", 1)
        self.assertIn("from runs/step-00000002", self.succeeds("export", "runs", "--to", "model").stdout)
        (runs / "step-00000002" / "manifest.json").write_text("{")
        self.refused("export", "runs", "--to", "other", says=["step-00000002", "step-00000001 is the newest of the others"])

    def test_checkpoints_within_a_checkpoint_or_in_a_swap_path_are_refused(self):
        self.save()
        before = sorted((self.folder / "runs").rglob("*"))
        for inside in ("runs/step-00000002", "runs/step-00000002/more"):
            self.refused(*RUN, "--checkpoint-dir", inside, says=["lies in a checkpoint"])
        self.refused("train", *TINY, *ON_NVME, "--checkpoint-dir", "./swap/", says=["--swap-path", "of its own"])
        self.assertEqual(before, sorted((self.folder / "runs").rglob("*")))

    def test_a_folder_that_cannot_be_made_is_refused_with_what_to_give(self):
        self.write("file", "")
        self.refused(*RUN, "--checkpoint-dir", "file/runs", says=["--checkpoint-dir", "Give a folder"])


class OtherRuns(Checkpoints):
    def test_a_run_that_goes_on_from_another_folder_does_not_save_among_those_of_this_one(self):
        self.save(folder="mine")
        self.save("--seed", 9, folder="theirs", steps=4)
        before = sorted((self.folder / "theirs").rglob("*"))
        command = [*RUN, "--steps", 3, "--checkpoint-dir", "theirs", "--keep-last", 1]
        self.refused(*command, "--resume", "mine/step-00000002", says=["theirs holds 1 checkpoint of another run", "--overwrite-checkpoints"])
        self.refused(*command, "--load-weights", "mine/step-00000002", says=["--overwrite-checkpoints"])
        self.assertEqual(before, sorted((self.folder / "theirs").rglob("*")))
        self.succeeds(*command, "--resume", "mine/step-00000002", "--overwrite-checkpoints")
        self.succeeds(*RUN, "--steps", 3, "--checkpoint-dir", "mine/", "--resume", "./mine/step-00000002/")
        self.succeeds(*RUN, "--steps", 3, "--checkpoint-dir", "fresh", "--resume", "mine/step-00000002")


class Words(Checkpoints):
    def test_a_resume_says_when_it_drops_parity_and_when_it_saves_nothing(self):
        runs = self.save("--checkpoint-parity", 1)
        dropped = self.succeeds("train", *NANO, "--steps", 3, "--checkpoint-dir", "runs", "--resume", "latest").stderr
        self.assertIn("--checkpoint-parity 1 goes on with it", dropped)
        without = self.succeeds("train", *NANO, "--steps", 3, "--resume", runs / "step-00000002").stderr
        self.assertEqual(1, without.count("no checkpoint is saved by this run"))
        self.assertNotIn("goes on with it", without)

    def test_weights_alone_bring_no_moments_that_could_be_rounded(self):
        self.save()
        said = self.succeeds("train", *NANO, "--steps", 1, "--load-weights", "runs/step-00000002", "--moments", "int8").stderr
        self.assertNotIn("rounded", said)
        self.assertIn("reading the weights from runs/step-00000002", said)

    def test_parity_is_not_said_to_suffice_before_the_files_are_read(self):
        runs = self.save("--checkpoint-parity", 1)
        path = runs / "step-00000002"
        next(path.glob("parity-*")).unlink()
        self.flip(next(path.glob("*.safetensors")))
        looked = self.run_program("inspect", "runs/step-00000002")
        self.assertEqual(1, looked.returncode)
        self.assertIn("if all else is good", looked.stdout)
        self.assertNotIn("is whole", looked.stdout)
        self.assertIn("of parity, is missing", looked.stdout)

    def test_damage_beyond_parity_is_one_error_and_no_warning_before_it(self):
        runs = self.save("--checkpoint-parity", 1)
        for path in (runs / "step-00000002").glob("*-of-00001.*"):
            data = bytearray(path.read_bytes())
            for place in range(len(data) // 4, len(data), 500):
                data[place] ^= 1
            path.write_bytes(data)
        said = self.run_program("generate", "runs", "--prompt", "x", "--logits", "l.npy")
        self.assertEqual(1, said.returncode)
        self.assertNotIn("warning", said.stderr)
        self.assertEqual(1, said.stderr.count("headrace: "), said.stderr)
        self.assertFalse((self.folder / "l.npy").exists())  # nor half a file

    def test_repairing_what_has_no_parity_is_a_failure_and_no_wrong_usage(self):
        self.save()
        self.refused("inspect", "runs/step-00000002", "--repair", status=1, says=["--checkpoint-parity"])

    def test_differences_of_models_are_a_line_each_and_counted(self):
        self.save()
        said = self.refused("train", *TINY, "--quiet", "--load-weights", "runs/step-00000002", says=["parameters differ", "nothing was loaded"]).stderr
        self.assertGreater(said.count("\n  "), 20)

    def test_a_plan_says_what_is_free(self):
        plan = self.succeeds("plan", *NANO, "--checkpoint-dir", "runs").stdout
        self.assertRegex(plan, r"a checkpoint, all ranks: 1\.\d+ MiB in runs, where [\d.]+ \wiB is free for them\n")

    def test_the_start_and_inspect_count_in_words(self):
        said = self.succeeds("train", *NANO, "--steps", 1, "--checkpoint-dir", "runs", "--save-every", 1).stderr
        self.assertIn("every step,", said)
        self.assertRegex(self.succeeds("inspect", "runs/step-00000001").stdout, r"bf16 parameters, \d+ elements in \d+ tensors")

    def test_a_prompt_comes_from_standard_input_and_a_shard_size_next_to_nothing_is_refused(self):
        self.save()
        piped = self.run_program("generate", "runs", "--prompt-file", "-", "--max-tokens", 1, prefix=["sh", "-c", 'printf "line 1" | "$@"', "sh"])
        self.assertEqual(0, piped.returncode, piped.stderr)
        self.assertIn("prompt of 6 tokens in", piped.stderr)
        for size in ("0", "1"):
            self.refused("export", "runs", "--to", "model", "--shard-size", size, says=["--shard-size " + size, "5GB"])


if __name__ == "__main__":
    unittest.main()
