"""`headrace doctor`: readable, right about paths, and the same for a user without privileges."""

import json
import os
import unittest

from program import ProgramTest, mounted

AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


class Doctor(ProgramTest):
    def findings(self, *arguments, status=0, **options):
        result = self.run_program("doctor", *arguments, "--json", **options)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        report = json.loads(result.stdout)
        self.assertEqual(set(report), {"machine", "findings"})
        for finding in report["findings"]:
            self.assertEqual(set(finding), {"topic", "what", "value", "status", "advice"})
            self.assertIn(finding["status"], ("ok", "note", "limit"))
            self.assertTrue(finding["value"], finding)
            self.assertTrue(finding["advice"] or finding["status"] == "ok", finding)
        return report, {(f["topic"], f["what"]): f for f in report["findings"]}

    def test_table_fits_a_terminal_and_ends_with_a_count(self):
        result = self.succeeds("doctor", "--swap-path", "swap")
        self.assertLessEqual(max(map(len, result.stdout.splitlines())), 96 + len(str(self.folder)))
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+ limits?, \d+ notes?$")
        self.assertEqual(result.stderr, "")
        self.assertEqual(os.listdir(self.folder / "swap"), [])

    def test_every_topic_is_there(self):
        report, found = self.findings("--swap-path", "swap")
        for key in [("processor", "instructions"), ("processor", "affinity mask"), ("processor", "cgroup quota"),
                    ("processor", "NUMA"), ("memory", "locked memory"), ("memory", "transparent huge pages"),
                    ("input and output", "kernel"), ("input and output", "io_uring"),
                    ("threads and files", "threads of this user"), ("threads and files", "threads of the cgroup"),
                    ("threads and files", "open files"), ("devices and ranks", "GPU"),
                    ("devices and ranks", "NCCL"), ("devices and ranks", "MPI"), ("swap path swap", "file system"),
                    ("swap path swap", "direct I/O"), ("swap path swap", "space")]:
            self.assertIn(key, found)
        machine = report["machine"]
        self.assertEqual(machine["affinity_cpus"], len(os.sched_getaffinity(0)))
        self.assertEqual(machine["kernel"], os.uname().release)
        self.assertTrue(machine["swap_paths"][0]["usable"])

    def test_narrow_mask_is_seen(self):
        cpu = min(os.sched_getaffinity(0))
        _, found = self.findings(prefix=["taskset", "-c", str(cpu)])
        self.assertTrue(found["processor", "affinity mask"]["value"].startswith("1 CPU"))

    def test_path_that_cannot_be_used_ends_with_1_and_the_whole_report(self):
        _, found = self.findings("--swap-path", "missing", "--swap-path", "swap", status=1)
        self.assertIn("mkdir -p missing", found["swap path missing", "folder"]["advice"])
        self.assertEqual(found["swap path swap", "folder"]["status"], "ok")
        _, found = self.findings("--swap-path", "data.txt", status=1)
        self.assertEqual(found["swap path data.txt", "folder"]["value"], "not a folder")

    def test_two_folders_of_one_drive_are_warned_of(self):
        (self.folder / "other").mkdir()
        _, found = self.findings("--swap-path", "swap", "--swap-path", "other")
        self.assertIn("swap, other", found["swap paths", "shared"]["value"])
        self.assertIn("together with other", found["swap path swap", "space"]["value"])
        self.refused("doctor", "--swap-path", "swap", "--swap-path", "./swap", says=["same folder"])
        self.refused("doctor", "--swap-path", "gone", "--swap-path", "gone", says=["same folder"])

    def test_one_rank_of_a_job_reports(self):
        for rank, lines in (("0", True), ("1", False)):
            result = self.run_program("doctor", prefix=["env", f"OMPI_COMM_WORLD_RANK={rank}", "OMPI_COMM_WORLD_SIZE=2",
                                                        f"OMPI_COMM_WORLD_LOCAL_RANK={rank}", "OMPI_COMM_WORLD_LOCAL_SIZE=2"])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(bool(result.stdout), lines)

    def test_memory_and_read_only_mounts_are_told_apart(self):
        swap = self.folder / "swap"
        with mounted(["-t", "tmpfs", "-o", "size=8m", "tmpfs"], swap):
            _, found = self.findings("--swap-path", "swap")
            self.assertEqual(found["swap path swap", "file system"]["status"], "limit")
        with mounted(["-t", "tmpfs", "-o", "ro", "tmpfs"], swap):
            _, found = self.findings("--swap-path", "swap", status=1)
            self.assertIn("Read-only", found["swap path swap", "folder"]["value"])

    def test_user_without_privileges_sees_its_own_limits(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        self.folder.chmod(0o755)
        _, found = self.findings("--swap-path", "swap", status=1,
                                 prefix=["prlimit", "--memlock=65536:65536", "--nproc=60:60", "--nofile=200:200", *AS_NOBODY])
        self.assertEqual(found["memory", "locked memory"]["value"], "64.0 KiB")
        self.assertEqual(found["memory", "locked memory"]["status"], "limit")
        for what, limit in (("threads of this user", "60, "), ("open files", "200, ")):
            self.assertTrue(found["threads and files", what]["value"].startswith(limit))
            self.assertEqual(found["threads and files", what]["status"], "limit")
        self.assertIn("Permission denied", found["swap path swap", "folder"]["value"])
        if found["input and output", "io_uring"]["status"] == "ok":
            self.assertEqual(found["input and output", "registered memory"]["status"], "limit")

    def test_wrong_flags_are_refused(self):
        self.refused("doctor", "--swap-paht", "swap", says=["--swap-paht", "--swap-path"])
        self.refused("doctor", "--swap-path", "", says=["--swap-path", "empty"])
        self.refused("doctor", "swap", says=["swap"])


if __name__ == "__main__":
    unittest.main()
