"""Which parameters require gradients while one of several optimizers is in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, nn

__all__ = ["toggle", "untoggle"]


def toggle(module: nn.Module, optimizer: Any, optimizers: Iterable[Any]) -> None:
    """Require gradients only of one optimizer's parameters; what was toggled is untoggled first."""
    untoggle(module)
    mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
    saved: dict[int, tuple[Tensor, bool]] = {}
    for other in optimizers:
        for group in other.param_groups:
            for parameter in group["params"]:
                # others may share it, and what it was is what the first of them found
                if id(parameter) not in mine and id(parameter) not in saved:
                    saved[id(parameter)] = parameter, parameter.requires_grad
                    parameter.requires_grad_(False)
    module.__dict__["_toggled"] = tuple(saved.values())


def untoggle(module: nn.Module) -> None:
    """Undo `toggle`."""
    for parameter, requires_grad in module.__dict__.pop("_toggled", ()):
        parameter.requires_grad_(requires_grad)
