"""to_transformers: one of our callbacks in Hugging Face's Trainer."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.adapters.export.hook_driver import (
    HookDriver,
    call_after_backward,
    find_calling_trainer,
    largest_limit,
)
from trainer_hooks.adapters.export.host_trainer import (
    LOADS_OUR_FILES,
    LOG_EVERY_N_STEPS,
    BatchScheduledHostTrainer,
    HostLogger,
    HostModule,
    number_of_batches,
    unwrapped,
)
from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.callbacks import RunManifest
from trainer_hooks.loggers import CSVLogger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from trainer_hooks.callback import Callback

_NO_RESTART = "transformers' Trainer cannot go back to the beginning of a training from inside it."

TRANSFORMERS_EVENTS = {
    "on_init_end": "on_init_end",
    "setup": "on_train_begin",  # before `create_optimizer`, if it was passed to the Trainer
    "on_configure_model": "on_train_begin",
    "on_after_configure_model": "on_train_begin",
    "on_before_load": "on_train_begin",
    "on_before_restore": "on_train_begin",
    "on_load_checkpoint": "on_train_begin",
    "on_after_load": "on_train_begin",
    "on_fit_start": "on_train_begin",
    "on_train_start": "on_train_begin",
    "on_epoch_start": "on_epoch_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_before_dataloader": "on_epoch_begin",  # and after each window
    "on_after_dataloader": "on_step_begin",
    "on_before_train_batch": "on_step_begin",
    "on_train_batch_start": "",  # the forward
    "on_before_forward": "",
    "on_after_forward": "",
    "on_before_backward": "the backward",
    "on_after_backward": "the backward",
    "on_before_optimizer_step": "the backward",  # the end of a window's last one
    "on_after_train_batch": "on_pre_optimizer_step",
    "on_after_optimizer_step": "on_optimizer_step",
    "on_train_batch_end": "on_step_end",  # or on_substep_end
    "on_batch_checkpoint": "on_step_end",
    "on_train_batches_end": "on_epoch_end",
    "on_validation_run_start": "",
    "on_validation_start": "",  # the first forward of an evaluation
    "on_validation_epoch_start": "",
    "on_validation_batch_start": "",
    "on_validation_before_forward": "",
    "on_validation_after_forward": "",
    "on_validation_batch_end": "on_prediction_step",
    "on_validation_epoch_end": "on_evaluate",
    "on_validation_end": "on_evaluate",
    "on_validation_run_end": "on_evaluate",
    "on_train_epoch_end": "on_epoch_end",  # or on_evaluate, if an evaluation follows
    "on_epoch_end": "on_epoch_end",
    "on_epoch_checkpoint": "on_epoch_end",
    "on_test_epoch_end": "on_predict",
    "on_test_end": "on_predict",
    "on_checkpoint_saved": "on_save",
    "on_log": "on_log",
    "on_train_end": "on_train_end",
    "on_fit_end": "on_train_end",
    "on_exception": "an error of `train`",
    "teardown": "on_train_end",
}
"""Their event at which each hook of ours is called. Events bring no batch: hooks are given the
arguments of the model's forward, before which `on_train_batch_start` is called."""

_EVENTS = (
    *dict.fromkeys(event for event in TRANSFORMERS_EVENTS.values() if event.startswith("on_")),
    "on_substep_end",
)


class TransformersHostTrainer(BatchScheduledHostTrainer):
    """The arguments of an event there, and the Trainer, under the names of ours.

    Attributes:
        proxy_target: the Trainer.
        args: the TrainingArguments.
        host_state: the TrainerState.
        control: the TrainerControl, in which requests are made.
        arguments: the event's other arguments, such as `model`.
    """

    framework = "transformers"

    lacks: ClassVar[Mapping[str, str]] = {
        "trial_run": _NO_RESTART,
        "reload_dataloaders": _NO_RESTART,
        "renew_learning_rates": _NO_RESTART,
        "validate_again": "Call `Trainer.evaluate` with another prefix.",
        "accumulate_grad_batches =": "transformers fixes gradient_accumulation_steps at the start.",
        "note_batch_indices": "transformers has no hook at a batch of a prediction.",
        "save_in_background": "transformers saves in the foreground: pass async_save=False.",
        "on_before_zero_grad": "transformers has no event before gradients are cleared.",
    }

    refuses: ClassVar[Mapping[str, str]] = {
        "SaveBestModelCallback": LOADS_OUR_FILES,
        "MLPerfCallback": "It counts the samples of the loaders before the first evaluation.",
    }

    args: Any = None
    host_state: Any = None
    control: Any = None

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.arguments: dict[str, Any] = {}
        self.pending_logs: dict[str, float] = {}

    def take(self, args: Any, state: Any, control: Any, arguments: dict[str, Any]) -> None:
        """Take over the state and arguments of an event."""
        self.args, self.host_state, self.control = args, state, control
        self.arguments = arguments

    @property
    def optimizers(self) -> list[Any]:
        """The optimizer in a list, without accelerate's wrapper."""
        optimizer = getattr(self.proxy_target, "optimizer", None)
        if optimizer is None:
            optimizer = self.arguments.get("optimizer")
        return [] if optimizer is None else [unwrapped(optimizer)]

    @property
    def host_scheduler(self) -> Any:
        """The scheduler."""
        return getattr(self.proxy_target, "lr_scheduler", self.arguments.get("lr_scheduler"))

    @host_scheduler.setter
    def host_scheduler(self, scheduler: Any) -> None:
        self.proxy_target.lr_scheduler = scheduler
        self.proxy_target.callback_handler.lr_scheduler = scheduler

    train_dataloader = property(lambda self: self.arguments.get("train_dataloader"))
    """The loader of training batches."""

    @property
    def val_dataloaders(self) -> list[Any]:
        """The loader of the evaluation, once there was one."""
        loader = self.arguments.get("eval_dataloader")
        return [] if loader is None else [loader]

    @property
    def num_val_batches(self) -> list[int | float]:
        """The number of batches of an evaluation; infinity before the first, 0 without any."""
        if self._eval_strategy == "no":
            return [0]
        return [number_of_batches(loader) for loader in self.val_dataloaders] or [float("inf")]

    @property
    def _eval_strategy(self) -> str:
        strategy = self.args.eval_strategy
        return str(getattr(strategy, "value", strategy))

    @property
    def check_val_every_n_epoch(self) -> int | None:  # type: ignore[override]
        """Epochs between two evaluations, or None if they are due by steps."""
        return None if self._eval_strategy == "steps" else 1

    @property
    def val_check_interval(self) -> int | float:  # type: ignore[override]
        """Steps between two evaluations; 1.0 for each epoch's end."""
        return int(self.host_state.eval_steps or 1) if self._eval_strategy == "steps" else 1.0

    max_epochs = property(
        lambda self: int(self.host_state.num_train_epochs or self.args.num_train_epochs)
    )
    """The number of epochs to train."""
    max_steps = property(
        lambda self: largest_limit(self.host_state.max_steps or self.args.max_steps)
    )
    """The number of steps to train."""
    default_root_dir = property(lambda self: self.args.output_dir)
    """The folder that files go to."""
    accumulate_grad_batches = property(lambda self: self.args.gradient_accumulation_steps)
    """Batches of an accumulation window."""
    device = property(lambda self: torch.device(self.args.device))
    """The device of the model."""
    world_size = property(lambda self: int(self.args.world_size))
    """The number of processes."""
    global_rank = property(lambda self: int(self.args.process_index))
    """The rank of this process."""

    @property
    def log_every_n_steps(self) -> int:  # type: ignore[override]
        """The number of steps between two logged ones."""
        strategy = self.args.logging_strategy
        steps = self.host_state.logging_steps or self.args.logging_steps
        is_by_steps = str(getattr(strategy, "value", strategy)) == "steps"
        return max(1, int(steps)) if is_by_steps else LOG_EVERY_N_STEPS

    @property
    def precision(self) -> str:  # type: ignore[override]
        """The precision of the forward, by our name."""
        if self.args.bf16:
            return "bf16-mixed"
        return "16-mixed" if self.args.fp16 else "32-true"

    @property
    def should_stop(self) -> bool:
        """Whether the training ends after the current step."""
        return self.control is not None and bool(self.control.should_training_stop)

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        if self.control is not None:
            self.control.should_training_stop = value

    @property
    def has_to_validate(self) -> bool:
        """Whether an evaluation follows the current event."""
        return bool(self.control.should_evaluate)

    @property
    def host_callbacks(self) -> list[Any]:
        """The Trainer's callbacks."""
        handler = getattr(self.proxy_target, "callback_handler", None)
        return list(getattr(handler, "callbacks", ()))

    @property
    def loggers(self) -> list[Any]:
        """The Trainer's log: values come with its next one."""
        return [HostLogger(self._log, self.args.output_dir, self.args.run_name)]

    def _log(self, metrics: Mapping[str, float], _: int | None) -> None:
        self.pending_logs.update(
            {name: float(value) for name, value in metrics.items() if name != "epoch"}
        )

    def end_epoch(self) -> None:
        """End the epoch after the current batch."""
        self.control.should_epoch_stop = True

    def request_validation(self) -> None:
        """Request an evaluation after the current step."""
        self.control.should_evaluate = True

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current step."""
        self.control.should_save = True

    def save_checkpoint(self, filepath: Any, weights_only: bool = False) -> None:
        """Save a folder from which `train(resume_from_checkpoint=...)` resumes."""
        theirs, folder = self.proxy_target, str(filepath)
        theirs.save_model(folder, _internal_call=True)
        if not weights_only:
            # as its own `_save_checkpoint` does, which takes no path
            theirs._save_optimizer_and_scheduler(folder)  # noqa: SLF001
            theirs._save_scaler(folder)  # noqa: SLF001
            theirs._save_rng_state(folder)  # noqa: SLF001
            if self.args.should_save:
                for item in theirs.callback_handler.callbacks:
                    if hasattr(item, "trainer_hooks_driver"):
                        self.host_state.stateful_callbacks[type(item).__name__] = item.state()
                self.host_state.save_to_json(str(Path(folder, "trainer_state.json")))
        self.on_checkpoint_saved(folder)

    def _replay_batch(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        inputs = self.proxy_target._prepare_inputs(batch)  # noqa: SLF001 - as their training_step
        with self.proxy_target.compute_loss_context_manager():
            self.proxy_target.model_wrapped(**inputs)


class TransformersDriver(HookDriver):
    """A method for each event of transformers, which calls hooks of ours."""

    view = TransformersHostTrainer
    events = TRANSFORMERS_EVENTS
    trainer: TransformersHostTrainer

    def __init__(self, callback: Callback, function: str) -> None:
        super().__init__(callback, function)
        self.state_name = f"trainer_hooks:{callback.state_key}"
        self._model: Any = None
        self._batch_idx = self._eval_batch_idx = 0
        self._batch: Any = None
        self._outputs: Any = None
        self._is_prepared = self._is_begun = self._is_open = self._has_to_end_epoch = False
        self._is_evaluating = self._is_eval_open = False
        self._table: CSVLogger | None = None

    # --- the run ---

    def on_init_end(self, arguments: dict[str, Any]) -> None:
        """Call `on_init_end`, and take part in the Trainer's making of optimizers."""
        trainer = self.trainer
        trainer.proxy_target = theirs = find_calling_trainer("transformers")
        rest = None if theirs is None else self.without_twin(theirs.callback_handler.callbacks)
        if rest is not None:
            theirs.callback_handler.callbacks = rest
            return
        if "on_init_end" in self.calls:
            self.calls["on_init_end"](trainer)
        if theirs is None:
            return
        self._model = arguments["model"]
        create_optimizer, create_scheduler = theirs.create_optimizer, theirs.create_scheduler
        train = theirs.train

        def prepare_first(*args: Any, **kwargs: Any) -> Any:
            # a callback may freeze parameters, which the optimizer is not made of then
            self._prepare(theirs)
            return create_optimizer(*args, **kwargs)

        def restore_then(*args: Any, **kwargs: Any) -> Any:
            scheduler = create_scheduler(*args, **kwargs)
            # before their Trainer loads the states of both
            self._restore()
            self.load_into_optimizers()
            return scheduler

        def train_and_tell(*args: Any, **kwargs: Any) -> Any:
            try:
                return train(*args, **kwargs)
            except BaseException as error:
                self.remove_handles()
                self.fail(error)
                raise

        theirs.create_optimizer, theirs.create_scheduler = prepare_first, restore_then
        theirs.train = train_and_tell

    def _prepare(self, theirs: Any) -> None:
        """Call the hooks of a run's start that come before the optimizers."""
        handler = theirs.callback_handler
        arguments = {"model": theirs.model, "train_dataloader": handler.train_dataloader}
        self.trainer.take(theirs.args, theirs.state, theirs.control, arguments)
        self._begin_run(theirs.model)

    def _begin_run(self, model: nn.Module) -> None:
        trainer, self._model = self.trainer, model
        self._is_prepared, self._is_begun, self._has_to_end_epoch = True, False, False
        self._is_open = self._is_evaluating = False
        stop = trainer.control.should_training_stop
        is_new = trainer.host_state.global_step == 0
        self.begin_run("fit", HostModule(model, self._record), is_new=is_new)
        trainer.control.should_training_stop = stop or trainer.should_stop

    def _restore(self) -> None:
        """Restore the callback from `trainer_state.json`, which the Trainer has read by now."""
        trainer = self.trainer
        state = trainer.host_state
        if self.trainer.proxy_target is not None:
            trainer.host_state = state = trainer.proxy_target.state
        if state.global_step == 0:
            return
        exported = state.stateful_callbacks.get(self.state_name)
        exported = exported[-1] if isinstance(exported, list) else exported
        packed = None if exported is None else exported.get("attributes", {}).get("packed_state")
        self.restore(
            None if packed is None else _decoded(packed), {"state_dict": self._model.state_dict()}
        )
        progress = trainer.progress
        progress.steps_completed = progress.batches_stepped = int(state.global_step)

    def on_train_begin(self, arguments: dict[str, Any]) -> None:
        """Call the hooks of a fit's start, and watch the model's forward for its batches."""
        trainer, model = self.trainer, arguments["model"]
        if not self._is_prepared:  # added to the Trainer after it was made
            trainer.proxy_target = find_calling_trainer("transformers")
            self._begin_run(model)
            self._restore()
        self._is_prepared = False
        # functions and no methods: a callback copies the model, with its hooks, and of methods a
        # deep copy would copy this driver; nor are the copies watched
        self._handles += [
            model.register_forward_pre_hook(
                lambda m, args, kwargs: self._before_forward(m, kwargs or args), with_kwargs=True
            ),
            model.register_forward_hook(
                lambda m, args, kwargs, out: self._after_forward(m, kwargs or args, out),
                with_kwargs=True,
            ),
        ]
        self.watch_forward(model)
        length = number_of_batches(trainer.train_dataloader)
        state, progress = trainer.host_state, trainer.progress
        if state.global_step:
            every = trainer.accumulate_grad_batches
            windows = -(-length // every) if length != float("inf") else 0
            progress.epochs_completed = state.global_step // windows if windows else 0
            inside = (state.global_step - progress.epochs_completed * windows) * every
            progress.batches_completed = int(
                progress.epochs_completed * (length if windows else 0) + inside
            )
            self._batch_idx = int(inside)
            progress.stage = progress.stage.BETWEEN
            if inside:
                self.resume_epoch(int(inside))
        else:
            self._batch_idx = 0
        if isinstance(self.callback, RunManifest) and trainer.is_global_zero:
            # beside the journal, for `trainer-hooks report`: their own log is in checkpoints alone
            folder = Path(self.callback.dirpath or trainer.default_root_dir).absolute()
            self._table = CSVLogger(folder.parent, name=None, version=folder.name)
        self.begin_fit()
        self.begin_training()

    def end_run(self) -> None:
        """Call `teardown`, and write the rows of the table."""
        if self._table is not None:
            self._table.save()
            self._table = None
        super().end_run()

    def on_train_end(self, _: Any) -> None:
        """Call the hooks of a fit's end."""
        self.remove_handles()
        self._flush_logs()
        self.end_training()
        self.end_fit()
        self.end_run()

    # --- an epoch ---

    def on_epoch_begin(self, _: Any) -> None:
        """Begin an epoch, unless the run is resumed inside it."""
        if self._is_begun or not self._batch_idx:
            self._batch_idx = 0
            self.begin_epoch()
        self._is_begun = True
        self.fire("on_before_dataloader")

    def on_step_begin(self, _: Any) -> None:
        """Begin a window, whose batches are loaded."""
        self.fire("on_after_dataloader", None)

    def on_pre_optimizer_step(self, _: Any) -> None:
        """Call the hook before the optimizer step."""
        self.fire("on_after_train_batch")

    def on_optimizer_step(self, _: Any) -> None:
        """Call the hook after the optimizer step."""
        for optimizer in self.trainer.optimizers:
            self.after_step(optimizer)

    def on_substep_end(self, _: Any, *, closes_window: bool = False) -> None:
        """End a batch; the last one of a window there is another event."""
        self._is_open = False
        trainer, index = self.trainer, self._batch_idx
        self._batch_idx += 1
        self.end_batch(
            _with_loss(self._outputs), self._batch, index, closes_window=closes_window,
            steps=int(trainer.host_state.global_step),
        )  # fmt: skip
        self.end_batch_slot()

    def on_step_end(self, arguments: Any) -> None:
        """End the last batch of a window."""
        self.on_substep_end(arguments, closes_window=True)
        self.fire("on_before_dataloader")

    def on_epoch_end(self, _: Any) -> None:
        """End an epoch's batches and, unless an evaluation follows, the epoch."""
        self.end_batches()
        # known by now: their DefaultFlowCallback, which asks for it, comes before the user's
        self._has_to_end_epoch = self.trainer.has_to_validate
        if not self._has_to_end_epoch:
            self.end_epoch()

    # --- an evaluation ---

    def on_prediction_step(self, _: Any) -> None:
        """End a validation batch; outside a fit events do not tell the stage."""
        if self._is_evaluating:
            self._is_eval_open = False
            self.fire(
                "on_validation_batch_end", self._outputs, self._batch, self._eval_batch_idx
            )  # fmt: skip
            self._eval_batch_idx += 1

    def on_evaluate(self, arguments: dict[str, Any]) -> None:
        """End an evaluation, and the epoch if it waited for it."""
        if not self.is_open:
            return
        if not self._is_evaluating:
            self._begin_evaluation()
        self._is_evaluating = self._is_eval_open = False
        self.trainer.record(arguments["metrics"])
        self.end_validation_epoch()
        self.end_validation()
        self.end_validation_run()
        if self._has_to_end_epoch:
            self._has_to_end_epoch = False
            self.end_epoch()
        else:
            self.end_batch_slot()
            self.fire("on_before_dataloader")

    def on_predict(self, arguments: dict[str, Any]) -> None:
        """Call the hooks of a test's end, which is a prediction there."""
        self.trainer.record(arguments["metrics"])
        self.fire("on_test_epoch_end")
        self.fire("on_test_end")

    # --- files and logs ---

    def on_save(self, _: Any) -> None:
        """Call `on_checkpoint_saved` with the checkpoint's folder."""
        # the event brings no path, but this is how they name the folder
        step = self.trainer.host_state.global_step
        path = Path(self.trainer.default_root_dir, f"checkpoint-{step}")
        self.fire("on_checkpoint_saved", path)

    def on_log(self, arguments: dict[str, Any]) -> None:
        """Add the values that the callback logged since, and call `on_log`."""
        logs, added = arguments["logs"], self.trainer.pending_logs
        self.trainer.pending_logs = {}
        self.trainer.record(logs)
        # two dicts: a copy with the step went to the history before the event
        logs.update(added)
        self.trainer.host_state.log_history[-1].update(added)
        if self._table is not None:
            numbers = {n: v for n, v in logs.items() if isinstance(v, int | float)}
            self._table.log_metrics(numbers, max(0, self.trainer.host_state.global_step - 1))
        self.fire("on_log", logs, self.trainer.host_state.global_step)

    def _flush_logs(self) -> None:
        """Add the values that no log came for to the Trainer's history."""
        added, self.trainer.pending_logs = self.trainer.pending_logs, {}
        if added:
            state = self.trainer.host_state
            state.log_history.append({**added, "step": state.global_step, "epoch": state.epoch})

    def _record(self, values: Mapping[str, Any]) -> None:
        self.trainer.record(values)
        self.trainer.pending_logs.update({name: float(value) for name, value in values.items()})

    # --- the forward ---

    def _before_forward(self, model: nn.Module, batch: Any) -> None:
        if model is not self._model:
            return
        if model.training:
            # a second forward of the same batch begins none
            if not self._is_open:
                self._is_open = True
                length = self.trainer.num_training_batches
                self.begin_batch(batch, self._batch_idx, is_last=self._batch_idx + 1 >= length)
        elif self.is_open:
            if not self._is_evaluating:
                self._begin_evaluation()
            if not self._is_eval_open:
                self._is_eval_open = True
                self.fire("on_validation_batch_start", batch, self._eval_batch_idx)
            self.fire("on_validation_before_forward")

    def _begin_evaluation(self) -> None:
        self._is_evaluating, self._eval_batch_idx = True, 0
        self.begin_validation_run()
        self.begin_validation()
        self.begin_validation_epoch()

    def _after_forward(self, model: nn.Module, batch: Any, outputs: Any) -> None:
        if model is not self._model:
            return
        self._batch, self._outputs = batch, outputs
        if not model.training:
            self.fire("on_validation_after_forward", outputs)
        elif self._watches_backward:
            loss = _loss_of(outputs)
            if loss is not None and loss.requires_grad:
                loss.register_hook(lambda _: self.before_backward(loss))
                call_after_backward(loss, self._after_backward)

    @property
    def _watches_backward(self) -> bool:
        names = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")
        return not self.calls.keys().isdisjoint(names) or self.trainer.skips_batch

    def _after_backward(self) -> None:
        self.after_backward()
        every, index = self.trainer.accumulate_grad_batches, self._batch_idx + 1
        if index % every == 0 or self.trainer.is_last_batch:
            self.before_optimizer_step()

    # --- state ---

    def packed_state(self) -> str:
        """Return the state as text: their file is JSON, which has no tensors."""
        weights = {} if self._model is None else dict(self._model.state_dict())
        buffer = io.BytesIO()
        torch.save(self.exported_state(weights), buffer)
        return base64.b64encode(buffer.getvalue()).decode("ascii")


def to_transformers(callback: Callback) -> Any:
    """Return a callback of transformers that calls the hooks of one of ours.

    `self.log` adds to what the Trainer logs next; `trainer.stop(reason)` and `StopTraining` end the
    training, and requests for validations, checkpoints and the epoch's end are made in the control
    object. State is kept in `trainer_state.json` of their checkpoints, and is restored from it.
    Pass it to the Trainer and not to `add_callback`: so it sees errors of `train`, and takes part
    when the optimizer is made.

    Args:
        callback: one of our callbacks.

    Raises:
        CallbackError: it is none of ours, needs a hook or an attribute that transformers does not
            have, or that is not installed.
    """
    driver = TransformersDriver(callback, "to_transformers")
    theirs = import_host_framework(
        "transformers.trainer_callback", "transformers", "to_transformers", "'transformers[torch]'"
    )
    methods: dict[str, Any] = {event: _event(driver, getattr(driver, event)) for event in _EVENTS}
    methods["__module__"] = type(callback).__module__
    methods["trainer_hooks_driver"] = driver
    # the restore is our own, at `create_scheduler`: what they restore is set on a new object,
    # which reaches our callback through the closures of these functions
    methods["state"] = lambda _: {
        "args": {},
        "attributes": {"packed_state": driver.packed_state()},
    }
    methods["packed_state"] = property(lambda _: driver.packed_state(), lambda *_: None)
    # there a state is looked up by the class's name, and of two of one name the first is kept
    return type(driver.state_name, (theirs.TrainerCallback, theirs.ExportableState), methods)()


def _event(driver: TransformersDriver, method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, args: Any, state: Any, control: Any, **arguments: Any) -> None:  # noqa: ARG001
        driver.trainer.take(args, state, control, arguments)
        method(arguments)

    return event


def _decoded(packed: str) -> dict[str, Any]:
    """Return a state from its text."""
    raw = io.BytesIO(base64.b64decode(packed))
    state: dict[str, Any] = torch.load(raw, weights_only=True)
    return state


def _loss_of(outputs: Any) -> Any:
    return outputs.get("loss") if hasattr(outputs, "get") else None


def _with_loss(outputs: Any) -> dict[str, Any]:
    """Return the loss of a model's outputs, as the outputs of a training batch."""
    loss = _loss_of(outputs)
    return {} if loss is None else {"loss": loss.detach()}
