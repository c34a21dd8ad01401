#!/usr/bin/env python3
"""Question: how fast is Headrace's AdamW on the CPU beside deepspeed's CPUAdam and torch's fused AdamW?

All update the same buffers (anonymous memory in huge pages where the kernel gives them; no two arrays a power of two
apart, where some machines' memory has half its speed whoever uses it), in one process, on as many threads; each
round takes a sample of every contender in an order that turns from round to round, after a pause in which the threads of the one
before fall asleep. A sample is the mean of as many calls as take a tenth of a second, at least one. Figures are medians over the
rounds; "x" is the median of the rounds' ratios, above 1 where Headrace is faster.

mixed     bf16 gradient in, bf16 parameters out, fp32 master and moments: one call here; upcast, update and downcast there.
list      10,000 fp32 tensors of 4096 elements: one call here, `step()` of the optimizers there, as a training loop calls them.
large     one fp32 tensor.
cached    one fp32 tensor that fits in the caches; bound by arithmetic (perf/README.md).

But for the list, deepspeed and torch are called as directly as can be: `adam_update` of the compiled op, `torch._fused_adamw_`.
The latter takes lists too: "torch direct".
How near all this is to what memory allows, `headrace bench adam` says.

    VENV/bin/python perf/adam/compare.py --library build/release/perf/adam/libperf_adam.so

To make that Python (deepspeed's op is compiled on first use: needs g++):
    python3 -m venv VENV && VENV/bin/pip install torch numpy ninja setuptools
    DS_BUILD_OPS=0 VENV/bin/pip install deepspeed
"""

import argparse
import ctypes
import itertools
import json
import mmap
import os
import pathlib
import statistics
import sys
import time

TARGETS = {"mixed": 1.5, "list": 3.0, "large": 1.0, "cached": 1.3}
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPSILON = 1e-3, 0.01, (0.9, 0.999), 1e-8
SAMPLE_SECONDS, PAUSE_SECONDS = 0.1, 0.05
ARRAY_GAP = 6 << 20  # bytes; a kernel lays mappings end to end
IDEAL_BYTES = 28  # of each element, in every case: states in and out, gradient in, bf16 parameters out


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=pathlib.Path, help="libperf_adam.so of the build")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--log2-large", type=int, default=26, help="elements of the large tensor (default 26)")
    parser.add_argument("--log2-cached", type=int, default=16, help="elements of the one in the caches (default 16)")
    parser.add_argument("--tensors", type=int, default=10_000)
    parser.add_argument("--tensor-elements", type=int, default=4096)
    parser.add_argument("--cases", default=",".join(TARGETS), help="which of them")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    return parser.parse_args()


def huge_tensor(numel, dtype):
    """Zeros in memory of their own."""
    item = torch.empty((), dtype=dtype).element_size()
    memory = mmap.mmap(-1, numel * item + ARRAY_GAP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype, count=numel)


class Buffers:
    """The arrays of `count` tensors, each array of all of them in one piece."""

    def __init__(self, count, numel, mixed):
        self.count, self.numel, self.mixed = count, numel, mixed
        whole = {name: huge_tensor(count * numel, torch.float32) for name in ("master", "exp_avg", "exp_avg_sq", "gradient")}
        if mixed:
            whole |= {name: huge_tensor(count * numel, torch.bfloat16) for name in ("bf16_gradient", "parameters")}
        self.whole = whole
        for name, tensor in whole.items():
            setattr(self, name, list(tensor.split(numel)))
        self.fill()

    def fill(self):
        ramp = (torch.arange(4096) * 2654435761 % 1024 + 1) / 1024
        values = {"master": 1.0, "exp_avg": 0.1, "exp_avg_sq": 0.01, "gradient": 0.01, "bf16_gradient": 0.01, "parameters": 0.0}
        for name, tensor in self.whole.items():
            repeats = -(-tensor.numel() // ramp.numel())
            tensor.copy_((ramp * values[name]).repeat(repeats)[: tensor.numel()])


class Headrace:
    name = "headrace"

    def __init__(self, library, buffers):
        self.library = library
        self.handle = ctypes.c_void_p(library.adam_tensors())
        gradients = buffers.bf16_gradient if buffers.mixed else buffers.gradient
        for k in range(buffers.count):
            pointers = [buffers.master[k], buffers.exp_avg[k], buffers.exp_avg_sq[k], gradients[k]]
            pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in pointers]
            low = ctypes.c_void_p(buffers.parameters[k].data_ptr() if buffers.mixed else None)
            library.adam_add(self.handle, ctypes.c_uint64(buffers.numel), *pointers, low)

    def update(self):
        rates = ctypes.c_double(LEARNING_RATE), ctypes.c_double(WEIGHT_DECAY)
        if self.library.adam_step(self.handle, ctypes.c_uint64(10), *rates) != 0:
            sys.exit("headrace failed")


class Deepspeed:
    name = "deepspeed"

    def __init__(self, buffers):
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        self.buffers = buffers
        parameters = [torch.nn.Parameter(tensor) for tensor in buffers.master]
        self.optimizer = DeepSpeedCPUAdam(
            parameters, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, adamw_mode=True
        )
        for k, parameter in enumerate(parameters):
            parameter.grad = buffers.gradient[k]
            moments = {"exp_avg": buffers.exp_avg[k], "exp_avg_sq": buffers.exp_avg_sq[k]}
            self.optimizer.state[parameter] = {"step": 9, **moments}
        self.op, self.id = self.optimizer.ds_opt_adam, self.optimizer.opt_id

    def update(self):
        b = self.buffers
        if b.count > 1:
            for state in self.optimizer.state.values():
                state["step"] = 9
            return self.optimizer.step()
        if b.mixed:
            b.gradient[0].copy_(b.bf16_gradient[0])
        one = (b.master[0], b.gradient[0], b.exp_avg[0], b.exp_avg_sq[0])
        self.op.adam_update(self.id, 10, LEARNING_RATE, *BETAS, EPSILON, WEIGHT_DECAY, True, *one)
        if b.mixed:
            b.parameters[0].copy_(b.master[0])


class TorchStep:
    name = "torch step()"

    def __init__(self, buffers):
        parameters = [torch.nn.Parameter(tensor) for tensor in buffers.master]
        self.optimizer = torch.optim.AdamW(
            parameters, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, weight_decay=WEIGHT_DECAY, fused=True
        )
        self.steps = torch.full((buffers.count,), 9.0)
        for k, parameter in enumerate(parameters):
            parameter.grad = buffers.gradient[k]
            moments = {"exp_avg": buffers.exp_avg[k], "exp_avg_sq": buffers.exp_avg_sq[k]}
            self.optimizer.state[parameter] = {"step": self.steps[k], **moments}

    def update(self):
        self.steps.fill_(9.0)
        self.optimizer.step()


class TorchDirect:
    name = "torch direct"

    def __init__(self, buffers):
        self.buffers = buffers
        self.steps = [torch.tensor(10.0) for _ in range(buffers.count)]

    @property
    def options(self):
        return {"lr": LEARNING_RATE, "beta1": BETAS[0], "beta2": BETAS[1], "weight_decay": WEIGHT_DECAY, "eps": EPSILON,
                "amsgrad": False, "maximize": False}

    def update(self):
        b = self.buffers
        if b.mixed:
            b.gradient[0].copy_(b.bf16_gradient[0])
        torch._fused_adamw_(b.master, b.gradient, b.exp_avg, b.exp_avg_sq, [], self.steps, **self.options)
        if b.mixed:
            b.parameters[0].copy_(b.master[0])


def verify(case, contenders, buffers):
    """One update by each from the same values gives the same, but for the order of roundings."""
    expected = None
    for contender in contenders:
        buffers.fill()
        contender.update()
        found = {name: buffers.whole[name].clone() for name in ("master", "exp_avg", "exp_avg_sq")}
        expected = expected or found
        for name, values in found.items():
            if not torch.allclose(values, expected[name], rtol=1e-5, atol=1e-7):
                sys.exit(f"{case}: {name} of {contender.name} is not that of {contenders[0].name}")
    buffers.fill()


def sample(contender, calls):
    time.sleep(PAUSE_SECONDS)
    contender.update()  # wakes its threads
    start = time.perf_counter()
    for _ in range(calls):
        contender.update()
    return (time.perf_counter() - start) / calls


def calls_of(contender):
    contender.update()
    return max(1, round(SAMPLE_SECONDS / sample(contender, 1)))


def measure(case, options, library):
    count, numel = {"mixed": (1, 1 << options.log2_large), "large": (1, 1 << options.log2_large),
                    "cached": (1, 1 << options.log2_cached), "list": (options.tensors, options.tensor_elements)}[case]
    buffers = Buffers(count, numel, mixed=case == "mixed")
    contenders = [Headrace(library, buffers), TorchDirect(buffers)]
    if count > 1:
        contenders.append(TorchStep(buffers))
    try:
        contenders.insert(1, Deepspeed(buffers))
    except ImportError as error:
        print(f"without deepspeed: {error}", file=sys.stderr)
    verify(case, contenders, buffers)
    calls = {contender.name: calls_of(contender) for contender in contenders}
    seconds = {contender.name: [] for contender in contenders}
    orders = itertools.cycle(itertools.permutations(contenders))
    for _, order in zip(range(options.rounds), orders):
        for contender in order:
            seconds[contender.name].append(sample(contender, calls[contender.name]))
    return [row(case, name, seconds, count * numel) for name in seconds]


def row(case, name, seconds, numel):
    median = statistics.median(seconds[name])
    ratios = [theirs / ours for theirs, ours in zip(seconds[name], seconds["headrace"])]
    return {"case": case, "contender": name, "ns_per_parameter": median / numel * 1e9,
            "gb_per_second": IDEAL_BYTES * numel / median * 1e-9, "headrace_is_faster_by": statistics.median(ratios),
            "seconds": seconds[name]}


def show(rows):
    for one in rows:
        speed = f"{one['ns_per_parameter']:8.3f} ns/parameter {one['gb_per_second']:8.2f} GB/s"
        if one["contender"] == "headrace":
            print(f"{one['case']:8} {one['contender']:12} {speed}")
            continue
        factor, target = one["headrace_is_faster_by"], TARGETS[one["case"]]
        verdict = f"target {target}" + ("" if factor >= target else ", missed")
        print(f"{one['case']:8} {one['contender']:12} {speed}   x {factor:5.2f} ({verdict})")


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    library = ctypes.CDLL(str(options.library.resolve()))
    library.adam_tensors.restype = ctypes.c_void_p
    library.adam_threads(options.threads)
    print(f"{options.threads} threads, torch {torch.__version__}, {options.rounds} rounds")
    rows = []
    for case in options.cases.split(","):
        measured = measure(case, options, library)
        show(measured)
        rows += measured
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    # Read by OpenMP when it starts.
    os.environ["OMP_NUM_THREADS"] = str(arguments().threads)
    import torch

    main()
