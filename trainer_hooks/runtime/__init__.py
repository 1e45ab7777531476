"""What a run stands on: device, precision, ranks, random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.runtime.device import pick_device
    from trainer_hooks.runtime.memento import Memento
    from trainer_hooks.runtime.memory import free_memory, is_out_of_memory
    from trainer_hooks.runtime.precision import Precision, make_precision
    from trainer_hooks.runtime.rng import OwnNumbers, isolated, seed_everything
    from trainer_hooks.runtime.topology import SINGLE_PROCESS, require_single_process
    from trainer_hooks.runtime.transfer import first_tensor, map_tensors, move_to_device

__all__ = [
    "SINGLE_PROCESS",
    "Memento",
    "OwnNumbers",
    "Precision",
    "first_tensor",
    "free_memory",
    "is_out_of_memory",
    "isolated",
    "make_precision",
    "map_tensors",
    "move_to_device",
    "pick_device",
    "require_single_process",
    "seed_everything",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "Memento": "memento",
            "OwnNumbers": "rng",
            "Precision": "precision",
            "SINGLE_PROCESS": "topology",
            "first_tensor": "transfer",
            "free_memory": "memory",
            "is_out_of_memory": "memory",
            "isolated": "rng",
            "make_precision": "precision",
            "map_tensors": "transfer",
            "move_to_device": "transfer",
            "pick_device": "device",
            "require_single_process": "topology",
            "seed_everything": "rng",
        },
    )
