"""What a long run, a killed run and a small machine take: memory, descriptors, disk."""
import os
import pathlib
import signal
import subprocess
import time

import headrace_job
import job_test

MIB = 1 << 20


def status_of(pid, key):
    """A value of /proc/PID/status, in bytes."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) << 10
    raise KeyError(key)


def descriptors_of(pid):
    return sorted(os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir())


class LongRun(job_test.JobTest):
    STEPS = 520

    # A12, A13
    def test_takes_no_more_memory_and_no_more_descriptors_at_its_end_than_at_its_start(self):
        (self.folder / "run").mkdir()
        job = headrace_job.Job(self.program, self.options(steps=self.STEPS, swap_block="48KiB", log_every=1000),
                               self.folder / "run")
        seen = {}
        for step in (20, 500):
            self.assertTrue(job.wait_for_steps(step), job.err.read_text())
            pid = job.process.pid
            os.kill(pid, signal.SIGSTOP)
            self.assertGreaterEqual(job.steps_done(), step)
            seen[step] = {key: status_of(pid, key) for key in ("VmRSS", "VmLck", "VmPin")}, descriptors_of(pid)
            os.kill(pid, signal.SIGCONT)
        self.assert_status(0, job.wait())
        (early, early_files), (late, late_files) = seen[20], seen[500]
        self.assertLess(late["VmRSS"] - early["VmRSS"], MIB, seen)
        self.assertEqual((early["VmLck"], early["VmPin"]), (late["VmLck"], late["VmPin"]))
        self.assertEqual(early_files, late_files)
        self.assertEqual([], [name for name in late_files if "(deleted)" in name and "memfd" not in name])


class Memory(job_test.JobTest):
    # M3
    def test_that_is_not_to_be_pinned_is_not_and_gives_the_same_state(self):
        config = self.folder / "config.json"
        config.write_text('{"zero_optimization": {"offload_optimizer": {"pin_memory": false}, '
                          '"offload_param": {"pin_memory": false}}}')
        hashes = []
        for name, more in (("pinned", {}), ("pageable", {"config": config})):
            (self.folder / name).mkdir()
            job = headrace_job.Job(self.program, self.options(steps=30, offload_gradients="cpu", offload_parameters="cpu", **more),
                                   self.folder / name)
            self.assertTrue(job.wait_for_steps(3), job.err.read_text())
            pinned_bytes = status_of(job.process.pid, "VmLck") + status_of(job.process.pid, "VmPin")
            outcome = job.wait()
            self.assert_status(0, outcome)
            hashes.append(outcome.state_hash)
            if name == "pageable":
                self.assertEqual(0, pinned_bytes)
            elif pinned_bytes == 0:
                self.skipTest("nothing can be pinned here")
        self.assertEqual(hashes[0], hashes[1])


class Leftovers(job_test.JobTest):
    def disk_bytes(self):
        return sum(path.stat().st_blocks * 512 for path in (self.folder / "swap").rglob("*") if path.is_file())

    def killed(self):
        """A run that is killed in mid-step."""
        (self.folder / "run").mkdir(exist_ok=True)
        (self.folder / "run/metrics.jsonl").unlink(missing_ok=True)
        job = headrace_job.Job(self.program, self.options(steps=10000), self.folder / "run")
        self.assertTrue(job.wait_for_steps(2), job.err.read_text())
        job.process.kill()
        job.wait()

    # A15
    def test_of_killed_runs_are_reclaimed_and_their_names_are_stable(self):
        self.assert_status(0, self.train())
        names = sorted(path.relative_to(self.folder) for path in (self.folder / "swap").rglob("*"))
        one_run = self.disk_bytes()
        for _ in range(3):
            self.killed()
        outcome = self.train()
        self.assert_status(0, outcome)
        self.assertEqual(names, sorted(path.relative_to(self.folder) for path in (self.folder / "swap").rglob("*")))
        self.assertLessEqual(self.disk_bytes(), one_run + 64 * 1024)  # the journal's length varies


class SmallCgroup(job_test.JobTest):
    """A memory cgroup of 512 MiB."""
    LIMIT_BYTES = 512 * MIB

    def setUp(self):
        super().setUp()
        self.group = self.make_group()
        if self.group is None:
            self.skipTest("no memory cgroup can be made here")
        self.addCleanup(self.group.rmdir)
        self.inside = ["sh", "-c", f'echo $$ > "{self.group}/cgroup.procs" && exec "$@"', "sh"]

    def make_group(self):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            version_1 = "memory" in controllers.split(",")
            if not version_1 and controllers:
                continue
            parent = pathlib.Path("/sys/fs/cgroup/memory" if version_1 else "/sys/fs/cgroup") / path.strip("/")
            group = parent / f"headrace-test-{os.getpid()}"
            limit = "memory.limit_in_bytes" if version_1 else "memory.max"
            try:
                group.mkdir()
                (group / limit).write_text(str(self.LIMIT_BYTES))
                return group
            except OSError:
                if group.exists():
                    group.rmdir()
        return None

    # M1
    def test_that_a_model_does_not_fit_in_is_refused_with_the_ledger_and_what_fits(self):
        outcome = self.train(prefix=self.inside, model="gpt2-124m", stage=3, offload_optimizer="cpu", swap_path=None,
                             offload_parameters="cpu", offload_gradients="cpu")
        self.assert_status(3, outcome)
        self.assert_says(outcome, "optimizer", "parameters", "gradients", "GiB")
        self.assertRegex(outcome.stderr, r"needs .* GiB of this machine's memory, \d+ MiB of which are available")
        self.assertIn("It fits", outcome.stderr)

    def test_that_a_model_fits_in_runs_there(self):
        outcome = self.train(prefix=self.inside)
        self.assert_status(0, outcome)


if __name__ == "__main__":
    job_test.main()
