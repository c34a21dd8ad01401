#!/usr/bin/env python3
"""Question: does Headrace's I/O engine move bytes as fast as the best of fio and deepspeed, and at fio's cost in CPU time?

Runs the contenders in turn, round after round (disks are bursty: medians of paired ratios), for each block size, depth and
direction, with O_DIRECT and registered buffers, each on a file of its own that was written once before. Prints a table, or
with --json one object: for each case the median rate, the best other contender's as the ceiling and the median ratio; and CPU
seconds per GB (the whole process, the kernel's workers for it included), fio's io_uring as the ceiling. The cost of a
CRC32C of the same bytes is a row of its own.

    perf/io/compare.py --program build/release/perf/io/perf_io --folder /path/on/the/disk [--deepspeed-python PYTHON] [--json]

How to make a Python that has deepspeed says perf/io/deepspeed_aio.py --help; without it fio alone is the ceiling.

A contender is a class below with `name`, `path` and `run(case) -> Sample`.
"""

import argparse
import dataclasses
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import deepspeed_aio

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
RATE_TARGET, CPU_TARGET = 0.97, 1.2


def parse_size(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


@dataclasses.dataclass(frozen=True)
class Case:
    block_bytes: int
    depth: int
    direction: str
    file_bytes: int
    passes: int
    pause_seconds: float

    def __str__(self):
        size = f"{self.block_bytes >> 20} MiB" if self.block_bytes >= 1 << 20 else f"{self.block_bytes >> 10} KiB"
        return f"{self.direction} block {size} depth {self.depth}"


@dataclasses.dataclass(frozen=True)
class Sample:
    bytes_per_second: float
    cpu_seconds_per_gb: float
    crc_cpu_seconds_per_gb: float = 0.0


def output_of(command, **more_environment):
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | more_environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout[done.stdout.index("{") :])


class Headrace:
    def __init__(self, program, folder, engine="io_uring", flags=()):
        self.name = " ".join(["headrace", engine, *flags])
        self.path = os.path.join(folder, "perf-io-headrace.bin")
        self.command = [program, self.path, "--engine", engine, *flags]

    def run(self, case):
        result = output_of(
            self.command
            + ["--direction", case.direction, "--depth", str(case.depth), "--block-bytes", str(case.block_bytes)]
            + ["--file-bytes", str(case.file_bytes), "--passes", str(case.passes)]
            + ["--pause-seconds", str(case.pause_seconds)]
        )
        cpu = result["cpu_seconds_per_gb"]["total"]
        return Sample(result["bytes_per_second"], cpu, result["crc_cpu_seconds_per_gb"])


class Fio:
    def __init__(self, folder, engine, flags=()):
        self.name = f"fio {engine}"
        self.path = os.path.join(folder, "perf-io-fio.bin")
        # scramble_buffers=0: fio does not spend time on the contents. Not --thread: then its CPU time leaves out the
        # kernel's workers that carry its requests out. Its malloc asks for huge pages, as Headrace's pools do: what
        # lies in few pages takes few requests to the disk.
        self.command = ["fio", "--name=ceiling", f"--filename={self.path}", f"--ioengine={engine}", "--direct=1"]
        self.command += ["--scramble_buffers=0", "--output-format=json", *flags]

    def run(self, case):
        result = output_of(
            self.command
            + [f"--rw={case.direction}", f"--bs={case.block_bytes}", f"--iodepth={case.depth}"]
            + [f"--size={case.file_bytes}", f"--io_size={case.file_bytes * case.passes}"]
            + [f"--startdelay={max(1, round(case.pause_seconds))}"],
            GLIBC_TUNABLES="glibc.malloc.hugetlb=1",
        )
        job = result["jobs"][0]
        moved = job[case.direction]
        seconds = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
        rate = moved["io_bytes"] / (moved["runtime"] / 1000)
        return Sample(rate, seconds / (moved["io_bytes"] / 1e9))


class DeepSpeed:
    """deepspeed's async_io op, loaded once in a process of its own."""

    name = "deepspeed async_io"

    def __init__(self, folder, python):
        self.path = os.path.join(folder, "perf-io-deepspeed.bin")
        self.op = deepspeed_aio.AsyncIo(python)

    def run(self, case):
        time.sleep(case.pause_seconds)
        result = self.op.measure(self.path, case.direction, case.block_bytes, case.depth, case.file_bytes)
        return Sample(result["bytes_per_second"], result["cpu_seconds_per_gb"])


def measure(contenders, case, rounds):
    """One untimed round writes every file; then all contenders in turn."""
    written = set()
    for contender in contenders:
        if contender.path not in written:
            contender.run(dataclasses.replace(case, direction="write", passes=1, pause_seconds=0))
            written.add(contender.path)
    samples = {contender.name: [] for contender in contenders}
    for number in range(rounds):
        order = contenders if number % 2 == 0 else contenders[::-1]
        for contender in order:
            samples[contender.name].append(contender.run(case))
    return samples


def median_of(samples, attribute):
    return statistics.median(getattr(sample, attribute) for sample in samples)


def paired_ratio(samples, others, attribute):
    return statistics.median(getattr(a, attribute) / getattr(b, attribute) for a, b in zip(samples, others))


def fastest_other(name, samples):
    """Ours is measured against fio and deepspeed, deepspeed against fio."""
    others = [other for other in samples if other.startswith("fio") or (other == DeepSpeed.name and name != other)]
    return max(others, key=lambda other: median_of(samples[other], "bytes_per_second"))


def rows_of(case, samples, ours, rounds):
    rows = []
    for name, own in samples.items():
        if name.startswith("fio"):
            continue
        fastest = fastest_other(name, samples)
        common = {"contender": name, "rounds": rounds}
        rate, best = (median_of(values, "bytes_per_second") for values in (own, samples[fastest]))
        rows.append({"case": f"{case}, rate", "value": round(rate), "unit": "bytes/s", "ceiling": round(best)}
                    | {"ratio": round(paired_ratio(own, samples[fastest], "bytes_per_second"), 3)}
                    | {"ceiling_from": fastest} | common)  # fmt: skip
        cpu, reference = (median_of(values, "cpu_seconds_per_gb") for values in (own, samples["fio io_uring"]))
        rows.append({"case": f"{case}, CPU", "value": round(cpu, 5), "unit": "s/GB", "ceiling": round(reference, 5)}
                    | {"ratio": round(cpu / reference, 3) if reference else None}
                    | {"ceiling_from": "fio io_uring"} | common)  # fmt: skip
        if name == ours and case.direction == "read":
            crc = median_of(own, "crc_cpu_seconds_per_gb")
            rows.append({"case": f"{case}, CRC32C alone", "value": round(crc, 5), "unit": "s/GB", "ceiling": None}
                        | {"ratio": None} | common)  # fmt: skip
    return rows


def print_row(row):
    if row["unit"] == "bytes/s":
        value, ceiling = f"{row['value'] / 1e9:7.2f} GB/s", f"{row['ceiling'] / 1e9:7.2f} GB/s"
        good = row["ratio"] >= RATE_TARGET
    else:
        value = f"{row['value'] * 1e3:7.1f} ms/GB"
        ceiling = f"{row['ceiling'] * 1e3:7.1f} ms/GB" if row["ceiling"] is not None else ""
        good = row["ratio"] is None or row["ratio"] <= CPU_TARGET
    ratio = f"{row['ratio']:6.3f}" if row["ratio"] is not None else ""
    mark = "" if good or row["contender"] == DeepSpeed.name else "  beyond the target"
    print(f"{row['contender']:20} {row['case']:44} {value} {ceiling:>13} {ratio}{mark}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the perf_io executable")
    parser.add_argument("--folder", required=True, help="a folder on the disk to measure")
    parser.add_argument("--file-bytes", default="1GiB")
    parser.add_argument("--passes", type=int, default=4, help="over the file; fio counts CPU time in milliseconds")
    parser.add_argument("--blocks", default="128KiB,1MiB,8MiB")
    parser.add_argument("--depths", default="1,8,32")
    parser.add_argument("--directions", default="read,write")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pause-seconds", type=float, default=1.0, help="each contender's rest before its run")
    parser.add_argument("--engine", default="io_uring", choices=("io_uring", "threads"))
    parser.add_argument("--unaligned", action="store_true", help="also with buffers that direct I/O cannot use")
    parser.add_argument("--deepspeed-python", help="a Python that has deepspeed: its async_io op is a contender too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main():
    options = parse_arguments()
    ours = Headrace(options.program, options.folder, options.engine)
    contenders = [ours]
    if options.unaligned:
        contenders.append(Headrace(options.program, options.folder, options.engine, ("--unaligned",)))
    contenders += [
        Fio(options.folder, "io_uring", ("--fixedbufs=1", "--registerfiles=1")),
        Fio(options.folder, "libaio"),
    ]
    versions = {}
    if options.deepspeed_python:
        contenders.append(DeepSpeed(options.folder, options.deepspeed_python))
        versions = contenders[-1].op.versions
    cases = itertools.product(options.blocks.split(","), options.depths.split(","), options.directions.split(","))
    results = []
    if versions and not options.json:
        print("deepspeed {deepspeed}, torch {torch}".format(**versions))
    try:
        for block, depth, direction in cases:
            case = Case(
                parse_size(block),
                int(depth),
                direction,
                parse_size(options.file_bytes),
                options.passes,
                options.pause_seconds,
            )
            rows = rows_of(case, measure(contenders, case, options.rounds), ours.name, options.rounds)
            results += rows
            if not options.json:
                for row in rows:
                    print_row(row)
    finally:
        if versions:
            contenders[-1].op.close()
        for contender in contenders:
            if os.path.exists(contender.path):
                os.remove(contender.path)
    if options.json:
        machine = {"cpus": os.cpu_count(), "kernel": platform.release(), **versions}
        print(json.dumps({"benchmark": "io", "machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
