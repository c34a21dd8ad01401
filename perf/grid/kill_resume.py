#!/usr/bin/env python3
"""Question: after kill -9 at any moment, is the last step that was committed on every rank on disk, by every bit?

Kills runs of 1 and 3 ranks at random moments (the seed is printed; the suite does a few): ranks at different times, one of
them delayed by SIGSTOP, during starts, resumes, steps and commits, over one swap path, over several, and where the program
offers it with parity over several. After each kill the hash of what `inspect` finds, with parity also without one of the
paths, is compared with that of the same step of a run that nobody killed, and the next run goes on from it.

usage: perf/grid/kill_resume.py [--moments 200] [--seed N] [--program build/release/headrace]
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

STEPS = 16  # of a run that is not killed

def cases(program):
    """(ranks, what the store is like)"""
    stores = [{}, {"paths": 2}]
    if kill_resume.takes(program, "--swap-parity"):
        stores.append({"paths": 3, "parity": 1})
    return [(ranks, store) for ranks in (1, 3) for store in stores]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/release/headrace")
    parser.add_argument("--moments", type=int, default=200, help="kills over all cases (default 200)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    arguments = parser.parse_args()

    program = arguments.program.resolve()
    print(f"seed {arguments.seed}")
    begin, kills, wrong = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="headrace-kill-") as text:
        folder = pathlib.Path(text)
        corpus = headrace_job.write_corpus(folder / "corpus.txt")
        all_cases, references = cases(program), {}
        for ranks, store in all_cases:
            if ranks not in references:
                references[ranks] = kill_resume.reference(program, corpus, folder / f"reference-{ranks}", ranks, STEPS)
            case = f"ranks {ranks}" + "".join(f", {name} {value}" for name, value in store.items())
            trials = kill_resume.KillResume(program, corpus, folder / case.replace(", ", "-"), ranks, arguments.seed,
                                            references[ranks], **store)
            for number in range(-(-arguments.moments // len(all_cases))):
                text, good = trials.trial(number)
                kills, wrong = kills + 1, wrong + (not good)
                print(f"{case}, moment {number + 1}: {'right' if good else 'WRONG'}: {text}", flush=True)
            text, good = trials.finish()
            wrong += not good
            print(f"{case}: {'right' if good else 'WRONG'}: {text}", flush=True)
    print(f"{kills} kills in {time.monotonic() - begin:.0f} s, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
