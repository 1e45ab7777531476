"""Composer's callbacks in a plain trainer of trainer_hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.adapters.composer.event_source import close_at_exit
from trainer_hooks.adapters.composer.loggers import TrainerDestination
from trainer_hooks.compat.composer.core.engine import Engine
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.event_methods import EventMethods, event_receivers
from trainer_hooks.compat.composer.core.precision import Precision
from trainer_hooks.compat.composer.core.state import Device, State
from trainer_hooks.compat.composer.core.time import Time
from trainer_hooks.compat.composer.loggers.logger import Logger
from trainer_hooks.compat.composer.trainer_events import EngineEvents, EngineEventSource
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.errors import TrainerHooksWarning
from trainer_hooks.hooks.spec import is_empty_hook
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from trainer_hooks.adapters.composer.event_source import EventListener
    from trainer_hooks.context.context import Trainer

__all__ = ["add_events"]

_DEVICES = {"cuda": "gpu"}
_PRECISIONS = {"16-mixed": Precision.AMP_FP16, "bf16-mixed": Precision.AMP_BF16}
_STEP_EVENTS = (Event.BEFORE_FORWARD, Event.AFTER_FORWARD, Event.BEFORE_LOSS, Event.AFTER_LOSS)


class NativeEventSource(EngineEventSource):
    """The event source for Composer's callbacks in a trainer that knows nothing of Composer.

    Args:
        engine: the engine that calls the callbacks. It is closed once nothing refers to the trainer
            and its source, or when Python exits.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        close_at_exit(self)

    def on_fit_start(self, listener: EventListener, trainer: Any, module: Any) -> None:
        """Fire `FIT_START`, and warn callbacks with events that will not fire."""
        if defines(module, "training_step", Module):
            self._warn_of_own_step(module)
        super().on_fit_start(listener, trainer, module)

    def duration_of(self, trainer: Any) -> Any:
        """Return how long the trainer trains; also where that is in seconds or iterations."""
        duration = trainer.max_duration
        if duration is not None and duration.unit.value in {"sec", "iter", "dur"}:
            return Time.from_timestring(str(duration))
        return super().duration_of(trainer)

    def close(self) -> None:
        """Close the callbacks, if they are still open."""
        self.engine.close()

    # a method and no finalizer of the trainer: the state refers to the trainer by its module
    def __del__(self) -> None:
        self.close()

    def _warn_of_own_step(self, module: Any) -> None:
        for callback in self.state.callbacks:
            names = [
                event.value
                for event in _STEP_EVENTS
                if not is_empty_hook(getattr(callback, event.value, None))
            ]
            if names and isinstance(callback, EventMethods):
                warn(
                    f"{', '.join(names)} of {type(callback).__qualname__}: "
                    f"{type(module).__qualname__} has a training_step of its own, so nothing calls "
                    "it. Define forward(batch) and loss(outputs, batch) instead of the step.",
                    TrainerHooksWarning,
                )


def add_events(trainer: Trainer) -> None:
    """Add Composer's events to a trainer that has callbacks of Composer, if it has none yet.

    A callback that was added later receives its `init`, and events from then on.

    Args:
        trainer: the trainer, with its callbacks.
    """
    callbacks: list[Any] = event_receivers(trainer.callbacks)
    events = next(
        (callback for callback in trainer.callbacks if isinstance(callback, EngineEvents)), None
    )
    if events is None:
        state = State(
            trainer.module,
            "run",
            device=Device(_DEVICES.get(trainer.device.type, trainer.device.type)),
            precision=_PRECISIONS.get(trainer.precision, Precision.FP32),
            callbacks=callbacks,
        )
        destinations = [callback for callback in callbacks if callback.is_destination]
        logger = Logger(state, [TrainerDestination(trainer), *destinations])
        engine = Engine(state, logger)
        state.bind(trainer)
        # one callback for all, so that they are called in Composer's order: destinations last
        trainer.add_callback(EngineEvents(NativeEventSource(engine)))
        engine.run_event(Event.INIT)
    elif isinstance(events.source, NativeEventSource):  # Composer's Trainer adds them by itself
        for callback in callbacks:
            if callback not in events.source.state.callbacks:
                events.source.engine.add_callback(callback)
