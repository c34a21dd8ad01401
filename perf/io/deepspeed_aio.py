#!/usr/bin/env python3
"""Question: how fast, and for how much CPU, does deepspeed's async_io op read or rewrite a file?

Measures one case and prints one JSON object. The op gets what it is best at: one page-locked buffer, one call for as much of
the file as the buffer holds (it keeps `depth` requests of `block` bytes in flight inside that call, event overlap on), O_DIRECT,
which it always uses. Only calls are timed: buffers are filled before a write and words are checked after a read outside the
clock. Files are written once before they are measured, and the kernel's count of the process's device bytes is checked.

    python3 -m venv VENV && VENV/bin/pip install torch numpy ninja setuptools
    DS_BUILD_OPS=0 VENV/bin/pip install deepspeed   # the op is compiled on first use: g++ and libaio-dev
    VENV/bin/python perf/io/deepspeed_aio.py FILE --direction read --block-bytes 1MiB --depth 8

With --serve it reads one such case a line as JSON ({"file":, "direction":, "block_bytes":, "depth":, "file_bytes":}) and answers
each with one line, so that the seconds that loading takes are paid once; AsyncIo below is the other side of that.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

STRIDE = 4096  # one known word, the offset it stands at, in each: as in perf_io
BUFFER_BYTES = 256 << 20
INSTALL = "python3 -m venv VENV && VENV/bin/pip install torch numpy ninja setuptools && DS_BUILD_OPS=0 VENV/bin/pip install deepspeed"
UNITS = {"": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "GB": 10**9, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


class AsyncIo:
    """A process that has the op loaded; `measure` runs one case in it. For scripts that have no torch themselves."""

    def __init__(self, python):
        if shutil.which(python) is None:
            sys.exit(f"--deepspeed-python: there is no {python}. To make one: {INSTALL}")
        self.process = subprocess.Popen([python, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the process with deepspeed ended with status {self.process.wait()}; what it said is above")
        return json.loads(line)

    def measure(self, file, direction, block_bytes, depth, file_bytes):
        case = {"file": str(file), "direction": direction, "block_bytes": block_bytes, "depth": depth, "file_bytes": file_bytes}
        self.process.stdin.write(json.dumps(case) + "\n")
        self.process.stdin.flush()
        return self.answer()


def bytes_of(text):
    digits = text.rstrip("KMGiIBb")
    try:
        return int(float(digits) * UNITS[text[len(digits) :].upper()])
    except (ValueError, KeyError):
        raise argparse.ArgumentTypeError(f"{text} is no size; sizes are like 128KiB, 1MiB, 512MiB") from None


def load_op():
    """The op's module, numpy, and the versions of what it comes from."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    try:
        import deepspeed
        import numpy
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder
    except ImportError as error:
        sys.exit(f"{sys.executable} cannot import {error.name}. To make a Python that can: {INSTALL}")
    builder = AsyncIOBuilder()
    if not builder.is_compatible(verbose=True):
        sys.exit("deepspeed's async_io op cannot be built here: it needs libaio's header and library (libaio-dev) and g++.")
    return builder.load(verbose=False), numpy, {"deepspeed": deepspeed.__version__, "torch": torch.__version__}


def device_bytes(direction):
    """Bytes that this process, all threads, has read from or sent to devices, as the kernel counts them."""
    with open("/proc/self/io", encoding="ascii") as counters:
        values = dict(line.split(": ") for line in counters)
    return int(values["read_bytes" if direction == "read" else "write_bytes"])


class Case:
    def __init__(self, op, numpy, case):
        import torch

        self.__dict__.update(case)
        self.numpy = numpy
        self.buffer_bytes = min(BUFFER_BYTES, self.file_bytes)
        if self.block_bytes % STRIDE or self.file_bytes % self.buffer_bytes:
            sys.exit(f"the block must be a multiple of 4KiB, the file of {self.buffer_bytes} bytes")
        self.handle = op.aio_handle(self.block_bytes, self.depth, False, True, 1)
        self.buffer = self.handle.new_cpu_locked_tensor(self.buffer_bytes, torch.empty(0, dtype=torch.uint8))
        self.words = self.buffer.numpy().view(numpy.uint64)[:: STRIDE // 8]
        if not self.handle.is_pinned(self.buffer):
            sys.exit("async_io would copy through a buffer of its own: this one is not page-locked; raise the limit (ulimit -l)")
        self.buffer.fill_(1)  # every page present, as a trainer's are

    def close(self):
        self.handle.free_cpu_locked_tensor(self.buffer)

    def expected(self, offset):
        return self.numpy.arange(offset, offset + self.buffer_bytes, STRIDE, dtype=self.numpy.uint64)

    def transfer(self, direction):
        """Moves the whole file; seconds and CPU seconds (all threads) of the op's calls alone."""
        call = self.handle.async_pread if direction == "read" else self.handle.async_pwrite
        seconds = cpu = 0.0
        for offset in range(0, self.file_bytes, self.buffer_bytes):
            self.words[:] = self.expected(offset) if direction == "write" else 0
            begin, begin_cpu = time.perf_counter(), time.process_time()
            if call(self.buffer, self.file, offset) != 0 or self.handle.wait() != 1:
                sys.exit(f"async_io refused to {direction} {self.file} at offset {offset}; what it said is above")
            seconds += time.perf_counter() - begin
            cpu += time.process_time() - begin_cpu
            if direction == "read" and not (self.words == self.expected(offset)).all():
                sys.exit(f"async_io: wrong data in {self.file} near offset {offset}")
        return seconds, cpu

    def measure(self):
        if not os.path.exists(self.file) or os.path.getsize(self.file) != self.file_bytes:
            self.transfer("write")  # a first write allocates extents, and what was never written needs no read
            descriptor = os.open(self.file, os.O_RDONLY)
            os.fdatasync(descriptor)
            os.close(descriptor)
        before = device_bytes(self.direction)
        seconds, cpu = self.transfer(self.direction)
        moved = device_bytes(self.direction) - before
        if moved < self.file_bytes:
            sys.exit(f"{self.file}: {moved} bytes met the device instead of {self.file_bytes}: the page cache answered")
        return {"engine": "deepspeed async_io", "direction": self.direction, "block_bytes": self.block_bytes, "depth": self.depth,
                "file_bytes": self.file_bytes, "seconds": seconds, "bytes_per_second": self.file_bytes / seconds,
                "cpu_seconds_per_gb": cpu / (self.file_bytes / 1e9), "device_bytes": moved}


def measure(op, numpy, fields):
    case = Case(op, numpy, fields)
    try:
        return case.measure()
    finally:
        case.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", help="made and written once when its size differs")
    parser.add_argument("--direction", choices=("read", "write"), default="read")
    parser.add_argument("--block-bytes", type=bytes_of, default="1MiB")
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--file-bytes", type=bytes_of, default="512MiB")
    parser.add_argument("--serve", action="store_true", help="cases come as JSON lines on standard input")
    options = parser.parse_args()
    if not options.serve and options.file is None:
        parser.error("which file?")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # deepspeed and the op write to standard output: send that to standard error
    op, numpy, versions = load_op()
    if not options.serve:
        print(json.dumps({**measure(op, numpy, vars(options)), **versions}), file=answers, flush=True)
        return
    print(json.dumps(versions), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(op, numpy, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
