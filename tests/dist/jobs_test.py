"""Whole jobs of dist_rank under mpirun: what they end in when ranks die, wait, differ or fail; and what they count."""
import os
import re
import subprocess
import sys
import time
import unittest

PROGRAM, PMPI_COUNT = "", ""


def job(ranks, scenario, *arguments, program_environment=()):
    """Runs `ranks` ranks; returns (exit status, output, seconds)."""
    command = ["mpirun", "-n", str(ranks)]
    for setting in program_environment:
        command += ["-x", setting]
    start = time.monotonic()
    done = subprocess.run(command + [PROGRAM, scenario, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


class Jobs(unittest.TestCase):
    def test_the_counter_equals_the_bytes_that_mpi_was_given(self):
        for ranks in (1, 2, 3, 4):
            status, output, _ = job(ranks, "count", program_environment=[f"LD_PRELOAD={PMPI_COUNT}"])
            self.assertEqual(status, 0, output)
            lines = re.findall(r"counted (\d+) mpi (\d+) other (\d+)", output)
            self.assertEqual(len(lines), ranks, output)
            for counted, mpi, other in lines:
                self.assertEqual(counted, mpi, output)
                self.assertEqual(other, "0", output)
            # All-gathers and a long all-reduce: P(N-1) over all ranks, whatever the pieces.
            total = sum(int(counted) for counted, _, _ in lines)
            elements = (12345 + (3 << 20)) * ranks + 2 * 1234567 * 4 + 7 * 4 * ranks + 999
            exchanged = sum(10 * (a + b) for a in range(ranks) for b in range(ranks) if a != b)
            self.assertEqual(total, elements * (ranks - 1) + exchanged)

    def test_a_killed_rank_ends_the_job(self):  # FIELD-CASES L2
        status, output, seconds = job(3, "killed")
        self.assertNotEqual(status, 0, output)
        self.assertLess(seconds, 20)

    def test_a_rank_that_never_arrives_is_reported_with_operation_sequence_and_label(self):
        status, output, seconds = job(2, "never_arrives", "2")
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r'rank 0 waited 2 s in all_gather #1 of "h\.3"')
        self.assertLess(seconds, 20)

    def test_ranks_on_different_paths_time_out_naming_both_operations(self):
        status, output, _ = job(2, "different_paths", "2")
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r'in (all_gather #1 of "h\.1"|barrier #1 of "extra")')

    def test_the_call_check_names_both_calls_on_both_ranks_at_once(self):  # FIELD-CASES L1
        status, output, seconds = job(2, "different_paths", program_environment=["HEADRACE_COMM_CHECK=1"])
        self.assertEqual(status, 1, output)
        self.assertIn('rank 0 is in all_gather #1 of "h.1", rank 1 is in barrier #1 of "extra"', output)
        self.assertIn('rank 1 is in barrier #1 of "extra", rank 0 is in all_gather #1 of "h.1"', output)
        self.assertLess(seconds, 15)

    def test_the_call_check_is_silent_when_all_agree(self):
        status, output, _ = job(3, "nothing", program_environment=["HEADRACE_COMM_CHECK=1"])
        self.assertEqual(status, 0, output)
        self.assertEqual(output.strip(), "")

    def test_a_message_of_another_size_than_expected_ends_the_job(self):
        status, output, seconds = job(2, "different_sizes")
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r'all_gather #0 of "h\.4" expected 20 bytes from rank 1 but got 10')
        self.assertLess(seconds, 15)

    def test_a_rank_that_fails_alone_ends_the_job_with_its_own_status(self):
        status, output, seconds = job(2, "fails_alone")
        self.assertEqual(status, 3, output)
        self.assertIn("rank 1 met an error of its own", output)
        self.assertLess(seconds, 15)  # well before the time-out of 30 s

    def test_ranks_that_fail_together_all_say_so(self):
        status, output, seconds = job(3, "fails_together")
        self.assertEqual(status, 3, output)
        self.assertEqual(output.count("each rank met the same error"), 3, output)
        self.assertNotIn("MPI_ABORT", output)
        self.assertLess(seconds, 15)

    def test_a_launcher_of_another_mpi_is_refused_not_taken_for_one_rank(self):  # FIELD-CASES M5
        environment = dict(os.environ, RANK="1", WORLD_SIZE="4", LOCAL_RANK="1", LOCAL_WORLD_SIZE="4")
        done = subprocess.run([PROGRAM, "nothing"], capture_output=True, text=True, timeout=30, env=environment)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("the launcher (torchrun) started 4 ranks but MPI sees 1", done.stderr)

    def test_a_missing_module_is_a_usage_error_naming_what_to_do(self):
        environment = dict(os.environ, HEADRACE_MODULE_PATH="/nonexistent")
        done = subprocess.run([PROGRAM, "nothing"], capture_output=True, text=True, timeout=30, env=environment)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("HEADRACE_MODULE_PATH", done.stderr)

    def test_mpi_costs_little_memory(self):
        status, output, _ = job(2, "memory")
        self.assertEqual(status, 0, output)
        before = max(int(x) for x in re.findall(r"before start (\d+)", output))
        started = max(int(x) for x in re.findall(r"after start (\d+)", output))
        gathered, buffer = max((int(a), int(b)) for a, b in re.findall(r"after gathers (\d+) of which buffer (\d+)", output))
        print(f"MPI: {(started - before) >> 20} MiB to start, {(gathered - started - buffer) >> 20} MiB of message buffers")
        self.assertLess(gathered - before - buffer, 48 << 20)


if __name__ == "__main__":
    PROGRAM, PMPI_COUNT = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
