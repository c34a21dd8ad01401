"""A run whose optimizer states are spread over several swap paths, of which some vanish while it runs."""
import shutil
import subprocess

import headrace_job
import job_test

STEPS = 12


class LostPaths(job_test.JobTest):
    def paths(self, count):
        paths = [self.folder / f"nvme{i}" for i in range(count)]
        for path in paths:
            path.mkdir()
        return paths

    def on(self, paths, **more):
        return {"swap_path": paths, "swap_block": "48KiB", "steps": STEPS, **more}

    def state_without_paths(self):
        whole = self.train(name="one path", steps=STEPS, swap_block="48KiB")
        self.assert_status(0, whole)
        return whole.state_hash

    def run_and_delete(self, paths, lost, **more):
        """The outcome of a run whose paths `lost` are deleted after its third step."""
        (self.folder / "run").mkdir(exist_ok=True)
        job = headrace_job.Job(self.program, self.options(**self.on(paths, **more)), self.folder / "run")
        self.assertTrue(job.wait_for_steps(3), job.err.read_text())
        for path in lost:
            shutil.rmtree(path)
        return job.wait()

    def inspect(self, paths, *flags):
        return headrace_job.inspect_json(self.program, paths, *flags)

    def test_a_run_does_without_a_deleted_path_and_is_resumed_degraded_and_repaired_with_the_same_state(self):
        expected, paths = self.state_without_paths(), self.paths(3)
        outcome = self.run_and_delete(paths, [paths[1]], swap_parity=1)
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)
        self.assertEqual(1, outcome.stderr.count("is lost"), outcome)
        self.assert_says(outcome, str(paths[1]), "--repair")

        status, report = self.inspect(paths, "--hash")
        self.assertEqual((1, expected), (status, report["state_hash"]), report)
        further = self.train(name="longer", steps=STEPS + 4, swap_block="48KiB")
        degraded = self.train(name="degraded", **self.on(paths, swap_parity=1, steps=STEPS + 2, resume="swap"))
        self.assert_status(0, degraded)

        repaired = subprocess.run([str(self.program), "inspect", *map(str, paths), "--repair"], capture_output=True, text=True)
        self.assertEqual(1, repaired.returncode, "the folder of the lost path itself is not made by itself")
        paths[1].mkdir()
        repaired = subprocess.run([str(self.program), "inspect", *map(str, paths), "--repair"], capture_output=True, text=True)
        self.assertEqual(0, repaired.returncode, repaired)
        self.assertIn("part of the store again", repaired.stdout)
        status, report = self.inspect(paths, "--verify", "--hash")
        self.assertEqual((0, degraded.state_hash), (status, report["state_hash"]), report)
        resumed = self.train(name="resumed", **self.on(paths, swap_parity=1, steps=STEPS + 4, resume="swap"))
        self.assert_status(0, resumed)
        self.assertEqual(further.state_hash, resumed.state_hash)

    def test_parameters_and_gradients_on_nvme_do_without_the_lost_path_of_a_resumed_run(self):
        paths = self.paths(3)
        all_on_nvme = {"offload_parameters": "nvme", "offload_gradients": "nvme", "swap_parity": 1}
        self.assert_status(0, self.train(name="first", **self.on(paths, **all_on_nvme, steps=3)))
        shutil.rmtree(paths[0])
        resumed = self.train(name="resumed", **self.on(paths, **all_on_nvme, resume="swap"))
        self.assert_status(0, resumed)
        self.assertEqual(self.state_without_paths(), resumed.state_hash)
        self.assertFalse(paths[0].exists())
        for path in paths[1:]:
            self.assertEqual([], list(path.glob("**/scratch/*")), "the scratch store goes with the run")

    def test_two_lost_paths_of_parity_one_end_the_run_with_both_names(self):
        paths = self.paths(3)
        outcome = self.run_and_delete(paths, [paths[0], paths[2]], swap_parity=1)
        self.assert_status(1, outcome)
        self.assert_says(outcome, str(paths[0]), str(paths[2]))

    def test_paths_without_parity_are_measured_and_a_deleted_one_ends_the_run(self):
        expected, paths = self.state_without_paths(), self.paths(2)
        whole = self.train(name="whole", **self.on(paths))
        self.assert_status(0, whole)
        self.assertEqual(expected, whole.state_hash)
        self.assert_says(whole, "swap paths measured")
        outcome = self.run_and_delete(paths, [paths[1]])
        self.assert_status(1, outcome)
        self.assert_says(outcome, str(paths[1]))

    def test_a_run_with_fewer_paths_tells_which_step_it_replaces_and_what_it_leaves_behind(self):
        paths = self.paths(2)
        self.assert_status(0, self.train(name="first", **self.on(paths, steps=3)))
        second = self.train(name="second", **self.on(paths[:1], steps=3))
        self.assert_status(0, second)
        self.assert_says(second, "hold step 3 of an earlier run", str(paths[1]), "this run replaces it", "behind")

    def test_a_resume_with_other_paths_names_them_and_the_flags_that_continue(self):
        paths = self.paths(4)
        self.assert_status(0, self.train(name="first", **self.on(paths[:3], steps=1)))
        fewer = self.train(name="fewer", **self.on(paths[:2], steps=2, resume="swap"))
        self.assert_status(2, fewer)
        flags = " ".join(f"--swap-path {path}" for path in paths[:3])
        self.assert_says(fewer, "3 swap paths, and 2 are given", f"{paths[2]} is missing", f"{flags} --resume swap")
        more = self.train(name="more", **self.on(paths, steps=2, resume="swap"))
        self.assert_status(2, more)
        self.assert_says(more, "4 are given", f"{paths[3]} is not of that run", f"{flags} --resume swap")

    def test_ranks_have_their_folders_in_every_path(self):
        paths = self.paths(3)
        first = self.train(ranks=2, name="first", **self.on(paths, swap_parity=1, steps=3))
        self.assert_status(0, first)
        for path in paths:
            self.assertEqual(["rank-00000", "rank-00001"], sorted(entry.name for entry in path.iterdir()))
        shutil.rmtree(paths[2] / "rank-00001")
        resumed = self.train(ranks=2, name="resumed", **self.on(paths, swap_parity=1, steps=4, resume="swap"))
        self.assert_status(0, resumed)


class Usage(job_test.JobTest):
    def refused(self, *says, **more):
        outcome = self.train(**more)
        self.assert_status(2, outcome)
        self.assert_says(outcome, *says)

    # FIELD-CASES A16.
    def test_each_path_must_be_a_folder_of_its_own(self):
        swap, other = self.folder / "swap", self.folder / "other"
        other.mkdir()
        self.refused(str(self.folder / "gone"), "does not exist", swap_path=[swap, self.folder / "gone"])
        self.refused(str(self.corpus), "not a folder", swap_path=[swap, self.corpus])
        self.refused("given twice", swap_path=[swap, swap])
        (self.folder / "link").symlink_to(other)
        self.refused("same folder", swap_path=[other, self.folder / "link"])
        self.refused("--swap-parity 2 needs at least 3", swap_path=[swap, other], swap_parity=2)
        self.refused("rates", swap_path=[swap, other], swap_path_rates=["1GB/s"])


if __name__ == "__main__":
    job_test.main()
