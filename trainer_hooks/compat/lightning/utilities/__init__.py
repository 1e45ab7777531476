"""Helpers, where Lightning has them."""

from __future__ import annotations

import pickle
import warnings

from trainer_hooks.compat.lightning.rank_zero_experiment import rank_zero_experiment
from trainer_hooks.compat.lightning.utilities.enums import GradClipAlgorithmType
from trainer_hooks.compat.refusing import refusing
from trainer_hooks.errors import TrainerHooksAdvice
from trainer_hooks.runtime import usable_cpus
from trainer_hooks.utilities import (
    AttributeDict,
    CombinedLoader,
    grad_norm,
    is_overridden,
    measure_flops,
    move_data_to_device,
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
)

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "GradClipAlgorithmType",
    "disable_possible_user_warnings",
    "grad_norm",
    "is_overridden",
    "is_picklable",
    "measure_flops",
    "move_data_to_device",
    "rank_zero_deprecation",
    "rank_zero_experiment",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "suggested_max_num_workers",
]

__getattr__ = refusing(
    __name__,
    {
        "LightningEnum": "derive from enum.StrEnum",
        "find_shared_parameters": "compare module.named_parameters(remove_duplicate=False) by id",
        "is_shared_filesystem": "all processes of a machine know the same paths; pass paths that "
        "all machines share",
        "set_shared_parameters": "assign the parameter to both attributes",
    },
)


def disable_possible_user_warnings(module: str = "") -> None:
    """Give no more advice on how a run could be set up better.

    Args:
        module: a pattern of the modules for whose code none is given; all unless given.
    """
    warnings.filterwarnings("ignore", module=module, category=TrainerHooksAdvice)


def is_picklable(obj: object) -> bool:
    """Return whether an object can be pickled."""
    try:
        pickle.dumps(obj)
    except (pickle.PickleError, AttributeError, RuntimeError, TypeError):
        return False
    return True


def suggested_max_num_workers(local_world_size: int) -> int:
    """Return how many workers a loader should have at most, of so many processes on a machine.

    Args:
        local_world_size: the processes of this machine, at least 1.

    Raises:
        ValueError: there is less than one process.
    """
    if local_world_size < 1:
        raise ValueError(
            f"local_world_size {local_world_size!r}: must be at least 1. Pass the number of "
            "processes on this machine."
        )
    return max(1, usable_cpus() // local_world_size)
