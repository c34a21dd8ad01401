"""What the tests that start jobs share: the program under test, a folder, a corpus. usage: SOME_test.py PROGRAM"""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import headrace_job


class JobTest(unittest.TestCase):
    program = None  # set by main()
    maxDiff = None

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="headrace-test-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.corpus = headrace_job.write_corpus(self.folder / "corpus.txt")

    def options(self, **more):
        """A tiny run whose optimizer states are on NVMe, in the place of one before it, as are its checkpoints."""
        swap = self.folder / "swap"
        swap.mkdir(exist_ok=True)
        return {**headrace_job.TINY_MODEL, "data": self.corpus, "steps": 3, "schedule": "constant", "stage": 3,
                "offload_optimizer": "nvme", "swap_path": swap, "overwrite_swap": True, "overwrite_checkpoints": True, **more}

    def train(self, ranks=1, name="run", environment=None, prefix=(), **more):
        return headrace_job.train(self.program, self.options(**more), self.folder / name, ranks, environment=environment,
                                  prefix=prefix)

    def assert_status(self, status, outcome):
        self.assertEqual(status, outcome.status, outcome)

    def assert_says(self, outcome, *words):
        for word in words:
            self.assertIn(word, outcome.stderr)


def with_system_calls(**variables):
    """The prefix of ranks whose system calls fail or are interrupted (system_call_faults.cpp says by which variables); None where
    nothing can be preloaded."""
    library = os.environ.get("HEADRACE_SYSTEM_CALL_FAULTS")
    if not library:
        return None
    return ["env", f"LD_PRELOAD={library}", *(f"HEADRACE_TEST_{name.upper()}={value}" for name, value in variables.items())]


def main():
    if headrace_job.most_ranks() == 0:
        print("skipped: this machine has no CUDA device")
        sys.exit(77)
    JobTest.program = pathlib.Path(sys.argv[1]).resolve()
    sys.exit(unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]]))
