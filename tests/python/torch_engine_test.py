"""The PyTorch front end against plain PyTorch: the same model, the same batches, torch.optim.AdamW.

    PYTHONPATH=build/release/python python3 tests/python/torch_engine_test.py

Skipped where torch or transformers is missing.
"""
import copy
import gc
import math
import sys
import tempfile
import unittest

try:
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

import headrace
from headrace._parameters import Released

torch.set_num_threads(2)
VOCABULARY, SEQUENCE = 61, 16
PLAIN = {"gradient_clipping": 0.0, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}}}


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=SEQUENCE, n_embd=32, n_layer=3, n_head=4,
                                                                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0))  # fmt: skip


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48,
                                                                  num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2))  # fmt: skip


def batches(count, size=2):
    """Four of them, over and over: something to learn."""
    generator = torch.Generator().manual_seed(1)
    all_ids = [torch.randint(0, VOCABULARY, (size, SEQUENCE), generator=generator) for _ in range(4)]
    for number in range(count):
        ids = all_ids[number % 4]
        yield {"input_ids": ids, "labels": ids}


def plain_losses(model, steps, checkpointing=False, accumulation=1, clip=0.0):
    model = copy.deepcopy(model)
    if checkpointing:
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    losses = []
    for number, batch in enumerate(batches(steps * accumulation)):
        loss = model(**batch).loss
        (loss / accumulation).backward()
        losses.append(loss.item())
        if (number + 1) % accumulation == 0:
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()
    return losses


def train_steps(engine, micro_batches):
    """The losses of that many, each with its backward and, where it is the last of a step, the step."""
    losses = []
    for batch in batches(micro_batches):
        loss = engine(**batch).loss
        losses.append(loss.item())
        engine.backward(loss)
        engine.step()
    return losses


def placements():
    for stage in (0, 1, 2, 3):
        yield {"stage": stage}
    yield {"stage": 1, "offload_optimizer": {"device": "cpu"}}
    yield {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    yield {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "cpu"}}
    yield {"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "nvme"}}


class TorchEngine(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def config(self, zero=None, **more):
        config = copy.deepcopy(PLAIN) | more
        config["zero_optimization"] = copy.deepcopy(zero or {})
        for key in ("offload_optimizer", "offload_param"):
            section = config["zero_optimization"].get(key)
            if section and section["device"] == "nvme":
                section["nvme_path"] = self.folder.name
                config["headrace"] = dict(config.get("headrace", {}), overwrite_swap=True)
        return config

    def train(self, model, steps, config, accumulation=1, prepare=lambda model: None):
        engine = headrace.initialize(copy.deepcopy(model), config)
        prepare(engine.module)
        losses = train_steps(engine, steps * accumulation)
        digest = engine.state_hash()
        engine.close()
        return losses, digest

    def assert_close(self, ours, plain):
        self.assertEqual(len(ours), len(plain))
        for step, (a, b) in enumerate(zip(ours, plain)):
            self.assertLessEqual(abs(a - b), 1e-5 * abs(b), f"loss {step}: {a} and {b}")

    def test_losses_are_those_of_adamw(self):
        for make in (gpt2, llama):
            model = make()
            plain = plain_losses(model, 50)
            self.assertLess(plain[-1], plain[0] - 0.1)
            ours, _ = self.train(model, 50, self.config({"stage": 3}))
            self.assert_close(ours, plain)

    def test_states_are_the_same_bit_by_bit_whatever_the_placement(self):
        for make in (gpt2, llama):
            digests = {str(zero): self.train(make(), 4, self.config(zero))[1] for zero in placements()}
            self.assertEqual(len(set(digests.values())), 1, digests)

    def test_checkpointed_activations_change_nothing(self):
        model = llama()
        plain = plain_losses(model, 6)
        for reentrant in (False, True):
            def prepare(module, reentrant=reentrant):
                module.train()
                module.gradient_checkpointing_enable({"use_reentrant": reentrant})
                module.enable_input_require_grads() if reentrant else None
            ours, _ = self.train(model, 6, self.config({"stage": 3}), prepare=prepare)
            self.assert_close(ours, plain)

    def test_checkpointed_activations_hold_few_gradients_at_once(self):
        for checkpointing in (None, False, True):
            engine = headrace.initialize(llama(), self.config({"stage": 3}))
            engine.module.train()
            if checkpointing is not None:
                engine.module.gradient_checkpointing_enable({"use_reentrant": checkpointing})
                engine.module.enable_input_require_grads()
            most = []
            for unit in engine._units:
                hand_over = unit.hand_over_gradients

                def counted(hand_over=hand_over):
                    most.append(sum(p.grad is not None for other in engine._units for p in other.parameters))
                    hand_over()

                unit.hand_over_gradients = counted
            for batch in batches(2):
                engine.backward(engine(**batch).loss)
                engine.step()
            blocks = max(len(unit.parameters) for unit in engine._units)
            self.assertLessEqual(max(most), blocks + 2, f"reentrant checkpointing: {checkpointing}")
            engine.close()

    def test_a_part_of_the_model_that_is_called_alone_trains_as_in_plain_pytorch(self):
        model = gpt2()
        reference = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-3, weight_decay=0.01)
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        losses = ([], [])
        for which, (net, stepper) in enumerate(((reference, optimizer), (engine.module, engine.optimizer))):
            for batch in batches(4):
                hidden = net.transformer(batch["input_ids"]).last_hidden_state
                loss = hidden.square().mean() + hidden.mean()
                loss.backward()
                stepper.step()
                stepper.zero_grad()
                losses[which].append(loss.item())
        engine.close()
        self.assert_close(losses[1], losses[0])

    def test_micro_batches_are_averaged_and_the_norm_is_clipped(self):
        model = gpt2()
        plain = plain_losses(model, 6, accumulation=3, clip=0.5)
        for zero in ({"stage": 3}, {"stage": 1}):
            ours, _ = self.train(model, 6, self.config(zero, gradient_accumulation_steps=3, gradient_clipping=0.5), accumulation=3)
            self.assert_close(ours, plain)

    def test_the_plain_loop_with_the_optimizer_and_a_scheduler(self):
        model = gpt2()
        reference = copy.deepcopy(model)
        optimizer = torch.optim.AdamW(reference.parameters(), lr=1e-3, weight_decay=0.01)
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        self.assertIsInstance(engine.optimizer, torch.optim.Optimizer)
        losses = ([], [])
        for which, (net, stepper) in enumerate(((reference, optimizer), (engine, engine.optimizer))):
            scheduler = torch.optim.lr_scheduler.LambdaLR(stepper, lambda step: 1 / (1 + step))
            for batch in batches(8):
                loss = net(**batch).loss
                loss.backward()
                stepper.step()
                stepper.zero_grad()
                scheduler.step()
                losses[which].append(loss.item())
        engine.close()
        self.assert_close(losses[1], losses[0])

    def test_parameter_groups(self):
        model = gpt2()
        reference, ours = copy.deepcopy(model), copy.deepcopy(model)

        def groups(of):
            decayed = [p for p in of.parameters() if p.ndim > 1]
            return [{"params": decayed, "weight_decay": 0.3, "lr": 2e-3}, {"params": [p for p in of.parameters() if p.ndim <= 1], "betas": (0.8, 0.9)}]

        optimizer = torch.optim.AdamW(groups(reference), lr=1e-3, weight_decay=0.01)
        engine = headrace.initialize(ours, self.config({"stage": 3}), param_groups=groups(ours))
        for batch in batches(6):
            plain = reference(**batch).loss
            plain.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss = engine(**batch).loss
            engine.backward(loss)
            engine.step()
            self.assert_close([loss.item()], [plain.item()])
        engine.close()

    def test_frozen_parameters_stay_and_the_rest_trains(self):
        model = llama()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(".mlp." in name)
        plain = plain_losses(model, 6)
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        losses = train_steps(engine, 6)
        self.assert_close(losses, plain)
        state = engine.full_state_dict()
        self.assertTrue(torch.equal(state["lm_head.weight"], model.lm_head.weight))
        engine.close()

    def test_a_released_parameter_keeps_its_shape_and_says_what_it_is(self):
        engine = headrace.initialize(gpt2(), self.config({"stage": 3}))
        weight = engine.module.transformer.h[0].attn.c_attn.weight
        self.assertEqual(tuple(weight.shape), (32, 96))
        self.assertEqual(weight.dtype, torch.float32)
        self.assertTrue(weight.requires_grad)
        self.assertEqual(sum(p.numel() for p in engine.module.parameters()), sum(p.numel() for p in gpt2().parameters()))
        with self.assertRaisesRegex(RuntimeError, r"h\.0\.attn\.c_attn\.weight is not on the device.*\n.*headrace\.gathered"):
            weight.sum()
        with headrace.gathered([weight]):
            self.assertTrue(torch.equal(weight, gpt2().transformer.h[0].attn.c_attn.weight))
        with self.assertRaises(RuntimeError):
            weight + 1
        engine.close()

    def test_whole_weights_come_out_as_transformers_has_them(self):
        model = gpt2()
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        for batch in batches(2):
            engine.backward(engine(**batch).loss)
            engine.step()
        engine.save_pretrained(self.folder.name)
        again = transformers.GPT2LMHeadModel.from_pretrained(self.folder.name)
        batch = next(batches(1))
        with torch.no_grad():
            self.assertTrue(torch.equal(again(**batch).logits, engine(**batch).logits))
        engine.close()

    def test_an_exception_inside_forward_leaves_a_usable_engine(self):
        model = gpt2()
        plain = plain_losses(model, 4)
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        losses = []

        class Stop(Exception):
            pass

        def raise_it(*_):
            raise Stop

        for batch in batches(4):
            for module in (engine.module.transformer.h[1].mlp, engine.module.transformer.h[2]):
                handle = module.register_forward_hook(raise_it)
                with self.assertRaises(Stop):
                    engine(**batch)
                handle.remove()
            loss = engine(**batch).loss
            losses.append(loss.item())
            engine.backward(loss)
            engine.step()
        engine.close()
        self.assert_close(losses, plain)

    def test_evaluation_between_steps_changes_nothing(self):
        model = llama()
        plain = plain_losses(model, 4)
        engine = headrace.initialize(copy.deepcopy(model), self.config({"stage": 3}))
        losses = []
        for batch in batches(4):
            engine.eval()
            with torch.no_grad():
                engine(**batch)
            engine.train()
            loss = engine(**batch).loss
            losses.append(loss.item())
            engine.backward(loss)
            engine.step()
            self.assertTrue(math.isfinite(engine.last_grad_norm))
            self.assertFalse(engine.step_was_skipped)
        engine.close()
        self.assert_close(losses, plain)

    def test_unknown_keys_and_settings_of_the_trainer_are_refused_by_name(self):
        for config, said in (({"zero_optimisation": {}}, "zero_optimi[sz]ation"), ({"headrace": {"data": "x"}}, "data"),
                             ({"zero_optimization": {"stage": 4}}, "stage")):  # fmt: skip
            with self.assertRaisesRegex(ValueError, said):
                headrace.initialize(gpt2(), config)

    def test_models_made_without_weights_get_them_unit_by_unit(self):
        for make in (gpt2, llama):
            with headrace.init():
                model = make()
            self.assertTrue(all(isinstance(p, Released) for p in model.parameters()))
            self.assertEqual([tuple(p.shape) for p in model.parameters()], [tuple(p.shape) for p in make().parameters()])
            digests = []
            for stage in (1, 3):
                with headrace.init():
                    model = make()
                engine = headrace.initialize(model, self.config({"stage": stage}))
                state = engine.full_state_dict()
                for name, value in make().state_dict().items():  # as the model initialises itself: about the same spread
                    self.assertAlmostEqual(value.float().std(correction=0).item(), state[name].float().std(correction=0).item(), delta=0.004, msg=name)
                for batch in batches(2):
                    engine.backward(engine(**batch).loss)
                    engine.step()
                digests.append(engine.state_hash())
                engine.close()
            self.assertEqual(digests[0], digests[1])

    def test_weights_are_read_from_files_as_transformers_reads_them(self):
        for make in (gpt2, llama):
            model = make()
            model.save_pretrained(self.folder.name, max_shard_size="20kB")
            plain = plain_losses(model, 3)
            ours, _ = self.train_loaded(type(model), 3)
            self.assert_close(ours, plain)

    def train_loaded(self, cls, steps):
        engine = headrace.initialize(headrace.from_pretrained(cls, self.folder.name), self.config({"stage": 3}))
        losses = train_steps(engine, steps)
        digest = engine.state_hash()
        engine.close()
        return losses, digest

    def test_engines_come_and_go_without_a_trace(self):
        def resident():
            with open("/proc/self/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096

        def threads():
            import os

            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        seen = []
        for number in range(30):
            engine = headrace.initialize(gpt2(), self.config({"stage": 3, "offload_optimizer": {"device": "nvme"}}))
            for batch in batches(1):
                engine.backward(engine(**batch).loss)
                engine.step()
            engine.close()
            del engine
            gc.collect()
            if number in (9, 29):
                seen.append((threads(), resident()))
        self.assertEqual(seen[0][0], seen[1][0])
        self.assertLess(seen[1][1] - seen[0][1], 8 << 20)


if __name__ == "__main__":
    unittest.main()
