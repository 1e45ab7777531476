"""The modes of a module's parts, training or evaluation, kept while others are needed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def restored_modes(module: torch.nn.Module) -> Iterator[None]:
    """Give each part of a module its present mode back after the `with` block."""
    modes = [(part, part.training) for part in module.modules()]
    try:
        yield
    finally:
        for part, mode in modes:
            # not train(), which would set the modes of frozen submodules, too
            part.training = mode


@contextmanager
def evaluation_mode(module: torch.nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode without gradients; restore every part's mode then."""
    with restored_modes(module), torch.no_grad():
        module.eval()
        yield
