"""Adapter of callbacks of Hugging Face's Trainer; `adapt` returns the one for a callback."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    choose_adapter,
)
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.runtime.rng import isolated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer_hooks.callback import Callback

_MODULE = "transformers.trainer_callback"
"""The module of all callbacks there."""

EVENTS = {
    "on_init_end": "on_init_end",
    "on_train_start": "on_train_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_before_train_batch": "on_step_begin",
    "on_after_train_batch": "on_pre_optimizer_step",
    "on_after_optimizer_step": "on_optimizer_step",
    "on_train_batch_end": "on_step_end",
    # before the epoch's evaluation there
    "on_train_batches_end": "on_epoch_end",
    "on_validation_batch_end": "on_prediction_step",
    "on_test_batch_end": "on_prediction_step",
    "on_predict_batch_end": "on_prediction_step",
    "on_validation_end": "on_evaluate",
    # what a test is there: Trainer.predict, with metrics
    "on_test_end": "on_predict",
    "on_checkpoint_saved": "on_save",
    "on_log": "on_log",
    "on_train_end": "on_train_end",
}
"""Their event for each hook of ours. A batch inside a window ends with `on_substep_end`."""

_EVENT_ARGUMENTS = (
    "model", "processing_class", "optimizer", "lr_scheduler", "train_dataloader", "eval_dataloader",
)  # fmt: skip
"""Keyword arguments of an event beside the three objects."""

_PREFIXES = {"on_evaluate": "eval_", "on_predict": "test_"}
"""Prefix of the names in the `metrics` of an event."""

_REMEMBERED = ("best_metric", "best_global_step", "log_history")
"""Attributes of the TrainerState that cannot be computed from our progress."""

_COUNTERPARTS: dict[str, type[Callback]] = {
    f"{_MODULE}.ProgressCallback": ForeignProgressBar,
    f"{_MODULE}.EarlyStoppingCallback": EarlyStopping,
}
"""The class of ours that a callback counts as; a default of that class steps back."""

_STATE_KEY = "transformers"
"""The entry of a checkpoint for the state that all adapters of a trainer share."""


class EventObjects:
    """The three objects that every event is given, kept up to date with our Trainer.

    All adapters of a trainer share them, as callbacks do there.

    Args:
        trainer: the Trainer.

    Attributes:
        args: TrainingArguments made of the trainer's options; a fit adds its optimizer and loaders.
        state: the TrainerState: counters, best metric and log history.
        control: the TrainerControl, in which callbacks make requests.
        lasting: keyword arguments of events that last for an epoch: the model and the loaders.
        learning_rate: the learning rate of the last optimizer step, before its scheduler stepped.
        is_endless: whether the training loader of this fit has no length.
    """

    def __init__(self, trainer: Any) -> None:
        package = importlib.import_module("transformers")
        callbacks = importlib.import_module(_MODULE)
        self.state = callbacks.TrainerState(log_history=[])
        self.control = callbacks.TrainerControl()
        self.lasting: dict[str, Any] = {}
        self.learning_rate: float | None = None
        self.is_endless = False
        root = str(trainer.default_root_dir)
        if trainer.is_global_zero and "://" not in root:
            Path(root).mkdir(parents=True, exist_ok=True)  # as their Trainer does
        validates = trainer.check_val_every_n_epoch is not None
        self.args = package.TrainingArguments(
            output_dir=trainer.default_root_dir,
            **_limits_of(trainer),
            logging_steps=trainer.log_every_n_steps,
            # EarlyStoppingCallback asserts at the beginning of a training that it is not "no"
            eval_strategy="epoch" if validates else "no",
            save_strategy="no",
            report_to=[],
            # TrainingArguments set up a device when they are made, and would prefer a GPU
            use_cpu=trainer.device.type == "cpu",
        )

    def refresh(self, trainer: Any, module: Any) -> None:
        """Update the counters, and at an epoch's start the values that last for it."""
        state, progress = self.state, trainer.progress
        # these are not looked up for each batch of an epoch
        if progress.batches_in_epoch <= 1 or not self.lasting or not trainer.training:
            self._refresh_run(trainer, module)
        state.global_step = progress.steps_completed
        batches = trainer.num_training_batches
        epoch, done = trainer.current_epoch, progress.batches_in_epoch
        # an epoch that was broken off is shown as the part that was trained
        if progress.stage is EpochStage.BETWEEN and epoch:
            epoch, done = epoch - 1, progress.batches_in_last_epoch
        # a loader without a length has one at its last batch, and none again in the next epoch
        self.is_endless = self.is_endless or batches == float("inf")
        if self.is_endless and trainer.max_steps > 0:
            # their Trainer takes all steps for the length of such an epoch
            batches = trainer.max_steps * trainer.accumulate_grad_batches
        if batches in (0, float("inf")):
            state.epoch = float(trainer.current_epoch)
        else:
            # there, step and epoch change when a window is done, not with every batch
            open_batches = done % trainer.accumulate_grad_batches if done < batches else 0
            state.epoch = epoch + (done - open_batches) / batches
        self.control.should_training_stop = trainer.should_stop

    def show_fit(self, trainer: Any) -> None:
        """Show a fit's optimizer, loaders and limits in the arguments, as a fit begins."""
        args, optimizers, loaders = self.args, trainer.optimizers, trainer.val_dataloaders
        self.is_endless = False
        if optimizers:
            group = optimizers[0].param_groups[0]
            args.learning_rate = float(group.get("initial_lr", group["lr"]))
        for name, limit in _limits_of(trainer).items():
            setattr(args, name, limit)
        first = loaders[0] if isinstance(loaders, list) and loaders else loaders
        for name, loader in (
            ("per_device_train_batch_size", trainer.train_dataloader),
            ("per_device_eval_batch_size", first),
        ):
            size = getattr(loader, "batch_size", None)
            if isinstance(size, int):  # a loader with a batch sampler of one's own has none
                setattr(args, name, size)

    def _refresh_run(self, trainer: Any, module: Any) -> None:
        state = self.state
        loaders = trainer.val_dataloaders
        is_one = isinstance(loaders, list) and len(loaders) == 1
        self.lasting = {
            "model": getattr(module, "foreign_module", module),
            "processing_class": None,
            "train_dataloader": trainer.train_dataloader,
            # ProgressCallback takes the length of its bar from it, which of a list is another one
            "eval_dataloader": loaders[0] if is_one else loaders,
        }
        state.num_train_epochs = trainer.max_epochs
        state.is_world_process_zero = trainer.is_global_zero
        state.is_local_process_zero = trainer.local_rank == 0
        state.logging_steps = trainer.log_every_n_steps
        # ProgressCallback makes its bar of so many steps when the training begins
        if not state.max_steps and trainer.state.fn == "fit":
            batches = trainer.num_training_batches
            length = trainer.max_epochs * -(-batches // trainer.accumulate_grad_batches)
            has_end = trainer.max_epochs >= 0 and batches not in (0, float("inf"))
            state.max_steps = int(length) if has_end else trainer.max_steps
            if 0 <= trainer.max_steps < state.max_steps:
                state.max_steps = trainer.max_steps

    def update_best(self, args: Any, metrics: Mapping[str, float]) -> None:
        """Keep the best value of the metric that the arguments name, as their Trainer does.

        Args:
            args: the user's TrainingArguments; None for those made of the trainer's options.
            metrics: the metrics of a validation, under their names.
        """
        # in the arguments the prefix may be left out
        watched = (args or self.args).metric_for_best_model
        if watched is None:
            return
        value = metrics.get(watched if watched.startswith("eval_") else f"eval_{watched}")
        best, is_greater = self.state.best_metric, (args or self.args).greater_is_better
        if value is not None and (best is None or (value > best if is_greater else value < best)):
            self.state.best_metric = value
            self.state.best_global_step = self.state.global_step

    def append_log(self, entry: dict[str, Any]) -> None:
        """Append logged values to the history, once however many adapters report them."""
        if entry not in self.state.log_history[-1:]:
            self.state.log_history.append(entry)

    def state_dict(self) -> dict[str, Any]:
        """Return the part of the state that cannot be computed from our progress."""
        state = {name: getattr(self.state, name) for name in _REMEMBERED}
        return {**state, "learning_rate": self.learning_rate}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore it."""
        for name in _REMEMBERED:
            setattr(self.state, name, state_dict[name])
        # the end of an epoch logs before the next step
        self.learning_rate = state_dict["learning_rate"]


_EVENT_OBJECTS: WeakKeyDictionary[Any, EventObjects] = WeakKeyDictionary()


def _event_objects(trainer: Any) -> EventObjects:
    """Return the objects of a trainer, which its adapters share."""
    objects = _EVENT_OBJECTS.get(trainer)
    if objects is None:
        # the modules that transformers imports here may draw random numbers, and a resumed run
        # makes these objects at another moment
        with isolated():
            objects = _EVENT_OBJECTS[trainer] = EventObjects(trainer)
    return objects


def _current_metrics(trainer: Any, prefix: str) -> dict[str, float]:
    """Return the current metrics, with a prefix as there."""
    return {
        name if name.startswith(prefix) else f"{prefix}{name}": value.item()
        for name, value in trainer.callback_metrics.items()
    }


def _save(trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
    """Save the state that all adapters share."""
    checkpoint[_STATE_KEY] = _event_objects(trainer).state_dict()


def _limits_of(trainer: Any) -> dict[str, int]:
    """Return the options of the length of a training and of its windows, by transformers' names."""
    return {
        # -1, for no end, is no number of epochs there
        "num_train_epochs": max(trainer.max_epochs, 0) or 1,
        "max_steps": trainer.max_steps,
        "gradient_accumulation_steps": trainer.accumulate_grad_batches,
    }


def _load(trainer: Any, _module: Any, checkpoint: dict[str, Any]) -> None:
    """Restore the shared state, from a checkpoint that holds one."""
    if _STATE_KEY in checkpoint and trainer.state.fn == "fit":
        _event_objects(trainer).load_state_dict(checkpoint[_STATE_KEY])


def _show_fit(trainer: Any, _module: Any) -> None:
    """Show a fit in the arguments that all adapters share."""
    _event_objects(trainer).show_fit(trainer)


def _note_learning_rate(trainer: Any, _module: Any, optimizer: Any) -> None:
    """Keep the learning rate of a step, which their Trainer reads before its scheduler steps."""
    _event_objects(trainer).learning_rate = float(optimizer.param_groups[0]["lr"])


_SHARED_HOOKS: dict[str, Callable[..., object]] = {
    "on_save_checkpoint": _save,
    "on_load_checkpoint": _load,
    "on_fit_start": _show_fit,
}
"""Hooks at which every adapter does the same: they keep the shared objects up to date."""


class TransformersAdapter(HostedCallback):
    """Adapter of a callback of Hugging Face's Trainer.

    Requests that it makes in the control object are served: `should_training_stop` stops,
    `should_epoch_stop` ends the epoch, `should_evaluate` and `should_save` ask for a validation and
    a checkpoint, and `should_log` passes the current metrics to the loggers.

    Attributes:
        args: the user's TrainingArguments; None for those made of the trainer's options.
    """

    framework: ClassVar[str] = "transformers"
    bases: ClassVar[frozenset[str]] = frozenset({f"{_MODULE}.TrainerCallback"})

    args: Any = None

    def translated(self, hook: str) -> Callable[..., object] | None:
        """Return the function to call at `hook`, or None if the callback has no event for it."""
        if hook in _SHARED_HOOKS:
            return _SHARED_HOOKS[hook]
        if hook == "on_validation_run_end":
            return self._update_best
        event = EVENTS.get(hook)
        if event == "on_optimizer_step":
            return self._after_step()
        if event == "on_step_end":
            return self._after_batch()
        if event == "on_log":
            return self._log
        if event is None or not self.guest_has(event):
            return None
        method = getattr(self.guest, event)
        if event == "on_init_end":
            return lambda trainer: self._call(method, trainer, None)
        if event in _PREFIXES:
            return partial(self._call_with_metrics, method, _PREFIXES[event])
        return lambda trainer, module, *_: self._call(method, trainer, module)

    @property
    def is_stateful(self) -> bool:
        """Whether the callback exports a state."""
        return self.guest_has("state")

    def guest_state(self) -> dict[str, Any]:
        """Return the exported state."""
        return dict(self.guest.state())

    def load_guest_state(self, state: Any) -> None:
        """Set the exported attributes."""
        # not the "args" of the state: the object is made already, as the user wants it now
        for name, value in state.get("attributes", {}).items():
            setattr(self.guest, name, value)

    def _call_with_metrics(
        self, method: Callable[..., object], prefix: str, trainer: Any, module: Any
    ) -> None:
        if not trainer.sanity_checking:
            self._call(method, trainer, module, metrics=_current_metrics(trainer, prefix))

    def _update_best(self, trainer: Any, module: Any) -> None:
        """Update the best value at a validation's end, after the event of all callbacks."""
        if not trainer.sanity_checking:
            objects = _event_objects(trainer)
            objects.refresh(trainer, module)
            objects.update_best(self.args, _current_metrics(trainer, "eval_"))

    def _log(self, trainer: Any, module: Any, metrics: Any, _step: int) -> None:
        """Append logged values to the history, also if the callback has no `on_log`."""
        objects = _event_objects(trainer)
        # the values of a resumed run may be logged before its first event
        objects.refresh(trainer, module)
        logs = {**metrics, "epoch": objects.state.epoch}
        # there, only what a training step logs has it
        if trainer.training and objects.learning_rate is not None:
            logs.setdefault("learning_rate", objects.learning_rate)
        objects.append_log({**logs, "step": objects.state.global_step})
        # the callback is handed the names without the step, as there
        if self.guest_has("on_log"):
            self._call(self.guest.on_log, trainer, module, logs=logs)

    def _after_step(self) -> Callable[..., object]:
        """Return the function that notes the learning rate, and calls the event if it is there."""
        if not self.guest_has("on_optimizer_step"):
            return _note_learning_rate
        method = self.guest.on_optimizer_step

        def call(trainer: Any, module: Any, optimizer: Any) -> None:
            _note_learning_rate(trainer, module, optimizer)
            # fired there before the step is counted
            self._call(method, trainer, module, is_counted=False)

        return call

    def _after_batch(self) -> Callable[..., object] | None:
        step = self.guest.on_step_end if self.guest_has("on_step_end") else None
        substep = self.guest.on_substep_end if self.guest_has("on_substep_end") else None
        if step is None and substep is None:
            return None

        def call(trainer: Any, module: Any, *_: Any) -> None:
            # there a batch inside a window ends with another event than the window's last
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
        objects = _event_objects(trainer)
        if module is None:  # at on_init_end, before any run
            more |= dict.fromkeys(_EVENT_ARGUMENTS)
        else:
            objects.refresh(trainer, module)
            if not is_counted:
                objects.state.global_step -= 1
            optimizers, schedulers = trainer.optimizers, trainer.lr_scheduler_configs
            more["optimizer"] = optimizers[0] if optimizers else None
            more["lr_scheduler"] = schedulers[0].scheduler if schedulers else None
            more |= objects.lasting
        method(self.args or objects.args, objects.state, objects.control, **more)
        if module is not None:
            self._serve_requests(objects.control, trainer)

    def _serve_requests(self, control: Any, trainer: Any) -> None:
        """Serve the requests that the callback made in the control object, and reset them."""
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
            # first, since log_metrics fires on_log, whose handlers come back to this method
            control.should_log = False
            trainer.log_metrics({k: v.item() for k, v in trainer.callback_metrics.items()})
        # a request stands until it is reset: there the Trainer does so before each step
        control.should_evaluate = control.should_save = control.should_log = False
        control.should_epoch_stop = False


def adapt(callback: Any, args: Any = None) -> Callback:
    """Return the adapter of a callback of transformers.

    Args:
        callback: the callback.
        args: the TrainingArguments that it is given; made of the trainer's options unless passed.
    """
    adapter = choose_adapter(callback, TransformersAdapter, {}, _COUNTERPARTS)
    adapter.args = args
    return adapter
