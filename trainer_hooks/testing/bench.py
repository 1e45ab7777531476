"""Bench: one callback of a factory, and what it is run with."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.callbacks.reporting.run_manifest import RunManifest
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.summary.model_summary import ModelSummary
from trainer_hooks.connector import checked
from trainer_hooks.errors import CallbackError
from trainer_hooks.loggers.base import Logger
from trainer_hooks.testing import world
from trainer_hooks.testing.trial import Trial
from trainer_hooks.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from trainer_hooks.callback import Callback
    from trainer_hooks.module import Module

__all__ = ["Bench"]


class _Drain(Logger):
    """A logger for callbacks that need one; it keeps nothing."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Forget them."""


@dataclass
class Bench:
    """One callback of a factory, and what it is run with.

    Attributes:
        factory: makes the callback, or a list of several.
        make_module: makes the module that is trained.
        options: options of every trainer beyond the bench's own.
        may_differ: keys of the state that may be another after a resume, such as times.
        folder: where everything is written.
        position: which of several callbacks it is about.
        count: how many callbacks the factory made.
    """

    factory: Callable[[], object]
    make_module: Callable[[], Module]
    options: Mapping[str, Any]
    may_differ: frozenset[str]
    folder: Path
    position: int = 0
    count: int = field(default=1, init=False)
    _root: Path | None = field(default=None, init=False)

    def make(self) -> Callback:
        """Return a new callback.

        Raises:
            CallbackError: the factory made something else.
        """
        made = self.factory()
        several = list(made) if isinstance(made, list | tuple) else [made]
        self.count = len(several)
        if not several:
            raise CallbackError("the factory made no callback, but an empty list. Return one.")
        return checked(several[self.position], "what the factory made")

    @cached_property
    def trial(self) -> Trial:
        """The first contact with the callback, in which everything was tried once."""
        return Trial(self)

    @property
    def subject(self) -> str:
        """The callback's class by name, or that the factory failed."""
        made = self.trial.callback
        return "(not made)" if made is None else type(made).__qualname__

    @contextlib.contextmanager
    def room(self, name: str = "run") -> Iterator[Path]:
        """Make an empty folder the working directory; a second one of a name replaces the first."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with self.at(folder):
            yield folder

    @contextlib.contextmanager
    def at(self, folder: Path) -> Iterator[None]:
        """Make a folder the working directory, and the trainers' root.

        What the callback changes of the process is put back, so that one fault is found once.
        """
        self._root = folder
        with world.restored(), contextlib.chdir(folder):
            yield

    def trainer(self, *callbacks: Callback, **options: Any) -> Trainer:
        """Return a quiet trainer of two short epochs on the CPU, in the room last made."""

        def switch(kind: type[Callback]) -> bool | None:
            return None if any(isinstance(item, kind) for item in callbacks) else False

        defaults: dict[str, Any] = {
            "accelerator": "cpu",
            "plugins": False,
            "logger": _Drain(),
            "enable_checkpointing": switch(Checkpoint),
            "enable_progress_bar": switch(ProgressBar),
            "enable_model_summary": switch(ModelSummary),
            "enable_run_manifest": switch(RunManifest),
            "default_root_dir": self._root,
            "max_epochs": 2,
            "accumulate_grad_batches": 2,
            "iteration_length": 2,
            "log_every_n_steps": 1,
        }
        return Trainer(callbacks=list(callbacks), **{**defaults, **self.options, **options})
