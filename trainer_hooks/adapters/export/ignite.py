"""to_ignite: one of our callbacks at Ignite's engines."""

from __future__ import annotations

import importlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.adapters.export.hook_driver import (
    HookDriver,
    call_after_backward,
    largest_limit,
)
from trainer_hooks.adapters.export.host_trainer import (
    LOADS_OUR_FILES,
    LOG_EVERY_N_STEPS,
    HostLogger,
    HostModule,
    PolledHostTrainer,
)
from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.checkpoint.atomic_write import open_atomically
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn
    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback

_NO_RESTART = "An engine cannot go back to the beginning of a training from inside it."

IGNITE_EVENTS = {
    "on_init_end": "attach",
    "setup": "STARTED",
    "on_configure_model": "STARTED",
    "on_after_configure_model": "STARTED",
    "on_before_load": "STARTED",
    "on_before_restore": "STARTED",
    "on_load_checkpoint": "load_state_dict",
    "on_after_load": "STARTED",
    "on_fit_start": "STARTED",
    "on_train_start": "STARTED",
    "on_epoch_start": "EPOCH_STARTED",
    "on_train_epoch_start": "EPOCH_STARTED",
    "on_before_dataloader": "GET_BATCH_STARTED",
    "on_after_dataloader": "GET_BATCH_COMPLETED",
    "on_train_batch_start": "ITERATION_STARTED",
    "on_before_train_batch": "ITERATION_STARTED",
    "on_before_forward": "the model's forward",
    "on_after_forward": "the model's forward",
    "on_before_backward": "the backward",
    "on_after_backward": "the backward",
    "on_before_optimizer_step": "the backward",  # the end of a window's last one
    "on_after_train_batch": "the optimizer's step",
    "on_after_optimizer_step": "the optimizer's step",
    "on_train_batch_end": "ITERATION_COMPLETED",
    "on_batch_checkpoint": "ITERATION_COMPLETED",
    "on_train_batches_end": "ITERATION_COMPLETED",  # of an epoch's last one
    "on_validation_run_start": "STARTED of the evaluator",
    "on_validation_start": "STARTED of the evaluator",
    "on_validation_epoch_start": "STARTED of the evaluator",
    "on_validation_batch_start": "ITERATION_STARTED of the evaluator",
    "on_validation_batch_end": "ITERATION_COMPLETED of the evaluator",
    "on_validation_epoch_end": "COMPLETED of the evaluator",
    "on_validation_end": "COMPLETED of the evaluator",
    "on_validation_run_end": "COMPLETED of the evaluator",
    "on_train_epoch_end": "EPOCH_COMPLETED",
    "on_epoch_end": "EPOCH_COMPLETED",
    "on_epoch_checkpoint": "EPOCH_COMPLETED",
    "on_train_end": "COMPLETED",
    "on_fit_end": "COMPLETED",
    "on_exception": "an error of `run`",
    "teardown": "COMPLETED",
}
"""The event of Ignite at which each hook of ours is called."""


class IgniteHostTrainer(PolledHostTrainer):
    """The engine of a training and the arguments of `attach`, under the names of our Trainer.

    Attributes:
        proxy_target: the engine.
        evaluator: the engine of validations, or None.
        to_save: the objects of a checkpoint by name, or None.
    """

    framework = "Ignite"

    host_names: ClassVar[Mapping[str, str]] = {"train_dataloader": "state.dataloader"}

    lacks: ClassVar[Mapping[str, str]] = {
        "trial_run": _NO_RESTART,
        "reload_dataloaders": _NO_RESTART,
        "renew_learning_rates": _NO_RESTART,
        "request_validation": "Ignite evaluates where your handlers run the evaluator.",
        "validate_again": "Ignite evaluates where your handlers run the evaluator.",
        "save_in_background": "It saves in the foreground: pass async_save=False.",
        "accumulate_grad_batches =": "Ignite's process function decides when it steps.",
        "note_batch_indices": "Ignite has no predictions.",
        "on_before_zero_grad": "Ignite has no event before gradients are cleared.",
    }

    refuses: ClassVar[Mapping[str, str]] = {
        "SaveBestModelCallback": LOADS_OUR_FILES,
        "WSDCheckpointCallback": "Ignite's engines do not tell their schedulers.",
        "MLPerfCallback": "It counts the samples of loaders, which an evaluator does not tell.",
    }

    def __init__(self, callback: Callback, log_every_n_steps: int = LOG_EVERY_N_STEPS) -> None:
        super().__init__(callback)
        self.log_every_n_steps = log_every_n_steps
        self.evaluator: Any = None
        self.to_save: Mapping[str, Any] | None = None
        self.given_optimizers: list[Any] = []
        self.accumulate_grad_batches = 1

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers that `attach` was given."""
        return self.given_optimizers

    max_epochs = property(lambda self: largest_limit(self.proxy_target.state.max_epochs))
    """The number of epochs of the run."""
    max_steps = property(
        lambda self: largest_limit(getattr(self.proxy_target.state, "max_iters", None))
    )
    """The number of iterations of the run."""

    @property
    def num_training_batches(self) -> int | float:
        """The number of batches of an epoch; infinity if unknown."""
        return self.proxy_target.state.epoch_length or float("inf")

    @property
    def num_val_batches(self) -> list[int | float]:
        """The number of batches of the evaluator; none without one."""
        if self.evaluator is None:
            return []
        return [self.evaluator.state.epoch_length or float("inf")]

    def metric_sources(self) -> list[dict[str, Any]]:
        """Return the latest metrics of both engines."""
        engines = (self.proxy_target, self.evaluator)
        return [engine.state.metrics for engine in engines if engine is not None]

    @property
    def loggers(self) -> list[Any]:
        """The metrics of the engine, which its loggers write."""
        return [HostLogger(lambda metrics, _: self.add_to_metrics(metrics))]

    def add_to_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Add numbers to the engine's metrics."""
        for name, value in metrics.items():
            if name != "epoch":
                self.proxy_target.state.metrics[name] = float(value)

    def stop(self, reason: str = "") -> None:
        """End the training after the current batch."""
        super().stop(reason)
        self.proxy_target.terminate()

    def end_epoch(self) -> None:
        """End the epoch after the current batch."""
        self.proxy_target.terminate_epoch()

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current batch."""
        self.progress.is_checkpoint_requested = True

    def save_checkpoint(self, filepath: Any, weights_only: bool = False) -> None:
        """Save the states of the objects that `attach` was given, as Ignite's Checkpoint does."""
        if self.is_global_zero:
            objects = {"model": self.module} if weights_only else self.to_save or {}
            states = {name: item.state_dict() for name, item in objects.items()}
            with open_atomically(Path(filepath)) as file:
                torch.save(states, file)
        self.on_checkpoint_saved(str(filepath))


class IgniteDriver(HookDriver):
    """A method for each event of Ignite, which calls hooks of ours."""

    view = IgniteHostTrainer
    events = IGNITE_EVENTS
    trainer: IgniteHostTrainer

    def __init__(self, callback: Callback, function: str, log_every_n_steps: int) -> None:
        super().__init__(callback, function, log_every_n_steps=log_every_n_steps)
        self.model: Any = None
        self.loss_fn: Any = None
        self._module: HostModule | None = None
        self._is_begun = False

    def begin(self) -> None:
        """Begin a run, before a state is loaded or when the engine starts."""
        self._is_begun = True
        if self._module is None:
            self._module = HostModule(self.model, self._record)
        is_new = self.trainer.proxy_target.state.iteration == 0
        self.begin_run("fit", self._module, is_new=is_new)

    # --- the engine of the training ---

    def started(self, engine: Any) -> None:
        """Call the hooks of a fit's start."""
        if not self._is_begun:
            self.begin()
        self._is_begun = False
        if self._loaded is not None:
            self.put_weights({"state_dict": dict(self.model.state_dict())})
        progress, state = self.trainer.progress, engine.state
        progress.epochs_completed = int(state.epoch)
        progress.batches_completed = int(state.iteration)
        progress.stage = progress.stage.BETWEEN
        inside = int(state.iteration) - int(state.epoch) * int(state.epoch_length or 0)
        if state.epoch_length and inside < 0:  # the epoch was counted as it began
            progress.epochs_completed -= 1
        self.watch_optimizers()
        self.watch_clipping()
        self.watch_forward(self.model)
        self._watch_backward()
        self.begin_fit()
        self.begin_training()

    def _watch_backward(self) -> None:
        """Watch the loss, or without a loss function the model's outputs, for their backward."""
        if self.loss_fn is not None and "on_before_backward" in self.calls:
            self._handles.append(
                self.loss_fn.register_forward_hook(lambda _m, _a, loss: self._watch(loss, loss))
            )
        elif "skip_batch" in self.uses or not self.calls.keys().isdisjoint(
            ("on_after_backward", "on_before_optimizer_step")
        ):
            self._handles.append(
                self.model.register_forward_hook(lambda _m, _a, out: self._watch(out, None))
            )

    def _watch(self, tensor: Any, loss: Any) -> None:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            begin = (
                self.set_gradients_aside if loss is None else partial(self.before_backward, loss)
            )
            tensor.register_hook(lambda _: begin())  # type: ignore[no-untyped-call]
            call_after_backward(tensor, self._after_backward)

    def _after_backward(self) -> None:
        self.after_backward()
        if self._closes_window:
            self.before_optimizer_step()

    @property
    def _closes_window(self) -> bool:
        done = self.trainer.progress.batches_in_window + 1
        return done >= self.trainer.accumulate_grad_batches or self.trainer.is_last_batch

    def epoch_started(self, _: Any) -> None:
        """Begin an epoch."""
        self.begin_epoch()

    def iteration_started(self, engine: Any) -> None:
        """Begin a batch."""
        index = self.trainer.progress.batches_in_epoch
        is_last = index + 1 >= self.trainer.num_training_batches
        self.begin_batch(engine.state.batch, index, is_last=is_last)

    def iteration_completed(self, engine: Any) -> None:
        """End a batch, and with the last one the batches of the epoch."""
        progress, closes = self.trainer.progress, self._closes_window
        output = engine.state.output
        outputs = output if isinstance(output, dict) else {"loss": output}
        outputs = {} if output is None else {**outputs}
        if "loss" in outputs and not isinstance(outputs["loss"], torch.Tensor):
            loss = outputs["loss"]
            outputs |= {"loss": torch.tensor(float(loss))} if isinstance(loss, float) else {}
        index = progress.batches_in_epoch
        self.end_batch(outputs, engine.state.batch, index, closes_window=closes)
        self.end_batch_slot()
        if self.trainer.is_last_batch:
            self.end_batches()

    def epoch_completed(self, _: Any) -> None:
        """End an epoch."""
        self.end_epoch()

    def completed(self, _: Any) -> None:
        """End the fit."""
        self.end_training()
        self.end_fit()
        self.end_run()

    # --- the engine of validations ---

    def evaluation_started(self, _: Any) -> None:
        """Begin a validation inside a fit."""
        if self.is_open:
            self.begin_validation_run()
            self.begin_validation()
            self.begin_validation_epoch()

    def evaluation_batch_started(self, engine: Any) -> None:
        """Begin a validation batch."""
        if self.is_open:
            index = int(engine.state.iteration) - 1
            self.fire("on_validation_batch_start", engine.state.batch, index)

    def evaluation_batch_completed(self, engine: Any) -> None:
        """End a validation batch."""
        if self.is_open:
            state = engine.state
            self.fire(
                "on_validation_batch_end", state.output, state.batch, int(state.iteration) - 1
            )

    def evaluation_completed(self, _: Any) -> None:
        """End a validation inside a fit."""
        if self.is_open:
            self.end_validation_epoch()
            self.end_validation()
            self.end_validation_run()

    def _record(self, values: Mapping[str, Any]) -> None:
        self.trainer.record(values)
        self.trainer.add_to_metrics(values)


class IgniteCallback:
    """One of our callbacks for Ignite's engines; made by `to_ignite`.

    It has `state_dict` and `load_state_dict`, for Ignite's `Checkpoint(to_save)`: put it before the
    optimizer there, since it may regroup what that trains.

    Args:
        driver: the callback's driver.
    """

    def __init__(self, driver: IgniteDriver) -> None:
        self._driver = driver

    @property
    def callback(self) -> Callback:
        """Our callback."""
        return self._driver.callback

    def attach(
        self,
        engine: Any,
        model: nn.Module,
        optimizer: Optimizer | list[Optimizer] | None = None,
        *,
        evaluator: Any = None,
        loss_fn: nn.Module | None = None,
        to_save: Mapping[str, Any] | None = None,
        accumulate_grad_batches: int = 1,
        default_root_dir: str = ".",
    ) -> None:
        """Take part in the run of an engine.

        Attach it after the handler that runs the evaluator, so that an epoch ends after its
        validation.

        Args:
            engine: the engine of the training.
            model: the model that is trained.
            optimizer: the optimizer, or several.
            evaluator: the engine of validations.
            loss_fn: the loss function, a module that the process function calls: callbacks that
                look at the loss before the backward need it.
            to_save: the objects of a checkpoint by name, for callbacks that save.
            accumulate_grad_batches: batches of an accumulation window.
            default_root_dir: the folder that files go to.

        Raises:
            CallbackError: the callback needs one of these that is not given.
        """
        driver, trainer = self._driver, self._driver.trainer
        if optimizer is not None:
            several = isinstance(optimizer, list | tuple)
            trainer.given_optimizers = [*optimizer] if several else [optimizer]  # type: ignore[misc]
        for name, is_needed, is_given in (
            ("optimizer", "optimizers" in driver.uses, bool(trainer.given_optimizers)),
            ("loss_fn", "on_before_backward" in driver.calls, loss_fn is not None),
            ("to_save", "save_checkpoint" in driver.uses, to_save is not None),
        ):
            if is_needed and not is_given:
                raise CallbackError(
                    f"attach of {type(self.callback).__qualname__} without {name}: the callback "
                    f"uses it. Pass attach(engine, model, ..., {name}=...)."
                )
        trainer.proxy_target, trainer.evaluator, trainer.to_save = engine, evaluator, to_save
        trainer.accumulate_grad_batches = accumulate_grad_batches
        trainer.default_root_dir = str(default_root_dir)
        driver.model, driver.loss_fn = model, loss_fn
        self._add_handlers(engine, evaluator)
        if "on_init_end" in driver.calls:
            driver.calls["on_init_end"](trainer)

    def _add_handlers(self, engine: Any, evaluator: Any) -> None:
        driver = self._driver
        events = importlib.import_module("ignite.engine").Events
        for event, handler in {
            events.STARTED: driver.started,
            events.EPOCH_STARTED: driver.epoch_started,
            events.ITERATION_STARTED: driver.iteration_started,
            events.ITERATION_COMPLETED: driver.iteration_completed,
            events.EPOCH_COMPLETED: driver.epoch_completed,
            events.COMPLETED: driver.completed,
        }.items():
            engine.add_event_handler(event, handler)
        if "on_before_dataloader" in driver.calls or "on_after_dataloader" in driver.calls:
            engine.add_event_handler(
                events.GET_BATCH_STARTED, lambda _: driver.fire("on_before_dataloader")
            )
            engine.add_event_handler(
                events.GET_BATCH_COMPLETED,
                lambda engine: driver.fire("on_after_dataloader", engine.state.batch),
            )
        if evaluator is not None:
            evaluator.add_event_handler(events.STARTED, driver.evaluation_started)
            evaluator.add_event_handler(events.ITERATION_STARTED, driver.evaluation_batch_started)
            evaluator.add_event_handler(
                events.ITERATION_COMPLETED, driver.evaluation_batch_completed
            )
            evaluator.add_event_handler(events.COMPLETED, driver.evaluation_completed)
        run = engine.run

        def run_and_tell(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                driver.fail(error)
                raise

        engine.run = run_and_tell

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the callback and of its counters."""
        return self._driver.exported_state(dict(self._driver.model.state_dict()))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the callback, before the run that goes on.

        Raises:
            CallbackError: it is not attached yet.
        """
        driver = self._driver
        if driver.model is None:
            raise CallbackError(
                f"load_state_dict of {type(self.callback).__qualname__} in Ignite: it must be "
                "attached before, since the model and the optimizer are restored with it. Call "
                "attach(...) first."
            )
        driver.begin()
        driver.read(state)
        driver.load_into_optimizers()


def to_ignite(callback: Callback, *, log_every_n_steps: int = LOG_EVERY_N_STEPS) -> IgniteCallback:
    """Return one of our callbacks in a form that attaches to Ignite's engines.

    `self.log` goes to the metrics of the training's engine; `trainer.stop(reason)` and
    `StopTraining` terminate it.

    Args:
        callback: one of our callbacks.
        log_every_n_steps: the option of our Trainer, which Ignite does not have.

    Raises:
        CallbackError: it is none of ours, needs a hook or an attribute that Ignite does not have,
            or Ignite is not installed.
    """
    driver = IgniteDriver(callback, "to_ignite", log_every_n_steps)
    import_host_framework("ignite.engine", "Ignite", "to_ignite", "pytorch-ignite")
    return IgniteCallback(driver)
