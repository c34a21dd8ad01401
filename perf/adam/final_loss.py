#!/usr/bin/env python3
"""Question: does a small GPT end at the same loss when its optimizer states have fewer bits?

Every format of states trains the same model on the same text from the same initial values, for each seed; the table shows the
loss on held-out text after the last step, its ratio to that of fp32 states of the same seed (the worst over the seeds counts),
and the bytes of states a parameter.

    perf/adam/final_loss.py --headrace build/release/headrace --data FILE [--steps 500] [--seeds 1 2 3]
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

TARGET = 0.01  # of the loss with fp32 states
HELD_OUT_SHARE = 0.1  # the end of the text

FORMATS = {  # name -> options of `train`
    "fp32 master, fp32 moments": [],
    "fp32 master, bf16 moments": ["--moments", "bf16"],
    "fp32 master, int8 moments": ["--moments", "int8"],
    "bf16 master, fp32 moments": ["--master-dtype", "bf16"],
    "bf16 master, bf16 moments": ["--master-dtype", "bf16", "--moments", "bf16"],
    "bf16 master, int8 moments": ["--master-dtype", "bf16", "--moments", "int8"],
}
BASE = next(iter(FORMATS))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text: its last tenth is held out")
    parser.add_argument("--model", default="gpt2-mini")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("train_options", nargs="*", metavar="-- OPTION", help="further options of `headrace train`")
    return parser.parse_args()


def split(data, folder):
    text = data.read_bytes()
    border = int(len(text) * (1 - HELD_OUT_SHARE))
    training, held_out = folder / "training.txt", folder / "held-out.txt"
    training.write_bytes(text[:border])
    held_out.write_bytes(text[border:])
    return ["--data", training, "--eval-data", held_out, "--eval-batches", 32]


def final_loss(options, data, extra, seed, folder):
    """(held-out loss after the last step, bytes of states a parameter) of one run."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [options.headrace, "train", "--model", options.model, *data, "--steps", options.steps, "--seed", seed, "--batch-size",
               options.batch_size, "--sequence-length", options.sequence_length, "--metrics", metrics, "--quiet", *extra, *options.train_options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with status {done.returncode}: {done.stderr[-2000:]}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    losses = [event["eval_loss"] for event in events if "eval_loss" in event]
    if not losses or losses[-1] is None or not math.isfinite(losses[-1]):
        sys.exit(f"{' '.join(map(str, command))}\nhas no finite held-out loss at its end")
    summary = events[-1]
    return losses[-1], summary["planned"]["optimizer"] / summary["parameters"]


def compare(options, folder):
    """A row for each format, printed as it is known."""
    data, base, results = split(options.data, folder), {}, []
    print(f"{'':28}{'states':>12}  {'held-out loss, one a seed':26}{'of fp32 states, worst':>22}")
    for form, extra in FORMATS.items():
        losses = []
        for seed in options.seeds:
            loss, state_bytes = final_loss(options, data, extra, seed, folder)
            base.setdefault(seed, loss)
            losses.append(loss)
        ratios = [loss / base[seed] for loss, seed in zip(losses, options.seeds)]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1))
        results.append({"case": form, "value": losses, "unit": "nats a byte", "ratio": worst, "ratios": ratios, "state_bytes": state_bytes})
        shown = ", ".join(f"{loss:.4f}" for loss in losses)
        print(f"{form:28}{state_bytes:8.2f} B/p  {shown:26}{worst:22.4f}", flush=True)
    return results


def main():
    options = arguments()
    for path in (options.headrace, options.data):
        if not path.is_file():
            sys.exit(f"there is no file {path}")
    print(f"{options.model}, {options.steps} steps, seeds {' '.join(map(str, options.seeds))}")
    with tempfile.TemporaryDirectory() as name:
        results = compare(options, pathlib.Path(name))
    met = all(abs(result["ratio"] - 1) <= TARGET for result in results)
    print(f"within {TARGET:.0%} of {BASE}: {'met' if met else 'NOT met'}")
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "loss by format of states", "results": results}, indent=1))


if __name__ == "__main__":
    main()
