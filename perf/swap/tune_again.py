#!/usr/bin/env python3
"""Question: does what `headrace tune` found and wrote give the same rate when it is run again?

Tunes, then runs the pipeline of perf/swap/pipeline.cpp with the written configuration and as many parameters as a trial had, and
after that `headrace train`, whose time for the optimizer a step is printed beside what the rate predicts for its parameters
(that run has a model in memory and competes for the cores). Ceiling: the rate that tune measured last; within 10% is the same.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time


def run(*command):
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def optimizer_seconds(options, folder, fragment):
    """Seconds of a step's optimizer in a training run of the fragment, and the model's parameters."""
    metrics = folder / "metrics.jsonl"
    run(options.headrace, "train", "--config", fragment, "--model", options.model, "--data", options.data, "--batch-size", 1,
        "--sequence-length", 64, "--steps", 6, "--schedule", "constant", "--metrics", metrics, "--quiet")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [event["stall_seconds"]["optimizer"] for event in events if event["event"] == "step"]
    return statistics.median(steps[2:]), next(event for event in events if event["event"] == "summary")["parameters"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--pipeline", required=True, type=pathlib.Path, help="build/release/perf/swap/perf_swap_pipeline")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the drive to measure")
    parser.add_argument("--data", type=pathlib.Path, help="text to train on; without it nothing is trained")
    parser.add_argument("--model", default="gpt2-124m")
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        fragment, report, again = folder / "swap.json", folder / "tune.json", folder / "again.json"
        start = time.monotonic()
        run(options.headrace, "tune", "--swap-path", folder, "--seconds", options.seconds, "--to", fragment, "--json", report)
        print(f"tune --seconds {options.seconds} took {time.monotonic() - start:.1f} s")
        tuned = json.loads(report.read_text())
        if tuned["ceiling"] is None:
            sys.exit("the tuning had no time to measure its best point")
        print("found:", json.dumps(tuned["best"]))
        rate = tuned["trial_parameters"] / tuned["ceiling"]["step_seconds"]
        run(options.pipeline, "--folder", folder, "--config", fragment, "--parameters", tuned["trial_parameters"], "--rounds", 9,
            "--json", again)
        second = json.loads(again.read_text())["parameters_per_second"]
        print(f"tuned {rate * 1e-6:.1f} M parameters/s, again {second * 1e-6:.1f}: ratio {second / rate:.3f}")
        if options.data:
            seconds, parameters = optimizer_seconds(options, folder, fragment)
            print(f"train {options.model}: optimizer {seconds:.3f} s a step, {parameters / rate:.3f} s by the tuned rate: "
                  f"ratio {seconds * rate / parameters:.3f}")


if __name__ == "__main__":
    main()
