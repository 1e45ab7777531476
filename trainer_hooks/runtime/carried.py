"""Carried: one bit that travels with the gradients of several processes, in their reduction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["CarriedBit"]


class CarriedBit(nn.Module):
    """Tell all processes whether any of them has raised a bit, inside the reduction of gradients.

    It is a parameter of one number, which torch's DistributedDataParallel takes for one of the
    model's, and whose gradient is made here: 1 where the bit is raised, else 0. The mean over all
    processes is above 0 if any of them has raised it.

    On a GPU an answer is copied to the host while the host goes on, and is read with the next one,
    so that nobody waits for the device.

    Args:
        like: a parameter of the model; of its type and device this one lies in the same bucket.

    Attributes:
        parameter: the number whose gradient is averaged.
    """

    def __init__(self, like: nn.Parameter) -> None:
        super().__init__()
        options: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        self.parameter = nn.Parameter(torch.zeros(1, **options))
        self._held = (self.parameter,)  # found without nn.Module's detour, which costs each step
        self._bits = torch.zeros(1, **options), torch.ones(1, **options)
        self._copy: Tensor | None = None
        self._is_copied: torch.cuda.Event | None = None

    def alias(self) -> Tensor:
        """Return the parameter as the outcome of an operation, for torch's search through those."""
        return self.parameter.view(1)

    def root(self, is_raised: bool) -> tuple[Tensor, Tensor]:
        """Return what a backward begins at to give this process's bit, and the gradient there.

        It is to be called once for each reduction, for its backward or for one before that.
        """
        (parameter,) = self._held
        parameter.grad = None
        return parameter, self._bits[is_raised]

    def receive(self) -> bool:
        """Return whether any process has raised it; to be called once for each reduction.

        On a GPU that is the answer of the reduction before.
        """
        gradient = self._held[0].grad
        assert gradient is not None
        if not gradient.is_cuda:
            return bool(gradient.item())
        if self._copy is None or self._is_copied is None:
            self._copy = torch.zeros(1, dtype=gradient.dtype, pin_memory=True)
            self._is_copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            is_raised = False
        else:
            self._is_copied.synchronize()
            is_raised = bool(self._copy.item())
        self._copy.copy_(gradient, non_blocking=True)
        self._is_copied.record()
        return is_raised
