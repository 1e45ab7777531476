"""`trainer.strategy` and `trainer.accelerator`, as callbacks of Lightning get them."""

from __future__ import annotations

import sys
from typing import Any

import torch

from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.runtime import move_to_device

__all__ = ["AcceleratorView", "StrategyView"]


def _kind_in(module: str, name: str, otherwise: type) -> type:
    """Return a class of Lightning's where the module that holds it is imported.

    Args:
        module: its name.
        name: the class's.
        otherwise: what is returned where it is not.
    """
    found: type = getattr(sys.modules.get(module), name, otherwise)
    return found


class AcceleratorView(View):
    """`trainer.accelerator`, for which `isinstance` says which of Lightning's it is.

    Args:
        target: the trainer's.
        home: Lightning's package.
    """

    __slots__ = ("_home",)

    _home: str

    def __init__(self, target: Any, home: str) -> None:
        super().__init__(target)
        object.__setattr__(self, "_home", home)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind = self.view_target.root_device.type.upper()
        return _kind_in(f"{self._home}.accelerators", f"{kind}Accelerator", AcceleratorView)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise lacking("Trainer.accelerator", "Lightning", name) from None


class StrategyView(View):
    """`trainer.strategy`: the processes; its module is the one that callbacks get.

    Args:
        target: the trainer's.
        trainer: the view of the trainer.
        home: Lightning's package.
    """

    __slots__ = ("_home", "_view")

    _home: str

    def __init__(self, target: Any, trainer: Any, home: str) -> None:
        super().__init__(target)
        object.__setattr__(self, "_view", trainer)
        object.__setattr__(self, "_home", home)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        target = self.view_target
        name = "DDPStrategy" if target.is_several else "SingleDeviceStrategy"
        return _kind_in(
            f"{self._home}.strategies", "FSDPStrategy" if target.is_sharded else name, StrategyView
        )

    @property
    def accelerator(self) -> AcceleratorView:
        """The kind of device."""
        return AcceleratorView(self.view_target.accelerator, self._home)

    @property
    def num_processes(self) -> int:
        """The number of processes of this machine."""
        return int(self.view_target.topology.local_world_size)

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return int(self.view_target.topology.num_nodes)

    @property
    def parallel_devices(self) -> list[torch.device]:
        """The device of each process of this machine."""
        kind = self.root_device.type
        places = self._view.device_ids
        return [torch.device(kind) if kind == "cpu" else torch.device(kind, i) for i in places]

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """Reduce a tensor over all processes in place, as there; anything else stays as it is.

        Args:
            tensor: it; of one shape on all.
            group: a group of torch's; all unless given.
            reduce_op: a name, or an operation of torch's.
        """
        if not isinstance(tensor, torch.Tensor) or self.view_target.world_size == 1:
            return tensor
        name = reduce_op if reduce_op is None else str(reduce_op).rpartition(".")[2].lower()
        with torch.no_grad():
            return tensor.copy_(self.view_target.reduce(tensor, group, name))

    @property
    def lightning_module(self) -> Any:
        """The module, as callbacks get it."""
        return self._view.lightning_module

    @property
    def model(self) -> Any:
        """The same."""
        return self._view.lightning_module

    @property
    def precision_plugin(self) -> Any:
        """Lightning's own object for the precision."""
        return self._view.precision_plugin

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return the tensors of all processes; in one process the tensor as it is, as there."""
        if self.view_target.world_size == 1:
            return tensor
        return self.view_target.all_gather(tensor, group, sync_grads)

    def batch_to_device(self, batch: Any, device: Any = None, dataloader_idx: int = 0) -> Any:
        """Return a batch where the module is, by way of its transfer hooks."""
        module = self.view_target.lightning_module
        if module is None:
            return move_to_device(batch, device or self.view_target.root_device)
        device = device or module.device
        batch = module.on_before_batch_transfer(batch, dataloader_idx)
        batch = module.transfer_batch_to_device(batch, device, dataloader_idx)
        return module.on_after_batch_transfer(batch, dataloader_idx)

    @property
    def optimizers(self) -> Any:
        """The optimizers; those that are set make the next step."""
        return self.view_target.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Any) -> None:
        self.view_target.optimizers = optimizers

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        """Give the optimizers the states of a checkpoint."""
        for optimizer, state in zip(
            self.view_target.optimizers, checkpoint["optimizer_states"], strict=True
        ):
            optimizer.load_state_dict(state)

    def load_model_state_dict(self, checkpoint: Any, strict: bool = True) -> None:
        """Give the module the weights of a checkpoint."""
        self.view_target.lightning_module.load_state_dict(checkpoint["state_dict"], strict=strict)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise lacking("Trainer.strategy", "Lightning", name) from None
