#!/usr/bin/env python3
"""Question: does the final state depend on stage, tiers, block size, prefetch depth or threads? It must not, by one bit.

Runs the whole grid of tests/support/state_grid.py (the suite runs a pairwise part of it) and compares state hashes within
each world size and accumulation.

usage: perf/grid/state_hash_grid.py [--program build/release/headrace] [--ranks N,N] [--folder DIR]
"""
import argparse
import pathlib
import shutil
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/support"))

import headrace_job  # noqa: E402
import state_grid  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headrace")
    parser.add_argument("--ranks", default="1,2,3,4", help="world sizes (default 1,2,3,4)")
    parser.add_argument("--folder", type=pathlib.Path, help="where the runs keep their files (default: a temporary folder)")
    arguments = parser.parse_args()
    ranks = {int(text) for text in arguments.ranks.split(",")}
    folder = arguments.folder or pathlib.Path(tempfile.mkdtemp(prefix="headrace-grid-"))
    folder.mkdir(parents=True, exist_ok=True)

    comparison = state_grid.Comparison(arguments.program.resolve(), headrace_job.write_corpus(folder / "corpus.txt"), folder)
    started = time.monotonic()
    for reference in state_grid.references():
        if reference["ranks"] in ranks and (outcome := comparison.add(reference)):
            state_grid.check_clipping(outcome)
    cases = [case for case in state_grid.whole() if case["ranks"] in ranks]
    for number, case in enumerate(cases, start=1):
        before = len(comparison.differing)
        comparison.add(case)
        for difference in comparison.differing[before:]:
            print(f"DIFFERS {difference}", flush=True)
        shutil.rmtree(folder / f"run-{comparison.runs - 1}", ignore_errors=True)
        if number % 100 == 0:
            print(f"{number} of {len(cases)} in {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)

    for group, state_hash in sorted(comparison.hashes.items()):
        print(", ".join(f"{name} {value}" for name, value in zip(state_grid.GROUP, group)) + f": {state_hash}")
    print(f"{comparison.runs} runs, {len(comparison.differing)} differ, {time.monotonic() - started:.0f} s")
    if arguments.folder is None:
        shutil.rmtree(folder)
    sys.exit(1 if comparison.differing else 0)


if __name__ == "__main__":
    main()
