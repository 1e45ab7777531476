"""Isolation of a plugin's code while it is imported and called: it must not change the user's run.

Random states are restored. So are the working directory, torch's default dtype and grad mode, the
handlers of signals, the user's warnings filters and environment variables. Libraries that a plugin
imports set variables and filters of their own, which they need later: those stay.

torch and NumPy are looked up and not imported: a program without them has none of their states.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_told: set[str] = set()
"""Labels of the plugins whose changes were told of: each is told of once in a process."""


@contextmanager
def isolating(label: str) -> Iterator[None]:
    """Restore the settings of the process that code in the context changes, and log which it did.

    Args:
        label: the code's name in the log: that of the plugin.
    """
    random_states = _random_states()
    folder = _working_directory()
    switches = _torch_switches()
    handlers = signal_handlers()
    filters = list(warnings.filters)
    environment = dict(os.environ)
    try:
        yield
    finally:
        for restore, state in random_states:
            restore(state)
        changed = [name for name, restore, old, new in switches if _restored(restore, old, new())]
        if folder is not None and _working_directory() != folder:
            os.chdir(folder)
            changed.append("the working directory")
        changed += restore_handlers(handlers)
        if _restore_filters(filters):
            changed.append("the filters of all warnings")
        added, lost = _restore_environment(environment)
        changed += [f"the environment variable {name}" for name in lost]
        if (changed or added) and label not in _told:
            _told.add(label)
            _tell(label, changed, added)


def _tell(label: str, changed: list[str], added: list[str]) -> None:
    restored = f"changed {', '.join(changed)}, which was restored" if changed else ""
    stays = f"set {', '.join(added)} in the environment, which stays" if added else ""
    log.info(
        "plugin %s, as it was loaded, %s. Its author can do so in a callback's setup, for the "
        "length of a run.",
        label,
        "; ".join(filter(None, (restored, stays))),
    )


def _random_states() -> list[tuple[Callable[[Any], object], Any]]:
    """Return the state of each global random generator, and the function that sets it."""
    states: list[tuple[Callable[[Any], object], Any]] = [(random.setstate, random.getstate())]
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        states.append((numpy_random.set_state, numpy_random.get_state(legacy=False)))
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states.append((torch.set_rng_state, torch.get_rng_state()))
        # a process that does not use the device would initialise it by the question
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        if torch.backends.mps.is_available():
            states.append((torch.mps.set_rng_state, torch.mps.get_rng_state()))
    return states


def _torch_switches() -> list[tuple[str, Callable[[Any], object], Any, Callable[[], Any]]]:
    """Return name, setter, value and getter of torch's switches that change a module's numbers."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return []
    dtype, is_on = torch.get_default_dtype(), torch.is_grad_enabled()
    return [
        ("torch's default dtype", torch.set_default_dtype, dtype, torch.get_default_dtype),
        ("torch's grad mode", torch.set_grad_enabled, is_on, torch.is_grad_enabled),
    ]


def _restored(restore: Callable[[Any], object], old: object, new: object) -> bool:
    """Set a changed value back; return whether it was changed."""
    if new != old:
        restore(old)
    return new != old


def _working_directory() -> str | None:
    with suppress(OSError):  # it was removed
        return os.getcwd()  # noqa: PTH109 - without pathlib's objects
    return None


def signal_handlers() -> dict[signal.Signals, Any]:
    """Return the handler of each signal."""
    numbers = (number for number in signal.valid_signals() if isinstance(number, signal.Signals))
    return {number: signal.getsignal(number) for number in sorted(numbers)}


def restore_handlers(handlers: dict[signal.Signals, Any]) -> list[str]:
    """Install changed handlers again, and return the names of their signals."""
    changed = [
        number
        for number, handler in handlers.items()
        # a handler that was not installed from Python reads as None and cannot be set
        if handler is not None and signal.getsignal(number) != handler
    ]
    # Python sets handlers in the main thread alone, so that none has changed in another
    if threading.current_thread() is threading.main_thread():
        for number in changed:
            signal.signal(number, handlers[number])
    return [f"the handler of {number.name}" for number in changed]


def _restore_filters(before: list[Any]) -> bool:
    """Restore the filters but for those that a library added for its own warnings.

    Returns:
        Whether one that concerns all warnings was added, or one was removed.
    """
    filters: Any = warnings.filters  # typed as a sequence, and documented as a list
    after = list(filters)
    if after == before:
        return False
    of_libraries = [item for item in after if item not in before and not _concerns_all(item)]
    if after == [*of_libraries, *before]:
        return False
    filters[:] = [*of_libraries, *before]
    # the way to tell `warnings` that its filters have changed, so that it looks at them again
    with warnings.catch_warnings():
        pass
    return True


def _concerns_all(item: Any) -> bool:
    """Return whether a filter names no message, no module and no category of a library."""
    _, message, category, module, _ = item
    return message is None and module is None and category.__module__ == "builtins"


def _restore_environment(before: dict[str, str]) -> tuple[list[str], list[str]]:
    """Restore the variables that there were; return the names of added ones, and of restored."""
    lost = [name for name, value in before.items() if os.environ.get(name) != value]
    for name in lost:
        os.environ[name] = before[name]
    return [name for name in os.environ if name not in before], lost
