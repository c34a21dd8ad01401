"""Trains small GPT-2 models in plain PyTorch and prints the losses: the oracle of tests/unit/model/torch_parity_test.cpp.

    gpt2_reference.py                 print the figures as JSON
    gpt2_reference.py --write FILE    store them

Weights and tokens come from an integer hash that the C++ test computes too, so no random generator is shared. Everything is
fp32 on one thread. The stored file names torch's version and this script's SHA-256: the test fails if they differ.
"""

import argparse
import hashlib
import json
import math
import pathlib

import numpy
import torch
from torch import nn
from torch.nn import functional

STEPS = 10
MODELS = {
    "tied": dict(layers=2, width=64, heads=4, vocabulary=61, positions=32, batch=3, sequence=17, tied=True),
    "untied": dict(layers=3, width=48, heads=3, vocabulary=100, positions=16, batch=2, sequence=16, tied=False),
}


def splitmix64(x):
    with numpy.errstate(over="ignore"):
        x = x + numpy.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return x ^ (x >> numpy.uint64(31))


def hashed(stream, numel):
    return splitmix64(numpy.uint64(stream << 32) + numpy.arange(numel, dtype=numpy.uint64))


def weights(index, shape, mean):
    """24 bits of the hash as an exact fp32 number in [mean - 1/16, mean + 1/16)."""
    numel = math.prod(shape)
    uniform = (hashed(index + 1, numel) >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2**-24)
    values = (uniform - numpy.float32(0.5)) * numpy.float32(0.125) + numpy.float32(mean)
    return torch.from_numpy(values.reshape(shape))


def tokens(step, batch, sequence, vocabulary):
    ids = hashed(1000 + step, batch * (sequence + 1)) % numpy.uint64(vocabulary)
    return torch.from_numpy(ids.astype(numpy.int64)).reshape(batch, sequence + 1)


class Gpt2(nn.Module):
    """Weights are in x out, as Hugging Face's Conv1D; registered in the order of the units."""

    def __init__(self, layers, width, heads, vocabulary, positions, tied, **_):
        super().__init__()
        self.layers, self.width, self.heads, self.tied = layers, width, heads, tied
        self.values = nn.ParameterDict()
        self.index = 0

        def add(name, *shape, mean=0.0):
            self.values[name.replace(".", "/")] = nn.Parameter(weights(self.index, shape, mean))
            self.index += 1

        add("wte.weight", vocabulary, width)
        add("wpe.weight", positions, width)
        for layer in range(layers):
            block = f"h.{layer}."
            add(block + "ln_1.weight", width, mean=1.0)
            add(block + "ln_1.bias", width)
            add(block + "attn.c_attn.weight", width, 3 * width)
            add(block + "attn.c_attn.bias", 3 * width)
            add(block + "attn.c_proj.weight", width, width)
            add(block + "attn.c_proj.bias", width)
            add(block + "ln_2.weight", width, mean=1.0)
            add(block + "ln_2.bias", width)
            add(block + "mlp.c_fc.weight", width, 4 * width)
            add(block + "mlp.c_fc.bias", 4 * width)
            add(block + "mlp.c_proj.weight", 4 * width, width)
            add(block + "mlp.c_proj.bias", width)
        add("ln_f.weight", width, mean=1.0)
        add("ln_f.bias", width)
        if not tied:
            add("lm_head.weight", vocabulary, width)

    def get(self, name):
        return self.values[name.replace(".", "/")]

    def linear(self, x, name):
        return x @ self.get(name + ".weight") + self.get(name + ".bias")

    def norm(self, x, name):
        return functional.layer_norm(x, (self.width,), self.get(name + ".weight"), self.get(name + ".bias"))

    def attention(self, x, name):
        batch, sequence, width = x.shape
        parts = self.linear(x, name + ".c_attn").view(batch, sequence, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.linear(y.transpose(1, 2).reshape(batch, sequence, width), name + ".c_proj")

    def forward(self, ids):
        x = self.get("wte.weight")[ids[:, :-1]] + self.get("wpe.weight")[: ids.shape[1] - 1]
        for layer in range(self.layers):
            block = f"h.{layer}"
            x = x + self.attention(self.norm(x, block + ".ln_1"), block + ".attn")
            hidden = functional.gelu(self.linear(self.norm(x, block + ".ln_2"), block + ".mlp.c_fc"), approximate="tanh")
            x = x + self.linear(hidden, block + ".mlp.c_proj")
        table = self.get("wte.weight" if self.tied else "lm_head.weight")
        logits = self.norm(x, "ln_f") @ table.T
        return functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(options):
    model = Gpt2(**options)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
    )
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(tokens(step, options["batch"], options["sequence"], options["vocabulary"]))
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return {"losses": losses, "gradient_norms": norms}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=pathlib.Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = {
        "torch": torch.__version__,
        "script_sha256": hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest(),
        "models": {name: {**options, **train(options)} for name, options in MODELS.items()},
    }
    text = json.dumps(figures, indent=2) + "\n"
    if arguments.write:
        arguments.write.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
