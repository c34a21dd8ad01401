#!/usr/bin/env python3
"""Question: what share of a device's arithmetic does a training step use (model FLOP utilisation)?

MFU = tokens a second x FLOPs a token / peak, with 6 FLOPs for each parameter of a matrix and, for attention, 12 x layers x width
x sequence length (Chowdhery et al. 2022, appendix B; causal attention does half of the latter, which is not subtracted). The
median of the steps after the first three. Also prints what share of the step the compute lane waited for others: 1 less that is
the overlap.

usage: perf/step/mfu.py --peak-tflops 989 [--headrace build/cuda/headrace] [--device cuda] [-- TRAIN-FLAGS...]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = {"gpt2-nano": (2, 64), "gpt2-mini": (6, 384), "gpt2-70m": (10, 768), "gpt2-124m": (12, 768)}  # layers, width


def run(arguments, folder):
    """The metrics of a run of 13 steps."""
    metrics = folder / "metrics.jsonl"
    command = [str(arguments.headrace), "train", "--model", arguments.model, "--data", str(arguments.data), "--device", arguments.device,
               "--batch-size", str(arguments.batch_size), "--sequence-length", str(arguments.sequence_length), "--steps", "13",
               "--metrics", str(metrics), "--quiet", *arguments.flags]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    return [event for event in events if event["event"] == "step"], events[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headrace", type=pathlib.Path, default=ROOT / "build/cuda/headrace")
    parser.add_argument("--peak-tflops", type=float, required=True, help="dense peak of the dtype on one device (bf16: A100 312, H100 989)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="gpt2-124m", choices=SHAPES)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "src")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--sequence-length", type=int, default=1024)
    parser.add_argument("flags", nargs="*", help="further flags of headrace train, after --")
    arguments = parser.parse_args()

    layers, width = SHAPES[arguments.model]
    with tempfile.TemporaryDirectory(prefix="headrace-mfu-") as folder:
        steps, summary = run(arguments, pathlib.Path(folder))
    flops = 6 * summary["parameters"] + 12 * layers * width * arguments.sequence_length
    rate = statistics.median(step["tokens_per_second"] for step in steps[3:])
    stalled = statistics.median(sum(step["stall_seconds"].values()) / step["step_seconds"] for step in steps[3:])
    print(f"{rate:.0f} tokens/s x {flops / 1e9:.3f} GFLOP = {rate * flops / 1e12:.2f} TFLOP/s: MFU {rate * flops / 1e12 / arguments.peak_tflops:.3f} "
          f"of {arguments.peak_tflops:g}; stalled {stalled:.3f} of a step")
    return 0


if __name__ == "__main__":
    sys.exit(main())
