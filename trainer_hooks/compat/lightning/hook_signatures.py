"""Hooks and steps as code for Lightning 1.x defines them: with `dataloader_idx` in any case."""

from __future__ import annotations

from types import FunctionType
from typing import Any

__all__ = ["take_one_loader"]

_ARGUMENT = "dataloader_idx"


def take_one_loader(kind: type[Any]) -> None:
    """Let the methods that a class defines be called without `dataloader_idx`, which then is 0.

    Lightning 1.x gave it always; since 2.0 it is given where there are several loaders.
    """
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and _requires_it(method):
            setattr(kind, name, _with_default(method))


def _requires_it(method: FunctionType) -> bool:
    code = method.__code__
    by_position = code.co_varnames[: code.co_argcount]
    return by_position[-1:] == (_ARGUMENT,) and not method.__defaults__


def _with_default(method: FunctionType) -> FunctionType:
    """Return the same function with a default for its last argument."""
    made = FunctionType(
        method.__code__, method.__globals__, method.__name__, (0,), method.__closure__
    )
    made.__kwdefaults__ = method.__kwdefaults__
    made.__dict__.update(method.__dict__)
    made.__annotations__ = method.__annotations__
    made.__doc__, made.__qualname__ = method.__doc__, method.__qualname__
    made.__module__ = method.__module__
    return made
