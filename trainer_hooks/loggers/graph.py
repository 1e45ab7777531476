"""A model made ready to be traced, and left as it was."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.runtime import move_to_device, rng

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["traced"]


@contextmanager
def traced(model: torch.nn.Module, inputs: Any) -> Iterator[tuple[torch.nn.Module, Any]]:
    """Give a model and an input on its device; nothing of a forward inside leaves a trace.

    The model evaluates, so that no running mean moves, and random numbers are put back.
    """
    modes = [(part, part.training) for part in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    model.eval()
    try:
        with rng.isolated(), torch.no_grad(), warnings.catch_warnings():
            # TensorBoard knows no other way than torch.jit; nothing that a user could change
            warnings.filterwarnings("ignore", r".*torch\.jit", DeprecationWarning)
            yield model, move_to_device(inputs, device)
    finally:
        for part, mode in modes:
            part.training = mode
