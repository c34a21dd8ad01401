#!/usr/bin/env python3
"""Makes tests/unit/train/schedule_reference.h: the learning rate that the optimizer sees in each step under deepspeed's
schedulers, moved on behind each update that was applied, as its engine does.

    schedule_reference.py > tests/unit/train/schedule_reference.h         writes it
    schedule_reference.py --check tests/unit/train/schedule_reference.h   exit 1 when this deepspeed gives others
"""
import json
import re
import sys

from reference_header import last_list, write_or_check

STEPS = 16
RATE = 2e-3  # the optimizer's
CASES = [
    ("WarmupLR", {}),
    ("WarmupLR", {"warmup_max_lr": 1e-2, "warmup_num_steps": 5}),
    ("WarmupLR", {"warmup_min_lr": 1e-4, "warmup_num_steps": 4, "warmup_type": "linear"}),
    ("WarmupLR", {"warmup_min_lr": 1e-4, "warmup_num_steps": 1, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 8, "warmup_num_steps": 3, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 12, "warmup_num_steps": 4}),
    ("WarmupDecayLR", {"total_num_steps": 10, "warmup_min_lr": 2e-4, "warmup_max_lr": 5e-3, "warmup_num_steps": 1}),
    ("WarmupDecayLR", {"total_num_steps": 4, "warmup_min_lr": 1e-5, "warmup_num_steps": 6, "warmup_type": "linear"}),
    ("WarmupDecayLR", {"total_num_steps": 5, "warmup_num_steps": 5}),
    ("WarmupDecayLR", {"total_num_steps": 1000}),
    ("WarmupCosineLR", {"total_num_steps": 10, "warmup_num_steps": 3, "warmup_type": "linear"}),
    ("WarmupCosineLR", {"total_num_steps": 14, "warmup_min_ratio": 0.1, "warmup_num_steps": 5, "cos_min_ratio": 0.05}),
    ("WarmupCosineLR", {"total_num_steps": 9, "warmup_num_steps": 1}),
    ("WarmupCosineLR", {"total_num_steps": 3, "warmup_num_steps": 6, "warmup_type": "linear"}),
]


def rates(schedules, torch, name: str, params: dict):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)
    scheduler = getattr(schedules, name)(optimizer, **params)
    result = []
    for _ in range(STEPS):
        result.append(optimizer.param_groups[0]["lr"])
        scheduler.step()
    return result


def header(version: str, schedules, torch) -> str:
    lines = [
        "// Made by tests/python/schedule_reference.py; do not edit.",
        "#pragma once",
        "",
        "#include <vector>",
        "",
        "namespace headrace::test {",
        "",
        f'inline constexpr char schedule_reference_version[] = "{version}";',
        f"inline constexpr double schedule_reference_rate = {RATE:g};  // the optimizer's",
        "",
        "// The rate of each step.",
        "struct ScheduleFigures {",
        "  const char* type;",
        "  const char* params;  // JSON",
        "  std::vector<double> rates;",
        "};",
        "inline const std::vector<ScheduleFigures> schedule_figures = {",
    ]
    for name, params in CASES:
        lines.append(f'    {{"{name}",')
        lines.append(f'     R"({json.dumps(params)})",')
        values = [f"{rate:.17g}" for rate in rates(schedules, torch, name, params)]
        lines += last_list(values, 4)
    lines += ["};", "", "}  // namespace headrace::test", ""]
    return "\n".join(lines)


def figures(text: str) -> list[str]:
    return re.findall(r"[\w.+-]+", text.split("schedule_figures =")[1])


def make(deepspeed) -> str:
    import torch
    from deepspeed.runtime import lr_schedules
    return header(deepspeed.__version__, lr_schedules, torch)


if __name__ == "__main__":
    sys.exit(write_or_check(__doc__, make, figures, "rates"))
