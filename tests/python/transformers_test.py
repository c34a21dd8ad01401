"""Model folders between headrace and transformers, in both directions: names, orientation, tied tables, shards, types; equal
losses, logits and likeliest tokens.

    transformers_test.py HEADRACE MAKE_MODEL

Skipped (77) without torch and transformers; HEADRACE_TORCH_PYTHON names an interpreter that has them.
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy
    import torch
    import transformers
except ImportError:
    other = os.environ.get("HEADRACE_TORCH_PYTHON")
    if other and os.path.realpath(other) != os.path.realpath(sys.executable):
        os.environ["HEADRACE_TORCH_PYTHON"] = ""
        os.execv(other, [other, "-B", *sys.argv])
    print("skipped: torch and transformers are not installed (HEADRACE_TORCH_PYTHON may name a Python that has them)")
    sys.exit(77)

HEADRACE, MAKE_MODEL = sys.argv[1:3]
MASK = (1 << 64) - 1
SEQUENCE, BATCH = 24, 3
TEXT = "".join(f"line {i * i} of some text, \u00e9\n" for i in range(300)).encode()


def splitmix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def first_batch(seed=0):
    """The samples of headrace's first step."""
    starts = [splitmix64((splitmix64(seed) + i) & MASK) % (len(TEXT) - SEQUENCE) for i in range(BATCH)]
    return torch.tensor([list(TEXT[s:s + SEQUENCE + 1]) for s in starts])


def loss_of(model):
    tokens = first_batch()
    with torch.no_grad():
        logits = model.float().eval()(tokens[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)).item()


def random_model(**keys):
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=300, n_positions=64, n_embd=48, n_layer=3, n_head=4, bos_token_id=0,
                                     eos_token_id=0, initializer_range=0.2, **keys)
    model = transformers.GPT2LMHeadModel(config)
    with torch.no_grad():  # biases and norms start as constants, which tell nothing of where they go
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn_like(parameter)
    return model


class Folders(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="headrace-transformers-")
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        (self.root / "data.txt").write_bytes(TEXT)

    def first_loss(self, folder):
        """Of the program's first step with the folder's weights."""
        metrics = self.root / "metrics.jsonl"
        result = subprocess.run(
            [HEADRACE, "train", "--model", str(folder), "--data", "data.txt", "--dtype", "fp32", "--steps", "1", "--batch-size",
             str(BATCH), "--sequence-length", str(SEQUENCE), "--metrics", str(metrics)],
            cwd=self.root, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(metrics.read_text().splitlines()[0])["loss"]

    def generate(self, weights, prompt, *options):
        result = subprocess.run([HEADRACE, "generate", str(weights), "--tokens", ",".join(map(str, prompt)), "--dtype", "fp32",
                                 "--temperature", "0", *options],
                                cwd=self.root, capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def expect_same_logits(self, weights, model):
        """At every position within 1e-4."""
        for sample in first_batch()[:2, :-1]:
            self.generate(weights, sample.tolist(), "--max-tokens", "0", "--logits", "logits.npy")
            with torch.no_grad():
                expected = model.float().eval()(sample[None]).logits[0].numpy()
            ours = numpy.load(self.root / "logits.npy")
            self.assertEqual(ours.shape, expected.shape)
            self.assertLess(numpy.abs(ours - expected).max(), 1e-4)

    def expect_same_tokens(self, weights, model):
        """Of the likeliest, to the end token or the last position."""
        prompt = first_batch()[0, :7]
        expected = model.float().eval().generate(prompt[None], attention_mask=torch.ones(1, 7, dtype=torch.long), max_new_tokens=57,
                                                 do_sample=False, pad_token_id=model.config.eos_token_id or 0)[0, 7:]
        ours = self.generate(weights, prompt.tolist(), "--max-tokens", "57")
        self.assertEqual([int(word) for word in ours.split(",")], expected.tolist())

    def expect_same(self, folder, model):
        expected = loss_of(model)
        self.assertLess(abs(self.first_loss(folder) - expected), 1e-4 * expected)
        self.expect_same_logits(folder, model)
        self.expect_same_tokens(folder, model)


class FromTransformers(Folders):
    def save(self, model, **options):
        folder = self.root / "saved"
        model.save_pretrained(folder, **options)
        return folder

    def test_a_saved_model_has_the_same_loss_logits_and_likeliest_tokens(self):
        model = random_model()
        self.expect_same(self.save(model), model)

    def test_so_has_one_in_shards(self):
        model = random_model()
        folder = self.save(model, max_shard_size="100KB")
        self.assertGreater(len(list(folder.glob("*.safetensors"))), 2)
        self.expect_same(folder, model)

    def test_so_has_one_whose_head_is_not_tied(self):
        model = random_model(tie_word_embeddings=False)
        self.expect_same(self.save(model), model)

    def test_so_have_files_of_16_bits(self):
        for dtype in (torch.float16, torch.bfloat16):
            with self.subTest(dtype=dtype):
                model = random_model().to(dtype)
                self.expect_same(self.save(model), model)

    def test_so_has_the_decoder_alone_without_the_prefix_of_its_names(self):
        model = random_model()
        self.expect_same(self.save(model.transformer), model)


class LlamaFromTransformers(FromTransformers):
    def random(self, **keys):
        torch.manual_seed(2)
        config = transformers.LlamaConfig(**{"vocab_size": 300, "max_position_embeddings": 64, "hidden_size": 64,
                                             "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
                                             "num_key_value_heads": 2, "rope_theta": 5000.0, "rms_norm_eps": 1e-5,
                                             "initializer_range": 0.2, **keys})
        model = transformers.LlamaForCausalLM(config)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter += 0.3 * torch.randn_like(parameter)
        return model

    def test_a_saved_model_has_the_same_loss_logits_and_likeliest_tokens(self):
        for keys in ({}, {"tie_word_embeddings": True}, {"num_key_value_heads": 4}, {"num_key_value_heads": 1, "head_dim": 32}):
            with self.subTest(**keys):
                model = self.random(**keys)
                self.expect_same(self.save(model), model)

    def test_so_has_one_in_shards(self):
        model = self.random()
        self.expect_same(self.save(model, max_shard_size="100KB"), model)

    def test_so_have_files_of_16_bits(self):
        folder = self.save(self.random().to(torch.bfloat16))
        # Opened again: `.to` has rounded the rotary frequencies of the module too, which are in no file.
        self.expect_same(folder, transformers.LlamaForCausalLM.from_pretrained(folder))

    def test_so_has_the_decoder_alone_without_the_prefix_of_its_names(self):
        model = self.random(tie_word_embeddings=True)
        self.expect_same(self.save(model.model), model)

    def test_so_has_one_whose_head_is_not_tied(self):
        model = self.random(tie_word_embeddings=False)
        self.expect_same(self.save(model), model)


class ToTransformers(Folders):
    family, table = "gpt2", "transformer.wte.weight"

    def exported(self, dtype="fp32", shard_bytes=5_000_000_000, tied="tied"):
        folder = self.root / f"exported-{dtype}-{shard_bytes}-{tied}"
        subprocess.run([MAKE_MODEL, self.family, folder, dtype, str(shard_bytes), tied], check=True)
        return folder

    def opened(self, folder):
        model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            self.assertEqual(list(report[kind]), [], kind)
        return model

    def test_every_export_loads_with_nothing_missing_or_unexpected_and_has_the_same_logits(self):
        for options in ({}, {"shard_bytes": 20_000}, {"tied": "untied"}, {"dtype": "bf16"},
                        {"dtype": "fp16", "shard_bytes": 20_000, "tied": "untied"}):
            with self.subTest(**options):
                folder = self.exported(**options)
                self.expect_same(folder, self.opened(folder))

    def test_a_tied_table_is_stored_once_and_shared_when_loaded(self):
        model = self.opened(self.exported())
        self.assertEqual(model.lm_head.weight.data_ptr(), model.get_input_embeddings().weight.data_ptr())
        model = self.opened(self.exported(tied="untied"))
        self.assertNotEqual(model.lm_head.weight.data_ptr(), model.get_input_embeddings().weight.data_ptr())

    def test_the_file_fills_a_module_with_strict(self):
        import safetensors.torch
        for tied in ("tied", "untied"):
            tensors = safetensors.torch.load_file(self.exported(tied=tied) / "model.safetensors")
            config = transformers.AutoConfig.from_pretrained(self.exported_folder(tied))
            model = transformers.AutoModelForCausalLM.from_config(config)
            if tied == "tied":
                tensors["lm_head.weight"] = tensors[self.table]
            model.load_state_dict(tensors, strict=True)

    def exported_folder(self, tied):
        return self.root / f"exported-fp32-5000000000-{tied}"

    def test_transformers_writes_back_the_same_tensors(self):
        import safetensors.torch
        folder, again = self.exported(), self.root / "again"
        self.opened(folder).save_pretrained(again)
        ours, theirs = (safetensors.torch.load_file(f / "model.safetensors") for f in (folder, again))
        self.assertEqual(set(ours), set(theirs))
        for name in ours:
            self.assertTrue(torch.equal(ours[name], theirs[name]), name)

    def test_data_begin_aligned(self):
        with open(self.exported() / "model.safetensors", "rb") as file:
            self.assertEqual(struct.unpack("<Q", file.read(8))[0] % 8, 0)

    def test_so_has_an_export_of_a_trained_checkpoint_whose_own_logits_are_the_same(self):
        subprocess.run([HEADRACE, "train", "--model", f"{self.family}-nano", "--data", "data.txt", "--steps", "5", "--batch-size", "2",
                        "--sequence-length", "32", "--learning-rate", "1e-2", "--checkpoint-dir", "runs"],
                       cwd=self.root, check=True, capture_output=True)
        checkpoint, folder = self.root / "runs" / "step-00000005", self.root / "of-the-run"
        subprocess.run([HEADRACE, "export", checkpoint, "--to", folder, "--dtype", "fp32"], check=True, capture_output=True)
        model = self.opened(folder)
        self.expect_same_logits(checkpoint, model)
        self.expect_same(folder, model)


class LlamaToTransformers(ToTransformers):
    family, table = "llama", "model.embed_tokens.weight"


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
