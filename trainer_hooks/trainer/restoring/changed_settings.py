"""The settings in which a resumed run differs from the one that was cut, and which side counts."""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.module.optimization import apply_options, changed_options
from trainer_hooks.module.replaced_states import SCHEDULERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer_hooks.trainer.core.trainer_core import TrainerCore

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def reconcile_settings(
    core: TrainerCore, checkpoint: dict[str, Any], source: str, overrides: frozenset[str]
) -> None:
    """Warn once of settings that differ between a checkpoint and this run, and which side counts.

    The optimizer states of the checkpoint get the options that this run overrides.

    Raises:
        OptionError: an override names no option.
    """
    training = core.training
    noted = checkpoint["trainer_hooks"].get("setup", {})
    # a file of Lightning holds no settings, but the optimizers' states hold the learning rates
    saved = noted if "optimizers" in noted else {"optimizers": _rates_in(checkpoint)}
    ours = []
    theirs: dict[str, str] = {}  # by change, each once: all parameter groups often change alike
    for kind, option, before, now in changed_options(saved, training.setup):
        # it is "lr", or of several optimizers "lr of SGD"
        name = option.partition(" ")[0]
        if kind == "optimizers" and name in overrides:
            continue  # changed on purpose
        word = name if kind == "optimizers" else SCHEDULERS
        # told once
        advice = "" if any(theirs.values()) else f" (overrides=[{word!r}] takes this run's)"
        theirs.setdefault(_told(option, before, now), advice)
    was = noted.get("precision", core.precision.name)
    if was != core.precision.name:
        ours.append(f"precision {was} -> {core.precision.name}")
    hparams = noted.get("hparams", checkpoint.get("hyper_parameters")) or {}
    ours += [
        f"hyperparameter {change}" for change in setting_changes(hparams, training.setup["hparams"])
    ]
    options = training.setup["trainer"]
    ours += [
        _told(name, value, options[name])
        for name, value in noted.get("trainer", {}).items()
        # by repr: a limit of 1 is a single batch, and 1.0 is all
        if name in options and repr(value) != repr(options[name])
    ]
    if overrides:
        apply_options(checkpoint, training.optimization, training.setup, overrides)
    # what the next checkpoint holds: the values with which the training goes on
    training.setup = _in_effect(training.setup, saved, overrides)
    advised = [f"{change}{advice}" for change, advice in theirs.items()]
    sides = [
        f"{side}: {', '.join(changes)}"
        for side, changes in (
            ("The checkpoint's counts for", advised), ("This run's counts for", ours),
        )
        if changes
    ]  # fmt: skip
    if sides:
        warn(
            f"checkpoint {source!r} was saved with other settings than this run has. "
            f"{'. '.join(sides)}.",
            TrainerHooksWarning,
        )


def _in_effect(
    setup: dict[str, Any], saved: Mapping[str, Any], overrides: frozenset[str]
) -> dict[str, Any]:
    """Return this run's settings with the options that the checkpoint decides."""
    result = {**setup, "optimizers": []}
    pairs = zip(setup.get("optimizers", ()), saved.get("optimizers", ()), strict=False)
    for now, before in pairs:
        groups = [
            {name: old.get(name, value) if name not in overrides else value
             for name, value in new.items()}
            for new, old in zip(now["groups"], before["groups"], strict=False)
        ]  # fmt: skip
        result["optimizers"].append({**now, "groups": groups})
    if "schedulers" in saved:
        result["schedulers"] = saved["schedulers"]
    return result


def _rates_in(checkpoint: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the configured learning rates, as far as a file without settings holds them."""
    # a scheduler changes `lr`; without `initial_lr` the configured value is then unknown
    is_scheduled = bool(checkpoint["lr_schedulers"])
    return [
        {
            "groups": [
                {"lr": group.get("initial_lr", group.get("lr"))}
                if "initial_lr" in group or not is_scheduled
                else {}
                for group in state.get("param_groups", ())
            ]
        }
        for state in checkpoint["optimizer_states"]
    ]


def setting_changes(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> list[str]:
    """Return the plain values that differ, each as text with its name, old and new value."""
    return [_told(*change) for change in _changes(before, now)]


def _changes(
    before: Mapping[Any, Any], now: Mapping[Any, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the plain values that differ, those in nested dicts under dotted names."""
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        # by repr too: NaN differs from itself
        elif _is_plain(old) and _is_plain(new) and old != new and repr(old) != repr(new):
            yield f"{prefix}{name}", old, new


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or value is _ABSENT or isinstance(value, bool | int | float | str)


class _Absent:  # not None, which an option may have as its value
    def __repr__(self) -> str:
        return "(none)"


_ABSENT = _Absent()


def _told(name: str, before: Any, now: Any) -> str:
    return f"{name} {_SHORT.repr(before)} -> {_SHORT.repr(now)}"
