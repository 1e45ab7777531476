"""TransformersGuest: a callback of Hugging Face's Trainer in ours; `adapt` is the entry point."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.hosted import HostedCallback
from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.callbacks import EarlyStopping

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.callback import Callback

__all__ = ["EVENTS", "Facade", "TransformersGuest", "adapt"]

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


class Facade:
    """The three objects that events bring: their arguments, state and control, kept up to date.

    All guests of a trainer share one, as there.
    """

    def __init__(self, trainer: Any) -> None:
        package = importlib.import_module("transformers")
        callbacks = importlib.import_module(_HOME)
        self.state = callbacks.TrainerState(log_history=[])
        self.control = callbacks.TrainerControl()
        self._length: float = 0
        steps = trainer.max_steps
        validates = trainer.check_val_every_n_epoch is not None
        self.args = package.TrainingArguments(
            output_dir=trainer.default_root_dir,
            num_train_epochs=max(trainer.max_epochs, 0) or 1,
            max_steps=steps,
            gradient_accumulation_steps=trainer.accumulate_grad_batches,
            logging_steps=trainer.log_every_n_steps,
            eval_strategy="epoch" if validates else "no",
            save_strategy="no",
            report_to=[],
            use_cpu=trainer.device.type == "cpu",
        )

    def refresh(self, trainer: Any) -> None:
        """Bring the counters up to date."""
        state, progress = self.state, trainer.progress
        state.global_step = trainer.global_step
        if not self._length or progress.batches_in_epoch < trainer.num_training_batches:
            self._length = trainer.num_training_batches  # one that is ended early is as long, there
        batches = self._length
        # there, both change when a window is done
        done = progress.batches_in_epoch - progress.batches_in_window
        is_known = batches not in (0, float("inf"))
        state.epoch = trainer.current_epoch + (done / batches if is_known else 0.0)
        state.num_train_epochs = trainer.max_epochs
        state.is_world_process_zero = trainer.is_global_zero
        state.is_local_process_zero = trainer.local_rank == 0
        state.logging_steps = trainer.log_every_n_steps
        if not state.max_steps and trainer.state.fn == "fit":
            length = trainer.max_epochs * -(-batches // trainer.accumulate_grad_batches)
            has_end = trainer.max_epochs >= 0 and is_known
            state.max_steps = int(length) if has_end else trainer.max_steps
            if 0 <= trainer.max_steps < state.max_steps:
                state.max_steps = trainer.max_steps
        self.control.should_training_stop = trainer.should_stop


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
        event = EVENTS.get(hook)
        if event == "on_step_end":
            return self._after_batch()
        if event is None or not self.guest_has(event):
            return None
        if event == "on_optimizer_step":
            return self._before_count(self.guest.on_optimizer_step)
        method = getattr(self.guest, event)
        if event == "on_init_end":
            return self._first(method)
        if event == "on_log":
            return self._logged(method)
        if event in _PREFIXES:
            return self._measured(method, _PREFIXES[event])
        return self._plain(method)

    @property
    def is_stateful(self) -> bool:
        """Whether the guest exports a state."""
        return self.guest_has("state")

    def state_dict(self) -> dict[str, Any]:
        """Return what the guest exports."""
        return dict(self.guest.state())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set the attributes that the guest exported."""
        for name, value in state_dict.get("attributes", {}).items():
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
                metrics = {
                    name if name.startswith(prefix) else f"{prefix}{name}": value.item()
                    for name, value in trainer.callback_metrics.items()
                }
                self._call(method, trainer, module, metrics=metrics)

        return call

    def _logged(self, method: Callable[..., object]) -> Callable[..., object]:
        def call(trainer: Any, module: Any, metrics: Any, step: int) -> None:
            facade = _facade(trainer)
            logs = {**metrics, "epoch": facade.state.epoch}
            entry = {**logs, "step": step}
            if entry not in facade.state.log_history[-1:]:
                facade.state.log_history.append(entry)
            self._call(method, trainer, module, logs=logs)

        return call

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
        if module is not None:
            facade.refresh(trainer)
            facade.state.global_step -= not is_counted
        optimizers, schedulers = ([], []) if module is None else _optimization(trainer)
        method(
            self.args or facade.args,
            facade.state,
            facade.control,
            model=getattr(module, "lightning_guest", module),
            processing_class=None,
            optimizer=optimizers[0] if optimizers else None,
            lr_scheduler=schedulers[0].scheduler if schedulers else None,
            train_dataloader=None if module is None else trainer.train_dataloader,
            eval_dataloader=None if module is None else _only(trainer.val_dataloaders),
            **more,
        )
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


def _optimization(trainer: Any) -> tuple[list[Any], list[Any]]:
    return trainer.optimizers, trainer.lr_scheduler_configs


def _only(loaders: Any) -> Any:
    return loaders[0] if isinstance(loaders, list) and len(loaders) == 1 else loaders
