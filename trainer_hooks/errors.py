"""Every error that trainer_hooks raises on purpose.

::

    TrainerHooksError
    |-- OptionError            (ValueError)    a Trainer option is unknown or has a bad value
    |-- CallbackError          (ValueError)    a callback cannot be registered
    |   `-- StateKeyError                      two stateful callbacks share one state_key
    |-- PluginError            (RuntimeError)  an installed plugin could not be loaded
    |-- ModuleError            (TypeError)     a module lacks or returns the wrong thing
    |-- DataError              (ValueError)    a loader is missing, empty or unusable
    |-- MetricError            (ValueError)    a value cannot be logged, or a monitor is unknown
    |-- OptimizationError      (ValueError)    configure_optimizers returned something unusable
    |-- CheckpointError        (RuntimeError)  a checkpoint cannot be written, read or applied
    |   |-- CheckpointNotFoundError (FileNotFoundError)
    |   `-- CheckpointStateError   (TypeError) a state holds what cannot be loaded back safely
    |-- ExportError            (RuntimeError)  a module cannot be exported
    |-- NonFiniteError         (ArithmeticError)  NaN or infinity in a loss, gradient or weight
    |-- UsageError             (RuntimeError)  a call that makes no sense at this moment
    |-- MovedError             (ImportError)   a name is imported from where it was once
    `-- StopTraining                           raised by a hook or step to end the run in order

Each message says what, where, the rule, and what to do. `TerminationSignal` is no error: it is the
`SystemExit` that a SIGTERM or SIGUSR1 becomes, with exit code 128 + the signal's number.
"""

from __future__ import annotations

import difflib
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "CallbackError",
    "CheckpointError",
    "CheckpointNotFoundError",
    "CheckpointStateError",
    "DataError",
    "ExportError",
    "MetricError",
    "ModuleError",
    "MovedError",
    "NonFiniteError",
    "OptimizationError",
    "OptionError",
    "PluginError",
    "StateKeyError",
    "StopTraining",
    "StopTrainingError",
    "TerminationSignal",
    "TrainerHooksAdvice",
    "TrainerHooksError",
    "TrainerHooksWarning",
    "UsageError",
    "add_note",
    "described",
    "foreign_hint",
    "message_of",
    "nearest",
]


class TrainerHooksError(Exception):
    """Base of every error that trainer_hooks raises on purpose."""


class TrainerHooksWarning(UserWarning):
    """Category of every warning that trainer_hooks gives."""


class TrainerHooksAdvice(TrainerHooksWarning):
    """Category of warnings of what is allowed, and perhaps not meant; each is given once."""


class OptionError(TrainerHooksError, ValueError):
    """Raised for a Trainer option that is unknown or has a value outside its rule."""


class CallbackError(TrainerHooksError, ValueError):
    """Raised for a callback that cannot be registered."""


class StateKeyError(CallbackError):
    """Raised when two stateful callbacks would write to one place in a checkpoint."""


class PluginError(TrainerHooksError, RuntimeError):
    """Raised for an installed plugin that could not be loaded, with `plugin_errors="raise"`."""


class ModuleError(TrainerHooksError, TypeError):
    """Raised for a Module or DataModule that lacks a method or returns the wrong thing."""


class DataError(TrainerHooksError, ValueError):
    """Raised for a loader that is missing, empty or unusable."""


class MetricError(TrainerHooksError, ValueError):
    """Raised for a value that cannot be logged, or a monitor that was never logged."""


class OptimizationError(TrainerHooksError, ValueError):
    """Raised for a `configure_optimizers` whose return value cannot be used."""


class CheckpointError(TrainerHooksError, RuntimeError):
    """Raised for a checkpoint that cannot be written, read or applied."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """Raised for a checkpoint that is not there."""


class CheckpointStateError(CheckpointError, TypeError):
    """Raised at save time for a state that could not be loaded back without running code."""


class ExportError(TrainerHooksError, RuntimeError):
    """Raised for a module that cannot be exported, or whose export computes something else."""


class NonFiniteError(TrainerHooksError, ArithmeticError):
    """Raised by a guard that found NaN or infinity in a loss, in gradients or in weights."""


class UsageError(TrainerHooksError, RuntimeError):
    """Raised for a call that makes no sense at this moment."""


class MovedError(TrainerHooksError, ImportError):
    """A name is imported from where it was once."""


class StopTraining(TrainerHooksError):  # noqa: N818 - it is a request, not a fault
    """Raise it in any hook or step to end a run in order: the end hooks fire, nothing escapes.

    The batch in work is left out, and no other is begun. The validation that the end of an epoch
    would have had still runs, so that what watches a metric finds it. Unlike `trainer.stop`, it
    does not wait for `min_epochs` and `min_steps`.
    """


StopTrainingError = StopTraining
"""What pytorch-accelerated calls it."""


class TerminationSignal(SystemExit):
    """Leaves an entry point after SIGTERM or SIGUSR1; the process exits with 128 + its number.

    Attributes:
        signum: the signal's number.
        is_in_order: whether it was waited with until the batch in work was done.
    """

    def __init__(self, signum: int, *, is_in_order: bool = False) -> None:
        super().__init__(128 + signum)
        self.signum = signum
        self.is_in_order = is_in_order

    def __reduce__(self) -> tuple[type[TerminationSignal], tuple[int]]:
        return type(self), (self.signum,)


def message_of(error: BaseException) -> str:
    """Return what an error says, or that its `__str__` fails, which is code of anybody's."""
    try:
        return str(error)
    except Exception as another:  # noqa: BLE001 - told in its place
        return f"<str() of it raised {type(another).__name__}>"


def described(error: BaseException) -> str:
    """Return an error's type and message; it never fails."""
    return f"{type(error).__name__}: {message_of(error)}".rstrip(": ")


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error once, however often it is raised; never fail instead of it."""
    notes = error.__dict__.get("__notes__")
    if isinstance(notes, list) and note in notes:
        return
    with suppress(Exception):  # of a class that keeps notes in a way of its own
        error.add_note(note)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the candidate nearest to `name`, or an empty string."""
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f" Did you mean {matches[0]!r}?" if matches else ""


_COMMON = frozenset({"builtins", "abc", "typing", "collections", "torch", "trainer_hooks"})
"""Packages whose classes anybody derives from."""


def foreign_hint(kind: type, name: str) -> str:
    """Return whose a class is that derives from another framework's, and what to do; or "".

    Args:
        kind: the class, which is judged by the names of its ancestors alone.
        name: what to derive from here.
    """
    packages = {base: base.__module__.partition(".")[0] for base in kind.__mro__}
    if not {"lightning", "pytorch_lightning"}.isdisjoint(packages.values()):
        return f" It is Lightning's: change the import, and derive it from trainer_hooks.{name}."
    own = {*_COMMON, packages[kind]}
    foreign = [base for base in kind.__mro__ if packages[base] not in own]
    if not foreign:
        return ""
    base = foreign[-1]
    package = packages[base]
    named = f"{base.__module__}.{base.__qualname__}"
    return (
        f" It is a class of {package!r}, as it derives from {named}: run it there, derive it from "
        f"trainer_hooks.{name}, or register an adapter for {named!r} in the entry-point group "
        "'trainer_hooks.adapters'."
    )
