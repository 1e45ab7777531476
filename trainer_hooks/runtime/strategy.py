"""The strategies that `Trainer(strategy=...)` takes, and whether one fits the processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from trainer_hooks.errors import OptionError, nearest
from trainer_hooks.runtime.starting import require_one, to_start, wanted
from trainer_hooks.runtime.topology import (
    NOTEBOOK,
    SCRIPT,
    SINGLE_PROCESS,
    STARTED,
    Topology,
    read_topology,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DDPStrategy", "choose_processes"]

_FORKS = ("ddp_notebook", "ddp_fork")
_NAMES = ("auto", "ddp", "ddp_find_unused_parameters_true", *_FORKS, "single_device")
_INSTEAD = {
    "fsdp": " Sharded training is not available yet.",
    "ddp_spawn": " Processes that are spawned get pickled copies of all that is trained with: use "
    "'ddp', which runs the script again, or 'ddp_notebook', which forks.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DDPStrategy:
    """Train in several processes, each with all weights: torch's DistributedDataParallel.

    The arguments are that class's; see its documentation for more.

    Args:
        find_unused_parameters: whether parameters may get no gradient in a step. It costs a walk
            through the graph; without it such a parameter is an error that names it.
        static_graph: whether every step is alike, which allows more; no batch can be skipped then.
        gradient_as_bucket_view: whether gradients lie in the memory that is communicated.
        broadcast_buffers: whether buffers are rank 0's at the first forward of each window.
        bucket_cap_mb: megabytes that are communicated together; None for torch's choice.
        timeout: how long one process waits for another in a collective.
        patience: how long all processes must stand still, each waiting for something else, until
            they are ended, as none can ever go on. One that is at work is waited for.
    """

    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def arguments(self) -> dict[str, Any]:
        """Return what DistributedDataParallel is given."""
        given: dict[str, Any] = {
            "find_unused_parameters": self.find_unused_parameters,
            "static_graph": self.static_graph,
            "gradient_as_bucket_view": self.gradient_as_bucket_view,
        }
        if not self.broadcast_buffers:  # newer releases of torch warn of the name
            given["broadcast_buffers"] = False
        if self.bucket_cap_mb is not None:
            given["bucket_cap_mb"] = self.bucket_cap_mb
        return given


def choose_processes(
    strategy: str | DDPStrategy,
    devices: int | str | Sequence[int],
    num_nodes: int,
    environ: Mapping[str, str] | None = None,
) -> tuple[Topology, DDPStrategy]:
    """Return the processes of a trainer, and how they train together.

    Args:
        strategy: `"auto"`, `"ddp"`, `"ddp_find_unused_parameters_true"`, `"ddp_notebook"`,
            `"single_device"`, or a `DDPStrategy`.
        devices: as the Trainer takes it.
        num_nodes: likewise.
        environ: the environment; that of this process unless given.

    Raises:
        OptionError: a value is unknown, or does not fit the processes that were started.
    """
    if not isinstance(strategy, DDPStrategy) and strategy not in _NAMES:
        more = _INSTEAD.get(str(strategy)) or nearest(str(strategy), _NAMES)
        raise OptionError(
            f"Trainer(strategy={strategy!r}): must be one of {', '.join(_NAMES)}, or a DDPStrategy."
            f"{more}"
        )
    options = strategy if isinstance(strategy, DDPStrategy) else DDPStrategy()
    if strategy == "ddp_find_unused_parameters_true":
        options = DDPStrategy(find_unused_parameters=True)
    found = _read(strategy, environ)
    if found.world_size == 1 and strategy == "single_device":
        require_one(devices, num_nodes)
        return found, options
    if found.world_size == 1:
        return to_start(strategy in _FORKS, devices, num_nodes, environ), options
    if strategy == "single_device":
        raise OptionError(
            f"Trainer(strategy='single_device'): {found.launcher} has {found.world_size} "
            "processes, and each would train alone. Leave strategy at 'auto', or start one."
        )
    if strategy in _FORKS and found.launcher != NOTEBOOK:
        raise OptionError(
            f"Trainer(strategy={strategy!r}): {found.launcher} has started {found.world_size} "
            "processes already, and this would fork more. Leave strategy at 'auto'."
        )
    _require_fitting(found, devices, num_nodes)
    return found, options


def _read(strategy: str | DDPStrategy, environ: Mapping[str, str] | None) -> Topology:
    if strategy == "single_device" and environ is None:
        if STARTED in os.environ and not dist.is_initialized():
            return SINGLE_PROCESS  # as in the process that has started this one
        # tasks of SLURM that each train alone, as was asked for
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return read_topology() if environ is None else read_topology(environ)


def _require_fitting(found: Topology, devices: int | str | Sequence[int], num_nodes: int) -> None:
    count = wanted(devices)
    here = found.local_world_size
    if found.launcher == SCRIPT and count != here:
        raise OptionError(
            f"Trainer(devices={devices!r}): this script has started {here} processes for another "
            "Trainer, each of which runs all of it, and would train this one alone. Pass devices="
            f"{here} to each Trainer, or train in one process in a script of its own."
        )
    if count is not None and count != here:
        raise OptionError(
            f"Trainer(devices={devices!r}): {found.launcher} has {here} processes on this machine. "
            f"Leave devices at 'auto', or start it with torchrun --nproc-per-node {count}."
        )
    if num_nodes not in (1, found.num_nodes):
        raise OptionError(
            f"Trainer(num_nodes={num_nodes!r}): {found.launcher} has {found.world_size} processes "
            f"on {found.num_nodes} machine(s). Leave num_nodes out, or start it on {num_nodes}."
        )
