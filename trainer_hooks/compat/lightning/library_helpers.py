"""Helpers that libraries around Lightning import, under their names there."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from inspect import currentframe, getargvalues
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import warn
from trainer_hooks.compat.lightning.helpers import get_init_args, is_picklable, sized_len
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.runtime.rank_zero import (
    rank_zero_deprecation,
    rank_zero_info,
    rank_zero_warn,
)

if TYPE_CHECKING:
    from types import FrameType

__all__ = [
    "LightningDeprecationWarning",
    "WarningCache",
    "clean_namespace",
    "collect_init_args",
    "convert_inf",
    "has_iterable_dataset",
    "has_len",
    "has_len_all_ranks",
    "instantiate_class",
    "is_param_in_hook_signature",
    "lightning_getattr",
    "lightning_hasattr",
    "lightning_setattr",
    "merge_dicts",
    "save_hyperparameters",
]


class LightningDeprecationWarning(DeprecationWarning):
    """The category of Lightning's deprecation warnings, for filters; nothing here gives one."""


class WarningCache(set[str]):
    """The messages that were given, each once."""

    def warn(self, message: str, stacklevel: int = 5, **kwargs: Any) -> None:
        """Give a warning on rank 0, unless it was given."""
        self._once(rank_zero_warn, message, stacklevel=stacklevel, **kwargs)

    def deprecation(self, message: str, stacklevel: int = 6, **kwargs: Any) -> None:
        """Give a deprecation warning on rank 0, unless it was given."""
        self._once(rank_zero_deprecation, message, stacklevel=stacklevel, **kwargs)

    def info(self, message: str, stacklevel: int = 5, **kwargs: Any) -> None:
        """Log a message on rank 0, unless it was logged."""
        self._once(rank_zero_info, message, stacklevel=stacklevel, **kwargs)

    def _once(self, give: Callable[..., Any], message: str, **kwargs: Any) -> None:
        if message not in self:
            self.add(message)
            give(message, **kwargs)


def convert_inf(x: float | None) -> float | None:
    """Return the number, or None for one that is not finite, which a bar of tqdm cannot take."""
    return None if x is None or not math.isfinite(x) else x


def instantiate_class(args: Any, init: Mapping[str, Any]) -> Any:
    """Make the object of a config.

    Args:
        args: the positional arguments, as a tuple; or the only one.
        init: `class_path`, and `init_args` if there are any.
    """
    module, _, name = init["class_path"].rpartition(".")
    kind = getattr(import_module(module), name)
    return kind(*(args if isinstance(args, tuple) else (args,)), **init.get("init_args", {}))


def merge_dicts(
    dicts: Sequence[Mapping[str, Any]],
    agg_key_funcs: Mapping[str, Any] | None = None,
    default_func: Callable[[Sequence[float]], float] = statistics.mean,
) -> dict[str, Any]:
    """Return one dict of several, with the aggregate of the values of each key.

    Args:
        dicts: the dicts; values that are dicts are merged, too.
        agg_key_funcs: the function of a list of values by key; of dicts those of their keys.
        default_func: the function of the other keys.
    """
    functions = agg_key_funcs or {}
    merged: dict[str, Any] = {}
    for key in dict.fromkeys(key for mapping in dicts for key in mapping):
        values = [mapping[key] for mapping in dicts if mapping.get(key) is not None]
        function = functions.get(key)
        if values and isinstance(values[0], Mapping):
            merged[key] = merge_dicts(values, function, default_func)
        else:
            merged[key] = (function or default_func)(values)
    return merged


def has_iterable_dataset(dataloader: object) -> bool:
    """Return whether a loader's data set is iterable only."""
    return isinstance(getattr(dataloader, "dataset", None), IterableDataset)


def has_len(dataloader: object) -> bool:
    """Return whether a loader has a length; warn if it is 0, or that of an iterable data set."""
    length = sized_len(dataloader)
    if length is None:
        return False
    name = type(dataloader).__name__
    if length == 0:
        warn(f"{name} has the length 0.", TrainerHooksWarning)
    if isinstance(dataloader, DataLoader) and has_iterable_dataset(dataloader):
        warn(
            f"{name}: its IterableDataset has a length, which several workers share only if the "
            "data set divides its samples among them.",
            TrainerHooksWarning,
        )
    return True


def has_len_all_ranks(
    dataloader: object,
    strategy: Any,
    allow_zero_length_dataloader_with_multiple_devices: bool = False,
) -> bool:
    """Return whether a loader has a length; all ranks must call it.

    Args:
        dataloader: the loader.
        strategy: the Trainer's strategy, which sums over the ranks.
        allow_zero_length_dataloader_with_multiple_devices: whether this rank may have no batch
            where others have some.

    Raises:
        RuntimeError: it has none, and may not.
    """
    import torch

    length = sized_len(dataloader)
    if length is None:
        return False
    total = strategy.reduce(torch.tensor(length, device=strategy.root_device), reduce_op="sum")
    is_empty_here = int(total) > 0 and length == 0
    if is_empty_here and not allow_zero_length_dataloader_with_multiple_devices:
        raise RuntimeError(
            f"{type(dataloader).__name__} has no batch on this rank, and others have some. Return "
            "at least one, or allow_zero_length_dataloader_with_multiple_devices."
        )
    return has_len(dataloader)


def clean_namespace(hparams: dict[str, Any]) -> None:
    """Remove the hyperparameters that cannot be pickled, with a warning."""
    for name in [name for name, value in hparams.items() if not is_picklable(value)]:
        warn(
            f"hyperparameter {name!r} is removed, as it cannot be pickled. Leave it out with "
            f"save_hyperparameters(ignore=[{name!r}]).",
            TrainerHooksWarning,
        )
        del hparams[name]


def collect_init_args(
    frame: FrameType,
    path_args: list[dict[str, Any]],
    inside: bool = False,
    classes: tuple[type, ...] = (),
) -> list[dict[str, Any]]:
    """Return the arguments of the `__init__` calls that made an object, the innermost first.

    Args:
        frame: the frame of one of them, or of a function that it calls.
        path_args: the arguments found so far, to which the others are appended.
        inside: whether the frame is that of an `__init__`.
        classes: the classes of which the object must be one.
    """
    current: FrameType | None = frame
    while current is not None and current.f_back is not None:
        values = getargvalues(current)
        owner = values.locals.get(values.args[0]) if values.args else None
        if "__class__" in values.locals and (not classes or isinstance(owner, classes)):
            path_args.append(get_init_args(current))
            inside = True
        elif inside:
            break
        current = current.f_back
    return path_args


def save_hyperparameters(
    obj: Any, *args: Any, ignore: Any = None, frame: FrameType | None = None
) -> None:
    """Keep the arguments of an object's `__init__`, as its method of that name does."""
    current = currentframe()
    caller = None if current is None else current.f_back
    obj.save_hyperparameters(*args, ignore=ignore, frame=frame or caller)


def _holders(model: Any, attribute: str) -> list[Any]:
    """Return the objects that hold an attribute: the module, its hyperparameters, its data."""
    holders = [model] if hasattr(model, attribute) else []
    hparams = getattr(model, "hparams", None)
    if hparams is not None and attribute in hparams:
        holders.append(hparams)
    trainer = getattr(model, "_trainer", None)
    datamodule = getattr(trainer, "datamodule", None)
    if datamodule is not None:
        if hasattr(datamodule, attribute):
            holders.append(datamodule)
        if attribute in getattr(datamodule, "hparams", ()):
            holders.append(datamodule.hparams)
    return holders


def lightning_hasattr(model: Any, attribute: str) -> bool:
    """Return whether the module, its hyperparameters or its data module have an attribute."""
    return bool(_holders(model, attribute))


def lightning_getattr(model: Any, attribute: str) -> Any:
    """Return an attribute of the module, of its hyperparameters or of its data module.

    Raises:
        AttributeError: none of them has it.
    """
    holder = _require_holders(model, attribute)[0]
    return holder[attribute] if isinstance(holder, dict) else getattr(holder, attribute)


def lightning_setattr(model: Any, attribute: str, value: Any) -> None:
    """Set an attribute wherever it is: in the module, its hyperparameters, its data module.

    Raises:
        AttributeError: none of them has it.
    """
    for holder in _require_holders(model, attribute):
        if isinstance(holder, dict):
            holder[attribute] = value
        else:
            setattr(holder, attribute, value)


def _require_holders(model: Any, attribute: str) -> list[Any]:
    if holders := _holders(model, attribute):
        return holders
    raise AttributeError(
        f"{attribute!r} is neither an attribute of {type(model).__qualname__}, nor one of its "
        "hyperparameters or of its data module. Set it in __init__."
    )


def is_param_in_hook_signature(
    hook_fx: Callable[..., Any], param: str, explicit: bool = False, min_args: int | None = None
) -> bool:
    """Return whether a method takes an argument.

    Args:
        hook_fx: the method.
        param: the argument's name.
        explicit: whether it must be named; otherwise `*args` and `**kwargs` take it, too.
        min_args: the number of positional arguments from which any name counts.
    """
    parameters = signature_of(hook_fx).parameters.values()
    if param in {parameter.name for parameter in parameters}:
        return True
    takes_any = any(
        parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        for parameter in parameters
    )
    positional = [
        parameter for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    is_long = min_args is not None and len(positional) >= min_args
    return not explicit and (takes_any or is_long)
