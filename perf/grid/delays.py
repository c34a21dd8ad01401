#!/usr/bin/env python3
"""Question: does a run on emulated CUDA devices depend on timing? It must not, by one bit, and every order must have its event.

Each run holds the work of its streams back by random times of its own seed and takes another placement of
tests/support/state_grid.py; its state hash is compared with that of an undelayed run of the same batch, and the emulation
ends it at the first pair of accesses that no event orders. The suite does some twenty seeds.

usage: perf/grid/delays.py [--seeds 200] [--first 1] [--program build/release/headrace_emulated]
"""
import argparse
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))
os.environ.update(HEADRACE_JOB_DEVICE="cuda", HEADRACE_ISA="scalar")

import headrace_job  # noqa: E402
import state_grid  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headrace_emulated")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1, help="first seed (default 1)")
    arguments = parser.parse_args()

    start = time.monotonic()
    cases = state_grid.pairwise()
    with tempfile.TemporaryDirectory(prefix="headrace-delays-") as text:
        folder = pathlib.Path(text)
        corpus = headrace_job.write_corpus(folder / "corpus.txt")
        comparison = state_grid.Comparison(arguments.program.resolve(), corpus, folder)
        for case in state_grid.references():
            comparison.add(case)
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            comparison.add(cases[seed % len(cases)], HEADRACE_EMULATED_DELAYS=str(seed))
            print(f"seed {seed}: {len(comparison.differing)} differ so far, {time.monotonic() - start:.0f} s", flush=True)
    print("\n".join(comparison.differing))
    print(f"{arguments.seeds} seeds, {len(comparison.differing)} differ, {time.monotonic() - start:.0f} s")
    sys.exit(1 if comparison.differing else 0)


if __name__ == "__main__":
    main()
