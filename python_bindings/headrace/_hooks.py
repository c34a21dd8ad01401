"""What gathers units before a module's forward and backward, releases them behind, and hands gradients over.

A site is a module that needs units. Its call gathers them for forward; autograd says when its backward begins (a gradient of
its output) and when it is done (the gradients of its inputs). Weights that autograd keeps for backward are kept as places in
their unit (saved-tensor hooks), so that a released unit has no memory in between, and a place that is asked for outside of its
site's backward gathers the unit again. So the hooks decide when memory is taken, and never what is computed.
"""

import contextlib
import weakref

import torch
from torch.utils._pytree import tree_leaves


def _in_backward():
    return torch._C._current_graph_task_id() != -1


def _others_keep_tensors():
    """Whether what autograd saves goes to somebody else: in a backward to checkpointing that is not reentrant, which drops it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


class _Weight:
    """A saved view of a unit's memory."""

    __slots__ = ("unit", "size", "stride", "offset")

    def __init__(self, unit, tensor):
        self.unit, self.size, self.stride, self.offset = unit, tensor.size(), tensor.stride(), tensor.storage_offset()


class _Call:
    """One forward of a site whose outputs need gradients, and the backward that follows."""

    __slots__ = ("hooks", "units", "inputs", "running", "pending")

    def __init__(self, hooks, units, inputs):
        self.hooks, self.units, self.inputs, self.running, self.pending = hooks, units, inputs, False, True
        hooks.pending.add(self)
        for unit in units:
            hooks.uses[unit.index] += 1

    def watch(self, outputs):
        for output in outputs:
            output.register_hook(self.begin)
        if self.inputs:
            torch.autograd.graph.register_multi_grad_hook(self.inputs, self.inputs_done, mode="all")
        self.inputs = bool(self.inputs)

    def begin(self, _gradient):
        if self.running or not self.pending:
            return
        self.running = True
        for unit in self.units:
            unit.acquire()
        self.hooks.begun(self)

    def inputs_done(self, _gradients):
        self.end()

    def end(self):
        if self.running:
            self.running = False
            for unit in self.units:
                unit.release()
        if self.pending:
            self.pending = False
            self.hooks.ended(self)

    def forget(self):
        """Its backward will not come."""
        self.pending = False


def _arrival(hooks, index, position):
    """Of a gradient. The hook lies where Python's collector does not look, so it keeps nothing alive."""
    return lambda _parameter: hooks().arrival(index, position)


class Hooks:
    """Of one engine's model."""

    def __init__(self, session, model, units, sites):
        self.session, self.units = session, units
        self.uses = [0] * len(units)  # calls whose backward is not done
        self.arrived = [set() for _ in units]
        self.by_memory = {}
        self.pending = set()  # calls whose backward is not done
        self.running = []  # those of which it has begun
        self.in_order = session.options.launch.size > 1  # every rank hands units over in the same order
        self.ready, self.handed_over = set(), set()  # whole, and waiting for their turn; of this backward
        self.lazily_held = []
        self.callback_queued = False
        self.forwards = []  # sites' calls that are in forward: units held, inputs that need gradients
        self.depth = 0  # of calls of the model and its sites
        self.saved = None
        self.offload = any(unit.offload for unit in units)
        self.handles = []
        self._install(model, sites)

    def _install(self, model, sites):
        keep = self.handles.append
        for site in sites:
            units = [self.units[index] for index in site.units]
            keep(site.module.register_forward_pre_hook(self._before(units), with_kwargs=True, prepend=True))
            keep(site.module.register_forward_hook(self._behind(units), with_kwargs=True, always_call=True))
        keep(model.register_forward_pre_hook(self._model_begins, prepend=True))
        keep(model.register_forward_hook(self._model_ends, always_call=True))
        for unit in self.units:
            for position, parameter in enumerate(unit.parameters):
                keep(parameter.register_post_accumulate_grad_hook(_arrival(weakref.ref(self), unit.index, position)))

    def close(self):
        with contextlib.suppress(RuntimeError):  # of an engine that has failed, which was told
            self.settle()
        for handle in self.handles:
            handle.remove()
        for unit in self.units:
            unit.close()
        self.handles, self.units, self.by_memory, self.session = [], [], {}, None

    def _model_begins(self, _module, _arguments):
        self._enter()

    def _model_ends(self, _module, _arguments, _output):
        self._leave()

    def _enter(self):
        """The first of nested calls: of the model, of a part of it alone, or of a part that is computed again in a backward."""
        if self.depth > 0:
            self.depth += 1
            return
        again = _in_backward()
        if not again:
            self.settle()
            if torch.is_grad_enabled():
                self.session.begin_micro_batch()
        self.depth = 1
        if self.offload and torch.is_grad_enabled() and not (again and _others_keep_tensors()):
            self.saved = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
            self.saved.__enter__()

    def _leave(self):
        self.depth = max(self.depth - 1, 0)
        if self.depth == 0 and self.saved is not None:
            self.saved.__exit__(None, None, None)
            self.saved = None

    def _before(self, units):
        def hook(_module, arguments, keywords):
            self._enter()
            held, inputs = [], []
            self.forwards.append((held, inputs))
            for unit in units:
                unit.acquire()
                held.append(unit)
                if unit.offload:
                    self.by_memory[unit.address] = unit
            if torch.is_grad_enabled():
                inputs += [leaf for leaf in tree_leaves((arguments, keywords)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]

        return hook

    def _behind(self, units):
        def hook(_module, _arguments, _keywords, output):
            if not self.forwards:
                return  # the call could not begin
            held, inputs = self.forwards.pop()
            try:
                if torch.is_grad_enabled() and not (_in_backward() and _others_keep_tensors()):
                    outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
                    if outputs:
                        _Call(self, units, inputs).watch(outputs)
            finally:
                for unit in held:
                    unit.release()
                self._leave()

        return hook

    def _pack(self, tensor):
        unit = self.by_memory.get(tensor.untyped_storage().data_ptr())
        if unit is None or unit.flat is None or unit.flat.dtype != tensor.dtype:
            return tensor
        return _Weight(unit, tensor)

    def _unpack(self, saved):
        if not isinstance(saved, _Weight):
            return saved
        unit = saved.unit
        if unit.holders == 0:
            unit.acquire()
            self.lazily_held.append(unit)
        return unit.flat.as_strided(saved.size, saved.stride, saved.offset)

    def begun(self, call):
        self.running.append(call)
        if not self.callback_queued:
            self.callback_queued = True
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def ended(self, call):
        self.pending.discard(call)
        if call in self.running:
            self.running.remove(call)
        for unit in call.units:
            self.uses[unit.index] -= 1
            self._hand_over_if_whole(unit)

    def arrival(self, index, position):
        unit, arrived = self.units[index], self.arrived[index]
        arrived.add(position)
        if len(arrived) < len(unit.parameters):
            return
        for call in [one for one in self.running if not one.inputs and unit in one.units]:
            if all(len(self.arrived[other.index]) == len(other.parameters) for other in call.units):
                call.end()
        self._hand_over_if_whole(unit)

    def _hand_over_if_whole(self, unit):
        if self.uses[unit.index] > 0 or len(self.arrived[unit.index]) < len(unit.parameters):
            return
        if not self.in_order:
            return self._hand_over(unit)
        self.ready.add(unit.index)
        for index in range(len(self.units) - 1, -1, -1):  # the last unit's gradient is the first to be whole, mostly
            if index in self.ready:
                self._hand_over(self.units[index])
            elif index not in self.handed_over:
                return

    def _hand_over(self, unit):
        self.ready.discard(unit.index)
        self.handed_over.add(unit.index)
        self.arrived[unit.index].clear()
        unit.hand_over_gradients()

    def _backward_ends(self):
        self.callback_queued = False
        for call in list(self.running):
            call.end()
        for unit in reversed(self.units):
            if self.arrived[unit.index]:
                self._hand_over(unit)
        self.handed_over.clear()
        self._let_go()

    def forget_pending(self):
        """A step ends what is not done: outputs whose backward never came."""
        for call in self.pending:
            call.forget()
        self.pending.clear()
        self.uses = [0] * len(self.units)

    def _let_go(self):
        for unit in self.lazily_held:
            unit.release()
        self.lazily_held.clear()

    def settle(self):
        """After a forward or a backward that an exception ended: nothing of it is held any more."""
        if not (self.running or self.lazily_held or self.forwards or self.callback_queued):
            return
        self.callback_queued = False
        for call in list(self.running):
            call.end()
        self.forwards.clear()
        self.ready.clear()
        self.handed_over.clear()
        self._let_go()
        for unit in self.units:
            self.arrived[unit.index].clear()
            for parameter in unit.parameters:
                parameter.grad = None
