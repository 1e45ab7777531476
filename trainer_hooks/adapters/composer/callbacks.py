"""The adapters that fire the events of Composer's callbacks at the hooks of trainer_hooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    ancestor_names,
    choose_adapter,
)
from trainer_hooks.adapters.composer.event_source import EventSource, handler_of
from trainer_hooks.adapters.composer.events import (
    BATCH_EVENTS,
    EVENTS,
    EVENTS_WITH_BATCH,
    EVENTS_WITH_LOSS,
    RUN_EVENT_NAMES,
)
from trainer_hooks.adapters.composer.loggers import (
    DestinationLogger,
    counted_step,
    logs_training_batch,
)
from trainer_hooks.callbacks import Checkpoint, EarlyStopping
from trainer_hooks.errors import CallbackError
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import hide_run_attributes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.adapters.composer.state import AdapterEventSource
    from trainer_hooks.callback import Callback

_ALWAYS = frozenset(
    {
        "on_after_configure_model", "on_after_load", "on_fit_start", "on_train_epoch_start",
        "on_train_batches_end",
    }
)  # fmt: skip
"""Hooks that keep the state up to date for every callback; they are few in an epoch."""

_EVALUATION_EVENTS = frozenset({"eval_start", "eval_batch_start", "eval_batch_end", "eval_end"})
_EVENTS_WITH_STATE_OF = {
    "on_train_batch_start": EVENTS_WITH_BATCH,
    "on_after_forward": EVENTS_WITH_LOSS,
    "on_after_loss": EVENTS_WITH_LOSS,
    # a stop that is asked for as an epoch begins waits for its first batch
    "on_train_batch_end": BATCH_EVENTS | {"iteration_start", "epoch_start"},
    **{
        f"on_{stage}_{moment}": _EVALUATION_EVENTS
        for stage in ("validation", "test")
        for moment in ("start", "batch_start", "batch_end", "end")
    },
}
"""By hook, the events that read what it puts on the state: a callback that has one of them needs
the hook called, if only to bring the state up to date."""


def event_source_of(trainer: Any, module: Any) -> AdapterEventSource:
    """Return the event source that a trainer's adapted callbacks share; make it if there is none.

    Args:
        trainer: the trainer.
        module: the module that it runs.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, ComposerAdapter):
            source = callback.source
            if source is not None and source.trainer is trainer:
                return source
    # here and not above, since it needs Composer, which only a foreign callback has imported
    from trainer_hooks.adapters.composer.state import AdapterEventSource

    return AdapterEventSource(trainer, module)


class ComposerAdapter(HostedCallback):
    """An adapter of one of Composer's callbacks.

    It hands the callback a State and a Logger made of Composer's own classes, which all adapted
    callbacks of a trainer share. The counters advance before `batch_end`, as in Composer.

    Args:
        guest: the callback of Composer.

    Attributes:
        source: the event source that it shares; None before a run.
        evaluations_closed: how many loaders of the running evaluation it had an `eval_end` for.
        is_open: whether its `init` has fired and its `close` has not.
    """

    framework: ClassVar[str] = "composer"
    bases: ClassVar[frozenset[str]] = frozenset(
        {"composer.core.callback.Callback", "composer.loggers.logger_destination.LoggerDestination"}
    )

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self.source: AdapterEventSource | None = None
        self.evaluations_closed = 0
        self.is_open = False
        self._calls: dict[str, Callable[..., object]] = {}

    # --- which hooks it takes part in ---

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook, or None where the callback has no event there."""
        events = [event for event in EVENTS.get(hook, ()) if self._has_event(event)]
        needs_state = any(map(self._has_event, _EVENTS_WITH_STATE_OF.get(hook, ())))
        if not (hook == "on_close" or events or hook in _ALWAYS or needs_state):
            return None
        for event in events:
            self._calls.setdefault(event, self._method_of(event))
        if hook == "on_after_configure_model":
            return self._enter
        if hook == "on_close":
            return self._close_all
        if hook == "on_post_close":  # on_close has called post_close, too
            return None
        # not AdapterEventSource, which needs Composer: it overrides methods that the handlers call,
        # and no handler
        handle = handler_of(EventSource, hook)

        def call(trainer: Any, module: Any, *arguments: Any) -> None:
            handle(self._source_for(trainer, module), self, trainer, module, *arguments)

        return call

    def _has_event(self, event: str) -> bool:
        receives_all = event in RUN_EVENT_NAMES and self.guest_has("run_event")
        return receives_all or self.guest_has(event)

    def _method_of(self, event: str) -> Callable[..., object]:
        if event in RUN_EVENT_NAMES and self.guest_has("run_event"):
            from composer.core import Event

            member, run_event = Event(event), self.guest.run_event
            return lambda state, logger: run_event(member, state, logger)
        method: Callable[..., object] = getattr(self.guest, event)
        return method

    # --- a run ---

    def _source_for(self, trainer: Any, module: Any) -> AdapterEventSource:
        source = self.source
        if source is None or source.trainer is not trainer:
            if self.is_open and source is not None:
                source.close()
            self.source = source = event_source_of(trainer, module)
        return source

    def _enter(self, trainer: Any, module: Any) -> None:
        """Show a run's module on the state, and fire `init` in the first run of a trainer."""
        source = self._source_for(trainer, module)
        source.begin_run(module)
        if self.is_open:
            return
        if not self.is_destination:  # destinations have their `init` first, so that others can log
            for callback in trainer.callbacks:
                if isinstance(callback, ComposerAdapter) and callback.is_destination:
                    callback._enter(trainer, module)  # noqa: SLF001 - of the same class
        self.is_open = True
        if not any(callback is self.guest for callback in source.state.callbacks):
            source.state.callbacks.append(self.guest)
        source.open_adapters.append(self)
        if self.is_destination:
            source.logger.add_destination(self.guest)
        self.fire("init")
        self.after_init()

    def after_init(self) -> None:
        """Do nothing after the callback's `init`; a logger destination writes pending values."""

    @property
    def is_destination(self) -> bool:
        """Whether the callback is one of Composer's logger destinations."""
        # only destinations have it; to compare classes, Composer would have to be imported
        return hasattr(type(self.guest), "can_upload_files")

    def fire(self, event: str) -> None:
        """Deliver an event, if the callback has it, and apply a new `state.max_duration`."""
        call = self._calls.get(event)
        if call is None:
            return
        source = self.source
        assert source is not None  # an event fires through the source
        state = source.state
        state.keep("current_event", event)
        try:
            call(state, source.logger)
            # state.stop_training() and callbacks put another Time there
            if state.max_duration is not source.duration:
                self._apply_max_duration(source, event)
        finally:
            state.keep("current_event", "")

    def _apply_max_duration(self, source: AdapterEventSource, event: str) -> None:
        """Make the trainer train for as long as the callback has set on the state."""
        state, trainer = source.state, source.trainer
        longest = state.max_duration
        if longest is None or state.timestamp < longest or trainer.world_size == 1:
            source.duration = longest
        else:
            # the other ranks do not know of it before the consensus, and a callback that saves now
            # would wait for theirs
            state.max_duration = source.duration
        if longest is not None:
            reason = f"{type(self.guest).__qualname__} stopped the training at {event!r}"
            state.apply_max_duration(trainer, longest, reason)

    # --- the end ---

    def _close_all(self, *_: Any) -> None:
        if self.source is not None:
            self.source.close()


class CheckpointSaverAdapter(ComposerAdapter):
    """An adapter of a `CheckpointSaver`, which decides when and where to save.

    Its files hold a checkpoint of trainer_hooks, from which a fit resumes exactly, and beside it
    Composer's `state/model`, from which Composer loads the weights.
    """

    @property
    def has_named_folder(self) -> bool:
        """Whether checkpoints are searched in a folder that the callback names: always."""
        return True

    def folders(self) -> list[str]:
        """Return the folder that it saves to; none while the name has placeholders."""
        folder = str(self.guest.folder)
        return [] if "{" in folder else [folder]

    def candidates(self, trainer: Any) -> list[str]:  # noqa: ARG002 - of the savers' interface
        """Return the files in its folder that it may have saved."""
        return [
            str(file)
            for folder in self.folders()
            for file in sorted(Path(folder).glob("*.pt"))
            if not file.is_symlink()
        ]

    def fire(self, event: str) -> None:
        """Deliver an event; at one that saves, the file holds a checkpoint of trainer_hooks."""
        if not event.endswith("_checkpoint"):
            super().fire(event)
            return
        ignore_keys = self.guest.ignore_keys
        # Composer calls a function that is given here on the dictionary right before it is written
        self.guest.ignore_keys = self._filler(ignore_keys)
        try:
            super().fire(event)
        finally:
            self.guest.ignore_keys = ignore_keys

    def _filler(self, ignore_keys: Any) -> Callable[[dict[str, Any]], None]:
        """Return a function that replaces Composer's checkpoint but for the model's weights."""

        def fill(checkpoint: dict[str, Any]) -> None:
            if callable(ignore_keys):
                ignore_keys(checkpoint)
            state = checkpoint.get("state", {})
            model = {"model": state["model"]} if "model" in state and not ignore_keys else {}
            checkpoint.clear()
            assert self.source is not None
            trainer = self.source.trainer
            checkpoint.update(trainer.dump_checkpoint(bool(self.guest.weights_only)))
            checkpoint["state"] = model

        return fill


class ExportCallbackAdapter(ComposerAdapter):
    """An adapter of an `ExportForInferenceCallback`: it exports the module without its run."""

    def fire(self, event: str) -> None:
        """Deliver an event; at `fit_end` the module is detached from the trainer meanwhile."""
        if event != "fit_end":
            super().fire(event)
            return
        assert self.source is not None
        with hide_run_attributes(self.source.trainer.module, Module):
            super().fire(event)


class LoggerDestinationAdapter(ComposerAdapter, DestinationLogger):
    """An adapter of a logger destination of Composer, which has events, too.

    Among the callbacks of a Trainer it receives logged values by `on_log`. Among the loggers of a
    Trainer it is one of them, and a callback as well.

    Args:
        guest: the destination.
    """

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._pending: list[tuple[str, tuple[Any, ...]]] = []

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at a hook, or None where the destination has no event."""
        if hook == "on_log":
            return self._on_log if self.guest_has("log_metrics") else None
        return super().translated(hook)

    def after_init(self) -> None:
        """Log the values from before the destination's `init`, which opens its file or run."""
        pending, self._pending = self._pending, []
        for method, arguments in pending:
            getattr(self.guest, method)(*arguments)

    @property
    def experiment(self) -> Any:
        """The destination."""
        return self.guest

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics, at Composer's step and timestamp."""
        if self.is_open:
            self._log_as_composer(metrics, step)
        else:
            self._pending.append(("log_metrics", (dict(metrics), step)))

    def log_images(
        self,
        images: Any,
        name: str = "Images",
        channels_last: bool = False,
        step: int | None = None,
    ) -> None:
        """Log images."""
        self.call_destination("log_images", images, name, channels_last, step)

    def call_destination(self, method: str, *arguments: Any) -> None:
        """Call a method of the destination; before its `init` the call is kept."""
        if self.is_open:
            getattr(self.guest, method)(*arguments)
        else:
            self._pending.append((method, arguments))

    def _on_log(self, trainer: Any, _module: Any, metrics: Any, step: int) -> None:
        if not any(logger is self for logger in trainer.loggers):
            self._log_as_composer(metrics, step)

    def _log_as_composer(self, metrics: Mapping[str, float], step: int | None) -> None:
        """Log metrics under the step and the timestamp that they have in Composer's Trainer.

        That logs the losses of a batch before it counts the batch, and here they come afterwards.
        """
        source = self.source
        assert source is not None  # of an open destination
        if not logs_training_batch(source.trainer):
            self.guest.log_metrics(dict(metrics), counted_step(source.trainer, step))
            return
        with source.state.before_batch(step):
            self.guest.log_metrics(dict(metrics), step)


# --- entry points ---

_SAVER = "composer.callbacks.checkpoint_saver.CheckpointSaver"

_COUNTERPARTS: dict[str, type[Callback]] = {
    _SAVER: Checkpoint,
    "composer.callbacks.early_stopper.EarlyStopper": EarlyStopping,
    "composer.loggers.progress_bar_logger.ProgressBarLogger": ForeignProgressBar,
}
"""By class of Composer, the class here that its adapter counts as: the trainer adds no default."""

_SPECIAL_ADAPTERS: dict[str, type[ComposerAdapter]] = {
    _SAVER: CheckpointSaverAdapter,
    "composer.loggers.logger_destination.LoggerDestination": LoggerDestinationAdapter,
    "composer.callbacks.export_for_inference.ExportForInferenceCallback": ExportCallbackAdapter,
}
"""By class of Composer, the adapter of those that need more than events."""


def adapt(callback: Any) -> Callback:
    """Return the adapter of a callback of Composer.

    Args:
        callback: the callback.
    """
    return choose_adapter(callback, ComposerAdapter, _SPECIAL_ADAPTERS, _COUNTERPARTS)


def refuse_algorithm(algorithm: Any) -> NoReturn:
    """Raise an error: an algorithm of Composer changes a training loop that does not exist here.

    Raises:
        CallbackError: always.
    """
    raise CallbackError(
        f"{ancestor_names(algorithm)[0]}: it is an algorithm of Composer, which changes the model, "
        "the batches or the loss of Composer's own training loop. Run it in Composer's Trainer, or "
        "apply what it does to the model before fit, as its function in composer.functional does."
    )
