"""Drive a callback through the hooks of a run, without a trainer of one's own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.connector import checked
from trainer_hooks.errors import OptionError, nearest
from trainer_hooks.testing.bench import Bench
from trainer_hooks.testing.entry import ENTRY_POINTS, enter, listens
from trainer_hooks.testing.recording import RecordingCallback
from trainer_hooks.testing.tiny import TinyModule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.callback import Callback
    from trainer_hooks.module import Module

__all__ = ["run_hooks"]


def run_hooks(
    callback: Callback,
    entry_point: str,
    *,
    module: Callable[[], Module] = TinyModule,
    trainer_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Call a callback's hooks as a run does, from `Trainer(...)` to `close`; return their names.

    It is a real run, of a tiny module for a few milliseconds, so each hook is given what it is
    given in earnest.

    Args:
        callback: the callback.
        entry_point: `"fit"`, `"validate"`, `"test"` or `"predict"`.
        module: makes the module to run.
        trainer_options: options of the trainer; a fit has one epoch unless they say otherwise.

    Returns:
        The hooks that the callback overrides, in the order in which they were called, as often as
        they were.

    Raises:
        OptionError: there is no such entry point.
        Exception: whatever the callback raised, with a note that names the hook.

    Example::

        names = run_hooks(MyCallback(), "fit")
        assert names.count("on_train_epoch_end") == 1
    """
    if entry_point not in ENTRY_POINTS:
        raise OptionError(
            f"entry point {entry_point!r} given to run_hooks: must be one of "
            f"{', '.join(ENTRY_POINTS)}.{nearest(entry_point, ENTRY_POINTS)}"
        )
    checked(callback, "what run_hooks was given")
    recording = RecordingCallback()
    options = {"max_epochs": 1, **(trainer_options or {})}
    with tempfile.TemporaryDirectory(prefix="callback-hooks-") as folder:
        bench = Bench(lambda: callback, module, options, frozenset(), Path(folder).resolve())
        with bench.room(), bench.trainer(recording, callback) as trainer:
            enter(trainer, entry_point, module())
    return [name for name in recording.names if listens(callback, name)]
