"""Numeric precision: what the forward runs in, and how the loss is scaled."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import OptionError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.optim import Optimizer

__all__ = ["Precision", "make_precision"]

_ALIASES = {
    "32-true": "32-true", "32": "32-true", 32: "32-true", None: "32-true",
    "64-true": "64-true", "64": "64-true", 64: "64-true",
    "bf16-mixed": "bf16-mixed", "bf16": "bf16-mixed",
    "16-mixed": "16-mixed", "16": "16-mixed", 16: "16-mixed",
    "bf16-true": "bf16-true", "16-true": "16-true",
}  # fmt: skip
_WHOLE = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}
_NOT_HERE = ("transformer-engine", "transformer-engine-float16")


class Precision:
    """Full 32-bit precision, and the interface of the others.

    Attributes:
        name: as in `Trainer(precision=...)`.
        is_plain: whether the forward needs no context and the loss no scaling, so that a loop can
            leave both out.
        converts_batches: whether batches are given its type.
        scaler: what scales the loss, or None.
    """

    name = "32-true"
    is_plain = True
    converts_batches = False
    scaler: torch.amp.GradScaler | None = None

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return a context for the forward and the loss."""
        return nullcontext()

    def convert_module(self, module: torch.nn.Module) -> None:
        """Give the module's parameters this precision."""

    def convert_batch(self, batch: Any) -> Any:
        """Give a batch's floating-point tensors this precision."""
        return batch

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss to differentiate."""
        return loss

    def building_context(self) -> AbstractContextManager[Any]:
        """Return what layers are made in, so that they have the precision's type at once."""
        return nullcontext()

    def unscale(self, optimizer: Optimizer) -> None:
        """Turn scaled gradients into true ones, in place."""

    def step(self, optimizer: Optimizer) -> None:
        """Let the optimizer step; a scaler skips it where a gradient is not finite."""
        optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the scaler's state, or nothing."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the scaler's state back."""


class _Whole(Precision):
    """Parameters, batches and newly made tensors of one type.

    Args:
        name: as in `Trainer(precision=...)`.
        dtype: the type.
    """

    is_plain = False
    converts_batches = True

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name = name
        self._dtype = dtype

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        default = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(default)

    def building_context(self) -> AbstractContextManager[Any]:
        return self.forward_context()

    def convert_module(self, module: torch.nn.Module) -> None:
        module.to(dtype=self._dtype)

    def convert_batch(self, batch: Any) -> Any:
        from trainer_hooks.runtime.transfer import map_tensors

        return map_tensors(batch, lambda t: t.to(self._dtype) if t.is_floating_point() else t)


class _Autocast(Precision):
    """Mixed precision: 32-bit parameters, the forward in a 16-bit type where that is safe."""

    is_plain = False

    def __init__(self, name: str, device: torch.device, dtype: torch.dtype) -> None:
        self.name = name
        self._device_type = device.type
        self._dtype = dtype

    def forward_context(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device_type, dtype=self._dtype)


class _ScaledAutocast(_Autocast):
    """Mixed precision in float16, whose small gradients need a scaled loss."""

    def __init__(self, device: torch.device) -> None:
        super().__init__("16-mixed", device, torch.float16)
        self.scaler: torch.amp.GradScaler = torch.amp.GradScaler(device.type)
        self._unscaled: set[int] = set()

    def scale(self, loss: Tensor) -> Tensor:
        scaled: Tensor = self.scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: Optimizer) -> None:
        if id(optimizer) not in self._unscaled:
            self.scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def step(self, optimizer: Optimizer) -> None:
        self.unscale(optimizer)
        self.scaler.step(optimizer)
        self.scaler.update()
        self._unscaled.discard(id(optimizer))

    def state_dict(self) -> dict[str, Any]:
        return self.scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.scaler.load_state_dict(state_dict)
        # torch makes the scale with the first loss, and a resumed window may end without one
        self.scaler.scale(torch.zeros((), device=self._device_type))


def make_precision(precision: str | int | None, device: torch.device) -> Precision:
    """Return the precision that `Trainer(precision=...)` names.

    Raises:
        OptionError: the name is unknown, or not available on this device.
    """
    if isinstance(precision, str) and precision in _NOT_HERE:
        raise OptionError(
            f"Trainer(precision={precision!r}): not available. Use bf16-mixed, and layers of "
            "Transformer Engine in the module itself."
        )
    name = _ALIASES.get(precision) if isinstance(precision, str | int | None) else None
    if name is None:
        names = sorted({*_ALIASES.values()})
        raise OptionError(
            f"Trainer(precision={precision!r}): must be one of {', '.join(names)}."
            f"{nearest(str(precision), names)}"
        )
    if name == "64-true" and device.type == "mps":
        raise OptionError("Trainer(precision='64-true'): MPS has no 64-bit floating point.")
    if name in _WHOLE:
        return _Whole(name, _WHOLE[name])
    if name == "bf16-mixed":
        return _Autocast(name, device, torch.bfloat16)
    if name == "16-mixed":
        return _ScaledAutocast(device)
    return Precision()
