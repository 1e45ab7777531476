"""What a training was set up with: noted in its checkpoints, and compared on a resume."""

from __future__ import annotations

from reprlib import Repr
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.module import changed_options, take_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from trainer_hooks.trainer.run.session import Session

__all__ = ["checked_overrides", "conditions_of", "settle_conditions"]

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


def checked_overrides(overrides: str | Iterable[str] | None, ckpt_path: object) -> frozenset[str]:
    """Return the names of options that a resume is to take from this run.

    Raises:
        OptionError: they are no names, or there is no checkpoint to go on from.
    """
    if overrides is None:
        return frozenset()
    names = [overrides] if isinstance(overrides, str) else list(overrides)
    is_names = not hasattr(overrides, "items") and all(isinstance(name, str) for name in names)
    if not is_names:
        raise OptionError(
            f"fit(overrides={overrides!r}): it must be names of an optimizer's options, as in "
            "overrides=['lr']; their values are those of this run's configure_optimizers."
        )
    if ckpt_path is None:
        raise OptionError(
            f"fit(overrides={overrides!r}) without ckpt_path: there is no checkpoint whose options "
            "could be overridden. Leave it out, or pass ckpt_path."
        )
    return frozenset(names)


def conditions_of(session: Session) -> dict[str, Any]:
    """Return what a checkpoint is to tell of what the training was set up with."""
    return {**session.training.setup, "precision": session.precision.name}


def settle_conditions(
    session: Session, checkpoint: dict[str, Any], source: str, overrides: frozenset[str]
) -> None:
    """Say once what differs between a checkpoint and this run, and which side counts.

    The states of the checkpoint's optimizers are given what of this run is to count.

    Raises:
        OptionError: there is no such option to override.
    """
    training = session.training
    noted = checkpoint["trainer_hooks"].get("setup", {})
    saved = noted if "optimizers" in noted else {"optimizers": _rates_in(checkpoint)}
    theirs, ours = [], []
    advice = ""
    for kind, option, before, now in changed_options(saved, training.setup):
        if kind == "optimizers" and option.partition(" ")[0] in overrides:
            continue
        theirs.append(_told(option, before, now))
        if kind == "optimizers" and not advice:
            name = option.partition(" ")[0]
            advice = f" (fit(..., overrides=[{name!r}]) takes this run's)"
    was = noted.get("precision", session.precision.name)
    if was != session.precision.name:
        ours.append(f"precision {was} -> {session.precision.name}")
    known = noted.get("hparams", checkpoint.get("hyper_parameters")) or {}
    ours += [
        f"hyperparameter {_told(name, before, now)}"
        for name, before, now in _changes(known, training.setup["hparams"])
    ]
    if overrides:
        take_options(checkpoint, training.optimization, training.setup, overrides)
    training.setup = _in_effect(training.setup, saved, overrides)
    sides = [
        f"{side}: {', '.join(dict.fromkeys(changes))}{more}"
        for side, changes, more in (
            ("The checkpoint's counts for", theirs, advice), ("This run's counts for", ours, ""),
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
    """Return this run's setup with the options that the checkpoint decides on."""
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
    """Return the learning rates that were asked for, as far as an older file tells them."""
    is_scheduled = bool(checkpoint["lr_schedulers"])
    return [
        {
            "groups": [
                {"lr": group.get("initial_lr", group.get("lr"))}
                if "initial_lr" in group or not is_scheduled
                else {}
                for group in state["param_groups"]
            ]
        }
        for state in checkpoint["optimizer_states"]
    ]


def _changes(
    before: Mapping[Any, Any], now: Mapping[Any, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Give what of plain values differs by name, those in dicts by a dotted one."""
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name, _ABSENT), now.get(name, _ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{prefix}{name}.")
        elif _is_plain(old) and _is_plain(new) and old != new and repr(old) != repr(new):
            yield f"{prefix}{name}", old, new


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or value is _ABSENT or isinstance(value, bool | int | float | str)


class _Absent:
    def __repr__(self) -> str:
        return "(none)"


_ABSENT = _Absent()


def _told(name: str, before: Any, now: Any) -> str:
    return f"{name} {_SHORT.repr(before)} -> {_SHORT.repr(now)}"
