#!/usr/bin/env python3
"""Makes tests/unit/cpu_adam/torch_reference.h: what torch's optimizers give on inputs that C++ can make again.

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
EPSILONS, DECAYS = (1e-8, 1e-3), (0.0, 0.1)


def value(index: int) -> float:
    """The same number in [-1, 1) as value() of torch_reference_test.cpp: splitmix64, upper 24 bits."""
    mask = (1 << 64) - 1
    x = (index + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    x ^= x >> 31
    return (x >> 40) / (1 << 23) - 1.0


def cases():
    """(class of torch.optim, its arguments, OptimizerArguments as C++ writes them, names of its moments)."""
    for decoupled, amsgrad, maximize, decay, epsilon in itertools.product((False, True), (False, True), (False, True),
                                                                          DECAYS, EPSILONS):
        yield ("AdamW" if decoupled else "Adam",
               {"weight_decay": decay, "eps": epsilon, "amsgrad": amsgrad, "maximize": maximize},
               {"kind": "OptimizerKind::adam", "epsilon": epsilon, "weight_decay": decay, "decoupled": decoupled,
                "amsgrad": amsgrad, "maximize": maximize},
               ["exp_avg", "exp_avg_sq"] + ["max_exp_avg_sq"] * amsgrad)
    for rate_decay, maximize, decay, epsilon in itertools.product((0.0, 0.01), (False, True), DECAYS, EPSILONS):
        yield ("Adagrad", {"lr_decay": rate_decay, "weight_decay": decay, "eps": epsilon, "maximize": maximize},
               {"kind": "OptimizerKind::adagrad", "epsilon": epsilon, "weight_decay": decay, "rate_decay": rate_decay,
                "maximize": maximize}, ["sum"])
    for (momentum, dampening, nesterov), maximize, decay in itertools.product(
            ((0.0, 0.0, False), (0.9, 0.0, False), (0.9, 0.5, False), (0.9, 0.0, True)), (False, True), DECAYS):
        yield ("SGD", {"momentum": momentum, "dampening": dampening, "nesterov": nesterov, "weight_decay": decay,
                       "maximize": maximize},
               {"kind": "OptimizerKind::sgd", "weight_decay": decay, "momentum": momentum, "dampening": dampening,
                "nesterov": nesterov, "maximize": maximize}, ["momentum_buffer"] * (momentum != 0))


def run(torch, kind: str, arguments: dict, moments: list[str]):
    """Yields (step, weights, moments) at each of STEPS."""
    weights = torch.tensor([value(i) for i in range(NUMEL)], dtype=torch.float32, requires_grad=True)
    optimizer = getattr(torch.optim, kind)([weights], lr=LEARNING_RATE, foreach=False, **arguments)
    for step in range(1, max(STEPS) + 1):
        gradient = [value(1000 * step + i) for i in range(NUMEL)]
        weights.grad = torch.tensor(gradient, dtype=torch.float32)
        optimizer.step()
        if step in STEPS:
            state = optimizer.state[weights]
            yield step, weights.tolist(), [state[name].tolist() for name in moments]


def row(values) -> str:
    return "{" + ", ".join(f"{x:.9g}" for x in values) + "}"


def initialiser(arguments: dict) -> str:
    def text(x):
        return str(x).lower() if isinstance(x, bool) else x if isinstance(x, str) else f"{x:g}"

    return "{" + ", ".join(f".{name} = {text(x)}" for name, x in arguments.items()) + "}"


def header(torch) -> str:
    lines = [
        "// Made by tests/python/adam_reference.py; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        '#include "headrace/optimizer.h"',
        "",
        "namespace headrace::test {",
        "",
        f'inline constexpr char torch_version[] = "{torch.__version__}";',
        f"inline constexpr std::uint64_t torch_numel = {NUMEL};",
        f"inline constexpr double torch_learning_rate = {LEARNING_RATE};",
        "",
        "struct TorchFigures {",
        "  const char* optimizer;",
        "  OptimizerArguments arguments;  // but for learning rate and step",
        "  std::uint64_t step;",
        "  double weights[torch_numel];",
        "  double moments[3][torch_numel];  // as many as the optimizer has",
        "};",
        "inline constexpr TorchFigures torch_figures[] = {",
    ]
    for kind, torch_arguments, arguments, names in cases():
        for step, weights, moments in run(torch, kind, torch_arguments, names):
            lines.append(f'    {{"{kind}", {initialiser(arguments)}, {step},')
            lines.append(f"     {row(weights)},")
            lines.append("     {" + ", ".join(row(moment) for moment in moments) + "}},")
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
