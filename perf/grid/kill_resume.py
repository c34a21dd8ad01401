#!/usr/bin/env python3
"""Question: does a run with optimizer states on NVMe survive kill -9 at any moment, by every bit of its final state?

Kills runs of 1 and 2 ranks at random moments (the seed is printed; the suite does a few), resumes each with --resume swap
and compares the final state hash with an uninterrupted run's, and with `inspect --hash` of what is on disk.

usage: perf/grid/kill_resume.py [--moments 20] [--seed N] [--program build/release/headrace]
"""
import argparse
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import headrace_job  # noqa: E402
import kill_resume  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headrace")
    parser.add_argument("--moments", type=int, default=20, help="kills for each world size (default 20)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    arguments = parser.parse_args()

    print(f"seed {arguments.seed}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="headrace-kill-") as text:
        folder = pathlib.Path(text)
        corpus = headrace_job.write_corpus(folder / "corpus.txt")
        for ranks in (1, 2):
            trials = kill_resume.KillResume(arguments.program.resolve(), corpus, folder / f"ranks-{ranks}", ranks,
                                            arguments.seed)
            for number in range(arguments.moments):
                text, same = trials.trial(number)
                failed += not same
                print(f"ranks {ranks}, moment {number + 1}: {'equal' if same else 'DIFFERS'}: {text}", flush=True)
    print(f"{2 * arguments.moments} kills, {failed} differ")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
