"""A device that stands in for an accelerator: it is not the host, and each visit to it is noted.

Tensors of it have no data (torch's `meta` device), so that nothing can be read from them by chance:
what asks for a value gets 0.5, and is noted with the place of the run where it asked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer_hooks import Callback

__all__ = ["DEVICE", "Place", "StandIn"]

DEVICE = torch.device("meta")


class Place(Callback):
    """Knows which batch is under way; None outside of the training batches."""

    def __init__(self) -> None:
        self.batch: int | None = None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.batch = trainer.progress.batches_completed

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_last_batch:  # what comes now is the epoch's end
            self.batch = None

    def on_validation_start(self, trainer, module):
        self.batch = None


class StandIn(TorchDispatchMode):
    """Lets torch compute on the device, and counts copies between it and the host.

    Attributes:
        reads: how often the host waited for a value of the device, by batch.
        sent: how many tensors went to the device, by batch.
        blocking: how many of these were sent so that the host waits.
    """

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.reads: Counter[int | None] = Counter()
        self.sent: Counter[int | None] = Counter()
        self.blocking = 0
        self._place = place

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        name = func.__name__.partition(".")[0]
        source = next((one for one in args if isinstance(one, torch.Tensor)), None)
        is_there = source is not None and source.device == DEVICE
        if name == "_local_scalar_dense" and is_there:
            self.reads[self._place.batch] += 1
            return 0.5 if source.is_floating_point() else 1
        target = given.get("device")
        if name == "_to_copy" and target is not None:
            if is_there and target.type == "cpu":
                self.reads[self._place.batch] += 1
                return torch.full(source.shape, 0.5, dtype=given.get("dtype") or source.dtype)
            if not is_there and target == DEVICE:
                self.sent[self._place.batch] += 1
                self.blocking += not given.get("non_blocking", False)
        if name == "copy_" and args[0].device.type == "cpu" and args[1].device == DEVICE:
            self.reads[self._place.batch] += 1
            return args[0]
        return func(*args, **given)
