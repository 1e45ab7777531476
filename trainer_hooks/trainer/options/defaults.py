"""What a trainer takes when nothing was given: callbacks and loggers."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.callbacks.progress.rich_progress import RichProgressBar
from trainer_hooks.callbacks.progress.tqdm_progress import TQDMProgressBar
from trainer_hooks.callbacks.reporting.run_manifest import RunManifest
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.model_checkpoint import ModelCheckpoint
from trainer_hooks.callbacks.stopping.timer import Timer
from trainer_hooks.callbacks.summary.model_summary import ModelSummary
from trainer_hooks.callbacks.summary.rich_model_summary import RichModelSummary
from trainer_hooks.checkpoint import is_remote, require_reachable
from trainer_hooks.connector import Default
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.base import Logger
from trainer_hooks.loggers.csv import CSVLogger
from trainer_hooks.loggers.folder_logger import tell_apart

if TYPE_CHECKING:
    from trainer_hooks.connector import CallbackConnector
    from trainer_hooks.trainer.options.config import TrainerConfig

__all__ = ["check_switches", "default_callbacks", "make_loggers", "root_dir"]


def root_dir(config: TrainerConfig) -> str:
    """Return where logs and checkpoints go."""
    given = config.default_root_dir
    return str(Path.cwd() if given is None else given)


def default_callbacks(config: TrainerConfig) -> tuple[Default, ...]:
    """Return the callbacks that take part unless others of their kind were given."""
    found = []
    is_dry = bool(config.fast_dev_run)
    if config.max_time is not None and not is_dry:
        found.append(Default(Timer(config.max_time), unless=Timer))
    if config.enable_model_summary is not False:
        found.append(Default(_summary_beside(config.callbacks), unless=ModelSummary))
    logs = config.logger is None or bool(config.logger)
    if config.enable_run_manifest is not False and logs and not is_dry:
        # it leaves the checkpoints alone: what a run is made with is no part of its state
        found.append(Default(RunManifest(in_checkpoint=False), unless=RunManifest))
    if config.enable_progress_bar is not False:
        found.append(Default(TQDMProgressBar(), unless=ProgressBar))
    if config.enable_checkpointing is not False and not is_dry:
        found.append(Default(ModelCheckpoint(), unless=Checkpoint))
    return tuple(found)


def _summary_beside(callbacks: object) -> ModelSummary:
    """Return the summary that goes with the progress bar among the user's callbacks."""
    # an iterator is left alone: it can be read only once
    listed = callbacks if isinstance(callbacks, Collection) else [callbacks]
    has_rich_bar = any(isinstance(callback, RichProgressBar) for callback in listed)
    return RichModelSummary() if has_rich_bar else ModelSummary()


def check_switches(config: TrainerConfig, connector: CallbackConnector) -> None:
    """Make sure that nothing was given that an option switches off.

    Raises:
        OptionError: something was, two progress bars would write over each other, or the root is in
            a store that cannot be reached from here.
    """
    for option, kind in (
        ("enable_checkpointing", Checkpoint),
        ("enable_progress_bar", ProgressBar),
        ("enable_model_summary", ModelSummary),
        ("enable_run_manifest", RunManifest),
    ):
        given = [
            e for e in connector.entries if isinstance(e.callback, kind) and e.origin == "user"
        ]
        if getattr(config, option) is False and given:
            raise OptionError(
                f"Trainer({option}=False) and the {given[0].label} contradict each other: leave "
                "one of them out."
            )
    root = root_dir(config)
    require_reachable(root, f"Trainer(default_root_dir={root!r})")
    bars = [entry for entry in connector.entries if isinstance(entry.callback, ProgressBar)]
    if len(bars) > 1:
        raise OptionError(
            f"Trainer(callbacks=...) has two progress bars, {bars[0].label} and {bars[1].label}: "
            "they would write over each other. Leave one out."
        )


def make_loggers(config: TrainerConfig) -> list[Logger]:
    """Return the loggers that `Trainer(logger=...)` stands for.

    Raises:
        OptionError: something else than a logger was given.
    """
    given: Any = config.logger
    if given is False or config.fast_dev_run:
        return []
    if given is None or given is True:
        root = root_dir(config)
        if is_remote(root):
            raise OptionError(
                f"Trainer(default_root_dir={root!r}): the default logger writes to a local folder. "
                "Pass logger=CSVLogger('logs'), or logger=False."
            )
        return [CSVLogger(root)]
    is_several = isinstance(given, Iterable) and not isinstance(given, str)
    listed = list(given) if is_several else [given]
    for item in listed:
        if not isinstance(item, Logger):
            hint = " (a class: give an instance)" if isinstance(item, type) else ""
            raise OptionError(
                f"Trainer(logger={item!r}): must be True, False, a trainer_hooks Logger, or a list "
                f"of them{hint}."
            )
    tell_apart(listed)
    return listed
