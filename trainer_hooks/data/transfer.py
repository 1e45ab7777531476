"""The way of a batch from the host to the device, with only the steps that somebody needs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from trainer_hooks.data.hooks import defines

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import torch

    from trainer_hooks.data.hooks import DataHooks
    from trainer_hooks.runtime import CopyStream, Precision

__all__ = ["BatchTransfer"]

_STEPS = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")


class BatchTransfer:
    """Move batches to the device through the module's or the data module's transfer hooks.

    Args:
        module: the module of the run.
        datamodule: the data module, or None. Where it overrides a hook, the module's is not asked.
        device: where batches go.
        precision: what it makes of their floating-point tensors.
        around: what overridden hooks are called in.

    Attributes:
        is_needed: whether a batch can change at all; a loop leaves the call out where it cannot.
        copies: what lets batches go to a GPU beside a step; None where hooks compute on the way.
    """

    def __init__(
        self,
        module: DataHooks,
        datamodule: DataHooks | None,
        device: torch.device,
        precision: Precision,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._device = device
        self._convert = precision.convert_batch
        self._before = _chosen("on_before_batch_transfer", module, datamodule)
        self._move = _chosen("transfer_batch_to_device", module, datamodule)
        self._after = _chosen("on_after_batch_transfer", module, datamodule)
        self._around = around
        self._is_overridden = any(
            owner is not None and defines(owner, name)
            for owner in (module, datamodule)
            for name in _STEPS
        )
        self.is_needed = self._is_overridden or device.type != "cpu" or precision.converts_batches

        self.copies: CopyStream | None = None
        if device.type == "cuda" and not self._is_overridden:
            from trainer_hooks.runtime import CopyStream

            self.copies = CopyStream(device)

    def __call__(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """Return the batch on the device."""
        if self.copies is not None:
            return self.copies(self._moved, batch, dataloader_idx)
        if self._is_overridden:
            with self._around():
                return self._moved(batch, dataloader_idx)
        return self._moved(batch, dataloader_idx)

    def _moved(self, batch: Any, dataloader_idx: int) -> Any:
        batch = self._before(batch, dataloader_idx)
        batch = self._move(batch, self._device, dataloader_idx)
        return self._convert(self._after(batch, dataloader_idx))


def _chosen(name: str, module: DataHooks, datamodule: DataHooks | None) -> Callable[..., Any]:
    if datamodule is not None and defines(datamodule, name):
        return getattr(datamodule, name)  # type: ignore[no-any-return]
    return getattr(module, name)  # type: ignore[no-any-return]
