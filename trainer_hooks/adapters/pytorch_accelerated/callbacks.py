"""AcceleratedGuest: a callback of pytorch-accelerated in a Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.pytorch_accelerated.view import AcceleratedView
from trainer_hooks.clock import EpochStage
from trainer_hooks.data import count_samples
from trainer_hooks.errors import StopTraining
from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TWINS", "AcceleratedGuest"]

_HOME = "pytorch_accelerated.callbacks"
TWINS = {spec.name: spec.accelerated for spec in HOOKS.values() if spec.accelerated}
"""Their hook for each of ours, where one is called at the other's moment."""
del TWINS["on_after_loss"]  # which a module with a training_step of its own does not reach
_STEP_END = "on_train_step_end"
_EVAL_STEP_END = "on_eval_step_end"
_CAPTURES = frozenset({"on_train_batch_start", "on_after_forward", "on_before_backward"})

_KEPT = {
    f"{_HOME}.EarlyStoppingCallback": ("best_metric", "early_stopping_patience_counter"),
    f"{_HOME}.SaveBestModelCallback": ("best_metric", "best_metric_epoch"),
    f"{_HOME}.SaveTrainingStateCallback": ("_global_step", "_saved_checkpoints"),
    f"{_HOME}.TerminateOnNaNCallback": ("triggered",),
    f"{_HOME}.WSDCheckpointCallback": ("last_checkpoint_step",),
}
"""What built-in callbacks count in attributes: there it ends with the process."""


class AcceleratedGuest(HostedCallback):
    """Stand for a callback of pytorch-accelerated.

    Its hooks are called at the moments that they have there: `on_train_step_end` before the
    backward, `on_train_epoch_end` before the epoch's validation, and
    `on_training_run_epoch_end` after it. A sanity check fires none of those of an evaluation. A
    `StopTrainingError` of theirs ends the fit in order, as one of ours.
    """

    framework: ClassVar[str] = "accelerated"
    bases: ClassVar[frozenset[str]] = frozenset({f"{_HOME}.TrainerCallback"})

    def __init__(self, guest: Any) -> None:
        super().__init__(guest)
        self._kept = tuple(n for kind in _names(guest) for n in _KEPT.get(kind, ()))
        self._resumed: dict[str, Any] | None = None
        self._view: AcceleratedView | None = None
        self._batch: Any = None
        self._batch_idx = 0
        self._outputs: Any = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest's method at `hook`, or None if it has none."""
        if hook in _CAPTURES and self.guest_has(_STEP_END):
            captures: dict[str, Callable[..., object]] = {
                "on_train_batch_start": self._start_step,
                "on_after_forward": self._keep_outputs,
                "on_before_backward": self._end_step,
            }
            return captures[hook]
        name = TWINS.get(hook)
        if name is None or not self.guest_has(name):
            return None
        if hook == "on_fit_start" and self._kept:
            return self._started(self._plain(name))
        return self._evaluated(hook, name) if "eval_" in name else self._plain(name)

    def view_of(self, trainer: Any) -> AcceleratedView:
        """Return what the guest is handed for a trainer."""
        view = self._view
        if view is None or view.view_target is not trainer:
            view = self._view = AcceleratedView(trainer)
        return view

    def attach_module(self, module: Any) -> None:
        """Forget the trainer when a run is over."""
        super().attach_module(module)
        if module is None:
            self._view = self._resumed = None

    @property
    def is_stateful(self) -> bool:
        """Whether the guest has a state of its own, or is one of those that count."""
        return bool(self._kept) or super().is_stateful

    def guest_state(self) -> dict[str, Any]:
        """Return what the guest says, or what it counts."""
        if super().is_stateful:
            return super().guest_state()
        return {name: _plain(getattr(self.guest, name)) for name in self._kept}

    def load_guest_state(self, state: Any) -> None:
        """Hand it back, and once more when the guest begins its run, which resets it."""
        if super().is_stateful:
            super().load_guest_state(state)
        else:
            self._resumed = state
            self.resume(state)

    def resume(self, state: dict[str, Any]) -> None:
        """Set what the guest counts."""
        for name, value in state.items():
            is_listed = isinstance(value, list)
            setattr(self.guest, name, [Path(one) for one in value] if is_listed else value)

    def _started(self, called: Callable[..., object]) -> Callable[..., object]:
        def call(trainer: Any, module: Any) -> None:
            called(trainer, module)
            if self._resumed is not None:
                self.resume(self._resumed)
                self._resumed = None

        return call

    def _plain(self, name: str) -> Callable[..., object]:
        method = self._translating(getattr(self.guest, name))
        return lambda trainer, *_: method(self.view_of(trainer))

    def _translating(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return `method`, in which their request to stop becomes ours."""

        def call(*args: Any, **kwargs: Any) -> None:
            try:
                method(*args, **kwargs)
            except Exception as error:
                kinds = {f"{k.__module__}.{k.__qualname__}" for k in type(error).__mro__}
                if f"{_HOME}.StopTrainingError" in kinds:
                    raise StopTraining(str(error)) from error
                raise

        return call

    def _evaluated(self, hook: str, name: str) -> Callable[..., object]:
        method = self._translating(getattr(self.guest, name))

        def call(trainer: Any, _module: Any, *arguments: Any) -> None:
            if trainer.sanity_checking:
                return
            view = self.view_of(trainer)
            if name == _EVAL_STEP_END:
                outputs, batch = arguments[:2]
                method(view, batch_output=_as_output(outputs, batch), batch=batch)
            elif hook.endswith(("epoch_start", "epoch_end")):
                stage = trainer.progress.stage
                is_intermediate = trainer.state.fn == "fit" and stage is EpochStage.BATCHES
                method(view, is_intermediate=is_intermediate)
            else:
                method(view)

        return call

    def _start_step(self, trainer: Any, _module: Any, batch: Any, batch_idx: int) -> None:
        self._batch, self._batch_idx, self._outputs = batch, batch_idx, None
        if self.guest_has("on_train_step_start"):
            self._translating(self.guest.on_train_step_start)(self.view_of(trainer))

    def _keep_outputs(self, _trainer: Any, _module: Any, outputs: Any) -> None:
        self._outputs = outputs

    def _end_step(self, trainer: Any, _module: Any, loss: Any) -> None:
        batch, outputs = self._batch, self._outputs
        self._outputs = None
        output = {"loss": loss, "model_outputs": outputs, "batch_size": count_samples(batch)}
        self._translating(self.guest.on_train_step_end)(
            self.view_of(trainer), batch_output=output, batch=batch, step=self._batch_idx
        )


def _names(guest: Any) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(guest).__mro__]


def _plain(value: Any) -> Any:
    """Return what a checkpoint can hold of a value: folders are kept by their names."""
    return [str(one) for one in value] if isinstance(value, list) else value


def _as_output(outputs: Any, batch: Any) -> dict[str, Any]:
    """Return what an evaluation step returned under their names."""
    found = dict(outputs) if isinstance(outputs, dict) else {}
    found.setdefault("loss", None if isinstance(outputs, dict) else outputs)
    found.setdefault("model_outputs", outputs)
    found.setdefault("batch_size", count_samples(batch))
    return found
