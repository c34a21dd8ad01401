"""Checkpoints that the swap store keeps (--checkpoint-mode pin): gone back to, read, copied, exported, rotated, refused."""
import json
import shutil
import subprocess

import pathlib
import sys

import headrace_job
import job_test

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import read_store  # noqa: E402

PIN = {"checkpoint_mode": "pin", "keep_last": 2}


class PinnedCheckpoints(job_test.JobTest):
    def setUp(self):
        super().setUp()
        self.checkpoints = self.folder / "checkpoints"
        self.swap = self.folder / "pinned-swap"
        self.swap.mkdir()

    def settings(self, ranks, **more):
        return {"checkpoint_dir": self.checkpoints, "swap_path": self.swap, "overwrite_swap": None, "dtype": "fp32",
                "batch_size": 4 // ranks, **PIN, **more}

    def run_with(self, ranks=1, **more):
        return self.train(ranks, **self.settings(ranks, **more))

    def reference(self, ranks, steps, **more):
        """A run of its own, whose checkpoint is of files."""
        return self.train(ranks, name="reference", steps=steps, dtype="fp32", batch_size=4 // ranks,
                          checkpoint_dir=self.folder / "reference-checkpoints", **more)

    def inspect(self, path, *arguments):
        return headrace_job.inspect_json(self.program, path, *arguments)

    def command(self, *arguments):
        return subprocess.run([str(self.program), *map(str, arguments)], capture_output=True, text=True)

    def pins(self):
        status, report = self.inspect(self.swap)
        self.assertEqual(0, status, report)
        return [[pin["step"] for pin in rank["pins"]] for rank in report["ranks"]]

    def test_a_killed_run_goes_back_to_a_pinned_checkpoint_with_the_same_bits_and_on_from_there(self):
        for ranks in (1, 3):
            at_4 = self.reference(ranks, 4).state_hash
            at_6 = self.reference(ranks, 6).state_hash
            options = self.options(steps=500, save_every=4, **self.settings(ranks))
            folder = self.folder / f"killed-{ranks}"
            folder.mkdir()
            job = headrace_job.Job(self.program, options, folder, ranks)
            self.assertTrue(job.wait_for_steps(7))
            job.kill()
            pinned = sorted(self.checkpoints.glob("step-????????"))[0]
            step = int(pinned.name[5:])
            expected = at_4 if step == 4 else self.reference(ranks, step).state_hash
            status, report = self.inspect(pinned, "--verify", "--hash")
            self.assertEqual((0, expected), (status, report["state_hash"]), report)
            resumed = self.run_with(ranks, steps=step + 2, resume=pinned)
            self.assert_status(0, resumed)
            self.assert_says(resumed, f"continues after step {step}")
            self.assertEqual(at_6 if step == 4 else self.reference(ranks, step + 2).state_hash, resumed.state_hash)
            shutil.rmtree(self.checkpoints)
            shutil.rmtree(self.swap)
            self.swap.mkdir()

    def test_a_copy_is_what_a_save_would_have_written_slice_by_slice_and_is_loaded_and_exported_anywhere(self):
        self.assert_status(0, self.run_with(2, steps=4))
        self.assert_status(0, self.reference(2, 4))
        pinned, copy = self.checkpoints / "step-00000004", self.folder / "copy"
        normal = self.folder / "reference-checkpoints" / "step-00000004"
        self.assertEqual(["manifest.json"], [file.name for file in pinned.iterdir()])
        result = self.command("checkpoint", "copy", pinned, "--to", copy)
        self.assertEqual(0, result.returncode, result.stderr)
        manifests = [json.loads((path / "manifest.json").read_text()) for path in (copy, normal)]
        for key in ("step", "world_size", "states", "parameters", "arrays", "files", "slices"):
            self.assertEqual(manifests[1][key], manifests[0][key], key)
        for file in manifests[0]["files"]:
            self.assertEqual((normal / file["name"]).read_bytes(), (copy / file["name"]).read_bytes())
        exported = [self.folder / f"exported-{i}" for i in range(2)]
        for path, folder in zip((pinned, normal), exported):
            self.assertEqual(0, self.command("export", path, "--to", folder).returncode)
        self.assertEqual(*((folder / "model.safetensors").read_bytes() for folder in exported))
        shutil.rmtree(self.swap)
        resumed = self.train(1, steps=4, dtype="fp32", batch_size=4, resume=copy)
        self.assert_status(0, resumed)
        self.assertEqual(self.inspect(normal, "--hash")[1]["state_hash"], self.inspect(copy, "--hash")[1]["state_hash"])

    def test_another_swap_path_and_another_number_of_ranks_read_it_from_the_store(self):
        self.assert_status(0, self.run_with(2, steps=4))
        whole = self.reference(1, 6)
        for ranks in (1, 2):
            resumed = self.train(ranks, steps=6, dtype="fp32", batch_size=4 // ranks, resume=self.checkpoints / "step-00000004")
            self.assert_status(0, resumed)
            self.assertAlmostEqual(whole.steps[-1]["loss"], resumed.steps[-1]["loss"], delta=1e-4)
        refused = self.run_with(1, steps=6, resume="latest")
        self.assert_status(2, refused)
        self.assert_says(refused, "2 ranks", "headrace checkpoint copy")

    def test_a_run_that_would_replace_the_store_it_begins_from_is_refused_with_what_to_do(self):
        self.assert_status(0, self.run_with(1, steps=2))
        newest = self.checkpoints / "step-00000002"
        copied = {"checkpoint_mode": None, "keep_last": None}
        for more in ({"resume": newest, "durability": "none"}, {"load_weights": newest}):
            refused = self.run_with(1, steps=4, **copied, **more)
            self.assert_status(2, refused)
            self.assert_says(refused, "headrace checkpoint copy", "replaces")
        self.assertEqual([[2]], self.pins())

    def test_rotation_releases_what_it_removes(self):
        self.assert_status(0, self.run_with(2, steps=5, save_every=1))
        self.assertEqual([[4, 5], [4, 5]], self.pins())
        self.assertEqual(["step-00000004", "step-00000005"], sorted(path.name for path in self.checkpoints.glob("step-*")))
        shutil.rmtree(self.checkpoints / "step-00000004")
        self.assert_status(0, self.run_with(2, steps=6, resume="swap"))
        self.assertEqual([[5, 6], [5, 6]], self.pins())

    def damage_pin(self, rank, name):
        """A byte of what a pinned version has and the last two steps do not."""
        folder = self.swap / f"rank-{rank:05}"
        store = read_store.Store([folder])
        kept = {entry[0] for commit in store.commits for entry in commit.table}
        offset = next(entry[0] for entry in store.pins[name].table if entry[0] not in kept)
        with open(folder / "extents.bin", "r+b") as extents:
            extents.seek(offset)
            byte = extents.read(1)
            extents.seek(offset)
            extents.write(bytes([byte[0] ^ 1]))

    def test_where_one_rank_cannot_go_back_all_stay_at_the_step_that_they_have(self):
        self.assert_status(0, self.run_with(2, steps=3))
        self.assert_status(0, self.train(2, steps=6, dtype="fp32", batch_size=2, swap_path=self.swap, overwrite_swap=None, resume="swap"))
        pinned = self.checkpoints / "step-00000003"
        self.damage_pin(1, json.loads((pinned / "manifest.json").read_text())["pin"])
        refused = self.run_with(2, steps=8, resume="latest")
        self.assert_status(1, refused)
        self.assert_says(refused, "rank 1 is not whole", "nothing was changed", "step 6", "--resume swap")
        resumed = self.run_with(2, steps=8, resume="swap")
        self.assert_status(0, resumed)
        self.assertEqual(self.reference(2, 8).state_hash, resumed.state_hash)

    def test_what_is_missing_is_named(self):
        self.assert_status(0, self.run_with(1, steps=2))
        pinned = self.checkpoints / "step-00000002"
        name = json.loads((pinned / "manifest.json").read_text())["pin"]
        (self.swap / "rank-00000" / f"pin-{name}.bin").rename(self.folder / "kept")
        status, report = self.inspect(pinned)
        self.assertEqual(1, status)
        self.assertIn(f"no longer keeps its version {name}", report["problems"][0])
        (self.folder / "kept").rename(self.swap / "rank-00000" / f"pin-{name}.bin")
        self.assertEqual(0, self.inspect(pinned)[0])
        status, listed = self.inspect(self.checkpoints)
        self.assertEqual((0, "whole", True), (status, *(listed["checkpoints"][0][key] for key in ("state", "pinned"))))
        self.assert_status(0, self.train(1, steps=1, dtype="fp32", batch_size=4, swap_path=self.swap))
        status, report = self.inspect(pinned)
        self.assertEqual(1, status)
        self.assertIn("another swap store", report["problems"][0])
        status, listed = self.inspect(self.checkpoints)
        self.assertEqual((1, "damaged"), (status, listed["checkpoints"][0]["state"]))
        self.assertIn("is not there", listed["checkpoints"][0]["problems"][0])
        shutil.rmtree(self.swap)
        failed = self.command("checkpoint", "copy", pinned, "--to", self.folder / "copy")
        self.assertEqual(1, failed.returncode)
        self.assertIn("does not exist", failed.stderr)
        self.assertFalse((self.folder / "copy").exists())

    def test_what_it_needs_is_said(self):
        host = {"offload_optimizer": "cpu", "swap_path": None}
        for more, words in ((host, "optimizer states on NVMe"), ({"durability": "none"}, "--durability step"),
                            ({"keep_last": None}, "--keep-last"), ({"master_dtype": "none", "dtype": "bf16"}, "--master-dtype"),
                            ({"async_save": True}, "--checkpoint-mode copy"), ({"checkpoint_parity": 1}, "--checkpoint-mode copy")):
            refused = self.run_with(1, steps=1, **more)
            self.assert_status(2, refused)
            self.assert_says(refused, words)
        self.assert_status(0, self.run_with(1, steps=1, checkpoint_mode="copy"))
        refused = self.run_with(1, steps=2, resume="swap")
        self.assert_status(2, refused)
        self.assert_says(refused, "was made for 0", "--checkpoint-mode copy")

    def test_a_store_with_too_little_room_is_left_as_it_is_and_room_is_what_a_release_gives_back(self):
        self.assert_status(0, self.run_with(1, steps=3, save_every=1))
        for more, words in (({"keep_last": 3}, ["made for 3", "--keep-last 2 or less"]),
                            ({"checkpoint_dir": self.folder / "others"}, ["in other folders", "headrace checkpoint release"])):
            refused = self.train(1, **{**self.settings(1), "steps": 4, "resume": "swap", **more})
            self.assert_status(2, refused)
            self.assert_says(refused, *words)
        self.assertEqual([[2, 3]], self.pins())
        others = [json.loads((path / "manifest.json").read_text())["pin"] for path in self.checkpoints.glob("step-*")]
        shutil.rmtree(self.checkpoints)
        for name in others:
            self.assertEqual(0, self.command("checkpoint", "release", name, self.swap).returncode)
        resumed = self.train(1, **{**self.settings(1), "steps": 4, "resume": "swap", "checkpoint_dir": self.folder / "others"})
        self.assert_status(0, resumed)
        self.assertEqual([[4]], self.pins())

    def test_a_new_run_does_not_replace_pinned_checkpoints_unasked(self):
        self.assert_status(0, self.run_with(1, steps=2))
        copy = self.folder / "copy"
        self.assertEqual(0, self.command("checkpoint", "copy", self.checkpoints / "step-00000002", "--to", copy).returncode)
        for more in ({}, {"resume": copy}):
            refused = self.train(1, steps=4, dtype="fp32", batch_size=4, swap_path=self.swap, **{"overwrite_swap": None, **more})
            self.assert_status(2, refused)
            self.assert_says(refused, "1 pinned checkpoint (of step 2)", "--overwrite-swap")
        self.assertEqual([[2]], self.pins())

    def test_a_swap_path_that_is_lost_leaves_saves_of_checkpoints_that_can_be_read(self):
        work = self.folder / "work"
        names = ["a", "b", "c"]
        for name in names:
            (work / name).mkdir(parents=True)
        on_paths = {"swap_path": names, "swap_parity": 1, "save_every": 2, "prefix": ("env", "-C", work)}
        self.assert_status(0, self.run_with(1, steps=4, **on_paths))
        shutil.rmtree(work / "c")
        self.assert_status(0, self.run_with(1, steps=8, resume="swap", **on_paths))
        newest = sorted(self.checkpoints.glob("step-*"))
        self.assertEqual(["step-00000006", "step-00000008"], [path.name for path in newest])
        for path in newest:
            self.assertEqual([str(work / name / "rank-00000") for name in names],
                             json.loads((path / "manifest.json").read_text())["stores"][0]["directories"])
        back = self.run_with(1, steps=8, resume=newest[0], **on_paths)
        self.assert_status(0, back)
        self.assert_says(back, "continues after step 6")
        name = json.loads((newest[0] / "manifest.json").read_text())["pin"]
        released = self.command("checkpoint", "release", name, *(work / path for path in names[:2]))
        self.assertEqual(0, released.returncode, released.stderr)

    def test_a_checkpoint_folder_that_is_not_there_costs_no_pinned_version(self):
        self.assert_status(0, self.run_with(1, steps=3, save_every=1))
        away = self.folder / "away"
        self.checkpoints.rename(away)
        for more in ({}, {"checkpoint_mode": None, "keep_last": None}, {"resume": away / "step-00000002"}):
            refused = self.run_with(1, **{"steps": 4, "resume": "swap", **more})
            self.assert_status(2, refused)
            self.assert_says(refused, "there is no checkpoint in", "2 pinned versions", "Mount")
            self.assertEqual([[2, 3]], self.pins())
            self.assertFalse(self.checkpoints.exists())
        away.rename(self.checkpoints)
        shutil.rmtree(self.checkpoints / "step-00000002")
        resumed = self.run_with(1, steps=4, resume="swap")
        self.assert_status(0, resumed)
        self.assert_says(resumed, "gives back what no checkpoint", "step-00000002.")
        self.assertEqual([[3, 4]], self.pins())

    def test_going_back_behind_later_steps_is_warned_of(self):
        self.assert_status(0, self.run_with(1, steps=2))
        self.assert_status(0, self.train(1, **{**self.settings(1), "checkpoint_dir": None, "checkpoint_mode": None,
                                               "keep_last": None, "steps": 4, "resume": "swap"}))
        back = self.run_with(1, steps=3, resume="latest")
        self.assert_status(0, back)
        self.assert_says(back, "is at step 4", "what came after step 2 is done anew")


if __name__ == "__main__":
    job_test.main()
