#!/usr/bin/env python3
"""Question: with optimizer states on NVMe, how fast does Headrace update parameters and in how much memory, beside deepspeed's ZeRO-3?

Both train the same GPT-2 (bf16, fp32 master and moments, AdamW, clipping) on the same text and threads, one rank, on the CPU; each
round runs every contender in a process of its own, in an order that turns from round to round, and drops the warm-up steps.
Sequences are short, so that the update is most of a step. deepspeed runs with its pipelined and its plain swapper, and keeps its
gradients on the drive too; Headrace runs with them in host memory and on the drive.

update rate  parameters / seconds of the optimizer's phase: `engine.step()` there, `stall_seconds.optimizer` here (which includes
             the flush and the commit that make a step survive a crash; deepspeed has no such thing). deepspeed writes gradients
             to the drive in backward and that is not charged to its update; the whole step's seconds, beside it, hide nothing.
bytes        that the kernel counted for the process over whole steps (/proc/PID/io), a parameter.
peak RSS     here of the whole run; there of the timed steps alone, without what its start needed.

    perf/swap/compare_deepspeed.py --deepspeed-python VENV/bin/python --headrace build/release/headrace --folder DIR --data FILE

To make that Python (its ops are compiled on first use: needs g++ and libaio-dev):
    python3 -m venv VENV && VENV/bin/pip install torch numpy ninja setuptools
    DS_BUILD_OPS=0 VENV/bin/pip install deepspeed
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import deepspeed_step

UPDATE_RATE_TARGET = 1.15  # at least, of deepspeed's
MEMORY_TARGET = 0.25  # at most, of deepspeed's


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepspeed-python", required=True, help="a Python that has deepspeed and torch")
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the drive to measure")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text to train on")
    parser.add_argument("--model", default="gpt2-124m", choices=deepspeed_step.SHAPES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a process (default 4)")
    parser.add_argument("--warmup", type=int, default=2, help="steps before them (default 2)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--deepspeed-sub-group", type=int, default=40_000_000, help="parameters it updates together")
    parser.add_argument("--deepspeed-depth", type=int, default=32, help="queue depth of its aio")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    parser.add_argument("headrace_options", nargs="*", metavar="-- OPTION", help="further options of `headrace train`")
    return parser.parse_args()


def fail(what, log):
    sys.exit(f"{what}. The end of what it said:\n{log.read_text(errors='replace')[-2000:]}")


def empty(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def deepspeed_round(options, folder, pipeline):
    log = folder / "deepspeed.log"
    script = pathlib.Path(__file__).with_name("deepspeed_step.py")
    command = [options.deepspeed_python, script, "--folder", empty(folder / "deepspeed"), "--data", options.data, "--depth",
               options.deepspeed_depth, "--sub-group", options.deepspeed_sub_group]
    for name in ("model", "steps", "warmup", "threads", "batch", "sequence"):
        command += [f"--{name}", getattr(options, name)]
    command += ["--pipeline"] if pipeline else []
    with log.open("w") as errors:
        done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True)
    shutil.rmtree(folder / "deepspeed")
    if done.returncode != 0:
        fail(f"deepspeed ended with status {done.returncode}", log)
    result = json.loads(done.stdout)
    return {"parameters": result["parameters"], "losses": result["losses"], "seconds": [step["seconds"] for step in result["steps"]],
            "update_seconds": [step["optimizer"] for step in result["steps"]], "read_bytes": result["read_bytes"],
            "written_bytes": result["written_bytes"], "peak_rss_bytes": result["peak_rss_bytes"], "versions": result["versions"]}


def device_bytes(pid):
    values = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(values["read_bytes"]), int(values["write_bytes"])


def events_of(metrics):
    """Whole lines only: the last may still be on its way."""
    text = metrics.read_text() if metrics.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def follow(process, metrics, marks):
    """Waits for the end: its status and usage, and the kernel's counts of the process when the steps `marks` were reported
    (between updates it moves nothing)."""
    counts = {}
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return counts, usage
        if len(counts) < len(marks):
            step = sum(event["event"] == "step" for event in events_of(metrics))
            if step in marks and step not in counts:
                counts[step] = device_bytes(process.pid)
        time.sleep(0.01)


def headrace_round(options, folder, gradients):
    log, metrics, swap = folder / "headrace.log", folder / "metrics.jsonl", empty(folder / "headrace")
    metrics.unlink(missing_ok=True)
    last = options.warmup + options.steps  # one step more runs, so that the counts at `last` are not those of the run's end
    command = [options.headrace, "train", "--model", options.model, "--data", options.data, "--steps", last + 1, "--batch-size",
               options.batch, "--sequence-length", options.sequence, "--threads", options.threads, "--schedule", "constant", "--stage", 3,
               "--offload-gradients", gradients, "--offload-optimizer", "nvme", "--swap-path", swap, "--metrics", metrics, "--quiet"]
    command += options.headrace_options
    with log.open("w") as errors:
        process = subprocess.Popen([str(word) for word in command], stdout=errors, stderr=errors, stdin=subprocess.DEVNULL)
        counts, usage = follow(process, metrics, (options.warmup, last))
    shutil.rmtree(swap)
    if process.returncode != 0:
        fail(f"{options.headrace} ended with status {process.returncode}", log)
    if len(counts) < 2:
        sys.exit("a step ended sooner than its bytes could be read: a longer --sequence or a larger --model is needed")
    events = events_of(metrics)
    steps = [event for event in events if event["event"] == "step"][options.warmup : last]
    read, written = ((after - before) / options.steps for before, after in zip(counts[options.warmup], counts[last]))
    return {"parameters": events[-1]["parameters"], "losses": [event["loss"] for event in events if event["event"] == "step"],
            "seconds": [step["step_seconds"] for step in steps],
            "update_seconds": [step["stall_seconds"]["optimizer"] for step in steps],
            "read_bytes": read, "written_bytes": written, "peak_rss_bytes": usage.ru_maxrss * 1024}


OURS = {
    "headrace": lambda options, folder: headrace_round(options, folder, "cpu"),
    "headrace, gradients on NVMe": lambda options, folder: headrace_round(options, folder, "nvme"),
}
RIVALS = {
    "deepspeed, pipelined": lambda options, folder: deepspeed_round(options, folder, pipeline=True),
    "deepspeed, plain": lambda options, folder: deepspeed_round(options, folder, pipeline=False),
}
CONTENDERS = OURS | RIVALS


def check_trained(name, result):
    losses = result["losses"]
    if any(loss is None or not math.isfinite(loss) for loss in losses) or len(set(losses)) < 2:
        sys.exit(f"{name} did not train: its losses are {losses}")


def figures_of(result):
    """One round of one contender: what the table shows."""
    parameters, seconds = result["parameters"], statistics.median(result["seconds"])
    update = statistics.median(result["update_seconds"])
    return {"update_rate": parameters / update, "step_seconds": seconds, "update_share": update / seconds,
            "read": result["read_bytes"] / parameters, "written": result["written_bytes"] / parameters,
            "peak_rss_bytes": result["peak_rss_bytes"]}


def run_rounds(options):
    rounds, about = [], {}
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        for number in range(options.rounds):
            order = list(CONTENDERS)
            turn = number % len(order)
            entry = {}
            for contender in order[turn:] + order[:turn]:
                result = CONTENDERS[contender](options, pathlib.Path(name))
                check_trained(contender, result)
                entry[contender] = figures_of(result)
                about |= result.get("versions", {})
                about.setdefault("parameters", result["parameters"])
                if result["parameters"] != about["parameters"]:
                    sys.exit(f"{contender} has {result['parameters']} parameters, another {about['parameters']}: not the same model")
            rounds.append(entry)
            print(f"round {number + 1}: " + ", ".join(f"{c} {entry[c]['update_rate'] / 1e6:.1f} M/s" for c in CONTENDERS), file=sys.stderr)
    return rounds, about


def median(rounds, contender, key):
    return statistics.median(entry[contender][key] for entry in rounds)


def paired(rounds, own, rival, key):
    return [entry[own][key] / entry[rival][key] for entry in rounds]


def print_table(rounds, about):
    print("{parameters} parameters, deepspeed {deepspeed}, torch {torch}; medians of {rounds} rounds".format(rounds=len(rounds), **about))
    print(f"{'':28}{'update':>12}{'step':>10}{'update is':>11}{'read + written':>18}{'peak RSS':>12}")
    for name in CONTENDERS:
        show = {key: median(rounds, name, key) for key in rounds[0][name]}
        print("{name:28}{rate:8.1f} M/s{step_seconds:8.3f} s{share:9.0f} %{moved:>18}{rss:8.0f} MiB".format(
            name=name, rate=show["update_rate"] / 1e6, share=100 * show["update_share"], rss=show["peak_rss_bytes"] / 2**20,
            moved=f"{show['read']:.2f} + {show['written']:.2f} B", **show))


def results_of(rounds):
    """Each of ours against each of deepspeed's swappers: update rate, whole step, memory."""
    results = []
    for own, rival in itertools.product(OURS, RIVALS):
        for key, unit, case in (("update_rate", "parameters/s", "update rate"), ("step_seconds", "s", "whole step"),
                                ("peak_rss_bytes", "bytes", "peak RSS")):
            ratios = paired(rounds, own, rival, key)
            results.append({"case": f"{case} of {own} beside {rival}", "value": median(rounds, own, key), "unit": unit,
                            "ceiling": median(rounds, rival, key), "ratio": statistics.median(ratios), "rounds": ratios})
    return results


def print_ratios(results):
    targets = {"update rate": lambda ratio: ratio >= UPDATE_RATE_TARGET, "peak RSS": lambda ratio: ratio <= MEMORY_TARGET}
    wanted = {"update rate": f"at least {UPDATE_RATE_TARGET}", "peak RSS": f"at most {MEMORY_TARGET}"}
    for result in results:
        line = "{case}: {ratio:.3f} x, rounds {low:.3f} to {high:.3f}".format(low=min(result["rounds"]), high=max(result["rounds"]), **result)
        kind = result["case"].split(" of ")[0]
        if kind in targets:
            line += f" (wanted {wanted[kind]}: {'met' if targets[kind](result['ratio']) else 'NOT met'})"
        print(line)


def require_inputs(options):
    if shutil.which(options.deepspeed_python) is None:
        sys.exit(f"--deepspeed-python: there is no {options.deepspeed_python}. To make one: {deepspeed_step.INSTALL}")
    if shutil.which(options.headrace) is None:
        sys.exit(f"--headrace: there is no program {options.headrace}")
    if not options.folder.is_dir():
        sys.exit(f"--folder: there is no folder {options.folder}")
    if not options.data.is_file():
        sys.exit(f"--data: there is no file {options.data}")


def main():
    options = arguments()
    require_inputs(options)
    rounds, about = run_rounds(options)
    results = results_of(rounds)
    print_table(rounds, about)
    print_ratios(results)
    if options.json:
        machine = {"cpus": os.cpu_count(), "threads": options.threads, "kernel": platform.release(), **about}
        options.json.write_text(json.dumps({"benchmark": "swap beside deepspeed", "machine": machine, "results": results,
                                            "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()
