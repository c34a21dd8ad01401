#!/usr/bin/env python3
"""Question: how fast do torch.save, torch.distributed.checkpoint and safetensors write and read the same states?

Holds fp32 tensors of the asked bytes and reads commands from stdin, a line of JSON each ({"library":, "action": "save" or "load",
"path":}), answering each with one line of JSON. A save ends when its bytes are flushed (fsync of every file and folder), as
Headrace's does. Before a load the files leave the page cache. What an earlier save wrote is removed outside the clock. TorchFiles
below is the other side, for scripts that have no torch themselves.

    python3 -m venv VENV && VENV/bin/pip install torch numpy safetensors
    VENV/bin/python perf/checkpoint/torch_files.py --bytes 2147483648
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import warnings

LIBRARIES = ("torch.save", "torch DCP", "safetensors")
INSTALL = "python3 -m venv VENV && VENV/bin/pip install torch numpy safetensors"
KINDS = ("master", "exp_avg", "exp_avg_sq")


class TorchFiles:
    def __init__(self, python, total_bytes, tensor_bytes):
        if shutil.which(python) is None:
            sys.exit(f"--torch-python: there is no {python}. To make one: {INSTALL}")
        command = [python, __file__, "--bytes", str(total_bytes), "--tensor-bytes", str(tensor_bytes)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the process with torch ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def measure(self, library, action, path):
        self.process.stdin.write(json.dumps({"library": library, "action": action, "path": str(path)}) + "\n")
        self.process.stdin.flush()
        return self.answer()["seconds"]


def files_below(path):
    return [path] if path.is_file() else sorted(entry for entry in path.rglob("*") if entry.is_file())


def flush(path):
    """Every file, then the folders that name them."""
    folders = {path.parent} | ({path} if path.is_dir() else set())
    for entry in [*files_below(path), *folders]:
        descriptor = os.open(entry, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def leave_page_cache(path):
    for file in files_below(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


class Library:
    def __init__(self, name, torch):
        self.name, self.torch = name, torch

    def save(self, states, path):
        if self.name == "torch.save":
            self.torch.save(states, path)
        elif self.name == "torch DCP":
            import torch.distributed.checkpoint as dcp

            dcp.save(states, checkpoint_id=path)
        else:
            from safetensors.torch import save_file

            save_file(states, path)

    def load(self, states, path):
        """Into `states`, as a run's states are loaded."""
        if self.name == "torch DCP":
            import torch.distributed.checkpoint as dcp

            return dcp.load(states, checkpoint_id=path)
        if self.name == "torch.save":
            loaded = self.torch.load(path, mmap=True, weights_only=True)
        else:
            from safetensors.torch import load_file

            loaded = load_file(path)
        for name, tensor in states.items():
            tensor.copy_(loaded[name])


def remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def run(library, action, states, path):
    if action == "save":
        remove(path)
    else:
        leave_page_cache(path)
    start = time.monotonic()
    getattr(library, action)(states, path)
    if action == "save":
        flush(path)
    return time.monotonic() - start


def make_states(torch, options):
    generator = torch.Generator().manual_seed(1)
    count = max(1, options.bytes // (len(KINDS) * options.tensor_bytes))
    numel = options.tensor_bytes // 4
    return {f"unit.{i}.{kind}": torch.rand(numel, generator=generator) for i in range(count) for kind in KINDS}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, required=True, help="of all states")
    parser.add_argument("--tensor-bytes", type=int, default=16 << 20)
    options = parser.parse_args()
    try:
        import safetensors
        import torch
    except ImportError as error:
        sys.exit(f"{sys.executable} cannot import {error.name}. To make a Python that can: {INSTALL}")
    warnings.filterwarnings("ignore")  # DCP's, about the process group that one rank does not need
    states = make_states(torch, options)
    sums = {name: tensor.double().sum().item() for name, tensor in states.items()}
    print(json.dumps({"torch": torch.__version__, "safetensors": safetensors.__version__}), flush=True)
    for line in sys.stdin:
        case = json.loads(line)
        seconds = run(Library(case["library"], torch), case["action"], states, pathlib.Path(case["path"]))
        if case["action"] == "load" and any(tensor.double().sum().item() != sums[name] for name, tensor in states.items()):
            sys.exit(f"{case['library']} loaded other values than it saved")
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
