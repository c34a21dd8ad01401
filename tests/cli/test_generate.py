"""generate: text and token ids from checkpoints and model folders, what ends it, and what is refused."""

import ast
import json
import signal
import struct
import unittest

from program import NANO, ProgramTest
from test_model_folder import SHAPE, parameters, product

PREFIX = ["mpirun", "-n", "2", "--oversubscribe"]


def read_logits(path):
    """The rows of a NumPy file of float32."""
    data = path.read_bytes()
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    header = ast.literal_eval(data[10:10 + length].decode())
    assert (header["descr"], header["fortran_order"]) == ("<f4", False) and (10 + length) % 64 == 0, header
    rows, columns = header["shape"]
    values = struct.unpack(f"<{rows * columns}f", data[10 + length:])
    return [values[r * columns:(r + 1) * columns] for r in range(rows)]


class Generate(ProgramTest):
    def checkpoint(self, name="runs", *arguments, model=NANO):
        """A run's folder of checkpoints; a high rate, so that a few steps are seen in the text."""
        self.succeeds("train", *model, "--steps", 6, "--learning-rate", "1e-2", "--checkpoint-dir", name, *arguments)
        return name

    def model_folder(self, name="model", **keys):
        """Like a model that transformers saved: weights that depend on their place."""
        path = self.folder / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps(SHAPE | keys))
        header, data = {}, b""
        for number, (tensor, dims) in enumerate(parameters(SHAPE | keys).items()):
            values = [((i * 7919 + number * 104729) % 1009 / 1009 - 0.5) for i in range(product(dims))]
            begin = len(data)
            data += struct.pack(f"<{len(values)}f", *values)
            header[tensor] = {"dtype": "F32", "shape": dims, "data_offsets": [begin, len(data)]}
        text = json.dumps(header).encode()
        (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        return name

    def ids(self, *arguments):
        return [int(word) for word in self.succeeds("generate", *arguments, "--quiet").stdout.strip().split(",")]

    # ---- text

    def test_text_goes_on_with_the_newest_checkpoint_and_the_same_command_gives_the_same_text(self):
        runs = self.checkpoint("runs", "--save-every", 3)
        command = ["generate", runs, "--prompt", "line 1", "--max-tokens", 40, "--seed", 3]
        first = self.succeeds(*command)
        self.assertIn("step-00000006 (step 6 of a run by headrace", first.stderr)
        self.assertIn("in bf16 on cpu", first.stderr)
        self.assertIn("40 tokens", first.stderr)
        self.assertEqual(self.succeeds(*command).stdout, first.stdout)
        self.assertNotEqual(self.succeeds(*command[:-1], 4).stdout, first.stdout)
        self.assertEqual(self.succeeds("generate", f"{runs}/step-00000006", *command[2:]).stdout, first.stdout)
        self.assertIn("step 3 of a run", self.succeeds("generate", f"{runs}/step-00000003", *command[2:]).stderr)

    def test_a_prompt_is_the_same_from_a_file(self):
        runs = self.checkpoint()
        self.write("prompt.txt", "line 1")
        options = ["--max-tokens", 30, "--quiet"]
        self.assertEqual(self.succeeds("generate", runs, "--prompt-file", "prompt.txt", *options).stdout,
                         self.succeeds("generate", runs, "--prompt", "line 1", *options).stdout)

    def test_several_sequences_are_printed_apart(self):
        runs = self.checkpoint()
        text = self.succeeds("generate", runs, "--prompt", "line", "--max-tokens", 10, "--count", 3).stdout
        for number in (1, 2, 3):
            self.assertIn(f"--- {number} of 3\n", text)
        lines = self.succeeds("generate", runs, "--tokens", "108,105", "--max-tokens", 10, "--count", 3).stdout.splitlines()
        self.assertEqual([len(line.split(",")) for line in lines], [10, 10, 10])
        self.assertEqual(len(set(lines)), 3)

    def test_an_export_gives_the_tokens_of_its_checkpoint(self):
        for model in ("gpt2-nano", "llama-nano"):
            runs = self.checkpoint(model, model=["--model", model, *NANO[2:]])
            self.succeeds("export", f"{runs}/step-00000006", "--to", f"{model}-out", "--dtype", "fp32")
            options = ["--tokens", "1,2,3", "--max-tokens", 50, "--dtype", "fp32", "--temperature", 0]
            self.assertEqual(self.ids(f"{model}-out", *options), self.ids(runs, *options))

    # ---- ids

    def test_ids_are_answered_with_ids_that_can_be_given_again(self):
        folder = self.model_folder()
        greedy = ["--temperature", 0]
        first = self.ids(folder, "--tokens", "5,6,7", "--max-tokens", 8, *greedy)
        self.assertEqual(len(first), 8)
        prompt = ",".join(map(str, [5, 6, 7, *first[:4]]))
        self.assertEqual(self.ids(folder, "--tokens", prompt, "--max-tokens", 4, *greedy), first[4:])
        (self.folder / "ids.bin").write_bytes(struct.pack("<3H", 5, 6, 7))
        self.assertEqual(self.ids(folder, "--prompt-file", "ids.bin", "--max-tokens", 8, *greedy), first)

    def test_top_k_of_1_is_the_likeliest(self):
        folder = self.model_folder()
        common = [folder, "--tokens", "9", "--max-tokens", 12]
        self.assertEqual(self.ids(*common, "--top-k", 1), self.ids(*common, "--temperature", 0))
        self.assertEqual(self.ids(*common, "--top-p", "1e-6"), self.ids(*common, "--temperature", 0))

    def test_it_ends_at_the_end_token_of_the_configuration(self):
        plain = self.ids(self.model_folder(), "--tokens", "5", "--max-tokens", 12, "--temperature", 0)
        end = plain[3]
        folder = self.model_folder("ending", eos_token_id=[end, 255])
        common = [folder, "--tokens", "5", "--max-tokens", 12, "--temperature", 0]
        self.assertEqual(self.ids(*common), plain[:plain.index(end) + 1])
        self.assertEqual(self.ids(*common, "--ignore-end"), plain)

    def test_it_ends_with_a_warning_where_the_model_has_no_more_positions(self):
        result = self.succeeds("generate", self.model_folder(), "--tokens", "5,6,7,8", "--max-tokens", 500)
        self.assertEqual(len(result.stdout.split(",")), 64 - 4 + 1)
        self.assertIn("ended after 61 tokens: the model has 64 positions", result.stderr)

    # ---- JSON and logits

    def test_json_has_tokens_text_and_sizes(self):
        runs = self.checkpoint()
        result = self.succeeds("generate", runs, "--prompt", "line", "--max-tokens", 7, "--count", 2, "--json", "--seed", 5)
        report = json.loads(result.stdout)
        self.assertEqual(report["prompt"], list(b"line"))
        self.assertEqual(report["sampling"], {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": 5})
        self.assertEqual([len(one["tokens"]) for one in report["sequences"]], [7, 7])
        self.assertEqual({one["ended"] for one in report["sequences"]}, {"length"})
        self.assertIn("text", report["sequences"][0])
        self.assertEqual(report["positions"], 10)
        self.assertGreater(report["bytes"]["all"], report["bytes"]["weights"] + report["bytes"]["keys_and_values"])

    def test_logits_are_of_every_position_and_their_largest_is_the_greedy_token(self):
        folder = self.model_folder()
        tokens = self.ids(folder, "--tokens", "5,6,7", "--max-tokens", 6, "--temperature", 0, "--logits", "l.npy")
        rows = read_logits(self.folder / "l.npy")
        self.assertEqual(len(rows), 3 + 6 - 1)
        self.assertEqual([row.index(max(row)) for row in rows[2:]], tokens)
        everything = ",".join(map(str, [5, 6, 7, *tokens[:-1]]))
        result = self.succeeds("generate", folder, "--tokens", everything, "--max-tokens", 0, "--logits", "all.npy")
        self.assertEqual(result.stdout, "")
        for one, other in zip(rows, read_logits(self.folder / "all.npy"), strict=True):
            self.assertLess(max(abs(a - b) for a, b in zip(one, other)), 1e-4)

    # ---- stops and limits

    def test_ctrl_c_ends_it_behind_the_token_in_work(self):
        runs = self.checkpoint("mini", model=["--model", "gpt2-mini", *NANO[2:]])
        process = self.start("generate", runs, "--tokens", "1,2,3", "--max-tokens", 250)
        self.assertTrue(process.stdout.read(1))  # the first token is there
        process.send_signal(signal.SIGINT)
        text, log = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, log)
        self.assertIn("stopped by a signal", log)
        self.assertTrue(text.endswith("\n"))
        self.assertLess(text.count(","), 240)

    def test_what_does_not_fit_is_refused_with_status_3(self):
        self.refused("generate", self.model_folder(), "--tokens", "5", "--device-memory", "100KiB", status=3,
                     says=["weights in fp32", "keys and values", "--dtype bf16"])

    # ---- refusals

    def test_text_is_refused_where_the_model_does_not_read_bytes(self):
        folder = self.model_folder(vocab_size=300)
        self.refused("generate", folder, "--prompt", "x", says=["not known", "vocabulary has 300 ids", "--bytes", "--tokens"])
        self.succeeds("generate", folder, "--prompt", "x", "--bytes", "--max-tokens", 3)
        (self.folder / folder / "tokenizer.json").write_text("{}")
        self.refused("generate", folder, "--prompt", "x", says=["tokenizer.json", "AutoTokenizer", "--tokens"])

    def test_a_run_that_read_ids_reads_no_text_and_one_that_read_text_does(self):
        (self.folder / "ids.bin").write_bytes(struct.pack("<500H", *(i * i % 300 for i in range(500))))
        folder = self.model_folder(vocab_size=300)
        model = ["--model", folder, "--sequence-length", 16, "--batch-size", 1]
        runs = self.checkpoint("of-ids", model=[*model, "--data", "ids.bin"])
        self.refused("generate", runs, "--prompt", "x", says=["read token ids and no text"])
        runs = self.checkpoint("of-text", model=[*model, "--data", "data.txt"])
        tokens = json.loads(self.succeeds("generate", runs, "--prompt", "x", "--json", "--temperature", 9).stdout)
        self.assertLess(max(tokens["sequences"][0]["tokens"]), 256)  # of a vocabulary of 300

    def test_what_cannot_be_gone_on_from_is_refused(self):
        folder = self.model_folder()
        generate = ["generate", folder]
        self.refused(*generate, says=["--prompt TEXT", "--tokens"])
        self.refused(*generate, "--prompt", "x", "--tokens", "1", says=["several prompts"])
        self.refused(*generate, "--prompt", "", says=["prompt is empty"])
        self.refused(*generate, "--tokens", "1,256", says=["--tokens", "256", "255"])
        self.refused(*generate, "--tokens", "1,x", says=["--tokens", "\"x\""])
        self.refused(*generate, "--tokens", ",".join(["1"] * 65), says=["65 tokens", "64 positions"])
        self.refused(*generate, "--prompt-file", "data.txt", says=["data.txt", "64 positions"])
        self.refused(*generate, "--tokens", "1", "--temperature", "-1", says=["--temperature"])
        self.refused(*generate, "--tokens", "1", "--top-p", "0", says=["--top-p"])
        self.refused(*generate, "--tokens", "1", "--count", 2, "--logits", "x.npy", says=["--logits"])
        self.refused(*generate, "--tokens", "1", "--logits", "none/x.npy", says=["--logits none/x.npy cannot be written"])
        self.refused(*generate, "--tokens", "1", "--device", "cuda", says=["CUDA"])

    def test_what_holds_no_weights_is_refused_and_says_what_does(self):
        self.refused("generate", "nowhere", "--tokens", "1", says=["nowhere: there is no such folder"])
        self.refused("generate", "swap", "--tokens", "1", says=["swap holds no weights", "step-00001200", "config.json"])
        (self.folder / self.model_folder() / "model.safetensors").unlink()
        self.refused("generate", "model", "--tokens", "1", says=["a configuration and no weights"])

    def test_a_damaged_checkpoint_is_named_with_status_1(self):
        runs = self.checkpoint()
        shard = next((self.folder / runs / "step-00000006").glob("*.safetensors"))
        data = bytearray(shard.read_bytes())
        for place in range(len(data) // 4, len(data), 1000):  # masters are among what is hit
            data[place] ^= 1
        shard.write_bytes(data)
        self.refused("generate", runs, "--prompt", "x", status=1, says=[shard.name])

    def test_a_job_of_several_ranks_is_refused(self):
        result = self.run_program("generate", self.model_folder(), "--tokens", "1", prefix=PREFIX)
        self.assertEqual(result.returncode, 2)
        self.assertIn("generate runs in one process", result.stderr)


if __name__ == "__main__":
    unittest.main()
