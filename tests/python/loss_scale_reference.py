#!/usr/bin/env python3
"""Makes tests/unit/zero/loss_scale_reference.h: the loss scale after each step by deepspeed's DynamicLossScaler, on
sequences of overflows that C++ can make again.

    loss_scale_reference.py > tests/unit/zero/loss_scale_reference.h       writes it
    loss_scale_reference.py --check tests/unit/zero/loss_scale_reference.h   exit 1 when this deepspeed gives others
"""
import re
import sys

from reference_header import last_list, write_or_check

STEPS = 120
# first power, window, hysteresis, consecutive hysteresis, minimum, an overflow in one of so many steps (1: in each)
CASES = [
    (16, 1000, 2, False, 1.0, 1),
    (16, 1000, 2, False, 1.0, 40),
    (16, 7, 2, False, 1.0, 9),
    (16, 7, 2, True, 1.0, 9),
    (16, 1, 1, False, 1.0, 3),
    (4, 3, 3, False, 0.25, 4),
    (4, 3, 3, True, 0.25, 2),
    (4, 5, 1, True, 3.0, 6),
    (0, 2, 4, False, 1.0, 5),
    (10, 20, 2, False, 64.0, 15),
]


def mix(x: int) -> int:
    """splitmix64 of headrace/splitmix.h."""
    mask = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def overflows(case: int, step: int, one_in: int) -> bool:
    return mix(case * 1000 + step) % one_in == 0


def scales(scaler_class, case: int):
    """The scale after each step, up to the overflow that it refuses."""
    power, window, hysteresis, consecutive, minimum, one_in = CASES[case]
    scaler = scaler_class(init_scale=2.0**power, scale_window=window, min_scale=minimum, delayed_shift=hysteresis,
                          consecutive_hysteresis=consecutive)
    result = []
    for step in range(STEPS):
        try:
            scaler.update_scale(overflows(case, step, one_in))
        except Exception:  # its own way to say that the scale is at its minimum
            break
        result.append(scaler.cur_scale)
    return result


def header(version: str, scaler_class) -> str:
    lines = [
        "// Made by tests/python/loss_scale_reference.py; do not edit.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "#include <vector>",
        "",
        '#include "headrace/loss_scale.h"',
        "",
        "namespace headrace::testing {",
        "",
        f'inline constexpr char loss_scale_reference_version[] = "{version}";',
        f"inline constexpr std::uint64_t loss_scale_steps = {STEPS};",
        "",
        "// The scale after each step, up to the overflow that ended the run, if one did.",
        "struct LossScaleFigures {",
        "  LossScaleOptions options;",
        "  std::uint64_t one_in;",
        "  std::vector<double> scales;",
        "};",
        "inline const std::vector<LossScaleFigures> loss_scale_figures = {",
    ]
    for case, (power, window, hysteresis, consecutive, minimum, one_in) in enumerate(CASES):
        lines.append(f"    {{{{0, {power}, {window}, {hysteresis}, {str(consecutive).lower()}, {minimum:g}}},")
        lines.append(f"     {one_in},")
        values = [f"{scale:.17g}" for scale in scales(scaler_class, case)]
        lines += last_list(values, 12)
    lines += ["};", "", "}  // namespace headrace::testing", ""]
    return "\n".join(lines)


def figures(text: str) -> list[str]:
    return re.findall(r"[\w.]+", text.split("loss_scale_steps")[1])


def make(deepspeed) -> str:
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler
    deepspeed.comm.get_rank = lambda: 1  # of no job; only rank 0 prints
    return header(deepspeed.__version__, DynamicLossScaler)


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, make, figures, "scales"))
