"""IgniteGuest: a handler of Ignite in a Trainer; `adapt` says where one goes."""

from __future__ import annotations

import importlib
from types import MethodType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.ignite.engines import TRAIN_EVENTS, VALIDATION_EVENTS, Engines
from trainer_hooks.adapters.ignite.hosted_engine import name_of, new_engine
from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.callbacks import Checkpoint, EarlyStopping
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["DEFAULTS", "IgniteGuest", "adapt", "attach"]

_HOME = "ignite.handlers"

DEFAULTS: dict[str, tuple[str, str]] = {
    f"{_HOME}.checkpoint.Checkpoint": ("train", "EPOCH_COMPLETED"),
    f"{_HOME}.early_stopping.EarlyStopping": ("validation", "COMPLETED"),
    f"{_HOME}.param_scheduler.ReduceLROnPlateauScheduler": ("validation", "COMPLETED"),
    f"{_HOME}.param_scheduler.ParamGroupScheduler": ("train", "ITERATION_STARTED"),
    f"{_HOME}.param_scheduler.ParamScheduler": ("train", "ITERATION_STARTED"),
    f"{_HOME}.terminate_on_nan.TerminateOnNan": ("train", "ITERATION_COMPLETED"),
    f"{_HOME}.time_limit.TimeLimit": ("train", "ITERATION_COMPLETED"),
    f"{_HOME}.ema_handler.EMAHandler": ("train", ""),
    f"{_HOME}.fbresearch_logger.FBResearchLogger": ("train", ""),
    f"{_HOME}.state_param_scheduler.StateParamScheduler": ("train", ""),
    f"{_HOME}.stores.EpochOutputStore": ("train", ""),
    f"{_HOME}.time_profilers.BasicTimeProfiler": ("train", ""),
    f"{_HOME}.time_profilers.HandlersTimeProfiler": ("train", ""),
    f"{_HOME}.timing.Timer": ("train", ""),
    f"{_HOME}.tqdm_logger.ProgressBar": ("train", ""),
}
"""Where a handler goes that is passed as it is: the engine, and the event; without one, the events
are those of its `attach(engine)`. The first class that is an ancestor counts."""

_KINDS: dict[str, type[Callback]] = {
    f"{_HOME}.checkpoint.Checkpoint": Checkpoint,
    f"{_HOME}.early_stopping.EarlyStopping": EarlyStopping,
    f"{_HOME}.tqdm_logger.ProgressBar": HostedBar,
}
_ALWAYS = frozenset({"on_train_start", "on_train_epoch_start"})
_EMA = f"{_HOME}.ema_handler.EMAHandler"
_MODEL_CHECKPOINT = f"{_HOME}.checkpoint.ModelCheckpoint"
_ENGINES: WeakKeyDictionary[Any, Engines] = WeakKeyDictionary()


def adapt(handler: Any, *arguments: Any, event: Any = None, on: str = "") -> Callback:
    """Return the adapter of a handler of Ignite.

    Args:
        handler: a callable, an object with `attach(engine)`, or a logger of theirs.
        arguments: what comes after the event in `add_event_handler`, or after the engine in
            `attach`; the log handler for a logger.
        event: one of `ignite.engine.Events`; what `DEFAULTS` says for a class, unless given.
        on: the engine, `"train"` or `"validation"`.

    Raises:
        CallbackError: nobody says where the handler goes, or no such event is fired there.
    """
    names = _ancestry(handler)
    default = next((place for name, place in DEFAULTS.items() if name in names), None)
    is_logger = f"{_HOME}.base_logger.BaseLogger" in names and default is None
    if event is None and (is_logger or default is None):
        raise CallbackError(
            f"handler {name_of(handler)} of Ignite: nobody says on which event it is called. Pass "
            f"trainer_hooks.adapters.ignite.adapt({'logger, log_handler' * is_logger or 'handler'},"
            ' event=Events.EPOCH_COMPLETED, on="train") in its place, or on="validation".'
        )
    on = on or (default[0] if default else "train")
    if event is None and default and default[1]:
        event = importlib.import_module("ignite.engine").Events[default[1]]
    adapter = _hosted(handler, names)
    adapter.place(on, event, arguments, is_logger=is_logger)
    return adapter


def attach(function: Callable[[Any, Any], object]) -> Callback:
    """Return a callback that registers handlers as one does at home.

    Args:
        function: takes the engine of the training and that of validations, and adds handlers to
            them; it is called when a fit is set up.

    Example::

        def handlers(train, validation):
            tb_logger.attach_output_handler(train, Events.ITERATION_COMPLETED, "train", "all")

        Trainer(callbacks=[attach(handlers)])
    """
    adapter = IgniteGuest.hosting(function)
    adapter.place("", None, (), is_logger=False)
    return adapter


class IgniteGuest(HostedCallback):
    """Stand for a handler of Ignite.

    Each fit has two engines, for training and for its validations. They are filled from our run,
    and fire the events that somebody listens to. All guests of a trainer share them.
    `engine.terminate()` stops the fit, `terminate_epoch()` ends the epoch.
    """

    framework: ClassVar[str] = "ignite"
    bases: ClassVar[frozenset[str]] = frozenset({"ignite.base.mixins.Serializable"})

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._engines: Engines | None = None
        self._trainer: Any = None
        self._place: tuple[str, Any, tuple[Any, ...], bool] = ("", None, (), False)
        self._wanted: dict[str, frozenset[str]] = {}

    def place(self, on: str, event: Any, arguments: tuple[Any, ...], *, is_logger: bool) -> None:
        """Say where the guest goes; which events it listens to is found on engines of its own.

        Raises:
            CallbackError: it listens to an event that is not fired here.
        """
        if on not in ("", "train", "validation"):
            raise CallbackError(
                f"on={on!r} for handler {name_of(self.guest)} of Ignite: must be 'train' or "
                "'validation'. Pass one of them."
            )
        self._place = on, event, arguments, is_logger
        train, validation = new_engine(), new_engine()
        self.attach_to(train, validation)
        for where, engine, events in (
            ("train", train, TRAIN_EVENTS), ("validation", validation, VALIDATION_EVENTS),
        ):  # fmt: skip
            known = {name for names in events.values() for name in names}
            known |= {"INTERRUPT"} if where == "train" else set()
            for name in sorted(engine.wanted - known):
                raise CallbackError(
                    f"handler {name_of(self.guest)} of Ignite on Events.{name} of the engine of "
                    f"{where}: such an event is not fired here. Use one of "
                    f"{', '.join(sorted(known))}."
                )
            self._wanted[where] = frozenset(engine.wanted)

    def attach_to(self, train: Any, validation: Any) -> None:
        """Attach the guest to the engines as one does there."""
        guest, (on, event, arguments, is_logger) = self.guest, self._place
        names = _ancestry(guest)
        if not on:
            guest(train, validation)
            return
        engine = train if on == "train" else validation
        if f"{_HOME}.early_stopping.EarlyStopping" in names:
            guest.trainer = train
        if is_logger:
            guest.attach(engine, arguments[0], event, *arguments[1:])
        elif event is None:
            guest.attach(engine, *arguments)
        elif _MODEL_CHECKPOINT in names and not arguments:
            engine.add_event_handler(event, lambda engine: guest(engine, {"model": self._model()}))
        elif callable(guest):
            engine.add_event_handler(event, guest, *arguments)
        else:
            guest.attach(engine, *arguments, event=event)

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what fires the events of `hook`, or None if the guest listens to none."""
        if hook == "setup":
            return self._begin
        events = TRAIN_EVENTS.get(hook, ())
        if self._wanted["train"].intersection(events) or hook in _ALWAYS:
            return self._firing_train(events)
        events = VALIDATION_EVENTS.get(hook, ())
        if self._wanted["validation"].intersection(events):
            return self._firing_validation(events)
        return None

    def attach_module(self, module: Any) -> None:
        """Forget the engines when a run is over."""
        super().attach_module(module)
        if module is None and self._trainer is not None:
            _ENGINES.pop(self._trainer, None)
            self._engines = self._trainer = None

    @property
    def state_key(self) -> str:
        """Ignite, and the guest's class, or the function's name."""
        return f"{self.framework}:{name_of(self.guest)}"

    @property
    def is_stateful(self) -> bool:
        """Whether the guest has a state, as all but bare functions and timers do."""
        return _EMA in _ancestry(self.guest) or super().is_stateful

    def guest_state(self) -> dict[str, Any]:
        """Return the guest's state; for an average of weights, which has none there, those."""
        if _EMA in _ancestry(self.guest):
            return {"ema_model": self.guest.ema_model.state_dict()}
        return _plain(self.guest.state_dict())

    def load_guest_state(self, state: Any) -> None:
        """Hand the guest its state back."""
        if _EMA in _ancestry(self.guest):
            self.guest.ema_model.load_state_dict(state["ema_model"])
        else:
            self.guest.load_state_dict(state)

    def __reduce__(self) -> Any:
        """Copy and pickle the guest and its place."""
        return _rebuilt, (self.guest, self.opaque_names, *self._place)

    def _begin(self, trainer: Any, _module: Any, stage: str) -> None:
        if stage == "fit":
            self._trainer = trainer
            self._engines = _ENGINES.setdefault(trainer, Engines())
            self._engines.enter(self)

    def _firing_train(self, events: tuple[str, ...]) -> Callable[..., object]:
        def call(trainer: Any, _module: Any, *given: Any) -> None:
            if self._engines is not None:
                if events == TRAIN_EVENTS["on_train_epoch_start"]:
                    self._engines.begin_epoch(trainer)
                self._engines.fire_train(self, events, trainer, *given)
                if events == TRAIN_EVENTS["on_train_start"]:
                    self._engines.go_on_inside(self, trainer)

        return call

    def _firing_validation(self, events: tuple[str, ...]) -> Callable[..., object]:
        def call(trainer: Any, _module: Any, *given: Any) -> None:
            if self._engines is not None:
                self._engines.fire_validation(self, events, trainer, *given)

        return call

    def _model(self) -> Any:
        return self._module() if self._module is not None else None


def _rebuilt(
    guest: Any,
    opaque_names: frozenset[str],
    on: str,
    event: Any,
    arguments: tuple[Any, ...],
    is_logger: bool,
) -> Any:
    adapter = _hosted(guest, _ancestry(guest))
    adapter.place(on, event, arguments, is_logger=is_logger)
    adapter.opaque_names = opaque_names
    return adapter


def _hosted(guest: Any, names: frozenset[str]) -> IgniteGuest:
    return IgniteGuest.hosting(guest, *(kind for name, kind in _KINDS.items() if name in names))


def _plain(state: Any) -> dict[str, Any]:
    """Return a state without methods of its owner, which that of a scheduler of torch's holds."""
    return {
        name: _plain(value) if isinstance(value, dict) else value
        for name, value in state.items()
        if not isinstance(value, MethodType)
    }


def _ancestry(handler: Any) -> frozenset[str]:
    return frozenset(f"{kind.__module__}.{kind.__qualname__}" for kind in type(handler).__mro__)
