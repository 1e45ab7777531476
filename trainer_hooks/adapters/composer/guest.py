"""ComposerGuest: a callback of Composer in a Trainer."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._log import log
from trainer_hooks.adapters.composer.deliveries import DELIVERIES
from trainer_hooks.adapters.composer.events import EVENT_NAMES, EVENTS, EVERY_BATCH, LOADED, STATED
from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ComposerGuest", "home_of"]

_ALWAYS = frozenset(
    {
        "on_after_configure_model", "on_after_load", "on_fit_start", "on_train_epoch_start",
        "on_train_batches_end",
    }
)  # fmt: skip
"""Hooks, a few in an epoch at most, at which the state is kept up to date for every guest."""

_EVALUATED = frozenset({"eval_start", "eval_batch_start", "eval_batch_end", "eval_end"})
_IN_EVALUATION = frozenset(
    f"on_{stage}_{moment}"
    for stage in ("validation", "test")
    for moment in ("start", "batch_start", "batch_end", "end")
)


def home_of(trainer: Any, module: Any) -> Any:
    """Return what all guests of Composer in a trainer share; the first that asks makes it."""
    shared = [one.home for one in trainer.callbacks if isinstance(one, ComposerGuest)]
    home = next((one for one in shared if one and one.trainer is trainer), None)
    if home is None:
        # it needs Composer, of which the guest's class is
        home = importlib.import_module("trainer_hooks.adapters.composer.home").Home(trainer, module)
    return home


class ComposerGuest(HostedCallback):
    """Stand for a callback of Composer: its events are delivered at the moments of its Trainer.

    Its counters advance before `batch_end`, its batch is a window, and a batch of ours is its
    microbatch. All guests of a trainer share a state and a logger, made of Composer's own classes.
    """

    framework: ClassVar[str] = "composer"
    bases: ClassVar[frozenset[str]] = frozenset(
        {
            "composer.core.callback.Callback",
            "composer.loggers.logger_destination.LoggerDestination",
        }
    )

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self.home: Any = None
        self.loaders_told = 0
        """Of how many loaders it was told in an evaluation that they are over."""
        self._calls: dict[str, Callable[..., object]] = {}
        self.is_open = False
        """Whether its `init` is past, and its `close` not yet."""

    def hears(self, event: str) -> bool:
        """Return whether the guest has a method for an event, or receives all."""
        return self.guest_has(event) or (event in EVENT_NAMES and self.guest_has("run_event"))

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what delivers the guest's events at `hook`, or None if it hears of none."""
        events = [event for event in EVENTS.get(hook, ()) if self.hears(event)]
        if hook == "on_close" or events or hook in _ALWAYS or self._needs(hook):
            for event in events:
                self._calls.setdefault(event, self._call_of(event))
            deliver = DELIVERIES.get(hook)
            if deliver is None:
                return self._plain(EVENTS[hook][0])
            return partial(deliver, self)
        return None

    def at_home(self, trainer: Any, module: Any) -> Any:
        """Return what the guests of a trainer share; the first that asks makes it."""
        home = self.home
        if home is None or home.trainer is not trainer:
            if self.is_open and home is not None:
                home.close()
            self.home = home = home_of(trainer, module)
        return home

    def enter(self, trainer: Any, module: Any) -> None:
        """Take part in a run: the first one of a trainer opens the guest, destinations before."""
        home = self.at_home(trainer, module)
        home.enter(module)
        if self.is_open:
            return
        if not self.is_destination:
            for one in trainer.callbacks:
                if isinstance(one, ComposerGuest) and one.is_destination:
                    one.enter(trainer, module)
        self.is_open = True
        if not any(one is self.guest for one in home.state.callbacks):
            home.state.callbacks.append(self.guest)
        home.closings.append((self._close, self._post_close))
        if self.is_destination:
            home.logger.take_in(self.guest)
        self.tell("init")
        self.opened()

    def opened(self) -> None:
        """Do what had to wait for the guest's `init`."""

    @property
    def is_destination(self) -> bool:
        """Whether the guest is one of Composer's loggers."""
        return hasattr(type(self.guest), "can_upload_files")

    def tell(self, event: str) -> None:
        """Deliver an event, if the guest hears it, and do what it asked the state for."""
        call = self._calls.get(event)
        if call is None:
            return
        home = self.home
        state = home.state
        state.keep("event_in_work", event)
        try:
            call(state, home.logger)
        finally:
            state.keep("event_in_work", "")
        if state.max_duration is not home.duration:
            self._limit(state, event)

    def _needs(self, hook: str) -> bool:
        """Return whether a hook keeps the state as the guest's events want it."""
        if hook == "on_train_batch_start":
            return any(map(self.hears, LOADED))
        if hook in ("on_after_forward", "on_after_loss"):
            return any(map(self.hears, STATED))
        if hook == "on_train_batch_end":
            return any(map(self.hears, EVERY_BATCH))
        if hook in _IN_EVALUATION:
            return any(map(self.hears, _EVALUATED))
        return False

    def _call_of(self, event: str) -> Callable[..., object]:
        if event in EVENT_NAMES and self.guest_has("run_event"):
            words = importlib.import_module("composer.core").Event
            return partial(self.guest.run_event, words(event))
        call: Callable[..., object] = getattr(self.guest, event)
        return call

    def _plain(self, event: str) -> Callable[..., object]:
        def call(trainer: Any, module: Any, *_: Any) -> None:
            self.at_home(trainer, module)
            self.tell(event)

        return call

    def _limit(self, state: Any, event: str) -> None:
        """Let the trainer train for as long as the guest said."""
        home, longest = self.home, state.max_duration
        trainer = home.trainer
        if longest is None or state.timestamp < longest or trainer.world_size == 1:
            home.duration = longest
        else:  # the other processes do not know of it yet, and guests that save wait for each other
            state.max_duration = home.duration
        if longest is None:
            return
        if state.timestamp >= longest:
            trainer.stop(f"{type(self.guest).__qualname__} stopped the training at {event!r}")
            is_inside = trainer.training and trainer.progress.stage is EpochStage.BATCHES
            if is_inside and trainer.enable_validation:
                trainer.request_validation()  # there it comes in any case
            return
        number, unit = int(longest.value), longest.unit.value
        if unit not in ("ep", "ba"):
            raise UsageError(
                f"state.max_duration = {str(longest)!r}: the end of a fit under way is changed in "
                "epochs or batches, as '10ep' or '500ba'. Give it so, or call "
                "state.stop_training() when it is time."
            )
        trainer.max_epochs = number if unit == "ep" else -1
        trainer.max_steps = number if unit == "ba" else -1

    def _close(self) -> bool:
        """Close the guest, and return whether that went well; an error is logged, as there."""
        self.is_open = False
        try:
            self.guest.close(self.home.state, self.home.logger)
        except Exception:  # noqa: BLE001 - logged; the others are closed all the same
            name = type(self.guest).__qualname__
            log.exception("%s.close() failed, so its post_close() is left out", name)
            return False
        return True

    def _post_close(self) -> None:
        try:
            self.guest.post_close()
        except Exception:  # noqa: BLE001 - logged; the others have their turn
            log.exception("%s.post_close() failed", type(self.guest).__qualname__)
