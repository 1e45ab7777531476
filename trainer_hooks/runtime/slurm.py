"""The tasks that SLURM has started: which this process is among them, and where they meet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["first_host", "number_in", "read_slurm"]

_FIRST_PORT, _PORTS = 15_000, 10_000
"""Where a job's port lies, which its number says; as in Lightning."""


def read_slurm(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return which of several tasks this process is, as a `Topology` has it; empty if it is none.

    A shell (`srun --pty bash`, `salloc`) is one process, whatever the job has room for. So is a job
    of one task.

    Raises:
        OptionError: the variables of SLURM tell too little, or do not fit each other.
    """
    tasks = _tasks(environ)
    if tasks == 1:
        return {}
    missing = [name for name in ("SLURM_PROCID", "SLURM_LOCALID") if not environ.get(name)]
    hosts = next((environ[name] for name in _HOSTS if environ.get(name)), "")
    if missing or not hosts:
        raise OptionError(
            f"SLURM_NTASKS={tasks} in the environment: "
            f"{', '.join(missing or ['SLURM_NODELIST'])} must be there too, by which the tasks "
            "find each other. Start them with srun, or pass "
            'Trainer(strategy="single_device") to let each train alone.'
        )
    nodes = number_in(environ, "SLURM_STEP_NUM_NODES", number_in(environ, "SLURM_NNODES", 1))
    node = number_in(environ, "SLURM_NODEID", 0)
    here = _tasks_of_nodes(environ, tasks, nodes)
    rank, local_rank = number_in(environ, "SLURM_PROCID", 0), number_in(environ, "SLURM_LOCALID", 0)
    if not (rank < tasks and node < len(here) and local_rank < here[node]):
        raise OptionError(
            f"SLURM_PROCID={rank}, SLURM_NODEID={node}, SLURM_LOCALID={local_rank} in the "
            f"environment: they do not fit {tasks} tasks on {nodes} machines ({here} tasks each)."
        )
    host = environ.get("MASTER_ADDR") or first_host(hosts)
    port = number_in(environ, "MASTER_PORT", _port(environ))
    return {
        "world_size": tasks, "global_rank": rank, "local_rank": local_rank, "node_rank": node,
        "local_world_size": here[node], "launcher": "SLURM", "nodes": nodes,
        "address": f"{host}:{port}", "reason": f"SLURM_NTASKS={tasks}",
    }  # fmt: skip


_HOSTS = ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")


def first_host(hosts: str) -> str:
    """Return the first of a list such as `node[01-03,7],other`, without asking scontrol."""
    # a comma inside of brackets does not end the first name, of which there may be several pairs
    name = re.match(r"(?:[^,\s\[]|\[[^\]]*\])*", hosts.strip())
    assert name is not None
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", name[0])


def _tasks(environ: Mapping[str, str]) -> int:
    job = environ.get("SLURM_JOB_NAME")
    if job == "bash":  # of `srun --pty bash`; Lightning goes by the same names
        return 1
    in_job = 1 if job == "interactive" else number_in(environ, "SLURM_NTASKS", 1)
    # srun inside of a job, also of one that is a shell, may start fewer tasks than that has
    return number_in(environ, "SLURM_STEP_NUM_TASKS", in_job)


def _tasks_of_nodes(environ: Mapping[str, str], tasks: int, nodes: int) -> list[int]:
    """Return how many tasks each machine has: of `2(x3),1` two on three, and one on another."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE", "")
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    if sum(found) == tasks:
        return found
    return [-(-(tasks - node) // nodes) for node in range(nodes)]


def _port(environ: Mapping[str, str]) -> int:
    return _FIRST_PORT + number_in(environ, "SLURM_JOB_ID", 0) % _PORTS


def number_in(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return a variable of the environment as a number.

    Raises:
        OptionError: it is none.
    """
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise OptionError(f"{name}={text!r} in the environment: must be an integer.") from None
