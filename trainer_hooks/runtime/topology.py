"""Read which rank this process is, from a process group, torchrun's variables or SLURM's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_BASE_PORT, _NUM_PORTS = 15_000, 10_000
"""First port for the rendezvous of SLURM jobs, offset by the job's number; as in Lightning."""


def _read_slurm(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a `Topology` for a task of SLURM, or an empty dict for a single process.

    A shell (`srun --pty bash`, `salloc`) is a single process, whatever the job has allocated. So is
    a job with one task.

    Raises:
        OptionError: variables of SLURM are missing or contradict each other.
    """
    tasks = _task_count(environ)
    if tasks == 1:
        return {}
    missing_names = [name for name in ("SLURM_PROCID", "SLURM_LOCALID") if not environ.get(name)]
    hosts = next((environ[name] for name in _NODELIST_VARIABLES if environ.get(name)), "")
    if missing_names or not hosts:
        raise OptionError(
            f"SLURM_NTASKS={tasks} in the environment: "
            f"{', '.join(missing_names or ['SLURM_NODELIST'])} must be there too, by which the "
            "tasks find each other. Start them with srun, or pass "
            'Trainer(strategy="single_device") to let each train alone.'
        )
    nodes = _int_from_environment(
        environ, "SLURM_STEP_NUM_NODES", _int_from_environment(environ, "SLURM_NNODES", 1)
    )
    node = _int_from_environment(environ, "SLURM_NODEID", 0)
    tasks_by_node = _tasks_per_node(environ, tasks, nodes)
    rank = _int_from_environment(environ, "SLURM_PROCID", 0)
    local_rank = _int_from_environment(environ, "SLURM_LOCALID", 0)
    if not (rank < tasks and node < len(tasks_by_node) and local_rank < tasks_by_node[node]):
        raise OptionError(
            f"SLURM_PROCID={rank}, SLURM_NODEID={node}, SLURM_LOCALID={local_rank} in the "
            f"environment: they do not fit {tasks} tasks on {nodes} machines ({tasks_by_node} "
            "tasks each)."
        )
    host = environ.get("MASTER_ADDR") or first_host(hosts)
    # by the job's number, so that two jobs on one node do not take each other's port
    default_port = _BASE_PORT + _int_from_environment(environ, "SLURM_JOB_ID", 0) % _NUM_PORTS
    port = _int_from_environment(environ, "MASTER_PORT", default_port)
    return {
        "world_size": tasks, "global_rank": rank, "local_rank": local_rank, "node_rank": node,
        "local_world_size": tasks_by_node[node], "launcher": "SLURM", "nodes": nodes,
        "address": f"{host}:{port}", "reason": f"SLURM_NTASKS={tasks}",
    }  # fmt: skip


_NODELIST_VARIABLES = ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")


def first_host(hosts: str) -> str:
    """Return the first host of a list such as `node[01-03,7],other`, without a call of scontrol."""
    # a comma in brackets does not end the first name, which may have several pairs of them
    name = re.match(r"(?:[^,\s\[]|\[[^\]]*\])*", hosts.strip())
    assert name is not None
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", name[0])


def _task_count(environ: Mapping[str, str]) -> int:
    """Return the number of tasks of the SLURM job step."""
    job_name = environ.get("SLURM_JOB_NAME")
    if job_name == "bash":  # the job of `srun --pty bash`; Lightning recognises the same names
        return 1
    tasks_of_job = (
        1 if job_name == "interactive" else _int_from_environment(environ, "SLURM_NTASKS", 1)
    )
    # srun inside a job, even an interactive one, may start fewer tasks than the job has.
    return _int_from_environment(environ, "SLURM_STEP_NUM_TASKS", tasks_of_job)


def _tasks_per_node(environ: Mapping[str, str], tasks: int, nodes: int) -> list[int]:
    """Return the number of tasks on each node: `2(x3),1` is two on three nodes, one on a fourth."""
    text = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE", "")
    fields: list[int] = []
    for count, repeats in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        fields += [int(count)] * int(repeats or 1)
    if sum(fields) == tasks:
        return fields
    return [-(-(tasks - node) // nodes) for node in range(nodes)]


def _int_from_environment(environ: Mapping[str, str], name: str, default: int) -> int:
    """Return an environment variable as an integer.

    Raises:
        OptionError: the value is not an integer.
    """
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise OptionError(f"{name}={text!r} in the environment: must be an integer.") from None


@dataclass(frozen=True, slots=True)
class Topology:
    """The ranks of a run, and which of them this process is.

    Attributes:
        world_size: number of ranks.
        global_rank: rank of this process.
        local_rank: rank of this process among those of its node.
        node_rank: index of this process's node.
        local_world_size: number of ranks on this node.
        launcher: name of the launcher, for messages; empty for one rank.
        nodes: number of nodes; 0 if it follows from the other numbers.
        address: `host:port` of the rendezvous; empty if torch reads it from the environment.
        starts: how this process is to launch the others: `"script"`, `"fork"` or `"spawn"`; empty
            if they run.
        reason: why the ranks were launched, for messages.
    """

    world_size: int = 1
    global_rank: int = 0
    local_rank: int = 0
    node_rank: int = 0
    local_world_size: int = 1
    launcher: str = ""
    nodes: int = 0
    address: str = ""
    starts: str = ""
    reason: str = ""

    @property
    def is_global_zero(self) -> bool:
        """Whether this is rank 0, which writes files and prints."""
        return self.global_rank == 0

    @property
    def starts_each_run(self) -> bool:
        """Whether this process launches all ranks for each run, and is none itself."""
        return self.starts in ("fork", "spawn")

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        # rounded up: the last node may have fewer ranks
        return self.nodes or -(-self.world_size // self.local_world_size)

    @property
    def origin(self) -> str:
        """Phrase for messages on who launched the ranks, and why."""
        if self.launcher == EXISTING:
            return f"in {EXISTING}"
        verb = {NOTEBOOK: "forked from", PROGRAM: "spawned from"}.get(self.launcher, "started by")
        return f"{verb} {self.launcher}{f' because {self.reason}' if self.reason else ''}"


SINGLE_PROCESS = Topology()
EXISTING = "a process group that was there"
SCRIPT = "this script"
NOTEBOOK = "this notebook"
PROGRAM = "this program"

STARTED = "TRAINER_HOOKS_STARTED"
"""Environment variable of a process that a Trainer has launched; its value names the launcher."""

_TORCHRUN_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR")


def read_topology(environ: Mapping[str, str] = os.environ) -> Topology:
    """Return the topology of this process, from its process group or else its environment.

    Raises:
        OptionError: variables of the launcher are missing or contradict each other.
    """
    if dist.is_available() and dist.is_initialized():
        return _topology_of_group(environ)
    # torchrun inside a SLURM job sets RANK, and then it is the launcher.
    if "RANK" not in environ and "SLURM_NTASKS" in environ:
        fields = _read_slurm(environ)
        if fields:
            return Topology(**fields)
    world_size = _int_from_environment(environ, "WORLD_SIZE", 1)
    return SINGLE_PROCESS if world_size == 1 else _topology_of_torchrun(environ, world_size)


def _topology_of_torchrun(environ: Mapping[str, str], world_size: int) -> Topology:
    """Return the topology from torchrun's variables, which our launcher sets as well."""
    missing_names = [name for name in _TORCHRUN_VARIABLES if name not in environ]
    if missing_names:
        raise OptionError(
            f"WORLD_SIZE={world_size} in the environment: {', '.join(missing_names)} must be there "
            f"too. Start it with torchrun --nproc-per-node {world_size} train.py, or unset "
            "WORLD_SIZE."
        )
    launcher = environ.get(STARTED, "torchrun")
    return Topology(
        world_size,
        _int_from_environment(environ, "RANK", 0),
        _int_from_environment(environ, "LOCAL_RANK", 0),
        _int_from_environment(environ, "GROUP_RANK", 0),
        _int_from_environment(environ, "LOCAL_WORLD_SIZE", 1),
        launcher,
        address=f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}" if STARTED in environ else "",
    )


def _topology_of_group(environ: Mapping[str, str]) -> Topology:
    """Return the topology from torch's default process group."""
    world_size, rank = dist.get_world_size(), dist.get_rank()
    if world_size == 1:
        return SINGLE_PROCESS
    local_world_size = _int_from_environment(environ, "LOCAL_WORLD_SIZE", world_size)
    return Topology(
        world_size,
        rank,
        _int_from_environment(environ, "LOCAL_RANK", rank % local_world_size),
        _int_from_environment(environ, "GROUP_RANK", rank // local_world_size),
        local_world_size,
        EXISTING,
    )
