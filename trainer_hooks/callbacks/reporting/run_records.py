"""The records of a run's journal, as plain data."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting import run_facts
from trainer_hooks.callbacks.reporting.run_config import RunConfig
from trainer_hooks.errors import TerminationSignal, message_of

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ending_of", "manifest_of", "place_of", "start_record"]

_LONGEST_MESSAGE = 2000


def manifest_of(trainer: Trainer) -> dict[str, Any]:
    """Return what a run is made with."""
    configs = (c.shown for c in trainer.callbacks if isinstance(c, RunConfig))
    return {
        "versions": run_facts.versions(),
        "git": run_facts.git_state(),
        "command": run_facts.command(),
        "seeds": run_facts.seeds(),
        "hardware": run_facts.hardware(trainer.device),
        "environment": run_facts.environment(),
        "precision": trainer.precision,
        "config": next(configs, None),
    }


def start_record(
    trainer: Trainer, module: Module, stage: str, run: str, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Return the first record of a run: where it stands, what takes part, what it is made with."""
    active = [report for report in trainer.callback_report if report.is_active]
    told = ("distribution", "version", "name", "status", "reason", "seconds")
    return {
        "event": "start",
        "run": run,
        "time": time.time(),
        "stage": stage,
        "pid": os.getpid(),
        "process": run_facts.process_started(os.getpid()),
        "module": type(module).__qualname__,
        **place_of(trainer),
        "resumed_from": trainer.ckpt_path,
        "max_epochs": trainer.max_epochs,
        "max_steps": trainer.max_steps,
        **manifest,
        "callbacks": [{"name": r.name, "supplier": r.supplier, "band": r.band} for r in active],
        "plugins": [{key: getattr(plugin, key) for key in told} for plugin in trainer.plugins],
    }


def place_of(trainer: Trainer) -> dict[str, int]:
    """Return how far a training is; `step` is the x axis of what loggers are given."""
    progress = trainer.progress
    return {
        "epoch": progress.epochs_completed,
        "batches": progress.batches_completed,
        "global_step": progress.steps_completed,
        "step": progress.batches_stepped,
    }


def ending_of(error: BaseException) -> dict[str, Any]:
    """Return how an exception ends a run."""
    if isinstance(error, TerminationSignal):
        return {"status": "signal", "signal": signal.Signals(error.signum).name}
    if isinstance(error, KeyboardInterrupt):
        return {"status": "signal", "signal": signal.SIGINT.name}
    told = {"type": type(error).__qualname__, "message": message_of(error)[:_LONGEST_MESSAGE]}
    return {"status": "failed", "error": told}
