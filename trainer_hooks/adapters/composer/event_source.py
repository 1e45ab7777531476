"""EventSource: Composer's events and State, derived from the hooks of a trainer_hooks Trainer.

The adapters of this folder use it for callbacks of the installed Composer, and
`trainer_hooks.compat.composer` uses it for its own. Nothing here imports Composer.
"""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from weakref import WeakSet

import torch

from trainer_hooks._log import log
from trainer_hooks.adapters.composer.events import EVENTS
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.batch_counts import count_samples_and_tokens
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.data.loaders import loaders_in
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

_KEPT = {
    "on_after_forward": "outputs",
    "on_predict_after_forward": "outputs",
}
"""The attribute of the State that shows the argument of a hook which only fires its event."""


class EventListener(Protocol):
    """A receiver of events: one adapted callback, or the engine of a Composer Trainer.

    It receives all events by `fire`, unlike a listener of the relay, which is one function.

    Attributes:
        evaluations_closed: how many loaders of the running evaluation it had an `eval_end` for.
    """

    evaluations_closed: int

    def fire(self, event: str) -> None:
        """Deliver an event to the callbacks behind this listener."""


@dataclass(slots=True)
class EvaluatedLoader:
    """A loader of the running evaluation, with its evaluation timestamp.

    Attributes:
        index: its position among the loaders of the evaluation.
        dataloader: the loader.
        label: the label that Composer evaluates it under.
        length: how many of its batches are evaluated; -1 for all.
        timestamp: the counts of its batches that are evaluated.
    """

    index: int
    dataloader: Any
    label: str
    length: int
    timestamp: Any


class EventSource:
    """Composer's events for one Trainer, fired at its hooks, and the State that goes with them.

    There is a method for each hook at which more happens than firing one event. It receives the
    listener and then the hook's own arguments. Several listeners may share one source: each calls
    the method of the same hook in turn. So a method changes the state when the first listener calls
    it, and finds nothing left to change for the others.

    A batch of Composer is an accumulation window here; a batch of trainer_hooks is its microbatch.

    Args:
        state: Composer's State, or one with the same attributes. Its method `keep(name, value)`
            sets an attribute that callbacks must not set.

    Attributes:
        state: Composer's State.
        duration: the `max_duration` that the trainer follows, as a Time of Composer; None where
            the training has no end.
        has_own_step: whether the module has its own `training_step`, without hooks for the forward
            and the loss, so that their events fire around the step.
        has_restored_timestamp: whether the timestamp came from a checkpoint of this run.
        has_model_loss: whether the module puts the model's own loss on the state, which may be of
            several parts; otherwise it is the loss of the hooks.
        whole_batch: the training batch before it was split into microbatches.
        parts: the microbatches of the training batch; empty if it is not split.
        forwards: how many microbatches of the training batch have begun their forward.
        share: the microbatch's share of the samples of the batch.
        scaled_total: the `total` of the microbatch's losses, which Composer's backward multiplies
            by `share`; None where it multiplies another tensor.
        dataloader_before: the loader that the state showed before the evaluation or prediction,
            with its label and length.
    """

    fires_around_own_steps: ClassVar[bool] = True
    """Whether a module with its own step has the events of the forward and the loss."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.duration: Any = None
        self.has_own_step = False
        self.has_restored_timestamp = False
        self.has_model_loss = False
        self.whole_batch: Any = None
        self.parts: list[Any] = []
        self.forwards = 0
        self.share = 1.0
        self.scaled_total: Tensor | None = None
        self._timestamp_class = type(state.timestamp)
        self._is_exhausted = False
        self._asks_loader_again = False
        self._opened_epoch: int | None = None
        self._opens_iteration = False
        self._evaluated: list[EvaluatedLoader] = []
        self._eval_position = (-1, -1)
        self._uncounted = self._timestamp_class()  # without the batch that is evaluated now
        self._batch_began = 0.0
        self._batch_before: Any = None  # of the training, or of the evaluated loader before
        self.dataloader_before: tuple[Any, str | None, Any] = (None, None, None)
        self._predict_position: tuple[int, ...] = ()

    # --- a run begins ---

    def begin_run(self, module: Any) -> None:
        """Show the module of a run on the state.

        Args:
            module: the module that runs.
        """
        self.state.model = module
        self.has_model_loss = getattr(module, "shows_model_loss", False)
        self.has_restored_timestamp = False
        self.has_own_step = self.fires_around_own_steps and defines(module, "training_step", Module)

    def on_before_load(
        self, listener: EventListener, trainer: Any, _module: Any, path: str | None
    ) -> None:
        """Fire `before_load`."""
        self.follow_duration(trainer)
        self.state.load_path = path
        listener.fire("before_load")

    def on_after_load(
        self, listener: EventListener, trainer: Any, _module: Any, _checkpoint: Any
    ) -> None:
        """Fire `after_load`."""
        if not self.has_restored_timestamp:
            self.follow_progress(trainer)
        listener.fire("after_load")

    def on_fit_start(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `fit_start`."""
        self.begin_fit(trainer)
        listener.fire("fit_start")

    def begin_fit(self, trainer: Any) -> None:
        """Show a fit on the state: its optimizers, loaders, duration and progress."""
        state = self.state
        state.optimizers = list(trainer.optimizers)
        state.schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        state.scaler = trainer.scaler
        state.train_dataloader = trainer.train_dataloader
        state.device_train_microbatch_size = getattr(trainer.train_dataloader, "batch_size", None)
        state.evaluators = self.evaluators_of(trainer)
        windows = -1
        if trainer.num_training_batches != float("inf"):
            # rounded up: the last window of an epoch may have fewer batches
            windows = -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches)
        state.set_dataloader(trainer.train_dataloader, "train", windows)
        self.reset_epoch()
        self.follow_duration(trainer)
        self.follow_progress(trainer)

    def reset_epoch(self) -> None:
        """Reset the state of an epoch of an earlier fit."""
        self.state.keep("delayed_stop", "")
        self._is_exhausted = False
        self._opened_epoch = None

    def evaluators_of(self, trainer: Any) -> list[Any]:  # noqa: ARG002 - for those who override
        """Return Composer's Evaluators for the validation loaders of a trainer."""
        return []

    def follow_duration(self, trainer: Any) -> None:
        """Set `state.max_duration` to how long the trainer trains."""
        self.duration = self.state.max_duration = self.duration_of(trainer)

    def duration_of(self, trainer: Any) -> Any:
        """Return how long a trainer trains, as a Time of Composer; None where it has no end."""
        time = type(self.state.timestamp.batch)
        duration = trainer.max_duration
        if duration is not None and duration.unit.value in {"ba", "st", "sp", "tok", "ep"}:
            number, unit = int(duration.value), duration.unit.value
            if unit == "ba":  # a batch of Composer is a step
                number = -(-number // trainer.accumulate_grad_batches)
            return time(number, "ba" if unit == "st" else unit)
        if trainer.max_steps >= 0:
            return time(trainer.max_steps, "ba")
        return time(trainer.max_epochs, "ep") if trainer.max_epochs >= 0 else None

    def follow_progress(self, trainer: Any) -> None:
        """Set the timestamp to the trainer's progress where it differs, as after a restore."""
        progress, state = trainer.progress, self.state
        batches = state.timestamp.batch.value
        if progress.is_untrained and batches:
            state.timestamp, state.previous_timestamp = self._timestamp_class(), None
        elif progress.batches_stepped != batches:
            state.timestamp, state.previous_timestamp = self._timestamp_of(trainer), None

    # --- counters ---

    @property
    def is_enough(self) -> bool:
        """Whether the training has reached its `max_duration`."""
        longest = self.state.max_duration
        return longest is not None and self.state.timestamp >= longest

    def count_batch(self, trainer: Any) -> None:
        """Advance the timestamp to the steps, samples and tokens that the trainer has counted."""
        progress, now = trainer.progress, self.state.timestamp
        if progress.batches_stepped > now.batch.value:
            counts = progress.batches_stepped, progress.samples_completed, progress.tokens_completed
            self.state.previous_timestamp = now
            self.state.timestamp = advance_timestamp(now, counts, trainer.clock.train_seconds)

    def _timestamp_of(self, trainer: Any) -> Any:
        """Return the timestamp of the trainer's clock, which has no time of the last batch."""
        clock, progress = trainer.clock, trainer.progress
        is_open = progress.stage is EpochStage.BATCHES
        windows = -(-clock.batches_in_epoch // trainer.accumulate_grad_batches)
        return self._timestamp_class(
            iteration=clock.iterations,
            epoch=clock.epochs,
            batch=progress.batches_stepped,
            sample=clock.samples,
            token=clock.tokens,
            epoch_in_iteration=clock.epochs_in_iteration,
            token_in_iteration=clock.tokens_in_iteration,
            batch_in_epoch=windows if is_open else 0,
            sample_in_epoch=clock.samples_in_epoch if is_open else 0,
            token_in_epoch=clock.tokens_in_epoch if is_open else 0,
            total_wct=timedelta(seconds=clock.train_seconds),
            iteration_wct=timedelta(seconds=clock.train_seconds_in_iteration),
            epoch_wct=timedelta(seconds=clock.train_seconds_in_epoch if is_open else 0.0),
            batch_wct=timedelta(),
        )

    # --- training ---

    def on_train_epoch_start(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `iteration_start` if the epoch is its iteration's first, then `epoch_start`."""
        self._is_exhausted = False
        now = self.state.timestamp
        if self._opened_epoch != trainer.current_epoch:
            self._opened_epoch = trainer.current_epoch
            # an epoch that was broken off has opened its iteration already
            is_continued = now.epoch_in_iteration.value or now.batch_in_epoch.value
            self._opens_iteration = not is_continued
        if now.batch_in_epoch.value:  # the last fit ended inside an epoch, and this begins another
            self.state.timestamp = now.copy(batch_in_epoch=0, sample_in_epoch=0, token_in_epoch=0)
        if self._opens_iteration:
            listener.fire("iteration_start")
        listener.fire("epoch_start")

    def on_after_dataloader(
        self, listener: EventListener, _trainer: Any, _module: Any, batch: Any
    ) -> None:
        """Fire `after_dataloader`, unless the loader had no batch left."""
        if batch is None:
            self._is_exhausted = True
        else:
            self.state.keep("batch", batch)
            listener.fire("after_dataloader")

    def on_train_batch_start(
        self, listener: EventListener, trainer: Any, _module: Any, batch: Any, _idx: int
    ) -> None:
        """Fire `batch_start`, once for the batches of a window."""
        self.state.keep("batch", batch)
        self.whole_batch, self.parts, self.forwards = batch, [], 0
        if trainer.progress.batches_in_window == 0:
            listener.fire("batch_start")
        elif self.has_own_step:  # the first batch has it after before_train_batch
            listener.fire("before_forward")

    def on_before_train_batch(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `before_train_batch`."""
        listener.fire("before_train_batch")
        if self.has_own_step:
            listener.fire("before_forward")

    def on_before_forward(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `before_forward`, with the microbatch on the state."""
        if self.parts:
            self.state.keep("batch", self.parts[self.forwards])
        listener.fire("before_forward")

    def on_after_loss(
        self, listener: EventListener, _trainer: Any, _module: Any, loss: Any
    ) -> None:
        """Fire `after_loss`, with the loss on the state."""
        if not self.has_model_loss:
            self.state.keep("loss", loss)
        listener.fire("after_loss")

    def on_before_backward(
        self, listener: EventListener, _trainer: Any, _module: Any, loss: Any
    ) -> None:
        """Fire `before_backward`, after the events of the forward and loss of an own step."""
        if self.has_own_step:
            self.state.keep("loss", loss)
            for event in ("after_forward", "before_loss", "after_loss"):
                listener.fire(event)
        listener.fire("before_backward")

    def on_after_backward(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `after_backward`."""
        self.scale_total()
        listener.fire("after_backward")

    def scale_total(self) -> None:
        """Multiply the `total` of a dict of losses by the microbatch's share, as Composer does.

        It does so in place, in its backward: tensors that share its memory change, too.
        """
        total, self.scaled_total = self.scaled_total, None
        if total is not None:
            with torch.no_grad():
                total.mul_(self.share)

    def on_after_train_batch(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `after_train_batch`, with the whole batch on the state."""
        if self.parts:
            self.state.keep("batch", self.whole_batch)
        listener.fire("after_train_batch")

    def on_train_batch_end(
        self, listener: EventListener, trainer: Any, _module: Any, outputs: Any, batch: Any, *_: int
    ) -> None:
        """Count the window that ends, and fire `batch_end`."""
        if trainer.progress.batches_in_window:
            return
        self.state.keep("batch", batch)
        if outputs and not self.has_model_loss:  # a skipped batch has none
            self.state.keep("loss", outputs["loss"])
        self.count_batch(trainer)
        self.state.stop_if_delayed(trainer)
        listener.fire("batch_end")

    def on_batch_checkpoint(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `batch_checkpoint`, once for the batches of a window."""
        if trainer.progress.batches_in_window == 0:
            listener.fire("batch_checkpoint")

    def on_train_batches_end(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `epoch_end`, unless the epoch was broken off.

        Composer asks the loader once more than it has batches. Here the end is known from the
        length, so the `before_dataloader` of that request fires without one.
        """
        if self.state.timestamp.batch_in_epoch.value:
            # decided before the first listener's epoch_end counts the epoch
            self._asks_loader_again = not self._is_exhausted and not self.is_enough
        if trainer.is_last_batch and self._asks_loader_again:
            listener.fire("before_dataloader")
        if trainer.is_last_batch:
            self.count_epoch(trainer)
            listener.fire("epoch_end")

    def count_epoch(self, trainer: Any) -> None:  # noqa: ARG002 - for those who override
        """Count the epoch whose batches are done."""
        now = self.state.timestamp
        if now.batch_in_epoch.value:
            self.state.previous_timestamp = now
            self.state.timestamp = now.to_next_epoch()

    def on_epoch_checkpoint(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `epoch_checkpoint`, unless the epoch was broken off."""
        if self.state.timestamp.batch_in_epoch.value == 0:
            listener.fire("epoch_checkpoint")

    def on_iteration_end(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Count the cycle of epochs that ends, and fire `iteration_end`."""
        now = self.state.timestamp
        if now.epoch_in_iteration.value:
            self.state.previous_timestamp = now
            self.state.timestamp = now.to_next_iteration()
        listener.fire("iteration_end")

    # --- evaluations ---

    def on_validation_start(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Prepare for an evaluation; its first event fires at the first batch."""
        self._evaluated, self._eval_position = [], (-1, -1)
        self._keep_dataloader()
        listener.evaluations_closed = 0

    def on_validation_batch_start(
        self,
        listener: EventListener,
        trainer: Any,
        module: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Fire `eval_batch_start`; before it `eval_end` and `eval_start` where a loader begins."""
        if trainer.sanity_checking:
            return
        # several processes reduce the metrics of all loaders at the end of the evaluation, and
        # close the loaders there
        if batch_idx == 0 and trainer.world_size == 1:
            self.close_loaders(listener, trainer, dataloader_idx)
        if (dataloader_idx, batch_idx) != self._eval_position:
            self._eval_position = dataloader_idx, batch_idx
            if batch_idx == 0:
                self._open_loader(trainer, dataloader_idx)
                self._batch_before = self.state.batch
            self._uncounted = self._evaluated[-1].timestamp
        if batch_idx == 0:
            # Composer loads the first batch after the event
            self.state.keep("batch", self._batch_before)
            listener.fire("eval_start")
        self.state.keep("batch", batch)
        listener.fire("eval_batch_start")
        if self._has_own_eval_step(trainer, module):
            listener.fire("eval_before_forward")

    def on_validation_before_forward(
        self, listener: EventListener, trainer: Any, _module: Any
    ) -> None:
        """Fire `eval_before_forward`."""
        if not trainer.sanity_checking:
            listener.fire("eval_before_forward")

    def on_validation_after_forward(
        self, listener: EventListener, trainer: Any, _module: Any, outputs: Any
    ) -> None:
        """Fire `eval_after_forward`."""
        if not trainer.sanity_checking:
            self.state.keep("outputs", outputs)
            listener.fire("eval_after_forward")

    def on_validation_batch_end(
        self,
        listener: EventListener,
        trainer: Any,
        module: Any,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        _dataloader_idx: int = 0,
    ) -> None:
        """Count the evaluated batch, and fire `eval_batch_end`."""
        if trainer.sanity_checking:
            return
        self.state.keep("outputs", outputs)
        self.state.eval_timestamp = self._uncounted  # as at an eval_after_forward that has a hook
        if self._has_own_eval_step(trainer, module):
            listener.fire("eval_after_forward")
        loader = self._evaluated[-1]
        # the first listener counts the batch, the others find it counted
        if loader.timestamp is self._uncounted and loader.timestamp.batch.value == batch_idx:
            spent, self._batch_began = perf_counter() - self._batch_began, perf_counter()
            loader.timestamp = self._uncounted.to_next_batch(
                *self.measure_eval_batch(batch), timedelta(seconds=spent)
            )
        self.state.eval_timestamp = loader.timestamp
        listener.fire("eval_batch_end")

    def measure_eval_batch(self, batch: Any) -> tuple[int, int]:
        """Return the samples and tokens of an evaluated batch."""
        return count_samples_and_tokens(batch)

    def on_validation_end(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `eval_end` for each loader that is still open."""
        if not trainer.sanity_checking:
            self.close_loaders(listener, trainer, None)

    on_test_start = on_validation_start
    on_test_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end
    on_test_end = on_validation_end

    def close_loaders(self, listener: EventListener, trainer: Any, following: int | None) -> None:
        """Fire `eval_end` for each loader that is done, with the state as it was at its end.

        Args:
            listener: the receiver; loaders that it had an `eval_end` for are left out.
            trainer: the trainer that evaluates.
            following: the index of the loader that begins now; None at the evaluation's end.
        """
        state = self.state
        present = state.dataloader, state.dataloader_label, state.dataloader_len
        eval_timestamp = state.eval_timestamp
        for loader in self._evaluated[listener.evaluations_closed :]:
            # another listener may have opened the following one before
            if loader.index == following:
                break
            state.set_dataloader(loader.dataloader, loader.label, loader.length)
            state.eval_timestamp = loader.timestamp
            listener.evaluations_closed += 1
            self.close_loader(trainer, loader)
            listener.fire("eval_end")
        if following is not None:
            state.eval_timestamp = eval_timestamp
        else:
            self._batch_before = None
        self.restore_dataloader(present if following is not None else self.dataloader_before)

    def close_loader(self, trainer: Any, loader: EvaluatedLoader) -> None:
        """Compute the metrics of a loader that is done; here the trainer has logged them."""

    def describe_loader(self, trainer: Any, index: int) -> tuple[Any, str, int]:
        """Return a loader that is evaluated, its label, and its number of batches (-1: unknown)."""
        given = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        lengths = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
        loaders = loaders_in(given)
        loader = loaders[index] if index < len(loaders) else given
        default_label = f"eval_{index}" if len(loaders) > 1 else "eval"
        length = lengths[index] if index < len(lengths) else -1
        is_endless = length == float("inf")
        return loader, trainer.dataloader_label or default_label, -1 if is_endless else int(length)

    def _open_loader(self, trainer: Any, index: int) -> None:
        loader, label, length = self.describe_loader(trainer, index)
        timestamp = self._timestamp_class()
        self._evaluated.append(EvaluatedLoader(index, loader, label, length, timestamp))
        self.state.set_dataloader(loader, label, length)
        self.state.eval_timestamp = timestamp
        self._batch_began = perf_counter()

    def _keep_dataloader(self) -> None:
        state = self.state
        self.dataloader_before = state.dataloader, state.dataloader_label, state.dataloader_len

    def restore_dataloader(self, dataloader: tuple[Any, str | None, Any]) -> None:
        """Show a loader on the state again, given with its label and length."""
        loader, label, length = dataloader
        self.state.set_dataloader(loader, label, -1 if length is None else int(length))

    def _has_own_eval_step(self, trainer: Any, module: Any) -> bool:
        # a test step is always the module's own: it has no hooks around its forward
        return self.fires_around_own_steps and (
            trainer.testing or defines(module, "validation_step", Module)
        )

    # --- predictions ---

    def on_predict_start(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `predict_start`, with a predict timestamp of zero."""
        state, loader = self.state, trainer.predict_dataloaders
        if state.dataloader_label != "predict":  # not another listener's, which came first
            self._keep_dataloader()
        self._predict_position = ()
        state.predict_timestamp = self._timestamp_class()
        if loader is not None:
            state.set_dataloader(loader, "predict")
        listener.fire("predict_start")

    def on_predict_batch_start(
        self, listener: EventListener, _trainer: Any, module: Any, batch: Any, *_indices: int
    ) -> None:
        """Fire `predict_batch_start`."""
        self.state.keep("batch", batch)
        listener.fire("predict_batch_start")
        if self._has_own_predict_step(module):
            listener.fire("predict_before_forward")

    def on_predict_batch_end(
        self,
        listener: EventListener,
        _trainer: Any,
        module: Any,
        outputs: Any,
        batch: Any,
        *indices: int,
    ) -> None:
        """Count the predicted batch, and fire `predict_batch_end`."""
        state = self.state
        state.keep("outputs", outputs)
        # once, however many listeners share the source
        if indices != self._predict_position:
            self._predict_position = indices
            state.predict_timestamp = state.predict_timestamp.to_next_batch(
                *count_samples_and_tokens(batch)
            )
        if self._has_own_predict_step(module):
            listener.fire("predict_after_forward")
        listener.fire("predict_batch_end")

    def _has_own_predict_step(self, module: Any) -> bool:
        return self.fires_around_own_steps and defines(module, "predict_step", Module)


def handler_of(source_class: type[EventSource], hook: str) -> Callable[..., None]:
    """Return the handler of a hook: the source's method of that name, or one that fires its event.

    Args:
        source_class: the class of the source.
        hook: a hook of `EVENTS`.

    Returns:
        A function of the source, the listener and the hook's arguments.
    """
    method: Callable[..., None] | None = getattr(source_class, hook, None)
    if method is not None:
        return method
    event, attribute = EVENTS[hook][0], _KEPT.get(hook)

    def fire(
        source: EventSource, listener: EventListener, _trainer: Any, _module: Any, *arguments: Any
    ) -> None:
        if attribute is not None:
            source.state.keep(attribute, arguments[0])
        listener.fire(event)

    return fire


def close_callbacks(callbacks: Iterable[Any], state: Any, logger: Any) -> None:
    """Call `close` on callbacks of Composer, then `post_close` on those whose `close` went well.

    An error is logged as in Composer, and the others are still closed.

    Args:
        callbacks: the callbacks.
        state: the State that they receive.
        logger: the Logger that they receive.
    """
    closed = []
    for callback in callbacks:
        try:
            callback.close(state, logger)
        except Exception:  # noqa: BLE001 - logged; the others are closed all the same
            name = type(callback).__qualname__
            log.exception("%s.close() failed, so its post_close() is left out", name)
        else:
            closed.append(callback)
    for callback in closed:
        try:
            callback.post_close()
        except Exception:  # noqa: BLE001 - logged; the others have their turn
            log.exception("%s.post_close() failed", type(callback).__qualname__)


_OPEN: WeakSet[Any] = WeakSet()
"""The event sources whose callbacks are closed when Python exits."""


def close_at_exit(source: Any) -> None:
    """Call `close()` of an event source when Python exits, unless it is gone by then."""
    _OPEN.add(source)


def _close_all() -> None:
    for source in list(_OPEN):
        source.close()


atexit.register(_close_all)


def advance_timestamp(now: Any, counts: tuple[int, int, int], seconds: float) -> Any:
    """Return a timestamp that has moved on to some counts.

    Args:
        now: the timestamp.
        counts: the batches, samples and tokens that are trained.
        seconds: the wall time that the training took up to then.
    """
    batches, samples, tokens = counts
    spent = max(timedelta(seconds=seconds) - now.total_wct, timedelta())
    following = now.to_next_batch(samples - now.sample.value, tokens - now.token.value, spent)
    more = batches - following.batch.value
    if more:  # several batches passed since the timestamp was read
        in_epoch = following.batch_in_epoch + more
        following = following.copy(batch=following.batch + more, batch_in_epoch=in_epoch)
    return following
