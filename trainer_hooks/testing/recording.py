"""RecordingCallback: a callback that writes down every hook call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_hooks.callback import Callback

__all__ = ["HookCall", "RecordingCallback"]


@dataclass(frozen=True, slots=True)
class HookCall:
    """One call of a hook.

    Attributes:
        name: the hook's name.
        args: its arguments without the trainer and the module.
        epoch: the index of the epoch under way.
        batch: how many training batches were done.
        step: how many optimizer steps were done.
    """

    name: str
    args: tuple[Any, ...] = ()
    epoch: int = 0
    batch: int = 0
    step: int = 0


class RecordingCallback(Callback):
    """Write down each hook call, in order.

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
        """The names of the hooks that were called, in order, as often as they were."""
        return [call.name for call in self.calls]

    def count(self, name: str) -> int:
        """Return how often a hook was called."""
        return self.names.count(name)

    def of(self, name: str) -> list[HookCall]:
        """Return the calls of one hook."""
        return [call for call in self.calls if call.name == name]

    def clear(self) -> None:
        """Forget the calls so far."""
        self.calls.clear()

    def run_event(self, event: str, *args: Any) -> None:
        """Write the call down; a hook that a subclass defines runs afterwards."""
        trainer, _, *others = args
        given = tuple(others)
        if event in ("on_init_start", "on_init_end"):  # the counters do not exist before
            self.calls.append(HookCall(event, given))
        else:
            done = trainer.progress
            self.calls.append(
                HookCall(
                    event, given, done.epochs_completed, done.batches_completed,
                    done.steps_completed,
                )
            )  # fmt: skip
        super().run_event(event, *args)
