"""Runs the `headrace` program in a folder of its own; shared by the command-line tests."""

import contextlib
import json
import os
import pathlib
import pty
import shutil
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ["HEADRACE"]
LAUNCHER_VARIABLES = ("OMPI_", "PMIX_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK")

# The smallest run: a tenth of a second a step.
TINY = ["--model", "gpt2-mini", "--batch-size", "1", "--sequence-length", "16", "--data", "data.txt"]
NANO = ["--model", "gpt2-nano", "--sequence-length", "16", "--batch-size", "1", "--data", "data.txt"]
ON_NVME = ["--offload-optimizer", "nvme", "--swap-path", "swap"]


def environment():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_VARIABLES)}
    return clean | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


class ProgramTest(unittest.TestCase):
    """Each test has an empty folder with data.txt and swap/ as its working directory."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headrace-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "data.txt").write_text("".join(f"line {i} of some text\n" for i in range(500)))
        (self.folder / "swap").mkdir()

    def run_program(self, *arguments, prefix=(), timeout=240):
        return subprocess.run([*prefix, PROGRAM, *map(str, arguments)], cwd=self.folder, env=environment(),
                              capture_output=True, text=True, errors="surrogateescape", timeout=timeout)

    def start(self, *arguments, prefix=()):
        process = subprocess.Popen([*prefix, PROGRAM, *map(str, arguments)], cwd=self.folder, env=environment(),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(stop_process, process)
        return process

    def start_on_terminal(self, *arguments, prefix=()):
        """The program with its stderr on a terminal; behind a launcher too, which would give its ranks a pipe."""
        terminal, child = pty.openpty()
        name = os.ttyname(child)
        on_terminal = ["sh", "-c", f'exec "$@" 2>{name}', "sh"] if prefix else []
        process = subprocess.Popen([*prefix, *on_terminal, PROGRAM, *arguments], cwd=self.folder,
                                   env=environment(), stdout=subprocess.PIPE, stderr=child, text=True)
        os.close(child)
        self.addCleanup(os.close, terminal)
        self.addCleanup(process.kill)
        return process, terminal

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return name

    def succeeds(self, *arguments, **options):
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def refused(self, *arguments, status=2, says=(), paragraphs=1, **options):
        """The command ends with `status` and one paragraph on stderr that says all of `says`; stdout stays empty."""
        result = self.run_program(*arguments, **options)
        self.assertEqual(result.returncode, status, result.stderr + result.stdout)
        self.assertTrue(result.stderr.startswith("headrace: "), result.stderr)
        self.assertEqual(result.stderr.count("headrace: "), paragraphs, result.stderr)
        for text in says:
            self.assertIn(text, result.stderr)
        self.assertEqual(result.stdout, "")
        return result

    def wait_for_step(self, process, metrics, step, timeout=120):
        """Waits until the metrics file of a running program holds `step`."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if process.poll() is not None:
                self.fail(f"ended early: {process.communicate()}")
            if any(line.get("step", 0) >= step for line in self.metrics(metrics)):
                return
            time.sleep(0.02)
        self.fail(f"no step {step} within {timeout} s")

    def metrics(self, name):
        lines = []
        with contextlib.suppress(FileNotFoundError):
            for line in (self.folder / name).read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # a line in the making
                    lines.append(json.loads(line))
        return lines

    def summary(self, name):
        return next(line for line in self.metrics(name) if line["event"] == "summary")


def read_terminal(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""


def stop_process(process):
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()


@contextlib.contextmanager
def mounted(arguments, target):
    """A mount for the length of the block; skips the test where mounting is not allowed."""
    if subprocess.run(["mount", *arguments, str(target)], capture_output=True).returncode != 0:
        raise unittest.SkipTest("mounting a file system is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(target)], check=True)
