"""`trainer.strategy` and `trainer.accelerator`: where and among whom a trainer works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import checkpoint as files
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

    from torch.optim import Optimizer

    from trainer_hooks.module import LRSchedulerConfig, Module
    from trainer_hooks.runtime import Precision
    from trainer_hooks.trainer.run import Session

__all__ = ["AcceleratorView", "StrategyView", "refuse_storage_options"]


class AcceleratorView:
    """The kind of device that a trainer uses.

    Args:
        device: the device of this process.
    """

    def __init__(self, device: torch.device) -> None:
        self.root_device = device

    def name(self) -> str:
        """Return the kind: `"cpu"`, `"cuda"` or `"mps"`."""
        return self.root_device.type

    def is_available(self) -> bool:
        """Return whether there is such a device, as there is."""
        return True

    def auto_device_count(self) -> int:
        """Return how many of the kind this machine has; 1 of the CPU."""
        return torch.cuda.device_count() if self.root_device.type == "cuda" else 1

    def get_device_stats(self, device: str | torch.device | int) -> dict[str, Any]:
        """Return what torch counts of a CUDA device's memory; of others nothing."""
        found = torch.device(device)
        return torch.cuda.memory_stats(found) if found.type == "cuda" else {}

    def __repr__(self) -> str:
        return f"<accelerator {str(self.root_device)!r}>"


class StrategyView:
    """The processes of a trainer, with what they train.

    All that concerns the processes alone is theirs: `broadcast`, `barrier`, `reduce`, `all_gather`,
    `reduce_boolean_decision`, `root_device`, and the ranks.

    Args:
        session: the trainer's.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session.processes, name)

    @property
    def accelerator(self) -> AcceleratorView:
        """The kind of device."""
        return AcceleratorView(self._session.device)

    @property
    def precision_plugin(self) -> Precision:
        """What forwards run in, with the scaler if there is one."""
        return self._session.precision

    @property
    def lightning_module(self) -> Module | None:
        """The module of the run, or of the last one."""
        return self._session.module

    @property
    def model(self) -> Any:
        """The same as it is called: what `torch.compile` returned, where it was given so."""
        session = self._session
        return session.module if session.compiled is None else session.compiled

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers. May be set, as `trainer.optimizers`."""
        return self._session.training.optimization.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        self._session.change_optimizers(optimizers)

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The schedulers and when they step."""
        return self._session.training.optimization.schedulers

    def save_checkpoint(
        self,
        checkpoint: Mapping[str, Any],
        filepath: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Write what `trainer.dump_checkpoint()` returned, whole or not at all; rank 0 writes.

        Args:
            checkpoint: it, or another mapping of plain data and tensors.
            filepath: a path or an address; its folder is made.
            storage_options: None; how a store is reached is set up where fsspec is.

        Raises:
            CheckpointStateError: a value cannot be loaded back safely; it is named.
            CheckpointError: it cannot be written.
            OptionError: `storage_options` is not None.
        """
        refuse_storage_options(storage_options, "trainer.strategy.save_checkpoint")
        if self._session.processes.is_global_zero:
            encoder = files.Encoder(checkpoint)
            plain = {
                key: value
                if files.find_foreign(value) is None
                else files.encode_state(value, f"checkpoint[{key!r}]", encoder)
                for key, value in checkpoint.items()
            }
            files.write_checkpoint(plain, filepath)

    def remove_checkpoint(self, filepath: str | os.PathLike[str]) -> None:
        """Remove a checkpoint, at a path or an address; rank 0 does. One that is gone is none."""
        if self._session.processes.is_global_zero:
            files.remove(files.located(filepath))

    def __repr__(self) -> str:
        processes = self._session.processes
        return f"<strategy of rank {processes.global_rank} of {processes.world_size}>"


def refuse_storage_options(options: Any, where: str) -> None:
    """Make sure that nothing is asked for that only a store of one's own could heed.

    Raises:
        OptionError: something is.
    """
    if options is not None:
        raise OptionError(
            f"{where}(storage_options={options!r}): must be None. How a store such as s3:// is "
            "reached is fsspec's own configuration: its environment variables, or a file in "
            "~/.config/fsspec."
        )
