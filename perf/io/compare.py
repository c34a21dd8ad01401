#!/usr/bin/env python3
"""Question: does Headrace's I/O engine read and write a file as fast as fio does?

Runs perf_io and fio in alternation (disks are bursty: compare medians of the same minutes), block 1 and 8 MiB, depth 8,
O_DIRECT, and prints one JSON object: for each case the median rate, fio's median as the ceiling, and their ratio.

    perf/io/compare.py --program build/release/perf/io/perf_io --folder /path/on/the/disk [--rounds 5] [--engine threads]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys

DEPTH = 8
BLOCKS = ("1MiB", "8MiB")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the perf_io executable")
    parser.add_argument("--folder", required=True, help="a folder on the disk to measure")
    parser.add_argument("--file-bytes", default="512MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="io_uring", choices=("io_uring", "threads"))
    return parser.parse_args()


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout[done.stdout.index("{") :])


def headrace_rate(options, path, direction, block):
    result = output_of(
        [options.program, path, "--engine", options.engine, "--direction", direction, "--depth", str(DEPTH)]
        + ["--file-bytes", options.file_bytes, "--block-bytes", block]
    )
    return result["bytes_per_second"]


def fio_rate(options, path, direction, block):
    result = output_of(
        # kb_base=1000: MiB then means 1024 KiB (with fio's default it means 1000 kB)
        ["fio", "--name=ceiling", f"--filename={path}", f"--rw={direction}", f"--iodepth={DEPTH}", "--direct=1"]
        + ["--ioengine=io_uring", "--thread", "--kb_base=1000", "--output-format=json"]
        + [f"--size={options.file_bytes}", f"--bs={block}"]
    )
    return result["jobs"][0][direction]["bw_bytes"]


def measure(options, paths, direction, block):
    ours, ceiling = [], []
    for _ in range(options.rounds):
        ceiling.append(fio_rate(options, paths["fio"], direction, block))
        ours.append(headrace_rate(options, paths["headrace"], direction, block))
    value, limit = statistics.median(ours), statistics.median(ceiling)
    return {
        "case": f"{direction} block {block} depth {DEPTH} {options.engine}",
        "value": round(value),
        "unit": "bytes/s",
        "ceiling": round(limit),
        "ratio": round(value / limit, 3),
        "rounds": options.rounds,
    }


def main():
    options = parse_arguments()
    paths = {name: os.path.join(options.folder, f"perf-io-{name}.bin") for name in ("headrace", "fio")}
    try:
        fio_rate(options, paths["fio"], "write", BLOCKS[-1])  # writes each file once: first writes are slower
        headrace_rate(options, paths["headrace"], "write", BLOCKS[-1])
        results = [
            measure(options, paths, direction, block) for block in BLOCKS for direction in ("read", "write")
        ]
    finally:
        for path in paths.values():
            if os.path.exists(path):
                os.remove(path)
    machine = {"cpus": os.cpu_count(), "kernel": platform.release()}
    print(json.dumps({"benchmark": "io", "machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
