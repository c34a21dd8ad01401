#!/usr/bin/env python3
"""Question: are checkpoints saved, and loaded, as fast as the disk allows, and how fast beside PyTorch's ways?

Runs the contenders in turn, round after round, on one file system (disks drift: medians of paired ratios). Every contender moves
the same bytes, makes its files anew, and is done when they are flushed; all of them but PyTorch's use O_DIRECT.

saving from host memory   against fio's sequential write, a file for each rank, fsync at the end
saving from NVMe          against fio reading one file while it writes another, until both are done
loading into host memory  against fio's sequential read
PyTorch's                 torch.save, torch.distributed.checkpoint, safetensors, of one rank, from and into host memory

fio runs in each of the given shapes (block size and depth), of which the fastest by median is the ceiling. The first shape is what a
save keeps in flight.

    perf/checkpoint/compare.py --program build/release/perf/checkpoint/perf_checkpoint --folder DIR [--torch-python PYTHON]

A measurement is a class below with `name`, `target` and `run() -> {contender: seconds}`; main() runs those of the chosen cases.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile

import torch_files

OURS = "headrace"
STATE_BYTES = 12  # a parameter: fp32 master and two moments
FIO_TARGET = 0.9  # at least, of fio's rate


def fail(what):
    sys.exit(f"perf/checkpoint: {what}")


class Checkpoints:
    """A perf_checkpoint process for each combination of tier and ranks, kept while it is measured."""

    def __init__(self, options, folder, tier, ranks):
        self.folder = folder / f"headrace-{tier}-{ranks}"
        self.folder.mkdir()
        launcher = ["mpirun", "-n", str(ranks), "--bind-to", "none"] if ranks > 1 else []
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"} if os.geteuid() == 0 else {}
        module = {"HEADRACE_MODULE_PATH": str(pathlib.Path(options.program).resolve().parents[2])}
        command = [*launcher, options.program, "--folder", str(self.folder), "--tier", tier]
        command += ["--parameters", str(options.parameters)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | root | module)

    def run(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            fail(f"perf_checkpoint ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        shutil.rmtree(self.folder)


class Fio:
    """Sequential transfers of whole files, all at once; seconds until the last is done."""

    def __init__(self, folder, shape):
        self.folder = folder
        self.shape = shape
        self.block, self.depth = shape.split(":")

    def name(self):
        return f"fio {self.block} x {self.depth}"

    def run(self, jobs):
        """Jobs are (direction, file name, bytes). Files to write are made anew, those to read exist."""
        # Contents are not scrambled, so that no time goes into them; memory of huge pages, as Headrace's is.
        command = ["fio", "--output-format=json", "--ioengine=io_uring", "--direct=1", "--scramble_buffers=0"]
        command += [f"--bs={self.block}", f"--iodepth={self.depth}", "--thread"]
        for direction, file, count in jobs:
            path = self.folder / file
            if direction == "write":
                path.unlink(missing_ok=True)
            command += [f"--name={file}", f"--filename={path}", f"--rw={direction}", f"--size={count}"]
            command += [f"--end_fsync={int(direction == 'write')}"]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
        if done.returncode != 0:
            fail(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
        report = json.loads(done.stdout[done.stdout.index("{") :])
        return max(job["job_runtime"] for job in report["jobs"]) / 1000


class Case:
    target = FIO_TARGET

    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.bytes = options.parameters * STATE_BYTES
        self.fios = [Fio(folder, shape) for shape in options.fio_shapes.split(",")]

    def part(self, ranks):
        return self.bytes // ranks // (1 << 20) * (1 << 20)

    def close(self):
        pass


class SaveFromHost(Case):
    def __init__(self, options, folder, ranks):
        super().__init__(options, folder)
        self.name = f"save from host memory, {ranks} rank{'s' if ranks > 1 else ''}"
        self.ranks = ranks
        self.ours = Checkpoints(options, folder, "host", ranks)

    def jobs(self):
        return [("write", f"written-{rank}", self.part(self.ranks)) for rank in range(self.ranks)]

    def contenders(self):
        yield OURS, lambda: self.ours.run("save")["seconds"]
        for fio in self.fios:
            yield fio.name(), lambda fio=fio: fio.run(self.jobs())

    def close(self):
        self.ours.close()


class SaveFromNvme(SaveFromHost):
    def __init__(self, options, folder, ranks):
        Case.__init__(self, options, folder)
        self.name = f"save from NVMe, {ranks} rank{'s' if ranks > 1 else ''}"
        self.ranks = ranks
        self.ours = Checkpoints(options, folder, "nvme", ranks)
        for rank in range(ranks):
            self.fios[0].run([("write", f"read-{rank}", self.part(ranks))])

    def jobs(self):
        return super().jobs() + [("read", f"read-{rank}", self.part(self.ranks)) for rank in range(self.ranks)]


class Load(Case):
    target = None  # also allocates what it fills

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.name = "load into host memory, 1 rank"
        self.ours = Checkpoints(options, folder, "host", 1)
        self.ours.run("save")
        self.fios[0].run([("write", "read-0", self.part(1))])

    def contenders(self):
        yield OURS, lambda: self.ours.run("load")["seconds"]
        for fio in self.fios:
            yield fio.name(), lambda fio=fio: fio.run([("read", "read-0", self.part(1))])

    def close(self):
        self.ours.close()


class BesideTorch(Case):
    target = None

    def __init__(self, options, folder, action):
        super().__init__(options, folder)
        self.name = f"{action}, beside PyTorch's"
        self.action = action
        self.ours = Checkpoints(options, folder, "host", 1)
        self.torch = torch_files.TorchFiles(options.torch_python, self.bytes, 16 << 20)
        if action == "load":
            self.ours.run("save")
            for library in torch_files.LIBRARIES:
                self.torch.measure(library, "save", self.path(library))

    def path(self, library):
        return self.folder / library.replace(" ", "-")

    def contenders(self):
        yield OURS, lambda: self.ours.run(self.action)["seconds"]
        for library in torch_files.LIBRARIES:
            yield library, lambda library=library: self.torch.measure(library, self.action, self.path(library))

    def close(self):
        self.ours.close()
        self.torch.close()


CASES = {
    "host": lambda options, folder: SaveFromHost(options, folder, 1),
    "host2": lambda options, folder: SaveFromHost(options, folder, 2),
    "nvme": lambda options, folder: SaveFromNvme(options, folder, 1),
    "nvme2": lambda options, folder: SaveFromNvme(options, folder, 2),
    "load": Load,
    "torch-save": lambda options, folder: BesideTorch(options, folder, "save"),
    "torch-load": lambda options, folder: BesideTorch(options, folder, "load"),
}


def measure(case, rounds):
    """Seconds of every contender in every round; the order turns, and the round before the first is not kept."""
    samples = {name: [] for name, _ in case.contenders()}
    contenders = list(case.contenders())
    for number in range(-1, rounds):
        turn = number % len(contenders)
        for name, run in contenders[turn:] + contenders[:turn]:
            seconds = run()
            if number >= 0:
                samples[name].append(seconds)
    return samples


def rows_of(case, samples):
    others = {name: statistics.median(seconds) for name, seconds in samples.items() if name != OURS}
    ceiling = min(others, key=others.get)
    rows = []
    for name in others:
        ratios = [other / own for own, other in zip(samples[OURS], samples[name])]
        rows.append({"case": f"{case.name}, beside {name}", "value": case.bytes / statistics.median(samples[OURS]), "unit": "bytes/s",
                     "ceiling": case.bytes / others[name], "ratio": statistics.median(ratios), "rounds": ratios,
                     "target": case.target if name == ceiling else None})  # fmt: skip
    return rows


def print_row(row):
    text = f"{row['case']:52}{row['value'] / 1e9:6.2f} GB/s{row['ceiling'] / 1e9:7.2f} GB/s  {row['ratio']:.3f} x"
    text += f" ({min(row['rounds']):.3f} to {max(row['rounds']):.3f})"
    if row["target"]:
        text += f" (wanted at least {row['target']}: {'met' if row['ratio'] >= row['target'] else 'NOT met'})"
    print(text, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the perf_checkpoint executable")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the disk to measure")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {', '.join(CASES)}; PyTorch's need --torch-python")
    parser.add_argument("--parameters", type=int, default=128 << 20, help=f"{STATE_BYTES} bytes of states each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fio-shapes", default="2M:8,4M:3,1M:32", help="block size and depth of each")
    parser.add_argument("--torch-python", help="a Python that has torch and safetensors")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    options = parser.parse_args()
    options.cases = options.cases.split(",")
    unknown = [name for name in options.cases if name not in CASES]
    if unknown:
        fail(f"--cases: there is no {unknown[0]}; there are {', '.join(CASES)}")
    if options.torch_python is None:
        options.cases = [name for name in options.cases if not name.startswith("torch")]
    if not options.folder.is_dir():
        fail(f"--folder: there is no folder {options.folder}")
    for program in ("fio", options.program):
        if shutil.which(program) is None:
            fail(f"there is no program {program}")
    return options


def main():
    options = parse_arguments()
    results = []
    for name in options.cases:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            case = CASES[name](options, pathlib.Path(folder))
            try:
                rows = rows_of(case, measure(case, options.rounds))
            finally:
                case.close()
        results += rows
        for row in rows:
            print_row(row)
    if options.json:
        machine = {"cpus": os.cpu_count(), "kernel": platform.release()}
        options.json.write_text(json.dumps({"benchmark": "checkpoint", "machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()
