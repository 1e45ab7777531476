"""Where a trainer works: its processes, and the device of this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import log
from trainer_hooks.errors import OptionError
from trainer_hooks.runtime import DDPStrategy, Processes, choose_processes, pick_device

if TYPE_CHECKING:
    import torch

    from trainer_hooks.trainer.options import TrainerConfig

__all__ = ["processes_of"]


def processes_of(config: TrainerConfig) -> tuple[Processes, torch.device]:
    """Return the processes that options ask for, and the device of this one.

    Raises:
        OptionError: there is no such device or strategy, or BatchNorm cannot be shared there.
    """
    topology, options = choose_processes(config.strategy, config.devices, config.num_nodes)
    device = pick_device(config.accelerator, config.devices, topology)
    if topology.world_size > 1 and topology.starts != "fork":
        from trainer_hooks.runtime import group_of

        processes = group_of(device, topology, options)
        if config.sync_batchnorm and device.type != "cuda":
            raise OptionError(
                f"Trainer(sync_batchnorm=True): torch's SyncBatchNorm needs GPUs, and this is "
                f"{device.type}. Leave it out."
            )
        return processes, device
    if topology.world_size == 1 and not isinstance(options, DDPStrategy):
        log.info("strategy 'fsdp' in one process: its weights are not sharded")
    return Processes(device, topology), device
