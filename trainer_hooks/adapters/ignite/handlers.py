"""Adapter of Ignite's handlers; `adapt` says on which engine and event a handler is called."""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    ancestor_names,
    choose_adapter,
)
from trainer_hooks.adapters.ignite.attached_handlers import (
    EMA,
    AttachedHandlers,
    load_state,
    state_of,
)
from trainer_hooks.adapters.ignite.engines import (
    TRAIN_EVENTS,
    VALIDATION_EVENTS,
    EnginePair,
    name_of,
    new_engine,
)
from trainer_hooks.callbacks import Checkpoint, EarlyStopping
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

_MODULE = "ignite.handlers"

DEFAULTS: dict[str, tuple[str, str]] = {
    f"{_MODULE}.checkpoint.Checkpoint": ("train", "EPOCH_COMPLETED"),
    f"{_MODULE}.early_stopping.EarlyStopping": ("validation", "COMPLETED"),
    f"{_MODULE}.param_scheduler.ReduceLROnPlateauScheduler": ("validation", "COMPLETED"),
    f"{_MODULE}.param_scheduler.ParamGroupScheduler": ("train", "ITERATION_STARTED"),
    f"{_MODULE}.param_scheduler.ParamScheduler": ("train", "ITERATION_STARTED"),
    f"{_MODULE}.terminate_on_nan.TerminateOnNan": ("train", "ITERATION_COMPLETED"),
    f"{_MODULE}.time_limit.TimeLimit": ("train", "ITERATION_COMPLETED"),
    f"{_MODULE}.ema_handler.EMAHandler": ("train", ""),
    f"{_MODULE}.fbresearch_logger.FBResearchLogger": ("train", ""),
    f"{_MODULE}.state_param_scheduler.StateParamScheduler": ("train", ""),
    f"{_MODULE}.stores.EpochOutputStore": ("train", ""),
    f"{_MODULE}.time_profilers.BasicTimeProfiler": ("train", ""),
    f"{_MODULE}.time_profilers.HandlersTimeProfiler": ("train", ""),
    f"{_MODULE}.timing.Timer": ("train", ""),
    f"{_MODULE}.tqdm_logger.ProgressBar": ("train", ""),
}
"""Engine and event of a handler that is passed to the Trainer as it is, by class; the first class
that it derives from counts. Without an event, its own `attach(engine)` chooses the events."""

_COUNTERPARTS: dict[str, type[Callback]] = {
    f"{_MODULE}.checkpoint.Checkpoint": Checkpoint,
    f"{_MODULE}.early_stopping.EarlyStopping": EarlyStopping,
    f"{_MODULE}.tqdm_logger.ProgressBar": ForeignProgressBar,
}
"""The class of ours that a handler counts as; a default of that class steps back."""

_ALWAYS = frozenset({"on_train_start", "on_train_epoch_start"})
"""Hooks that every adapter listens to, as they keep the engines' epoch up to date."""

_FOLLOWING = frozenset({"on_validation_start", "on_validation_batch_end", "on_validation_end"})
"""Hooks that tell the states of both engines during and after a validation."""

_AFTER_BATCHES = frozenset(
    {
        "TERMINATE_SINGLE_EPOCH", "EPOCH_COMPLETED", "TERMINATE", "COMPLETED", "INTERRUPT",
        "EXCEPTION_RAISED",
    }
)  # fmt: skip
"""Events of the training whose handlers may read the last batch and its output."""

_MODEL_CHECKPOINT = f"{_MODULE}.checkpoint.ModelCheckpoint"

_ENGINES: WeakKeyDictionary[Any, EnginePair] = WeakKeyDictionary()
"""The engines of each trainer that is fitting, which its adapters share."""


class _Attachment(NamedTuple):
    """How a handler is attached to the engines.

    Attributes:
        engine: `"train"` or `"validation"`; empty for a function that attaches handlers itself.
        event: one of `ignite.engine.Events`; None where the handler's `attach` chooses.
        arguments: further arguments of `add_event_handler` or `attach`.
        is_logger: whether it is a logger of Ignite, to which a log handler is attached.
    """

    engine: str
    event: Any
    arguments: tuple[Any, ...]
    is_logger: bool


def adapt(handler: Any, *arguments: Any, event: Any = None, on: str = "") -> Callback:
    """Return the adapter of a handler of Ignite.

    Args:
        handler: a callable, an object with `attach(engine)`, or a logger of Ignite.
        arguments: arguments after the event of `add_event_handler`, or after the engine of
            `attach`; the log handler for a logger.
        event: one of `ignite.engine.Events`; by default that of `DEFAULTS` for the class.
        on: the engine, `"train"` or `"validation"`.

    Raises:
        CallbackError: the event of the handler is not known, or is not fired on that engine.
    """
    ancestors = ancestor_names(handler)
    default = next((default for name, default in DEFAULTS.items() if name in ancestors), None)
    is_logger = f"{_MODULE}.base_logger.BaseLogger" in ancestors and default is None
    if event is None and (is_logger or default is None):
        raise CallbackError(
            f"handler {name_of(handler)} of Ignite: its event is not known. Pass "
            f"trainer_hooks.adapters.ignite.adapt({'logger, log_handler' * is_logger or 'handler'},"
            ' event=Events.EPOCH_COMPLETED, on="train") in its place, or on="validation".'
        )
    on = on or (default[0] if default else "train")
    if event is None and default and default[1]:
        event = importlib.import_module("ignite.engine").Events[default[1]]
    return _make_adapter(handler, _Attachment(on, event, arguments, is_logger))


def attach(function: Callable[[Any, Any], object]) -> Callback:
    """Return a callback that attaches handlers to the engines with the user's own function.

    Args:
        function: takes the engine of the training and that of validations, and adds handlers to
            them; it is called when a fit is set up.

    Example::

        def handlers(train, validation):
            tb_logger.attach_output_handler(train, Events.ITERATION_COMPLETED, "train", "all")

        Trainer(callbacks=[attach(handlers)])
    """
    adapter = IgniteAdapter.hosting(function)
    adapter.place(_Attachment("", None, (), is_logger=False))
    return adapter


class IgniteAdapter(HostedCallback):
    """Adapter of a handler of Ignite.

    Each fit has two engines, for training and for its validations, which the adapters of a trainer
    share. They are filled from our run, and fire the events that have a handler.
    `engine.terminate()` stops the fit, `terminate_epoch()` ends the epoch.
    """

    framework: ClassVar[str] = "ignite"
    bases: ClassVar[frozenset[str]] = frozenset({"ignite.base.mixins.Serializable"})
    state_key_advice: ClassVar[str] = (
        "Make one of them an object of a subclass, or a function of another name: these names are "
        "the keys. Or attach both handlers in one function, `trainer_hooks.adapters.ignite.attach`."
    )

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._engines: EnginePair | None = None
        self._trainer: Any = None
        self._attachment = _Attachment("", None, (), is_logger=False)
        self._wanted: dict[str, frozenset[str]] = {}
        self._attached = AttachedHandlers(())

    def place(self, attachment: _Attachment) -> None:
        """Set how the handler is attached, and find the events that it listens to.

        Raises:
            CallbackError: it listens to an event that is not fired here.
        """
        if attachment.engine not in ("", "train", "validation"):
            raise CallbackError(
                f"on={attachment.engine!r} for handler {name_of(self.guest)} of Ignite: must be "
                "'train' or 'validation'. Pass one of them."
            )
        self._attachment = attachment
        # on engines of its own: only attaching tells which events a handler wants
        train, validation = new_engine(), new_engine()
        try:
            self.attach_to(train, validation)
        except ValueError as error:
            if attachment.event is None:  # the user's own function raised it
                raise
            raise CallbackError(
                f"handler {name_of(self.guest)} of Ignite on {attachment.event!s}: such an event "
                "is not fired here. Use one of ignite.engine.Events."
            ) from error
        for where, engine, events in (
            ("train", train, TRAIN_EVENTS), ("validation", validation, VALIDATION_EVENTS),
        ):  # fmt: skip
            allowed = {name for names in events.values() for name in names}
            allowed |= {"INTERRUPT"} if where == "train" else set()
            for name in sorted(engine.wanted - allowed):
                raise CallbackError(
                    f"handler {name_of(self.guest)} of Ignite on Events.{name} of the engine of "
                    f"{where}: such an event is not fired here. Use one of "
                    f"{', '.join(sorted(allowed))}."
                )
            self._wanted[where] = frozenset(engine.wanted)

    def attach_to(self, train: Any, validation: Any) -> None:
        """Attach the handler to an engine, by the call that a user of Ignite would write.

        Args:
            train: the engine of the training.
            validation: the engine of the validations.
        """
        first = len(train.added), len(validation.added)
        self._add_to(train, validation)
        # before a handler of another adapter, with which it shares the engines
        added = train.added[first[0] :] + validation.added[first[1] :]
        self._attached = AttachedHandlers([] if self._has_own_state else added)

    def _add_to(self, train: Any, validation: Any) -> None:
        guest, ancestors = self.guest, ancestor_names(self.guest)
        on, event, arguments, is_logger = self._attachment
        if not on:
            guest(train, validation)
            return
        engine = train if on == "train" else validation
        if f"{_MODULE}.early_stopping.EarlyStopping" in ancestors:
            guest.trainer = train  # the engine that it terminates
        if is_logger:
            guest.attach(engine, arguments[0], event, *arguments[1:])
        elif event is None:
            guest.attach(engine, *arguments)
        # a user of Ignite would pass {"model": model}; here it is known when a run begins
        elif _MODEL_CHECKPOINT in ancestors and not arguments:
            engine.add_event_handler(event, lambda engine: guest(engine, {"model": self._model()}))
        elif callable(guest):
            engine.add_event_handler(event, guest, *arguments)
        else:
            guest.attach(engine, *arguments, event=event)

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function that fires the events of `hook`, or None if none is listened to."""
        if hook == "setup":
            return self._enter_engines
        train, validation = self._wanted["train"], self._wanted["validation"]
        # a function of the user has both engines, and its handlers may read either state in both
        has_both = not self._attachment.engine
        events = TRAIN_EVENTS.get(hook, ())
        trains = bool(train.intersection(events)) or hook in _ALWAYS
        if hook == "on_train_batch_end":
            trains = trains or has_both or bool(train.intersection(_AFTER_BATCHES))
        of_validation = VALIDATION_EVENTS.get(hook, ())
        validates = bool(validation.intersection(of_validation))
        if hook in _FOLLOWING:
            validates = validates or has_both or bool(validation)
        if trains and validates:  # an exception: the engine that it leaves first hears of it first
            return partial(self._fire_both, of_validation, events)
        if trains:
            return partial(self._fire_train, events)
        return partial(self._fire_validation, of_validation) if validates else None

    def attach_module(self, module: Any) -> None:
        """Take part in a run; drop the engines when the run is over."""
        super().attach_module(module)
        if module is None and self._trainer is not None:
            _ENGINES.pop(self._trainer, None)
            self._engines = self._trainer = None

    # --- state ---

    @property
    def state_key(self) -> str:
        """`ignite:` and the handler's class, or the function's name."""
        return f"{self.framework}:{name_of(self.guest)}"

    @property
    def is_stateful(self) -> bool:
        """Whether the handler has a state, or those that its function or `attach` adds have."""
        return self._has_own_state or bool(self._attached)

    @property
    def _has_own_state(self) -> bool:
        return EMA in ancestor_names(self.guest) or super().is_stateful

    def guest_state(self) -> dict[str, Any]:
        """Return the handler's state, or by name those of the handlers that it adds."""
        return state_of(self.guest) if self._has_own_state else self._attached.state_dict()

    def load_guest_state(self, state: Any) -> None:
        """Restore the handler's state, or those of the handlers that it adds.

        Raises:
            CheckpointError: other handlers are added than in the saved run.
        """
        if self._has_own_state:
            load_state(self.guest, state)
        else:
            self._attached.load_state_dict(state, self.guest)

    def __reduce__(self) -> Any:
        """Copy and pickle the handler and how it is attached."""
        return _rebuild, (self.guest, self.opaque_names, *self._attachment)

    # --- hooks ---

    def _enter_engines(self, trainer: Any, _module: Any, stage: str) -> None:
        if stage == "fit":
            self._trainer = trainer
            self._engines = _ENGINES.setdefault(trainer, EnginePair())
            self._engines.enter(self)

    def _fire_train(
        self, events: tuple[str, ...], trainer: Any, _module: Any, *arguments: Any
    ) -> None:
        if self._engines is not None:
            if events == TRAIN_EVENTS["on_train_epoch_start"]:
                self._engines.begin_epoch(trainer)
            self._engines.fire_train(self, events, trainer, *arguments)
            if events == TRAIN_EVENTS["on_train_start"]:
                self._engines.resume_inside_epoch(self, trainer)

    def _fire_validation(
        self, events: tuple[str, ...], trainer: Any, _module: Any, *arguments: Any
    ) -> None:
        if self._engines is not None:
            self._engines.fire_validation(self, events, trainer, *arguments)

    def _fire_both(
        self, of_validation: tuple[str, ...], of_training: tuple[str, ...], *arguments: Any
    ) -> None:
        self._fire_validation(of_validation, *arguments)
        self._fire_train(of_training, *arguments)

    def _model(self) -> Any:
        return self._run_module() if self._run_module is not None else None


def _rebuild(handler: Any, opaque_names: frozenset[str], *attachment: Any) -> Any:
    """Return the adapter of a handler that was copied or unpickled."""
    adapter = _make_adapter(handler, _Attachment(*attachment))
    adapter.opaque_names = opaque_names
    return adapter


def _make_adapter(handler: Any, attachment: _Attachment) -> IgniteAdapter:
    adapter = choose_adapter(handler, IgniteAdapter, {}, _COUNTERPARTS)
    adapter.place(attachment)
    return adapter
