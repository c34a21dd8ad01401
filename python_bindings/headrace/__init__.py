"""Headrace: trains PyTorch models that are larger than the memory of the devices at hand.

    import headrace

    engine = headrace.initialize(model, config={"zero_optimization": {"stage": 3}})
    for batch in data:
        loss = engine(**batch).loss
        engine.backward(loss)
        engine.step()

torch is imported by the first call that needs it.
"""

from ._headrace import __version__

__all__ = ["Engine", "Optimizer", "__version__", "from_pretrained", "gathered", "init", "initialize"]

_HOMES = {"Engine": "_engine", "initialize": "_engine", "Optimizer": "_optimizer", "gathered": "_parameters", "init": "_building",
          "from_pretrained": "_building"}  # fmt: skip


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__():
    return sorted(__all__)
