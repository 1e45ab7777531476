"""Trainer: pytorch-accelerated's Trainer as a subclass of the one of trainer_hooks."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch.utils.data import DataLoader

from trainer_hooks.adapters.pytorch_accelerated.callback_handler import (
    TrainerCallbackHandler,
    as_callback,
)
from trainer_hooks.adapters.pytorch_accelerated.events import EVENTS
from trainer_hooks.adapters.pytorch_accelerated.gathering import gather_rows
from trainer_hooks.adapters.pytorch_accelerated.trainer_proxy import load_states
from trainer_hooks.callbacks import Checkpoint, ProgressBar
from trainer_hooks.compat.accelerated.callbacks.batch_limits import LimitBatchesCallback
from trainer_hooks.compat.accelerated.callbacks.built_in import get_default_callbacks
from trainer_hooks.compat.accelerated.loss_tracker import LossTracker
from trainer_hooks.compat.accelerated.run_config import (
    TrainerPlaceholderValues,
    TrainerRunConfig,
    fill_placeholders,
)
from trainer_hooks.compat.accelerated.utils import LIMIT_BATCHES_ENV_VAR
from trainer_hooks.compat.not_offered import not_offered_attribute
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.module.module import Module
from trainer_hooks.trainer.trainer import Trainer as BaseTrainer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor, nn

    from trainer_hooks.callback import Callback

__all__ = ["DEFAULT_CALLBACKS", "ModelModule", "Trainer", "TrainerPlaceholderValues"]


class ModelModule(Module):
    """Module around the user's model, which calls the trainer's method for each part of a step.

    Args:
        model: the user's model.
        tracker: the callback that records the losses.
    """

    def __init__(self, model: nn.Module, tracker: LossTracker) -> None:
        super().__init__()
        self.model = model
        self._tracker = [tracker]  # in a list, since a callback is no part of a module

    def forward(self, batch: Any) -> Any:
        """Run the model on a batch."""
        return self.model(batch)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the result of `trainer.calculate_train_batch_loss`, and keep it for callbacks."""
        trainer = self.trainer
        trainer.batch_output = trainer.calculate_train_batch_loss(batch)
        return trainer.batch_output

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the result of `trainer.calculate_eval_batch_loss`."""
        return self.trainer.calculate_eval_batch_loss(batch)

    def configure_optimizers(self) -> Any:
        """Return the trainer's optimizer, with its scheduler if there is one."""
        optimizer, scheduler = self.trainer.optimizer, self.trainer.scheduler
        if scheduler is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients with `trainer.backward_step`, of the loss that callbacks left."""
        trainer = self.trainer
        if trainer.handed_loss is loss:  # callbacks had it in their `batch_output`
            loss, trainer.handed_loss = trainer.batch_output["loss"], None
        trainer.backward_step(loss)

    def on_after_backward(self) -> None:
        """Clip the gradients, after each batch."""
        # as there, also inside a window, whose gradients are clipped once for each of its batches
        if self.trainer.run_config.gradient_clip_value is not None:
            self.trainer._clip_gradients()  # noqa: SLF001 - a subclass there may override it

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step the scheduler with `trainer.scheduler_step`."""
        self.trainer.scheduler_step()

    def on_validation_batch_end(
        self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log the loss of a validation in which the tracker takes no part (`validate_again`)."""
        if not self._tracker[0].is_evaluating:
            size = outputs["batch_size"]
            self.log("eval_loss_epoch", outputs["loss"], on_epoch=True, batch_size=size)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the entries of pytorch-accelerated's checkpoint files, under its names."""
        trainer = self.trainer
        checkpoint["model_state_dict"] = self.model.state_dict()
        if "optimizer_states" in checkpoint:  # not among weights alone
            checkpoint["optimizer_state_dict"] = trainer.optimizer.state_dict()
            if trainer.scheduler is not None:
                checkpoint["scheduler_state_dict"] = trainer.scheduler.state_dict()
        checkpoint.update(trainer.checkpoint_kwargs)


def default_loader_arguments(batch_size: int, *, shuffle: bool) -> dict[str, Any]:
    """Return the default arguments of a loader.

    Args:
        batch_size: samples of a batch.
        shuffle: whether the samples are shuffled.
    """
    has_cuda = torch.cuda.is_available()
    cpus = os.cpu_count() or 1
    # there is a process for each GPU, and each has its own workers
    workers = cpus // torch.cuda.device_count() if has_cuda else cpus
    return {
        "shuffle": shuffle,
        "pin_memory": has_cuda,
        "batch_size": batch_size,
        "num_workers": max(workers, 1),
    }


def complete_loader_arguments(
    defaults: Mapping[str, Any], given: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the user's arguments of a loader, with defaults for the others."""
    arguments = {**defaults, **(given or {})}
    if given is not None and "sampler" in given:
        arguments.pop("shuffle", None)  # which DataLoader refuses beside a sampler
    return arguments


DEFAULT_CALLBACKS: tuple[type[Callback], ...] = get_default_callbacks()
"""The callbacks of a Trainer for which none are passed."""

_STATE_FILE = "state.ckpt"
"""The file in a folder of `save_training_state`."""

_NOT_OFFERED = {"load_training_state": "pass the folder to train(resume_from=...)"}

_KEPT_IN_A_RUN = {
    "optimizer": "Change its param_groups in place, or pass the other one to Trainer",
    "scheduler": "Override create_scheduler, or pass create_scheduler_fn to train",
    "_train_dataloader": "Override create_train_dataloader",
    "_eval_dataloader": "Override create_eval_dataloader",
}
"""Attributes that a run reads as it begins, with the place for another value."""


class Trainer(BaseTrainer):
    """Train a model with a loss function and an optimizer on data sets.

    Methods such as `train_epoch_end` and `calculate_train_batch_loss` may be overridden, and may
    call those of this class. Everything that `trainer_hooks.Trainer` has is there too.

    Args:
        model: the model to train.
        loss_func: returns the loss of the model's outputs and the targets.
        optimizer: an optimizer of the model's parameters.
        callbacks: instances or classes, in place of the default ones.
        run_history: None; the history is the trainer's own.
        scheduler: a scheduler of the optimizer, which steps after each of its steps.

    Raises:
        OptionError: `run_history` is not None.
        CallbackError: one of `callbacks` is none.
    """

    _validates_after_stop: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        loss_func: Callable[..., Tensor] | None,
        optimizer: Any,
        callbacks: Iterable[Callback | type[Callback]] = DEFAULT_CALLBACKS,
        run_history: None = None,
        scheduler: Any = None,
    ) -> None:
        if run_history is not None:
            raise OptionError(
                f"run_history {run_history!r} of Trainer: the history is the trainer's own. Leave "
                "it out, and send metrics elsewhere with log_metrics of PrintMetricsCallback."
            )
        self.model = model
        # these are set before super().__init__, which fires on_init_end: callbacks read them there
        self.loss_func = loss_func
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.create_scheduler_fn: Callable[..., Any] | None = None
        self.collate_fn: Callable[[Any], Any] | None = None
        self.train_dataset: Any = None
        self.eval_dataset: Any = None
        self.run_config: TrainerRunConfig | None = None
        self.batch_output: dict[str, Any] | None = None
        self.handed_loss: Tensor | None = None  # that of the backward, once callbacks have had it
        self.checkpoint_kwargs: Mapping[str, Any] = {}
        self._train_dataloader: Any = None
        self._eval_dataloader: Any = None
        self._train_dl_kwargs: dict[str, Any] | None = None
        self._eval_dl_kwargs: dict[str, Any] | None = None
        self._tracker = LossTracker()
        instances = [*_limits(), *(as_callback(callback) for callback in callbacks)]
        super().__init__(
            callbacks=[self._tracker, *instances],
            # each call of train() sets its own
            max_epochs=1,
            logger=False,
            log_every_n_steps=1,
            # there is none there
            num_sanity_val_steps=0,
            enable_model_summary=False,
            # as there, a list of callbacks takes the place of the default ones
            enable_progress_bar=any(isinstance(callback, ProgressBar) for callback in instances),
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in instances),
        )
        # their methods run before the callbacks' hooks, whatever the callbacks' bands
        label = f"trainer {type(self).__qualname__}"
        self._core.connector.lead(_overridden_events(self), label)

    # --- runs ---

    def train(
        self,
        train_dataset: Any,
        num_epochs: int,
        eval_dataset: Any = None,
        per_device_batch_size: int = 8,
        max_num_train_steps: int | None = None,
        gradient_accumulation_steps: int = 1,
        gradient_clip_value: float | None = None,
        create_scheduler_fn: Callable[..., Any] | None = None,
        train_dataloader_kwargs: Mapping[str, Any] | None = None,
        eval_dataloader_kwargs: Mapping[str, Any] | None = None,
        reset_run_history: bool = True,
        collate_fn: Callable[[Any], Any] | None = None,
        resume_from: str | os.PathLike[str] | None = None,
    ) -> None:
        """Train for some epochs, and evaluate after each if there is something to evaluate on.

        Args:
            train_dataset: the data set to train on.
            num_epochs: number of epochs.
            eval_dataset: the data set to evaluate on, or None.
            per_device_batch_size: samples of a batch of one process.
            max_num_train_steps: maximum number of steps, in place of `num_epochs`.
            gradient_accumulation_steps: batches of a step.
            gradient_clip_value: bound on the entries of a gradient, applied after each batch.
            create_scheduler_fn: makes a scheduler of the optimizer, which steps after each step.
            train_dataloader_kwargs: arguments of the training loader.
            eval_dataloader_kwargs: arguments of the evaluation loader.
            reset_run_history: whether the history begins anew.
            collate_fn: makes a batch of samples.
            resume_from: a checkpoint, or a folder of `save_training_state`, to resume.
        """
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.create_scheduler_fn, self.collate_fn = create_scheduler_fn, collate_fn
        self._train_dataloader = self._with_device(
            self.create_train_dataloader(per_device_batch_size, train_dataloader_kwargs)
        )
        if eval_dataset is not None:
            self._eval_dataloader = self._with_device(
                self.create_eval_dataloader(per_device_batch_size, eval_dataloader_kwargs)
            )
        self.run_config = self._create_run_config(
            per_device_batch_size,
            num_epochs,
            gradient_accumulation_steps,
            max_num_train_steps,
            gradient_clip_value,
        )
        # after the run config, which has the numbers for its placeholders
        if create_scheduler_fn is not None:
            self.scheduler = self.create_scheduler()
        self.max_epochs = self.run_config.num_epochs
        self.max_steps = -1 if max_num_train_steps is None else max_num_train_steps
        self.accumulate_grad_batches = gradient_accumulation_steps
        # a fit begins with an empty history; that of a resume comes from the checkpoint
        if not reset_run_history and resume_from is None:
            self._tracker.former = self.run_history.state_dict()
            self._tracker.former_epochs = self.run_history.current_epoch - 1
        self.fit(
            self._make_module(),
            self._train_dataloader,
            None if eval_dataset is None else self._eval_dataloader,
            ckpt_path=None if resume_from is None else _file_of(resume_from),
        )

    def evaluate(
        self,
        dataset: Any = None,
        per_device_batch_size: int = 8,
        dataloader_kwargs: Mapping[str, Any] | None = None,
        collate_fn: Callable[[Any], Any] | None = None,
    ) -> None:
        """Reset the history, evaluate a data set, and record `evaluation_loss`."""
        self.eval_dataset, self.collate_fn = dataset, collate_fn
        self.run_history.reset()
        # as there, the history begins anew with its epochs, too
        self.run_history.epochs_before -= self.run_history.current_epoch - 1
        self._train_dataloader = None
        self._eval_dataloader = self._with_device(
            self.create_eval_dataloader(per_device_batch_size, dataloader_kwargs)
        )
        self.run_config = self._create_run_config(per_device_batch_size, 1, 1, None, None)
        self.validate(self._make_module(), self._eval_dataloader, verbose=False)

    # --- loaders, scheduler and module of a run ---

    def get_default_train_dl_kwargs(self, batch_size: int) -> dict[str, Any]:
        """Return the default arguments of the training loader."""
        return default_loader_arguments(batch_size, shuffle=True)

    def get_default_eval_dl_kwargs(self, batch_size: int) -> dict[str, Any]:
        """Return the default arguments of the evaluation loader."""
        return default_loader_arguments(batch_size, shuffle=False)

    def create_train_dataloader(
        self, batch_size: int, train_dl_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the loader of `self.train_dataset`."""
        defaults = self.get_default_train_dl_kwargs(batch_size)
        self._train_dl_kwargs = complete_loader_arguments(defaults, train_dl_kwargs)
        return DataLoader(self.train_dataset, collate_fn=self.collate_fn, **self._train_dl_kwargs)

    def create_eval_dataloader(
        self, batch_size: int, eval_dl_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the loader of `self.eval_dataset`."""
        defaults = self.get_default_eval_dl_kwargs(batch_size)
        self._eval_dl_kwargs = complete_loader_arguments(defaults, eval_dl_kwargs)
        return DataLoader(self.eval_dataset, collate_fn=self.collate_fn, **self._eval_dl_kwargs)

    def create_scheduler(self) -> Any:
        """Return the scheduler made by `create_scheduler_fn`, with its placeholders filled in."""
        assert self.create_scheduler_fn is not None
        return fill_placeholders(self, self.create_scheduler_fn)(self.optimizer)

    def loader_length(self, stage: str) -> int:
        """Return the number of batches for one process of the loader of `"train"` or `"eval"`."""
        loader = self._train_dataloader if stage == "train" else self._eval_dataloader
        # the loader is still whole here: it is sharded when the fit begins
        return math.ceil(len(loader) / self.world_size)

    def _create_run_config(
        self,
        per_device_batch_size: int,
        num_epochs: int,
        gradient_accumulation_steps: int,
        max_num_train_steps: int | None,
        gradient_clip_value: float | None,
    ) -> TrainerRunConfig:
        train, evaluated = self._train_dl_kwargs or {}, self._eval_dl_kwargs or {}
        size = train.get("batch_size", per_device_batch_size)
        eval_size = evaluated.get("batch_size", size)
        steps = local_steps = 0
        if self._train_dataloader is not None:
            local_batches = self.loader_length("train")
            steps = math.ceil(local_batches * self.world_size / gradient_accumulation_steps)
            local_steps = math.ceil(local_batches / gradient_accumulation_steps)
        if max_num_train_steps is None:
            # one more than the epochs have, as there: reaching the number would end the run early
            most = num_epochs * steps + 1
        else:
            most, num_epochs = max_num_train_steps, math.ceil(max_num_train_steps / steps)
        return TrainerRunConfig(
            num_epochs=num_epochs,
            train_per_device_batch_size=size,
            train_dl_kwargs=self._train_dl_kwargs,
            eval_per_device_batch_size=eval_size,
            eval_dl_kwargs=self._eval_dl_kwargs,
            gradient_accumulation_steps=gradient_accumulation_steps,
            gradient_clip_value=gradient_clip_value,
            train_total_batch_size=size * self.world_size * gradient_accumulation_steps,
            eval_total_batch_size=eval_size * self.world_size,
            num_update_steps_per_epoch=steps,
            num_local_update_steps_per_epoch=local_steps,
            max_num_train_steps=most,
            is_local_process_zero=self.local_rank == 0,
            is_world_process_zero=self.is_global_zero,
            is_distributed=self.world_size > 1,
            mixed_precision="no",
            num_processes=self.world_size,
        )

    def _with_device(self, loader: Any) -> Any:
        """Set the attribute `device` of a loader, which callbacks there read, and return it."""
        # loaders there are accelerate's, which have it
        loader.device = self.device
        return loader

    def _make_module(self) -> ModelModule:
        """Return the module of the next run; a new one, so that the training does not continue."""
        module = ModelModule(self.model, self._tracker)
        # only those that are overridden: a module with its own runs as a slower kind of step
        if type(self).optimizer_step is not Trainer.optimizer_step:
            module.optimizer_step = self._step_overridden  # type: ignore[method-assign]
        if type(self).optimizer_zero_grad is not Trainer.optimizer_zero_grad:
            module.optimizer_zero_grad = lambda *_: self.optimizer_zero_grad()  # type: ignore[method-assign]
        return module

    # --- methods for a subclass to override; each runs before the callbacks' hook of its name ---

    def training_run_start(self) -> None:
        """Override it to act when a training begins."""

    def train_epoch_end(self) -> None:
        """Override it to act after an epoch's last batch, before its evaluation."""

    def eval_epoch_end(self) -> None:
        """Override it to act when an evaluation ends."""

    def training_run_epoch_end(self) -> None:
        """Override it to act after an epoch and its evaluation."""

    def training_run_end(self) -> None:
        """Override it to act when a training ends."""

    def evaluation_run_start(self) -> None:
        """Override it to act when a call of `evaluate` begins."""

    def evaluation_run_end(self) -> None:
        """Override it to act when a call of `evaluate` ends."""

    def train_epoch_start(self) -> None:
        """Put the model into training mode."""
        self.model.train()

    def eval_epoch_start(self) -> None:
        """Put the model into evaluation mode."""
        self.model.eval()

    def calculate_train_batch_loss(self, batch: Any) -> dict[str, Any]:
        """Return the `loss` of a training batch, with `model_outputs` and `batch_size`."""
        inputs, targets = batch[0], batch[1]
        outputs = self.model(inputs)
        return {
            "loss": self._loss(outputs, targets),
            "model_outputs": outputs,
            "batch_size": targets.size(0),
        }

    def calculate_eval_batch_loss(self, batch: Any) -> dict[str, Any]:
        """Return the `loss` of an evaluation batch, with `model_outputs` and `batch_size`."""
        with torch.no_grad():
            # not self's: a subclass may override the training's loss alone
            return Trainer.calculate_train_batch_loss(self, batch)

    def backward_step(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, already divided by the batches of a step."""
        loss.backward()  # type: ignore[no-untyped-call]

    def optimizer_step(self) -> None:
        """Step the optimizer."""
        self.optimizer.step()

    def scheduler_step(self) -> None:
        """Step the scheduler, after a step of the optimizer."""
        if self.scheduler is not None:
            self.scheduler.step()

    def optimizer_zero_grad(self) -> None:
        """Clear the gradients, before the first batch of the next step."""
        self.optimizer.zero_grad()

    def _clip_gradients(self) -> None:
        assert self.run_config is not None
        assert self.run_config.gradient_clip_value is not None
        torch.nn.utils.clip_grad_value_(
            self.model.parameters(), self.run_config.gradient_clip_value
        )

    def _loss(self, outputs: Any, targets: Any) -> Tensor:
        if self.loss_func is None:
            raise UsageError(
                "loss_func None of Trainer: a loss is to be calculated with it. Pass one, or "
                "override calculate_train_batch_loss and calculate_eval_batch_loss."
            )
        return self.loss_func(outputs, targets)

    def _step_overridden(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None
    ) -> None:
        """Step with the overridden `optimizer_step`, on the wrapper that counts optimizer steps."""
        # it computes the gradients, and the overridden method takes no closure
        optimizer_closure()
        attributes = vars(self)  # past the check for users
        before, attributes["optimizer"] = self.optimizer, optimizer
        try:
            self.optimizer_step()
        finally:
            attributes["optimizer"] = before

    @property
    def callback_handler(self) -> TrainerCallbackHandler:
        """The callbacks, and events of the user's own."""
        return TrainerCallbackHandler(self, hidden=(LossTracker,))

    # --- the model, and files ---

    @property
    def model(self) -> Any:
        """The user's model."""
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        self._model = model

    def get_model(self, keep_torch_compile: bool = True) -> nn.Module:
        """Return the model; without `keep_torch_compile` the one before `torch.compile`."""
        model: nn.Module = self.model
        # where torch.compile keeps the module that it wraps
        return model if keep_torch_compile else getattr(model, "_orig_mod", model)

    @property
    def _accelerator(self) -> SimpleNamespace:
        """The few things that programs take from accelerate's Accelerator."""
        return SimpleNamespace(
            device=self.device,
            gather=self.gather,
            is_local_main_process=self.local_rank == 0,
            is_main_process=self.is_global_zero,
            num_processes=self.world_size,
            process_index=self.global_rank,
            local_process_index=self.local_rank,
            is_last_process=self.global_rank == self.world_size - 1,
            use_distributed=self.world_size > 1,
            wait_for_everyone=self.strategy.barrier,
            # the user's model is never wrapped by the strategy
            unwrap_model=lambda model, keep_torch_compile=True: (
                model if keep_torch_compile else getattr(model, "_orig_mod", model)
            ),
        )

    def gather(self, tensor: Any, padding_value: float | None = None) -> Any:
        """Return the rows of all processes, one process below another.

        Args:
            tensor: a tensor of shape (rows, ...), or a nesting of such.
            padding_value: rows that hold this value alone are left out; None to leave out none.
        """
        return gather_rows(self.strategy, tensor, padding_value)

    def save_checkpoint(
        self,
        save_path: str | os.PathLike[str],
        checkpoint_kwargs: Mapping[str, Any] | bool | None = None,
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        save_per_node: bool = True,
    ) -> None:
        """Write a checkpoint, whole or not at all, with pytorch-accelerated's names in it.

        Args:
            save_path: the file.
            checkpoint_kwargs: further entries of the file; the savers of trainer_hooks pass
                `weights_only`, a bool, in this position.
            save_optimizer: whether the file holds the optimizer, and can be resumed from.
            save_scheduler: without effect: the scheduler is saved with the optimizer.
            save_per_node: without effect; rank 0 writes the file.
        """
        del save_per_node, save_scheduler
        if isinstance(checkpoint_kwargs, bool):
            super().save_checkpoint(save_path, checkpoint_kwargs)
            return
        self.checkpoint_kwargs = checkpoint_kwargs or {}
        try:
            super().save_checkpoint(save_path, not save_optimizer)
        finally:
            self.checkpoint_kwargs = {}

    def load_checkpoint(
        self,
        checkpoint_path: str | os.PathLike[str],
        load_optimizer: bool = True,
        load_scheduler: bool = True,
    ) -> dict[str, Any]:
        """Load the weights and, if asked for, optimizer and scheduler; return the contents."""
        return load_states(
            checkpoint_path,
            self.get_model(keep_torch_compile=False),
            self.optimizer if load_optimizer else None,
            self.scheduler if load_scheduler else None,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; one that a run reads as it begins can be set between runs alone."""
        core = vars(self).get("_core")
        if name in _KEPT_IN_A_RUN and core is not None and core.fn is not None:
            raise UsageError(
                f"trainer.{name} = {type(value).__qualname__} in a run under way: the run keeps "
                f"the one that it began with. {_KEPT_IN_A_RUN[name]}."
            )
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise an error for an unknown member; it names a replacement for one of theirs."""
        raise not_offered_attribute(self, name, _NOT_OFFERED)

    def save_training_state(
        self, output_dir: str | os.PathLike[str], checkpoint_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Write a checkpoint for `train(resume_from=output_dir)` into a folder."""
        self.save_checkpoint(Path(output_dir) / _STATE_FILE, checkpoint_kwargs)


def _limits() -> list[Callback]:
    """Return the callback that the environment asks for, as in `LimitBatches`.

    Raises:
        OptionError: the variable is neither a whole number of at least 1 nor `none`.
    """
    limit = os.environ.get(LIMIT_BATCHES_ENV_VAR, "none")
    if limit.lower() == "none":
        return []
    try:
        return [LimitBatchesCallback(int(limit))]
    except ValueError:
        raise OptionError(
            f"{LIMIT_BATCHES_ENV_VAR}={limit!r} in the environment: it must be a whole number of "
            "at least 1, or none. Set it to the number of batches of each epoch, or unset it."
        ) from None


def _file_of(path: str | os.PathLike[str]) -> Path:
    """Return a checkpoint's path: a file, or the one in a folder of `save_training_state`."""
    return Path(path) / _STATE_FILE if Path(path).is_dir() else Path(path)


# the two that Trainer itself defines; the others are called only where a subclass overrides them
_DEFINED = frozenset({"train_epoch_start", "eval_epoch_start"})
_METHODS = _DEFINED | {
    "training_run_start", "train_epoch_end", "eval_epoch_end", "training_run_epoch_end",
    "training_run_end", "evaluation_run_start", "evaluation_run_end",
}  # fmt: skip


def _overridden_events(trainer: Trainer) -> SimpleNamespace:
    """Return a trainer's methods for events as an implementer of our hooks."""
    calls = {}
    for hook, event in EVENTS.items():
        name = event.removeprefix("on_")
        is_overridden = getattr(type(trainer), name, None) is not getattr(Trainer, name, None)
        if name in _DEFINED or (name in _METHODS and is_overridden):
            calls[hook] = _event_call(trainer, getattr(trainer, name), name)
    return SimpleNamespace(**calls)


def _event_call(trainer: Trainer, method: Callable[[], None], name: str) -> Callable[..., None]:
    def call(*_: Any) -> None:
        # a sanity check is no evaluation there
        if not (name.startswith("eval_") and trainer.sanity_checking):
            method()

    return call
