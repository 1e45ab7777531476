"""GoodState: a copy of the weights and of what the optimizers remember, to go back to."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.runtime import map_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch.optim import Optimizer

__all__ = ["GoodState"]


@dataclass(frozen=True, slots=True)
class GoodState:
    """The parameters, the buffers and the optimizers' states as they were at one moment.

    The optimizers' options, such as learning rates, are no part of it: schedules go on.

    Attributes:
        step: the optimizer steps done at that moment.
        tensors: copies of the parameters and buffers, by name.
        optimizers: of each optimizer, copies of what it remembers of its parameters, by the
            parameter's number.
    """

    step: int
    tensors: dict[str, Tensor]
    optimizers: list[dict[int, dict[str, Any]]]

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        optimizers: Sequence[Optimizer],
        step: int,
        device: torch.device | None = None,
    ) -> GoodState:
        """Copy how everything is, to `device` or to where each tensor is."""

        def copied(tensor: Tensor) -> Tensor:
            return tensor.detach().to(device or tensor.device, copy=True)

        return cls(
            step,
            {name: copied(tensor) for name, tensor in _named_tensors(module)},
            [
                {
                    number: map_tensors(dict(optimizer.state[parameter]), copied)
                    for number, parameter in enumerate(_parameters_of(optimizer))
                    if parameter in optimizer.state
                }
                for optimizer in optimizers
            ],
        )

    @torch.no_grad()
    def put_back(self, module: torch.nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Make everything as it was, in the same tensors."""
        for name, tensor in _named_tensors(module):
            if name in self.tensors:
                kept = self.tensors[name]
                if tensor.shape != kept.shape:  # a buffer that grows
                    tensor.resize_(kept.shape)
                tensor.copy_(kept)
        for optimizer, states in zip(optimizers, self.optimizers, strict=True):
            for number, parameter in enumerate(_parameters_of(optimizer)):
                if number in states:
                    now = optimizer.state.get(parameter, {})
                    optimizer.state[parameter] = {
                        name: _placed(value, now.get(name), parameter)
                        for name, value in states[number].items()
                    }
                else:
                    optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain data and tensors."""
        return {"step": self.step, "tensors": self.tensors, "optimizers": self.optimizers}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> GoodState:
        """Take back what `state_dict` returned."""
        return cls(state["step"], dict(state["tensors"]), list(state["optimizers"]))


def _placed(value: Any, now: Any, parameter: Tensor) -> Any:
    """Return a copy of a value where the optimizer has the one that it replaces, or would have."""
    if isinstance(value, Tensor):
        if isinstance(now, Tensor) and now.shape == value.shape and now.dtype == value.dtype:
            return now.copy_(value)
        if not value.ndim:  # a counter of steps, which stays where it was
            return value.clone()
    return map_tensors(value, lambda tensor: tensor.to(parameter.device, copy=True))


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _parameters_of(optimizer: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
