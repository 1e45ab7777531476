"""The topology from environment variables, and errors for contradictory ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.strategy import resolve_strategy
from trainer_hooks.runtime.strategy_options import DDPStrategy, FSDPStrategy
from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology, first_host, read_topology

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "1",
    "MASTER_ADDR": "localhost",
}  # fmt: skip
SLURM = {
    "SLURM_NTASKS": "6", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1",
    "SLURM_NNODES": "3", "SLURM_NODELIST": "node[01-03]", "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NAME": "train",
}  # fmt: skip


def test_one_process_unless_told_otherwise():
    """An empty environment, and torchrun with one process, are one process."""
    assert read_topology({}) is SINGLE_PROCESS
    assert read_topology({"SLURM_NTASKS": "2", "SLURM_JOB_NAME": "bash"}) is SINGLE_PROCESS
    assert read_topology({"SLURM_NTASKS": "1"}) is SINGLE_PROCESS
    assert read_topology({**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}) is SINGLE_PROCESS


def test_the_variables_of_torchrun_are_read():
    """Ranks, world size and nodes come from torchrun's variables."""
    found = read_topology(TORCHRUN)
    assert found == Topology(4, 3, 1, 1, 2, "torchrun")
    assert found.origin == "started by torchrun"
    assert found.num_nodes == 2
    assert not found.is_global_zero


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"WORLD_SIZE": "2"}, "RANK, LOCAL_RANK, .* must be there.*torchrun --nproc-per-node 2"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE='two'"),
        ({"SLURM_NTASKS": "2"}, "SLURM_NTASKS=2.*SLURM_PROCID, SLURM_LOCALID must be there"),
        ({**SLURM, "SLURM_PROCID": "7"}, "SLURM_PROCID=7.*do not fit 6 tasks on 3 machines"),
        ({**SLURM, "SLURM_NODELIST": ""}, "SLURM_NODELIST must be there"),
    ],
)  # fmt: skip
def test_what_tells_too_little_is_refused(environ, words):
    """Several processes that cannot find each other are an error that says how to start them."""
    with pytest.raises(OptionError, match=words):
        read_topology(environ)


@pytest.mark.parametrize(
    ("strategy", "devices", "num_nodes", "environ", "words"),
    [
        ("auto", 2, 1, {**TORCHRUN, "WORLD_SIZE": "1", "RANK": "0"}, "would start 1 more"),
        ("single_device", 2, 1, {}, "each device takes a process"),
        ("ddp_notebook", 2, 1, TORCHRUN, "would start more"),
        ("auto", 4, 1, SLURM, "SLURM has 2 processes on this machine"),
        ("auto", 2, 2, SLURM, "6 processes on 3 machine"),
        ("auto", "auto", 2, {}, "torchrun --nnodes 2"),
        ("fsdpp", "auto", 1, {}, "Did you mean 'fsdp'"),
        ("dpp", "auto", 1, {}, "Did you mean 'ddp'"),
        ("single_device", "auto", 1, TORCHRUN, "each would train alone"),
        ("auto", 4, 1, TORCHRUN, "has 2 processes on this machine"),
        ("auto", "auto", 3, TORCHRUN, "4 processes on 2 machine"),
    ],
)
def test_options_that_do_not_fit_are_refused(strategy, devices, num_nodes, environ, words):
    """Devices, nodes and strategies that contradict the ranks are errors with a cure."""
    with pytest.raises(OptionError, match=words):
        resolve_strategy(strategy, devices, num_nodes, environ)


@pytest.mark.parametrize("devices", ["auto", 2, [0, 1], "0,1", -1, "2"])
def test_options_that_fit_are_taken(devices):
    """As many devices as there are processes on a machine, however they are spelt."""
    options = DDPStrategy(static_graph=True)
    assert resolve_strategy(options, devices, 2, TORCHRUN) == (read_topology(TORCHRUN), options)
    assert resolve_strategy("ddp", 1, 1, {})[0] is SINGLE_PROCESS
    found = resolve_strategy("ddp_find_unused_parameters_true", "auto", 1, TORCHRUN)[1]
    assert found.find_unused_parameters


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ddp_comm_hook": "fp16"}, r"DDPStrategy\(ddp_comm_hook='fp16'\): must be a function"),
        ({"ddp_comm_hook": print, "ddp_comm_wrapper": 3}, "ddp_comm_wrapper=3"),
        ({"ddp_comm_state": {}}, r"DDPStrategy\(ddp_comm_state=...\): it is for a ddp_comm_hook"),
        ({"ddp_comm_wrapper": print}, r"DDPStrategy\(ddp_comm_wrapper=...\): it is for"),
    ],
)
def test_what_is_to_average_gradients_is_a_function(options, words):
    """A hook or wrapper that is no function, or has nothing to wrap, is an error at once."""
    with pytest.raises(OptionError, match=words):
        DDPStrategy(**options)


def test_the_variables_of_slurm_are_read():
    """Ranks, world size, nodes, address and port come from srun's variables."""
    found = read_topology(SLURM)
    assert found == Topology(
        6, 3, 1, 1, 2, "SLURM", 3, "node01:18456", reason="SLURM_NTASKS=6"
    )  # fmt: skip
    assert resolve_strategy("auto", 2, 3, SLURM)[0] == found
    own = {**SLURM, "MASTER_ADDR": "head", "MASTER_PORT": "5"}
    assert read_topology(own).address == "head:5"
    uneven = {**SLURM, "SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "1,2(x2)"}
    assert [read_topology(uneven).local_world_size, read_topology(uneven).num_nodes] == [2, 3]


@pytest.mark.parametrize(
    ("more", "world_size"),
    [
        ({"SLURM_JOB_NAME": "bash"}, 1),
        ({"SLURM_JOB_NAME": "interactive"}, 1),
        ({"SLURM_NTASKS": "1"}, 1),
        ({"SLURM_STEP_NUM_TASKS": "1"}, 1),
        ({"SLURM_JOB_NAME": "interactive", "SLURM_STEP_NUM_TASKS": "6"}, 6),
        ({**TORCHRUN}, 4),
    ],
)
def test_a_shell_of_slurm_is_one_process(more, world_size):
    """What runs in a shell, in a step of one task, or under torchrun is no task of several."""
    assert read_topology({**SLURM, **more}).world_size == world_size


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node07", "node07"),
        ("node[01-03,7],other", "node01"),
        ("a-b.c,d", "a-b.c"),
        ("rack[2-4]node[08,10].x", "rack2node08.x"),
        ("n[5]", "n5"),
        ("n1 n2", "n1"),
    ],
)
def test_the_first_host_is_found_without_scontrol(hosts, first):
    """The first name of a host list is taken apart here, brackets and ranges and all."""
    assert first_host(hosts) == first


@pytest.mark.posix  # Windows forks no process
@pytest.mark.parametrize("devices", [2, "2", [0, 1], "0,1"])
def test_one_process_is_to_start_the_others(devices):
    """Several devices without a launcher are processes that the Trainer starts, or forks."""
    found = resolve_strategy("auto", devices, 1, {})[0]
    assert (found.world_size, found.global_rank, found.local_world_size) == (2, 0, 2)
    assert resolve_strategy("ddp_notebook", devices, 1, {})[0].starts == "fork"
    assert f"because devices={devices!r}" in found.origin


def test_tasks_that_are_to_train_alone_may():
    """`single_device` lets each task of SLURM train for itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_NTASKS", "2")
        patch.setenv("SLURM_PROCID", "0")
        assert resolve_strategy("single_device", "auto", 1)[0] is SINGLE_PROCESS


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (DDPStrategy, {"process_group_backend": "mpi"}, "process_group_backend='mpi'.*'nccl' or"),
        (DDPStrategy, {"start_method": "other"}, "start_method='other'.* must be 'popen'"),
        (FSDPStrategy, {"process_group_backend": "x"}, r"FSDPStrategy\(process_group_backend='x'"),
        (FSDPStrategy, {"limit_all_gathers": False}, "limit_all_gathers=False.* Leave it out"),
        (FSDPStrategy, {"use_orig_params": False}, "use_orig_params=False.* Leave it out"),
        (FSDPStrategy, {"sharding_strategy": "NO_SHARD"}, "'NO_SHARD'.* take a DDPStrategy"),
        (FSDPStrategy, {"sharding_strategy": "HYBRID_SHARD"}, r"Pass device_mesh=\(replicas"),
        (
            FSDPStrategy,
            {"activation_checkpointing": int, "activation_checkpointing_policy": int},
            "both say the same",
        ),
    ],
)
def test_an_option_of_lightnings_strategies_that_is_not_there(kind, options, words):
    """It is refused as the strategy is made, with what to write."""
    with pytest.raises(OptionError, match=words):
        kind(**options)


def test_older_options_of_lightnings_fsdp_are_taken():
    """`sharding_strategy` says whether layers release their weights; a name of torch's will do."""
    named = SimpleNamespace(name="SHARD_GRAD_OP")
    assert FSDPStrategy(sharding_strategy="FULL_SHARD").reshard_after_forward is True
    assert FSDPStrategy(sharding_strategy=named).reshard_after_forward is False
    hybrid = FSDPStrategy(sharding_strategy="HYBRID_SHARD", device_mesh=(2, 2))
    assert hybrid.reshard_after_forward is True
    given = FSDPStrategy(sharding_strategy="FULL_SHARD", reshard_after_forward=False)
    assert given.reshard_after_forward is False
    options = FSDPStrategy(activation_checkpointing=int, limit_all_gathers=True)
    assert options.activation_checkpointing_policy is int


@pytest.mark.posix  # Windows forks no process
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_are_started_by_a_start_method(method):
    """`DDPStrategy(start_method="fork")` is the strategy `ddp_fork`; so is `ddp_spawn`."""
    started = resolve_strategy(DDPStrategy(start_method=method), 2, 1, {})[0]
    assert started == resolve_strategy(f"ddp_{method}", 2, 1, {})[0]
    name = f"ddp_{method}_find_unused_parameters_true"
    topology, options = resolve_strategy(name, 2, 1, {})
    assert (topology, options.find_unused_parameters) == (started, True)
    assert (topology.starts, topology.starts_each_run) == (method, True)
