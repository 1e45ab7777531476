"""Helpers for users' own code, under Lightning's names; `modules` has their paths."""

from __future__ import annotations

import inspect
import os
import pickle
import random
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self
from warnings import filterwarnings

import torch
import torch.distributed as dist

from trainer_hooks._version import __version__
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import measure_flops
from trainer_hooks.checkpoint.hparams import HyperParameters as AttributeDict
from trainer_hooks.data.loaders import CombinedLoader
from trainer_hooks.errors import ModuleError, OptionError, TrainerHooksAdvice, did_you_mean
from trainer_hooks.loggers import DummyLogger
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.device import usable_cpus
from trainer_hooks.runtime.nested_tensors import map_tensors, move_to_device
from trainer_hooks.runtime.rank_zero import (
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_only,
    rank_zero_warn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from torch import Tensor, nn

    from trainer_hooks.loggers import Logger

__all__ = [
    "AttributeDict",
    "CombinedLoader",
    "GradClipAlgorithmType",
    "Interval",
    "LightningEnum",
    "cli_lightning_logo",
    "disable_possible_user_warnings",
    "find_shared_parameters",
    "get_filesystem",
    "get_human_readable_count",
    "get_init_args",
    "get_torchvision_model",
    "grad_norm",
    "is_overridden",
    "is_picklable",
    "isolate_rng",
    "measure_flops",
    "move_data_to_device",
    "pl_worker_init_function",
    "rank_zero_deprecation",
    "rank_zero_experiment",
    "rank_zero_info",
    "rank_zero_only",
    "rank_zero_warn",
    "recursive_detach",
    "set_shared_parameters",
    "sized_len",
    "suggested_max_num_workers",
]

# --- random numbers ---


@contextmanager
def isolate_rng(include_cuda: bool = True) -> Iterator[None]:  # noqa: ARG001 - see there
    """Restore all global generators afterwards, so that code inside leaves no trace in them.

    Args:
        include_cuda: those of CUDA are restored in any case.
    """
    with rng.isolated():
        yield


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
    # None switches a method off
    return method is not None and method is not getattr(parent, method_name)


def find_shared_parameters(module: nn.Module) -> list[list[str]]:
    """Return the names of the parameters that are one and the same, a list for each of them.

    Args:
        module: the module, with all submodules.
    """
    names: dict[int, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [shared for shared in names.values() if len(shared) > 1]


def set_shared_parameters(module: nn.Module, shared_params: list[list[str]]) -> nn.Module:
    """Make parameters one and the same again, the first of each list, and return the module.

    Args:
        module: the module.
        shared_params: the value of `find_shared_parameters`.
    """
    for first, *others in shared_params:
        parameter = module.get_parameter(first)
        for name in others:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, parameter)
    return module


def get_torchvision_model(model_name: str, **kwargs: Any) -> nn.Module:
    """Return a model of torchvision.

    Args:
        model_name: the model's name, as `"resnet18"`.
        kwargs: arguments of the model, as `weights`.

    Raises:
        ImportError: torchvision is not installed.
    """
    # by its name, since it is an optional package
    try:
        models = import_module("torchvision.models")
    except ImportError as error:
        raise ImportError(
            f"get_torchvision_model({model_name!r}): torchvision is not installed. Install it: "
            "pip install torchvision."
        ) from error
    model: nn.Module = models.get_model(model_name, **kwargs)
    return model


def get_human_readable_count(number: int) -> str:
    """Return a number with three digits at most and a letter for thousands, millions and so on.

    Args:
        number: a number of parameters, from 0 on.
    """
    scale = min((len(str(number)) - 1) // 3, 4)
    shown = number / 1000**scale
    text = f"{shown:,.1f}" if scale and shown < 100 else f"{int(shown):,}"
    return f"{text} {' KMBT'[scale]}"


class LightningEnum(StrEnum):
    """A base of enums of texts, which are compared in any case."""

    @classmethod
    def from_str(cls, value: str) -> Self | None:
        """Return the member of a value or name in any case, or None."""
        text = value.lower()
        return next(
            (member for member in cls if text in (member.value.lower(), member.name.lower())), None
        )

    def __eq__(self, other: object) -> bool:
        text = other.value if isinstance(other, LightningEnum) else other
        return isinstance(text, str) and self.value.lower() == text.lower()

    def __hash__(self) -> int:
        return hash(self.value.lower())


class Interval(LightningEnum):
    """The values of `Timer(interval=...)`."""

    STEP = "step"
    EPOCH = "epoch"


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


def get_init_args(frame: FrameType) -> dict[str, Any]:
    """Return the arguments of the `__init__` that a frame runs, those in `**kwargs` one by one.

    Args:
        frame: as `inspect.currentframe()` returns it; of another function there are none.
    """
    # `__class__` is in the frame of a method that calls super(), whose class is known by that
    if frame.f_code.co_name != "__init__" or "__class__" not in frame.f_locals:
        return {}
    arguments = inspect.getargvalues(frame)
    values = {name: arguments.locals[name] for name in arguments.args[1:]}
    return values | (arguments.locals[arguments.keywords] if arguments.keywords else {})


def is_picklable(obj: object) -> bool:
    """Return whether an object can be pickled."""
    try:
        pickle.dumps(obj)
    # a local function is an AttributeError, a lock or an open file a TypeError
    except (pickle.PickleError, AttributeError, RuntimeError, TypeError):
        return False
    return True


def get_filesystem(path: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Return fsspec's file system of a path or address.

    Args:
        path: a path, or an address such as `"s3://bucket/run"`.
        kwargs: the access to the store.
    """
    # here, since fsspec is an optional package
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    return url_to_fs(os.fspath(path), **kwargs)[0]


def sized_len(dataloader: object) -> int | None:
    """Return the length of a loader, or None if it has none."""
    try:
        return len(dataloader)  # type: ignore[arg-type]
    # a loader of an iterable data set has __len__, which raises
    except (TypeError, NotImplementedError):
        return None


# --- processes, workers, warnings ---


def pl_worker_init_function(
    worker_id: int,  # noqa: ARG001 - the argument of any worker_init_fn
    rank: int | None = None,
) -> None:
    """Seed Python and NumPy in a worker from torch's seed there: a `worker_init_fn`.

    The Trainer needs none: it gives each worker a seed of its own.

    Args:
        worker_id: the worker's number, from 0.
        rank: the rank of the process; this one's unless given.
    """
    rank = rank_zero_only.rank if rank is None else rank
    # torch has added the worker's number to the seed already; ranks share their seeds
    seed = (torch.initial_seed() + 1009 * rank) % 2**32
    torch.manual_seed(seed)
    random.seed(seed)
    with suppress(ImportError):
        import numpy as np

        np.random.seed(seed)


def _distributed_is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def cli_lightning_logo() -> None:
    """Print the name of this package, where Lightning's examples print its logo."""
    print(f"trainer_hooks {__version__}")


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
