"""headrace.initialize and the engine that it returns."""

import atexit
import contextlib
import json
import os
import weakref

import torch
from torch import nn

from . import _headrace
from ._building import Values
from ._hooks import Hooks
from ._optimizer import Optimizer
from ._parameters import NAMES, Unit, gathered
from ._units import cut

_living = weakref.WeakSet()


@atexit.register
def _close_all():
    for engine in list(_living):
        engine.close()


DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}  # torch.optim.AdamW's


def initialize(model, config=None, param_groups=None, unit_classes=None):
    """An engine over a PyTorch model, whose parameters become the engine's.

    config        a dict or the path of a JSON file: DeepSpeed's keys, and a section "headrace"
    param_groups  as torch.optim.AdamW takes them: dicts of "params", and "lr", "betas", "eps", "weight_decay"
    unit_classes  the modules that are gathered and released as wholes; without it the blocks that the model repeats
    """
    return Engine(model, config, param_groups, unit_classes)


def _read(config):
    if config is None:
        return {}, "config"
    if isinstance(config, dict):
        return json.loads(json.dumps(config)), "config"
    with open(os.fspath(config), encoding="utf-8") as file:
        return json.load(file), os.fspath(config)


def _dtype_of(units):
    dtypes = {part.parameter.dtype for unit in units for part in unit.parts}
    if len(dtypes) != 1 or next(iter(dtypes)) not in NAMES:
        raise ValueError(f"the model's parameters are of {', '.join(sorted(str(d) for d in dtypes))}: say which one to train in, by "
                         '{"bf16": {"enabled": true}} or {"headrace": {"dtype": "fp32"}}.')
    return NAMES[next(iter(dtypes))]


class Engine(nn.Module):
    """Calls the model; backward and step train it. Made by headrace.initialize."""

    def __init__(self, model, config=None, param_groups=None, unit_classes=None):
        super().__init__()
        self.module = model
        parts, sites = cut(model, unit_classes)
        if not parts:
            raise ValueError("the model has no parameter that is trained (requires_grad).")
        config, origin = _read(config)
        native = config.setdefault("headrace", {})
        if not any(config.get(key, {}).get("enabled") for key in ("bf16", "bfloat16", "fp16")):
            native.setdefault("dtype", _dtype_of(parts))
        scheduled = "scheduler" in config or "schedule" in native
        if not scheduled:
            native["schedule"], native["warmup_steps"] = "constant", 0
        groups = self._groups(parts, param_groups, config, native)
        specs = [self._spec(unit) for unit in parts]
        draft = _headrace.ConfigDraft()
        draft.read_text(json.dumps(config), origin)
        launch = _headrace.launch_info()
        self._session = _headrace.ModuleSession(draft, specs, launch, self._exchange(launch))
        options = self._session.options
        self.notes = list(options.notes)
        offload = options.engine.stage == 3
        self._units = [Unit(self._session, index, unit.parts, offload) for index, unit in enumerate(parts)]
        self._initialise(parts)
        for unit in self._units:  # what is not offloaded stays where it is from here on
            unit.acquire()
            unit.release()
        self._hooks = Hooks(self._session, model, self._units, sites)
        self.optimizer = Optimizer(self, groups, dict(DEFAULTS, lr=options.schedule.peak))
        self._scheduled = scheduled
        self._micro_batches = 0
        self._result = None
        self._closed = False
        _living.add(self)

    @staticmethod
    def _exchange(launch):
        if launch.launcher != "torchrun" or launch.size == 1:
            return None
        from ._distributed import exchange_over_torch

        return exchange_over_torch()

    def _groups(self, parts, given, config, native):
        """Groups for PyTorch, and as the engine's configuration says them."""
        names = {id(part.parameter): part.name for unit in parts for part in unit.parts}
        parameters = {id(part.parameter): part.parameter for unit in parts for part in unit.parts}
        defaults = dict(DEFAULTS)
        if "optimizer" in config:
            chosen = config["optimizer"].get("params", {})
            for key, default in defaults.items():
                value = chosen.get(key, 0.0 if key == "weight_decay" else default)
                defaults[key] = default if value == "auto" else value
        else:
            config["optimizer"] = {"type": "AdamW", "params": {key: defaults[key] for key in ("lr", "betas", "eps", "weight_decay")}}
        if given is None:
            given = [{"params": list(parameters.values())}]
        groups, sections = [], []
        for group in given:
            group = dict(group)
            members = group["params"]
            members = [members] if isinstance(members, torch.Tensor) else list(members)
            unknown = set(group) - {"params", *defaults}
            if unknown:
                raise ValueError(f"param_groups have {', '.join(sorted(unknown))}, which is not one of {', '.join(defaults)}.")
            group = {**defaults, **group, "params": [member for member in members if member.requires_grad]}
            group["betas"] = tuple(group["betas"])
            missing = [member for member in group["params"] if id(member) not in names]
            if missing:
                raise ValueError("param_groups have a parameter that is not the model's.")
            if not group["params"]:
                continue
            groups.append(group)
            sections.append({"parameters": [names[id(member)] for member in group["params"]], "betas": list(group["betas"]),
                             "eps": group["eps"], "weight_decay": group["weight_decay"]})  # fmt: skip
        grouped = {id(member) for group in groups for member in group["params"]}
        left_out = [name for identity, name in names.items() if identity not in grouped]
        if left_out:
            raise ValueError(f"param_groups leave out {', '.join(left_out[:3])}{' and others' if len(left_out) > 3 else ''}. Name every "
                             "parameter that is trained, or set requires_grad to False.")
        native["parameter_groups"] = sections
        return groups

    @staticmethod
    def _spec(unit):
        return _headrace.UnitSpec(unit.name, [_headrace.ParameterSpec(part.name, list(part.parameter.shape)) for part in unit.parts])

    def _initialise(self, parts):
        values = Values(self.module, parts, self._session.options.engine.seed)

        def fill(name, first, out):
            out = torch.from_dlpack(out)
            out.copy_(values.of(name).reshape(-1)[first : first + out.numel()])

        self._session.initialise(fill)
        for unit in parts:
            for part in unit.parts:
                part.parameter._headrace_unmade = False

    def forward(self, *arguments, **keywords):
        return self.module(*arguments, **keywords)

    def backward(self, loss):
        """Backward of the loss, divided by the number of micro-batches of a step."""
        (loss * (self._session.state.loss_scale.scale / self.gradient_accumulation_steps)).backward()
        self._micro_batches += 1

    def step(self):
        """The optimizer's step, at the last micro-batch of one; before it, nothing."""
        if self._micro_batches % self.gradient_accumulation_steps == 0:
            self.optimizer.step()

    def _apply(self, rates):
        if self._scheduled:
            schedule = self._session.options.schedule
            counted = self._session.steps_applied() if schedule.of_deepspeed else self._session.state.iteration
            rate = _headrace.learning_rate(schedule, counted)
            rates = [rate] * len(rates)
            for group in self.optimizer.param_groups:
                group["lr"] = rate
        self._hooks.settle()
        self._hooks.forget_pending()
        self._result = self._session.step([rates[0], *rates])  # group 0 is that of parameters that are in none

    @property
    def gradient_accumulation_steps(self):
        return self._session.options.engine.accumulation

    @property
    def last_grad_norm(self):
        """Of the last step's gradient, before clipping."""
        return None if self._result is None else self._result.gradient_norm

    @property
    def step_was_skipped(self):
        return self._result is not None and self._result.skipped

    @property
    def global_steps(self):
        return self._session.steps_applied()

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients of every micro-batch are reduced as they come; this changes nothing."""
        yield

    def state_hash(self):
        """Proves states equal: the same for every stage and placement."""
        return self._session.state_hash()

    def memory_plan(self):
        """What the engine takes of each tier, as text."""
        return self._session.plan.ledger()

    def full_state_dict(self, dtype=None):
        """Whole parameters, and buffers, in host memory. On every rank of a job together."""
        state = {}
        owners = {}
        for name, parameter in self.module.named_parameters(remove_duplicate=False):
            unit = getattr(parameter, "_headrace_unit", None)
            if unit is None:
                state[name] = parameter.detach().cpu().clone()
            else:
                owners.setdefault(unit.index, []).append((name, parameter))
        for index, named in owners.items():
            with gathered([named[0][1]]):
                copies = {}
                for name, parameter in named:
                    if id(parameter) not in copies:
                        copies[id(parameter)] = parameter.detach().to(dtype or parameter.dtype).cpu().clone()
                    state[name] = copies[id(parameter)]
        return {name: state.get(name, value) for name, value in self.module.state_dict(keep_vars=True).items()}

    def save_pretrained(self, directory, **keywords):
        """A `transformers` model as its own save_pretrained writes it."""
        if not hasattr(self.module, "save_pretrained"):
            raise ValueError("the model has no save_pretrained: it is none of transformers'. Take full_state_dict().")
        self.module.save_pretrained(directory, state_dict=self.full_state_dict(), **keywords)

    def close(self):
        """Gives everything back. The model's parameters are released for good."""
        if self._closed:
            return
        self._closed = True
        self._hooks.close()
        self._session.close()
        self._units = []
