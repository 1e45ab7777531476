"""Modules that torch has wrapped or replaced: compiled, scripted, and sharded ones."""

from __future__ import annotations

from contextlib import contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._annotations import own_annotations
from trainer_hooks._lazy import class_if_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_RUN_METHODS = ("log", "log_dict", "print", "manual_backward", "optimizers", "lr_schedulers")
"""The methods of a Module that act on the run: a compiler would trace into the whole trainer."""


def uncompiled(model: Any) -> Any:
    """Return the module inside the wrapper of `torch.compile(module)`; anything else unchanged."""
    # whoever called torch.compile has loaded the class; importing it here would cost seconds
    wrapper: Any = class_if_loaded("torch._dynamo.eval_frame", "OptimizedModule")
    return model._orig_mod if isinstance(model, wrapper) else model  # noqa: SLF001 - torch's name


@contextmanager
def exclude_run_methods(module: nn.Module) -> Iterator[None]:
    """Keep the methods that act on the run out of compiled graphs while the steps are compiled.

    Args:
        module: the Module whose steps are compiled.
    """
    instance_attributes = dict(vars(module))
    for name in _RUN_METHODS:
        # on the instance: other modules of the class may not be compiled
        setattr(module, name, _not_compiled(getattr(module, name)))
    try:
        yield
    finally:
        for name in _RUN_METHODS:
            if name in instance_attributes:
                setattr(module, name, instance_attributes[name])
            else:
                delattr(module, name)


def _not_compiled(method: Any) -> Any:
    disable: Any = torch.compiler.disable
    if not isinstance(method, MethodType):
        return disable(method)
    # a method again, which a copy of its module binds to the copy
    return MethodType(disable(method.__func__), method.__self__)


@contextmanager
def hide_run_attributes(module: nn.Module, base: type[nn.Module]) -> Iterator[None]:
    """Hide the attributes of a module that only a run can provide while torch exports the module.

    TorchScript reads every attribute of a module; here there is no trainer, and it does not
    understand the types of these attributes.

    Args:
        module: the module to export.
        base: the class `Module`; its annotations and properties are hidden in all submodules of it.
    """
    classes = {part: type(part) for part in module.modules() if isinstance(part, base)}
    properties = [name for name in dir(base) if isinstance(getattr(base, name), property)]
    try:
        for part, kind in classes.items():
            of_user = kind.__mro__[: kind.__mro__.index(base)]
            # from the bases on: where a subclass annotates a name again, its type holds
            annotations = [own_annotations(each) for each in reversed(of_user)]
            hidden: dict[str, Any] = dict.fromkeys(properties)
            # a class without annotations of its own would show torch those of the base
            hidden["__annotations__"] = {
                # nn.Module declares this one, and a scripted module needs its type
                "training": bool,
                **{name: type_ for each in annotations for name, type_ in each.items()},
            }
            # a class attribute cannot be hidden on the instance, so it gets a subclass meanwhile
            part.__class__ = type(kind.__name__, (kind,), hidden)
        yield
    finally:
        for part, kind in classes.items():
            part.__class__ = kind


def unsharded_class(module: object) -> type:
    """Return the class that a module had before `fully_shard` replaced it."""
    # fully_shard puts a subclass of the module's class and FSDPModule in its place
    sharded: Any = class_if_loaded("torch.distributed.fsdp", "FSDPModule")
    return next(kind for kind in type(module).__mro__ if not issubclass(kind, sharded))
