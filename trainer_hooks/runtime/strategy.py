"""The strategies that `Trainer(strategy=...)` takes, and whether one fits the processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch.distributed as dist

from trainer_hooks._lazy import class_if_loaded
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
    from collections.abc import Callable, Mapping, Sequence

    from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy

__all__ = ["DDPStrategy", "choose_processes"]

_FORKS = ("ddp_notebook", "ddp_fork")
_NAMES = ("auto", "ddp", "ddp_find_unused_parameters_true", "fsdp", *_FORKS, "single_device")
_INSTEAD = {
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
        ddp_comm_hook: averages the gradients of a bucket in place of torch: a function of its state
            and the bucket, of `torch.distributed.algorithms.ddp_comm_hooks` or your own. A step of
            one that is not of that package's `default_hooks` costs a small reduction more, with
            which the processes agree. What it keeps is in no checkpoint.
        ddp_comm_state: what that function is given as its state, as a `PowerSGDState`.
        ddp_comm_wrapper: makes another function of it, as `fp16_compress_wrapper` does.
        timeout: how long one process waits for another in a collective.
        patience: how long all processes must stand still, each waiting for something else, until
            they are ended, as none can ever go on. One that is at work is waited for.

    Raises:
        OptionError: a value breaks its rule.
    """

    find_unused_parameters: bool = False
    static_graph: bool = False
    gradient_as_bucket_view: bool = False
    broadcast_buffers: bool = True
    bucket_cap_mb: float | None = None
    ddp_comm_hook: Callable[[Any, Any], Any] | None = None
    ddp_comm_state: object = None
    ddp_comm_wrapper: Callable[[Any], Any] | None = None
    timeout: timedelta = timedelta(minutes=30)
    patience: timedelta = timedelta(seconds=10)

    def __post_init__(self) -> None:
        hook, wrapper = self.ddp_comm_hook, self.ddp_comm_wrapper
        for name, value in (("ddp_comm_hook", hook), ("ddp_comm_wrapper", wrapper)):
            if value is not None and not callable(value):
                raise OptionError(f"DDPStrategy({name}={value!r}): must be a function, or None.")
        if hook is None and (self.ddp_comm_state is not None or wrapper is not None):
            given = "ddp_comm_wrapper" if wrapper is not None else "ddp_comm_state"
            raise OptionError(
                f"DDPStrategy({given}=...): it is for a ddp_comm_hook, and there is none. Pass one."
            )

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
    strategy: str | DDPStrategy | FSDPStrategy,
    devices: int | str | Sequence[int],
    num_nodes: int,
    environ: Mapping[str, str] | None = None,
) -> tuple[Topology, DDPStrategy | FSDPStrategy]:
    """Return the processes of a trainer, and how they train together.

    Args:
        strategy: `"auto"`, `"ddp"`, `"ddp_find_unused_parameters_true"`, `"ddp_notebook"`,
            `"fsdp"`, `"single_device"`, a `DDPStrategy`, or an `FSDPStrategy`.
        devices: as the Trainer takes it.
        num_nodes: likewise.
        environ: the environment; that of this process unless given.

    Raises:
        OptionError: a value is unknown, or does not fit the processes that were started.
    """
    fsdp = class_if_loaded("trainer_hooks.runtime.fsdp_strategy", "FSDPStrategy")
    is_given = isinstance(strategy, (DDPStrategy, fsdp))
    if not is_given and strategy not in _NAMES:
        more = _INSTEAD.get(str(strategy)) or nearest(str(strategy), _NAMES)
        raise OptionError(
            f"Trainer(strategy={strategy!r}): must be one of {', '.join(_NAMES)}, a DDPStrategy or "
            f"an FSDPStrategy.{more}"
        )
    options: DDPStrategy | FSDPStrategy = DDPStrategy()
    if is_given:
        options = cast("DDPStrategy | FSDPStrategy", strategy)
    elif strategy == "fsdp":
        from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy

        options = FSDPStrategy()
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


def _read(strategy: object, environ: Mapping[str, str] | None) -> Topology:
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
