"""Memento: how objects were, to be put back after something was tried with them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Memento"]


class Memento:
    """Put a module back as it was: its weights, gradients and attributes, those of its parts too.

    ::

        with Memento(module, datamodule):
            ...  # train it a little

    Tensors are copied to the host, so that a device has as much memory left as before. Lists,
    dicts, sets and deques get their items back; other objects that are attributes are left alone.
    Of what is no module, as a data module, tensors are not looked at: they are data.

    Raises:
        UsageError: a parameter is lazy: what the first batch would make of it cannot be taken back.
    """

    def __init__(self, *owners: object) -> None:
        self._known: set[int] = set()
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._items: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Tensor, Tensor]] = []
        self._parameters: list[tuple[Tensor, Tensor | None, bool]] = []
        for owner in owners:
            if isinstance(owner, nn.Module):
                self._note_module(owner)
            elif owner is not None:
                self._note_attributes(vars(owner), with_tensors=False)

    def __enter__(self) -> Self:
        for parameter, _, _ in self._parameters:
            parameter.grad = None
        return self

    def __exit__(self, *error: object) -> None:
        for attributes, before in self._attributes:
            attributes.clear()
            attributes.update(before)
        for container, copied in self._items:
            _refill(container, copied)
        with torch.no_grad():
            for tensor, copied in self._tensors:
                tensor.copy_(copied)
        for parameter, gradient, requires_grad in self._parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient

    def _note_module(self, module: nn.Module) -> None:
        for name, parameter in module.named_parameters():
            if nn.parameter.is_lazy(parameter):
                raise UsageError(
                    f"parameter {name!r} of {type(module).__qualname__} is lazy: it gets its size "
                    "with the first batch, which cannot be taken back. Run one batch through the "
                    "module before anything is tried with it."
                )
            self._parameters.append((parameter, parameter.grad, parameter.requires_grad))
        for part in module.modules():
            self._note_attributes(vars(part), with_tensors=True)

    def _note_attributes(self, attributes: dict[str, Any], *, with_tensors: bool) -> None:
        self._attributes.append((attributes, dict(attributes)))
        self._note_values(attributes.values(), with_tensors)

    def _note_values(self, values: Iterable[Any], with_tensors: bool) -> None:
        for value in values:
            is_container = isinstance(value, dict | list | set | deque)
            is_tensor = with_tensors and isinstance(value, Tensor)
            if not (is_container or is_tensor) or id(value) in self._known:
                continue
            self._known.add(id(value))
            if is_tensor:
                # torch's `copy` would share memory where the tensor is on the host already
                self._tensors.append((value, value.detach().to("cpu", copy=True)))
                continue
            self._items.append((value, list(value.items() if isinstance(value, dict) else value)))
            self._note_values(value.values() if isinstance(value, dict) else value, with_tensors)


def _refill(container: Any, items: list[Any]) -> None:
    """Give a container the items that it had."""
    container.clear()
    if isinstance(container, dict | set):
        container.update(items)
    else:
        container.extend(items)
