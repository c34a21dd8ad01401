#!/usr/bin/env python3
"""Question: how much resident memory does a run take under fixed limits, and what of it grows with the model?

Runs two models under the same device and host limits with optimizer states on NVMe and prints the high-water mark of the
resident set beside the limits and the peaks of each tier. Memory is set by the limits when the two marks are alike.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile


def run(options, model, folder):
    swap, metrics = folder / model, folder / f"{model}.jsonl"
    swap.mkdir()
    subprocess.run([options.headrace, "train", "--model", model, "--data", options.data, "--steps", "2", "--batch-size", "1",
                    "--sequence-length", "256", "--recompute", "--stage", "3", "--offload-optimizer", "nvme",
                    "--offload-gradients", "cpu", "--offload-parameters", "cpu", "--device-memory", options.device_memory,
                    "--host-memory", options.host_memory, "--swap-path", swap, "--metrics", metrics, "--quiet"],
                   check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return json.loads(metrics.read_text().splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True)
    parser.add_argument("--folder", required=True, help="existing folder on the drive for optimizer states")
    parser.add_argument("--data", required=True)
    parser.add_argument("--device-memory", default="512MiB")
    parser.add_argument("--host-memory", default="640MiB")
    parser.add_argument("--models", nargs=2, default=["gpt2-70m", "gpt2-124m"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        runs = {model: run(options, model, pathlib.Path(name)) for model in options.models}
    mib = 1 << 20
    for model, summary in runs.items():
        tiers = {tier: sum(tags.values()) / mib for tier, tags in summary["peak_tiers"].items()}
        print(f"{model}: {summary['parameters']} parameters, resident {summary['peak_rss_bytes'] / mib:.0f} MiB, "
              f"device peak {tiers['device']:.0f} MiB, host peak {tiers['host']:.0f} MiB")
    small, large = (runs[model] for model in options.models)
    print(f"difference {(large['peak_rss_bytes'] - small['peak_rss_bytes']) / mib:.0f} MiB")


if __name__ == "__main__":
    main()
