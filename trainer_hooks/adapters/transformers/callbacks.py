"""TransformersGuest: a callback of Hugging Face's Trainer in ours; `adapt` is the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.adapters.transformers.facade import Facade
from trainer_hooks.callbacks import EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["EVENTS", "TransformersGuest", "adapt"]

_HOME = "transformers.trainer_callback"

EVENTS = {
    "on_init_end": "on_init_end",
    "on_train_start": "on_train_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_before_train_batch": "on_step_begin",
    "on_after_train_batch": "on_pre_optimizer_step",
    "on_after_optimizer_step": "on_optimizer_step",
    "on_train_batch_end": "on_step_end",
    "on_train_batches_end": "on_epoch_end",
    "on_validation_batch_end": "on_prediction_step",
    "on_test_batch_end": "on_prediction_step",
    "on_predict_batch_end": "on_prediction_step",
    "on_validation_end": "on_evaluate",
    "on_test_end": "on_predict",
    "on_checkpoint_saved": "on_save",
    "on_log": "on_log",
    "on_train_end": "on_train_end",
}
"""Their event for each hook of ours. A batch inside a window ends with `on_substep_end`."""


_BROUGHT = (
    "model", "processing_class", "optimizer", "lr_scheduler", "train_dataloader", "eval_dataloader",
)  # fmt: skip
"""What an event brings beside the three objects."""

_PREFIXES = {"on_evaluate": "eval_", "on_predict": "test_"}
"""What stands before the names of the metrics that an event brings."""


def adapt(guest: Any, args: Any = None) -> Callback:
    """Return the adapter of a callback of transformers.

    Args:
        guest: the callback.
        args: the TrainingArguments that it is to see; made of the trainer's options unless given.
    """
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(guest).__mro__}
    kinds: list[type[Callback]] = []
    if f"{_HOME}.ProgressCallback" in names:
        kinds.append(HostedBar)
    if f"{_HOME}.EarlyStoppingCallback" in names:
        kinds.append(EarlyStopping)
    adapter = TransformersGuest.hosting(guest, *kinds)
    adapter.args = args
    return adapter


_FACADES: WeakKeyDictionary[Any, Facade] = WeakKeyDictionary()


class TransformersGuest(HostedCallback):
    """Stand for a callback of Hugging Face's Trainer.

    What it sets in the control object is done here: `should_training_stop` stops,
    `should_epoch_stop` ends the epoch, `should_evaluate` and `should_save` ask for a validation and
    a checkpoint, and `should_log` hands the metrics of this moment to the loggers.
    """

    framework: ClassVar[str] = "transformers"
    bases: ClassVar[frozenset[str]] = frozenset({f"{_HOME}.TrainerCallback"})

    args: Any = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return what calls the guest's event at `hook`, or None if it has none."""
        if hook in _OF_ALL:
            return _OF_ALL[hook]
        if hook == "on_validation_run_end":
            return self._judge
        event = EVENTS.get(hook)
        if event == "on_step_end":
            return self._after_batch()
        if event == "on_log":
            return self._log
        if event is None or not self.guest_has(event):
            return None
        if event == "on_optimizer_step":
            return self._before_count(self.guest.on_optimizer_step)
        method = getattr(self.guest, event)
        if event == "on_init_end":
            return self._first(method)
        if event in _PREFIXES:
            return self._measured(method, _PREFIXES[event])
        return self._plain(method)

    @property
    def is_stateful(self) -> bool:
        """Whether the guest exports a state."""
        return self.guest_has("state")

    def guest_state(self) -> dict[str, Any]:
        """Return what the guest exports."""
        return dict(self.guest.state())

    def load_guest_state(self, state: Any) -> None:
        """Set the attributes that the guest exported."""
        for name, value in state.get("attributes", {}).items():
            setattr(self.guest, name, value)

    def _plain(self, method: Callable[..., object]) -> Callable[..., object]:
        return lambda trainer, module, *_: self._call(method, trainer, module)

    def _before_count(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return what calls an event that comes before the step is counted, there."""

        def call(trainer: Any, module: Any, *_: Any) -> None:
            self._call(method, trainer, module, is_counted=False)

        return call

    def _first(self, method: Callable[..., object]) -> Callable[..., object]:
        return lambda trainer: self._call(method, trainer, None)

    def _measured(self, method: Callable[..., object], prefix: str) -> Callable[..., object]:
        def call(trainer: Any, module: Any) -> None:
            if not trainer.sanity_checking:
                self._call(method, trainer, module, metrics=_measures(trainer, prefix))

        return call

    def _judge(self, trainer: Any, module: Any) -> None:
        """Look for a best value when all have been told of a validation."""
        if not trainer.sanity_checking:
            facade = _facade(trainer)
            facade.refresh(trainer, module)
            facade.judge(self.args, _measures(trainer, "eval_"))

    def _log(self, trainer: Any, module: Any, metrics: Any, step: int) -> None:
        """Write what is logged into the history, whether the guest listens or not."""
        facade = _facade(trainer)
        logs = {**metrics, "epoch": facade.state.epoch}
        facade.note({**logs, "step": step})
        if self.guest_has("on_log"):
            self._call(self.guest.on_log, trainer, module, logs=logs)

    def _after_batch(self) -> Callable[..., object] | None:
        step = self.guest.on_step_end if self.guest_has("on_step_end") else None
        substep = self.guest.on_substep_end if self.guest_has("on_substep_end") else None
        if step is None and substep is None:
            return None

        def call(trainer: Any, module: Any, *_: Any) -> None:
            method = substep if trainer.progress.batches_in_window else step
            if method is not None:
                self._call(method, trainer, module)

        return call

    def _call(
        self,
        method: Callable[..., object],
        trainer: Any,
        module: Any,
        *,
        is_counted: bool = True,
        **more: Any,
    ) -> None:
        facade = _facade(trainer)
        if module is None:  # before any run
            more |= dict.fromkeys(_BROUGHT)
        else:
            facade.refresh(trainer, module)
            if not is_counted:
                facade.state.global_step -= 1
            optimizers, schedulers = trainer.optimizers, trainer.lr_scheduler_configs
            more["optimizer"] = optimizers[0] if optimizers else None
            more["lr_scheduler"] = schedulers[0].scheduler if schedulers else None
            more |= facade.lasting
        method(self.args or facade.args, facade.state, facade.control, **more)
        if module is not None:
            self._heed(facade.control, trainer)

    def _heed(self, control: Any, trainer: Any) -> None:
        """Do what the guest asked for in the control object."""
        if control.should_training_stop and not trainer.should_stop:
            trainer.stop(f"{type(self.guest).__qualname__} set control.should_training_stop")
        if trainer.state.fn == "fit" and trainer.training:
            if control.should_evaluate:
                trainer.request_validation()
            if control.should_save:
                trainer.request_checkpoint()
            if control.should_epoch_stop:
                trainer.end_epoch()
        if control.should_log:
            control.should_log = False
            trainer.log_metrics({k: v.item() for k, v in trainer.callback_metrics.items()})
        control.should_evaluate = control.should_save = control.should_log = False
        control.should_epoch_stop = False


def _facade(trainer: Any) -> Facade:
    found = _FACADES.get(trainer)
    if found is None:
        found = _FACADES[trainer] = Facade(trainer)
    return found


def _save(trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
    """Put the state that all guests share into a checkpoint."""
    checkpoint[_KEY] = _facade(trainer).state_dict()


def _load(trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
    """Take it back, from a checkpoint that holds one."""
    if _KEY in checkpoint and trainer.state.fn == "fit":
        _facade(trainer).load_state_dict(checkpoint[_KEY])


_KEY = "transformers"
_OF_ALL: dict[str, Callable[..., object]] = {
    "on_save_checkpoint": _save,
    "on_load_checkpoint": _load,
}


def _measures(trainer: Any, prefix: str) -> dict[str, float]:
    """Return the metrics of this moment under their names there."""
    return {
        name if name.startswith(prefix) else f"{prefix}{name}": value.item()
        for name, value in trainer.callback_metrics.items()
    }
