"""Ports, environment variables and signal handlers as a launcher of processes chooses them."""

from __future__ import annotations

import os
import signal
import socket

_OF_LAUNCHERS = ("SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "PYTEST")


def free_port() -> int:
    """Return the number of a port of this machine that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def unlaunched() -> dict[str, str]:
    """Return this process's environment without the variables of a launcher and of pytest."""
    return {k: v for k, v in os.environ.items() if not k.startswith(_OF_LAUNCHERS)}


def heed_ctrl_c() -> None:
    """Set Python's own handler of Ctrl-C; the `preexec_fn` of a process that is to heed it.

    A shell lets a job in the background ignore SIGINT, and its children inherit that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)


def slurm_job(tasks: int = 2) -> dict[str, str]:
    """Return the variables of a job of SLURM on this machine; `srun` adds those of each task."""
    return {
        "SLURM_NTASKS": str(tasks), "SLURM_NNODES": "1", "SLURM_NODEID": "0", "SLURM_JOB_ID": "77",
        "SLURM_NODELIST": "localhost", "SLURM_JOB_NAME": "train", "MASTER_PORT": str(free_port()),
    }  # fmt: skip
