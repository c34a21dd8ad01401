"""Trains small GPT-2 and Llama models in plain PyTorch and prints the losses: the oracle of tests/unit/model/torch_parity_test.cpp.

    decoder_reference.py                 print the figures as JSON
    decoder_reference.py --write FILE    store them

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
    "tied": dict(family="gpt2", layers=2, width=64, heads=4, vocabulary=61, positions=32, batch=3, sequence=17, tied=True),
    "untied": dict(family="gpt2", layers=3, width=48, heads=3, vocabulary=100, positions=16, batch=2, sequence=16, tied=False),
    "llama_tied": dict(family="llama", layers=2, width=64, heads=4, key_heads=2, head_width=16, mlp_width=176, theta=500.0,
                       epsilon=1e-5, vocabulary=61, positions=32, batch=3, sequence=17, tied=True),
    "llama_untied": dict(family="llama", layers=3, width=48, heads=4, key_heads=1, head_width=16, mlp_width=100, theta=10000.0,
                         epsilon=1e-6, vocabulary=100, positions=16, batch=2, sequence=16, tied=False),
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


class Decoder(nn.Module):
    """Parameters by name, registered in the order of the units."""

    def __init__(self):
        super().__init__()
        self.values = nn.ParameterDict()
        self.index = 0

    def add(self, name, *shape, mean=0.0):
        self.values[name.replace(".", "/")] = nn.Parameter(weights(self.index, shape, mean))
        self.index += 1

    def get(self, name):
        return self.values[name.replace(".", "/")]


class Gpt2(Decoder):
    """Weights are in x out, as Hugging Face's Conv1D."""

    def __init__(self, layers, width, heads, vocabulary, positions, tied, **_):
        super().__init__()
        self.layers, self.width, self.heads, self.tied = layers, width, heads, tied
        self.add("wte.weight", vocabulary, width)
        self.add("wpe.weight", positions, width)
        for layer in range(layers):
            block = f"h.{layer}."
            self.add(block + "ln_1.weight", width, mean=1.0)
            self.add(block + "ln_1.bias", width)
            self.add(block + "attn.c_attn.weight", width, 3 * width)
            self.add(block + "attn.c_attn.bias", 3 * width)
            self.add(block + "attn.c_proj.weight", width, width)
            self.add(block + "attn.c_proj.bias", width)
            self.add(block + "ln_2.weight", width, mean=1.0)
            self.add(block + "ln_2.bias", width)
            self.add(block + "mlp.c_fc.weight", width, 4 * width)
            self.add(block + "mlp.c_fc.bias", 4 * width)
            self.add(block + "mlp.c_proj.weight", 4 * width, width)
            self.add(block + "mlp.c_proj.bias", width)
        self.add("ln_f.weight", width, mean=1.0)
        self.add("ln_f.bias", width)
        if not tied:
            self.add("lm_head.weight", vocabulary, width)

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

    def logits(self, ids):
        x = self.get("wte.weight")[ids] + self.get("wpe.weight")[: ids.shape[1]]
        for layer in range(self.layers):
            block = f"h.{layer}"
            x = x + self.attention(self.norm(x, block + ".ln_1"), block + ".attn")
            hidden = functional.gelu(self.linear(self.norm(x, block + ".ln_2"), block + ".mlp.c_fc"), approximate="tanh")
            x = x + self.linear(hidden, block + ".mlp.c_proj")
        return self.norm(x, "ln_f") @ self.get("wte.weight" if self.tied else "lm_head.weight").T


class Llama(Decoder):
    """Weights are out x in, as Hugging Face's Linear."""

    def __init__(self, layers, width, heads, key_heads, head_width, mlp_width, theta, epsilon, vocabulary, tied, **_):
        super().__init__()
        self.layers, self.width, self.heads, self.key_heads, self.depth = layers, width, heads, key_heads, head_width
        self.theta, self.epsilon, self.tied = theta, epsilon, tied
        self.add("model.embed_tokens.weight", vocabulary, width)
        for layer in range(layers):
            block = f"model.layers.{layer}."
            self.add(block + "input_layernorm.weight", width, mean=1.0)
            self.add(block + "self_attn.q_proj.weight", heads * head_width, width)
            self.add(block + "self_attn.k_proj.weight", key_heads * head_width, width)
            self.add(block + "self_attn.v_proj.weight", key_heads * head_width, width)
            self.add(block + "self_attn.o_proj.weight", width, heads * head_width)
            self.add(block + "post_attention_layernorm.weight", width, mean=1.0)
            self.add(block + "mlp.gate_proj.weight", mlp_width, width)
            self.add(block + "mlp.up_proj.weight", mlp_width, width)
            self.add(block + "mlp.down_proj.weight", width, mlp_width)
        self.add("model.norm.weight", width, mean=1.0)
        if not tied:
            self.add("lm_head.weight", vocabulary, width)

    def linear(self, x, name):
        return x @ self.get(name + ".weight").T

    def norm(self, x, name):
        return functional.rms_norm(x, (self.width,), self.get(name + ".weight"), self.epsilon)

    def rotate(self, x):
        """x: batch, heads, sequence, depth; halves are turned as pairs."""
        frequencies = 1.0 / self.theta ** (torch.arange(0, self.depth, 2).float() / self.depth)
        angles = torch.outer(torch.arange(x.shape[2]).float(), frequencies)
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()), dim=-1)

    def attention(self, x, name):
        batch, sequence, _ = x.shape
        query, key, value = (self.linear(x, f"{name}.{part}_proj").view(batch, sequence, -1, self.depth).transpose(1, 2)
                             for part in "qkv")
        key, value = (part.repeat_interleave(self.heads // self.key_heads, dim=1) for part in (self.rotate(key), value))
        y = functional.scaled_dot_product_attention(self.rotate(query), key, value, is_causal=True)
        return self.linear(y.transpose(1, 2).reshape(batch, sequence, -1), name + ".o_proj")

    def logits(self, ids):
        x = self.get("model.embed_tokens.weight")[ids]
        for layer in range(self.layers):
            block = f"model.layers.{layer}"
            x = x + self.attention(self.norm(x, block + ".input_layernorm"), block + ".self_attn")
            normal = self.norm(x, block + ".post_attention_layernorm")
            hidden = functional.silu(self.linear(normal, block + ".mlp.gate_proj")) * self.linear(normal, block + ".mlp.up_proj")
            x = x + self.linear(hidden, block + ".mlp.down_proj")
        return self.norm(x, "model.norm") @ self.get("model.embed_tokens.weight" if self.tied else "lm_head.weight").T


def train(options):
    model = {"gpt2": Gpt2, "llama": Llama}[options["family"]](**options)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8,
    )
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        ids = tokens(step, options["batch"], options["sequence"], options["vocabulary"])
        loss = functional.cross_entropy(model.logits(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
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
