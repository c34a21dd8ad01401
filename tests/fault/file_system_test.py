"""Real ext4 file systems of a few MiB: full at the start, filled by another program in mid-run, and shut down under a running
job as by a drive that vanishes, without a flush of what the file system holds back."""
import os
import random
import signal
import subprocess
import time

import ext4
import headrace_job
import job_test

MIB = 1 << 20


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def fill(folder):
    """Takes what is left of a file system, to the last block."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


class Ext4(job_test.JobTest):
    def mount(self, *arguments):
        """A mount that ends with the test; what cannot be mounted here skips it."""
        target = arguments[-1]
        target.mkdir(parents=True, exist_ok=True)
        done = run("mount", *arguments)
        if done.returncode != 0:
            self.skipTest(f"cannot mount here: {done.stderr.strip()}")
        self.addCleanup(run, "umount", "--lazy", target)
        return target

    def make_disk(self, target, size_bytes=32 * MIB):
        """An ext4 file system of its own, on memory."""
        images = self.folder / "images"
        if not images.exists():
            self.mount("-t", "tmpfs", "tmpfs", images)
        self.image = images / f"{sum(1 for _ in images.iterdir())}"
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        made = run("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=4", self.image)
        if made.returncode != 0:
            self.skipTest(f"cannot make an ext4 file system here: {made.stderr.strip()}")
        return self.mount("-o", "loop", self.image, target)


class FullDisk(Ext4):
    def test_at_the_start_is_refused_by_name_and_left_as_it_was(self):
        disk = self.make_disk(self.folder / "disk", 16 * MIB)
        fill(disk)
        before = sorted(disk.rglob("*"))
        for left_bytes in (0, 4096, 8192, MIB):  # not even a folder fits; a folder; its lock too; almost a store
            os.truncate(disk / "filler", (disk / "filler").stat().st_size - left_bytes)
            outcome = self.train(swap_path=disk)
            self.assert_status(3, outcome)
            self.assert_says(outcome, str(disk))
            self.assertEqual(before, sorted(disk.rglob("*")))

    def test_by_another_program_in_mid_run_does_not_disturb_the_run(self):
        whole = self.train(name="whole", steps=40)
        self.assert_status(0, whole)
        disk = self.make_disk(self.folder / "disk")
        (self.folder / "run").mkdir()
        job = headrace_job.Job(self.program, self.options(steps=40, swap_path=disk), self.folder / "run")
        self.assertTrue(job.wait_for_steps(2), job.err.read_text())
        os.kill(job.process.pid, signal.SIGSTOP)
        fill(disk)
        self.assertLess(os.statvfs(disk).f_bavail, 8)
        os.kill(job.process.pid, signal.SIGCONT)
        self.assertLess(job.steps_done(), 40, "the run ended before the disk was full")
        outcome = job.wait()
        self.assert_status(0, outcome)
        self.assertEqual(whole.state_hash, outcome.state_hash)


class VanishingDisk(Ext4):
    def vanish(self, ranks, number):
        swap = self.folder / f"swap-{ranks}-{number}"
        disk = self.make_disk(swap / f"rank-{ranks - 1:05}")
        options = self.options(steps=10**6, swap_path=swap, swap_block="48KiB", timeout=20)
        folder = self.folder / f"run-{ranks}-{number}"
        folder.mkdir()
        job = headrace_job.Job(self.program, options, folder, ranks)
        self.assertTrue(job.wait_for_steps(self.draw.randrange(1, 12)), job.err.read_text())
        time.sleep(self.draw.random() * 0.02)
        done = job.steps_done()
        ext4.shut_down(disk)
        outcome = job.wait(60)
        self.assertNotEqual(0, outcome.status, outcome)
        self.assert_says(outcome, str(disk))
        self.assertEqual(0, run("umount", disk).returncode)
        self.assertEqual(0, run("mount", "-o", "loop", self.image, disk).returncode)
        status, report = headrace_job.inspect_json(self.program, swap, "--verify")
        self.assertEqual(0, status, report)
        self.assertGreaterEqual(report["step"], done)
        options["steps"] = report["step"] + 2
        resumed = headrace_job.train(self.program, {**options, "resume": "swap"}, self.folder / "resumed", ranks)
        self.assert_status(0, resumed)
        whole = self.train(ranks=ranks, name="whole", steps=options["steps"])
        self.assertEqual(whole.state_hash, resumed.state_hash)

    def test_under_one_rank_ends_the_job_and_the_last_commit_is_resumed(self):
        seed = time.time_ns() % 2**32
        self.draw = random.Random(seed)
        for ranks, moments in ((1, 4), (2, 1), (3, 1)):
            for number in range(moments):
                with self.subTest(seed=seed, ranks=ranks, number=number):
                    self.vanish(ranks, number)


if __name__ == "__main__":
    job_test.main()
