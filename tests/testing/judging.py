"""Judge without the kit whether a callback's fault changes a run.

Nothing of `trainer_hooks.testing` is used but its module: runs of other lengths and schedules than
the kit's are cut at every slot, by other means, and what anybody could see of them is compared.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer_hooks import Band, Callback, Trainer
from trainer_hooks.callbacks import Checkpoint, ModelSummary, ProgressBar, RunManifest
from trainer_hooks.loggers import Logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks import Module

CONFIGURATIONS: tuple[dict[str, Any], ...] = (
    {"max_epochs": 3},
    {"max_epochs": 5, "accumulate_grad_batches": 2, "val_check_interval": 2},
    {"max_epochs": 9, "check_val_every_n_epoch": 2, "log_every_n_steps": 2},
)
_PLAIN = (bool, int, float, str, bytes, type(None))
_MANY = 14
"""Slots of a run, above which it is cut at some alone."""
Seen = dict[str, Any]


class Cut(Exception):
    """Ends a run."""


class _Numbers(Logger):
    """Notes what is logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[int | None, str, Any]] = []

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.lines += [(step, name, value) for name, value in metrics.items()]


class _Knife(Callback):
    """Counts slots; saves and breaks the run off at one of them, or at none."""

    band = Band.SAVE

    def __init__(self, path: Path, at: int | None, numbers: _Numbers) -> None:
        self.path, self.at, self.numbers = path, at, numbers
        self.slots = 0
        self.lines_at: list[int] = []

    def on_batch_checkpoint(self, trainer, module) -> None:
        self._slot(trainer)

    def on_epoch_checkpoint(self, trainer, module) -> None:
        self._slot(trainer)

    def _slot(self, trainer: Trainer) -> None:
        self.lines_at.append(len(self.numbers.lines))
        if self.slots == self.at:
            trainer.save_checkpoint(self.path)
            raise Cut
        self.slots += 1


@dataclass
class Case:
    """A callback to be judged: what makes it, its module, and options that it needs."""

    make: Callable[[], Callback]
    make_module: Callable[[], Module]
    options: dict[str, Any] = field(default_factory=dict)

    def run(
        self, folder: Path, at: int | None = None, resume: Path | None = None
    ) -> tuple[Seen, _Knife]:
        """Run a fit, or a part of one, and return what was seen of it."""
        torch.manual_seed(5 if resume is None else 6)
        numbers = _Numbers()
        knife = _Knife(folder.parent / f"{at}.ckpt", at, numbers)
        seen: Seen = {}
        with contextlib.chdir(folder):
            callback, module = self.make(), self.make_module()
            trainer = _trainer(callback, knife, numbers, folder, self.options)
            try:
                trainer.fit(module, ckpt_path=resume)
            except Cut:
                return seen, knife
            except Exception as error:  # that it is raised is what is seen
                seen["raised"] = f"{type(error).__name__}: {error}"
            seen |= _of_trainer(trainer, module) | _of_callback(callback)
            trainer.close()
            seen |= _of_files(folder)
        return seen, knife


def _trainer(
    callback: Callback, knife: _Knife, numbers: _Numbers, folder: Path, options: dict[str, Any]
) -> Trainer:
    off = {
        "enable_checkpointing": Checkpoint, "enable_progress_bar": ProgressBar,
        "enable_model_summary": ModelSummary, "enable_run_manifest": RunManifest,
    }  # fmt: skip
    switches = {name: None if isinstance(callback, kind) else False for name, kind in off.items()}
    return Trainer(
        callbacks=[callback, knife],
        **{
            "accelerator": "cpu", "plugins": False, "logger": numbers, "default_root_dir": folder,
            "log_every_n_steps": 1, **switches, **options,
        },
    )  # fmt: skip


def changes(case: Case, mutant: Case, folder: Path) -> str:
    """Return what a fault changes in a run that is cut and resumed; empty if nothing is seen.

    What is seen to differ between runs of the sound callback, uncut or resumed, does not count.

    Args:
        case: the sound callback.
        mutant: the faulty one.
        folder: an empty folder.
    """
    for number, options in enumerate(CONFIGURATIONS):
        place = folder / str(number)
        sound = Case(case.make, case.make_module, {**options, **case.options})
        faulty = Case(mutant.make, mutant.make_module, sound.options)
        found = _changes(sound, faulty, place)
        if found:
            return f"configuration {number}, {found}"
    return ""


_SOUND: dict[Any, Any] = {}


def _changes(sound: Case, faulty: Case, place: Path) -> str:
    key = (sound.make, json.dumps(sound.options, default=str))
    if key not in _SOUND:
        _SOUND.clear()
        twice = [_uncut(sound, place) for turn in range(2)]
        unsteady = _differing(twice[0][0], twice[1][0])
        resumed = {}
        for at in _chosen(twice[0][1].slots):
            both = _resumed(sound, place, at)
            unsteady |= _differing(_after(*twice[0], at), both)
            resumed[at] = both
        _SOUND[key] = unsteady
    unsteady = _SOUND[key]
    uncut, knife = _uncut(faulty, place)
    for at in _chosen(knife.slots):
        differing = _differing(_after(uncut, knife, at), _resumed(faulty, place, at))
        if differing - unsteady:
            return f"cut at slot {at}: {', '.join(sorted(differing - unsteady)[:6])}"
    return ""


def _chosen(slots: int) -> list[int]:
    """Return the slots to cut at: all, or of many five from the second to the last."""
    if slots <= _MANY:
        return list(range(slots))
    return sorted({1 + part * (slots - 2) // 4 for part in range(5)})


def _uncut(case: Case, place: Path) -> tuple[Seen, _Knife]:
    folder = _fresh(place)
    return case.run(folder)


def _resumed(case: Case, place: Path, at: int) -> Seen:
    folder = _fresh(place)
    _, knife = case.run(folder, at)
    seen, again = case.run(folder, resume=knife.path)
    return seen | _of_lines(again.numbers.lines)


def _after(seen: Seen, knife: _Knife, at: int) -> Seen:
    """Return what was seen of an uncut run, and what it logged after a slot."""
    return seen | _of_lines(knife.numbers.lines[knife.lines_at[at] :])


def _fresh(place: Path) -> Path:
    """Return an empty folder, the same for all runs, as paths are part of what is seen."""
    shutil.rmtree(place, ignore_errors=True)
    folder = place / "run"
    folder.mkdir(parents=True)
    return folder


def _of_lines(lines: list[tuple[int | None, str, Any]]) -> Seen:
    found: Seen = {}
    for step, name, value in lines:
        found.setdefault(f"logged {name}", []).append((step, _digest(value)))
    return found


def _of_trainer(trainer: Trainer, module: Module) -> Seen:
    weights = {f"weight {name}": _digest(value) for name, value in module.state_dict().items()}
    metrics = {f"metric {name}": _digest(value) for name, value in trainer.callback_metrics.items()}
    return {
        "steps": trainer.global_step,
        "epochs": trainer.current_epoch,
        "batches": trainer.progress.batches_completed,
        "stop": trainer.stop_reason,
        "optimizers": _digest([optimizer.state_dict() for optimizer in trainer.optimizers]),
        **weights,
        **metrics,
    }


def _of_callback(callback: Callback) -> Seen:
    """Return the callback's public attributes and properties that are plain data."""
    found: Seen = {}
    for name in dir(callback):
        if name.startswith("_") or name in ("volatile_state", "state_key"):
            continue
        try:
            value = getattr(callback, name)
        except Exception:  # a property may have nothing to say
            continue
        if not callable(value) and _is_plain(value):
            found[f"attribute {name}"] = _digest(value)
    return found


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, list | tuple | set) or type(value).__name__ == "deque":
        return all(map(_is_plain, value))
    return isinstance(value, (*_PLAIN, Path, torch.Tensor, np.ndarray))


def _of_files(folder: Path) -> Seen:
    found: Seen = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = f"file {path.relative_to(folder)}"
            found[name] = True
            found[f"in {name}"] = _contents(path)
    return found


def _contents(path: Path) -> Any:
    """Return a file in short; of a checkpoint, which has a time in it, what was trained."""
    try:
        held = torch.load(path, weights_only=True)
    except Exception:  # it is no checkpoint
        return hashlib.sha256(path.read_bytes()).hexdigest()
    if isinstance(held, dict) and "global_step" in held:
        held = {name: held.get(name) for name in ("global_step", "epoch", "state_dict")}
    return _digest(held)


def _digest(value: Any) -> Any:
    """Return a value in short: the same for the same bits."""
    if isinstance(value, torch.Tensor):
        held = value.detach().cpu()
        held = held.int_repr() if held.is_quantized else held
        bytes_ = held.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        bits = hashlib.sha256(bytes_).hexdigest()
        return (str(held.dtype), tuple(held.shape), bits)
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, dict):
        return {str(key): _digest(item) for key, item in value.items()}
    if isinstance(value, set):
        return sorted(map(str, value))
    if isinstance(value, list | tuple) or type(value).__name__ == "deque":
        return [_digest(item) for item in value]
    return repr(value)


def _differing(first: Seen, second: Seen) -> set[str]:
    nothing = object()
    return {
        name for name in {*first, *second} if first.get(name, nothing) != second.get(name, nothing)
    }


def states_of(case: Case, folder: Path) -> list[dict[str, Any]]:
    """Return the callback's states in uncut runs, at some moments of each."""
    found: list[dict[str, Any]] = []

    def make() -> Callback:
        callback = case.make()
        kind = type(callback)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}

        def state_dict(self: Any) -> dict[str, Any]:
            found.append(kind.state_dict(self))
            return found[-1]

        callback.__class__ = type(kind.__name__, (kind,), {"state_dict": state_dict, **names})
        return callback

    for number, options in enumerate(CONFIGURATIONS):
        watched = Case(make, case.make_module, {**options, **case.options})
        _uncut(watched, folder / str(number))
        for at in (0, 3):
            watched.run(_fresh(folder / str(number)), at)
    return found
