"""Classes and options of optimizers and schedulers: saved, and compared on a resume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.errors import (
    OptimizationError,
    OptionError,
    TrainerHooksWarning,
    did_you_mean,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from torch import nn

    from trainer_hooks.module.optimization import Optimization

__all__ = [
    "apply_options",
    "changed_options",
    "describe_setup",
    "require_same_classes",
    "warn_of_foreign_parameters",
]

_RATES = ("initial_lr", "max_lr", "min_lr")
"""The learning rates that schedulers store in an optimizer's groups beside the present one."""

_NOT_OPTIONS = frozenset({"params", *_RATES})
_ADDED_BY_TORCH = frozenset(
    {"capturable", "decoupled_weight_decay", "differentiable", "foreach", "fused", "maximize"}
)
"""Options that later versions of torch add to states that lack them."""

_HINT = (
    "Return what it was saved with, or start anew from its weights with Module.load_from_checkpoint"
)


def describe_setup(
    optimization: Optimization, hparams: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the classes and options of newly made optimizers and schedulers as plain data.

    Args:
        optimization: the optimizers and schedulers.
        hparams: the hyperparameters at this moment; callbacks may change them later.
    """
    return {
        "hparams": _plain_items(hparams or {}),
        "optimizers": [
            {
                "class": _class_of(one),
                "groups": [_initial_options(group) for group in one.param_groups],
            }
            for one in optimization.optimizers
        ],
        "schedulers": [
            {"class": _class_of(config.scheduler), "options": _plain(_state(config.scheduler))}
            for config in optimization.schedulers
        ],
        "rates": [
            [{name: _number(group[name]) for name in _RATES if name in group} for group in groups]
            for groups in (one.param_groups for one in optimization.optimizers)
        ],
    }


def warn_of_foreign_parameters(optimization: Optimization, module: nn.Module) -> None:
    """Warn if an optimizer trains parameters that belong to no part of the module."""
    own = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for optimizer in optimization.optimizers:
        given = [p for group in optimizer.param_groups for p in group["params"]]
        count = sum(id(parameter) not in own for parameter in given)
        if count:
            warn(
                f"{count} of {len(given)} parameters of {type(optimizer).__qualname__} belong to "
                f"no part of {type(module).__qualname__}: no checkpoint holds them, and they are "
                "not moved to the device. Make what they are of an attribute of the module, or "
                "leave them out of configure_optimizers.",
                TrainerHooksWarning,
            )


def require_same_classes(
    optimization: Optimization,
    checkpoint: Mapping[str, Any],
    saved: Mapping[str, Any],
    setup: Mapping[str, Any],
) -> None:
    """Require saved states to match the classes of optimizers and schedulers.

    The classes compared are those that `configure_optimizers` made; callbacks may have replaced
    them, when saving as now.

    Args:
        optimization: the optimizers and schedulers that will load the states.
        checkpoint: the checkpoint with the states.
        saved: the return value of `describe_setup` in the checkpoint; older files have none.
        setup: its return value in this run.

    Raises:
        OptimizationError: a class differs.
    """
    for kind, key, owners in (
        ("optimizer", "optimizer_states", list(optimization.optimizers)),
        ("scheduler", "lr_schedulers", [config.scheduler for config in optimization.schedulers]),
    ):
        before, now = (
            [one["class"] for one in made.get(f"{kind}s", [])] for made in (saved, setup)
        )
        for number, (owner, state) in enumerate(zip(owners, checkpoint[key], strict=True)):
            if number < min(len(before), len(now)):
                # a class of the script itself is in `__main__` in one run, in a module in another
                if before[number].rpartition(".")[2] == now[number].rpartition(".")[2]:
                    continue
                difference = f"was {before[number]} when it was saved, and is {now[number]} now"
            else:
                missing = _missing_options(owner, state, kind)
                if not missing:
                    continue
                name = _class_of(owner)
                difference = f"is {name}, and its saved state holds no {', '.join(missing)}"
            raise OptimizationError(
                f"{kind} {number} {difference}: the state of one is of no use to another. {_HINT}."
            )


def changed_options(
    saved: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, str, Any, Any]]:
    """Yield each option that differs: the kind of its owner, its name, the old and the new value.

    Args:
        saved: a setup.
        now: another setup of the same classes.
    """
    for kind, parts in (("optimizers", "groups"), ("schedulers", "options")):
        pairs = list(zip(saved.get(kind, ()), now.get(kind, ()), strict=False))
        for before, after in pairs:
            several = kind == "schedulers" or len(pairs) > 1
            owner = f" of {after['class'].rpartition('.')[2]}" if several else ""
            groups = (before[parts], after[parts]) if parts == "groups" else None
            both = zip(*groups, strict=False) if groups else [(before[parts], after[parts])]
            for old, new in both:
                for name in old:
                    if name in new and not _is_same(old[name], new[name]):
                        yield kind, f"{name}{owner}", old[name], new[name]


def apply_options(
    checkpoint: dict[str, Any],
    optimization: Optimization,
    setup: Mapping[str, Any],
    names: Collection[str],
) -> None:
    """Replace options in a checkpoint's optimizer states by those of this run.

    A learning rate that a schedule has changed is scaled by the same factor as the initial one.

    Args:
        checkpoint: the checkpoint to change.
        optimization: the optimizers and schedulers that will load the states.
        setup: their setup in this run.
        names: the options to replace.

    Raises:
        OptionError: no optimizer has an option of that name.
    """
    groups = [group for one in setup["optimizers"] for group in one["groups"]]
    known = {name for group in groups for name in group}
    for name in sorted(set(names) - known):
        raise OptionError(
            f"fit(overrides=...) names {name!r}: it must be an option of the optimizers, which "
            f"have {', '.join(sorted(known))}.{did_you_mean(name, known)}"
        )
    for one, rates, state in zip(
        setup["optimizers"], setup["rates"], checkpoint["optimizer_states"], strict=True
    ):
        for group, rate, saved in zip(one["groups"], rates, state["param_groups"], strict=False):
            for name in set(names) & set(group):
                if name == "lr":
                    _set_scaled_rate(saved, group["lr"], rate)
                else:
                    saved[name] = _like(saved.get(name), group[name])
    if "lr" in names:
        _set_base_rates(checkpoint, optimization)


def _set_scaled_rate(saved: dict[str, Any], rate: float, kept: Mapping[str, Any]) -> None:
    """Set the learning rate of a saved group, scaled as the schedule has scaled the old one."""
    before = saved.get("initial_lr")
    share = saved["lr"] / before if before else None
    now = kept.get("initial_lr", rate)
    saved["lr"] = _like(saved["lr"], rate if share is None else float(share) * now)
    for name, value in kept.items():
        if name in saved:
            saved[name] = _like(saved[name], value)


def _set_base_rates(checkpoint: dict[str, Any], optimization: Optimization) -> None:
    """Set the base learning rates in saved scheduler states to those of the saved groups."""
    numbers = {id(one): number for number, one in enumerate(optimization.optimizers)}
    for config, state in zip(optimization.schedulers, checkpoint["lr_schedulers"], strict=True):
        number = numbers.get(id(getattr(config.scheduler, "optimizer", None)))
        if number is None:
            continue
        groups = checkpoint["optimizer_states"][number]["param_groups"]
        for part in _nested(state):
            if "base_lrs" in part and all("initial_lr" in group for group in groups):
                part["base_lrs"] = [group["initial_lr"] for group in groups]
            if "_last_lr" in part:
                part["_last_lr"] = [group["lr"] for group in groups]


def _nested(state: Any) -> Iterator[dict[str, Any]]:
    """Yield a scheduler's state, and the states of the schedulers that it consists of."""
    if isinstance(state, dict):
        yield state
        for inner in state.get("_schedulers", ()):
            yield from _nested(inner)


def _initial_options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a group as the user set them, before a scheduler's first step."""
    asked = {**group, "lr": group.get("initial_lr", group.get("lr"))}
    return {name: value for name, value in _plain(asked).items() if name not in _NOT_OPTIONS}


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are plain values."""
    numbers = {name: _number(value) for name, value in options.items() if not name.startswith("_")}
    hidden = ("base_lrs", "verbose")
    return {k: v for k, v in numbers.items() if _is_plain(v) and k not in hidden}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _plain_items(items: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the plain values of a dict, and of the dicts in it."""
    return {
        name: _plain_items(value) if isinstance(value, dict) else value
        for name, value in items.items()
        if isinstance(value, dict) or _is_plain(value)
    }


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) and value.numel() == 1 else value


def _like(saved: Any, value: Any) -> Any:
    """Return a number as a tensor if the saved one is a tensor."""
    return torch.full_like(saved, value) if isinstance(saved, Tensor) else value


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal; NaN equals NaN, and a list a tuple."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return bool(one == other) or (one != one and other != other)


def _state(owner: Any) -> dict[str, Any]:
    state = owner.state_dict()
    return state if isinstance(state, dict) else {}


def _class_of(owner: object) -> str:
    return f"{type(owner).__module__}.{type(owner).__qualname__}"


def _missing_options(owner: Any, state: Any, kind: str) -> list[str]:
    """Return the options that a saved state lacks and its owner needs, if its class is unknown."""
    if kind == "optimizer":
        needed = set(owner.defaults) - _ADDED_BY_TORCH
        return sorted(needed.difference(*state["param_groups"])) if state["param_groups"] else []
    saved, now = _plain(state if isinstance(state, dict) else {}), _plain(_state(owner))
    # each lacks an option of the other: another class. One torch version only adds options
    return sorted(set(now) - set(saved)) if set(saved) - set(now) else []
