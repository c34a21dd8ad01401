"""How a model is cut into units: the parameters that are gathered, and released, together."""

from dataclasses import dataclass, field

from torch import nn


@dataclass
class UnitPart:
    """A parameter in its unit."""

    parameter: nn.Parameter
    name: str


@dataclass
class UnitParts:
    """A unit: what belongs to one module and to no unit before it."""

    name: str
    parts: list = field(default_factory=list)


@dataclass
class Site:
    """A module whose forward needs units: those of all parameters in it, shared ones included."""

    module: nn.Module
    units: list = field(default_factory=list)  # indices


def _has_parameters(module):
    return next(module.parameters(), None) is not None


def repeated_blocks(model):
    """The classes of modules that a list or a sequence of them repeats, outermost first."""
    classes, seen = [], set()

    def visit(module):
        if id(module) in seen:
            return
        seen.add(id(module))
        children = [child for child in module.children() if _has_parameters(child)]
        if isinstance(module, (nn.ModuleList, nn.Sequential)) and len(children) > 1:
            kinds = {type(child) for child in children}
            if len(kinds) < len(children):
                classes.extend(kind for kind in kinds if kind not in classes)
                return
        for child in children:
            visit(child)

    visit(model)
    return tuple(classes)


def _modules_of_units(model, unit_classes):
    """(name, module) of every block, and of every module beside them that holds parameters itself."""
    seen = set()

    def visit(name, module):
        if id(module) in seen:
            return
        seen.add(id(module))
        if unit_classes and isinstance(module, unit_classes) and _has_parameters(module):
            seen.update(id(inner) for inner in module.modules())
            yield name, module
            return
        if next(module.parameters(recurse=False), None) is not None:
            yield name, module
        for child_name, child in module.named_children():
            yield from visit(f"{name}.{child_name}" if name else child_name, child)

    yield from visit("", model)


def cut(model, unit_classes=None):
    """The units of a model and the sites that need them.

    Frozen parameters are in no unit: they stay what they are, tensors of PyTorch's.
    """
    if unit_classes is None:
        unit_classes = repeated_blocks(model)
    unit_classes = tuple(unit_classes)
    unit_of, units, sites = {}, [], []
    modules = list(_modules_of_units(model, unit_classes))
    for name, module in modules:
        unit = UnitParts(name or "model")
        whole = unit_classes and isinstance(module, unit_classes)
        for inner, parameter in module.named_parameters(recurse=bool(whole)):
            if parameter.requires_grad and id(parameter) not in unit_of:
                unit_of[id(parameter)] = len(units)
                unit.parts.append(UnitPart(parameter, f"{name}.{inner}" if name else inner))
        if unit.parts:
            units.append(unit)
    for _, module in modules:
        whole = unit_classes and isinstance(module, unit_classes)
        needed = sorted({unit_of[id(p)] for p in module.parameters(recurse=bool(whole)) if id(p) in unit_of})
        if needed:
            sites.append(Site(module, needed))
    return units, sites
