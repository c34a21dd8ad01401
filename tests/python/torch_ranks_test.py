"""The PyTorch front end on several ranks: torchrun (gloo) and mpirun give the same states, whatever the placement.

    PYTHONPATH=build/release/python python3 tests/python/torch_ranks_test.py

Skipped where torch or transformers is missing.
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

if len(sys.argv) > 1 and sys.argv[1] == "worker":
    import torch_engine_test as one_rank

    import headrace

    rank = headrace._headrace.launch_info()
    case = one_rank.TorchEngine()
    digests = {}
    for zero in one_rank.placements():
        if "nvme" in str(zero):
            continue
        engine = headrace.initialize(one_rank.llama(), case.config(zero))
        for batch in one_rank.batches(3, size=rank.size):
            loss = engine(**{name: ids[rank.rank : rank.rank + 1] for name, ids in batch.items()}).loss
            engine.backward(loss)
            engine.step()
        digests[str(zero)] = engine.state_hash()
        engine.close()
    if rank.rank == 0:
        print(json.dumps(digests))
    sys.exit(0)

try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


class TorchRanks(unittest.TestCase):
    def digest(self, launcher):
        environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*launcher, __file__, "worker"], capture_output=True, text=True, env=environment, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        digests = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
        self.assertEqual(len(set(digests.values())), 1, digests)
        return next(iter(digests.values()))

    def test_torchrun_and_mpirun_give_the_same_states_at_every_placement(self):
        for ranks in (2, 3):
            torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
            by_torch = self.digest(torchrun)
            if shutil.which("mpirun"):
                self.assertEqual(self.digest(["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", sys.executable]), by_torch)


if __name__ == "__main__":
    unittest.main()
