"""Adapter of callbacks of Hugging Face's Trainer; `adapt` returns the one for a callback."""

from __future__ import annotations

import importlib
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from torch.nn.utils import get_total_norm

from trainer_hooks.adapters.callback_adapter import (
    ForeignProgressBar,
    HostedCallback,
    choose_adapter,
)
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.callbacks.base import is_logged, will_be_logged
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.batch_counts import count_samples
from trainer_hooks.runtime.rng import isolated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor, nn

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

_WITH_GRADIENTS = ("on_pre_optimizer_step", "on_optimizer_step", "on_substep_end")
"""Events at which the parameters have gradients; their Trainer clears them right after a step."""

_REMEMBERED = ("best_metric", "best_global_step", "log_history")
"""Attributes of the TrainerState that cannot be computed from our progress."""

_COUNTERPARTS: dict[str, type[Callback]] = {
    f"{_MODULE}.ProgressCallback": ForeignProgressBar,
    f"{_MODULE}.EarlyStoppingCallback": EarlyStopping,
}
"""The class of ours that a callback counts as; a default of that class steps back."""

_TIMES = ("_runtime", "_per_second")
"""The ends of names of logged times and rates."""

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
        grad_norm: the norm of the gradients before clipping, of the last step that is logged.
        parameters: the module's parameters, looked up once an epoch.
        logged_step: the last step whose values were logged; as there, a step is logged once.
        is_endless: whether the training loader of this fit has no length.
    """

    def __init__(self, trainer: Any) -> None:
        package = importlib.import_module("transformers")
        callbacks = importlib.import_module(_MODULE)
        self.state = callbacks.TrainerState(log_history=[])
        self.control = callbacks.TrainerControl()
        self.lasting: dict[str, Any] = {}
        self.learning_rate: float | None = None
        self.grad_norm: Tensor | float | None = None
        self.parameters: list[nn.Parameter] = []
        self.logged_step = -1
        self.is_endless = False
        self._evaluation = _Meter()
        self._training = _Meter()
        self._steps_before = self._samples_before = 0
        self._loss: Tensor | float = 0.0
        self._summary: dict[str, Any] | None = None
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
        # the walk through the modules costs more than all else of a batch
        self.parameters = list(module.parameters())
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

    def find_best_folder(self, args: Any) -> None:
        """Show the folder of the best step, if a callback has written `checkpoint-STEP`."""
        folder = Path(args.output_dir, f"checkpoint-{self.state.best_global_step}")
        if self.state.best_global_step and folder.is_dir():
            self.state.best_model_checkpoint = str(folder)

    def note_gradients(self, trainer: Any, module: nn.Module) -> None:
        """Keep the norm of a step's gradients before they are clipped, if the step is logged."""
        # the end of an epoch logs as well
        if will_be_logged(trainer) or trainer.is_last_batch:
            gradients = [p.grad for p in module.parameters() if p.grad is not None]
            # torch has no norm of a sparse tensor, as of an embedding's gradient
            entries = [g.coalesce().values() if g.is_sparse else g for g in gradients]
            norm: Any = get_total_norm(entries) if entries else None
            # of shards the sum is a collective: in this hook, which all ranks come to
            self.grad_norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm

    def begin_training(self, trainer: Any) -> None:
        """Start to count a training, of a resumed one the part from here on, as there."""
        self._training.start()
        self._steps_before = self.logged_step = trainer.progress.steps_completed
        self._samples_before = trainer.progress.samples_completed
        self._loss, self._summary = 0.0, None

    def count_training_batch(self, trainer: Any, outputs: Any) -> None:
        """Add the loss of a training batch, once however many adapters report it."""
        if not outputs or not self._training.is_new(trainer.progress.batches_completed):
            return
        # the Trainer of compat.lightning has divided it for all hooks
        is_divided = type(trainer)._divides_outputs  # noqa: SLF001 - of ours
        share = 1 if is_divided else trainer.accumulate_grad_batches
        self._loss = self._loss + outputs["loss"].detach() / share

    def summarize_training(self, trainer: Any) -> dict[str, Any]:
        """Return the summary that a training logs at its end; append it to the history, once."""
        if self._summary is None:
            progress = trainer.progress
            steps = progress.steps_completed - self._steps_before
            self._summary = {
                **self._training.rates(
                    "train", progress.samples_completed - self._samples_before, steps
                ),
                "total_flos": self.state.total_flos,
                "train_loss": float(self._loss) / max(steps, 0.001),
                "epoch": self.state.epoch,
            }
            self.append_log({**self._summary, "step": self.state.global_step})
        return dict(self._summary)

    def begin_evaluation(self) -> None:
        """Start to time an evaluation."""
        self._evaluation.start()

    def count_evaluation_batch(self, batch: Any, batch_idx: int, dataloader_idx: int) -> None:
        """Count a batch of an evaluation, once however many adapters report it."""
        if self._evaluation.is_new((dataloader_idx, batch_idx)):
            self._evaluation.samples += count_samples(batch)
            self._evaluation.steps += 1

    def evaluation_rates(self, split: str) -> dict[str, float]:
        """Return how long an evaluation took, and its samples and batches in a second.

        Callbacks that are told of the same evaluation get the same numbers.
        """
        meter = self._evaluation
        return meter.rates(split, meter.samples, meter.steps)

    def append_log(self, entry: dict[str, Any]) -> None:
        """Append logged values to the history, once however many adapters report them."""
        if entry not in self.state.log_history[-1:]:
            self.state.log_history.append(entry)

    def state_dict(self) -> dict[str, Any]:
        """Return the part of the state that cannot be computed from our progress."""
        state = {name: getattr(self.state, name) for name in _REMEMBERED}
        # no times, which differ from run to run: a resumed run has the uncut one's states
        state["log_history"] = [
            {name: value for name, value in row.items() if not name.endswith(_TIMES)}
            for row in state["log_history"]
            if "train_runtime" not in row
        ]
        norm = None if self.grad_norm is None else float(self.grad_norm)
        return {**state, "learning_rate": self.learning_rate, "grad_norm": norm}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore it."""
        for name in _REMEMBERED:
            setattr(self.state, name, state_dict[name])
        # the end of an epoch logs before the next step
        self.learning_rate = state_dict["learning_rate"]
        self.grad_norm = state_dict.get("grad_norm")


class _Meter:
    """The duration of a training or an evaluation, with its counts.

    Attributes:
        samples: the number of samples.
        steps: the number of batches.
    """

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the time, and count from 0."""
        self.samples = self.steps = 0
        self._last: Any = None
        self._seconds: float | None = None
        self._started_at = time.perf_counter()

    def is_new(self, key: Any) -> bool:
        """Return whether a batch is another one than the last, which several adapters report."""
        is_new: bool = key != self._last
        self._last = key
        return is_new

    def rates(self, split: str, samples: int, steps: int) -> dict[str, float]:
        """Return the seconds until the first call, and the counts in a second, by their names.

        Args:
            split: the word that the names begin with.
            samples: the number of samples.
            steps: the number of steps.
        """
        if self._seconds is None:
            self._seconds = time.perf_counter() - self._started_at
        speeds = {f"{split}_runtime": round(self._seconds, 4)}
        if self._seconds:
            speeds[f"{split}_samples_per_second"] = round(samples / self._seconds, 3)
            speeds[f"{split}_steps_per_second"] = round(steps / self._seconds, 3)
        return speeds


def _take_gradients(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, Tensor]]:
    """Clear gradients, which stay here until the next window begins, and return them."""
    gradients = []
    for parameter in parameters:
        # read once: torch makes a new object for each read
        if (gradient := parameter.grad) is not None:
            gradients.append((parameter, gradient))
            parameter.grad = None
    return gradients


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


def _note_gradients(trainer: Any, module: Any, _optimizer: Any) -> None:
    """Keep the norm of the gradients, which is logged with the step."""
    _event_objects(trainer).note_gradients(trainer, module)


def _begin_evaluation(trainer: Any, _module: Any) -> None:
    """Start to time an evaluation."""
    _event_objects(trainer).begin_evaluation()


_SHARED_HOOKS: dict[str, Callable[..., object]] = {
    "on_save_checkpoint": _save,
    "on_load_checkpoint": _load,
    "on_fit_start": _show_fit,
    "on_before_optimizer_step": _note_gradients,
    "on_validation_start": _begin_evaluation,
    "on_test_start": _begin_evaluation,
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
        # these do something else, too, that callbacks without such a method need
        methods: dict[str, Callable[..., object]] = {
            "on_train_begin": self._begin_training,
            "on_optimizer_step": self._after_step,
            "on_log": self._log,
            "on_train_end": self._end_training,
        }
        if event in methods:
            return methods[event]
        if event == "on_step_end":
            # looked up here, once: the walk through the base classes would cost each batch
            ends = frozenset(filter(self.guest_has, ("on_step_end", "on_substep_end")))
            return partial(self._after_batch, ends)
        if hook in ("on_validation_batch_end", "on_test_batch_end"):
            return self._after_evaluation_batch
        if event is None or not self.guest_has(event):
            return None
        if event == "on_init_end":
            return lambda trainer: self._call(event, trainer, None)
        if event in _PREFIXES:
            return partial(self._call_with_metrics, event)
        return lambda trainer, module, *_: self._call(event, trainer, module)

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

    def _call_with_metrics(self, event: str, trainer: Any, module: Any) -> None:
        if not trainer.sanity_checking:
            objects, prefix = _event_objects(trainer), _PREFIXES[event]
            objects.refresh(trainer, module)
            metrics = {
                **_current_metrics(trainer, prefix),
                **objects.evaluation_rates(prefix.removesuffix("_")),
                "epoch": objects.state.epoch,
            }
            self._call(event, trainer, module, metrics=metrics)

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
            if objects.grad_norm is not None:
                logs.setdefault("grad_norm", float(objects.grad_norm))
        elif trainer.validating:
            logs |= objects.evaluation_rates("eval")
        objects.append_log({**logs, "step": objects.state.global_step})
        if trainer.training:
            objects.logged_step = objects.state.global_step
        self._call_if_there("on_log", trainer, module, logs=logs)

    def _begin_training(self, trainer: Any, module: Any) -> None:
        _event_objects(trainer).begin_training(trainer)
        self._call_if_there("on_train_begin", trainer, module)

    def _end_training(self, trainer: Any, module: Any) -> None:
        """Log the summary of the training, and call the event of its end."""
        objects = _event_objects(trainer)
        objects.refresh(trainer, module)
        logs = objects.summarize_training(trainer)
        objects.find_best_folder(self.args or objects.args)
        self._call_if_there("on_log", trainer, module, logs=logs)
        self._call_if_there("on_train_end", trainer, module)

    def _after_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        """Keep the learning rate, and call the event, there fired before the step is counted."""
        # their Trainer reads it before its scheduler steps
        _event_objects(trainer).learning_rate = float(optimizer.param_groups[0]["lr"])
        self._call_if_there("on_optimizer_step", trainer, module, is_counted=False)

    def _after_batch(
        self, ends: frozenset[str], trainer: Any, module: Any, outputs: Any, *_: Any
    ) -> None:
        """Count a batch; inside a window it ends with another event than the window's last."""
        _event_objects(trainer).count_training_batch(trainer, outputs)
        event = "on_substep_end" if trainer.progress.batches_in_window else "on_step_end"
        if event in ends:
            self._call(event, trainer, module)

    def _after_evaluation_batch(
        self, trainer: Any, module: Any, _: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if trainer.sanity_checking:  # there is none there
            return
        _event_objects(trainer).count_evaluation_batch(batch, batch_idx, dataloader_idx)
        self._call_if_there("on_prediction_step", trainer, module)

    def _call_if_there(self, event: str, trainer: Any, module: Any, **more: Any) -> None:
        if self.guest_has(event):
            self._call(event, trainer, module, **more)

    def _call(
        self,
        event: str,
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
        has_gradients = module is None or event in _WITH_GRADIENTS
        gradients = () if has_gradients else _take_gradients(objects.parameters)
        method = getattr(self.guest, event)
        try:
            method(self.args or objects.args, objects.state, objects.control, **more)
        finally:
            for parameter, gradient in gradients:
                if parameter.grad is None:
                    parameter.grad = gradient
        if event == "on_save":
            objects.find_best_folder(self.args or objects.args)
        if module is not None:
            self._serve_requests(event, objects, trainer)

    def _serve_requests(self, event: str, objects: EventObjects, trainer: Any) -> None:
        """Serve the requests that the callback made in the control object, and reset them."""
        control = objects.control
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
            is_due = event == "on_step_end" and is_logged(trainer)
            if not is_due and objects.logged_step < objects.state.global_step:
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
