"""Choose the device of a run, and handle its memory."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import torch

from trainer_hooks.errors import OptionError, did_you_mean, error_message
from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOT_THERE = f"torch {torch.__version__} finds no such device on this machine"
_ACCELERATORS = ("auto", "cpu", "cuda", "gpu", "mps")


def pick_device(
    accelerator: str,
    devices: int | str | Sequence[int],
    topology: Topology = SINGLE_PROCESS,
) -> torch.device:
    """Return the device of this process.

    Args:
        accelerator: `"auto"` (CUDA, then MPS, then the CPU), `"cpu"`, `"cuda"`, `"gpu"`, `"mps"`.
        devices: `"auto"`, a number, or a list of indices such as `[2]` or `"2,"`; each of several
            ranks uses the one at its local rank.
        topology: the ranks, and which of them this process is.

    Raises:
        OptionError: a value is unknown, asks for several processes, or for missing hardware.
    """
    if accelerator not in _ACCELERATORS:
        raise OptionError(
            f"Trainer(accelerator={accelerator!r}): must be one of {', '.join(_ACCELERATORS)}."
            f"{did_you_mean(str(accelerator), _ACCELERATORS)}"
        )
    devices = _check_devices(devices)
    # one rank may name any device; of several, each takes the one at its local rank
    is_single = topology.world_size == 1
    index = _device_index(devices) if is_single else _index_of_rank(devices, topology.local_rank)
    device_type = _available_type(accelerator)
    if device_type == "mps" and topology.world_size > 1:
        if accelerator != "auto":
            raise OptionError(
                f"Trainer(accelerator={accelerator!r}): torch has no collectives for MPS, so that "
                "several processes cannot train on it. Use accelerator='cpu', or one process."
            )
        device_type = "cpu"
    if device_type != "cuda":
        return torch.device(device_type)
    count = torch.cuda.device_count()
    # of ranks that are yet to be launched, check all
    ranks = range(topology.world_size) if topology.starts else [topology.local_rank]
    requested_indices = [index] if is_single else [_index_of_rank(devices, rank) for rank in ranks]
    if max(requested_indices) >= count:
        raise OptionError(
            f"Trainer(devices={devices!r}): this machine has {count} CUDA device(s), numbered 0 to "
            f"{count - 1}, and device {max(requested_indices)} is asked for. Ask for others, or "
            "start fewer processes."
        )
    if topology.starts_each_run:
        # a CUDA context does not survive a fork, so only the forked ranks may make one
        return torch.device("cpu")
    return torch.device("cuda", index)


def device_of_option(value: object, option: str, where: str) -> torch.device | None:
    """Return the device that an option names; None for None.

    Args:
        value: the option's value.
        option: its name, for messages.
        where: the owner of the option, for messages.

    Raises:
        OptionError: it is no device.
    """
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise TypeError
        return torch.device(value)  # type: ignore[call-overload, no-any-return]
    except (RuntimeError, TypeError) as error:
        # torch refuses every number where there is no accelerator
        is_number = isinstance(value, int) and not isinstance(value, bool)
        rule = "it must be a torch.device, its name or its number"
        raise OptionError(
            f"{option} {value!r} of {where}: {_NOT_THERE if is_number else rule}. Use 'cpu' "
            "or another."
        ) from error


def require_usable(device: torch.device | None, option: str, where: str) -> None:
    """Require that a device is there, and can hold data.

    Call it when a fit begins, not earlier: CUDA must not be used before a process is forked.

    Args:
        device: the device; None passes.
        option: the option that names it, for messages.
        where: the owner of the option, for messages.

    Raises:
        OptionError: it is not there, or is the meta device.
    """
    if device is None:
        return
    rule, cause = "", None
    if device.type == "meta":
        rule = "the meta device holds no data"
    else:
        try:
            torch.empty(1, device=device)
        # torch raises these two, by the kind of the device
        except (AssertionError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            rule, cause = _NOT_THERE, error
    if rule:
        raise OptionError(
            f"{option} {str(device)!r} of {where}: {rule}. Use 'cpu' or another."
        ) from cause


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use."""
    # a scheduler such as SLURM may give a process fewer CPUs than the machine has
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _available_type(accelerator: str) -> str:
    """Return the device type for an accelerator.

    Raises:
        OptionError: this machine has no such device.
    """
    has_cuda = torch.cuda.is_available()
    has_mps = torch.backends.mps.is_available()
    if accelerator in {"auto", "gpu"}:
        if has_cuda:
            return "cuda"
        if has_mps:
            return "mps"
        if accelerator == "auto":
            return "cpu"
    missing = {"cuda": not has_cuda, "mps": not has_mps, "gpu": True}.get(accelerator, False)
    if missing:
        raise OptionError(
            f"Trainer(accelerator={accelerator!r}): torch {torch.__version__} finds no such device "
            "on this machine. Use accelerator='auto' or 'cpu'."
        )
    return accelerator


def _check_devices(devices: object) -> str | int | list[int]:
    """Return `devices` as `"auto"`, a number, or a list of indices.

    Raises:
        OptionError: it is none of these, or names a device twice.
    """
    given: object = devices
    if isinstance(given, str) and given.strip() != "auto":
        parts = [part.strip() for part in given.split(",") if part.strip()]
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        # "2," is a list of one index, and "2" a number of devices
        given = numbers if "," in given or not numbers else numbers[0]
    if isinstance(given, str):
        return "auto"
    # a bool is an int, so that True would mean 1
    if isinstance(given, int) and not isinstance(given, bool) and (given > 0 or given == -1):
        return given
    if isinstance(given, list | tuple) and given:
        is_index = [type(index) is int and index >= 0 for index in given]
        if all(is_index) and len(set(given)) == len(given):
            return list(given)
    raise OptionError(
        f"Trainer(devices={devices!r}): must be 'auto', a number of devices above 0, -1 for all, "
        "or a list of different indices. Pass such as 2, [0] or [0, 1]; each device takes a "
        "process."
    )


def _index_of_rank(devices: str | int | list[int], local_rank: int) -> int:
    """Return the device index of one rank of several; the length of `devices` fits."""
    return devices[local_rank] if isinstance(devices, list) else local_rank


def _device_index(devices: str | int | list[int]) -> int:
    """Return the index of the single device that `devices` names.

    Raises:
        OptionError: it names several.
    """
    if devices in ("auto", 1) or (devices == -1 and torch.cuda.device_count() <= 1):
        return 0
    if isinstance(devices, list) and len(devices) == 1:
        return devices[0]
    raise OptionError(
        f"Trainer(devices={devices!r}): must be 'auto', 1, or a list with one index such as [0], "
        "in one process."
    )


_OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    # torch's CPU allocator raises a plain RuntimeError; the second is its text on Windows.
    "can't allocate memory",
    "not enough memory",
    "CUDNN_STATUS_NOT_SUPPORTED",  # cuDNN found no memory for its workspace
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports that memory ran out, on a device or the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(
        sign in error_message(error) for sign in _OUT_OF_MEMORY_TEXTS
    )


def free_memory() -> None:
    """Collect garbage and return the allocators' free blocks to the device."""
    # first: tensors in reference cycles hold their blocks until they are collected
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    if torch.backends.mps.is_available():
        torch.mps.empty_cache()
