"""What a callback of pytorch-accelerated is handed: a Trainer under the names that it has there."""

from __future__ import annotations

from typing import Any

import torch

from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.errors import UsageError

__all__ = ["AcceleratedView", "Accelerator", "RunConfig", "RunHistory"]


class RunHistory(View):
    """`trainer.run_history`: the metrics that were logged; epochs count from 1, as there."""

    __slots__ = ("_trainer",)

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer.run_history)
        object.__setattr__(self, "_trainer", trainer)

    @property
    def current_epoch(self) -> int:
        """The epoch under way, from 1 on."""
        return int(self._trainer.current_epoch) + 1

    def get_metric_names(self) -> set[str]:
        """Return the names of what was logged."""
        return {*self.view_target.get_metric_names(), *self._trainer.callback_metrics}

    def get_latest_metric(self, metric_name: str) -> Any:
        """Return the latest value of a metric, one of this moment before those on record."""
        metrics = self._trainer.callback_metrics
        if metric_name in metrics:
            return metrics[metric_name].item()
        return self.view_target.get_latest_metric(metric_name)


class RunConfig:
    """`trainer.run_config`: what the run is set up with.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self.num_epochs = trainer.max_epochs
        self.gradient_accumulation_steps = trainer.accumulate_grad_batches
        self.gradient_clip_value = trainer.gradient_clip_val
        self.max_num_train_steps = None if trainer.max_steps < 0 else trainer.max_steps
        windows = -(-trainer.num_training_batches // self.gradient_accumulation_steps)
        self.num_update_steps_per_epoch = self.num_local_update_steps_per_epoch = windows
        self.is_local_process_zero = trainer.local_rank == 0
        self.is_world_process_zero = trainer.is_global_zero
        self.is_distributed = trainer.world_size > 1
        self.mixed_precision = "no" if trainer.precision == "32-true" else trainer.precision
        self.num_processes = trainer.world_size

    def __getattr__(self, name: str) -> Any:
        raise lacking("Trainer.run_config", "pytorch-accelerated", name)


class Accelerator:
    """`trainer._accelerator`: the processes.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.is_local_main_process = trainer.local_rank == 0
        self.is_main_process = trainer.is_global_zero
        self.num_processes = trainer.world_size
        self.device = trainer.device

    def unwrap_model(self, model: Any) -> Any:
        """Return the model, which is in no wrapping here."""
        return model

    def wait_for_everyone(self) -> None:
        """Wait for the other processes."""
        self._trainer.strategy.barrier()

    def __getattr__(self, name: str) -> Any:
        raise lacking("Trainer._accelerator", "pytorch-accelerated", name)


class AcceleratedView(View):
    """A Trainer under the names of pytorch-accelerated's.

    Args:
        target: the trainer.
    """

    __slots__ = ("_loss_tracker", "_own_model", "callback_handler")

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        object.__setattr__(self, "_own_model", None)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in AcceleratedView.__slots__:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name == "callback_handler":
            return self.view_target.callback_handler
        try:
            return getattr(self.view_target, name)
        except AttributeError as error:
            if error.name != name or error.obj is not self.view_target:
                raise
            raise lacking("Trainer", "pytorch-accelerated", name) from None

    def __dir__(self) -> list[str]:
        """Return what an instance holds: one who looks through all of it must change nothing."""
        return ["model", *vars(self.view_target)]

    @property
    def model(self) -> Any:
        """The module; what is set takes its place in `save_checkpoint` alone."""
        return self.view_target.module if self._own_model is None else self._own_model

    @model.setter
    def model(self, model: Any) -> None:
        object.__setattr__(self, "_own_model", None if model is self.view_target.module else model)

    @property
    def run_history(self) -> RunHistory:
        """The metrics."""
        return RunHistory(self.view_target)

    @property
    def run_config(self) -> RunConfig:
        """What the run is set up with."""
        return RunConfig(self.view_target)

    @property
    def optimizer(self) -> Any:
        """The optimizer, the first if there are several; None before a fit."""
        return next(iter(self.view_target.optimizers), None)

    @property
    def scheduler(self) -> Any:
        """The scheduler, or None."""
        configs = self.view_target.lr_scheduler_configs
        return configs[0].scheduler if configs else None

    @property
    def _accelerator(self) -> Accelerator:
        return Accelerator(self.view_target)

    @property
    def _train_dataloader(self) -> Any:
        return self.view_target.train_dataloader

    @_train_dataloader.setter
    def _train_dataloader(self, loader: Any) -> None:
        _refuse_loader(loader)

    @property
    def _eval_dataloader(self) -> Any:
        trainer = self.view_target
        given = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        return given[0] if isinstance(given, list) and given else given

    @_eval_dataloader.setter
    def _eval_dataloader(self, loader: Any) -> None:
        _refuse_loader(loader)

    def _run_eval_epoch(self, loader: Any, is_intermediate: bool = False) -> None:  # noqa: ARG002
        """Validate after the batch in work, which is as early as a fit here does."""
        if not is_intermediate or self._own_model is not None:
            raise lacking("Trainer", "pytorch-accelerated", "_run_eval_epoch")
        self.view_target.request_validation()

    def save_checkpoint(
        self,
        save_path: Any,
        checkpoint_kwargs: dict[str, Any] | None = None,
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        save_per_node: bool = True,  # noqa: ARG002 - theirs
    ) -> None:
        """Write a file of pytorch-accelerated's own form."""
        found = {"model_state_dict": self.model.state_dict()}
        if save_optimizer and self.optimizer is not None:
            found["optimizer_state_dict"] = self.optimizer.state_dict()
        if save_scheduler and self.scheduler is not None:
            found["scheduler_state_dict"] = self.scheduler.state_dict()
        if self.view_target.is_global_zero:
            torch.save({**found, **(checkpoint_kwargs or {})}, save_path)

    def load_checkpoint(
        self, checkpoint_path: Any, load_optimizer: bool = True, load_scheduler: bool = True
    ) -> None:
        """Read such a file."""
        found = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(found["model_state_dict"])
        if load_optimizer and "optimizer_state_dict" in found and self.optimizer is not None:
            self.optimizer.load_state_dict(found["optimizer_state_dict"])
        if load_scheduler and "scheduler_state_dict" in found and self.scheduler is not None:
            self.scheduler.load_state_dict(found["scheduler_state_dict"])

    def save_training_state(self, path: Any, *args: Any) -> None:  # noqa: ARG002 - theirs
        """Save a checkpoint of ours."""
        self.view_target.save_checkpoint(path)


def _refuse_loader(loader: Any) -> None:
    raise UsageError(
        f"a callback of pytorch-accelerated put {type(loader).__name__} in the place of a loader "
        "of a run under way, whose place in the data would be lost. Pass the loader that is meant, "
        "or Trainer(limit_train_batches=..., limit_val_batches=...)."
    )
