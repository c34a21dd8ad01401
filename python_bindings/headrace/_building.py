"""Models that are made without their weights: headrace.init and headrace.from_pretrained.

Inside headrace.init a parameter has its shape and no memory. Its values are made when the engine takes them, unit by unit: as its
modules initialise themselves, or read from safetensors files.
"""

import contextlib
import json
import os
import threading

import torch
from torch import nn

from ._parameters import Released, place_nothing, take_memory

_register_parameter = nn.Module.register_parameter
_building = threading.local()


def _register(self, name, parameter):
    _register_parameter(self, name, parameter)
    if parameter is not None and type(parameter) is nn.Parameter and getattr(_building, "depth", 0) > 0:
        parameter._headrace_name, parameter._headrace_unmade = name, True
        place_nothing(parameter)


@contextlib.contextmanager
def init():
    """Parameters of modules that are made inside have no memory until headrace.initialize makes them."""
    _building.depth = getattr(_building, "depth", 0) + 1
    nn.Module.register_parameter = _register
    Released._building += 1
    try:
        yield
    finally:
        _building.depth -= 1
        Released._building -= 1
        if Released._building == 0:
            nn.Module.register_parameter = _register_parameter


def from_pretrained(cls, directory, **keywords):
    """A `transformers` model of this class whose weights are read from the directory's safetensors files by headrace.initialize."""
    config = cls.config_class.from_pretrained(directory, **keywords)
    with init():
        model = cls(config)
    model._headrace_source = Safetensors(directory, model)
    return model


class Safetensors:
    """Weights by a model's names, one tensor at a time."""

    def __init__(self, directory, model):
        from safetensors import safe_open

        directory = os.fspath(directory)
        index = os.path.join(directory, "model.safetensors.index.json")
        if os.path.exists(index):
            with open(index, encoding="utf-8") as file:
                names = sorted(set(json.load(file)["weight_map"].values()))
        else:
            names = ["model.safetensors"]
        self._files = [safe_open(os.path.join(directory, name), framework="pt") for name in names]
        self._homes = {name: file for file in self._files for name in file.keys()}
        self._names = self._match(model, directory)
        self._last = None, None

    def _match(self, model, directory):
        aliases = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            aliases.setdefault(id(parameter), []).append(name)
        prefix = getattr(model, "base_model_prefix", "") + "."
        found, missing = {}, []
        for names in aliases.values():
            stored = [other for name in names for other in (name, name.removeprefix(prefix), prefix + name) if other in self._homes]
            if stored:
                found.update((name, stored[0]) for name in names)
            else:
                missing.append(names[0])
        if missing:
            raise ValueError(f"the weights in {directory} lack {len(missing)} of the model's parameters:\n  " + "\n  ".join(missing))
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in self._homes:
                    buffer.copy_(self._homes[name].get_tensor(name))
        return found

    def tensor(self, name):
        if self._last[0] != name:
            stored = self._names[name]
            self._last = name, self._homes[stored].get_tensor(stored)
        return self._last[1]


class Values:
    """What the engine's states begin with: a parameter's own values, a file's, or those its modules make now."""

    def __init__(self, model, units, seed):
        self._model, self._seed = model, seed
        self._source = getattr(model, "_headrace_source", None)
        self._units = {part.name: (number, unit) for number, unit in enumerate(units) for part in unit.parts}
        self._made = None, {}

    def of(self, name):
        number, unit = self._units[name]
        parameter = next(part.parameter for part in unit.parts if part.name == name)
        if not getattr(parameter, "_headrace_unmade", False):
            return parameter.detach()
        value = self._source.tensor(name) if self._source else self._make(number, unit)[name]
        if tuple(value.shape) != tuple(parameter.shape):
            raise ValueError(f"{name} is of shape {list(value.shape)} in the files and {list(parameter.shape)} in the model.")
        return value

    def _make(self, number, unit):
        """One unit's at a time. The random numbers depend on the seed and the unit alone: all ranks make the same ones."""
        if self._made[0] != number:
            self._made = None, {}
            self._made = number, self._initialised(number, unit)
        return self._made[1]

    def _initialised(self, number, unit):
        parameters = [part.parameter for part in unit.parts]
        for parameter in parameters:
            take_memory(parameter, torch.full(parameter.shape, float("nan"), dtype=parameter.dtype))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed * 1000003 + number)
            self._initialise_modules({id(parameter) for parameter in parameters})
        made = {part.name: part.parameter.detach() for part in unit.parts}
        empty = [name for name, value in made.items() if bool(torch.isnan(value).any())]
        if empty:
            raise ValueError(f"{', '.join(empty)}: no module initialises it (reset_parameters, or _init_weights of transformers). Make the "
                             "model without headrace.init, or give such modules a reset_parameters.")
        for parameter in parameters:
            place_nothing(parameter)
        return made

    def _initialise_modules(self, wanted):
        def visit(module, model):
            if hasattr(module, "_init_weights"):
                model = module
            for child in module.children():
                visit(child, model)
            inside = [id(parameter) in wanted for parameter in module.parameters()]
            if inside and all(inside) or any(id(parameter) in wanted for parameter in module.parameters(recurse=False)):
                _initialise_module(module, model)

        with torch.no_grad():
            visit(self._model, None)


def _initialise_module(module, model):
    if model is None:
        if hasattr(module, "reset_parameters") and next(module.parameters(recurse=False), None) is not None:
            module.reset_parameters()
        return
    for one in (module, *module.parameters(recurse=False)):
        if hasattr(one, "_is_hf_initialized"):
            del one._is_hf_initialized
    model._init_weights(module)
