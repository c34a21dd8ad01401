"""What a kernel or an administrator refuses: io_uring, locked memory, large files, quiet. The run goes on or says why."""
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

import headrace_job
import job_test

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
EVERY_MILLISECOND = job_test.with_system_calls(alarm=1000)


def refusing(code):
    return [sys.executable, "-B", SUPPORT / "refuse_io_uring.py", code]


class Refused(job_test.JobTest):
    def whole(self, **more):
        """The state hash of a run that nothing disturbs."""
        outcome = self.train(name="whole", **more)
        self.assert_status(0, outcome)
        return outcome.state_hash

    def warnings(self, outcome):
        return [line for line in outcome.stderr.splitlines() if "warning: " in line]


class IoUring(Refused):
    # A3
    def test_refused_with_eperm_or_enosys_is_one_warning_and_the_same_state(self):
        expected = self.whole()
        for code, cause in (("EPERM", "seccomp filter"), ("ENOSYS", "no io_uring")):
            outcome = self.train(name=code, prefix=refusing(code))
            self.assert_status(0, outcome)
            self.assertEqual(expected, outcome.state_hash)
            self.assertEqual(1, len(self.warnings(outcome)), outcome)
            self.assert_says(outcome, "io_uring is not available", cause)

    def test_refused_on_every_rank_of_a_job_gives_the_same_state(self):
        expected = self.whole(ranks=2)
        outcome = self.train(ranks=2, name="refused", prefix=refusing("EPERM"))
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)

    def test_refused_where_polling_was_asked_for_is_one_warning_and_the_same_state(self):
        expected = self.whole()
        outcome = self.train(name="refused", prefix=refusing("EPERM"), poll_completions=True, poll_submissions=True)
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)
        self.assertEqual(1, len(self.warnings(outcome)), outcome)
        self.assert_says(outcome, "io_uring is not available")

    def test_polls_completions_where_the_drive_can_and_says_once_where_it_cannot(self):
        expected = self.whole()
        outcome = self.train(name="polling", poll_completions=True)
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)
        warnings = self.warnings(outcome)
        if any(path.read_text().strip() == "1" for path in pathlib.Path("/sys/block").glob("*/queue/io_poll")):
            self.assertLessEqual(len(warnings), 1, outcome)
        else:
            self.assertEqual(1, len(warnings), outcome)
            self.assertIn("has no poll queues", warnings[0])

    def test_refused_where_it_was_asked_for_is_an_error_with_the_remedy(self):
        outcome = self.train(prefix=refusing("EPERM"), io="io_uring")
        self.assertIn(outcome.status, (1, 2), outcome)
        self.assert_says(outcome, "io_uring is not available", "seccomp")

    def test_forbidden_by_the_administrator_names_the_setting(self):
        setting = self.folder / "io_uring_disabled"
        setting.write_text("2\n")
        private = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                   f'mount --bind "{setting}" /proc/sys/kernel/io_uring_disabled && exec "$@"', "sh"]
        if not os.path.exists("/proc/sys/kernel/io_uring_disabled") or subprocess.run([*private, "true"],
                                                                                      capture_output=True).returncode != 0:
            self.skipTest("a private mount over /proc/sys is not possible here")
        outcome = self.train(prefix=[*private, *refusing("EPERM")])
        self.assert_status(0, outcome)
        self.assert_says(outcome, "kernel.io_uring_disabled is 2", "sysctl kernel.io_uring_disabled=0")


class LockedMemory(Refused):
    # A4, M2
    def test_of_64_kib_for_an_ordinary_user_gives_the_same_state_and_at_most_one_warning(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become another user")
        expected = self.whole()
        shutil.rmtree(self.folder / "swap")
        for name in ("swap", "low"):
            (self.folder / name).mkdir()
            os.chown(self.folder / name, 65534, 65534)
        self.folder.chmod(0o755)
        limited = ["prlimit", "--memlock=65536:65536", *AS_NOBODY]
        outcome = self.train(name="low", prefix=limited)
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)
        self.assertLessEqual(len(self.warnings(outcome)), 1, outcome)


class FileSize(Refused):
    def test_limit_below_the_store_is_refused_by_name_and_leaves_nothing(self):
        outcome = self.train(prefix=["prlimit", "--fsize=100000"])
        self.assert_status(3, outcome)
        self.assert_says(outcome, str(self.folder / "swap"), "File too large")
        self.assertEqual([], [path for path in (self.folder / "swap").rglob("*") if path.is_file()])

    def test_limit_met_by_one_rank_ends_the_job_with_the_same_status(self):
        outcome = self.train(ranks=2, prefix=["prlimit", "--fsize=100000"])
        self.assert_status(3, outcome)

    def test_limit_met_by_the_metrics_file_is_an_error_that_names_it(self):
        options = {**self.options(steps=100), "offload_optimizer": "cpu", "swap_path": None}
        outcome = headrace_job.train(self.program, options, self.folder / "run", prefix=["prlimit", "--fsize=5000"])
        self.assert_status(1, outcome)
        self.assert_says(outcome, "metrics.jsonl", "File too large")


@unittest.skipIf(EVERY_MILLISECOND is None, "nothing can be preloaded into this build")
class Interrupted(Refused):
    # A5
    def test_by_a_signal_every_millisecond_gives_the_same_state(self):
        expected = self.whole(steps=10)
        for engine in ("io_uring", "threads"):
            outcome = self.train(name=engine, steps=10, io=engine, prefix=EVERY_MILLISECOND)
            self.assert_status(0, outcome)
            self.assertEqual(expected, outcome.state_hash)
        resumed = self.train(name="more", steps=12, resume="swap", prefix=EVERY_MILLISECOND)
        self.assert_status(0, resumed)

    def test_every_rank_of_a_job_by_a_signal_every_millisecond_gives_the_same_state(self):
        expected = self.whole(ranks=2)
        outcome = self.train(ranks=2, name="interrupted", prefix=EVERY_MILLISECOND)
        self.assert_status(0, outcome)
        self.assertEqual(expected, outcome.state_hash)


if __name__ == "__main__":
    job_test.main()
