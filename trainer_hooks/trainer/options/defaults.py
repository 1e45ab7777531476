"""The callbacks and loggers that a trainer adds by itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks.checkpoint.paths import is_remote, require_reachable
from trainer_hooks.connector.registry import DefaultCallback, adapt_if_foreign
from trainer_hooks.errors import OptionError, foreign_hint
from trainer_hooks.loggers.base import Logger
from trainer_hooks.trainer.options.config import PROFILERS

if TYPE_CHECKING:
    from trainer_hooks.callbacks import ModelSummary
    from trainer_hooks.connector.connector import CallbackConnector
    from trainer_hooks.connector.registry import CallbackEntry
    from trainer_hooks.profilers import Profiler
    from trainer_hooks.trainer.options.config import TrainerConfig

_BARS = ("trainer_hooks.callbacks.progress.progress_bar", "ProgressBar")
_SWITCHED = {
    "enable_checkpointing": ("trainer_hooks.callbacks.saving.checkpoint", "Checkpoint"),
    "enable_progress_bar": _BARS,
    "enable_run_manifest": ("trainer_hooks.callbacks.reporting.run_manifest", "RunManifest"),
}
"""The class that each option switches off, by name, so that only its users import it.

As in Lightning, `enable_model_summary=False` leaves out the default alone, not one that was passed.
"""


def root_dir(config: TrainerConfig) -> str:
    """Return the folder or address that logs and checkpoints go to.

    Raises:
        OptionError: it is the working directory, and somebody has removed that.
    """
    root = config.default_root_dir
    if root is not None:
        # a Path would take the `~` of `./~/x` for the home folder
        return os.path.expanduser(root)  # noqa: PTH111
    try:
        return str(Path.cwd())
    except FileNotFoundError as error:
        raise OptionError(
            "Trainer(default_root_dir=None): this stands for the working directory, which somebody "
            "has removed. Pass the path of a folder, or change to one that is there."
        ) from error


def default_callbacks(
    config: TrainerConfig, *, is_distributed: bool
) -> tuple[DefaultCallback, ...]:
    """Return the callbacks that take part unless the user gave others of their kind.

    Each is imported only when it is made, so a trainer without them does not load them.
    """
    defaults = []
    if config.sync_batchnorm and is_distributed:
        from trainer_hooks.callbacks import ConvertSyncBatchNormCallback as Converter

        defaults.append(DefaultCallback(Converter(), unless=Converter))
    is_dry = bool(config.fast_dev_run)
    if config.max_time is not None and not is_dry:
        from trainer_hooks.callbacks import Timer

        defaults.append(DefaultCallback(Timer(config.max_time), unless=Timer))
    if config.enable_model_summary is not False:
        from trainer_hooks.callbacks import ModelSummary

        defaults.append(DefaultCallback(_summary_beside(config.callbacks), unless=ModelSummary))
    logs = config.logger is None or bool(config.logger)
    if config.enable_run_manifest is not False and logs and not is_dry:
        from trainer_hooks.callbacks import RunManifest

        # what a run was made with is no state of the training: checkpoints are left alone
        defaults.append(DefaultCallback(RunManifest(in_checkpoint=False), unless=RunManifest))
    if config.enable_progress_bar is not False:
        from trainer_hooks.callbacks import ProgressBar, TQDMProgressBar

        defaults.append(DefaultCallback(TQDMProgressBar(), unless=ProgressBar))
    if config.enable_checkpointing is not False and not is_dry:
        from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint

        defaults.append(DefaultCallback(ModelCheckpoint(), unless=Checkpoint))
    return tuple(defaults)


def _summary_beside(callbacks: object) -> ModelSummary:
    """Return the model summary that matches the progress bar among the user's callbacks."""
    # an iterator is not looked into: it can be read only once
    listed = callbacks if isinstance(callbacks, Collection) else [callbacks]
    rich_bar = class_if_loaded("trainer_hooks.callbacks.progress.rich_progress", "RichProgressBar")
    if any(isinstance(callback, rich_bar) for callback in listed):
        from trainer_hooks.callbacks import RichModelSummary

        return RichModelSummary()
    from trainer_hooks.callbacks import ModelSummary

    return ModelSummary()


def check_switches(config: TrainerConfig, connector: CallbackConnector) -> None:
    """Require that no callback was given that an option switches off.

    Raises:
        OptionError: one was given, two progress bars would write over each other, or the root is in
            a store that cannot be reached from here.
    """
    for option, kind in _SWITCHED.items():
        # the user's own only: a package that is installed must not make a trainer fail
        contradicting = [e for e in _entries_of(connector, kind) if e.origin == "user"]
        if getattr(config, option) is False and contradicting:
            raise OptionError(
                f"Trainer({option}=False) and the {contradicting[0].label} contradict each other: "
                "leave one of them out."
            )
    root = root_dir(config)
    require_reachable(root, f"Trainer(default_root_dir={root!r})")
    bars = _entries_of(connector, _BARS)
    if len(bars) > 1:
        raise OptionError(
            f"Trainer(callbacks=...) has two progress bars, {bars[0].label} and {bars[1].label}: "
            "they would write over each other. Leave one out."
        )


def _entries_of(connector: CallbackConnector, kind: tuple[str, str]) -> list[CallbackEntry]:
    """Return the callbacks of a class that is given by its module and its name."""
    callback_class = class_if_loaded(*kind)
    return [entry for entry in connector.entries if isinstance(entry.callback, callback_class)]


def make_profiler(given: str | Profiler) -> Profiler:
    """Return the profiler that `Trainer(profiler=...)` stands for."""
    if not isinstance(given, str):
        return given
    from trainer_hooks import profilers

    profiler: Profiler = getattr(profilers, PROFILERS[given.lower()])()
    return profiler


def make_loggers(config: TrainerConfig, default_logger: Callable[[str], Logger]) -> list[Logger]:
    """Return the loggers that `Trainer(logger=...)` stands for.

    Args:
        config: the trainer's options.
        default_logger: makes the one of `logger=True`, with the run's root.

    Raises:
        OptionError: something else than a logger was given.
    """
    wanted: Any = config.logger
    if wanted is False:
        return []
    if config.fast_dev_run:
        # not an empty list: calls of `trainer.logger` in the user's code are to run dry, too
        from trainer_hooks.loggers.dummy import DummyLogger

        return [DummyLogger()]
    root = root_dir(config)
    if wanted is None or wanted is True:
        if is_remote(root):
            raise OptionError(
                f"Trainer(default_root_dir={root!r}): the default logger writes to a local folder. "
                "Pass logger=CSVLogger('logs'), or logger=False."
            )
        return [default_logger(root)]
    is_several = isinstance(wanted, Iterable) and not isinstance(wanted, str)
    loggers = [_make_logger(item, root) for item in (wanted if is_several else [wanted])]
    if len(loggers) > 1:
        from trainer_hooks.loggers.run_folder import assign_folders

        assign_folders(loggers)
    return loggers


def _make_logger(given: Any, root: str) -> Logger:
    """Return the logger that one item of `Trainer(logger=...)` stands for.

    An object that has a logger's methods is one, whatever its class is.

    Raises:
        OptionError: it is neither a logger nor the name of one.
    """
    if isinstance(given, str):
        from trainer_hooks.loggers.registry import make_logger

        return make_logger(given, None if is_remote(root) else root)
    logger = adapt_if_foreign(given, Logger)
    if not isinstance(logger, Logger):
        from trainer_hooks.loggers.adapter import LoggerAdapter, is_logger_by_methods

        if is_logger_by_methods(given):
            return LoggerAdapter(given)
        hint = " (a class: give an instance)" if isinstance(logger, type) else ""
        raise OptionError(
            f"Trainer(logger={logger!r}): must be True, False, a trainer_hooks Logger, or a list "
            f"of them{hint}.{foreign_hint(type(logger), 'loggers.Logger')}"
        )
    return logger
