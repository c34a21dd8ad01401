"""The engine's optimizer as PyTorch's: parameter groups with learning rates that schedulers set, step, zero_grad."""

import torch

_FIXED = ("betas", "eps", "weight_decay")  # the engine was told these once


class Optimizer(torch.optim.Optimizer):
    """Steps the engine. Rates are those of `param_groups` at the time of the step; the rest is fixed when the engine is made."""

    def __init__(self, engine, groups, defaults):
        self._engine = None
        super().__init__(groups, defaults)
        self._engine = engine
        self._fixed = [{key: group[key] for key in _FIXED} for group in self.param_groups]

    def add_param_group(self, group):
        if getattr(self, "_engine", None) is not None:
            raise ValueError("the engine has been made: its parameter groups cannot change. Give param_groups to headrace.initialize.")
        super().add_param_group(group)

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, (group, fixed) in enumerate(zip(self.param_groups, self._fixed)):
            for key, value in fixed.items():
                if group[key] != value:
                    raise ValueError(f"param_groups[{number}]['{key}'] was {value} and is {group[key]}: only 'lr' may change between steps.")
        self._engine._apply([float(group["lr"]) for group in self.param_groups])
        return loss

    def zero_grad(self, set_to_none=True):
        """Gradients end with the step that uses them; between micro-batches this does nothing."""

    def state_dict(self):
        """Groups alone: states are the engine's, and saved by it."""
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        return {"state": {}, "param_groups": groups}

    def load_state_dict(self, state_dict):
        stored = state_dict["param_groups"]
        if len(stored) != len(self.param_groups):
            raise ValueError(f"there are {len(stored)} parameter groups in the state and {len(self.param_groups)} here.")
        for group, other in zip(self.param_groups, stored):
            group["lr"] = other["lr"]
