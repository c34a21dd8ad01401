#!/usr/bin/env python3
"""Checks what scripts/quickstart promises, from the metrics of its run, and prints each claim with its figures."""
import argparse
import collections
import json
import math
import pathlib
import resource
import subprocess
import sys

MIB = 1 << 20
SLACK = 64 * MIB  # code, libraries' own state and thread stacks beyond the base
STATE_BYTES_PER_PARAMETER = 16  # 2 parameter + 2 gradient + 12 optimizer (master and both moments in fp32)


def read_metrics(path):
    events = [json.loads(line) for line in path.read_text().splitlines()]
    return [e for e in events if e["event"] == "step"], next(e for e in events if e["event"] == "summary")


def entropy_nats(data):
    """Entropy of the byte frequencies: the loss of a model that knows only them."""
    total = len(data)
    return -sum(n / total * math.log(n / total) for n in collections.Counter(data).values())


def base_rss_bytes(program):
    """Resident memory of the program when it has started and done nothing."""
    subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def claims(steps, summary, device, host, base, entropy):
    """Yields (claim, left, relation, right, unit): each holds when left <= right, or left < right where said."""
    states = summary["parameters"] * STATE_BYTES_PER_PARAMETER
    held_out = next(s["eval_loss"] for s in reversed(steps) if "eval_loss" in s)
    yield "parameters are at least 70M", 70e6, "<=", summary["parameters"], ""
    yield "8 x device memory fits in the model's states", 8 * device, "<=", states, "MiB"
    yield "2 x (device + host memory + 64 MiB) does too", 2 * (device + host + SLACK), "<=", states, "MiB"
    yield "peak of the process <= device + host + base + 64 MiB", summary["peak_rss_bytes"], "<=", (
        device + host + base + SLACK), "MiB"
    yield "held-out loss is below the text's unigram entropy", held_out, "<", entropy, "nats a byte"
    last = [step["loss"] for step in steps[-10:]]
    yield "training loss, mean of the last 10 steps, is too", sum(last) / len(last), "<", entropy, "nats a byte"


def show(value, unit):
    return f"{value / MIB:.0f}" if unit == "MiB" else f"{value:.3f}" if unit else f"{value:,.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--metrics", type=pathlib.Path, required=True)
    parser.add_argument("--held-out", type=pathlib.Path, required=True)
    parser.add_argument("--device-mib", type=int, required=True)
    parser.add_argument("--host-mib", type=int, required=True)
    arguments = parser.parse_args()

    steps, summary = read_metrics(arguments.metrics)
    entropy = entropy_nats(arguments.held_out.read_bytes())
    base = base_rss_bytes(arguments.program)
    print("\nWhat was shown:")
    failed = 0
    for claim, left, relation, right, unit in claims(steps, summary, arguments.device_mib * MIB,
                                                     arguments.host_mib * MIB, base, entropy):
        holds = left < right if relation == "<" else left <= right
        failed += not holds
        print(f"  {'yes' if holds else 'NO ':4}{claim}: {show(left, unit)} {relation} {show(right, unit)} {unit}".rstrip())
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
