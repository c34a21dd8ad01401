"""Swap paths that are full, read-only, in use or damaged."""

import os
import re
import shutil
import subprocess
import unittest

from program import NANO, ON_NVME, TINY, ProgramTest, mounted
from test_ranks import MPIRUN, ranks


class SwapPath(ProgramTest):
    def test_full_file_system_is_refused_at_the_start_and_left_empty(self):
        swap = self.folder / "swap"
        with mounted(["-t", "tmpfs", "-o", "size=32m", "tmpfs"], swap):
            self.refused("train", *TINY, *ON_NVME, "--quiet", status=3, says=["swap"])
            left = [path for path in swap.rglob("*") if path.is_file() and path.stat().st_size > 1 << 20]
            self.assertEqual(left, [])

    @unittest.skipIf(MPIRUN is None, "mpirun is not installed")
    def test_ranks_that_do_not_fit_together_leave_the_earlier_run_whole(self):
        nano = ["train", "--model", "gpt2-nano", "--sequence-length", 16, "--batch-size", 1, "--data", "data.txt", *ON_NVME]
        with mounted(["-t", "tmpfs", "-o", "size=5m", "tmpfs"], self.folder / "swap"):
            self.succeeds(*nano, "--stage", 1, "--steps", 1, "--quiet", prefix=ranks(2))
            self.refused(*nano, "--stage", 0, "--steps", 1, "--quiet", "--overwrite-swap", status=3, says=["2 ranks need"],
                         prefix=ranks(2))
            self.succeeds(*nano, "--stage", 1, "--steps", 2, "--quiet", "--resume", "swap", prefix=ranks(2))

    def test_advice_for_a_full_disk_fits_that_disk(self):
        for size, advised in (("2m", True), ("1m", False)):
            with mounted(["-t", "tmpfs", "-o", f"size={size}", "tmpfs"], self.folder / "swap"):
                refused = self.run_program("train", *NANO, *ON_NVME)
                self.assertEqual(refused.returncode, 3, refused.stderr)
                self.assertNotIn("initialising", refused.stderr)
                self.assertEqual("--durability none" in refused.stderr, advised, refused.stderr)
                planned = self.run_program("plan", *NANO, *ON_NVME)
                self.assertEqual(planned.returncode, 3, planned.stdout)
                self.assertIn("does not fit: the swap store needs", planned.stdout.splitlines()[-1])
                self.assertNotIn("no limit given", planned.stdout)
                for text in (refused.stderr, planned.stdout):
                    self.assertNotIn("earlier run", text)

    def test_plan_says_that_it_could_not_look_at_a_path(self):
        planned = self.succeeds("plan", *TINY[:2], "--offload-optimizer", "nvme", "--swap-path", "/nope")
        self.assertIn("/nope does not exist here", planned.stderr)

    def test_paths_in_memory_and_parity_on_one_drive_are_warned_of_once(self):
        with mounted(["-t", "tmpfs", "-o", "size=30m", "tmpfs"], self.folder / "swap"):
            for name in ("a", "b", "c"):
                (self.folder / "swap" / name).mkdir()
            result = self.succeeds("train", *NANO, "--offload-optimizer", "nvme", "--swap-parity", 1, "--steps", 1, "--quiet",
                                   *(f"--swap-path=swap/{name}" for name in ("a", "b", "c")))
        self.assertEqual(result.stderr.count("file system in memory"), 3, result.stderr)
        self.assertEqual(result.stderr.count("lost together"), 1, result.stderr)

    def test_the_summary_names_a_lost_path_and_a_repair_that_works(self):
        paths = [f"swap/{name}" for name in ("a", "b", "c")]
        for path in paths:
            (self.folder / path).mkdir()
        flags = ["train", *TINY, "--offload-optimizer", "nvme", "--swap-parity", 1, "--quiet",
                 *(f"--swap-path={path}" for path in paths)]
        self.succeeds(*flags, "--steps", 1)
        shutil.rmtree(self.folder / "swap" / "b")
        report = self.succeeds(*flags, "--steps", 2, "--resume", "swap").stdout
        command = re.search(r"to bring it back +mount .*`(mkdir -p swap/b) && headrace (inspect --repair .*)`", report)
        self.assertIsNotNone(command, report)
        subprocess.run(command[1].split(), cwd=self.folder, check=True)
        self.succeeds(*command[2].split())
        self.assertNotIn("lost", self.succeeds(*flags, "--steps", 3, "--resume", "swap").stdout)

    def test_read_only_mount_is_refused_by_name(self):
        swap = self.folder / "swap"
        with mounted(["-t", "tmpfs", "-o", "ro", "tmpfs"], swap):
            self.refused("train", *TINY, *ON_NVME, "--quiet", says=["swap", "Read-only file system"])

    def test_folder_of_another_user_is_refused(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.folder.chmod(0o755)
        self.refused("train", *TINY, *ON_NVME, "--quiet", says=["swap", "Permission denied"],
                     prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])

    def test_store_of_a_running_job_is_refused_with_its_process(self):
        first = self.start("train", *TINY, *ON_NVME, "--steps", 10000, "--metrics", "m.jsonl")
        self.wait_for_step(first, "m.jsonl", 1)
        result = self.run_program("train", *TINY, *ON_NVME, "--steps", 2, "--quiet")
        self.assertIn(result.returncode, (1, 2), result.stderr)
        self.assertIn(str(first.pid), result.stderr)
        self.assertIsNone(first.poll())
        first.terminate()
        self.assertEqual(first.wait(timeout=30), 143)

    def test_inspect_notices_missing_and_short_files_without_reading_the_blocks(self):
        self.succeeds("train", *TINY, *ON_NVME, "--steps", 1, "--quiet")
        extents = self.folder / "swap" / "rank-00000" / "extents.bin"
        os.truncate(extents, extents.stat().st_size - 1)
        short = self.run_program("inspect", "swap")
        self.assertEqual(short.returncode, 1)
        self.assertIn("cut short", short.stdout)
        extents.unlink()
        missing = self.run_program("inspect", "swap")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("extents.bin", missing.stdout)

    def test_flipped_byte_is_an_error_that_names_block_path_and_offset(self):
        flags = ["train", *TINY, *ON_NVME, "--schedule", "constant", "--quiet"]
        self.succeeds(*flags, "--steps", 2)
        extents = self.folder / "swap" / "rank-00000" / "extents.bin"
        with open(extents, "r+b") as file:
            for offset in range(100, extents.stat().st_size, 1 << 20):  # both generations of every block
                file.seek(offset)
                byte = file.read(1)
                file.seek(offset)
                file.write(bytes([byte[0] ^ 1]))
        self.refused(*flags, "--steps", 4, "--resume", "swap", status=1,
                     says=["swap block", "extents.bin", "offset"])
        report = self.run_program("inspect", "swap", "--verify")
        self.assertEqual(report.returncode, 1)
        self.assertIn("extents.bin", report.stdout)


if __name__ == "__main__":
    unittest.main()
