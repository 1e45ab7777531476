"""KeptAverage: an average of weights that an object of the user's keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer_hooks.callbacks.averaging.average import Average
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["KeptAverage"]


class KeptAverage(Average):
    """A running average that another object keeps, as `timm.utils.ModelEmaV2` does.

    Args:
        module: what to average.
        decay: the share of the old average in a new one.
        make: is called with both, and returns an `nn.Module` with the averaged copy in its
            attribute `module` and a method `update(module)`.
        where: whose option `make` is.

    Attributes:
        model: what `make` returned.

    Raises:
        OptionError: it returned something else.
    """

    def __init__(
        self, module: nn.Module, decay: float, make: Callable[..., Any], where: str
    ) -> None:
        model = make(module, decay=decay)
        copy = getattr(model, "module", None)
        is_one = isinstance(model, nn.Module) and callable(getattr(model, "update", None))
        if not is_one or not isinstance(copy, nn.Module) or copy is module:
            raise OptionError(
                f"model_ema {make!r} of {where}: called with the module and decay=, it returned "
                f"{type(model).__qualname__}; it must return an nn.Module with a copy of the "
                "module as its `module`, and a method update(module). Pass such a class, or None."
            )
        self.model: Any = model
        self._count = 0
        for parameter in copy.parameters():
            parameter.grad = None

    @property
    def count(self) -> int:
        """How many times weights were averaged in."""
        return self._count

    @count.setter
    def count(self, value: int) -> None:
        self._count = value

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Let the object average the module's present weights in."""
        self.model.update(module)
        self._count += 1

    def extra_state(self) -> dict[str, Any]:
        """Return what else there is to know: how many were averaged, and the object's own state."""
        return {**super().extra_state(), "n_averaged": self._count}

    def load(self, weights: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        """Take an average back, with what else the object's state held."""
        super().load(weights, extra)
        own = {name: value for name, value in (extra or {}).items() if name != "n_averaged"}
        self.model.load_state_dict(own, strict=False)
