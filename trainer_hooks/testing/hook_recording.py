"""Record the hook calls of a run: RecordingCallback, and run_hooks for a single callback."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.connector.registry import validate_callback
from trainer_hooks.errors import OptionError, did_you_mean
from trainer_hooks.testing.harness import (
    ENTRY_POINTS,
    CallbackHarness,
    overrides_hook,
    run_entry_point,
)
from trainer_hooks.testing.tiny_module import TinyModule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.module.module import Module


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call of a hook.

    Attributes:
        name: the hook's name.
        args: its arguments without the trainer and the module.
        epoch: the index of the current epoch.
        batch: training batches completed.
        step: optimizer steps completed.
    """

    name: str
    args: tuple[Any, ...] = ()
    epoch: int = 0
    batch: int = 0
    step: int = 0


class RecordingCallback(Callback):
    """Record each hook call, in order.

    Example::

        recording = RecordingCallback()
        Trainer(callbacks=[recording], max_epochs=2).fit(TinyModule())
        assert recording.count("on_train_epoch_end") == 2
        assert recording.of("on_fit_end")[0].epoch == 2
    """

    def __init__(self) -> None:
        self.calls: list[HookCall] = []

    @property
    def names(self) -> list[str]:
        """The names of the called hooks, in order, one for each call."""
        return [call.name for call in self.calls]

    def count(self, name: str) -> int:
        """Return how often a hook was called."""
        return self.names.count(name)

    def of(self, name: str) -> list[HookCall]:
        """Return the calls of one hook."""
        return [call for call in self.calls if call.name == name]

    def clear(self) -> None:
        """Delete the calls recorded so far."""
        self.calls.clear()

    # overriding this method makes the relay pass every hook to it, instead of the named methods
    def run_event(self, event: str, *args: Any) -> None:
        """Record the call, then run the hook if a subclass defines it."""
        trainer, _, *hook_args = args
        counts: tuple[int, ...] = ()
        if event not in ("on_init_start", "on_init_end"):  # the counters do not exist before
            done = trainer.progress
            counts = done.epochs_completed, done.batches_completed, done.steps_completed
        self.calls.append(HookCall(event, tuple(hook_args), *counts))
        super().run_event(event, *args)


def run_hooks(
    callback: Callback,
    entry_point: str,
    *,
    module: Callable[[], Module] = TinyModule,
    trainer_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """Call a callback's hooks as a run does, from `Trainer(...)` to `close`; return their names.

    It is a real run of a tiny module, which takes a few milliseconds, so each hook gets the
    arguments that it gets in training.

    Args:
        callback: the callback.
        entry_point: `"fit"`, `"validate"`, `"test"` or `"predict"`.
        module: makes the module to run.
        trainer_options: options of the trainer; a fit has one epoch unless they say otherwise.

    Returns:
        The names of the hooks that the callback overrides, in the order of their calls, one for
        each call.

    Raises:
        OptionError: there is no such entry point.
        Exception: the callback raised it; a note names the hook.

    Example::

        names = run_hooks(MyCallback(), "fit")
        assert names.count("on_train_epoch_end") == 1
    """
    if entry_point not in ENTRY_POINTS:
        raise OptionError(
            f"entry point {entry_point!r} given to run_hooks: must be one of "
            f"{', '.join(ENTRY_POINTS)}.{did_you_mean(entry_point, ENTRY_POINTS)}"
        )
    validate_callback(callback, "what run_hooks was given")
    recording = RecordingCallback()
    options = {"max_epochs": 1, **(trainer_options or {})}
    # a folder of its own, as a callback may write where the trainer's root is
    with tempfile.TemporaryDirectory(prefix="callback-hooks-") as folder:
        harness = CallbackHarness(
            lambda: callback, module, options, frozenset(), Path(folder).resolve()
        )
        with harness.new_folder(), harness.make_trainer(recording, callback) as trainer:
            run_entry_point(trainer, entry_point, module())
    return [name for name in recording.names if overrides_hook(callback, name)]
