"""The events and the module of Composer's Trainer in the trainer that runs underneath."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks import callback
from trainer_hooks.adapters.composer.event_source import EventSource, handler_of
from trainer_hooks.adapters.composer.events import EVENTS
from trainer_hooks.adapters.composer.modules import losses_of, mean_of
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.time import Timestamp
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.data.batch_splitting import samples_in
from trainer_hooks.errors import UsageError
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.modes import evaluation_mode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trainer_hooks.adapters.composer.event_source import EvaluatedLoader, EventListener
    from trainer_hooks.compat.composer.core.data_spec import DataSpec
    from trainer_hooks.compat.composer.core.engine import Engine
    from trainer_hooks.compat.composer.core.evaluator import Evaluator
    from trainer_hooks.compat.composer.core.state import State

__all__ = ["ComposerModule", "EngineEventSource", "EngineEvents", "TrainerEventSource"]


class EngineEventSource(EventSource):
    """An event source whose events go to the callbacks of an `Engine`.

    Args:
        engine: the engine that calls the callbacks.

    Attributes:
        engine: the engine that calls the callbacks.
        has_pending_scheduler_step: whether schedulers that count epochs have still to step for the
            present epoch.
    """

    # callbacks are warned of a module with its own step, whose forward has no events
    fires_around_own_steps: ClassVar[bool] = False
    is_of_composers_trainer: ClassVar[bool] = False
    """Whether the events are those of Composer's own Trainer, with its logger and evaluators."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.state)
        self.engine = engine
        self.has_pending_scheduler_step = False

    def follow_duration(self, trainer: Any) -> None:
        """Show on the state how long the trainer trains."""
        # past the setter, which would give it to the trainer again
        self.state.keep("max_duration", self.duration_of(trainer))

    def on_predict_end(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `PREDICT_END`, and show the loader from before the prediction again."""
        listener.fire("predict_end")
        self.restore_dataloader(self.dataloader_before)

    def on_close(self, *_: Any) -> None:
        """Close the callbacks, which also calls their `post_close`."""
        self.engine.close()

    def on_post_close(self, *_: Any) -> None:
        """Do nothing: `on_close` has called `post_close`."""

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineEventSource:
        """Return itself: a copy of the model belongs to the same training."""
        return self


class TrainerEventSource(EngineEventSource):
    """The event source of Composer's own Trainer: it also splits, measures, logs and evaluates.

    trainer_hooks evaluates at the end of a training before the checkpoint of the last epoch;
    Composer does so after `FIT_END`. Where an evaluation is due only because the training ends,
    `EPOCH_CHECKPOINT` and `FIT_END` fire before it.

    Args:
        engine: the engine that calls the callbacks.

    Attributes:
        spec: the `DataSpec` of the training loader; None before there is one.
        predict_spec: the `DataSpec` of the loader that is predicted on.
        evaluators: the evaluators of the running evaluation, in the order of their loaders.
        evaluator: the evaluator that runs now; None if none does, or one that is not due.
        batch_losses: the losses of the training batch, summed over its microbatches, by the name
            they are logged under.
        microbatches: the microbatches of the training batch that are still to come; None if it is
            not split.
        is_step_forward: whether the next forward is that of a step, for the batch on the state.
        steps_schedulers_each_batch: whether schedulers count batches; otherwise they count epochs.
        spins_loaders: whether the next fit begins without a checkpoint, which holds what loaders
            have drawn.
        last_checkpoint_event: the last event at which something may be saved.
    """

    is_of_composers_trainer: ClassVar[bool] = True

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.spec: DataSpec | None = None
        self.predict_spec: DataSpec | None = None
        self.evaluators: list[Evaluator] = []
        self.evaluator: Evaluator | None = None
        self.batch_losses: dict[str, Any] = {}
        self.microbatches: Iterator[Any] | None = None
        self.is_step_forward = False
        self.steps_schedulers_each_batch = True
        self.spins_loaders = True
        self.last_checkpoint_event: Event | None = None
        self._replaced_batch: Any = None
        self._held: list[callback.Callback] = []
        self._eval_counts = (0, 0)
        self._due_labels: set[str] | None = None  # None: all evaluators are due
        self._is_final_evaluation = False
        self._is_epoch_complete = False
        self._has_saved_epoch = True
        self._has_ended_fit = False

    # --- a run begins ---

    def begin_run(self, module: Any) -> None:
        """Expect that a timestamp may be restored for the run."""
        self.has_restored_timestamp = False

    def on_before_load(self, *_: Any) -> None:
        """Do nothing: `BEFORE_LOAD` fired when the trainer was made."""

    def on_after_load(
        self, _listener: EventListener, trainer: Any, _module: Any, checkpoint: Any
    ) -> None:
        """Set the timestamp of a checkpoint that holds none; `AFTER_LOAD` fired long before."""
        if checkpoint is not None and not self.has_restored_timestamp:
            self.follow_progress(trainer)

    def hold_state(self, callback: callback.Callback) -> None:
        """Keep a callback's state, which is loaded already, until the first fit has begun.

        Args:
            callback: the callback; the fit's own load of the same state does nothing.
        """
        vars(callback)["load_state_dict"] = _load_nothing
        self._held.append(callback)

    def begin_fit(self, trainer: Any) -> None:
        """Show the loss scaler and the progress on the state, which has the rest already."""
        for held in self._held:
            vars(held).pop("load_state_dict", None)
        self._held = []
        self.state.scaler = trainer.scaler
        self.reset_epoch()
        self.follow_progress(trainer)
        self._has_ended_fit, self._has_saved_epoch, self._due_labels = False, True, set()

    def on_fit_start(self, listener: EventListener, trainer: Any, module: Any) -> None:
        """Fire `FIT_START`, and draw the random numbers that Composer draws to spin its loaders.

        It takes a batch of each evaluator's loader, and one of the training loader for each epoch
        that was trained before. Without that, dropout and shuffling would have other numbers.
        """
        super().on_fit_start(listener, trainer, module)
        if not self.spins_loaders:
            return
        state = self.state
        loaders = [evaluator.dataloader.dataloader for evaluator in state.evaluators]
        for loader in [*loaders, *[state.train_dataloader] * int(state.timestamp.epoch)]:
            next(iter(loader), None)

    # --- training ---

    def on_train_epoch_start(self, listener: EventListener, trainer: Any, module: Any) -> None:
        """Fire `ITERATION_START` where an iteration begins and `EPOCH_START`; log the epoch."""
        self._is_epoch_complete = self._has_saved_epoch = False
        super().on_train_epoch_start(listener, trainer, module)
        self.engine.logger.log_metrics({"time/epoch": self.state.timestamp.epoch.value})

    def on_after_dataloader(
        self, listener: EventListener, trainer: Any, module: Any, batch: Any
    ) -> None:
        """Transform the batch and fire `AFTER_DATALOADER`, unless the loader had none left."""
        transformed = batch
        if batch is not None and self.spec is not None:
            transformed = self.spec.batch_transforms(batch)
        super().on_after_dataloader(listener, trainer, module, transformed)
        if batch is not None:
            # a transform or a callback may have put another batch in its place
            is_replaced = self.state.batch is not batch
            self._replaced_batch = self.state.batch if is_replaced else None

    def on_train_batch_start(
        self, listener: EventListener, trainer: Any, module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Fire `BATCH_START`, log the progress and reset the training metrics."""
        state = self.state
        if self._replaced_batch is not None:  # only the loader's own batch was moved to the device
            batch = state.device.batch_to_device(self._replaced_batch)
            self._replaced_batch = None
        self.batch_losses, self.microbatches = {}, None
        super().on_train_batch_start(listener, trainer, module, batch, batch_idx)
        if trainer.progress.batches_in_window:
            return
        if state.batch is not batch:  # a callback's, which may be on the host
            state.batch = state.device.batch_to_device(state.batch)
        self.whole_batch = state.batch
        self._log_progress(with_epoch=False)
        for metric in state.train_metrics.values():
            metric.reset()

    def split(self, microbatch_size: int) -> list[Any]:
        """Return the microbatches of the training batch, and begin with its first.

        Args:
            microbatch_size: how many samples a microbatch has at most.
        """
        assert self.spec is not None
        state = self.state
        if self.microbatches is not None:  # split once more: the first size was too large
            state.batch = self.whole_batch
        self.whole_batch = state.batch
        microbatches = list(self.spec.split_batch(self.whole_batch, microbatch_size))
        self.batch_losses, self.microbatches = {}, iter(microbatches)
        return microbatches

    def on_before_train_batch(self, listener: EventListener, trainer: Any, module: Any) -> None:
        """Fire `BEFORE_TRAIN_BATCH`; a batch that a callback puts on the state is trained on.

        Raises:
            UsageError: its microbatches have other sizes than those of the batch that was split.
        """
        super().on_before_train_batch(listener, trainer, module)
        state = self.state
        if state.batch is self.whole_batch:
            return
        batch = state.batch = state.device.batch_to_device(state.batch)
        if self.microbatches is not None:
            sizes = [samples_in(part) for part in self.microbatches]
            assert self.spec is not None
            microbatches = list(self.spec.split_batch(batch, max(sizes)))
            if [samples_in(part) for part in microbatches] != sizes:
                raise UsageError(
                    f"state.batch was set at 'before_train_batch' to {samples_in(batch)} samples: "
                    f"the batch was split already, into microbatches of {sizes}. Set it at "
                    "'after_dataloader' or 'batch_start'."
                )
            self.microbatches = iter(microbatches)
        self.whole_batch = batch

    def on_before_forward(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Put the next microbatch on the state, and fire `BEFORE_FORWARD`."""
        if self.microbatches is not None:
            self.state.batch = next(self.microbatches)
        if self.spec is not None:
            self.state.batch = self.spec.microbatch_transforms(self.state.batch)
        listener.fire("before_forward")
        self.is_step_forward = True

    def on_after_loss(
        self, listener: EventListener, _trainer: Any, _module: Any, _loss: Any
    ) -> None:
        """Fire `AFTER_LOSS`; the state has the loss as the model returned it."""
        listener.fire("after_loss")

    def on_after_backward(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `AFTER_BACKWARD`, and update the training metrics with the microbatch."""
        self.scale_total()
        listener.fire("after_backward")
        self._update_train_metrics()

    def on_after_train_batch(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `AFTER_TRAIN_BATCH`, with the whole batch on the state."""
        self.state.batch = self.whole_batch
        listener.fire("after_train_batch")

    def on_train_batch_end(self, listener: EventListener, trainer: Any, *_: Any) -> None:
        """Log the losses, count the batch, fire `BATCH_END` and choose evaluators."""
        if trainer.progress.batches_in_window:
            return
        self._log_batch()
        self.count_batch(trainer)
        self.state.stop_if_delayed(trainer)
        listener.fire("batch_end")
        self._choose_evaluators(Event.BATCH_END)

    def on_batch_checkpoint(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `BATCH_CHECKPOINT`; save if the training ends here."""
        if trainer.progress.batches_in_window == 0:
            self.last_checkpoint_event = Event.BATCH_CHECKPOINT
            listener.fire("batch_checkpoint")
            if self.is_enough and trainer.checkpoint_callbacks:
                trainer.request_checkpoint()  # so that a resume returns to this batch

    def count_epoch(self, trainer: Any) -> None:
        """Compute the training metrics, step schedulers that count epochs, and count the epoch."""
        self._compute_metrics("train", self.state.train_metrics)
        if self.has_pending_scheduler_step:
            self.has_pending_scheduler_step = False
            for scheduler in self.state.schedulers:
                scheduler.step()
        super().count_epoch(trainer)

    def on_train_batches_end(self, listener: EventListener, trainer: Any, module: Any) -> None:
        """Fire `EPOCH_END` if the epoch is complete, and choose evaluators."""
        self._is_epoch_complete = trainer.is_last_batch
        super().on_train_batches_end(listener, trainer, module)
        self._choose_evaluators(Event.EPOCH_END if self._is_epoch_complete else None)

    def on_epoch_checkpoint(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `EPOCH_CHECKPOINT`, unless it came before an evaluation or the epoch broke off."""
        self.last_checkpoint_event = Event.EPOCH_CHECKPOINT
        self._fire_epoch_checkpoint(listener)

    def on_iteration_checkpoint(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `ITERATION_CHECKPOINT`."""
        self.last_checkpoint_event = Event.ITERATION_CHECKPOINT
        listener.fire("iteration_checkpoint")

    def on_fit_end(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `FIT_END`, unless it came before an evaluation."""
        self._fire_fit_end(listener)

    def _fire_epoch_checkpoint(self, listener: EventListener) -> None:
        if self._is_epoch_complete and not self._has_saved_epoch:
            self._has_saved_epoch = True
            listener.fire("epoch_checkpoint")

    def _fire_fit_end(self, listener: EventListener) -> None:
        if not self._has_ended_fit:
            self._has_ended_fit = True
            self._log_progress(with_epoch=True)
            listener.fire("fit_end")

    # --- which evaluators are due ---

    def is_due(self, label: str) -> bool:
        """Return whether the evaluator of a label is due."""
        return self._due_labels is None or label in self._due_labels

    def _choose_evaluators(self, event: Event | None) -> None:
        """Note the evaluators that are due at an event, or because the training ends."""
        self._is_final_evaluation = False
        self._due_labels = set() if event is None else self._labels_due_at(event)
        if event is not Event.BATCH_END and self.is_enough:
            # after FIT_END only if nothing else is due: one evaluation has room for both
            self._is_final_evaluation = not self._due_labels
            self._due_labels |= self._labels_due_at(Event.FIT_END)

    def _labels_due_at(self, event: Event) -> set[str]:
        state = self.state
        evaluators = [evaluator for evaluator in state.evaluators if not evaluator.is_never_due]
        return {
            evaluator.label for evaluator in evaluators if evaluator.eval_interval(state, event)
        }

    @property
    def _has_due_evaluators(self) -> bool:
        return self._due_labels is None or bool(self._due_labels)

    # --- evaluations ---

    def on_validation_run_start(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `EVAL_BEFORE_ALL` if an evaluator is due, after the end of a training if it ends."""
        if self._is_final_evaluation:
            self._fire_epoch_checkpoint(listener)
            self._fire_fit_end(listener)
        if self._has_due_evaluators:
            listener.fire("eval_before_all")

    def on_validation_run_end(self, listener: EventListener, _trainer: Any, _module: Any) -> None:
        """Fire `EVAL_AFTER_ALL` if an evaluator was due."""
        if self._has_due_evaluators:
            listener.fire("eval_after_all")

    def on_evaluation_run_start(
        self, listener: EventListener, _trainer: Any, _module: Any, _stage: str
    ) -> None:
        """Fire `EVAL_STANDALONE_START`; all evaluators are due."""
        self._due_labels = None
        listener.fire("eval_standalone_start")

    def on_validation_batch_start(
        self, listener: EventListener, trainer: Any, module: Any, batch: Any, *indices: int
    ) -> None:
        """Choose the evaluator at its first batch, transform the batch, fire `EVAL_BATCH_START`."""
        batch_idx, dataloader_idx = (*indices, 0)[:2]
        if batch_idx == 0:
            self.close_loaders(listener, trainer, dataloader_idx)
            self._choose_evaluator(dataloader_idx)
        if self.evaluator is None:
            return
        spec = self.evaluator.dataloader
        batch = spec.batch_transforms(batch)
        self._eval_counts = (
            spec.get_num_samples_in_batch(batch), spec.get_num_tokens_in_batch(batch)
        )  # fmt: skip
        super().on_validation_batch_start(listener, trainer, module, batch, *indices)

    def _choose_evaluator(self, index: int) -> None:
        evaluator = self.evaluators[index]
        self.evaluator = evaluator if self.is_due(evaluator.label) else None
        if self.evaluator is not None:
            for metric in self.state.eval_metrics.get(evaluator.label, {}).values():
                metric.reset()
                metric.to(self.state.device.torch_device)

    def describe_loader(self, trainer: Any, index: int) -> tuple[Any, str, int]:
        """Return the loader of an evaluator, its label, and its number of batches (-1: all)."""
        evaluator = self.evaluators[index]
        most = evaluator.subset_num_batches
        return evaluator.dataloader.dataloader, evaluator.label, -1 if most is None else most

    def measure_eval_batch(self, batch: Any) -> tuple[int, int]:
        """Return the samples and tokens that the evaluator's `DataSpec` counted."""
        return self._eval_counts

    def on_validation_batch_end(
        self, listener: EventListener, trainer: Any, module: Any, *arguments: Any
    ) -> None:
        """Count the batch and fire `EVAL_BATCH_END`, of an evaluator that is due."""
        if self.evaluator is not None:
            super().on_validation_batch_end(listener, trainer, module, *arguments)

    def on_validation_epoch_end(self, listener: EventListener, trainer: Any, _module: Any) -> None:
        """Fire `EVAL_END` of the last loader, before stoppers and savers read its metrics."""
        self.close_loaders(listener, trainer, None)
        self.evaluator = None

    def close_loader(self, trainer: Any, loader: EvaluatedLoader) -> None:
        """Compute and log a loader's metrics, also for trainer_hooks' stoppers and savers."""
        label = loader.label
        values = self._compute_metrics(label, self.state.eval_metrics.get(label, {}))
        for name, value in values.items():
            tensor = torch.as_tensor(value)
            if tensor.numel() == 1:  # a stopper compares single numbers
                # the first as stoppers look for it, the second as it is logged
                trainer.callback_metrics[f"{name}/{label}"] = tensor
                trainer.callback_metrics[f"metrics/{label}/{name}"] = tensor

    # hooks are called by position, so that the names of the parameters may differ
    on_test_batch_start = on_validation_batch_start  # type: ignore[assignment]
    on_test_batch_end = on_validation_batch_end  # type: ignore[assignment]
    on_test_epoch_end = on_validation_epoch_end

    # --- predictions ---

    def on_predict_batch_start(
        self, listener: EventListener, trainer: Any, module: Any, batch: Any, *indices: int
    ) -> None:
        """Transform the batch, and fire `PREDICT_BATCH_START`."""
        spec = self.predict_spec
        if spec is not None:
            batch = spec.microbatch_transforms(spec.batch_transforms(batch))
        super().on_predict_batch_start(listener, trainer, module, batch, *indices)

    def on_predict_before_forward(
        self, listener: EventListener, _trainer: Any, _module: Any
    ) -> None:
        """Fire `PREDICT_BEFORE_FORWARD`; the forward that follows is the step's."""
        listener.fire("predict_before_forward")
        self.is_step_forward = True

    def on_predict_batch_end(
        self,
        listener: EventListener,
        trainer: Any,
        module: Any,
        outputs: Any,
        _: Any,
        *indices: int,
    ) -> None:
        """Count the transformed batch, and fire `PREDICT_BATCH_END`."""
        batch = self.state.batch
        super().on_predict_batch_end(listener, trainer, module, outputs, batch, *indices)

    # --- metrics and logged values ---

    def _update_train_metrics(self) -> None:
        """Update the training metrics with a microbatch, without gradients and in eval mode."""
        state, model = self.state, self.state.model
        if not state.train_metrics:
            return
        with evaluation_mode(model):
            outputs = model.eval_forward(state.batch, state.outputs)
            update_metrics(state, model, state.train_metrics, outputs)

    def _compute_metrics(self, label: str, metrics: dict[str, Any]) -> dict[str, Any]:
        """Compute metrics, log them and put their values on the state; return the values."""
        state = self.state
        values = {name: metric.compute() for name, metric in metrics.items()}
        if values:
            self.engine.logger.log_metrics(
                {f"metrics/{label}/{name}": value for name, value in values.items()}
            )
        shown = state.train_metric_values if label == "train" else state.eval_metric_values
        shown.update(values)
        return values

    def _log_progress(self, *, with_epoch: bool) -> None:
        """Log the counts of the timestamp under the names of Composer's Trainer."""
        now = self.state.timestamp
        names = ["batch", "sample", "batch_in_epoch", "sample_in_epoch"]
        if with_epoch:
            names.insert(0, "epoch")
        if now.token.value:
            names += ["token", "token_in_epoch"]
        self.engine.logger.log_metrics({f"time/{name}": getattr(now, name).value for name in names})

    def _log_batch(self) -> None:
        """Log the microbatch size, losses and metrics of a training batch."""
        state, logger = self.state, self.engine.logger
        size = state.device_train_microbatch_size
        if size is not None:
            logger.log_metrics({"trainer/device_train_microbatch_size": size})
        if self.batch_losses:
            state.total_loss_dict = {name: loss.item() for name, loss in self.batch_losses.items()}
            logger.log_metrics(dict(state.total_loss_dict))
        self._compute_metrics("train", state.train_metrics)


def _load_nothing(_state: dict[str, Any]) -> None:
    """Load no state: the callback has loaded it when its trainer was made."""


def _is_scaling(state: State) -> bool:
    """Return whether the backward is that of the loss times a loss scale, another tensor."""
    return state.scaler is not None and state.scaler.is_enabled()


def update_metrics(state: State, model: Any, metrics: dict[str, Any], outputs: Any) -> None:
    """Update metrics with the batch on the state and the outputs of `eval_forward` for it."""
    for metric in metrics.values():
        state.metric_outputs = model.update_metric(state.batch, outputs, metric) or {}


class EngineEvents(callback.Callback):
    """The callback of trainer_hooks that connects an event source to an engine.

    Args:
        source: the event source.

    State: the timestamp, and whether schedulers that count epochs have still to step.
    """

    translated_hooks: ClassVar[frozenset[str]] = frozenset(EVENTS) | {
        f"on_{stage}_{moment}"
        for stage in ("validation", "test")
        for moment in ("start", "epoch_end")  # which prepare and close loaders, without an event
    }
    volatile_state: ClassVar[frozenset[str]] = frozenset(
        # wall times, in which a resumed run differs
        {"total_wct", "iteration_wct", "epoch_wct", "batch_wct"}
    )

    def __init__(self, source: EngineEventSource) -> None:
        self.source = source
        self.evaluations_closed = 0

    def fire(self, event: str) -> None:
        """Call the engine's callbacks at an event."""
        self.source.engine.run_event(event)

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the source's handler of a hook; None if the source has none."""
        source = self.source
        if hook == "on_after_configure_model":  # INIT has fired before a run
            return lambda _trainer, module: source.begin_run(module)
        if hook not in EVENTS and not hasattr(source, hook):
            return None
        return partial(handler_of(type(source), hook), source, self)

    @property
    def state_key(self) -> str:
        """The one key: there is one of these callbacks in a trainer."""
        return "ComposerState"

    def state_dict(self) -> dict[str, Any]:
        """Return the timestamp, and whether schedulers have still to step."""
        source = self.source
        return {
            "timestamp": source.state.timestamp.state_dict(),
            "waiting": source.has_pending_scheduler_step,
        }

    @checks_state({"timestamp": dict[str, Any], "waiting": bool})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state that `state_dict` returned."""
        source = self.source
        # loaded in place: callbacks may have kept the present timestamp, which must not change
        source.state.timestamp = Timestamp()
        source.state.timestamp.load_state_dict(state_dict["timestamp"])
        source.has_pending_scheduler_step = state_dict["waiting"]
        source.has_restored_timestamp = True


class ComposerModule(Module):
    """Run a ComposerModel's forward and loss in the default steps of trainer_hooks.

    Batches, outputs and losses go through Composer's State, where callbacks may replace them.

    Args:
        model: the ComposerModel.
        source: the event source of the trainer.
    """

    def __init__(self, model: Any, source: TrainerEventSource) -> None:
        super().__init__()
        self.model = model
        self.source = source

    def forward(self, batch: Any) -> Any:
        """Return the model's outputs: in a step for the batch on the state, else for `batch`."""
        source, state = self.source, self.source.state
        if not source.is_step_forward:  # a callback's own call
            return self.model(batch)
        source.is_step_forward = False
        # not `batch`: a callback or a microbatch split may have replaced it on the state
        state.outputs = self.model(state.batch)
        return state.outputs

    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """Return the loss to differentiate, the sum of several; keep each for the loggers."""
        source, state = self.source, self.source.state
        model_loss = self.model.loss(state.outputs, state.batch)
        state.keep("loss", model_loss)
        total, named = losses_of(model_loss, type(self.model).__qualname__)
        source.share = share = 1.0
        if source.microbatches is not None:  # the mean over the batch, of microbatches of any size
            source.share = share = samples_in(state.batch) / samples_in(source.whole_batch)
            if "total" in named and not _is_scaling(state):
                source.scaled_total, total = total, total.clone()
        logged = source.batch_losses
        for name, value in {**named, "total": total}.items():
            key = f"loss/train/{name}"
            part = mean_of(value.detach()) * share
            logged[key] = logged[key] + part if key in logged else part
        return total

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return the microbatches of the batch on the state."""
        return self.source.split(microbatch_size)

    def num_samples(self, batch: Any) -> int:
        """Return the number of samples in a training batch, as its `DataSpec` counts them."""
        assert self.source.spec is not None
        return int(self.source.spec.get_num_samples_in_batch(batch))

    def num_tokens(self, batch: Any) -> int:
        """Return the number of tokens in a training batch, as its `DataSpec` counts them."""
        assert self.source.spec is not None
        return int(self.source.spec.get_num_tokens_in_batch(batch))

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        """Evaluate the batch on the state, in microbatches if the evaluator has a size for them."""
        source, state = self.source, self.source.state
        evaluator = source.evaluator
        if evaluator is None:  # it is not due
            return None
        spec, size = evaluator.dataloader, evaluator.device_eval_microbatch_size
        microbatches = [state.batch] if size is None else spec.split_batch(state.batch, size)
        for microbatch in microbatches:
            state.batch = spec.microbatch_transforms(microbatch)
            source.engine.run_event(Event.EVAL_BEFORE_FORWARD)
            state.outputs = self.model.eval_forward(state.batch)
            source.engine.run_event(Event.EVAL_AFTER_FORWARD)
            metrics = state.eval_metrics.get(evaluator.label, {})
            update_metrics(state, self.model, metrics, state.outputs)
        return state.outputs

    def configure_optimizers(self) -> Any:
        """Return the optimizers and schedulers on the state."""
        state = self.source.state
        if not state.optimizers:
            return None
        interval = "step" if self.source.steps_schedulers_each_batch else "epoch"
        schedulers = [
            {"scheduler": scheduler, "interval": interval} for scheduler in state.schedulers
        ]
        return list(state.optimizers), schedulers

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler that counts batches; one that counts epochs waits for `EPOCH_END`."""
        if self.source.steps_schedulers_each_batch:
            scheduler.step()
        else:
            # trainer_hooks steps it before on_train_batches_end, and Composer's metrics come first
            self.source.has_pending_scheduler_step = True
