"""A disk that is full, and bytes on it that have changed."""
import pathlib
import subprocess

import headrace_job
import job_test


class FullDisk(job_test.JobTest):
    def mount_tmpfs(self, size_bytes):
        """A file system of its own of that size."""
        path = self.folder / "small"
        path.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(path)], capture_output=True,
                                 text=True)
        if mounted.returncode != 0:
            self.skipTest(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(path)], check=True)
        return path

    def test_store_that_does_not_fit_is_refused_and_leaves_nothing_behind(self):
        small = self.mount_tmpfs(256 << 10)
        outcome = self.train(swap_path=small)
        self.assert_status(3, outcome)
        self.assert_says(outcome, str(small))
        self.assertEqual([], [path for path in small.rglob("*") if path.is_file()])

    def test_refused_job_of_two_ranks_ends_with_the_same_status(self):
        small = self.mount_tmpfs(256 << 10)
        outcome = self.train(ranks=2, swap_path=small)
        self.assert_status(3, outcome)

    def test_full_disk_under_the_metrics_file_is_an_error_that_names_it(self):
        (self.folder / "run").mkdir()
        job = headrace_job.Job(self.program, self.options(), self.folder / "run", metrics=pathlib.Path("/dev/full"))
        status = job.process.wait(60)
        text = job.err.read_text()
        self.assertEqual(1, status, text)
        self.assertIn("/dev/full", text)
        self.assertIn("No space left on device", text)


class FlippedByte(job_test.JobTest):
    PLACES = 16

    def flip(self, file, offset):
        with file.open("r+b") as stream:
            stream.seek(offset)
            byte = stream.read(1)[0]
            stream.seek(offset)
            stream.write(bytes([byte ^ 1]))

    def test_in_an_extent_is_named_by_inspect_and_by_resume(self):
        self.assert_status(0, self.train())
        extents = next((self.folder / "swap").rglob("extents.bin"))
        refused = 0
        for place in range(self.PLACES):
            offset = extents.stat().st_size * place // self.PLACES + 100
            self.flip(extents, offset)
            status, report = headrace_job.inspect_json(self.program, self.folder / "swap", "--verify")
            if status != 0:  # the place belongs to the committed version
                refused += 1
                self.assertIn("extents.bin", " ".join(report["problems"]))
                outcome = self.train(name=f"resume-{place}", resume="swap", steps=4)
                self.assert_status(1, outcome)
                self.assert_says(outcome, "extents.bin", "offset")
            self.flip(extents, offset)
        self.assertGreater(refused, 0, "no flipped byte lay in a committed extent")
        self.assert_status(0, self.train(name="resume", resume="swap", steps=4))

    def test_in_the_journal_never_gives_another_state(self):
        whole = self.train(steps=4)
        self.assert_status(0, whole)
        journal = next((self.folder / "swap").rglob("journal.bin"))
        for place in range(self.PLACES):
            self.assert_status(0, self.train(steps=3))
            self.flip(journal, journal.stat().st_size * place // self.PLACES)
            outcome = self.train(name=f"resume-{place}", resume="swap", steps=4)
            if outcome.status == 0:
                self.assertEqual(whole.state_hash, outcome.state_hash, f"journal byte at {place}/{self.PLACES}")
            else:
                self.assertIn(outcome.status, (1, 2), outcome)


if __name__ == "__main__":
    job_test.main()
