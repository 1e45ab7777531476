"""Trainer: pytorch-accelerated's, over the one of trainer_hooks."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks import (
    Checkpoint,
    MoveModulesToDeviceCallback,
    PrintMetricsCallback,
    PrintProgressCallback,
    ProgressBar,
)
from trainer_hooks.compat.accelerated.callback_handler import as_callback
from trainer_hooks.compat.accelerated.callbacks.progress_bar_callback import ProgressBarCallback
from trainer_hooks.compat.accelerated.callbacks.terminate_on_nan import TerminateOnNaNCallback
from trainer_hooks.compat.accelerated.loaders import (
    default_arguments,
    loader_of,
    steps_of,
    with_defaults,
)
from trainer_hooks.compat.accelerated.loss_tracker import LossTracker
from trainer_hooks.compat.accelerated.model_module import ModelModule
from trainer_hooks.compat.accelerated.placeholders import TrainerPlaceholderValues, filled_in
from trainer_hooks.compat.accelerated.run_config import TrainerRunConfig
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.trainer import Trainer as OneTrainer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor, nn

    from trainer_hooks.callback import Callback

__all__ = ["DEFAULT_CALLBACKS", "Trainer", "TrainerPlaceholderValues"]

DEFAULT_CALLBACKS: tuple[type[Callback], ...] = (
    MoveModulesToDeviceCallback,
    TerminateOnNaNCallback,
    PrintProgressCallback,
    ProgressBarCallback,
    PrintMetricsCallback,
)
"""What takes part unless `callbacks` says otherwise."""
_STATE = "state.ckpt"


class Trainer(OneTrainer):
    """Train a model with a loss function and an optimizer on data sets.

    Methods such as `train_epoch_end` and `calculate_train_batch_loss` may be overridden, and may
    call those of this class. Everything that `trainer_hooks.Trainer` has is there too.

    Args:
        model: what is trained.
        loss_func: gives the loss of the model's outputs and the targets.
        optimizer: of the model's parameters.
        callbacks: instances or classes, in the place of the default ones.
        run_history: None; the history is the trainer's own.
        scheduler: a scheduler of the optimizer, which steps after each of its steps.

    Raises:
        OptionError: `run_history` is not None.
        CallbackError: one of `callbacks` is none.
    """

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
        self.loss_func = loss_func
        self.optimizer = optimizer
        self.scheduler = scheduler
        self.create_scheduler_fn: Callable[..., Any] | None = None
        self.collate_fn: Callable[[Any], Any] | None = None
        self.train_dataset: Any = None
        self.eval_dataset: Any = None
        self.run_config: TrainerRunConfig | None = None
        self.batch_output: dict[str, Any] | None = None
        self.checkpoint_kwargs: Mapping[str, Any] = {}
        self._train_dataloader: Any = None
        self._eval_dataloader: Any = None
        self._train_dl_kwargs: dict[str, Any] | None = None
        self._eval_dl_kwargs: dict[str, Any] | None = None
        self._tracker = LossTracker()
        made = [as_callback(callback) for callback in callbacks]
        super().__init__(
            callbacks=[self._tracker, *made],
            max_epochs=1,
            logger=False,
            log_every_n_steps=1,
            num_sanity_val_steps=0,
            enable_model_summary=False,
            enable_progress_bar=any(isinstance(one, ProgressBar) for one in made),
            enable_checkpointing=any(isinstance(one, Checkpoint) for one in made),
        )

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
            train_dataset: what to train on.
            num_epochs: for how many epochs.
            eval_dataset: what to evaluate on.
            per_device_batch_size: samples of a batch.
            max_num_train_steps: at most so many steps; it takes the place of `num_epochs`.
            gradient_accumulation_steps: batches of a step.
            gradient_clip_value: the largest entry that a gradient may have after a batch.
            create_scheduler_fn: makes a scheduler of the optimizer, which steps after each step.
            train_dataloader_kwargs: arguments of the training loader.
            eval_dataloader_kwargs: arguments of the evaluation loader.
            reset_run_history: whether the history begins anew.
            collate_fn: makes a batch of samples.
            resume_from: a checkpoint, or a folder of `save_training_state`, to go on from.
        """
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.create_scheduler_fn, self.collate_fn = create_scheduler_fn, collate_fn
        self._train_dataloader = self._here(
            self.create_train_dataloader(per_device_batch_size, train_dataloader_kwargs)
        )
        if eval_dataset is not None:
            self._eval_dataloader = self._here(
                self.create_eval_dataloader(per_device_batch_size, eval_dataloader_kwargs)
            )
        self.run_config = self._create_run_config(
            per_device_batch_size,
            num_epochs,
            gradient_accumulation_steps,
            max_num_train_steps,
            gradient_clip_value,
        )
        if create_scheduler_fn is not None:
            self.scheduler = self.create_scheduler()
        self.max_epochs = self.run_config.num_epochs
        self.max_steps = -1 if max_num_train_steps is None else max_num_train_steps
        self.accumulate_grad_batches = gradient_accumulation_steps
        if not reset_run_history and resume_from is None:
            self._tracker.former = self.run_history.state_dict()
        self.fit(
            self._module(),
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
        """Evaluate; the history begins anew and gets `evaluation_loss`."""
        self.eval_dataset, self.collate_fn = dataset, collate_fn
        self.run_history.reset()
        self._train_dataloader = None
        self._eval_dataloader = self._here(
            self.create_eval_dataloader(per_device_batch_size, dataloader_kwargs)
        )
        self.run_config = self._create_run_config(per_device_batch_size, 1, 1, None, None)
        self.validate(self._module(), self._eval_dataloader, verbose=False)

    # --- what a run is made of ---

    def get_default_train_dl_kwargs(self, batch_size: int) -> dict[str, Any]:
        """Return what the training loader is made with unless told otherwise."""
        return default_arguments(batch_size, shuffle=True)

    def get_default_eval_dl_kwargs(self, batch_size: int) -> dict[str, Any]:
        """Return what the evaluation loader is made with unless told otherwise."""
        return default_arguments(batch_size, shuffle=False)

    def create_train_dataloader(
        self, batch_size: int, train_dl_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the loader of `self.train_dataset`."""
        defaults = self.get_default_train_dl_kwargs(batch_size)
        self._train_dl_kwargs = with_defaults(defaults, train_dl_kwargs)
        return loader_of(self.train_dataset, self.collate_fn, self._train_dl_kwargs)

    def create_eval_dataloader(
        self, batch_size: int, eval_dl_kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the loader of `self.eval_dataset`."""
        defaults = self.get_default_eval_dl_kwargs(batch_size)
        self._eval_dl_kwargs = with_defaults(defaults, eval_dl_kwargs)
        return loader_of(self.eval_dataset, self.collate_fn, self._eval_dl_kwargs)

    def create_scheduler(self) -> Any:
        """Return what `create_scheduler_fn` makes of the optimizer, its placeholders filled in."""
        assert self.create_scheduler_fn is not None
        return filled_in(self, self.create_scheduler_fn)(self.optimizer)

    def loader_length(self, stage: str) -> int:
        """Return the batches of the loader of `"train"` or `"eval"`, of one process."""
        loader = self._train_dataloader if stage == "train" else self._eval_dataloader
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
            batches = len(self._train_dataloader)
            steps, local_steps = steps_of(batches, self.world_size, gradient_accumulation_steps)
        if max_num_train_steps is None:
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

    def _here(self, loader: Any) -> Any:
        """Return a loader that says to which device its batches go."""
        loader.device = self.device
        return loader

    def _module(self) -> ModelModule:
        """Return what the next run is of; a new one, so that a training begins anew."""
        assert self.run_config is not None
        kind = type(self)
        return ModelModule(
            self.model,
            self._tracker,
            None if self.run_config.gradient_clip_value is None else self._clip_gradients,
            None if kind.optimizer_step is Trainer.optimizer_step else self._step_with,
            None if kind.optimizer_zero_grad is Trainer.optimizer_zero_grad else self._clear,
        )

    # --- what a subclass may override besides; a run calls each ---

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
            return Trainer.calculate_train_batch_loss(self, batch)

    def backward_step(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, which is divided if they accumulate."""
        loss.backward()  # type: ignore[no-untyped-call]

    def optimizer_step(self) -> None:
        """Make a step."""
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

    def _own_steps(self) -> dict[str, Callable[[Any], Any]]:
        return {"train": self._train_batch, "eval": self.calculate_eval_batch_loss}

    def _train_batch(self, batch: Any) -> dict[str, Any]:
        self.batch_output = self.calculate_train_batch_loss(batch)
        return self.batch_output

    def _step_with(self, optimizer: Any) -> None:
        """Make a step by the method that is overridden, with the optimizer that counts it."""
        kept, self.optimizer = self.optimizer, optimizer
        try:
            self.optimizer_step()
        finally:
            self.optimizer = kept

    def _clear(self) -> None:
        self.optimizer_zero_grad()

    # --- the model, and files ---

    @property
    def model(self) -> Any:
        """The user's model."""
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        self._model = model

    def get_model(self, keep_torch_compile: bool = True) -> nn.Module:
        """Return the model, and without `keep_torch_compile` what was compiled."""
        model: nn.Module = self.model
        return model if keep_torch_compile else getattr(model, "_orig_mod", model)

    def gather(self, tensor: Tensor, padding_value: Any = None) -> Tensor:
        """Return a tensor of all processes, one after another along the first dimension.

        Raises:
            UsageError: there are several processes; see what is said.
        """
        if self.world_size > 1:
            raise UsageError(
                f"gather(...) in {self.world_size} processes, padding_value={padding_value!r}: use "
                "trainer.module.all_gather(tensor), which returns one of each process."
            )
        return tensor

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
            save_path: where.
            checkpoint_kwargs: what is in it besides; the savers of trainer_hooks pass whether only
                weights are.
            save_optimizer: whether it can be resumed from.
            save_scheduler: likewise; one of the two is enough.
            save_per_node: without effect; the first process writes it.
        """
        del save_per_node
        if isinstance(checkpoint_kwargs, bool):
            super().save_checkpoint(save_path, checkpoint_kwargs)
            return
        self.checkpoint_kwargs = checkpoint_kwargs or {}
        try:
            super().save_checkpoint(save_path, not (save_optimizer or save_scheduler))
        finally:
            self.checkpoint_kwargs = {}

    def load_checkpoint(
        self,
        checkpoint_path: str | os.PathLike[str],
        load_optimizer: bool = True,
        load_scheduler: bool = True,
    ) -> dict[str, Any]:
        """Load the model's weights, and what is asked for of the rest; return what was read."""
        found: dict[str, Any] = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
        self.get_model(keep_torch_compile=False).load_state_dict(found["model_state_dict"])
        if load_optimizer and "optimizer_state_dict" in found:
            self.optimizer.load_state_dict(found["optimizer_state_dict"])
        if load_scheduler and self.scheduler is not None and "scheduler_state_dict" in found:
            self.scheduler.load_state_dict(found["scheduler_state_dict"])
        return found

    def save_training_state(
        self,
        output_dir: str | os.PathLike[str],
        checkpoint_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write all that `train(resume_from=output_dir)` goes on with into a folder."""
        self.save_checkpoint(Path(output_dir) / _STATE, checkpoint_kwargs)


def _file_of(path: str | os.PathLike[str]) -> Path:
    """Return the checkpoint that a path stands for."""
    return Path(path) / _STATE if Path(path).is_dir() else Path(path)
