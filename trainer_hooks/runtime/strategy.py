"""The strategies that `Trainer(strategy=...)` takes, and whether one fits the processes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError, nearest
from trainer_hooks.runtime.topology import Topology, read_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["DDPStrategy", "choose_processes"]

_NAMES = ("auto", "ddp", "ddp_find_unused_parameters_true", "single_device")


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
        strategy: `"auto"`, `"ddp"`, `"ddp_find_unused_parameters_true"`, `"single_device"`, or a
            `DDPStrategy`.
        devices: as the Trainer takes it.
        num_nodes: likewise.
        environ: the environment; that of this process unless given.

    Raises:
        OptionError: a value is unknown, or does not fit the processes that were started.
    """
    if not isinstance(strategy, DDPStrategy) and strategy not in _NAMES:
        later = " Sharded training is not available yet." if strategy == "fsdp" else ""
        raise OptionError(
            f"Trainer(strategy={strategy!r}): must be one of {', '.join(_NAMES)}, or a DDPStrategy."
            f"{later}{nearest(str(strategy), _NAMES)}"
        )
    options = strategy if isinstance(strategy, DDPStrategy) else DDPStrategy()
    if strategy == "ddp_find_unused_parameters_true":
        options = DDPStrategy(find_unused_parameters=True)
    found = _read(strategy, environ)
    if found.world_size == 1:
        _require_one(devices, num_nodes)
        return found, options
    if strategy == "single_device":
        raise OptionError(
            f"Trainer(strategy='single_device'): {found.launcher} has {found.world_size} "
            "processes, and each would train alone. Leave strategy at 'auto', or start one."
        )
    _require_fitting(found, devices, num_nodes)
    return found, options


def _read(strategy: str | DDPStrategy, environ: Mapping[str, str] | None) -> Topology:
    if strategy == "single_device" and environ is None:
        import os

        # tasks of SLURM that each train alone, as was asked for
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
    return read_topology() if environ is None else read_topology(environ)


def wanted(devices: int | str | Sequence[int]) -> int | None:
    """Return how many devices of a machine are asked for; None where that is left open."""
    if isinstance(devices, bool):
        return None  # `pick_device` says what is wrong with it
    if isinstance(devices, int):
        return devices if devices > 0 else None
    if isinstance(devices, str):
        text = devices.strip()
        if "," in text:
            return len([part for part in text.split(",") if part.strip()])
        return int(text) if text.isdecimal() and int(text) else None
    return len(devices) if isinstance(devices, list | tuple) else None


def _require_one(devices: int | str | Sequence[int], num_nodes: int) -> None:
    if num_nodes != 1:
        raise OptionError(
            f"Trainer(num_nodes={num_nodes!r}): this is one process on one machine. Start it on "
            f"each of them with torchrun --nnodes {num_nodes} --nproc-per-node N --rdzv-endpoint "
            "HOST:PORT train.py, or leave num_nodes out."
        )
    count = wanted(devices)
    if count is not None and count > 1:
        raise OptionError(
            f"Trainer(devices={devices!r}): this is one process, and each device takes one. Start "
            f"it with torchrun --nproc-per-node {count} train.py, or leave devices at 'auto'."
        )


def _require_fitting(found: Topology, devices: int | str | Sequence[int], num_nodes: int) -> None:
    count = wanted(devices)
    here = found.local_world_size
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
