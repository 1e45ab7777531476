"""Layers that were built on the meta device: their memory, and their first weights."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import nn

__all__ = ["is_on_meta", "materialize"]


def is_on_meta(module: nn.Module) -> bool:
    """Return whether something of a module has no memory yet."""
    return any(tensor.is_meta for tensor in chain(module.parameters(), module.buffers()))


def materialize(module: nn.Module, device: torch.device, *, is_filled: bool) -> None:
    """Give what of a module is on the meta device its memory and its first weights.

    Each layer's own `reset_parameters` makes them, in the order of the layers, so that processes
    whose random numbers are the same make the same.

    Args:
        module: the module; the rest of it stays as it is.
        device: where the memory is.
        is_filled: whether a checkpoint follows that has all weights, so that it is no fault if a
            layer cannot make its own.

    Raises:
        ModuleError: a layer has no `reset_parameters`, or a parameter is in two of them.
    """
    empty = [layer for layer in module.modules() if _is_empty(layer)]
    _require_single(module, empty)
    for layer in empty:
        layer.to_empty(device=device, recurse=False)
        reset = _reset_of(layer)
        if reset is not None:
            reset()
        elif not is_filled:
            kind = type(layer).__qualname__
            raise ModuleError(
                f"{kind} was built on the meta device and has no reset_parameters(), so that "
                "nobody could give it its first weights: define it, build it elsewhere, or fit "
                "with a ckpt_path that has them."
            )


def _is_empty(layer: nn.Module) -> bool:
    own = chain(layer.parameters(recurse=False), layer.buffers(recurse=False))
    return any(tensor.is_meta for tensor in own)


def _require_single(module: nn.Module, empty: list[nn.Module]) -> None:
    seen: dict[int, str] = {}
    names = {id(layer): name for name, layer in module.named_modules()}
    for layer in empty:
        for name, parameter in layer.named_parameters(recurse=False):
            place = f"{names[id(layer)]}.{name}".strip(".")
            if id(parameter) in seen:
                raise ModuleError(
                    f"the parameter {seen[id(parameter)]} is {place}, too, and is on the meta "
                    "device: with memory of their own they would be two. Share it in "
                    "configure_model, or build the module elsewhere."
                )
            seen[id(parameter)] = place


def _reset_of(layer: nn.Module) -> Callable[[], object] | None:
    # nn.MultiheadAttention and nn.Transformer have the second one
    for name in ("reset_parameters", "_reset_parameters"):
        found: Callable[[], object] | None = getattr(layer, name, None)
        if callable(found):
            return found
    return None
