"""What torch does to the state of an optimizer that it loads, and how that is undone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import torch
    from torch.optim import Optimizer

__all__ = ["keep_dtypes"]


def keep_dtypes(
    optimizer: Optimizer, saved: Mapping[str, Any], dtypes: Collection[torch.dtype]
) -> None:
    """Put back the tensors that torch has cast to the dtype of their parameter, on its device.

    torch takes each floating-point tensor of a state for one like the parameter, which the product
    of NAdam's momenta is not.

    Args:
        optimizer: has taken `saved` back.
        saved: its state.
        dtypes: those of the weights when it was saved; empty if that is not known.
    """
    indices = [index for group in saved["param_groups"] for index in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    states = saved.get("state", {})  # an optimizer of one's own may keep its states elsewhere
    for index, parameter in zip(indices, parameters, strict=True):
        if index in states and (not dtypes or parameter.dtype in dtypes):
            _as_saved(optimizer.state.get(parameter), states[index])


def _as_saved(loaded: Any, saved: Any) -> Any:
    """Return part of a loaded state, which may be changed, its tensors of the dtypes of `saved`."""
    if isinstance(loaded, Tensor) and isinstance(saved, Tensor):
        return loaded if loaded.dtype is saved.dtype else saved.to(loaded.device)
    if isinstance(loaded, dict) and isinstance(saved, dict):
        for key in loaded.keys() & saved.keys():
            loaded[key] = _as_saved(loaded[key], saved[key])
        return loaded
    is_sequence = isinstance(loaded, list | tuple) and type(loaded) is type(saved)
    if is_sequence and len(loaded) == len(saved):
        return type(loaded)(map(_as_saved, loaded, saved))
    return loaded
