"""Whole jobs of nccl_rank under mpirun: what they end in when ranks die, stop, stay away, differ or fail."""
import subprocess
import sys
import time
import unittest

PROGRAM = ""
TIMEOUT_SECONDS = 2
LAUNCHER_SECONDS = 15  # to start and end a job on a busy machine


def job(ranks, scenario, *arguments, survivors_go_on=False, program_environment=()):
    """Runs `ranks` ranks; returns (exit status, output, seconds). mpirun ends the survivors of a killed rank at once, unless
    they are to go on; its own status is then always 0."""
    command = ["mpirun", "-n", str(ranks)] + ["--enable-recovery"] * survivors_go_on
    for setting in program_environment:
        command += ["-x", setting]
    start = time.monotonic()
    done = subprocess.run(command + [PROGRAM, scenario, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - start


class NcclJobs(unittest.TestCase):
    def assert_ends_waiting(self, outcome, rank, operation):
        _, output, seconds = outcome
        self.assertIn(f"headrace: rank {rank} waited {TIMEOUT_SECONDS} s in {operation}: another rank is dead or took a "
                      "different path. Raise --timeout if the ranks are only slow. The job ends.", output)
        self.assertLess(seconds, TIMEOUT_SECONDS + LAUNCHER_SECONDS)

    def test_a_killed_rank_ends_the_job(self):
        status, output, seconds = job(3, "killed")
        self.assertNotEqual(status, 0, output)
        self.assertLess(seconds, LAUNCHER_SECONDS)

    def test_survivors_of_a_killed_rank_end_within_the_timeout_and_name_what_waited(self):
        outcome = job(3, "killed", str(TIMEOUT_SECONDS), survivors_go_on=True)
        for rank in (0, 2):
            self.assert_ends_waiting(outcome, rank, 'all_gather #10 of "h.4"')

    def test_a_stopped_rank_is_noticed_by_all_others(self):
        outcome = job(2, "stopped", str(TIMEOUT_SECONDS))
        self.assertEqual(outcome[0], 1, outcome[1])
        self.assert_ends_waiting(outcome, 0, 'all_gather #1 of "h.4"')

    def test_a_rank_that_never_joins_is_reported(self):
        outcome = job(2, "never_joins", str(TIMEOUT_SECONDS))
        self.assertEqual(outcome[0], 1, outcome[1])
        self.assert_ends_waiting(outcome, 0, 'start #0 of "NCCL"')

    def test_two_ranks_on_one_device_are_refused(self):
        status, output, _ = job(2, "nothing", str(TIMEOUT_SECONDS), program_environment=["HEADRACE_EMULATED_DEVICES=1"])
        self.assertEqual(status, 1, output)
        self.assertIn("ranks 0 and 1 would use the same device", output)
        self.assertIn("start one rank a device", output)

    def test_a_rank_that_never_arrives_is_reported_with_the_first_operation_that_waits(self):
        outcome = job(2, "never_arrives", str(TIMEOUT_SECONDS))
        self.assertEqual(outcome[0], 1, outcome[1])
        self.assert_ends_waiting(outcome, 0, 'all_gather #1 of "h.3"')
        self.assertNotIn("went on", outcome[1])

    def test_a_lane_that_is_still_busy_does_not_count_as_waiting(self):
        status, output, _ = job(2, "slow_lane", str(TIMEOUT_SECONDS))
        self.assertEqual((status, output), (0, ""))

    def test_an_error_of_nccl_ends_the_job_before_the_timeout(self):
        status, output, seconds = job(2, "waits", "30", program_environment=["HEADRACE_EMULATED_FAULTS=ncclCommGetAsyncError:3"])
        self.assertEqual(status, 1, output)
        self.assertIn('headrace: rank 0 failed in all_gather #0 of "h.5": remote process exited or there was a network error',
                      output)
        self.assertLess(seconds, LAUNCHER_SECONDS)

    def test_a_call_that_nccl_refuses_is_an_error_with_its_text(self):
        for fault, where in (("ncclAllGather:1", 'all_gather #0 of "h.3"'), ("ncclCommInitRank:1", "ncclCommInitRank"),
                             ("ncclGetUniqueId:1", "ncclGetUniqueId")):
            status, output, _ = job(2, "killed", "30",
                                    program_environment=[f"HEADRACE_EMULATED_FAULTS={fault}"])
            self.assertEqual(status, 1, output)
            self.assertIn(f"NCCL failed in {where}: unhandled system error", output)

    def test_the_emulation_finds_ranks_that_differ_in_size_or_call(self):
        status, output, _ = job(2, "different_sizes")
        self.assertEqual(status, 86, output)
        self.assertRegex(output, r"is in ncclBroadcast of 20 bytes .*is in ncclBroadcast of 10 bytes")
        status, output, _ = job(2, "different_calls")
        self.assertEqual(status, 86, output)
        self.assertRegex(output, r"is in ncclAllGather of 10 bytes .*is in ncclBroadcast of 10 bytes")

    def test_a_rank_that_fails_alone_ends_the_job_with_its_own_status(self):
        status, output, seconds = job(2, "fails_alone", "30")
        self.assertEqual(status, 3, output)
        self.assertIn("rank 1 met an error of its own", output)
        self.assertLess(seconds, LAUNCHER_SECONDS)  # well before the time-out

    def test_after_a_failure_of_the_device_the_end_is_quiet_and_soon(self):
        status, output, seconds = job(2, "device_fails")
        self.assertEqual(status, 3, output)
        self.assertEqual(output.count("each rank met the same error"), 2, output)
        self.assertNotIn("waited", output)
        self.assertNotIn("NCCL", output)
        self.assertLess(seconds, LAUNCHER_SECONDS)

    def test_a_job_that_goes_well_says_nothing(self):
        status, output, _ = job(3, "nothing")
        self.assertEqual((status, output), (0, ""))


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
