"""What a run stands on: device, precision, ranks, random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.runtime.attempt import Notes, can_be_restarted
    from trainer_hooks.runtime.building import building
    from trainer_hooks.runtime.copy_stream import CopyStream
    from trainer_hooks.runtime.device import pick_device, usable_cpus
    from trainer_hooks.runtime.fsdp_strategy import FSDPStrategy
    from trainer_hooks.runtime.gradient_sync import GradientSync
    from trainer_hooks.runtime.grouping import group_of
    from trainer_hooks.runtime.launch import environment_of, tie_to_parent
    from trainer_hooks.runtime.memento import Memento
    from trainer_hooks.runtime.memory import free_memory, is_out_of_memory
    from trainer_hooks.runtime.precision import Precision, make_precision
    from trainer_hooks.runtime.process_group import ProcessGroup
    from trainer_hooks.runtime.processes import Processes
    from trainer_hooks.runtime.rank_zero import (
        rank_zero_debug,
        rank_zero_deprecation,
        rank_zero_info,
        rank_zero_only,
        rank_zero_warn,
    )
    from trainer_hooks.runtime.rng import OwnNumbers, isolated, reseed, seed_everything
    from trainer_hooks.runtime.sharded_group import ShardedGroup
    from trainer_hooks.runtime.sharded_sync import ShardedSync
    from trainer_hooks.runtime.sharded_tensors import change_tensors, taken_apart
    from trainer_hooks.runtime.strategy import DDPStrategy, choose_processes
    from trainer_hooks.runtime.topology import SINGLE_PROCESS, Topology
    from trainer_hooks.runtime.transfer import first_tensor, map_tensors, move_to_device

__all__ = [
    "SINGLE_PROCESS",
    "CopyStream",
    "DDPStrategy",
    "FSDPStrategy",
    "GradientSync",
    "Memento",
    "Notes",
    "OwnNumbers",
    "Precision",
    "ProcessGroup",
    "Processes",
    "ShardedGroup",
    "ShardedSync",
    "Topology",
    "building",
    "can_be_restarted",
    "change_tensors",
    "choose_processes",
    "environment_of",
    "first_tensor",
    "free_memory",
    "group_of",
    "is_out_of_memory",
    "isolated",
    "make_precision",
    "map_tensors",
    "move_to_device",
    "pick_device",
    "rank_zero_debug",
    "rank_zero_deprecation",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "reseed",
    "seed_everything",
    "taken_apart",
    "tie_to_parent",
    "usable_cpus",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "CopyStream": "copy_stream",
            "DDPStrategy": "strategy",
            "FSDPStrategy": "fsdp_strategy",
            "GradientSync": "gradient_sync",
            "Memento": "memento",
            "Notes": "attempt",
            "OwnNumbers": "rng",
            "Precision": "precision",
            "ProcessGroup": "process_group",
            "Processes": "processes",
            "ShardedGroup": "sharded_group",
            "change_tensors": "sharded_tensors",
            "taken_apart": "sharded_tensors",
            "ShardedSync": "sharded_sync",
            "SINGLE_PROCESS": "topology",
            "Topology": "topology",
            "building": "building",
            "can_be_restarted": "attempt",
            "choose_processes": "strategy",
            "environment_of": "launch",
            "first_tensor": "transfer",
            "free_memory": "memory",
            "group_of": "grouping",
            "is_out_of_memory": "memory",
            "isolated": "rng",
            "make_precision": "precision",
            "map_tensors": "transfer",
            "move_to_device": "transfer",
            "pick_device": "device",
            "rank_zero_debug": "rank_zero",
            "rank_zero_deprecation": "rank_zero",
            "rank_zero_info": "rank_zero",
            "rank_zero_only": "rank_zero",
            "rank_zero_warn": "rank_zero",
            "reseed": "rng",
            "seed_everything": "rng",
            "tie_to_parent": "launch",
            "usable_cpus": "device",
        },
    )
