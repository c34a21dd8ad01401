#!/usr/bin/env python3
"""Question: is a model of about a billion parameters saved, exported and loaded in 2 GiB of memory?

Its states, gradients and parameters are on NVMe. One step is trained and saved; the checkpoint is exported, and what safetensors
and transformers say of the export is compared with the model and with the checkpoint; then a new run loads the checkpoint in the
place of the first one's store, trains another step and saves it. Each process may have 2 GiB resident at most.

    perf/checkpoint/one_billion.py --headrace build/release/headrace --folder DIR --data FILE --torch-python PYTHON

DIR needs room for the swap store (16 bytes a parameter without durability), two checkpoints (12 each; the first goes when the second
is whole) and the export (2). To make the Python: python3 -m venv VENV && VENV/bin/pip install torch numpy safetensors transformers
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

LIMIT_BYTES = 2 << 30
GIB = 1 << 30

# The shape of TinyLlama: 1.1 billion parameters.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 2048,
          "intermediate_size": 5632, "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 22,
          "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "vocab_size": 32000,
          "torch_dtype": "bfloat16", "rope_theta": 10000.0, "attention_bias": False}  # fmt: skip

# Names and shapes as transformers makes them, without memory for them; values of a few tensors against the checkpoint's masters.
CHECK = """
import json, pathlib, sys
import torch, transformers
from safetensors import safe_open
export, checkpoint = map(pathlib.Path, sys.argv[1:])
with torch.device("meta"):
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(export))
wanted = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
found, files = {}, sorted(export.glob("*.safetensors"))
for file in files:
    with safe_open(file, "pt") as opened:
        found |= {name: (list(opened.get_slice(name).get_shape()), file) for name in opened.keys()}
assert {name: shape for name, (shape, _) in found.items()} == wanted, "names or shapes differ"
shards = sorted(checkpoint.glob("rank-*.safetensors"))
compared = 0
for name in (min(found), max(found), "model.norm.weight", "lm_head.weight"):
    with safe_open(found[name][1], "pt") as opened:
        exported = opened.get_tensor(name).flatten()
    for shard in shards:
        with safe_open(shard, "pt") as opened:
            for key in opened.keys():
                parameter, array, first = key.rsplit(":", 2)
                if parameter == name and array == "master":
                    master = opened.get_tensor(key)
                    assert torch.equal(exported[int(first) : int(first) + len(master)], master.to(exported.dtype)), key
                    compared += len(master)
print(json.dumps({"tensors": len(found), "files": len(files), "values_compared": compared,
                  "parameters": sum(torch.Size(shape).numel() for shape in wanted.values())}))
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headrace", required=True, type=pathlib.Path, help="the program")
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="existing folder on the drive")
    parser.add_argument("--data", required=True, type=pathlib.Path, help="text to train on")
    parser.add_argument("--torch-python", required=True, help="a Python that has torch, safetensors and transformers")
    parser.add_argument("--sequence-length", type=int, default=16, help="short: the arithmetic of a step proves nothing here")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures here")
    return parser.parse_args()


def run(what, command, log):
    """Seconds and the most that the process had resident; it starts no other."""
    start = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{what} ended with status {process.returncode}. The end of what it said:\n{log.read_text(errors='replace')[-2000:]}")
    result = {"what": what, "seconds": round(time.monotonic() - start, 1), "peak_rss_bytes": usage.ru_maxrss * 1024}
    within = "within" if result["peak_rss_bytes"] <= LIMIT_BYTES else "BEYOND"
    print(f"{what:24}{result['seconds']:8.1f} s{result['peak_rss_bytes'] / GIB:8.2f} GiB resident, {within} {LIMIT_BYTES / GIB:.0f} GiB", flush=True)
    return result


def train_command(options, folder, steps, *more):
    return [options.headrace, "train", "--model", folder / "model", "--data", options.data, "--steps", steps, "--batch-size", 1,
            "--sequence-length", options.sequence_length, "--recompute", "--stage", 3, "--offload-optimizer", "nvme",
            "--offload-gradients", "nvme", "--offload-parameters", "nvme", "--durability", "none", "--swap-path", folder / "swap",
            "--checkpoint-dir", folder / "checkpoints", "--keep-last", 1, *more]  # fmt: skip


def check_export(options, folder):
    command = [options.torch_python, "-c", CHECK, folder / "export", folder / "checkpoints/step-00000001"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the export is not what it should be:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = pathlib.Path(name)
        for made in ("model", "swap"):
            (folder / made).mkdir()
        (folder / "model/config.json").write_text(json.dumps(CONFIG))
        log = folder / "log"
        results = [run("step 1, saved", train_command(options, folder, 1), log)]
        print("  " + next(line for line in log.read_text().splitlines() if "saved " in line))
        checkpoint = folder / "checkpoints/step-00000001"
        size = sum(file.stat().st_size for file in checkpoint.iterdir())
        results.append(run("export", [options.headrace, "export", checkpoint, "--to", folder / "export"], log))
        export = check_export(options, folder)
        print(f"  {export['parameters']} parameters in {export['tensors']} tensors, as transformers has them; a checkpoint has "
              f"{size / export['parameters']:.2f} bytes a parameter; {export['values_compared']} exported values are the masters'")
        results.append(run("loaded, step 2, saved", train_command(options, folder, 2, "--resume", "latest"), log))
        print("  " + next(line for line in log.read_text().splitlines() if "saved " in line))
    if options.json:
        options.json.write_text(json.dumps({"benchmark": "a billion parameters", "export": export, "checkpoint_bytes": size,
                                            "limit_bytes": LIMIT_BYTES, "results": results}, indent=1))
    if any(result["peak_rss_bytes"] > LIMIT_BYTES for result in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
