"""Course: what a fit came to, moment by moment, to be compared with that of another fit."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band
from trainer_hooks.loggers.base import Logger
from trainer_hooks.runtime import rng
from trainer_hooks.testing.holding import Holdings, holdings, results

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainer_hooks.module import Module
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.trainer import Trainer

__all__ = ["THE_END", "Course", "run_course"]

THE_END = "the end"
"""The moment when the fit is over."""

_SEED = 3
_EPOCHS = 8
"""Unless the options say otherwise: 24 batches of TinyModule, so that callbacks that act after so
many batches or epochs do."""
_CUT_FILE = "cut.ckpt"
_KINDS = {
    "on_batch_checkpoint": "batch",
    "on_epoch_checkpoint": "epoch",
    "on_iteration_checkpoint": "iteration",
    "on_validation_batch_start": "validation",
}
"""Hooks in which a run may be cut, and how a moment in them is called."""
_BEFORE_TRAINING = ("on_init_start", "on_init_end")
_UNTOLD = ("on_log", "on_save_checkpoint")
"""Hooks whose calls follow from what is compared anyway."""


@dataclass
class Course:
    """What a fit came to.

    Attributes:
        held: what the callback held at each moment at which the run could be cut, and at the end.
        results: what others may read of the callback at the end.
        calls: the hook calls since the training began, each with the batches done.
        logged: what was logged since then, each with the step.
        marks: for each cut, how many calls and logged values came before it.
        stopping: the moments at which the run was asked to stop already.
        end: the checkpoint at the end.
        closing: how the run ended.
        metrics: the metrics that callbacks see, at the end.
        files: a digest of each file in the folder, by path.
    """

    held: dict[str, Holdings] = field(default_factory=dict)
    results: Holdings = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    logged: list[tuple[int | None, dict[str, Any]]] = field(default_factory=list)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    end: dict[str, Any] = field(default_factory=dict)
    closing: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class _Log(Logger):
    """Keeps what is logged."""

    def __init__(self, course: Course) -> None:
        self._course = course

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Write it down."""
        self._course.logged.append((step, dict(metrics)))


class _Witness(Callback):
    """Writes the course down, and saves at chosen moments; the whole folder is kept as it is then.

    It saves in resumed runs as well, to the same name: a callback that hears of saved files hears
    of the same ones.
    """

    band = Band.SAVE

    def __init__(
        self,
        course: Course,
        hold: Callable[[Module], Holdings],
        folder: Path,
        cuts: frozenset[str],
        archive: Path | None,
    ) -> None:
        self._course = course
        self._hold = hold
        self._folder = folder
        self._cuts = cuts
        self._archive = archive
        self._validation = (0, 0)

    def run_event(self, event: str, *args: Any) -> None:
        """Write a hook call down, and cut where it is time."""
        if event in _BEFORE_TRAINING or args[0].sanity_checking:
            return
        course, done = self._course, args[0].progress
        if event == "on_validation_run_start":
            self._validation = len(course.calls), len(course.logged)
        if event == "on_train_start":
            course.calls.clear()
            course.logged.clear()
        elif event not in _UNTOLD:
            course.calls.append(f"{event} after batch {done.batches_completed}")
        kind = _KINDS.get(event)
        if kind is not None:
            count = done.epochs_completed if kind == "epoch" else done.batches_completed
            self._look(args[0], args[1], kind, f"{kind} {count}")

    def _look(self, trainer: Trainer, module: Module, kind: str, name: str) -> None:
        """Note what is held at a moment, and cut there if it is chosen."""
        course = self._course
        if name in course.held:  # of a validation's batches only the first
            return
        course.held[name] = self._hold(module)
        if trainer.should_stop:
            course.stopping.add(name)
        if name in self._cuts:
            trainer.save_checkpoint(self._folder / _CUT_FILE)
            # a validation that is cut is run again, from its start
            here = len(course.calls), len(course.logged)
            course.marks[name] = self._validation if kind == "validation" else here
            if self._archive is not None:
                shutil.copytree(self._folder, self._archive / name)


def run_course(
    bench: Bench,
    folder: Path,
    cuts: frozenset[str] = frozenset(),
    *,
    archive: Path | None = None,
    is_resumed: bool = False,
) -> Course:
    """Run a fit with a new callback and a new module, and return its course.

    Args:
        bench: what makes the callback, the module and the trainer.
        folder: the room to run in.
        cuts: the moments to save at.
        archive: where to keep the folder as it is at each of them.
        is_resumed: whether to go on from what was saved in the folder; the random numbers are
            others then, as in a new process.
    """
    course = Course()
    with rng.isolated():
        rng.reseed(_SEED + is_resumed)
        callback, module = bench.make(), bench.make_module()
        options = {"max_epochs": _EPOCHS, "logger": _Log(course), **bench.options}
        hold = partial(holdings, callback, names=bench.may_differ | callback.volatile_state)
        witness = _Witness(course, hold, folder, cuts, archive)
        trainer = bench.trainer(callback, witness, **options)
        trainer.fit(module, ckpt_path=folder / _CUT_FILE if is_resumed else None)
        course.held[THE_END] = hold(module)
        course.results = results(callback, module)
        course.closing = {
            "epochs": trainer.current_epoch,
            "batches": trainer.progress.batches_completed,
            "steps": trainer.global_step,
            "stop_reason": trainer.stop_reason,
        }
        course.metrics = {name: value.clone() for name, value in trainer.callback_metrics.items()}
        course.files = _digests(folder)
        trainer.save_checkpoint(folder / "end.ckpt")
        trainer.close()
        course.end = torch.load(folder / "end.ckpt", weights_only=True)
    return course


def _digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder, by path, but of what the kit wrote."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _CUT_FILE
    }
