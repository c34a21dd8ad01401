"""--model DIR: shape from config.json, weights from safetensors files, and what is refused before anything changes."""

import json
import struct
import unittest

from program import ON_NVME, ProgramTest

SHAPE = {"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 64}
SHORT = ["--sequence-length", 16, "--dtype", "fp32"]
RUN = ["--data", "data.txt", "--batch-size", 2, *SHORT]


def parameters(shape=SHAPE):
    """Name -> shape of the weights of a configuration, as transformers names them."""
    c = shape["n_embd"]
    result = {"wte.weight": [shape["vocab_size"], c], "wpe.weight": [shape["n_positions"], c], "ln_f.weight": [c], "ln_f.bias": [c]}
    for layer in range(shape["n_layer"]):
        block = {"ln_1.weight": [c], "ln_1.bias": [c], "attn.c_attn.weight": [c, 3 * c], "attn.c_attn.bias": [3 * c],
                 "attn.c_proj.weight": [c, c], "attn.c_proj.bias": [c], "ln_2.weight": [c], "ln_2.bias": [c],
                 "mlp.c_fc.weight": [c, 4 * c], "mlp.c_fc.bias": [4 * c], "mlp.c_proj.weight": [4 * c, c], "mlp.c_proj.bias": [c]}
        result |= {f"h.{layer}.{name}": dims for name, dims in block.items()}
    return {f"transformer.{name}": dims for name, dims in result.items()}


def product(numbers):
    result = 1
    for number in numbers:
        result *= number
    return result


class ModelFolder(ProgramTest):
    def folder_of(self, shape=SHAPE, tensors=None, name="model"):
        """A model folder; `tensors`: name -> shape, all 0.01."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(shape))
        if tensors is not None:
            header, data = {}, b""
            for tensor, dims in tensors.items():
                begin = len(data)
                data += struct.pack("<f", 0.01) * product(dims)
                header[tensor] = {"dtype": "F32", "shape": dims, "data_offsets": [begin, len(data)]}
            text = json.dumps(header).encode()
            (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
        return name

    def test_a_configuration_alone_starts_at_random_and_says_so(self):
        result = self.succeeds("train", "--model", self.folder_of(), *RUN, "--steps", 1, "--metrics", "m.jsonl")
        self.assertIn("at random: model holds a configuration and no weights", result.stderr)
        self.assertAlmostEqual(self.metrics("m.jsonl")[0]["loss"], 5.545, delta=0.3)  # ln 256

    def test_weights_are_read_and_their_files_named(self):
        folder = self.folder_of(tensors=parameters())
        result = self.succeeds("train", "--model", folder, *RUN, "--steps", 1, "--metrics", "m.jsonl")
        self.assertIn("from model (1 file, F32", result.stderr)
        # All rows of the table are one, so every byte is as likely as another.
        self.assertAlmostEqual(self.metrics("m.jsonl")[0]["loss"], 5.545177, places=5)

    def test_the_result_does_not_depend_on_ranks_stage_or_tier(self):
        folder = self.folder_of(tensors=parameters())

        def losses(*arguments, batch=2, prefix=()):
            self.succeeds("train", "--model", folder, "--data", "data.txt", *SHORT, "--batch-size", batch, "--steps", 2,
                          "--metrics", "m.jsonl", *arguments, prefix=prefix)
            return self.metrics("m.jsonl")[:2], self.metrics("m.jsonl")[-1]["state_hash"]

        plain, state = losses()
        self.assertEqual(losses("--stage", 3, "--offload-parameters", "cpu", "--offload-gradients", "cpu", *ON_NVME)[1], state)
        sharded, _ = losses("--stage", 3, batch=1, prefix=["mpirun", "-n", "2", "--oversubscribe"])
        for one, two in zip(plain, sharded):
            self.assertAlmostEqual(one["loss"], two["loss"], places=5)

    def test_all_differences_are_listed_and_nothing_is_made(self):
        tensors = parameters()
        del tensors["transformer.h.1.ln_2.bias"]
        tensors["transformer.wpe.weight"] = [65, 32]
        tensors["transformer.h.2.ln_1.weight"] = [32]
        folder = self.folder_of(tensors=tensors)
        self.refused("train", "--model", folder, *RUN, *ON_NVME, says=[
            "h.1.ln_2.bias is missing (32)", "transformer.wpe.weight is 65 x 32, where the model has 64 x 32",
            "transformer.h.2.ln_1.weight is not a parameter of the model"])
        self.assertEqual(list((self.folder / "swap").iterdir()), [])

    def test_damaged_files_are_refused_with_status_1(self):
        folder = self.folder_of(tensors=parameters())
        path = self.folder / folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        self.refused("train", "--model", folder, *RUN, status=1, says=["model.safetensors is not a sound safetensors file"])

    def test_what_the_native_model_cannot_do_is_refused_by_key(self):
        for key, value in (("scale_attn_by_inverse_layer_idx", True), ("activation_function", "relu"), ("reorder_and_upcast_attn", True)):
            folder = self.folder_of(SHAPE | {key: value})
            for command in ("train", "plan"):
                arguments = RUN if command == "train" else []
                self.refused(command, "--model", folder, *arguments, says=["config.json", f'"{key}"'])

    def test_a_vocabulary_smaller_than_bytes_is_refused(self):
        self.refused("train", "--model", self.folder_of(SHAPE | {"vocab_size": 255}), *RUN, says=["vocabulary is 255", "token ids"])

    def test_token_ids_are_read_and_those_of_another_vocabulary_named(self):
        folder = self.folder_of(tensors=parameters())
        ids = [i * i % 256 for i in range(500)]
        (self.folder / "ids.bin").write_bytes(struct.pack("<256i", 20240520, 1, len(ids), *[0] * 253) + struct.pack(f"<{len(ids)}H", *ids))
        run = ["--model", folder, *SHORT, "--data", "ids.bin", "--batch-size", 2, "--steps", 1]
        result = self.succeeds("train", *run)
        self.assertIn("500 token ids", result.stderr)
        self.assertIn("nats a token", result.stdout)
        (self.folder / "ids.bin").write_bytes(struct.pack("<3H", 1, 2, 256) * 20)
        self.refused("train", *run, says=["token 2 (byte 4) is 256", "vocabulary has 256 ids"])

    def test_every_tensor_of_an_export_has_the_type_that_was_asked_for(self):
        self.succeeds("train", "--model", self.folder_of(), "--data", "data.txt", "--batch-size", 2, "--sequence-length", 16, "--steps", 1,
                      "--checkpoint-dir", "saved", "--quiet")
        for asked, dtype in ((None, "BF16"), ("fp32", "F32"), ("bf16", "BF16"), ("fp16", "F16")):
            folder = f"exported-{asked}"
            self.succeeds("export", "saved/step-00000001", "--to", folder, *(["--dtype", asked] if asked else []))
            data = (self.folder / folder / "model.safetensors").read_bytes()
            header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
            self.assertEqual({dtype}, {tensor["dtype"] for name, tensor in header.items() if name != "__metadata__"})

    def test_plan_takes_the_shape_from_the_configuration(self):
        result = self.succeeds("plan", "--model", self.folder_of(), "--sequence-length", 16)
        self.assertIn(f"model: {sum(map(product, parameters().values()))} parameters", result.stdout)
        self.refused("plan", "--model", "./none", says=["./none is no model's folder", "config.json", "gpt2-mini"])
        self.refused("plan", "--model", "gpt2-mino", says=["gpt2-mini"])

    def test_a_preset_is_meant_before_a_folder_of_its_name(self):
        self.folder_of(name="gpt2-nano")
        self.assertIn("gpt2-nano: 124", self.succeeds("plan", "--model", "gpt2-nano").stdout)
        self.assertIn("./gpt2-nano: 35", self.succeeds("plan", "--model", "./gpt2-nano", "--sequence-length", 16).stdout)

    def test_a_run_goes_on_without_the_files_and_not_as_another_model(self):
        folder = self.folder_of(tensors=parameters())
        self.succeeds("train", "--model", folder, *RUN, *ON_NVME, "--steps", 1)
        (self.folder / folder / "model.safetensors").unlink()
        self.succeeds("train", "--model", folder, *RUN, *ON_NVME, "--steps", 2, "--resume", "swap")
        self.folder_of(SHAPE | {"n_head": 2})
        result = self.run_program("train", "--model", folder, *RUN, *ON_NVME, "--steps", 3, "--resume", "swap")
        self.assertEqual(result.returncode, 2)
        self.assertIn("of another model: heads 2 (was 4)", result.stderr)


if __name__ == "__main__":
    unittest.main()
