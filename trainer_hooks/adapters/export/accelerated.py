"""to_accelerated: export one of our callbacks to pytorch-accelerated's Trainer."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import torch

from trainer_hooks._names import ours
from trainer_hooks.adapters.export.host_trainer import (
    FitOptions,
    HostProgress,
    HostTrainerProxy,
    LogForwarder,
    import_host_framework,
    numbers_as_tensors,
    overridden_hooks,
)
from trainer_hooks.adapters.proxy import Proxy
from trainer_hooks.errors import StopTraining

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from trainer_hooks.callback import Callback


class RecordingLoader(Proxy):
    """Proxy of a loader that keeps its last batch: the event of a step's start does not bring it.

    Attributes:
        batch: the last batch.
        batch_idx: its index.
    """

    __slots__ = ("batch", "batch_idx")

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        self.batch = None
        self.batch_idx = 0

    def __iter__(self) -> Iterator[Any]:
        for batch_idx, batch in enumerate(self.proxy_target):
            self.batch = batch
            self.batch_idx = batch_idx
            yield batch

    # Python looks it up on the class and never asks __getattr__ for it
    def __len__(self) -> int:
        return len(self.proxy_target)


class AcceleratedHostTrainer(FitOptions, HostTrainerProxy):
    """pytorch-accelerated's Trainer under the names of ours."""

    __slots__ = ("should_stop", "stop_reason")

    _framework = "pytorch-accelerated"

    def __init__(self, target: Any, callback: Callback) -> None:
        super().__init__(target, callback)
        self.should_stop = False
        self.stop_reason = ""

    def stop(self, reason: str = "") -> None:
        """End the run after the current batch."""
        self.should_stop = True
        self.stop_reason = reason

    module = property(attrgetter("proxy_target.model"))
    """The model."""

    @property
    def optimizers(self) -> list[Any]:
        """The optimizer in a list; empty if there is none."""
        return [] if self.proxy_target.optimizer is None else [self.proxy_target.optimizer]

    current_epoch = property(lambda self: int(self.proxy_target.run_history.current_epoch) - 1)
    """The index of the current epoch, from 0 on."""

    max_epochs = property(lambda self: int(self.proxy_target.run_config.num_epochs))
    """The number of epochs of the run."""

    accumulate_grad_batches = property(
        attrgetter("proxy_target.run_config.gradient_accumulation_steps")
    )
    """Batches of an accumulation window."""

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest values of the run's history."""
        history = self.proxy_target.run_history
        return numbers_as_tensors(
            {name: history.get_latest_metric(name) for name in history.get_metric_names()}
        )

    is_global_zero = property(attrgetter("proxy_target._accelerator.is_main_process"))
    """Whether this is rank 0."""

    world_size = property(attrgetter("proxy_target._accelerator.num_processes"))
    """The number of processes."""

    train_dataloader = property(attrgetter("proxy_target._train_dataloader"))
    """The loader of training batches."""

    @property
    def progress(self) -> HostProgress:
        """The number of whole epochs, and whether the training is fresh."""
        epoch = self.current_epoch
        return HostProgress(
            epoch,
            is_untrained=epoch == 0,
            framework=self._framework,
            callback=self._callback,
        )

    val_check_interval = 1.0
    """An evaluation comes after each epoch, before its last event."""

    @property
    def num_val_batches(self) -> list[int]:
        """The number of batches of the evaluation in a list; empty without one."""
        loader = self.proxy_target._eval_dataloader  # noqa: SLF001 - it has no public name
        return [] if loader is None else [len(loader)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return super().__getattr__(name)


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
    "setup": "on_training_run_start",
    "on_fit_start": "on_training_run_start",
    "on_train_start": "on_training_run_start",
    "on_train_epoch_start": "on_train_epoch_start",
    "on_train_batch_start": "on_train_step_start",
    "on_before_backward": "on_train_step_end",
    "on_train_batch_end": "on_train_step_start",  # the next one, or the epoch's end
    "on_train_batches_end": "on_train_epoch_end",
    **{f"on_validation_{name}": event for name, event in _EVALUATION.items()},
    **{f"on_test_{name}": event for name, event in _EVALUATION.items()},
    "on_evaluation_run_start": "on_evaluation_run_start",
    "on_evaluation_run_end": "on_evaluation_run_end",
    "on_train_epoch_end": "on_training_run_epoch_end",
    "on_train_end": "on_training_run_end",
    "on_fit_end": "on_training_run_end",
    "on_stop_training_error": "on_stop_training_error",
    "teardown": "on_training_run_end",
}
"""Their event at which each hook of ours is called. `on_test_...` and the other hooks of an
evaluation are called in `trainer.evaluate`, those of validation in `trainer.train`."""


def to_accelerated(callback: Callback) -> Any:
    """Return a callback of pytorch-accelerated that calls the hooks of one of ours.

    `self.log` goes to `trainer.run_history`; `trainer.stop(reason)` and `StopTraining` end the run
    by a `StopTrainingError`. State is kept in a file of its own in the folder that
    `trainer.save_training_state` writes, from which `train(resume_from=...)` restores it;
    `trainer.save_checkpoint` there keeps none.

    Args:
        callback: one of our callbacks.

    Raises:
        CallbackError: it overrides a hook that pytorch-accelerated does not have, or that is not
            installed.
    """
    function = "to_accelerated"
    calls = overridden_hooks(callback, "pytorch-accelerated", ACCELERATED_EVENTS, function)
    theirs = import_host_framework(
        "pytorch_accelerated.callbacks", "pytorch-accelerated", function, "pytorch-accelerated"
    )
    events = _AcceleratedEvents(callback, calls, theirs.StopTrainingError)
    kind = type(callback)
    methods: dict[str, Any] = {
        event: _event(getattr(events, event)) for event in set(ACCELERATED_EVENTS.values())
    }
    methods["__module__"] = kind.__module__
    # a class for each: their CallbackHandler refuses a second instance of a class
    return type(kind.__name__, (theirs.TrainerCallback,), methods)()


def _event(method: Callable[..., None]) -> Callable[..., None]:
    def event(self: Any, trainer: Any, **arguments: Any) -> None:  # noqa: ARG001
        method(trainer, arguments)

    return event


def _save_state_with_trainer(trainer: Any, callback: Callback) -> None:
    """Wrap a trainer's `save_training_state` and `load_training_state` to keep a callback's state.

    Its checkpoints hold no state of callbacks, and it fires no event when it saves.
    """
    save, load = trainer.save_training_state, trainer.load_training_state
    name = f"callback_{quote(callback.state_key, safe='')}.pt"

    def save_training_state(output_dir: Any, checkpoint_kwargs: Any = None) -> None:
        save(output_dir, checkpoint_kwargs)
        if trainer._accelerator.is_main_process:  # noqa: SLF001 - their way
            torch.save(callback.state_dict(), Path(output_dir, name))

    def load_training_state(input_dir: Any) -> Any:
        state = load(input_dir)
        if Path(input_dir, name).exists():
            callback.load_state_dict(torch.load(Path(input_dir, name), weights_only=True))
        return state

    trainer.save_training_state = save_training_state
    trainer.load_training_state = load_training_state


class _AcceleratedEvents:
    """The events of one exported callback: a method for each, which calls hooks of ours.

    A batch's step comes after the last event of the batch, so `on_train_batch_end` is called at the
    next event: the start of the next batch, or the end of the epoch.

    Args:
        callback: our callback.
        calls: the hooks that it overrides, with the function to call for each.
        stop_error: the exception that ends a run there.
    """

    def __init__(
        self, callback: Callback, calls: dict[str, Callable[..., object]], stop_error: type
    ) -> None:
        self._callback = callback
        self._calls = calls
        self._stop_error = stop_error
        self._trainer: Any = None
        self._is_fitting = False
        self._open_batch: tuple[Any, ...] = ()
        self._eval_batch_idx = 0
        self._logs = LogForwarder(self._record)

    # --- the run ---

    def on_init_end(self, trainer: Any, _: Any) -> None:
        """Call `on_init_end`, and keep the callback's state with the trainer's."""
        self._trainer = AcceleratedHostTrainer(trainer, self._callback)
        if ours(self._callback).is_stateful:
            _save_state_with_trainer(trainer, self._callback)
        if "on_init_end" in self._calls:
            self._calls["on_init_end"](self._trainer)

    def on_training_run_start(self, trainer: Any, _: Any) -> None:
        """Call the hooks of a fit's start."""
        self._start_run(trainer, "fit")
        self._is_fitting = True
        # their Trainer reads the attribute for its loop after this event
        if "on_train_batch_start" in self._calls:
            trainer._train_dataloader = RecordingLoader(trainer._train_dataloader)  # noqa: SLF001 - their way
        if "on_validation_batch_start" in self._calls and trainer._eval_dataloader is not None:  # noqa: SLF001
            trainer._eval_dataloader = RecordingLoader(trainer._eval_dataloader)  # noqa: SLF001
        self._call("on_fit_start")
        self._call("on_train_start")

    def on_training_run_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of a fit's end."""
        self._call("on_train_end")
        self._call("on_fit_end")
        self._call("teardown", "fit")
        self._is_fitting = False

    def on_evaluation_run_start(self, trainer: Any, _: Any) -> None:
        """Call the hooks of a test's start."""
        self._start_run(trainer, "test")
        if "on_test_batch_start" in self._calls:
            trainer._eval_dataloader = RecordingLoader(trainer._eval_dataloader)  # noqa: SLF001
        self._call("on_evaluation_run_start", "test")

    def on_evaluation_run_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of a test's end."""
        self._call("on_evaluation_run_end", "test")
        self._call("teardown", "test")

    def on_stop_training_error(self, _trainer: Any, _: Any) -> None:
        """Call `on_stop_training_error`; the batch that was open is not ended."""
        self._open_batch = ()
        self._call("on_stop_training_error", StopTraining(self._trainer.stop_reason))

    # --- an epoch ---

    def on_train_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Call `on_train_epoch_start`."""
        self._call("on_train_epoch_start")

    def on_train_step_start(self, trainer: Any, _: Any) -> None:
        """Call the hooks of the batch before's end and of a batch's start."""
        self._end_batch()
        self._stop_if_requested()
        if "on_train_batch_start" in self._calls:
            loader = trainer._train_dataloader  # noqa: SLF001
            if self._call("on_train_batch_start", loader.batch, loader.batch_idx):
                self._stop_if_requested()

    def on_train_step_end(self, _trainer: Any, arguments: dict[str, Any]) -> None:
        """Call `on_before_backward`, and keep the arguments of `on_train_batch_end`."""
        output = arguments["batch_output"]
        self._call("on_before_backward", output["loss"])
        # detached: kept until the next event, the loss would hold the graph of the batch
        outputs = {"loss": output["loss"].detach()}
        self._open_batch = (outputs, arguments["batch"], arguments["step"])

    def on_train_epoch_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of the last batch's end."""
        self._end_batch()
        self._call("on_train_batches_end")

    def on_training_run_epoch_end(self, _trainer: Any, _: Any) -> None:
        """Call `on_train_epoch_end`, after the epoch's validation."""
        self._call("on_train_epoch_end")
        self._stop_if_requested()

    # --- an evaluation ---

    def on_eval_epoch_start(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of an evaluation's start."""
        self._eval_batch_idx = 0
        self._call_evaluation("start")
        self._call_evaluation("epoch_start")

    def on_eval_step_start(self, trainer: Any, _: Any) -> None:
        """Call the hook of an evaluation batch's start."""
        if f"on_{self._stage}_batch_start" in self._calls:
            loader = trainer._eval_dataloader  # noqa: SLF001
            self._call_evaluation("batch_start", loader.batch, self._eval_batch_idx)

    def on_eval_step_end(self, _trainer: Any, arguments: dict[str, Any]) -> None:
        """Call the hook of an evaluation batch's end."""
        outputs, batch = arguments["batch_output"], arguments["batch"]
        self._call_evaluation("batch_end", outputs, batch, self._eval_batch_idx)
        self._eval_batch_idx += 1

    def on_eval_epoch_end(self, _trainer: Any, _: Any) -> None:
        """Call the hooks of an evaluation's end."""
        self._call_evaluation("epoch_end")
        self._call_evaluation("end")

    # --- inside ---

    _stage = property(lambda self: "validation" if self._is_fitting else "test")

    def _start_run(self, trainer: Any, stage: str) -> None:
        self._trainer = AcceleratedHostTrainer(trainer, self._callback)
        self._open_batch = ()
        ours(self._callback).attach_module(self._logs)
        self._call("setup", stage)

    def _end_batch(self) -> None:
        arguments, self._open_batch = self._open_batch, ()
        if arguments:
            self._call("on_train_batch_end", *arguments)

    def _call_evaluation(self, name: str, *arguments: Any) -> None:
        self._call(f"on_{self._stage}_{name}", *arguments)

    def _call(self, hook: str, *arguments: Any) -> bool:
        """Call a hook; return whether it raised `StopTraining`."""
        call = self._calls.get(hook)
        if call is None:
            return False
        try:
            call(self._trainer, self._trainer.module, *arguments)
        except StopTraining as request:
            # not raised here: their Trainer catches its StopTrainingError inside an epoch only
            self._trainer.stop(str(request))
            return True
        return False

    def _stop_if_requested(self) -> None:
        if self._trainer.should_stop:
            raise self._stop_error(self._trainer.stop_reason)

    def _record(self, name: str, value: float) -> None:
        self._trainer.run_history.update_metric(name, value)
