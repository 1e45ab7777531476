"""Modules that went through `torch.compile`: taken apart into the module and its compiler."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._lazy import class_if_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.module.module import Module

__all__ = ["outside_of_graphs", "uncompiled"]

_ON_THE_RUN = ("log", "log_dict", "print", "manual_backward", "optimizers", "lr_schedulers")
"""Methods of a module that act on the run: a compiler that followed them would lose itself."""


def uncompiled(model: Any) -> Any:
    """Return the module that `torch.compile(module)` wrapped; anything else as it is."""
    # its class is loaded by whoever called torch.compile
    wrapper: Any = class_if_loaded("torch._dynamo.eval_frame", "OptimizedModule")
    return model._orig_mod if isinstance(model, wrapper) else model  # noqa: SLF001 - torch's name


@contextmanager
def outside_of_graphs(module: Module) -> Iterator[None]:
    """Let a module's steps be compiled meanwhile without what they do to the run."""
    before = dict(vars(module))
    for name in _ON_THE_RUN:
        aside = torch.compiler.disable(getattr(module, name))  # type: ignore[no-untyped-call]
        setattr(module, name, aside)
    try:
        yield
    finally:
        for name in _ON_THE_RUN:
            if name in before:
                setattr(module, name, before[name])
            else:
                delattr(module, name)
