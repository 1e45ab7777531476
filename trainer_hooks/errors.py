"""Every error that trainer_hooks raises on purpose.

::

    TrainerHooksError
    |-- OptionError            (ValueError)    a Trainer option is unknown or has a bad value
    |-- CallbackError          (ValueError)    a callback cannot be registered
    |   `-- StateKeyError                      two stateful callbacks share one state_key
    |-- PluginError            (RuntimeError)  an installed plugin could not be loaded
    |-- ModuleError            (TypeError)     a module lacks a method or returns the wrong type
    |-- DataError              (ValueError)    a loader is missing, empty or unusable
    |-- MetricError            (ValueError)    a value cannot be logged, or a monitor is unknown
    |-- OptimizationError      (ValueError)    configure_optimizers returned something unusable
    |-- CheckpointError        (RuntimeError)  a checkpoint cannot be written, read or restored
    |   |-- CheckpointNotFoundError (FileNotFoundError)
    |   `-- CheckpointStateError   (TypeError) a state holds a value that cannot be loaded safely
    |-- ExportError            (RuntimeError)  a module cannot be exported
    |-- NonFiniteError         (ArithmeticError)  NaN or infinity in a loss, gradient or weight
    |-- UsageError             (RuntimeError)  a call that makes no sense at this moment
    |-- MovedError             (ImportError)   a name is imported from its former module
    `-- StopTraining                           raised by a hook or step to end the run in order

Each message says what, where, the rule, and what to do. `TerminationSignal` is no error: it is the
`SystemExit` that a SIGTERM or SIGUSR1 becomes, with exit code 128 + the signal's number.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from trainer_hooks._text import printable_lines

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
    "did_you_mean",
    "error_message",
    "error_summary",
    "foreign_hint",
    "is_interruption",
]


class TrainerHooksError(Exception):
    """Base of every error that trainer_hooks raises on purpose.

    Its text has control characters escaped; `args` holds it as it was.
    """

    def __str__(self) -> str:
        # a message quotes files, names and metadata of others, and a traceback goes to a terminal
        return printable_lines(super().__str__())


class TrainerHooksWarning(UserWarning):
    """Category of every warning that trainer_hooks gives."""


class TrainerHooksAdvice(TrainerHooksWarning):
    """Category of warnings about valid settings that are perhaps a mistake; each is given once."""


class OptionError(TrainerHooksError, ValueError):
    """Raised for a Trainer option that is unknown or has a value outside its rule."""


class CallbackError(TrainerHooksError, ValueError):
    """Raised for a callback that cannot be registered."""


class StateKeyError(CallbackError):
    """Raised when two stateful callbacks have one key in a checkpoint."""


class PluginError(TrainerHooksError, RuntimeError):
    """Raised for an installed plugin that could not be loaded, with `plugin_errors="raise"`."""


class ModuleError(TrainerHooksError, TypeError):
    """Raised for a Module or DataModule that lacks a method or returns the wrong type."""


class DataError(TrainerHooksError, ValueError):
    """Raised for a loader that is missing, empty or unusable."""


class MetricError(TrainerHooksError, ValueError):
    """Raised for a value that cannot be logged, or a monitor that was never logged."""


class OptimizationError(TrainerHooksError, ValueError):
    """Raised for a `configure_optimizers` whose return value cannot be used."""


class CheckpointError(TrainerHooksError, RuntimeError):
    """Raised for a checkpoint that cannot be written, read or restored."""


class CheckpointNotFoundError(CheckpointError, FileNotFoundError):
    """Raised for a checkpoint that does not exist."""


class CheckpointStateError(CheckpointError, TypeError):
    """Raised at save time for a state that could not be loaded back without running code."""


class ExportError(TrainerHooksError, RuntimeError):
    """Raised for a module that cannot be exported, or whose export computes other values."""


class NonFiniteError(TrainerHooksError, ArithmeticError):
    """Raised by a guard that found NaN or infinity in a loss, in gradients or in weights."""


class UsageError(TrainerHooksError, RuntimeError):
    """Raised for a call that makes no sense at this moment."""


class MovedError(TrainerHooksError, ImportError):
    """Raised for an import of a name from its former module."""


class StopTraining(TrainerHooksError):  # noqa: N818 - it is a request, not a fault
    """Raise it in any hook or step to end a run in order: the end hooks fire, nothing escapes.

    The rest of the current batch is skipped, and no other batch begins. A validation that is due at
    the end of the epoch still runs, so that callbacks which monitor a metric have its value. Unlike
    `trainer.stop`, it does not wait for `min_epochs` and `min_steps`.
    """


StopTrainingError = StopTraining
"""pytorch-accelerated's name for `StopTraining`."""


class TerminationSignal(SystemExit):
    """Leaves an entry point after SIGTERM or SIGUSR1; the process exits with 128 + its number.

    Attributes:
        signum: the signal's number.
        is_in_order: whether it was raised after the current batch was completed.
    """

    def __init__(self, signum: int, *, is_in_order: bool = False) -> None:
        super().__init__(128 + signum)
        self.signum = signum
        self.is_in_order = is_in_order

    def __reduce__(self) -> tuple[type[TerminationSignal], tuple[int]]:
        return type(self), (self.signum,)


def is_interruption(error: BaseException) -> bool:
    """Return whether an error is no fault of the code that it was raised in.

    Such are requests to end the program: Ctrl-C, the termination signal, and the exit that a signal
    handler of the user's own raises inside whatever code is running. So is the error that torch's
    handler of SIGCHLD raises there when a worker process of a loader has died. Everything else is a
    fault of that code: `sys.exit` in it, too, and its own errors that derive from `BaseException`.
    """
    if isinstance(error, KeyboardInterrupt | TerminationSignal):
        return True
    return _is_from_signal_handler(error, only_child=isinstance(error, Exception))


def _is_from_signal_handler(error: BaseException, *, only_child: bool) -> bool:
    """Return whether an error passed through a Python function that handles a signal.

    Args:
        error: the error.
        only_child: whether only SIGCHLD counts, the signal of a child process that has ended.
    """
    import signal

    signals = signal.valid_signals()
    if only_child:
        signals &= {getattr(signal, "SIGCHLD", 0)}  # Windows has none
    handlers = {_code_of(signal.getsignal(signum)) for signum in signals} - {None}
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code not in handlers:
        trace = trace.tb_next
    return trace is not None


def _code_of(handler: object) -> object:
    """Return the code of a function, a method, a partial, or an object's `__call__`; or None."""
    if not callable(handler):  # SIG_DFL, whose class is an Enum: that of a class is not meant
        return None
    while isinstance(handler, partial):
        handler = handler.func
    if handler is not None and not hasattr(handler, "__code__"):  # a method has its function's
        handler = getattr(type(handler), "__call__", None)  # noqa: B004 - its code is wanted
    return getattr(handler, "__code__", None)


def error_message(error: BaseException) -> str:
    """Return an error's message, or a note that its `__str__`, which may be any code, failed."""
    try:
        return str(error)
    except BaseException as another:
        if is_interruption(another):
            raise
        return f"<str() of it raised {type(another).__name__}>"


def error_summary(error: BaseException) -> str:
    """Return an error's type and message; this never fails."""
    return f"{type(error).__name__}: {error_message(error)}".rstrip(": ")


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an error, unless it has that note already; this never fails."""
    # from the dict: reading the attribute may run code of the error's class
    notes = error.__dict__.get("__notes__")
    note = printable_lines(note)
    if isinstance(notes, list) and note in notes:
        return
    with suppress(Exception):  # the error's class may override `add_note`
        error.add_note(note)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return `" Did you mean 'x'?"` for the candidate nearest to `name`, or an empty string."""
    from trainer_hooks._words import nearest

    match = nearest(name, candidates)
    return f" Did you mean {match!r}?" if match else ""


def suggest(table: str, name: str, candidates: Iterable[str]) -> str:
    """Return the answer of the table of words for a name, or else `did_you_mean`.

    Args:
        table: `"options"`, `"fit"`, `"hooks"` or `"names"`.
        name: the name that nothing has.
        candidates: the names that there are.
    """
    from trainer_hooks._words import advice, instead_of

    answer = instead_of(table, name)
    return did_you_mean(name, candidates) if answer is None else advice(answer)


_COMMON = frozenset({"builtins", "abc", "typing", "collections", "torch", "trainer_hooks"})
"""Packages from which any class may derive, so that they say nothing of where it belongs."""


def foreign_hint(kind: type, name: str) -> str:
    """Return a sentence that names the framework of a class and the cure; or an empty string.

    Args:
        kind: the class; only the names of its ancestors are looked at, nothing is imported.
        name: the class to derive from here, as `"Callback"`.
    """
    packages = {base: base.__module__.partition(".")[0] for base in kind.__mro__}
    if not {"lightning", "pytorch_lightning"}.isdisjoint(packages.values()):
        return f" It is Lightning's: change the import, and derive it from trainer_hooks.{name}."
    derives_here = any(
        base.__name__ == name and packages[base] == "trainer_hooks" for base in kind.__mro__
    )
    if derives_here:
        return ""
    expected_packages = {*_COMMON, packages[kind]}
    foreign = [base for base in kind.__mro__ if packages[base] not in expected_packages]
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
