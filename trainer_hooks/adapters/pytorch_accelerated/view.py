"""What a callback of pytorch-accelerated is handed: a Trainer under the names that it has there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import UsageError

__all__ = ["AcceleratedView", "Accelerator", "RunConfig", "RunHistory"]

_STATE = "training_state.pt"
"""The file in a folder of `save_training_state`."""


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

    def delete_metric(self, metric_name: str) -> None:
        """Forget a metric; one that was never logged, as the epochs of their own, is forgotten."""
        if metric_name in self.view_target.get_metric_names():
            self.view_target.delete_metric(metric_name)

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
        self.process_index = trainer.global_rank
        self.local_process_index = trainer.local_rank
        self.is_last_process = trainer.global_rank == trainer.world_size - 1
        self.use_distributed = trainer.world_size > 1
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

    __slots__ = ("_loss_tracker", "_own_loader", "_own_model", "callback_handler")

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        for name in ("_loss_tracker", "_own_loader", "_own_model"):
            object.__setattr__(self, name, None)

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
        if self._own_loader is not None:
            return self._own_loader
        given = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        return given[0] if isinstance(given, list) and given else given

    @_eval_dataloader.setter
    def _eval_dataloader(self, loader: Any) -> None:
        if self.view_target.state.stage not in {"validate", "test"}:
            _refuse_loader(loader)
        self._own_loader = loader  # as there, an evaluation under way keeps its own

    def _run_eval_epoch(self, loader: Any, is_intermediate: bool = False) -> None:  # noqa: ARG002
        """Validate after the batch in work, which is as early as a fit here does.

        At the end of an epoch, validate with the weights of another model that was set.
        """
        trainer = self.view_target
        if is_intermediate and self._own_model is None:
            trainer.request_validation()
        elif trainer.progress.stage is EpochStage.BATCHES:
            raise lacking("Trainer", "pytorch-accelerated", "_run_eval_epoch")
        else:
            self._validate_own()

    def _validate_own(self) -> None:
        from trainer_hooks.connector import adopted

        trainer, module = self.view_target, self.view_target.module
        history, callbacks = trainer.run_history, self.callback_handler.callbacks
        prefix = history.metric_name_prefix
        history.set_metric_name_prefix("")  # the validation puts it before all that it logs
        kept = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self.model.state_dict())
        try:
            trainer.validate_again(prefix, [adopted(callback) for callback in callbacks])
        finally:
            module.load_state_dict(kept)
            history.set_metric_name_prefix(prefix)

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
    ) -> dict[str, Any]:
        """Read such a file, and return it."""
        found: dict[str, Any] = torch.load(checkpoint_path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(found["model_state_dict"])
        if load_optimizer and "optimizer_state_dict" in found and self.optimizer is not None:
            self.optimizer.load_state_dict(found["optimizer_state_dict"])
        if load_scheduler and "scheduler_state_dict" in found and self.scheduler is not None:
            self.scheduler.load_state_dict(found["scheduler_state_dict"])

        return found

    def save_training_state(
        self, output_dir: Any, checkpoint_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Write a checkpoint of theirs into a folder; a resume here needs one of ours."""
        epoch = {"current_epoch": self.run_history.current_epoch}
        if self.view_target.is_global_zero:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
        self.save_checkpoint(Path(output_dir) / _STATE, {**epoch, **(checkpoint_kwargs or {})})
        self.view_target.strategy.barrier()

    def load_training_state(self, input_dir: Any) -> dict[str, Any]:
        """Read such a folder, and return what was saved beside the states."""
        found = self.load_checkpoint(Path(input_dir) / _STATE)
        return {name: value for name, value in found.items() if not name.endswith("_state_dict")}


def _refuse_loader(loader: Any) -> None:
    raise UsageError(
        f"a callback of pytorch-accelerated put {type(loader).__name__} in the place of a loader "
        "of a run under way, whose place in the data would be lost. Pass the loader that is meant, "
        "or Trainer(limit_train_batches=..., limit_val_batches=...)."
    )
