#!/usr/bin/env python3
"""Question: does `headrace train` train gpt2-mini at least as fast as PyTorch, on the same shapes and threads?

Ceiling: the same model in PyTorch (bf16 autocast or fp32, fused AdamW, clipping), run in alternation with ours, round by round, so
that other load on the machine meets both. Everything of ours is resident on the CPU device. Prints one JSON object; the
value is the median over rounds, the ratio the median of the rounds' ratios.

    perf/step/compare_torch.py --headrace build/release/headrace --torch-python python3 [--rounds 5]
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

LAYERS, WIDTH, HEADS, VOCABULARY, POSITIONS = 6, 384, 6, 256, 256


def train_torch(options):
    """One round in this process (it has torch): seconds of each timed step, on stdout."""
    import time

    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, sequence, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).view(batch, sequence, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(batch, sequence, WIDTH))
            return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
            self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
            self.ln_f = nn.LayerNorm(WIDTH)

        def forward(self, ids):
            x = self.wte(ids[:, :-1]) + self.wpe.weight[: ids.shape[1] - 1]
            logits = functional.linear(self.ln_f(self.blocks(x)), self.wte.weight)
            return functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())

    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    model = Gpt2()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    data = torch.frombuffer(bytearray(pathlib.Path(options.data).read_bytes()), dtype=torch.uint8)
    seconds = []
    for _ in range(options.warmup + options.steps):
        starts = torch.randint(0, len(data) - options.sequence - 1, (options.batch,))
        ids = torch.stack([data[s : s + options.sequence + 1] for s in starts]).long()
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = model(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    assert torch.isfinite(loss), "torch's loss is not finite"
    print(json.dumps({"seconds": seconds[options.warmup :], "loss": float(loss.detach()), "torch": torch.__version__}))


def torch_round(options):
    command = [options.torch_python, __file__, "--child", "--data", options.data, "--dtype", options.dtype]
    for name in ("threads", "batch", "sequence", "steps", "warmup"):
        command += [f"--{name}", str(getattr(options, name))]
    environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
    result = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(result.stdout)


def headrace_round(options, folder):
    metrics = pathlib.Path(folder) / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    command = [options.headrace, "train", "--model", "gpt2-mini", "--data", options.data, "--dtype", options.dtype]
    command += ["--steps", str(options.steps + options.warmup), "--batch-size", str(options.batch)]
    command += ["--sequence-length", str(options.sequence), "--threads", str(options.threads), "--clip", "1.0"]
    command += ["--stage", "0", "--device-memory", "2GiB", "--host-memory", "1GiB", "--metrics", str(metrics), "--quiet"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    return {"seconds": [event["step_seconds"] for event in steps[options.warmup :]], "loss": steps[-1]["loss"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--headrace", default="build/release/headrace")
    parser.add_argument("--torch-python", default=os.environ.get("HEADRACE_TORCH_PYTHON", "python3"))
    parser.add_argument("--data", help="bytes to train on; default: the C headers of this machine")
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return train_torch(options)

    with tempfile.TemporaryDirectory() as folder:
        if options.data is None:
            options.data = str(pathlib.Path(folder) / "headers.txt")
            headers = sorted(pathlib.Path("/usr/include").glob("*.h"))
            pathlib.Path(options.data).write_bytes(b"".join(header.read_bytes() for header in headers))
        tokens = options.batch * options.sequence
        ours, theirs = [], []
        for number in range(options.rounds):
            theirs.append(torch_round(options))
            ours.append(headrace_round(options, folder))
            print(f"round {number + 1}: headrace {tokens / statistics.median(ours[-1]['seconds']):.0f} tok/s, "
                  f"torch {tokens / statistics.median(theirs[-1]['seconds']):.0f} tok/s", file=sys.stderr)

    def rate(rounds):
        return [tokens / statistics.median(one["seconds"]) for one in rounds]

    value, ceiling = statistics.median(rate(ours)), statistics.median(rate(theirs))
    ratio = statistics.median(a / b for a, b in zip(rate(ours), rate(theirs)))
    print(json.dumps({
        "benchmark": "gpt2-mini training step",
        "machine": {"cpus": os.cpu_count(), "threads": options.threads, "torch": theirs[0]["torch"]},
        "results": [{"case": f"{options.dtype} {options.batch} x {options.sequence}", "value": round(value, 1),
                     "unit": "tokens/s", "ceiling": round(ceiling, 1), "ratio": round(ratio, 3),
                     "rounds": [[round(a, 1), round(b, 1)] for a, b in zip(rate(ours), rate(theirs))]}],
    }))


if __name__ == "__main__":
    main()
