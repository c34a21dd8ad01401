#!/usr/bin/env python3
"""Question: what do deepspeed's training steps cost with ZeRO stage 3 and the optimizer on NVMe, on this machine's CPU?

One process, one rank, a GPT-2 in bf16 with fp32 master and moments (DeepSpeedCPUAdam), and one JSON object: seconds of each
timed step's forward, backward and step, losses, bytes that the kernel counted for the process, and its high-water mark of resident
memory: over the timed steps alone and, marked as such, with everything before them. compare_deepspeed.py runs this beside Headrace.
"""

import argparse
import json
import os
import pathlib
import socket
import sys
import time

INSTALL = (
    "python3 -m venv VENV && VENV/bin/pip install torch numpy ninja setuptools && "
    "DS_BUILD_OPS=0 VENV/bin/pip install deepspeed"
)
SHAPES = {  # layers, width, heads, vocabulary, positions: Headrace's presets
    "gpt2-mini": (6, 384, 6, 256, 256),
    "gpt2-70m": (10, 768, 12, 256, 1024),
    "gpt2-124m": (12, 768, 12, 50257, 1024),
    "gpt2-355m": (24, 1024, 16, 50257, 1024),
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the drive, for optimizer states")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text to train on, as bytes")
    parser.add_argument("--model", choices=SHAPES, default="gpt2-124m")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--pipeline", action="store_true", help="overlap reads and writes of states with the update")
    parser.add_argument("--sub-group", type=int, default=40_000_000, help="parameters updated together")
    parser.add_argument("--block-bytes", type=int, default=1 << 20, help="of one request of its aio")
    parser.add_argument("--depth", type=int, default=32, help="of its aio")
    return parser.parse_args()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def load(threads):
    """deepspeed and torch, on the CPU, with one rank's environment."""
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS=str(threads), RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_SIZE="1",
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port())
    try:
        import deepspeed
        import torch
        from deepspeed.ops.op_builder import AsyncIOBuilder, CPUAdamBuilder
    except ImportError as error:
        sys.exit(f"{sys.executable} cannot import {error.name}. To make a Python that can: {INSTALL}")
    if not AsyncIOBuilder().is_compatible(verbose=True):
        sys.exit("deepspeed's async_io op cannot be built here: it needs libaio's header and library (libaio-dev) and g++.")
    for builder in (AsyncIOBuilder, CPUAdamBuilder):
        builder().load(verbose=False)  # compiled on first use, minutes: not in anybody's step
    torch.set_num_threads(threads)
    deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, verbose=False)
    return deepspeed, torch


def configuration(options):
    # Buffers of one sub-group each. An update holds parameter, both moments and gradient; pipelined, the next one's four and
    # the three being written besides, and one to spare.
    buffers = 12 if options.pipeline else 5
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": options.sub_group,
            "contiguous_gradients": True,
            "reduce_bucket_size": 4 << 20,
            "stage3_param_persistence_threshold": 0,
            "offload_optimizer": {"device": "nvme", "nvme_path": str(options.folder), "pin_memory": True, "buffer_count": buffers,
                                  "pipeline_read": options.pipeline, "pipeline_write": options.pipeline},
        },
        "aio": {"block_size": options.block_bytes, "queue_depth": options.depth, "intra_op_parallelism": 1,
                "single_submit": False, "overlap_events": True},
        "steps_per_print": 1 << 30,
    }


def make_model(deepspeed, torch, shape, config):
    from torch import nn
    from torch.nn import functional

    layers, width, heads, vocabulary, positions = shape

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            batch, sequence, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).view(batch, sequence, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(batch, sequence, width))
            return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
            self.ln_f = nn.LayerNorm(width)
            self.lm_head = nn.Linear(width, vocabulary, bias=False)
            self.lm_head.weight = self.wte.weight

        def forward(self, ids):
            x = self.wte(ids[:, :-1]) + self.wpe(torch.arange(ids.shape[1] - 1))
            logits = self.lm_head(self.ln_f(self.blocks(x)))
            return functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    torch.manual_seed(0)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Gpt2()
    for parameter in model.parameters():
        if len(parameter.ds_shape) == 2:
            with deepspeed.zero.GatheredParameters(parameter, modifier_rank=0):
                nn.init.normal_(parameter, std=0.02)
    return model


def batches(torch, options):
    data = torch.frombuffer(bytearray(options.data.read_bytes()), dtype=torch.uint8)
    while True:
        starts = torch.randint(0, len(data) - options.sequence - 1, (options.batch,))
        yield torch.stack([data[start : start + options.sequence + 1] for start in starts]).long()


def timed_step(engine, ids):
    marks = [time.perf_counter()]
    loss = engine(ids)
    marks.append(time.perf_counter())
    engine.backward(loss)
    marks.append(time.perf_counter())
    engine.step()
    marks.append(time.perf_counter())
    forward, backward, step = (end - begin for begin, end in zip(marks, marks[1:]))
    return {"loss": float(loss.detach()), "forward": forward, "backward": backward, "optimizer": step, "seconds": marks[-1] - marks[0]}


def device_bytes():
    values = dict(line.split(": ") for line in pathlib.Path("/proc/self/io").read_text().splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


def high_water_mark():
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def main():
    options = arguments()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # deepspeed writes to standard output: send that to standard error
    deepspeed, torch = load(options.threads)
    config = configuration(options)
    model = make_model(deepspeed, torch, SHAPES[options.model], config)
    parameters = sum(parameter.ds_numel for parameter in model.parameters())
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    data = batches(torch, options)
    losses = [timed_step(engine, next(data))["loss"] for _ in range(options.warmup)]

    peak_before = high_water_mark()
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the mark starts over
    except OSError as error:
        print(f"peak RSS is of the whole run: its mark cannot be reset ({error})", file=sys.stderr)
    read, written = device_bytes()
    steps = [timed_step(engine, next(data)) for _ in range(options.steps)]
    moved = [after - before for after, before in zip(device_bytes(), (read, written))]
    peak = high_water_mark()
    print(json.dumps({"parameters": parameters, "steps": steps, "losses": losses + [step["loss"] for step in steps],
                      "read_bytes": moved[0] / options.steps, "written_bytes": moved[1] / options.steps,
                      "peak_rss_bytes": peak, "peak_rss_of_run_bytes": max(peak_before, peak),
                      "optimizer": type(engine.optimizer.optimizer).__name__,
                      "versions": {"deepspeed": deepspeed.__version__, "torch": torch.__version__}}), file=answer, flush=True)


if __name__ == "__main__":
    main()
