"""Loggers by name: the entry points by which this package and others register loggers.

`Trainer(logger="csv")` and `logger: csv` in a config look a name up here. Only the class that was
named is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._annotations import signature_of
from trainer_hooks.errors import OptionError, PluginError, did_you_mean, error_summary
from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from importlib_metadata import EntryPoint

GROUP = "trainer_hooks.loggers"
"""The entry-point group of loggers. An entry point's name is the logger's; its value is a subclass
of Logger, or a function that returns a Logger."""


def installed_loggers() -> dict[str, list[EntryPoint]]:
    """Return the registered loggers by name, sorted; several of one name are an error when used."""
    from importlib_metadata import entry_points

    registered: dict[str, list[EntryPoint]] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        entries = registered.setdefault(entry.name, [])
        # an editable installation leaves its metadata in two places
        if all(entry.value != other.value for other in entries):
            entries.append(entry)
    return registered


def load_logger(entry: EntryPoint) -> Any:
    """Import the class or function that an entry point refers to.

    Raises:
        PluginError: it cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:
        raise PluginError(
            f"logger {_label(entry)} could not be loaded: {error_summary(error)}. "
            "Repair or uninstall its package, or pass another logger."
        ) from error


def make_logger(name: str, root: str | None) -> Logger:
    """Return a new logger of a registered name.

    Args:
        name: the name.
        root: the run's root folder, the `save_dir` of a logger that takes one; None if it is in a
            remote store.

    Raises:
        OptionError: there is no logger of that name, there are several, or it needs arguments.
        PluginError: it cannot be loaded, or is no logger.
    """
    registered = installed_loggers()
    if name not in registered:
        raise OptionError(
            f"Trainer(logger={name!r}): must be True, False, a trainer_hooks Logger, the name of "
            f"an installed one, or a list of them.{did_you_mean(name, registered)} "
            f"Installed: {', '.join(registered) or 'none'}."
        )
    entry, *others = registered[name]
    if others:
        raise OptionError(
            f"Trainer(logger={name!r}): must be the name of one logger, and is registered by "
            f"{' and by '.join(map(_label, (entry, *others)))}. Pass an object of the right one."
        )
    factory = load_logger(entry)
    parameters = signature_of(factory).parameters
    # without it some loggers would write to the working directory, and not beside the checkpoints
    arguments = {} if root is None or "save_dir" not in parameters else {"save_dir": root}
    try:
        # before the call: a TypeError raised inside the factory has another cause
        signature_of(factory).bind(**arguments)
    except TypeError as error:
        raise OptionError(
            f"Trainer(logger={name!r}): {entry.value} must be given arguments ({error}). Pass an "
            "object, or its class_path and init_args in a config."
        ) from error
    logger = factory(**arguments)
    if not isinstance(logger, Logger):
        raise PluginError(
            f"logger {_label(entry)} is of type {type(logger).__qualname__}: an entry point of the "
            f"group {GROUP!r} must refer to a subclass of trainer_hooks.loggers.Logger, or to a "
            "function that returns a Logger."
        )
    return logger


def _label(entry: EntryPoint) -> str:
    """Return an entry point with its distribution, for messages."""
    distribution = f" of {entry.dist.name} {entry.dist.version}" if entry.dist is not None else ""
    return f"{entry.name!r} = {entry.value}{distribution}"
