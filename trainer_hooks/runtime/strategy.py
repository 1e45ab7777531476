"""Strategies of `Trainer(strategy=...)`, and the check that one fits the ranks.

`resolve_strategy` reads who launched this process, or plans a launch for `Trainer(devices=2)`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from trainer_hooks._system import IS_WINDOWS
from trainer_hooks.errors import OptionError, did_you_mean
from trainer_hooks.runtime.strategy_options import DDPStrategy, FSDPStrategy
from trainer_hooks.runtime.topology import (
    NOTEBOOK,
    PROGRAM,
    SCRIPT,
    SINGLE_PROCESS,
    STARTED,
    Topology,
    read_topology,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.runtime.process_group import ProcessGroup

_STARTS = {"ddp_notebook": "fork", "ddp_fork": "fork", "ddp_spawn": "spawn"}
"""The strategies that start all ranks for each run, and how."""
_UNUSED = {
    f"{name}_find_unused_parameters_{word}": word == "true"
    for name in ("ddp", *_STARTS)
    for word in ("true", "false")
}
_NAMES = ("auto", "ddp", *_UNUSED, "fsdp", *_STARTS, "single_device")


def _start_of(name: object) -> str:
    """Return how a strategy of a name starts all ranks for each run; empty if it does not."""
    if not isinstance(name, str):
        return ""
    return next((how for start, how in _STARTS.items() if name.startswith(start)), "")


def _plan_launch(
    start: str,
    devices: int | str | Sequence[int],
    count: int,
    environ: Mapping[str, str] | None,
) -> Topology:
    """Return the topology of the ranks that this single process has to launch; nothing starts yet.

    Args:
        start: `"fork"` or `"spawn"` for ranks that are started so even in a script; else empty.
        devices: the Trainer's option.
        count: the number of ranks that it asks for.
        environ: environment variables; by default those of this process.

    Raises:
        OptionError: a launcher has started this process.
    """
    has_group = dist.is_available() and dist.is_initialized()
    if has_group or "RANK" in (os.environ if environ is None else environ):
        launched_by = "a process group of one process" if has_group else "torchrun with one process"
        raise OptionError(
            f"Trainer(devices={devices!r}): {launched_by} is there, and the Trainer would start "
            f"{count - 1} more beside it. Start it with torchrun --nproc-per-node {count}, or "
            "without a launcher."
        )
    from trainer_hooks.runtime.launcher import can_rerun_command

    is_script = not start and can_rerun_command()
    if start == "spawn" and IS_WINDOWS:
        raise OptionError(
            f"Trainer(devices={devices!r}, strategy='ddp_spawn'): not on Windows. Take "
            "strategy='ddp', which runs the script again."
        )
    if not is_script and IS_WINDOWS:
        raise OptionError(
            f"Trainer(devices={devices!r}): this process would have to fork, which Windows cannot. "
            "Run a script or `python -m MODULE`, with strategy='ddp'; a notebook trains in one "
            "process there."
        )
    if not is_script and start != "spawn":
        # by default torch.cuda.is_available initialises the driver, after which no forked process
        # can use CUDA; the check through NVML does not
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return Topology(
        count,
        local_world_size=count,
        launcher=SCRIPT if is_script else PROGRAM if start == "spawn" else NOTEBOOK,
        starts="script" if is_script else start or "fork",
        reason=f"devices={devices!r}",
    )


def _requested_device_count(devices: int | str | Sequence[int]) -> int | None:
    """Return the number of devices per node that the option asks for; None if left open."""
    if isinstance(devices, bool):
        return None  # `pick_device` raises the error
    if devices in (-1, "-1") and torch.cuda.device_count() > 1:
        return torch.cuda.device_count()
    if isinstance(devices, int):
        return devices if devices > 0 else None
    if isinstance(devices, str):
        text = devices.strip()
        if "," in text:
            return len([part for part in text.split(",") if part.strip()])
        return int(text) if text.isdecimal() and int(text) else None
    return len(devices) if isinstance(devices, list | tuple) else None


def make_process_group(
    device: torch.device, topology: Topology, options: DDPStrategy | FSDPStrategy
) -> ProcessGroup:
    """Return the group of ranks for a strategy; the arguments are those of `ProcessGroup`."""
    # imported here: a run of one rank loads no process group, and DDP loads nothing of FSDP
    if isinstance(options, DDPStrategy):
        from trainer_hooks.runtime.process_group import ProcessGroup

        return ProcessGroup(device, topology, options)
    from trainer_hooks.runtime.fsdp import ShardedGroup

    return ShardedGroup(device, topology, options)


def resolve_strategy(
    strategy: str | DDPStrategy | FSDPStrategy,
    devices: int | str | Sequence[int],
    num_nodes: int,
    environ: Mapping[str, str] | None = None,
) -> tuple[Topology, DDPStrategy | FSDPStrategy]:
    """Return the ranks of a trainer and the options of its strategy.

    Args:
        strategy: `"auto"`, `"ddp"`, `"ddp_find_unused_parameters_true"` or `..._false`,
            `"ddp_notebook"`, `"ddp_spawn"`, `"fsdp"`, `"single_device"`, a `DDPStrategy`, or an
            `FSDPStrategy`.
        devices: the Trainer's option.
        num_nodes: the Trainer's option.
        environ: environment variables; by default those of this process.

    Raises:
        OptionError: a value is unknown, or does not fit the ranks that were launched.
    """
    options: DDPStrategy | FSDPStrategy
    if isinstance(strategy, DDPStrategy | FSDPStrategy):
        options = strategy
    elif strategy in _NAMES:
        finds_unused = _UNUSED.get(strategy, False)
        options = (
            FSDPStrategy()
            if strategy == "fsdp"
            else DDPStrategy(find_unused_parameters=finds_unused)
        )
    else:
        hint = did_you_mean(str(strategy), _NAMES)
        owner = type(strategy).__module__.partition(".")[0]
        if owner in ("lightning", "pytorch_lightning"):
            name = type(strategy).__name__
            name = name if name in ("DDPStrategy", "FSDPStrategy") else "DDPStrategy"
            raise OptionError(
                f"Trainer(strategy=...): it is a {type(strategy).__name__} of {owner}'s. Write "
                f"trainer_hooks.{name}, which takes the same arguments."
            )
        raise OptionError(
            f"Trainer(strategy={strategy!r}): must be one of {', '.join(_NAMES)}, a DDPStrategy or "
            f"an FSDPStrategy.{hint}"
        )
    topology = _read_topology(strategy, environ)
    if topology.world_size == 1:
        if num_nodes != 1:
            raise OptionError(
                f"Trainer(num_nodes={num_nodes!r}): this is one process on one machine. Start it "
                f"on each of them with torchrun --nnodes {num_nodes} --nproc-per-node N "
                "--rdzv-endpoint HOST:PORT train.py, or leave num_nodes out."
            )
        count = _requested_device_count(devices) or 1
        if count > 1 and strategy == "single_device":
            raise OptionError(
                f"Trainer(strategy='single_device', devices={devices!r}): each device takes a "
                "process. Leave strategy at 'auto', or devices."
            )
        if count > 1:
            method = getattr(options, "start_method", "popen")
            start = _start_of(strategy) or ("" if method == "popen" else method)
            topology = _plan_launch(start, devices, count, environ)
        return topology, options
    if strategy == "single_device":
        raise OptionError(
            f"Trainer(strategy='single_device'): {topology.launcher} has {topology.world_size} "
            "processes, and each would train alone. Leave strategy at 'auto', or start one."
        )
    if _start_of(strategy) and topology.launcher not in (NOTEBOOK, PROGRAM):
        raise OptionError(
            f"Trainer(strategy={strategy!r}): {topology.launcher} has started "
            f"{topology.world_size} processes already, and this would start more. Leave strategy "
            "at 'auto'."
        )
    _require_matching_counts(topology, devices, num_nodes)
    return topology, options


def _read_topology(strategy: object, environ: Mapping[str, str] | None) -> Topology:
    """Return the topology of this process, which `single_device` reduces to one rank."""
    if strategy == "single_device" and environ is None:
        if STARTED in os.environ and not dist.is_initialized():
            return SINGLE_PROCESS  # as in the process that launched this one
        # each task of SLURM trains alone, as `single_device` asks for
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return read_topology() if environ is None else read_topology(environ)


def _require_matching_counts(
    topology: Topology, devices: int | str | Sequence[int], num_nodes: int
) -> None:
    """Check that the numbers of devices and nodes equal those of the ranks that were launched.

    Raises:
        OptionError: they do not.
    """
    count = _requested_device_count(devices)
    local_world_size = topology.local_world_size
    # the launched ranks run the whole script, and so make every trainer in it
    if topology.launcher == SCRIPT and count != local_world_size:
        raise OptionError(
            f"Trainer(devices={devices!r}): this script has started {local_world_size} processes "
            "for another Trainer, each of which runs all of it, and would train this one alone. "
            f"Pass devices={local_world_size} to each Trainer, or train in one process in a script "
            "of its own."
        )
    if count is not None and count != local_world_size:
        raise OptionError(
            f"Trainer(devices={devices!r}): {topology.launcher} has {local_world_size} processes "
            "on this machine. Leave devices at 'auto', or start it with torchrun --nproc-per-node "
            f"{count}."
        )
    if num_nodes not in (1, topology.num_nodes):
        raise OptionError(
            f"Trainer(num_nodes={num_nodes!r}): {topology.launcher} has {topology.world_size} "
            f"processes on {topology.num_nodes} machine(s). Leave num_nodes out, or start it on "
            f"{num_nodes}."
        )
