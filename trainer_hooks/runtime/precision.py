"""Numeric precision: autocast, dtypes of parameters and batches, and loss scaling."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.optim import Optimizer

_ALIASES = {
    "32-true": "32-true", "32": "32-true", 32: "32-true", None: "32-true",
    "64-true": "64-true", "64": "64-true", 64: "64-true",
    "bf16-mixed": "bf16-mixed", "bf16": "bf16-mixed",
    "16-mixed": "16-mixed", "16": "16-mixed", 16: "16-mixed",
    "bf16-true": "bf16-true", "16-true": "16-true",
}  # fmt: skip
_TRUE_DTYPES = {"64-true": torch.float64, "bf16-true": torch.bfloat16, "16-true": torch.float16}
_UNAVAILABLE = ("transformer-engine", "transformer-engine-float16")


class Precision:
    """Full 32-bit precision, and the base class of the other precisions.

    Attributes:
        name: value of `Trainer(precision=...)`.
        is_plain: whether the forward needs no context and the loss no scaling, so that a loop can
            omit both calls.
        converts_batches: whether batches are converted to its dtype.
        scaler: the loss scaler, or None.
    """

    name = "32-true"
    is_plain = True
    converts_batches = False
    scaler: torch.amp.GradScaler | None = None

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return a context for the forward and the loss."""
        return nullcontext()

    def convert_module(self, module: torch.nn.Module) -> None:
        """Convert the module's parameters to this precision."""

    def convert_batch(self, batch: Any) -> Any:
        """Return a batch with its floating-point tensors in this precision."""
        return batch

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss to differentiate."""
        return loss

    def building_context(self) -> AbstractContextManager[Any]:
        """Return a context in which new layers have this precision's dtype."""
        return nullcontext()

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide scaled gradients by the loss scale, in place."""

    def step(self, optimizer: Optimizer, **kwargs: Any) -> None:
        """Step the optimizer; a scaler skips the step if a gradient is not finite.

        Args:
            optimizer: the optimizer.
            kwargs: arguments of its own `step`.
        """
        optimizer.step(**kwargs)

    def update_scale(self) -> None:
        """Update the loss scale, once all optimizers have stepped with the gradients it scaled."""

    def drop_gradients(self, optimizer: Optimizer) -> None:
        """Expect other gradients of an optimizer: those of now are cleared without a step."""

    def state_dict(self) -> dict[str, Any]:
        """Return the scaler's state, or an empty dict."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scaler's state."""


class OpenForward:
    """The forward context of a precision around lines that no `with` block can hold.

    Args:
        precision: the precision.
    """

    def __init__(self, precision: Precision) -> None:
        self._precision = precision
        self._entered: AbstractContextManager[Any] | None = None

    def enter(self) -> None:
        """Enter the context, unless it is entered already."""
        if self._entered is None and not self._precision.is_plain:
            self._entered = self._precision.forward_context()
            self._entered.__enter__()

    def leave(self) -> None:
        """Leave the context, if it is entered."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)


class _TruePrecision(Precision):
    """Parameters, batches and new tensors of one dtype.

    Args:
        name: value of `Trainer(precision=...)`.
        dtype: the dtype.
    """

    is_plain = False
    converts_batches = True

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        self.name = name
        self._dtype = dtype

    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Return a context in which new tensors have the dtype."""
        default = torch.get_default_dtype()
        # so that tensors which the forward creates, such as masks, have the parameters' dtype
        torch.set_default_dtype(self._dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(default)

    def building_context(self) -> AbstractContextManager[Any]:
        """Return a context in which new layers have the dtype."""
        return self.forward_context()

    def convert_module(self, module: torch.nn.Module) -> None:
        """Convert the module's parameters to the dtype."""
        module.to(dtype=self._dtype)

    def convert_batch(self, batch: Any) -> Any:
        """Return a batch with its floating-point tensors in the dtype."""
        from trainer_hooks.runtime.nested_tensors import map_tensors

        return map_tensors(batch, lambda t: t.to(self._dtype) if t.is_floating_point() else t)


class _Autocast(Precision):
    """Mixed precision: 32-bit parameters, and a forward in a 16-bit dtype where that is safe."""

    is_plain = False

    def __init__(self, name: str, device: torch.device, dtype: torch.dtype) -> None:
        self.name = name
        self._device_type = device.type
        self._dtype = dtype

    def forward_context(self) -> AbstractContextManager[Any]:
        """Return torch's autocast context."""
        return torch.autocast(self._device_type, dtype=self._dtype)


class _ScaledAutocast(_Autocast):
    """Mixed precision in float16, with a scaled loss so that small gradients do not vanish."""

    def __init__(self, device: torch.device) -> None:
        super().__init__("16-mixed", device, torch.float16)
        self.scaler: torch.amp.GradScaler = torch.amp.GradScaler(device.type)
        self._unscaled: set[int] = set()
        self._stepped: set[int] = set()

    def scale(self, loss: Tensor) -> Tensor:
        """Return the loss times the loss scale."""
        self.update_scale()
        scaled: Tensor = self.scaler.scale(loss)
        return scaled

    def unscale(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the loss scale, once per step."""
        # the scaler raises an error if a window's gradients are unscaled twice, and clipping, hooks
        # and the step itself may each need them unscaled
        if id(optimizer) in self._stepped:
            self.update_scale()
        if id(optimizer) not in self._unscaled:
            self.scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def step(self, optimizer: Optimizer, **kwargs: Any) -> None:
        """Step the optimizer if all gradients are finite."""
        self.unscale(optimizer)
        self.scaler.step(optimizer, **kwargs)
        self._stepped.add(id(optimizer))

    def update_scale(self) -> None:
        """Update the loss scale, if an optimizer has stepped since.

        Not at each step: the gradients of another optimizer may have the scale of now.
        """
        if self._stepped:
            self._update()

    def drop_gradients(self, optimizer: Optimizer) -> None:
        """Let the optimizer's next gradients be unscaled, although it has not stepped."""
        if id(optimizer) in self._unscaled - self._stepped:
            self._update()

    def _update(self) -> None:
        self.scaler.update()
        self._stepped.clear()
        # of an optimizer that has not stepped, too: the scaler forgets them all
        self._unscaled.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the scaler's state."""
        self.update_scale()
        return self.scaler.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scaler's state."""
        self.scaler.load_state_dict(state_dict)
        # GradScaler creates its scale at the first loss, and a resumed window may step without one.
        self.scaler.scale(torch.zeros((), device=self._device_type))


def make_precision(precision: str | int | None, device: torch.device) -> Precision:
    """Return the precision for a value of `Trainer(precision=...)`.

    Raises:
        OptionError: the value is unknown, or not available on this device.
    """
    if isinstance(precision, str) and precision in _UNAVAILABLE:
        raise OptionError(
            f"Trainer(precision={precision!r}): not available. Use bf16-mixed, and layers of "
            "Transformer Engine in the module itself."
        )
    name = _ALIASES.get(precision) if isinstance(precision, str | int | None) else None
    if name is None:
        names = sorted({*_ALIASES.values()})
        raise OptionError(
            f"Trainer(precision={precision!r}): must be one of {', '.join(names)}."
            f"{did_you_mean(str(precision), names)}"
        )
    if name == "64-true" and device.type == "mps":
        raise OptionError("Trainer(precision='64-true'): MPS has no 64-bit floating point.")
    if name in _TRUE_DTYPES:
        return _TruePrecision(name, _TRUE_DTYPES[name])
    if name == "bf16-mixed":
        return _Autocast(name, device, torch.bfloat16)
    if name == "16-mixed":
        return _ScaledAutocast(device)
    return Precision()
