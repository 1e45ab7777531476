"""What `Module.all_gather` does with the tensors and numbers in a nesting."""

from __future__ import annotations

from numbers import Number
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.runtime import map_tensors

if TYPE_CHECKING:
    from trainer_hooks.runtime import Processes

__all__ = ["gathered"]


def gathered(
    processes: Processes, device: torch.device, data: Any, group: Any, sync_grads: bool
) -> Any:
    """Return `data` with each tensor and number as those of all processes together."""

    def gather(item: Any) -> Tensor:
        tensor = item if isinstance(item, Tensor) else torch.tensor(item, device=device)
        return processes.all_gather(tensor, group, sync_grads)

    return map_tensors(data, gather, extra=lambda item: isinstance(item, Number))
