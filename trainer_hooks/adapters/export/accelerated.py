"""to_accelerated: one of our callbacks in pytorch-accelerated's Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

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
    unwrapped,
)
from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.adapters.proxy import Proxy
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from trainer_hooks.callback import Callback

_NO_RESTART = (
    "pytorch-accelerated's Trainer cannot go back to the beginning of a training from inside it."
)
_PRECISIONS = {"no": "32-true", "fp16": "16-mixed", "bf16": "bf16-mixed"}

_EVALUATION = {
    "start": "on_eval_epoch_start",
    "epoch_start": "on_eval_epoch_start",
    "batch_start": "on_eval_step_start",
    "batch_end": "on_eval_step_end",
    "epoch_end": "on_eval_epoch_end",
    "end": "on_eval_epoch_end",
}

ACCELERATED_EVENTS = {
    "on_init_end": "on_init_end",
    "setup": "on_training_run_start",  # before `load_training_state`, in a resume
    "on_configure_model": "on_training_run_start",
    "on_after_configure_model": "on_training_run_start",
    "on_before_load": "on_training_run_start",
    "on_before_restore": "load_training_state",
    "on_load_checkpoint": "load_training_state",
    "on_after_load": "on_training_run_start",
    "on_fit_start": "on_training_run_start",
    "on_train_start": "on_training_run_start",
    "on_epoch_start": "on_train_epoch_start",
    "on_train_epoch_start": "on_train_epoch_start",
    "on_before_dataloader": "the loader",
    "on_after_dataloader": "the loader",
    "on_train_batch_start": "on_train_step_start",
    "on_before_train_batch": "on_train_step_start",
    "on_before_forward": "the model's forward",
    "on_after_forward": "the model's forward",
    "on_before_backward": "on_train_step_end",
    "on_after_backward": "the backward",
    "on_before_optimizer_step": "the backward",  # the end of a window's last one
    "on_after_train_batch": "the optimizer's step",
    "on_after_optimizer_step": "the optimizer's step",
    "on_train_batch_end": "the loader",  # when the next batch is asked for
    "on_batch_checkpoint": "the loader",
    "on_train_batches_end": "on_train_epoch_end",
    "on_validation_run_start": "on_eval_epoch_start",
    "on_validation_run_end": "on_eval_epoch_end",
    **{f"on_validation_{name}": event for name, event in _EVALUATION.items()},
    **{f"on_test_{name}": event for name, event in _EVALUATION.items()},
    "on_evaluation_run_start": "on_evaluation_run_start",
    "on_evaluation_run_end": "on_evaluation_run_end",
    "on_train_epoch_end": "on_training_run_epoch_end",
    "on_epoch_end": "on_training_run_epoch_end",
    "on_epoch_checkpoint": "on_training_run_epoch_end",
    "on_train_end": "on_training_run_end",
    "on_fit_end": "on_training_run_end",
    "on_stop_training_error": "on_stop_training_error",
    "on_exception": "an error of `train`",
    "teardown": "on_training_run_end",
}
"""Their event at which each hook of ours is called. `on_test_...` and the other hooks of an
evaluation are called in `trainer.evaluate`, those of validation in `trainer.train`."""

_EVENTS = dict.fromkeys(event for event in ACCELERATED_EVENTS.values() if event.startswith("on_"))


class WatchedLoader(Proxy):
    """Proxy of a loader that tells a driver of its batches: their events do not bring them.

    Args:
        target: the loader.
        on_batch: is called with each batch and its index when it is loaded.
        before: is called before each batch is loaded.
        after: is called when the batch is done.
    """

    __slots__ = ("_after", "_before", "_on_batch")

    def __init__(
        self,
        target: Any,
        on_batch: Callable[[Any, int], None],
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(target)
        self._on_batch, self._before, self._after = on_batch, before, after

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.proxy_target)
        index = 0
        while True:
            self._before()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self._on_batch(batch, index)
            index += 1
            yield batch
            self._after()

    # Python looks it up on the class and never asks __getattr__ for it
    def __len__(self) -> int:
        return len(self.proxy_target)


class AcceleratedHostTrainer(PolledHostTrainer):
    """pytorch-accelerated's Trainer under the names of ours; a name that is not here is its own."""

    framework = "pytorch-accelerated"

    refuses: ClassVar[Mapping[str, str]] = {"SaveBestModelCallback": LOADS_OUR_FILES}

    host_names: ClassVar[Mapping[str, str]] = {
        "accumulate_grad_batches": "run_config.gradient_accumulation_steps",
        "device": "_accelerator.device",
        "world_size": "_accelerator.num_processes",
        "global_rank": "_accelerator.process_index",
        "train_dataloader": "_train_dataloader",
        "host_callbacks": "callback_handler.callbacks",
        "max_epochs": "run_config.num_epochs",
    }

    lacks: ClassVar[Mapping[str, str]] = {
        "trial_run": _NO_RESTART,
        "reload_dataloaders": _NO_RESTART,
        "renew_learning_rates": _NO_RESTART,
        "request_validation": "pytorch-accelerated evaluates at the end of each epoch alone.",
        "validate_again": "pytorch-accelerated evaluates at the end of each epoch alone.",
        "end_epoch": "pytorch-accelerated's epochs end with their loader.",
        "save_in_background": "pytorch-accelerated saves in the foreground: async_save=False.",
        "accumulate_grad_batches =": "pytorch-accelerated fixes it as the training begins.",
        "note_batch_indices": "pytorch-accelerated has no predictions.",
        "on_before_zero_grad": "pytorch-accelerated has no event before gradients are cleared.",
    }

    def __init__(self, callback: Callback, log_every_n_steps: int = LOG_EVERY_N_STEPS) -> None:
        super().__init__(callback)
        self.log_every_n_steps = log_every_n_steps

    @property
    def optimizers(self) -> list[Any]:
        """The optimizer in a list, without accelerate's wrapper; empty if there is none."""
        optimizer = None if self.proxy_target is None else self.proxy_target.optimizer
        return [] if optimizer is None else [unwrapped(optimizer)]

    @property
    def host_scheduler(self) -> Any:
        """The scheduler."""
        return self.proxy_target.scheduler

    @host_scheduler.setter
    def host_scheduler(self, scheduler: Any) -> None:
        self.proxy_target.scheduler = scheduler

    max_steps = property(
        lambda self: largest_limit(self.proxy_target.run_config.max_num_train_steps)
    )
    """The number of steps of the run."""

    @property
    def val_dataloaders(self) -> list[Any]:
        """The loader of evaluation batches."""
        has_data = self.proxy_target.eval_dataset is not None
        return [self.proxy_target._eval_dataloader] if has_data else []  # noqa: SLF001

    @property
    def precision(self) -> str:  # type: ignore[override]
        """The precision of the forward, by our name."""
        name = str(self.proxy_target._accelerator.mixed_precision)  # noqa: SLF001
        return _PRECISIONS.get(name, name)

    def metric_sources(self) -> list[dict[str, Any]]:
        """Return the latest values of the run's history."""
        history = self.proxy_target.run_history
        return [{name: history.get_latest_metric(name) for name in history.get_metric_names()}]

    @property
    def loggers(self) -> list[Any]:
        """The run's history."""
        return [HostLogger(lambda metrics, _: self.add_to_history(metrics))]

    def add_to_history(self, metrics: Mapping[str, Any]) -> None:
        """Add numbers to the run's history."""
        for name, value in metrics.items():
            if name != "epoch":
                self.proxy_target.run_history.update_metric(name, float(value))

    def request_checkpoint(self) -> None:
        """Request a checkpoint after the current batch."""
        self.progress.is_checkpoint_requested = True

    def save_checkpoint(self, filepath: Any, weights_only: bool = False) -> None:
        """Save a folder from which `train(resume_from=...)` resumes; or a file of weights."""
        if weights_only:
            self.proxy_target.save_checkpoint(filepath, save_optimizer=False)
        else:
            self.proxy_target.save_training_state(filepath)
        self.on_checkpoint_saved(str(filepath))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "proxy_target":
            raise AttributeError(name)
        try:
            return getattr(self.proxy_target, name)
        except AttributeError:
            return super().__getattr__(name)


class AcceleratedDriver(HookDriver):
    """A method for each event of pytorch-accelerated, which calls hooks of ours.

    A batch's step comes after the last event of the batch, so a batch ends when the loader is asked
    for the next one.
    """

    view = AcceleratedHostTrainer
    events = ACCELERATED_EVENTS
    trainer: AcceleratedHostTrainer
    _stop_error: type[Exception]

    def __init__(self, callback: Callback, function: str, log_every_n_steps: int) -> None:
        super().__init__(callback, function, log_every_n_steps=log_every_n_steps)
        self._loaded_batch: tuple[Any, int] = (None, 0)
        self._open_batch: tuple[Any, ...] = ()
        self._eval_batch: tuple[Any, int] = (None, 0)
        self._is_begun = False
        self._module: HostModule | None = None

    # --- the run ---

    def on_init_end(self, trainer: Any, _: Any) -> None:
        """Call `on_init_end`, keep the callback's state with the trainer's, and learn of errors."""
        rest = self.without_twin(trainer.callback_handler.callbacks)
        if rest is not None:
            trainer.callback_handler.callbacks = rest
            return
        self.trainer.proxy_target = trainer
        self._take_part_in_saves(trainer)
        train = trainer.train

        def train_and_tell(*args: Any, **kwargs: Any) -> None:
            self._is_begun = False
            try:
                train(*args, **kwargs)
            except BaseException as error:
                self._open_batch = ()
                self.fail(error)
                raise

        trainer.train = train_and_tell
        if "on_init_end" in self.calls:
            self.calls["on_init_end"](self.trainer)

    def _take_part_in_saves(self, trainer: Any) -> None:
        """Wrap a trainer's `save_training_state` and `load_training_state`.

        Its checkpoints hold no state of callbacks, and it fires no event when it saves.
        """
        save, load = trainer.save_training_state, trainer.load_training_state
        name = f"callback_{quote(self.callback.state_key, safe='')}.pt"

        def save_training_state(output_dir: Any, checkpoint_kwargs: Any = None) -> None:
            save(output_dir, checkpoint_kwargs)
            if trainer._accelerator.is_main_process:  # noqa: SLF001 - their way
                model = trainer._accelerator.unwrap_model(trainer.model)  # noqa: SLF001
                torch.save(self.exported_state(dict(model.state_dict())), Path(output_dir, name))

        def load_training_state(input_dir: Any) -> Any:
            path = Path(input_dir, name)
            saved = torch.load(path, weights_only=True) if path.exists() else None
            self._begin()
            # before the optimizer's state is loaded, which has the groups of its callbacks
            self.read(saved)
            self.load_into_optimizers()
            state = load(input_dir)
            self.put_weights({"state_dict": dict(self.trainer.module.state_dict())})
            return state

        trainer.save_training_state = save_training_state
        trainer.load_training_state = load_training_state

    def _begin(self) -> None:
        """Begin a fit, when the model and the optimizer are prepared."""
        self._is_begun = True
        is_new = self.trainer.proxy_target.run_history.current_epoch == 1
        self.begin_run("fit", self._host_module(), is_new=is_new)

    def _host_module(self) -> HostModule:
        theirs = self.trainer.proxy_target
        model = theirs._accelerator.unwrap_model(theirs.model)  # noqa: SLF001
        if self._module is None or self._module.proxy_target is not model:
            self._module = HostModule(model, self._record)
        return self._module

    def on_training_run_start(self, trainer: Any, _: Any) -> None:
        """Call the hooks of a fit's start."""
        self._open_batch = ()
        if not self._is_begun:
            self._begin()
        progress = self.trainer.progress
        # not in a resume: a state that is saved as an epoch ends has the number of that epoch
        if not progress.is_restored or self._own_state is None:
            progress.epochs_completed = int(trainer.run_history.current_epoch) - 1
        progress.stage = progress.stage.BETWEEN
        # their Trainer reads the attributes for its loops after this event
        trainer._train_dataloader = WatchedLoader(  # noqa: SLF001 - their way
            trainer._train_dataloader,  # noqa: SLF001
            self._take_batch,
            self._before_batch,
            self._end_batch,
        )
        if trainer.eval_dataset is not None:
            self._watch_evaluation(trainer)
        self.watch_optimizers()
        self.watch_clipping()
        self.watch_forward(self.trainer.module.proxy_target)
        self.begin_fit()
        self.begin_training()

    def _watch_evaluation(self, trainer: Any) -> None:
        trainer._eval_dataloader = WatchedLoader(trainer._eval_dataloader, self._take_eval_batch)  # noqa: SLF001

    def on_training_run_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of a fit's end."""
        self.end_training()
        self.end_fit()
        self.end_run()

    def on_evaluation_run_start(self, trainer: Any, _: Any) -> None:
        """Call the hooks of a test's start."""
        self.trainer.proxy_target = trainer
        self.begin_run("test", self._host_module())
        self._watch_evaluation(trainer)
        self.fire("on_evaluation_run_start", self.trainer.state.fn)

    def on_evaluation_run_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of a test's end."""
        self.fire("on_evaluation_run_end", self.trainer.state.fn)
        self.end_run()

    def on_stop_training_error(self, _trainer: Any, _: Any) -> None:
        """Call `on_stop_training_error`; the batch that was open is not ended."""
        self._open_batch = ()
        self.fire("on_stop_training_error", StopTraining(self.trainer.stop_reason))

    def note_stop(self, request: StopTraining) -> None:
        """Do nothing: their event follows."""

    def _stop_if_requested(self) -> None:
        if self.trainer.should_stop:
            raise self._stop_error(self.trainer.stop_reason)

    # --- an epoch ---

    def on_train_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Begin an epoch."""
        self.begin_epoch()

    def _before_batch(self) -> None:
        self.fire("on_before_dataloader")

    def _take_batch(self, batch: Any, index: int) -> None:
        self._loaded_batch = (batch, index)
        self.fire("on_after_dataloader", batch)

    def on_train_step_start(self, _trainer: Any, _: Any) -> None:
        """Begin a batch, unless the end of the training was requested."""
        self._stop_if_requested()
        batch, index = self._loaded_batch
        is_last = index + 1 >= self.trainer.num_training_batches
        self.begin_batch(batch, index, is_last=is_last)
        self._stop_if_requested()

    def on_train_step_end(self, _trainer: Any, arguments: dict[str, Any]) -> None:
        """Call `on_before_backward`, and keep the arguments of `on_train_batch_end`."""
        loss, index = arguments["batch_output"]["loss"], arguments["step"]
        every = self.trainer.accumulate_grad_batches
        closes = (index + 1) % every == 0 or self.trainer.is_last_batch
        self.before_backward(loss)
        if self._watches_backward:
            call_after_backward(loss, self._end_window if closes else self.after_backward)
        # detached: kept until the next event, the loss would hold the graph of the batch
        self._open_batch = ({"loss": loss.detach()}, arguments["batch"], index, closes)

    @property
    def _watches_backward(self) -> bool:
        names = ("on_after_backward", "on_before_optimizer_step")
        return not self.calls.keys().isdisjoint(names) or self.trainer.skips_batch

    def _end_window(self) -> None:
        self.after_backward()
        self.before_optimizer_step()

    def _end_batch(self) -> None:
        """End the batch whose step is done."""
        arguments, self._open_batch = self._open_batch, ()
        if arguments:
            outputs, batch, index, closes = arguments
            self.end_batch(outputs, batch, index, closes_window=closes)
            self.end_batch_slot()

    def on_train_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End the batches of an epoch; a limit of steps leaves the last one open."""
        self._end_batch()
        self.end_batches()

    def on_training_run_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End an epoch, after its validation."""
        self.end_epoch()
        self._stop_if_requested()

    # --- an evaluation ---

    @property
    def _stage(self) -> str:
        return "validation" if self.trainer.state.fn == "fit" else "test"

    def _take_eval_batch(self, batch: Any, index: int) -> None:
        self._eval_batch = (batch, index)

    def on_eval_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Begin an evaluation."""
        if self._stage == "validation":
            self.begin_validation_run()
            self.begin_validation()
            self.begin_validation_epoch()
        else:
            self.fire("on_test_start")
            self.fire("on_test_epoch_start")

    def on_eval_step_start(self, _trainer: Any, _: Any) -> None:
        """Call the hook of an evaluation batch's start."""
        self.fire(f"on_{self._stage}_batch_start", *self._eval_batch)

    def on_eval_step_end(self, _trainer: Any, arguments: dict[str, Any]) -> None:
        """Call the hook of an evaluation batch's end."""
        outputs, index = arguments["batch_output"], self._eval_batch[1]
        self.fire(f"on_{self._stage}_batch_end", outputs, arguments["batch"], index)

    def on_eval_epoch_end(self, _trainer: Any, _: Any) -> None:
        """End an evaluation."""
        if self._stage == "validation":
            self.end_validation_epoch()
            self.end_validation()
            self.end_validation_run()
        else:
            self.fire("on_test_epoch_end")
            self.fire("on_test_end")

    def _record(self, values: Mapping[str, Any]) -> None:
        self.trainer.record(values)
        self.trainer.add_to_history(values)


def to_accelerated(callback: Callback, *, log_every_n_steps: int = LOG_EVERY_N_STEPS) -> Any:
    """Return a callback of pytorch-accelerated that calls the hooks of one of ours.

    `self.log` goes to `trainer.run_history`; `trainer.stop(reason)` and `StopTraining` end the run
    by a `StopTrainingError`. State is kept in a file of its own in the folder that
    `trainer.save_training_state` writes, from which `train(resume_from=...)` restores it;
    `trainer.save_checkpoint` there keeps none.

    Args:
        callback: one of our callbacks.
        log_every_n_steps: the option of our Trainer, which pytorch-accelerated does not have.

    Raises:
        CallbackError: it is none of ours, needs a hook or an attribute that pytorch-accelerated
            does not have, or that is not installed.
    """
    driver = AcceleratedDriver(callback, "to_accelerated", log_every_n_steps)
    theirs = import_host_framework(
        "pytorch_accelerated.callbacks", "pytorch-accelerated", "to_accelerated",
        "pytorch-accelerated",
    )  # fmt: skip
    driver._stop_error = theirs.StopTrainingError  # noqa: SLF001 - known once it is imported
    kind = type(callback)
    methods: dict[str, Any] = {event: _event(getattr(driver, event)) for event in _EVENTS}
    methods["__module__"] = kind.__module__
    methods["trainer_hooks_driver"] = driver
    # a class for each: their CallbackHandler refuses a second instance of a class
    return type(kind.__name__, (theirs.TrainerCallback,), methods)()


def _event(method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, trainer: Any, **arguments: Any) -> None:  # noqa: ARG001
        method(trainer, arguments)

    return event
