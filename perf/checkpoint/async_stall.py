#!/usr/bin/env python3
"""Question: how much of a step does a checkpoint cost that is written beside the steps (`--async-save`)?

The same run without and with saves, in turn, for each placement of the optimizer states. A save after every second step is
written during the one that follows; what these steps take longer than the steps between them, less the same difference of the run
without saves, is the stall. Beside it the same for saves that training waits for. Target: at most 0.05 of a step.

    perf/checkpoint/async_stall.py --headrace build/release/headrace --data FILE --folder DIR [--rounds 5]
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

TARGET = 0.05  # of a step
PLACEMENTS = {
    "host": ["--stage", "1", "--offload-optimizer", "cpu"],
    "nvme": ["--stage", "1", "--offload-optimizer", "nvme", "--overwrite-swap"],
}
MODES = {"without": [], "waits": ["--save-every", "2"], "beside": ["--save-every", "2", "--async-save"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="on the drive that is measured")
    parser.add_argument("--model", default="gpt2-mini")
    parser.add_argument("--steps", type=int, default=16, help="even: half of them save")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--placements", nargs="+", choices=PLACEMENTS, default=list(PLACEMENTS))
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    return parser.parse_args()


def run(options, placement, mode, folder):
    """The seconds of each step, those of the save before it included, and what the program said."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [options.headrace, "train", "--model", options.model, "--data", options.data, "--steps", options.steps + 1, "--batch-size",
               options.batch_size, "--sequence-length", options.sequence_length, "--metrics", metrics, *PLACEMENTS[placement], *MODES[mode]]
    if placement == "nvme":
        command += ["--swap-path", folder]
    if mode != "without":
        command += ["--checkpoint-dir", folder / "checkpoints", "--keep-last", "1"]
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    if finished.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{finished.stdout}{finished.stderr}")
    if mode == "beside" and " waited " in finished.stderr and "for the save of step" in finished.stderr:
        sys.exit("a save took longer than two steps: give a larger --batch-size, or the figure means nothing\n" + finished.stderr)
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = [event["step_seconds"] for event in events if event["event"] == "step"]
    saves = [float(line.split(" in ")[1].split(" s")[0]) for line in finished.stderr.splitlines() if "saved " in line]
    return seconds, saves


def stall_of(seconds, saves, plain, mode):
    """Seconds that a save costs: what the steps behind one take longer, and the save itself where it is waited for.

    Of medians, and against the run's own other steps: one that the machine disturbs, and two runs, differ by more than a save costs.
    """
    behind, others = slice(2, None, 2), slice(3, None, 2)  # what is saved after step 2 is written during step 3
    longer = sum(sign * (statistics.median(run[behind]) - statistics.median(run[others])) for sign, run in ((1, seconds), (-1, plain)))
    return longer + (statistics.median(saves[:-1]) if mode == "waits" else 0)


def main():
    options = arguments()
    figures = {}
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="async-stall-") as name:
        folder = pathlib.Path(name)
        for placement in options.placements:
            rounds = {mode: [] for mode in MODES if mode != "without"}
            steps, save_seconds = [], []
            for _ in range(options.rounds):
                plain, _ = run(options, placement, "without", folder)
                steps.append(statistics.median(plain[1:]))
                for mode in rounds:
                    seconds, saves = run(options, placement, mode, folder)
                    rounds[mode].append(stall_of(seconds, saves, plain, mode) / steps[-1])
                    if mode == "beside":
                        save_seconds.append(statistics.median(saves))
            figures[placement] = {"step_seconds": statistics.median(steps), "save_seconds": statistics.median(save_seconds),
                                  **{mode: statistics.median(ratios) for mode, ratios in rounds.items()},
                                  "rounds": {mode: ratios for mode, ratios in rounds.items()}}
            one = figures[placement]
            print(f"{placement:5} step {one['step_seconds']:.2f} s, a save {one['save_seconds']:.2f} s; of a step: beside {one['beside']:.3f} "
                  f"(target {TARGET}), waited for {one['waits']:.3f}   rounds {' '.join(f'{r:.3f}' for r in rounds['beside'])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if all(one["beside"] <= TARGET for one in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
