"""Helpers for users' own code, at Lightning's path."""

from __future__ import annotations

import pickle
from enum import StrEnum
from functools import wraps
from typing import TYPE_CHECKING, Any
from warnings import filterwarnings  # the module would hide the submodule `warnings`

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import measure_flops
from trainer_hooks.checkpoint.hparams import HyperParameters as AttributeDict
from trainer_hooks.compat.lightning.modules import lightning_getattr
from trainer_hooks.data.loaders import CombinedLoader
from trainer_hooks.errors import ModuleError, OptionError, TrainerHooksAdvice, did_you_mean
from trainer_hooks.loggers import DummyLogger
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.device import usable_cpus
from trainer_hooks.runtime.nested_tensors import map_tensors, move_to_device
from trainer_hooks.runtime.rank_zero import (
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from trainer_hooks.loggers import Logger

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

__getattr__ = lightning_getattr(__name__, {})


# --- modules and gradients ---


def grad_norm(
    module: nn.Module, norm_type: float | int | str, group_separator: str = "/"
) -> dict[str, Tensor]:
    """Return the norm of each parameter's gradient, and that of all together, for `log_dict`.

    Nothing is copied from the device. For `on_before_optimizer_step`, where gradients are
    complete::

        def on_before_optimizer_step(self, optimizer):
            self.log_dict(grad_norm(self, norm_type=2))

    Args:
        module: the module whose gradients are measured; parameters without one are left out.
        norm_type: the p of the p-norm, or `"inf"`.
        group_separator: text between the norm's name and the parameter's name.

    Returns:
        0-dim tensors, as `grad_2.0_norm/layer.weight`, and `grad_2.0_norm_total` unless there is no
        gradient.

    Raises:
        OptionError: `norm_type` is no positive number.
    """
    p = float(norm_type)
    if not p > 0:  # NaN is refused too
        raise OptionError(
            f"grad_norm(norm_type={norm_type!r}): must be a positive number, or 'inf'. The usual "
            "one is 2."
        )
    norms = {
        f"grad_{p}_norm{group_separator}{name}": torch.linalg.vector_norm(parameter.grad, p)
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    if norms:
        # of one device and type, as parameters may be on several devices and in several precisions
        device = next(iter(norms.values())).device
        stacked = torch.stack([norm.to(device, torch.float32) for norm in norms.values()])
        norms[f"grad_{p}_norm_total"] = torch.linalg.vector_norm(stacked, p)
    return norms


def is_overridden(
    method_name: str, instance: object | None = None, parent: type[Any] | None = None
) -> bool:
    """Return whether an object has a method of its own, in its class or on itself.

    Args:
        method_name: the method, as `"training_step"`.
        instance: the object; of None nothing is overridden.
        parent: the class whose method it would be otherwise; `Module`, `DataModule` or `Callback`
            unless given.

    Raises:
        ModuleError: the object is none of them and `parent` is not given, or that has no such
            method.
    """
    if instance is None:
        return False
    if parent is None:
        kinds = (Module, DataModule, Callback)
        parent = next((kind for kind in kinds if isinstance(instance, kind)), None)
    if parent is None:
        raise ModuleError(
            f"is_overridden({method_name!r}, {type(instance).__qualname__}): it is no Module, "
            "DataModule or Callback. Pass parent=, the class that defines the method first."
        )
    if not hasattr(parent, method_name):
        raise ModuleError(
            f"is_overridden({method_name!r}): {parent.__qualname__} has no such method."
            f"{did_you_mean(method_name, dir(parent))}"
        )
    method = vars(instance).get(method_name, getattr(type(instance), method_name, None))
    return method is not None and method is not getattr(parent, method_name)


class GradClipAlgorithmType(StrEnum):
    """The values of `Trainer(gradient_clip_algorithm=...)`."""

    VALUE = "value"
    NORM = "norm"

    @staticmethod
    def supported_type(val: str) -> bool:
        """Return whether a text names an algorithm."""
        # a list: before Python 3.12, `in` of an enum is a TypeError for a text
        return val in list(GradClipAlgorithmType)

    @staticmethod
    def supported_types() -> list[str]:
        """Return the names of all algorithms."""
        return [str(algorithm) for algorithm in GradClipAlgorithmType]


# --- tensors and objects ---


def move_data_to_device(batch: Any, device: str | torch.device | int) -> Any:
    """Return a batch with its tensors, and objects that have a `to(device)`, on a device.

    Containers of any nesting are rebuilt; objects that hold no tensor stay as they are. Pinned host
    memory is copied to a GPU without blocking.

    Args:
        batch: a tensor, or any nesting of them.
        device: the device; a number is that of a GPU.
    """
    return move_to_device(batch, torch.device(device))


def recursive_detach(in_dict: Any, to_cpu: bool = False) -> Any:
    """Return a nesting of dicts, lists and tuples with its tensors detached.

    Args:
        in_dict: the nesting.
        to_cpu: whether the tensors are copied to the host.
    """
    return map_tensors(in_dict, lambda t: t.detach().cpu() if to_cpu else t.detach())


def is_picklable(obj: object) -> bool:
    """Return whether an object can be pickled."""
    try:
        pickle.dumps(obj)
    # a local function is an AttributeError, a lock or an open file a TypeError
    except (pickle.PickleError, AttributeError, RuntimeError, TypeError):
        return False
    return True


# --- processes, workers, warnings ---


def rank_zero_experiment(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorate a logger's `experiment`: on ranks other than 0 it returns one that does nothing.

    Args:
        fn: returns the object that writes.
    """
    on_rank_zero = rank_zero_only(fn)

    @wraps(fn)
    def experiment(self: Logger) -> Any:
        # None on the other ranks
        writer = on_rank_zero(self)
        return DummyLogger().experiment if writer is None else writer

    return experiment


def suggested_max_num_workers(local_world_size: int) -> int:
    """Return how many workers a loader should have at most, by the CPUs that a process may use.

    Args:
        local_world_size: the number of processes on this machine, at least 1.

    Raises:
        ValueError: there is less than one process.
    """
    if local_world_size < 1:
        raise ValueError(
            f"local_world_size {local_world_size!r}: must be at least 1. Pass the number of "
            "processes on this machine."
        )
    return max(1, usable_cpus() // local_world_size)


def disable_possible_user_warnings(module: str = "") -> None:
    """Silence the advice on how a run could be set up better.

    Args:
        module: a pattern of the modules for whose code it is silenced; all unless given.
    """
    filterwarnings("ignore", module=module, category=TrainerHooksAdvice)
