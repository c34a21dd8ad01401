"""The stand-alone reader and `inspect` find the same hash in the same store. Usage: read_store_test.py MAKE_STORE"""

import itertools
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import read_store  # noqa: E402

MAKE_STORE = ""


class ReaderTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="headrace-reader-")
        self.addCleanup(self.folder.cleanup)

    def make(self, world_size, stage, block_numel, paths=1, parity=0, states=("adam", "fp32", "fp32"), pins=0):
        shape = map(str, (world_size, stage, block_numel, paths, parity))
        command = [MAKE_STORE, self.folder.name, *shape, *states, *([str(pins)] if pins else [])]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def read(self, *flags, paths=None):
        command = [sys.executable, read_store.__file__, *(paths or [self.folder.name]), *flags]
        return subprocess.run(command, capture_output=True, text=True)

    def clear(self):
        for entry in Path(self.folder.name).iterdir():
            shutil.rmtree(entry)

    def test_checksums_have_their_published_values(self):
        self.assertEqual(read_store.crc32c(b"123456789"), 0xE3069283)
        self.assertEqual(read_store.xxh64(b""), 0xEF46DB3751D8E999)
        self.assertEqual(read_store.xxh64(b"abc"), 0x44BC2CF5AD770999)
        self.assertEqual(read_store.xxh64(b"Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1)

    def test_hash_equals_that_of_inspect(self):
        for world_size, stage, block_numel in [(1, 1, 64), (1, 0, 5000), (2, 3, 333), (3, 2, 100), (2, 0, 150)]:
            with self.subTest(world_size=world_size, stage=stage, block_numel=block_numel):
                expected = self.make(world_size, stage, block_numel)
                self.assertEqual(self.read().stdout.strip(), expected)
                self.assertEqual(self.read("--pure").stdout.strip(), expected)
                self.clear()

    def test_hash_of_every_optimizer_and_type_of_state_equals_that_of_inspect(self):
        optimizers = ["adam", "amsgrad", "adagrad", "lion", "sgd", "momentum"]
        for i, states in enumerate(itertools.product(optimizers, ["fp32", "bf16"], ["fp32", "bf16", "int8"])):
            with self.subTest(states=states):
                expected = self.make(1, 1, (64, 192, 5056)[i % 3], states=states)
                step, found = read_store.state_hash(self.folder.name)
                self.assertEqual(f"{found:016x} step {step}", expected)
                self.clear()

    def test_hash_of_several_paths_is_found_whatever_paths_parity_can_do_without(self):
        for count, parity in [(3, 0), (3, 1), (4, 2)]:
            expected = self.make(2, 3, 333, count, parity)
            paths = [str(Path(self.folder.name) / f"p{i}") for i in range(count)]
            for away in itertools.combinations(range(count), parity):
                with self.subTest(paths=count, parity=parity, away=away):
                    there = [path for i, path in enumerate(paths) if i not in away]
                    self.assertEqual(self.read(paths=there).stdout.strip(), expected)
            fewer = self.read(paths=paths[parity + 1 :])
            self.assertEqual(fewer.returncode, 1)
            self.assertIn("paths are missing", fewer.stderr)
            self.clear()

    def test_a_pinned_version_is_read_as_the_step_was_whichever_paths_are_there(self):
        for paths, parity in [(1, 0), (3, 1)]:
            with self.subTest(paths=paths):
                newest = self.make(1, 1, 333, paths, parity, pins=2)
                folders = [self.folder.name] if paths == 1 else [f"{self.folder.name}/p{i}" for i in range(paths)]
                for there in [folders, folders[parity:]]:
                    self.assertEqual(self.read(paths=there).stdout.strip(), newest)
                    pinned = self.read("--pin", "kept", paths=there).stdout.strip()
                    self.assertRegex(pinned, "step 6$")
                    self.assertEqual(pinned, self.read("--step", "6", paths=there).stdout.strip())
                self.clear()

    @unittest.skipIf(read_store.numpy is None, "numpy is not installed")
    def test_numpy_and_pure_python_agree(self):
        data = struct.pack("<257I", *(read_store.splitmix64(i) & 0xFFFFFFFF for i in range(257)))
        for key, first in [(0, 0), (read_store.MASK, 5), (123456789, 1 << 33)]:
            self.assertEqual(
                read_store.hash_values_numpy(key, first, data), read_store.hash_values_pure(key, first, data)
            )

    def test_a_flipped_bit_is_refused_and_changes_the_hash(self):
        expected = self.make(1, 1, 200)
        extents = Path(self.folder.name) / "rank-00000" / "extents.bin"
        store = read_store.Store([extents.parent])
        offset = store.commits[-1].table[0][0]
        data = bytearray(extents.read_bytes())
        data[offset] ^= 1
        extents.write_bytes(data)
        refused = self.read()
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"offset {offset}", refused.stderr)
        self.assertNotEqual(self.read("--skip-crc").stdout.strip(), expected)

    def test_a_missing_rank_is_refused(self):
        self.make(3, 3, 200)
        (Path(self.folder.name) / "rank-00001" / "store.json").unlink()
        self.assertIn("is a rank missing?", self.read().stderr)


if __name__ == "__main__":
    MAKE_STORE = sys.argv.pop()
    unittest.main()
