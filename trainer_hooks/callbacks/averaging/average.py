"""Average: a running average of a module's weights, which can change places with them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn

from trainer_hooks.callbacks.monitoring import check_number
from trainer_hooks.errors import CallbackError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor, nn

    from trainer_hooks.module import Module

    AvgFn = Callable[[Tensor, Tensor, Tensor | int], Tensor]
    MultiAvgFn = Callable[[Any, Any, Tensor | int], None]

__all__ = ["Average", "check_averaging", "check_decay", "check_device"]

_PREFIX = "module."
"""What `AveragedModel` puts before the names of the weights in its state."""


class Average:
    """A running average of a module's weights, in a copy of the module.

    The average of nothing is the module as it was copied.

    Args:
        module: what to average. It is copied once, without its gradients.
        device: where the average is kept; where the module is unless given.
        use_buffers: whether buffers are averaged too; else the last ones are kept.
        avg_fn: returns a new average of one tensor from the old one, the tensor, and how many
            were averaged before; the mean of all of them unless given.
        multi_avg_fn: the same for lists of tensors, in place.

    Attributes:
        model: torch's `AveragedModel`; the averaged copy is its `module`.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device | None = None,
        use_buffers: bool = False,
        avg_fn: AvgFn | None = None,
        multi_avg_fn: MultiAvgFn | None = None,
    ) -> None:
        if avg_fn is None and multi_avg_fn is None:
            multi_avg_fn = self._mean
        self.model = AveragedModel(module, device, avg_fn, multi_avg_fn, use_buffers)
        # on the host, where looking at it at each update waits for no device
        self.model.n_averaged = torch.tensor(0)
        for parameter in self.model.module.parameters():
            parameter.grad = None

    @property
    def module(self) -> Module:
        """The copy of the module that holds the average."""
        return self.model.module  # type: ignore[return-value]

    @property
    def count(self) -> int:
        """How many times weights were averaged in."""
        return int(self.model.n_averaged)

    @count.setter
    def count(self, value: int) -> None:
        self.model.n_averaged.fill_(value)

    def update(self, module: nn.Module) -> None:
        """Average the module's present weights in; the first ones are taken as they are."""
        self.model.update_parameters(module)

    @torch.no_grad()
    def exchange(self, module: nn.Module) -> None:
        """Let the average and the module's weights change places; a second time puts them back."""
        for average, current in self._pairs(module):
            kept = average.clone()
            average.copy_(current)
            current.copy_(kept)

    @torch.no_grad()
    def copy_to(self, module: nn.Module) -> None:
        """Give the module the averaged weights."""
        for average, current in self._pairs(module):
            current.copy_(average)

    def state_dict(self) -> dict[str, Any]:
        """Return the averaged weights under the module's own names."""
        return self.model.module.state_dict()

    def extra_state(self) -> dict[str, Any]:
        """Return what else there is to know: how many were averaged."""
        return {
            name: value
            for name, value in self.model.state_dict().items()
            if not name.startswith(_PREFIX)
        }

    def load(self, weights: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        """Take an average back: what `state_dict` and `extra_state` returned."""
        self.model.module.load_state_dict(weights)
        if extra is not None:
            self.count = int(extra["n_averaged"])

    def _mean(self, averages: list[Tensor], current: list[Tensor], _count: object) -> None:
        """Take the mean of all; numbers that are counted, as batches are, are those of now."""
        if averages[0].is_floating_point() or averages[0].is_complex():
            # a number and no tensor: a tensor would be copied from the device to become one
            get_swa_multi_avg_fn()(averages, current, self.count)  # type: ignore[no-untyped-call]
        else:
            torch._foreach_copy_(averages, current)

    def _pairs(self, module: nn.Module) -> Iterator[tuple[Tensor, Tensor]]:
        """Return each averaged tensor with the module's.

        Raises:
            CallbackError: the module is not built as it was when it was copied.
        """
        own, other = _named(self.model.module), _named(module)
        if own.keys() != other.keys():
            changed = ", ".join(map(repr, sorted(own.keys() ^ other.keys())[:4]))
            raise CallbackError(
                f"{type(module).__qualname__} whose weights are averaged: {changed} came or went "
                "since the averaging began, so the average does not fit it any more. Average the "
                "weights of a module that keeps its layers, without pruning or quantization."
            )
        return zip(own.values(), other.values(), strict=True)


def _named(module: nn.Module) -> dict[str, Tensor]:
    return dict(chain(module.named_parameters(), module.named_buffers()))


def check_device(device: object, where: str) -> torch.device | None:
    """Return the device that an option names, or None.

    Raises:
        OptionError: it names none.
    """
    if device is None:
        return None
    try:
        if isinstance(device, bool):
            raise TypeError
        return torch.device(device)  # type: ignore[call-overload, no-any-return]
    except (RuntimeError, TypeError) as error:
        raise OptionError(
            f"device {device!r} of {where}: it must be a torch.device, its name or its number. "
            "Pass one, such as 'cpu', or None for where the module is."
        ) from error


def check_decay(decay: float, where: str) -> float:
    """Return `decay` if it is the share that the old average can have in a new one.

    Raises:
        OptionError: it is not.
    """
    if check_number("decay", decay, where, least=0.0) > 1:
        raise OptionError(
            f"decay {decay!r} of {where}: it must be a number from 0 to 1. Pass the share of "
            "the old average, such as 0.999."
        )
    return decay


def check_averaging(avg_fn: object, multi_avg_fn: object, where: str) -> None:
    """Make sure that there is at most one function to average with, and that it can be called.

    Raises:
        OptionError: there are two, or it cannot be.
    """
    if avg_fn is not None and multi_avg_fn is not None:
        raise OptionError(
            f"avg_fn {avg_fn!r} and multi_avg_fn {multi_avg_fn!r} of {where}: only one of them can "
            "average. Leave one out."
        )
    for name, value in (("avg_fn", avg_fn), ("multi_avg_fn", multi_avg_fn)):
        if value is not None and not callable(value):
            raise OptionError(
                f"{name} {value!r} of {where}: it must be a function. Pass one, such as "
                f"torch.optim.swa_utils.get_ema_{name}(0.99)."
            )
