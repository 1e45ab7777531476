"""Copy the state of objects and restore it, so that something can be tried with them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


class StateBackup:
    """Restore modules and other objects to their state at construction.

    It covers weights, gradients and attributes of a module and its submodules.

    ::

        with StateBackup(module, datamodule):
            ...  # train it a little

    Tensors are copied to the host, so that the device has as much free memory as before. Lists,
    dicts, sets and deques get their items back; other objects among the attributes are not changed.
    Tensors of an object that is no module, such as a data module, are not saved: they are data.

    Raises:
        UsageError: a parameter is lazy; its first batch gives it a size, which cannot be undone.
    """

    def __init__(self, *owners: object) -> None:
        self._seen_ids: set[int] = set()
        self._attributes: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._container_items: list[tuple[Any, Any]] = []
        self._tensors: list[tuple[Tensor, Tensor]] = []
        self._parameters: list[tuple[Tensor, Tensor | None, bool]] = []
        for owner in owners:
            if isinstance(owner, nn.Module):
                self._save_module(owner)
            elif owner is not None:
                self._save_attributes(vars(owner), with_tensors=False)

    def __enter__(self) -> Self:
        for parameter, _, _ in self._parameters:
            parameter.grad = None
        return self

    def __exit__(self, *error: object) -> None:
        # attributes before tensors: a parameter that was replaced is put back, then filled
        for attributes, before in self._attributes:
            attributes.clear()
            attributes.update(before)
        for container, saved in self._container_items:
            _refill(container, saved)
        with torch.no_grad():
            for tensor, saved in self._tensors:
                tensor.copy_(saved)
        for parameter, gradient, requires_grad in self._parameters:
            parameter.requires_grad_(requires_grad)
            parameter.grad = gradient

    def _save_module(self, module: nn.Module) -> None:
        """Save parameters, gradients and attributes of a module."""
        for name, parameter in module.named_parameters():
            if nn.parameter.is_lazy(parameter):
                raise UsageError(
                    f"parameter {name!r} of {type(module).__qualname__} is lazy: it gets its size "
                    "with the first batch, which cannot be taken back. Run one batch through the "
                    "module before anything is tried with it."
                )
            self._parameters.append((parameter, parameter.grad, parameter.requires_grad))
        for submodule in module.modules():
            self._save_attributes(vars(submodule), with_tensors=True)

    def _save_attributes(self, attributes: dict[str, Any], *, with_tensors: bool) -> None:
        """Save an object's attributes, and the values that can be changed in place."""
        self._attributes.append((attributes, dict(attributes)))
        self._save_values(attributes.values(), with_tensors)

    def _save_values(self, values: Iterable[Any], with_tensors: bool) -> None:
        """Save tensors and the items of containers, recursively and each object once."""
        for value in values:
            is_container = isinstance(value, dict | list | set | deque)
            is_tensor = with_tensors and isinstance(value, Tensor)
            if not (is_container or is_tensor) or id(value) in self._seen_ids:
                continue
            # also for cycles; the ids stay valid, as each seen value is referred to below
            self._seen_ids.add(id(value))
            if is_tensor:
                # `copy=True`: without it a tensor on the host would be returned itself.
                self._tensors.append((value, value.detach().to("cpu", copy=True)))
                continue
            self._container_items.append(
                (value, list(value.items() if isinstance(value, dict) else value))
            )
            self._save_values(value.values() if isinstance(value, dict) else value, with_tensors)


class WeightsBackup:
    """The parameters, buffers and parts of a module at construction; `restore` puts them back.

    The tensors are copied to the host. Gradients and other attributes are not covered; a lazy
    parameter that has a size by then keeps it.
    """

    def __init__(self, module: nn.Module) -> None:
        # as they are registered: a parameter that was replaced is put back, then filled
        self._tables = [
            (table, dict(table))
            for part in module.modules()
            for table in (part._parameters, part._buffers, part._modules)  # noqa: SLF001
        ]
        self._requires_grad = [(p, p.requires_grad) for p in module.parameters()]
        # by identity: two names may share a tensor, which is copied once
        tensors = {id(t): t for t in (*module.parameters(), *module.buffers())}
        self._values = [
            (tensor, tensor.detach().to("cpu", copy=True))
            for tensor in tensors.values()
            if not nn.parameter.is_lazy(tensor) and not tensor.is_meta
        ]

    def restore(self) -> None:
        """Put back the tensors and parts."""
        for table, before in self._tables:
            _refill(table, list(before.items()))
        with torch.no_grad():
            for tensor, saved in self._values:
                tensor.copy_(saved)
        for parameter, requires_grad in self._requires_grad:
            parameter.requires_grad_(requires_grad)


def _refill(container: Any, items: list[Any]) -> None:
    """Replace the items of a container in place."""
    container.clear()
    if isinstance(container, dict | set):
        container.update(items)
    else:
        container.extend(items)
