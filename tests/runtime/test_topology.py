"""Which process this is, as the environment says, and what does not fit it."""

from __future__ import annotations

import pytest

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.strategy import DDPStrategy, choose_processes
from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology, read_topology

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "MASTER_ADDR": "localhost",
}  # fmt: skip


def test_one_process_unless_told_otherwise():
    """An empty environment, and torchrun with one process, are one process."""
    assert read_topology({}) is SINGLE_PROCESS
    assert read_topology({"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "bash"}) is SINGLE_PROCESS
    assert read_topology({"SLURM_NTASKS": "1"}) is SINGLE_PROCESS
    assert read_topology({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is SINGLE_PROCESS


def test_the_variables_of_torchrun_are_read():
    """Rank, world, machine and their number come from what torchrun sets."""
    found = read_topology(TORCHRUN)
    assert found == Topology(4, 3, 1, 1, 2, "torchrun")
    assert found.num_nodes == 2
    assert not found.is_global_zero


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, .* must be there.*torchrun --nproc-per-node 2"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two'"),
        ({"SLURM_NTASKS": "2"}, "SLURM_NTASKS=2.*torchrun"),
    ],
)  # fmt: skip
def test_what_tells_too_little_is_refused(environ, words):
    """Several processes that cannot find each other are an error that says how to start them."""
    with pytest.raises(OptionError, match=words):
        read_topology(environ)


@pytest.mark.parametrize(
    ("strategy", "devices", "num_nodes", "environ", "words"),
    [
        ("auto", 2, 1, {}, "torchrun --nproc-per-node 2 train.py"),
        ("ddp", "0,1", 1, {}, "torchrun --nproc-per-node 2 train.py"),
        ("auto", "auto", 2, {}, "torchrun --nnodes 2"),
        ("fsdpp", "auto", 1, {}, "Did you mean 'fsdp'"),
        ("dpp", "auto", 1, {}, "Did you mean 'ddp'"),
        ("single_device", "auto", 1, TORCHRUN, "each would train alone"),
        ("auto", 4, 1, TORCHRUN, "has 2 processes on this machine"),
        ("auto", "auto", 3, TORCHRUN, "4 processes on 2 machine"),
    ],
)
def test_options_that_do_not_fit_are_refused(strategy, devices, num_nodes, environ, words):
    """Devices, machines and strategies that are not those of the processes say what to do."""
    with pytest.raises(OptionError, match=words):
        choose_processes(strategy, devices, num_nodes, environ)


@pytest.mark.parametrize("devices", ["auto", 2, [0, 1], "0,1", -1, "2"])
def test_options_that_fit_are_taken(devices):
    """As many devices as there are processes on a machine, however they are spelt."""
    options = DDPStrategy(static_graph=True)
    assert choose_processes(options, devices, 2, TORCHRUN) == (read_topology(TORCHRUN), options)
    assert choose_processes("ddp", 1, 1, {})[0] is SINGLE_PROCESS
    found = choose_processes("ddp_find_unused_parameters_true", "auto", 1, TORCHRUN)[1]
    assert found.find_unused_parameters


def test_tasks_that_are_to_train_alone_may():
    """`single_device` lets each task of SLURM train for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_NTASKS", "2")
        patch.setenv("SLURM_PROCID", "0")
        assert choose_processes("single_device", "auto", 1)[0] is SINGLE_PROCESS
