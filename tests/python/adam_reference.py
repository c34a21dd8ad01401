#!/usr/bin/env python3
"""Makes tests/unit/cpu_adam/torch_reference.h: what torch.optim.Adam and AdamW give on inputs that C++ can make again.

    adam_reference.py > tests/unit/cpu_adam/torch_reference.h     writes it
    adam_reference.py --check tests/unit/cpu_adam/torch_reference.h   exit 1 when this torch gives other figures
"""
import argparse
import itertools
import re
import sys

NUMEL = 9
STEPS = (1, 3, 200)
LEARNING_RATE = 0.01


def value(index: int) -> float:
    """The same number in [-1, 1) as value() of torch_reference_test.cpp: splitmix64, upper 24 bits."""
    mask = (1 << 64) - 1
    x = (index + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    return (x >> 40) / (1 << 23) - 1.0


def run(torch, decoupled: bool, weight_decay: float, epsilon: float):
    """Yields (step, weights, exp_avg, exp_avg_sq) at each of STEPS."""
    weights = torch.tensor([value(i) for i in range(NUMEL)], dtype=torch.float32, requires_grad=True)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimizer = kind([weights], lr=LEARNING_RATE, weight_decay=weight_decay, eps=epsilon, foreach=False)
    for step in range(1, max(STEPS) + 1):
        gradient = [value(1000 * step + i) for i in range(NUMEL)]
        weights.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        if step in STEPS:
            state = optimizer.state[weights]
            yield step, weights.tolist(), state["exp_avg"].tolist(), state["exp_avg_sq"].tolist()


def row(values) -> str:
    return "{" + ", ".join(f"{x:.9g}" for x in values) + "}"


def header(torch) -> str:
    lines = [
        "// Made by tests/python/adam_reference.py; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace headrace::test {",
        "",
        f'inline constexpr char torch_version[] = "{torch.__version__}";',
        f"inline constexpr std::uint64_t torch_numel = {NUMEL};",
        f"inline constexpr double torch_learning_rate = {LEARNING_RATE};",
        "",
        "struct TorchFigures {",
        "  bool decoupled;",
        "  double weight_decay, epsilon;",
        "  std::uint64_t step;",
        "  double weights[torch_numel], exp_avg[torch_numel], exp_avg_sq[torch_numel];",
        "};",
        "inline constexpr TorchFigures torch_figures[] = {",
    ]
    for decoupled, decay, epsilon in itertools.product((False, True), (0.0, 0.1), (1e-8, 1e-3)):
        for step, weights, exp_avg, exp_avg_sq in run(torch, decoupled, decay, epsilon):
            lines.append(f"    {{{str(decoupled).lower()}, {decay:g}, {epsilon:g}, {step},")
            lines.append(f"     {row(weights)},")
            lines.append(f"     {row(exp_avg)},")
            lines.append(f"     {row(exp_avg_sq)}}},")
    lines += ["};", "", "}  // namespace headrace::test", ""]
    return "\n".join(lines)


def figures(text: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text.split("torch_figures[]")[1])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="HEADER", help="compare with a stored header, write nothing")
    arguments = parser.parse_args()
    import torch

    made = header(torch)
    if arguments.check is None:
        sys.stdout.write(made)
        return 0
    with open(arguments.check, encoding="utf-8") as file:
        stored, current = figures(file.read()), figures(made)
    near = len(stored) == len(current) and all(abs(a - b) <= 1e-6 * abs(b) + 1e-7 for a, b in zip(stored, current))
    print(f"torch {torch.__version__}: {'same figures' if near else 'other figures'} as {arguments.check}")
    return 0 if near else 1


if __name__ == "__main__":
    sys.exit(main())
