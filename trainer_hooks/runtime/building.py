"""Layers made on the device, in the precision, and with the memory that a run gives them."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_hooks.runtime.precision import Precision
    from trainer_hooks.runtime.processes import Processes

__all__ = ["building"]


@contextmanager
def building(
    device: torch.device, precision: Precision, processes: Processes, is_empty: bool | None
) -> Iterator[None]:
    """Let layers be made as the run will have them.

    Args:
        device: where the run is.
        precision: what its layers are of.
        processes: whether each has a shard only, which is taken from layers without memory.
        is_empty: whether first weights are left out; None for what costs least and is complete.
    """
    on_meta = processes.is_sharded and is_empty is not False
    without_weights = _WithoutFirstWeights() if is_empty and not on_meta else nullcontext()
    place = torch.device("meta") if on_meta else device
    with precision.building_context(), place, without_weights:
        yield


class _WithoutFirstWeights(TorchFunctionMode):
    """Leaves tensors as they are where `torch.nn.init` would fill them."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, or return the tensor that it would fill."""
        options = kwargs or {}
        if getattr(function, "__module__", None) == torch.nn.init.__name__:
            return options["tensor"] if "tensor" in options else args[0]
        return function(*args, **options)
