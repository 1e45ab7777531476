"""Adapters of pytorch-accelerated's callbacks; `adapt` chooses the one for a callback."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    ancestor_names,
    choose_adapter,
)
from trainer_hooks.adapters.pytorch_accelerated.events import EventTranslation
from trainer_hooks.adapters.pytorch_accelerated.trainer_proxy import AcceleratedTrainerProxy
from trainer_hooks.callbacks import Checkpoint, EarlyStopping
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

_MODULE = "pytorch_accelerated.callbacks"
"""The module of all callbacks there."""

_COUNTERS = {
    f"{_MODULE}.EarlyStoppingCallback": ("best_metric", "early_stopping_patience_counter"),
    f"{_MODULE}.SaveBestModelCallback": ("best_metric", "best_metric_epoch"),
    f"{_MODULE}.SaveTrainingStateCallback": ("_global_step", "_saved_checkpoints"),
    f"{_MODULE}.TerminateOnNaNCallback": ("triggered",),
    f"{_MODULE}.WSDCheckpointCallback": ("last_checkpoint_step",),
}
"""Attributes in which built-in callbacks count: lost there with the process, saved here."""


class AcceleratedAdapter(EventTranslation, HostedCallback):
    """Adapter of a callback of pytorch-accelerated.

    Its hooks are called at the moments that they have there: `on_train_step_end` before the
    backward, `on_train_epoch_end` before the epoch's validation, and
    `on_training_run_epoch_end` after it. A sanity check fires none of those of an evaluation. A
    `StopTrainingError` of theirs ends the fit in order, as one of ours.
    """

    framework: ClassVar[str] = "accelerated"
    bases: ClassVar[frozenset[str]] = frozenset({f"{_MODULE}.TrainerCallback"})

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._counters = tuple(
            name for kind in ancestor_names(guest) for name in _COUNTERS.get(kind, ())
        )
        self._restored: dict[str, Any] | None = None
        self._proxy: AcceleratedTrainerProxy | None = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`, or None if the callback has no method for it."""
        call = self._translated_event(hook)
        if hook == "on_fit_start" and call is not None and self._counters:
            return self._restoring_after(call)
        return call

    def _has_event(self, name: str) -> bool:
        return self.guest_has(name)

    def _event_method(self, name: str) -> Callable[..., object]:
        """Return the callback's method; a StopTrainingError of theirs is raised as ours."""
        method = getattr(self.guest, name)

        def call(*args: Any, **kwargs: Any) -> None:
            try:
                method(*args, **kwargs)
            except Exception as error:
                # compared by name: the package need not be importable to be adapted
                if f"{_MODULE}.StopTrainingError" in ancestor_names(error):
                    raise StopTraining(str(error)) from error
                raise

        return call

    def _event_trainer(self, trainer: Any) -> AcceleratedTrainerProxy:
        proxy = self._proxy
        if proxy is None or proxy.proxy_target is not trainer:
            proxy = self._proxy = AcceleratedTrainerProxy(trainer)
        return proxy

    def attach_module(self, module: Any) -> None:
        """Take part in a run; drop the trainer's proxy when the run is over."""
        super().attach_module(module)
        if module is None:
            self._proxy = self._restored = None

    # --- state ---

    @property
    def is_stateful(self) -> bool:
        """Whether the callback has a state of its own, or is one of those that count."""
        return bool(self._counters) or super().is_stateful

    def guest_state(self) -> dict[str, Any]:
        """Return the callback's own state, or its counters."""
        if super().is_stateful:
            return super().guest_state()
        return {name: _plain_data(getattr(self.guest, name)) for name in self._counters}

    def load_guest_state(self, state: Any) -> None:
        """Restore the state."""
        if super().is_stateful:
            super().load_guest_state(state)
        else:
            # once more when the run begins, as the callback resets its counters there
            self._restored = state
            self.restore_counters(state)

    def restore_counters(self, state: dict[str, Any]) -> None:
        """Set the attributes in which the callback counts."""
        for name, value in state.items():
            is_listed = isinstance(value, list)
            setattr(self.guest, name, [Path(path) for path in value] if is_listed else value)

    def _restoring_after(self, handle: Callable[..., object]) -> Callable[..., object]:
        def call(trainer: Any, module: Any) -> None:
            handle(trainer, module)
            if self._restored is not None:
                self.restore_counters(self._restored)
                self._restored = None

        return call


def _plain_data(value: Any) -> Any:
    """Return a counter as a checkpoint can hold it: lists there are of paths."""
    return [str(path) for path in value] if isinstance(value, list) else value


class AcceleratedBarAdapter(AcceleratedAdapter):
    """Adapter of a progress bar, which opens inside an epoch too, where a run is resumed there."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`."""
        return self._open_inside_epoch if hook == "on_train_start" else super().translated(hook)

    def _open_inside_epoch(self, trainer: Any, _module: Any) -> None:
        # on_train_epoch_start was fired before the checkpoint, and the next step would find no bar
        is_inside = trainer.progress.stage in {EpochStage.BATCHES, EpochStage.CLOSING}
        if is_inside and self.guest_has("on_train_epoch_start"):
            self.guest.on_train_epoch_start(self._event_trainer(trainer))


class LimitBatchesAdapter(AcceleratedAdapter):
    """Adapter of LimitBatchesCallback: the run takes fewer batches, of loaders that stay."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function that limits the run, in place of the one that replaces loaders."""
        return self._limit if hook == "setup" else None

    def _limit(self, trainer: Any, _module: Any, _stage: str) -> None:
        trainer.limit_batches(self.guest.num_batches)


class StepBasedEvaluationAdapter(AcceleratedAdapter):
    """Adapter of StepBasedEvaluationCallback, which evaluates before a batch's step.

    There, it does so between the forward and the backward of a batch; here after the batch before,
    when the weights are the same.
    """

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`; the end of a step comes a batch earlier."""
        if hook in ("on_after_forward", "on_before_backward"):
            return None
        return self._end_next_step if hook == "on_train_batch_end" else super().translated(hook)

    def _end_next_step(
        self, trainer: Any, _module: Any, _outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        is_over = trainer.should_stop or 0 <= trainer.max_steps <= trainer.global_step
        if not trainer.is_last_batch and not is_over:
            # by the index of the batch to come: at index n the callback has seen n batches trained
            proxy = self._event_trainer(trainer)
            self.guest.on_train_step_end(proxy, batch=batch, step=batch_idx + 1)


class ModelEmaAdapter(AcceleratedAdapter):
    """Adapter of ModelEmaCallback, which validates after the epoch's own validation."""

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`; the end of an epoch validates first."""
        if hook == "on_validation_epoch_end":
            return None
        handle = super().translated(hook)
        if hook != "on_train_epoch_end" or handle is None:
            return handle

        def call(trainer: Any, module: Any) -> None:
            # here, since a validation cannot run inside the one whose end that event is
            if sum(trainer.num_val_batches):
                self.guest.on_eval_epoch_end(self._event_trainer(trainer))
            handle(trainer, module)

        return call

    def guest_state(self) -> dict[str, Any]:
        """Return the counters and the averaged weights."""
        average = self.guest.ema_model
        weights = None if average is None else dict(average.module.state_dict())
        return {**super().guest_state(), "ema_model": weights}

    def restore_counters(self, state: dict[str, Any]) -> None:
        """Set the counters, and the weights of the copy that the callback made at the start."""
        super().restore_counters(
            {name: value for name, value in state.items() if name != "ema_model"}
        )
        # the first call, as the checkpoint is loaded, finds no copy yet
        if state["ema_model"] is not None and self.guest.ema_model is not None:
            self.guest.ema_model.module.load_state_dict(state["ema_model"])


# --- the choice of an adapter ---

_COUNTERPARTS: dict[str, type[Callback]] = {
    f"{_MODULE}.SaveBestModelCallback": Checkpoint,
    f"{_MODULE}.SaveTrainingStateCallback": Checkpoint,
    f"{_MODULE}.ProgressBarCallback": ForeignProgressBar,
    f"{_MODULE}.EarlyStoppingCallback": EarlyStopping,
}
"""The class of ours that a callback counts as; a default of that class steps back."""

_SPECIAL_ADAPTERS: dict[str, type[AcceleratedAdapter]] = {
    f"{_MODULE}.LimitBatchesCallback": LimitBatchesAdapter,
    f"{_MODULE}.ModelEmaCallback": ModelEmaAdapter,
    f"{_MODULE}.ProgressBarCallback": AcceleratedBarAdapter,
}
"""Adapters of the callbacks that change which batches or epochs a run has."""

_STEP_BASED = f"{_MODULE}.StepBasedEvaluationCallback"
"""The class whose own `on_train_step_end` evaluates; a subclass that overrides it does not."""


def adapt(callback: Any) -> Callback:
    """Return the adapter of a callback of pytorch-accelerated.

    Args:
        callback: the callback.
    """
    classes = type(callback).__mro__
    # the class whose method it is, as a subclass may do something else at that event
    owner = next((kind for kind in classes if "on_train_step_end" in vars(kind)), object)
    is_step_based = f"{owner.__module__}.{owner.__qualname__}" == _STEP_BASED
    default = StepBasedEvaluationAdapter if is_step_based else AcceleratedAdapter
    return choose_adapter(callback, default, _SPECIAL_ADAPTERS, _COUNTERPARTS)
