"""`headrace bench nvme`: what it prints, that its time is kept, that nothing fools it, and that no end leaves a file behind."""

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
import unittest

import ext4
import program
from program import ProgramTest, mounted

SMALL = ["--block", "64KiB,1MiB", "--depth", "1,4", "--file-size", "64MiB"]
TINY = ["--block", "256KiB", "--depth", "4", "--file-size", "64MiB"]
READS = ["--operation", "read", "--access", "sequential"]
KEYS = {"case", "value", "unit", "ceiling", "ratio", "rounds", "mad", "path", "operation", "access", "block_bytes", "depth",
        "in_flight", "read_share", "operations_per_second", "latency_median_seconds", "latency_p99_seconds", "cpu_seconds_per_gb", "source",
        "moved_bytes"}
OTHER_USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class NvmeTest(ProgramTest):
    """The folder `drive` is a link to memory where there is any: what is tested here is no drive, and others use the disk."""

    on_disk = False

    def setUp(self):
        super().setUp()
        self.drive = self.folder / "drive"
        if self.on_disk or not os.access("/dev/shm", os.W_OK | os.X_OK):
            self.drive.mkdir()
            return
        memory = tempfile.mkdtemp(prefix="headrace-cli-", dir="/dev/shm")
        self.addCleanup(shutil.rmtree, memory, ignore_errors=True)
        self.drive.symlink_to(memory)

    def bench(self, *flags, path="drive", **options):
        return self.run_program("bench", "nvme", "--path", path, *flags, **options)

    def report(self, *flags, **options):
        result = self.bench(*flags, "--json", **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(set(report), {"benchmark", "machine", "results", "notes"})
        self.assertEqual(report["benchmark"], "nvme")
        self.assertLessEqual({"cpu", "cpus", "io", "paths", "memory_copy_gb_per_second", "written_bytes", "seconds"},
                             set(report["machine"]))
        return report

    def start_bench(self, *flags):
        return self.start("bench", "nvme", "--path", "drive", *flags)

    def wait_for_line(self, process, text):
        """Reads stderr until a line holds `text`."""
        for line in process.stderr:
            if text in line:
                return
        self.fail(f"ended without \"{text}\": {process.communicate()}")

    def disk(self, size, options):
        """A file system of its own on the drive folder; root only."""
        image = self.folder / "disk.img"
        subprocess.run(["truncate", "-s", size, image], check=True)
        if shutil.which("mkfs.ext4") is None:
            self.skipTest("mkfs.ext4 is not installed")
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        return mounted(["-o", f"loop,{options}", str(image)], self.drive)

    def interrupted(self, process):
        """What it prints after Ctrl-C, on both streams."""
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, errors)
        self.assert_no_file_is_left()
        return output, errors

    def assert_no_file_is_left(self):
        self.assertEqual(list(self.drive.iterdir()), [])


class Report(NvmeTest):
    def test_json_has_a_row_a_case_with_the_documented_keys(self):
        report = self.report(*SMALL, "--seconds", "4")
        names = [f"{access} {operation} {block} depth {depth}" for operation in ("read", "write", "mixed")
                 for access in ("sequential", "random") for block in ("64KiB", "1MiB") for depth in (1, 4)]
        self.assertEqual([r["case"] for r in report["results"]], names)
        for result in report["results"]:
            self.assertEqual(set(result), KEYS)
            self.assertGreater(result["value"], 0)
            self.assertGreaterEqual(result["rounds"], 1)
            if result["rounds"] == 1:
                self.assertIsNone(result["mad"])
            else:
                self.assertGreaterEqual(result["mad"], 0)
            self.assertIn(result["source"], ("direct", "buffered", "cached"))
            self.assertEqual(result["in_flight"], result["depth"])
            self.assertAlmostEqual(result["operations_per_second"] * result["block_bytes"], result["value"] * 1e9, places=3)
            self.assertLessEqual(result["latency_median_seconds"], result["latency_p99_seconds"])
            self.assertGreater(result["cpu_seconds_per_gb"], 0)
            self.assertAlmostEqual(result["ratio"], result["value"] / result["ceiling"])
            self.assertLessEqual(result["ratio"], 1)
        for operation in ("read", "write", "mixed"):
            self.assertEqual(max(r["ratio"] for r in report["results"] if r["operation"] == operation), 1)
        path = report["machine"]["paths"][0]
        self.assertEqual(path["path"], "drive")
        self.assertGreater(path["prepare_seconds"], 0)
        self.assertGreaterEqual(report["machine"]["written_bytes"], path["file_bytes"])
        self.assert_no_file_is_left()

    def test_the_time_is_kept_within_a_second(self):
        for seconds in (2, 5):
            report = self.report(*SMALL, "--seconds", seconds)
            self.assertAlmostEqual(report["machine"]["seconds"], seconds, delta=1)

    def test_a_person_reads_a_table_and_the_steps_are_lines_on_stderr(self):
        result = self.bench(*TINY, "--seconds", "2", "--read-share", "0.75")
        self.assertEqual(result.returncode, 0, result.stderr)
        for text in ("GB/s", "MAD", "IOPS", "p99", "CPU s/GB", "ceiling", "ratio", "source", "random mixed 256KiB depth 4",
                     "mixed: 75% of the blocks are read",
                     "every block that was read had the right data"):
            self.assertIn(text, result.stdout)
        self.assertRegex(result.stderr, r"drive: [0-9.]+ MiB written once in")
        self.assertNotIn("\x1b", result.stderr)
        self.assertEqual(self.bench(*TINY, *READS, "--seconds", "1", "--quiet").stderr, "")

    def test_a_terminal_sees_the_progress_and_not_in_the_result(self):
        process, terminal = self.start_on_terminal("bench", "nvme", "--path", "drive", *TINY, "--seconds", "1")
        drawn = b"".join(iter(lambda: program.read_terminal(terminal), b""))
        output = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0)
        self.assertIn(b"% ", drawn)
        self.assertIn(b"sequential read 256KiB depth 4", drawn)
        self.assertNotIn("\x1b", output)
        self.assertNotIn("] ", output)

    def test_the_engine_is_the_one_that_was_asked_for(self):
        self.assertEqual(self.report(*TINY, *READS, "--seconds", "1", "--io", "threads")["machine"]["io"], "threads")

    def test_a_depth_that_the_engine_does_not_hold_is_said(self):
        report = self.report("--block", "4KiB", "--depth", "128", "--file-size", "160MiB", *READS, "--seconds", "3", "--io", "threads")
        self.assertEqual([(r["depth"], r["in_flight"]) for r in report["results"]], [(128, 64)])
        self.assertTrue(any("4KiB depth 128: 64 blocks at a time" in note for note in report["notes"]), report["notes"])

    def test_a_path_may_be_any_bytes(self):
        name = os.fsdecode(b"bytes \xff")
        (self.drive / name).mkdir()
        report = json.loads(self.bench(*TINY, *READS, "--seconds", "1", "--json", "--quiet", path=f"drive/{name}").stdout)
        self.assertEqual(report["machine"]["paths"][0]["path"], "drive/bytes \ufffd")

    def test_several_paths_are_measured_alone_and_all_at_once(self):
        (self.drive / "other").mkdir()
        report = self.report(*TINY, "--operation", "read,write", "--access", "random", "--seconds", "3", "--path", "drive/other")
        names = [f"random {operation} 256KiB depth 4, {path}" for operation in ("read", "write")
                 for path in ("drive", "drive/other", "all paths")]
        self.assertEqual([r["case"] for r in report["results"]], names)
        for alone, other, together in zip(*[iter(report["results"])] * 3):
            self.assertAlmostEqual(together["ceiling"], alone["value"] + other["value"])
            self.assertIsNone(together["path"])
        self.assertTrue(any("share its drive" in note for note in report["notes"]), report["notes"])


class Sustained(NvmeTest):
    def test_continuous_writes_have_a_rate_for_each_interval_and_a_steady_one(self):
        report = self.report(*TINY, "--sustained", "3")
        result = report["results"][0]
        self.assertEqual(result["case"], "sustained write 256KiB depth 4")
        self.assertAlmostEqual(len(result["intervals"]) * result["interval_seconds"], 3, delta=result["interval_seconds"])
        last = sorted(result["intervals"][-(len(result["intervals"]) // 3):])
        self.assertAlmostEqual(result["value"], statistics.median(last))
        self.assertAlmostEqual(result["drop"], 1 - result["value"] / result["first"])
        self.assertEqual(result["ceiling"], max(result["first"], result["value"]))
        self.assertLessEqual(result["ratio"], 1)
        self.assertGreater(report["machine"]["written_bytes"], 64 << 20)
        self.assert_no_file_is_left()

    def test_writes_alone_claim_only_what_was_read_back_and_the_path_may_be_called_a_swap_path(self):
        result = self.run_program("bench", "nvme", "--swap-path", "drive", *TINY, "--operation", "write", "--seconds", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("the blocks that were read back of what was written had the right data", result.stdout)

    def test_ctrl_c_prints_the_intervals_so_far(self):
        process = self.start_bench(*TINY, "--sustained", "20")
        self.wait_for_line(process, "depth 4, ")  # the rate of an interval that is over
        output, _ = self.interrupted(process)
        self.assertIn("stopped: the intervals so far", output)


# FIELD-CASES T4, A2.
class NotFooled(NvmeTest):
    on_disk = True

    def test_memory_is_called_cached_though_it_takes_direct_io(self):
        with mounted(["-t", "tmpfs", "-o", "size=256m", "tmpfs"], self.drive):
            report = self.report(*TINY, "--seconds", "1")
            self.assertEqual({r["source"] for r in report["results"]}, {"cached"})
            self.assertTrue(any("is memory (tmpfs)" in note for note in report["notes"]), report["notes"])
            result = self.bench(*TINY, *READS, "--seconds", "1")
            self.assertIn("cached", result.stdout)

    def test_a_file_system_that_refuses_direct_io_is_called_buffered_and_warned_of_once(self):
        with self.disk("256M", "data=journal"):
            result = self.bench(*TINY, "--seconds", "2", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("refuses direct I/O"), 1)
            report = json.loads(result.stdout)
            self.assertFalse(report["machine"]["paths"][0]["direct"])
            self.assertEqual({r["source"] for r in report["results"] if r["operation"] != "mixed"}, {"buffered"})
            self.assertTrue(any("refuses direct I/O" in note for note in report["notes"]))

    def test_a_drive_that_answers_itself_is_called_direct(self):
        with self.disk("256M", "defaults"):
            report = self.report(*TINY, *READS, "--seconds", "1")
            if not report["machine"]["paths"][0]["direct"]:
                self.skipTest("the disk image refuses direct I/O")
            self.assertEqual({r["source"] for r in report["results"]}, {"direct"})

    def test_a_byte_that_changes_on_the_drive_ends_it_with_its_offset(self):
        process = self.start_bench(*TINY, *READS, "--seconds", "20", "--check-every-byte")
        self.wait_for_line(process, "written once")
        descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
        (file,) = [link for link in descriptors.iterdir() if "headrace-bench-nvme" in os.readlink(link)]
        with open(file, "r+b") as opened:
            opened.seek(1_234_567)
            byte = opened.read(1)[0]
            opened.seek(1_234_567)
            opened.write(bytes([byte ^ 4]))
        output, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn("offset 1234567 of the file is not what was written there", errors)
        self.assertEqual(output, "")
        self.assert_no_file_is_left()


class Ends(NvmeTest):
    on_disk = True

    def test_ctrl_c_prints_what_is_measured_so_far(self):
        process = self.start_bench(*TINY, "--seconds", "60")
        self.wait_for_line(process, "30%")
        output, _ = self.interrupted(process)
        self.assertIn("sequential read 256KiB depth 4", output)
        self.assertIn("stopped: medians of the rounds so far", output)

    def test_ctrl_c_before_the_first_figure_says_so(self):
        process = self.start_bench(*TINY[:4], "--file-size", "4GiB", "--seconds", "5")
        self.wait_for_line(process, "writing the file once")
        _, errors = self.interrupted(process)
        self.assertIn("stopped before anything was measured", errors)

    def test_a_time_that_is_over_before_the_first_figure_does_not_fit_and_asks_for_more(self):
        for json_flag in ((), ("--json",)):
            process = self.start_bench("--block", "256KiB", "--depth", "4", "--seconds", "1", *json_flag)
            self.wait_for_line(process, "writing the file once")
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.1)
            process.send_signal(signal.SIGCONT)
            output, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 3, errors)
            self.assertRegex(errors, r"headrace: .*the 1 s of --seconds were over.*--seconds [2-9] would do")
            if json_flag:
                self.assertEqual(json.loads(output)["results"], [])
            self.assertIn("left out: 6 of 6 cases", output)
            self.assertNotIn("right data", output)

    def test_a_drive_that_fails_on_the_way_leaves_what_was_measured(self):
        with self.disk("256M", "defaults"):
            process = self.start_bench(*TINY, "--seconds", "4", "--json")
            self.wait_for_line(process, "50%")
            ext4.shut_down(self.drive)
            output, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 1, errors)
            self.assertRegex(errors, r"headrace: drive: (read|write|fdatasync) of the benchmark's file at offset")
            report = json.loads(output)
            self.assertIn("sequential read 256KiB depth 4", [r["case"] for r in report["results"]])
            self.assertTrue(any("Input/output error" in note for note in report["notes"]), report["notes"])
            self.assertLess(report["machine"]["seconds"], 4)

    def test_every_other_signal_leaves_no_file_by_name(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP):
            process = self.start_bench(*TINY, "--seconds", "60")
            self.wait_for_line(process, "written once")
            self.assert_no_file_is_left()  # nor while it runs
            process.send_signal(number)
            self.assertEqual(process.wait(timeout=30), -number)
            self.assert_no_file_is_left()

    def test_a_kill_gives_the_space_back(self):
        with self.disk("256M", "defaults"):
            free = self.free_bytes()
            process = self.start_bench(*TINY, "--seconds", "60")
            self.wait_for_line(process, "written once")
            self.assertGreater(free - self.free_bytes(), 60 << 20)
            process.kill()
            process.wait(timeout=30)
            deadline = time.monotonic() + 20  # the kernel ends what is in flight first
            while self.free_bytes() < free - (1 << 20) and time.monotonic() < deadline:
                time.sleep(0.05)
            self.assertGreaterEqual(self.free_bytes(), free - (1 << 20))

    def test_a_kill_while_the_file_is_written_leaves_none(self):
        process = self.start_bench("--block", "1MiB", "--depth", "4", "--seconds", "60")
        time.sleep(0.5)
        process.kill()
        process.wait(timeout=30)
        self.succeeds("bench", "nvme", "--path", "drive", *TINY, *READS, "--seconds", "1")
        self.assert_no_file_is_left()

    def test_what_a_kill_left_by_name_is_removed_at_the_next_start(self):
        (self.drive / "headrace-bench-nvme-4242-0.tmp").write_bytes(b"left")
        (self.drive / "mine.tmp").write_bytes(b"mine")
        self.succeeds("bench", "nvme", "--path", "drive", *TINY, *READS, "--seconds", "1")
        self.assertEqual([path.name for path in self.drive.iterdir()], ["mine.tmp"])

    def free_bytes(self):
        status = os.statvfs(self.drive)
        return status.f_bavail * status.f_frsize


class Refused(NvmeTest):
    on_disk = True

    def refused_bench(self, *flags, **options):
        return self.refused("bench", "nvme", "--path", "drive", *flags, **options)

    def test_wrong_values_name_the_flag_and_what_is_allowed(self):
        for flag, value, allowed in (
            ("--block", "5000", "multiple of 4KiB"), ("--block", "0", "multiple of 4KiB"), ("--block", "1MiB,", "not a size"),
            ("--block", "2GiB", "up to 1GiB"), ("--depth", "0", "from 1 to 1024"), ("--depth", "1,x", "from 1 to 1024"),
            ("--operation", "raed", "Did you mean read?"), ("--access", "sequentail", "Did you mean sequential?"),
            ("--read-share", "1", "from 0.01 to 0.99"), ("--seconds", "0.5", "from 1 to"), ("--sustained", "x", "from 1 to"),
            ("--file-size", "0", "0 bytes"), ("--host-memory", "0", "no limit"), ("--io", "uring", "auto, io_uring, threads"),
        ):
            with self.subTest(flag=flag, value=value):
                self.refused_bench(flag, value, says=[flag, allowed])
        self.refused_bench("--blcok", "1MiB", says=["Did you mean --block?"])
        self.refused_bench("--sustained", "5", "--seconds", "5", says=["leave --seconds"])
        self.refused_bench("--io", "threads", "--require-io-uring", says=["exclude each other"])
        self.refused_bench("--io", "threads", "--poll-completions", says=["--poll-completions", "io_uring"])
        self.refused("bench", "nvme", says=["--path is required"])
        self.refused("bench", "nvme", "--path", "--json", says=["--path needs a value"])

    # FIELD-CASES A16.
    def test_a_path_that_cannot_be_used_is_refused_by_name(self):
        self.refused("bench", "nvme", "--path", "no where é", says=["no where é", "does not exist"])
        self.refused("bench", "nvme", "--path", "data.txt", says=["data.txt", "not a folder"])
        os.symlink("gone", self.folder / "link")
        self.refused("bench", "nvme", "--path", "link", says=["link", "dangling"])
        self.refused_bench("--path", "../" + self.folder.name + "/drive", says=["same folder"])

    def test_a_folder_of_another_user_is_refused(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("needs root and setpriv, to run as another user")
        self.folder.chmod(0o755)
        self.refused_bench(says=["drive", "Permission denied"], prefix=OTHER_USER)

    def test_no_root_is_needed(self):
        if os.geteuid() != 0 or shutil.which("setpriv") is None:
            self.skipTest("needs root and setpriv, to run as another user")
        self.folder.chmod(0o755)
        os.chown(self.drive, 65534, 65534)
        result = self.bench(*TINY, "--seconds", "1", prefix=OTHER_USER)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_read_only_file_system_is_refused(self):
        with mounted(["-t", "tmpfs", "-o", "ro", "tmpfs"], self.drive):
            self.refused_bench(says=["drive", "Read-only file system"])

    def test_a_disk_too_small_is_refused_with_what_is_needed_and_left_empty(self):
        with mounted(["-t", "tmpfs", "-o", "size=20m", "tmpfs"], self.drive):
            self.refused_bench(status=3, says=["drive", "272 MiB", "20.0 MiB are free", "--depth"])
            self.refused_bench(*TINY, status=3, says=["--file-size"])
            self.refused_bench("--file-size", "4MiB", "--block", "8MiB",
                               says=["--file-size 4MiB is too small: at least 272MiB"])
            self.assert_no_file_is_left()
            self.succeeds("bench", "nvme", "--path", "drive", "--block", "64KiB", "--depth", "2", "--seconds", "1")

    def test_buffers_beyond_the_memory_limit_are_refused_with_what_fits(self):
        self.refused_bench("--host-memory", "100MiB", status=3,
                           says=["32 blocks of 8MiB", "264 MiB", "limit 100 MiB", "It fits with --block 128KiB,1MiB",
                                 "--depth 1,8", "--host-memory 264MiB"])
        self.succeeds("bench", "nvme", "--path", "drive", *TINY, *READS, "--seconds", "1", "--host-memory", "9MiB")


if __name__ == "__main__":
    unittest.main()
