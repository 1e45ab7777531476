"""Links: what those who run a training of Composer's share of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.compat.composer.running.endings import Endings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.compat.composer.core.data_spec import DataSpec
    from trainer_hooks.compat.composer.core.engine import Engine
    from trainer_hooks.compat.composer.core.evaluator import Evaluator
    from trainer_hooks.compat.composer.core.event import Event
    from trainer_hooks.compat.composer.core.state import State

__all__ = ["Links"]


class Links:
    """What the model's carrier and those who fire the events share; a copy of it is itself.

    Args:
        engine: what calls the callbacks.
        is_guest: whether the trainer is one of trainer_hooks, which knows nothing of Composer.

    Attributes:
        engine: likewise.
        is_guest: likewise.
        state: the state.
        endings: what is due at the end of an epoch and of a fit.
        spec: what the training loader's batches are; None for a module of trainer_hooks.
        predicted: what the batches of a prediction are; None for a module of trainer_hooks.
        evaluators: those of the evaluation under way, in the order of their loaders.
        evaluator: what is evaluated just now; None where that is nothing that was asked for.
        whole: the training batch in work, before it was split.
        parts: its microbatches that are still to come; None if it is not split.
        losses: its losses, added up over the microbatches, by the names to log.
        steps_each_batch: whether schedulers count batches, and not epochs.
        waiting: whether schedulers that count epochs have still to step for this one.
        saving_event: the last event that is for saving.
    """

    def __init__(self, engine: Engine, *, is_guest: bool) -> None:
        self.engine = engine
        self.is_guest = is_guest
        self.state: State = engine.state
        self.endings = Endings(engine, is_guest=is_guest)
        self.spec: DataSpec | None = None
        self.predicted: DataSpec | None = None
        self.evaluators: list[Evaluator] = []
        self.evaluator: Evaluator | None = None
        self.whole: Any = None
        self.parts: Iterator[Any] | None = None
        self.losses: dict[str, Any] = {}
        self.steps_each_batch = True
        self.waiting = False
        self.saving_event: Event | None = None

    def fire(self, event: Event) -> None:
        """Call every callback at an event."""
        self.engine.run_event(event)

    def begin_batch(self, batch: Any) -> None:
        """Take up the next training batch."""
        self.state.batch = self.whole = batch
        self.losses, self.parts = {}, None

    def split(self, size: int) -> list[Any]:
        """Return the microbatches of the batch in work, and begin with its first."""
        assert self.spec is not None
        self.state.batch = self.whole if self.parts is not None else self.state.batch
        self.whole = self.state.batch
        found = list(self.spec.split_batch(self.whole, size))
        self.losses, self.parts = {}, iter(found)
        return found

    def step_schedulers(self) -> None:
        """Let the schedulers that count epochs step, if that is due."""
        if self.waiting:
            self.waiting = False
            for scheduler in self.state.schedulers:
                scheduler.step()

    def __deepcopy__(self, memo: dict[int, Any]) -> Links:
        """Return itself: a copy of the model is of the same training."""
        return self
