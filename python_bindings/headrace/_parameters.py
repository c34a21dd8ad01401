"""Parameters that are on the device only while they are used.

A released parameter keeps its shape and type, has no memory, and says so when it is touched.
"""

import contextlib

import torch
from torch import nn

from . import _headrace

NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}  # as the engine has them

# What may be asked of a released parameter: whatever needs no values.
_READ = ("shape", "dtype", "device", "requires_grad", "is_leaf", "grad", "grad_fn", "data", "layout", "ndim", "is_cuda", "is_meta", "is_sparse",
         "is_quantized", "_backward_hooks", "_post_accumulate_grad_hooks", "_version", "itemsize", "nbytes")  # fmt: skip
_WRITTEN = ("requires_grad", "grad", "data", "_backward_hooks", "_post_accumulate_grad_hooks")
_CALLED = ("size", "dim", "ndimension", "numel", "nelement", "element_size", "stride", "is_floating_point", "is_complex", "is_contiguous",
           "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "__hash__", "__len__")  # fmt: skip


def _harmless():
    yield from (getattr(torch.Tensor, name).__get__ for name in _READ if hasattr(torch.Tensor, name))
    yield from (getattr(torch.Tensor, name).__set__ for name in _WRITTEN if hasattr(torch.Tensor, name))
    yield from (getattr(torch.Tensor, name) for name in _CALLED)


_HARMLESS = set(_harmless())


class Released(nn.Parameter):
    """The class of a parameter while it is not on the device."""

    _building = 0  # headrace.init is open: modules may think that they initialise it

    def __repr__(self):
        return f"Released parameter {self._headrace_name} of shape {list(self.shape)}, {self.dtype}"

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), keywords=None):
        if function in _HARMLESS:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*arguments, **(keywords or {}))
        if Released._building:
            return cls._while_building(function, arguments, keywords or {})
        name = next((a._headrace_name for a in arguments if isinstance(a, Released)), "a parameter")
        raise RuntimeError(f"{name} is not on the device: Headrace has released it until its module runs. To read it, write\n"
                           f"    with headrace.gathered([parameter]): ...")


    @staticmethod
    def _while_building(function, arguments, keywords):
        """What is written in place goes nowhere; what is read is a copy of nothing."""
        name = getattr(function, "__name__", "")
        if name.endswith("_") and not name.endswith("__"):
            return arguments[0] if arguments else next(iter(keywords.values()))
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*arguments, **keywords)
        return result.clone() if isinstance(result, torch.Tensor) else result


_nothing = {}


def place_nothing(parameter):
    """Takes a parameter's memory away. One element stands for all: who gets around its class reads no number."""
    if parameter.dtype not in _nothing:
        _nothing[parameter.dtype] = torch.full((1,), float("nan"), dtype=parameter.dtype)
    parameter.data = _nothing[parameter.dtype].expand(parameter.shape)
    parameter.__class__ = Released


def take_memory(parameter, memory):
    parameter.__class__ = nn.Parameter
    parameter.data = memory


class Unit:
    """A unit of the engine: its parameters, and whether they are on the device."""

    def __init__(self, session, index, parts, offload):
        layout = session.layout(index)
        self.session, self.index, self.offload = session, index, offload
        self.dtype_name = session.options.engine.dtype
        self.numel = layout.numel
        self.parameters = [part.parameter for part in parts]
        self.shapes = [tuple(parameter.shape) for parameter in self.parameters]
        self.offsets = layout.offsets
        self.holders = 0
        self.flat = None  # the memory of all of them while they are held
        self.address = 0
        self._views = {}  # by address
        for part in parts:
            part.parameter._headrace_name, part.parameter._headrace_unit = part.name, self

    def memory(self, address, numel):
        return torch.from_dlpack(_headrace.memory_view(address, numel, self.dtype_name, self.session))

    def acquire(self):
        self.holders += 1
        if self.holders > 1:
            return
        try:
            address = self.session.acquire(self.index)
            self.session.wait_for_compute()
        except BaseException:
            self.holders -= 1
            raise
        self._place(address)

    def release(self):
        self.holders -= 1
        if self.holders > 0:
            return
        if self.offload:
            self._take_away()
        self.session.release(self.index)

    def _place(self, address):
        if address == self.address and not self.offload:
            return
        if address not in self._views:
            flat = self.memory(address, self.numel)
            views = [flat[offset : offset + parameter.numel()].view(shape)
                     for offset, parameter, shape in zip(self.offsets, self.parameters, self.shapes)]  # fmt: skip
            self._views[address] = flat, views
        self.address = address
        self.flat, views = self._views[address]
        for parameter, view in zip(self.parameters, views):
            take_memory(parameter, view)

    def _take_away(self):
        self.flat = None
        for parameter in self.parameters:
            place_nothing(parameter)

    def close(self):
        """The engine's memory is shared no more; the parameters stay released."""
        self._take_away()
        for parameter in self.parameters:
            del parameter._headrace_unit
        self.session, self.parameters, self._views = None, [], {}

    def hand_over_gradients(self):
        flat = self.memory(self.session.gradient_buffer(self.index), self.numel)
        self.session.wait_for_compute()
        for parameter, offset in zip(self.parameters, self.offsets):
            target = flat[offset : offset + parameter.numel()]
            if parameter.grad is None:
                target.zero_()
            else:
                target.copy_(parameter.grad.reshape(-1))
            parameter.grad = None
        self.session.gradients_ready(self.index)


@contextlib.contextmanager
def gathered(parameters):
    """The parameters are whole and on the device inside, to be read. What is written there is lost.

    Every rank of a job gathers the same ones.
    """
    if isinstance(parameters, (nn.Parameter, nn.Module)):
        parameters = [parameters]
    wanted = []
    for one in parameters:
        for parameter in one.parameters() if isinstance(one, nn.Module) else [one]:
            unit = getattr(parameter, "_headrace_unit", None)
            if unit is not None and unit not in wanted:
                wanted.append(unit)
    held = []
    try:
        for unit in wanted:
            unit.acquire()
            held.append(unit)
        yield
    finally:
        for unit in held:
            unit.release()
