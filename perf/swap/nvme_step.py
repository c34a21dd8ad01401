#!/usr/bin/env python3
"""Question: what does keeping the optimizer states on NVMe add to a training step, and is it no more than the disk needs?

Ceiling: the step with everything resident, its update replaced by the closed form of a swapped one (K blocks, B buffers, one
shared path): T = (r + c + w) + (K - 1) max(r + w, c, (r + c + w) / B), with r and w from fio at the same block size on the same
file system and c from the resident run's own update. Rounds alternate resident run, NVMe run and fio; medians are compared. Bytes are
those of the engine's counters and of the kernel's accounting of the process (rusage), against 12 + 12 a parameter.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

BLOCK_BYTES = 3 << 20  # of a swap block: `--swap-block`
BUFFERS = 8
STATE_BYTES = 12


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the drive to measure")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text to train on")
    parser.add_argument("--model", default="gpt2-mini")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    return parser.parse_args()


def train(options, folder, steps, nvme):
    """One run: its step events, its summary and the bytes the kernel counted for it."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    swap = folder / "swap"
    shutil.rmtree(swap, ignore_errors=True)
    swap.mkdir()
    command = [options.headrace, "train", "--model", options.model, "--data", options.data, "--steps", steps, "--batch-size",
               options.batch_size, "--sequence-length", 256, "--schedule", "constant", "--metrics", metrics, "--quiet"]
    if nvme:
        command += ["--offload-optimizer", "nvme", "--swap-path", swap, "--swap-block", BLOCK_BYTES, "--swap-buffers", BUFFERS]
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {process.returncode}")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    summary = next(event for event in events if event["event"] == "summary")
    return steps, summary, (usage.ru_inblock * 512, usage.ru_oublock * 512)


def fio_rate(folder, direction):
    """Bytes a second of fio with our block size; the file is written whole before it is first read."""
    file = folder / "fio.bin"
    base = ["fio", "--name=r", f"--filename={file}", "--size=512MiB", f"--bs={BLOCK_BYTES}", "--direct=1", "--ioengine=io_uring",
            "--iodepth=4", "--output-format=json"]
    if not file.exists():
        subprocess.run([*base, "--rw=write"], check=True, capture_output=True)
    output = subprocess.run([*base, f"--rw={direction}"], check=True, capture_output=True, text=True).stdout
    return json.loads(output)["jobs"][0][direction]["bw_bytes"]


def closed_form(blocks, read, compute, write):
    return (read + compute + write) + (blocks - 1) * max(read + write, compute, (read + compute + write) / BUFFERS)


def median_step(steps, key=lambda step: step["step_seconds"]):
    return statistics.median(key(step) for step in steps[1:])  # the first step learns the order and touches memory


def measure_round(options, folder):
    resident_steps, summary, _ = train(options, folder, options.steps, nvme=False)
    read_rate, write_rate = fio_rate(folder, "read"), fio_rate(folder, "write")
    swapped_steps, _, _ = train(options, folder, options.steps, nvme=True)
    blocks = max(1, round(summary["parameters"] * STATE_BYTES / BLOCK_BYTES))
    resident_update = median_step(resident_steps, lambda step: step["stall_seconds"]["optimizer"])
    update = closed_form(blocks, BLOCK_BYTES / read_rate, resident_update / blocks, BLOCK_BYTES / write_rate)
    resident, swapped = median_step(resident_steps), median_step(swapped_steps)
    return {"resident_seconds": resident, "resident_update_seconds": resident_update, "nvme_seconds": swapped,
            "closed_form_seconds": update, "fio_read": read_rate, "fio_write": write_rate,
            "ratio": swapped / (resident - resident_update + update)}


def bytes_a_parameter(options, folder):
    """Bytes that one step moves, from the counters and, as the difference of a long and a short run, from the kernel."""
    short, extra = 2, 6
    _, summary, before = train(options, folder, short, nvme=True)
    steps, _, after = train(options, folder, short + extra, nvme=True)
    parameters = summary["parameters"]
    return {"counter_read": steps[-1]["nvme_read_bytes"] / parameters, "counter_written": steps[-1]["nvme_written_bytes"] / parameters,
            "kernel_read": (after[0] - before[0]) / extra / parameters, "kernel_written": (after[1] - before[1]) / extra / parameters,
            "host_peak_bytes": steps[-1]["host_peak_bytes"]}


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        rounds = []
        for number in range(options.rounds):
            rounds.append(measure_round(options, folder))
            print("round {}: resident {resident_seconds:.3f} s, NVMe {nvme_seconds:.3f} s, closed form {closed_form_seconds:.3f} s, "
                  "ratio {ratio:.3f}".format(number + 1, **rounds[-1]), flush=True)
        moved = bytes_a_parameter(options, folder)
    ratio = statistics.median(entry["ratio"] for entry in rounds)
    print(f"step / (resident step without its update + closed form): median {ratio:.3f}")
    print("bytes a parameter and step: counters {counter_read:.2f} read + {counter_written:.2f} written, kernel {kernel_read:.2f} + "
          "{kernel_written:.2f}; host buffers {host_peak_bytes} bytes".format(**moved))
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "nvme_step", "rounds": rounds, "ratio": ratio, "bytes": moved}, indent=1))


if __name__ == "__main__":
    main()
