"""Trace a fit: record its state, hook calls and logged values to compare with another fit."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.hooks.band import Band
from trainer_hooks.loggers.base import Logger
from trainer_hooks.runtime import rng
from trainer_hooks.testing.callback_attributes import (
    AttributeValues,
    attribute_values,
    public_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from trainer_hooks.module.module import Module
    from trainer_hooks.testing.harness import CallbackHarness
    from trainer_hooks.trainer.trainer import Trainer

__all__ = ["THE_END", "RunTrace", "trace_fit"]

THE_END = "the end"
"""The moment at which the fit is over."""

_SEED = 3
_EPOCHS = 8
"""Epochs of a traced fit, unless the options say otherwise: 24 batches of TinyModule, so that
callbacks which act after some number of batches or epochs do act."""
_CUT_FILE = "cut.ckpt"
_CUT_HOOKS = {
    "on_batch_checkpoint": "batch",
    "on_epoch_checkpoint": "epoch",
    "on_iteration_checkpoint": "iteration",
    "on_validation_batch_start": "validation",
}
"""The hooks in which a run may be cut, with the word that begins the name of such a moment."""
_BEFORE_TRAINING = ("on_init_start", "on_init_end")
_UNTRACED = ("on_log", "on_save_checkpoint")
"""Hooks whose calls follow from other parts of the trace: the logged values and the cuts."""


@dataclass
class RunTrace:
    """The trace of a fit: state, hook calls, logged values and files.

    A moment is named by its kind and count, as in `"batch 3"`.

    Attributes:
        held: the callback's attribute values at each moment at which the run could be cut, and at
            the end.
        results: the callback's public values at the end.
        calls: the hook calls since the training began, each with the batches completed.
        logged: the values logged since then, each with its step.
        marks: for each cut, how many calls and logged values came before.
        stopping: the moments at which the run had already been asked to stop.
        end: the checkpoint at the end.
        closing: the counters and the stop reason at the end.
        metrics: the trainer's `callback_metrics` at the end.
        files: a digest of each file in the folder, by path.
    """

    held: dict[str, AttributeValues] = field(default_factory=dict)
    results: AttributeValues = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    logged: list[tuple[int | None, dict[str, Any]]] = field(default_factory=list)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    stopping: set[str] = field(default_factory=set)
    end: dict[str, Any] = field(default_factory=dict)
    closing: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)


class _TraceLogger(Logger):
    """A logger that records logged values in a trace."""

    def __init__(self, trace: RunTrace) -> None:
        self._trace = trace

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Record the metrics."""
        self._trace.logged.append((step, dict(metrics)))


class _TraceRecorder(Callback):
    """Records hook calls and attribute values in a trace, and saves a checkpoint at each cut.

    At a cut the whole folder is copied. Resumed runs save as well, to the same name: a callback
    that hears of saved checkpoints then hears of the same ones.
    """

    # last in every hook, so that its checkpoint holds the work of all other callbacks
    band = Band.SAVE

    def __init__(
        self,
        trace: RunTrace,
        read_values: Callable[[Module], AttributeValues],
        folder: Path,
        cuts: frozenset[str],
        archive: Path | None,
    ) -> None:
        self._trace = trace
        self._read_values = read_values
        self._folder = folder
        self._cuts = cuts
        self._archive = archive
        self._validation_mark = (0, 0)

    def run_event(self, event: str, *args: Any) -> None:
        """Record a hook call, and cut the run if this is a chosen moment."""
        if event in _BEFORE_TRAINING or args[0].sanity_checking:
            return
        trace, progress = self._trace, args[0].progress
        if event == "on_validation_run_start":
            self._validation_mark = len(trace.calls), len(trace.logged)
        if event == "on_train_start":
            # a resumed run has no calls from before its training to compare
            trace.calls.clear()
            trace.logged.clear()
        elif event not in _UNTRACED:
            trace.calls.append(f"{event} after batch {progress.batches_completed}")
        kind = _CUT_HOOKS.get(event)
        if kind is not None:
            is_epoch = kind == "epoch"
            count = progress.epochs_completed if is_epoch else progress.batches_completed
            self._record_moment(args[0], args[1], kind, f"{kind} {count}")

    def _record_moment(self, trainer: Trainer, module: Module, kind: str, moment: str) -> None:
        """Record the attribute values at a moment, and cut the run there if it is chosen."""
        trace = self._trace
        if moment in trace.held:  # only the first batch of a validation counts
            return
        trace.held[moment] = self._read_values(module)
        if trainer.should_stop:
            trace.stopping.add(moment)
        if moment in self._cuts:
            trainer.save_checkpoint(self._folder / _CUT_FILE)
            # a validation that is cut is run again from its start
            position = len(trace.calls), len(trace.logged)
            trace.marks[moment] = self._validation_mark if kind == "validation" else position
            if self._archive is not None:
                shutil.copytree(self._folder, self._archive / moment)


def trace_fit(
    harness: CallbackHarness,
    folder: Path,
    cuts: frozenset[str] = frozenset(),
    *,
    archive: Path | None = None,
    is_resumed: bool = False,
) -> RunTrace:
    """Run a fit with a new callback and a new module, and return its trace.

    Args:
        harness: makes the callback, the module and the trainer.
        folder: the folder to run in.
        cuts: the moments to save a checkpoint at.
        archive: the folder that keeps a copy of `folder` as it is at each cut.
        is_resumed: whether to resume from the checkpoint in the folder.
    """
    trace = RunTrace()
    with rng.isolated():
        # another seed for a resumed run, as in a new process: only the checkpoint may restore it
        rng.reseed(_SEED + is_resumed)
        callback, module = harness.make(), harness.make_module()
        options = {"max_epochs": _EPOCHS, "logger": _TraceLogger(trace), **harness.options}
        ignored = harness.may_differ | callback.volatile_state
        read_values = partial(attribute_values, callback, names=ignored)
        recorder = _TraceRecorder(trace, read_values, folder, cuts, archive)
        trainer = harness.make_trainer(callback, recorder, **options)
        trainer.fit(module, ckpt_path=folder / _CUT_FILE if is_resumed else None)
        trace.held[THE_END] = read_values(module)
        trace.results = public_values(callback, module)
        trace.closing = {
            "epochs": trainer.current_epoch,
            "batches": trainer.progress.batches_completed,
            "steps": trainer.global_step,
            "stop_reason": trainer.stop_reason,
        }
        trace.metrics = {name: value.clone() for name, value in trainer.callback_metrics.items()}
        trace.files = _file_digests(folder)
        trainer.save_checkpoint(folder / "end.ckpt")
        trainer.close()
        trace.end = torch.load(folder / "end.ckpt", weights_only=True)
    return trace


def _file_digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file in a folder by its path, without the kit's own checkpoint."""
    return {
        str(path.relative_to(folder)): hashlib.blake2b(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != _CUT_FILE
    }
