"""What a trainer takes when nothing was given: callbacks and loggers."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks.checkpoint import is_remote, require_reachable
from trainer_hooks.connector import Default, adopted
from trainer_hooks.errors import OptionError, foreign_hint
from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from trainer_hooks.callbacks import ModelSummary
    from trainer_hooks.connector import CallbackConnector, Entry
    from trainer_hooks.trainer.options.config import TrainerConfig

_BARS = ("trainer_hooks.callbacks.progress.progress_bar", "ProgressBar")
_SWITCHED = {
    "enable_checkpointing": ("trainer_hooks.callbacks.saving.checkpoint", "Checkpoint"),
    "enable_progress_bar": _BARS,
    "enable_model_summary": ("trainer_hooks.callbacks.summary.model_summary", "ModelSummary"),
    "enable_run_manifest": ("trainer_hooks.callbacks.reporting.run_manifest", "RunManifest"),
}
"""What each option switches off: a class, named so that it is imported only where it is used."""

__all__ = ["check_switches", "default_callbacks", "make_loggers", "root_dir"]


def root_dir(config: TrainerConfig) -> str:
    """Return where logs and checkpoints go."""
    given = config.default_root_dir
    # a Path would take the `~` of `./~/x` for the home folder
    return str(Path.cwd() if given is None else os.path.expanduser(given))  # noqa: PTH111


def default_callbacks(config: TrainerConfig, *, is_several: bool) -> tuple[Default, ...]:
    """Return the callbacks that take part unless others of their kind were given.

    Each is imported as it is made: a trainer that has none of them pays for none.
    """
    found = []
    if config.sync_batchnorm and is_several:
        from trainer_hooks.callbacks import ConvertSyncBatchNormCallback as Converter

        found.append(Default(Converter(), unless=Converter))
    is_dry = bool(config.fast_dev_run)
    if config.max_time is not None and not is_dry:
        from trainer_hooks.callbacks import Timer

        found.append(Default(Timer(config.max_time), unless=Timer))
    if config.enable_model_summary is not False:
        from trainer_hooks.callbacks import ModelSummary

        found.append(Default(_summary_beside(config.callbacks), unless=ModelSummary))
    logs = config.logger is None or bool(config.logger)
    if config.enable_run_manifest is not False and logs and not is_dry:
        from trainer_hooks.callbacks import RunManifest

        # it leaves the checkpoints alone: what a run is made with is no part of its state
        found.append(Default(RunManifest(in_checkpoint=False), unless=RunManifest))
    if config.enable_progress_bar is not False:
        from trainer_hooks.callbacks import ProgressBar, TQDMProgressBar

        found.append(Default(TQDMProgressBar(), unless=ProgressBar))
    if config.enable_checkpointing is not False and not is_dry:
        from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint

        found.append(Default(ModelCheckpoint(), unless=Checkpoint))
    return tuple(found)


def _summary_beside(callbacks: object) -> ModelSummary:
    """Return the summary that goes with the progress bar among the user's callbacks."""
    # an iterator is left alone: it can be read only once
    listed = callbacks if isinstance(callbacks, Collection) else [callbacks]
    rich_bar = class_if_loaded("trainer_hooks.callbacks.progress.rich_progress", "RichProgressBar")
    if any(isinstance(callback, rich_bar) for callback in listed):
        from trainer_hooks.callbacks import RichModelSummary

        return RichModelSummary()
    from trainer_hooks.callbacks import ModelSummary

    return ModelSummary()


def check_switches(config: TrainerConfig, connector: CallbackConnector) -> None:
    """Make sure that nothing was given that an option switches off.

    Raises:
        OptionError: something was, two progress bars would write over each other, or the root is in
            a store that cannot be reached from here.
    """
    for option, kind in _SWITCHED.items():
        given = [e for e in _entries_of(connector, kind) if e.origin == "user"]
        if getattr(config, option) is False and given:
            raise OptionError(
                f"Trainer({option}=False) and the {given[0].label} contradict each other: leave "
                "one of them out."
            )
    root = root_dir(config)
    require_reachable(root, f"Trainer(default_root_dir={root!r})")
    bars = _entries_of(connector, _BARS)
    if len(bars) > 1:
        raise OptionError(
            f"Trainer(callbacks=...) has two progress bars, {bars[0].label} and {bars[1].label}: "
            "they would write over each other. Leave one out."
        )


def _entries_of(connector: CallbackConnector, kind: tuple[str, str]) -> list[Entry]:
    """Return the callbacks of a class that is named by its module and its name."""
    found = class_if_loaded(*kind)
    return [entry for entry in connector.entries if isinstance(entry.callback, found)]


def make_loggers(config: TrainerConfig, default_logger: Callable[[str], Logger]) -> list[Logger]:
    """Return the loggers that `Trainer(logger=...)` stands for.

    Args:
        config: the trainer's options.
        default_logger: makes the one of `logger=True`, with the run's root.

    Raises:
        OptionError: something else than a logger was given.
    """
    given: Any = config.logger
    if given is False:
        return []
    if config.fast_dev_run:
        from trainer_hooks.loggers.dummy import DummyLogger

        return [DummyLogger()]
    if given is None or given is True:
        root = root_dir(config)
        if is_remote(root):
            raise OptionError(
                f"Trainer(default_root_dir={root!r}): the default logger writes to a local folder. "
                "Pass logger=CSVLogger('logs'), or logger=False."
            )
        return [default_logger(root)]
    is_several = isinstance(given, Iterable) and not isinstance(given, str)
    listed = [adopted(item, Logger) for item in (given if is_several else [given])]
    for item in listed:
        if not isinstance(item, Logger):
            hint = " (a class: give an instance)" if isinstance(item, type) else ""
            raise OptionError(
                f"Trainer(logger={item!r}): must be True, False, a trainer_hooks Logger, or a list "
                f"of them{hint}.{foreign_hint(type(item), 'loggers.Logger')}"
            )
    if len(listed) > 1:
        from trainer_hooks.loggers.folder_logger import tell_apart

        tell_apart(listed)
    return listed
