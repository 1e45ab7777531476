"""Device: what moves tensors to where the model is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime import move_to_device

if TYPE_CHECKING:
    from torch.optim import Optimizer

__all__ = ["Device"]

_KINDS = {"cpu": "cpu", "gpu": "cuda", "mps": "mps"}

M = TypeVar("M", bound=torch.nn.Module)


class Device:
    """Where the model is.

    Args:
        name: `"cpu"`, `"gpu"`, `"mps"`, or None for the best that there is.

    Raises:
        OptionError: it is another one.
    """

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            has_mps = torch.backends.mps.is_available()
            name = "gpu" if torch.cuda.is_available() else "mps" if has_mps else "cpu"
        if name not in _KINDS:
            raise OptionError(
                f"Trainer(device={name!r}): must be 'cpu', 'gpu' or 'mps', or None for the best "
                "that there is. Choose one."
            )
        self.name = name
        self.torch_device = torch.device(_KINDS[name])

    def tensor_to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device."""
        return tensor.to(self.torch_device)

    def batch_to_device(self, batch: Any) -> Any:
        """Return a batch with its tensors on the device."""
        return move_to_device(batch, self.torch_device)

    def module_to_device(self, module: M) -> M:
        """Return a module on the device."""
        return module.to(self.torch_device)

    def optimizer_to_device(self, optimizer: Optimizer) -> Optimizer:
        """Return an optimizer with its state on the device."""
        for parameter, state in optimizer.state.items():
            optimizer.state[parameter] = move_to_device(state, self.torch_device)
        return optimizer

    def __repr__(self) -> str:
        return f"Device({self.name!r})"
