"""Proxy of a Trainer for pytorch-accelerated's callbacks, under the names of its Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch.utils.data import DataLoader

from trainer_hooks.adapters.proxy import PartialProxy, Proxy, missing_attribute
from trainer_hooks.adapters.pytorch_accelerated.callback_handler import TrainerCallbackHandler
from trainer_hooks.adapters.pytorch_accelerated.gathering import gather_rows
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import UsageError

_STATE_FILE = "training_state.pt"
"""The file in a folder of `save_training_state`."""


class RunHistoryProxy(Proxy):
    """Proxy of `trainer.run_history`: the logged metrics, with epochs counted from 1.

    Args:
        trainer: the Trainer.
    """

    __slots__ = ("_trainer",)

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer.history)
        self._trainer = trainer

    current_epoch = property(lambda self: int(self._trainer.current_epoch) + 1)
    """The number of the current epoch, from 1 on."""

    def delete_metric(self, metric_name: str) -> None:
        """Delete a metric's values; one that was never logged is no error."""
        # StepBasedEvaluationCallback deletes `intermediate_eval_loss`, which not every module logs
        if metric_name in self.proxy_target.get_metric_names():
            self.proxy_target.delete_metric(metric_name)

    def get_metric_names(self) -> set[str]:
        """Return the names of all logged metrics."""
        return {*self.proxy_target.get_metric_names(), *self._trainer.callback_metrics}

    def get_latest_metric(self, metric_name: str) -> Any:
        """Return the latest value of a metric.

        The values of this moment come first: those of an epoch are recorded when it is over, and
        callbacks there read them before.
        """
        metrics = self._trainer.callback_metrics
        if metric_name in metrics:
            return metrics[metric_name].item()
        return self.proxy_target.get_latest_metric(metric_name)


class RunConfigProxy(PartialProxy):
    """Proxy of `trainer.run_config`: the options and the size of a run.

    Args:
        trainer: the Trainer.
    """

    _framework: ClassVar[str] = "pytorch-accelerated"
    _foreign_name: ClassVar[str] = "Trainer.run_config"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.num_epochs = trainer.max_epochs
        self.gradient_accumulation_steps = trainer.accumulate_grad_batches
        self.gradient_clip_value = trainer.gradient_clip_val
        windows = -(-trainer.num_training_batches // self.gradient_accumulation_steps)
        self.num_update_steps_per_epoch = self.num_local_update_steps_per_epoch = windows
        # where epochs end the run, one step more than they have, as there
        is_endless = trainer.max_epochs is None or trainer.max_epochs < 0
        steps = None if is_endless else trainer.max_epochs * windows + 1
        self.max_num_train_steps = steps if trainer.max_steps < 0 else trainer.max_steps
        self.is_local_process_zero = trainer.local_rank == 0
        self.is_world_process_zero = trainer.is_global_zero
        self.is_distributed = trainer.world_size > 1
        # "no" is accelerate's word for full precision
        self.mixed_precision = "no" if trainer.precision == "32-true" else trainer.precision
        self.num_processes = trainer.world_size

    def to_dict(self) -> dict[str, Any]:
        """Return the values by name, without those of the loaders, such as batch sizes."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class AccelerateProxy(PartialProxy):
    """Proxy of `trainer._accelerator`, the Accelerator of Hugging Face's accelerate.

    Args:
        trainer: the Trainer.
    """

    _framework: ClassVar[str] = "pytorch-accelerated"
    _foreign_name: ClassVar[str] = "Trainer._accelerator"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.is_local_main_process = trainer.local_rank == 0
        self.is_main_process = trainer.is_global_zero
        self.num_processes = trainer.world_size
        self.process_index = trainer.global_rank
        self.local_process_index = trainer.local_rank
        self.is_last_process = trainer.global_rank == trainer.world_size - 1
        self.use_distributed = trainer.world_size > 1
        self.device = trainer.device

    def unwrap_model(self, model: Any) -> Any:
        """Return the model, which is not wrapped here."""
        return model

    def wait_for_everyone(self) -> None:
        """Wait for the other ranks at a barrier."""
        self._trainer.strategy.barrier()


class AcceleratedTrainerProxy(Proxy):
    """Proxy of a Trainer under the names of pytorch-accelerated's.

    Args:
        target: the Trainer.
    """

    # attributes that callbacks set, which do not reach the Trainer
    __slots__ = ("_loss_tracker", "_replaced_loader", "_replaced_model", "callback_handler")

    _framework: ClassVar[str] = "pytorch-accelerated"

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        # StepBasedEvaluationCallback exchanges it around an evaluation; nothing here reads it
        self._loss_tracker: Any = None
        self._replaced_loader: Any = None
        self._replaced_model: Any = None

    def __getattr__(self, name: str) -> Any:
        # Python comes here for a slot without a value
        if name == "callback_handler":  # unless a callback has set another one
            return TrainerCallbackHandler(self.proxy_target)
        return super().__getattr__(name)

    def __dir__(self) -> list[str]:
        """Return the attributes of the instance alone.

        A callback there that goes through all attributes, to move modules to a device, must not
        touch the properties.
        """
        # inspect.getmembers, by which MoveModulesToDeviceCallback looks for modules, goes by this
        return ["model", *vars(self.proxy_target)]

    # --- attributes of their Trainer ---

    @property
    def model(self) -> Any:
        """The module; one that is set is used by `save_checkpoint` and by validations alone."""
        return self.proxy_target.module if self._replaced_model is None else self._replaced_model

    # ModelEmaCallback puts its average there while it evaluates or saves
    @model.setter
    def model(self, model: Any) -> None:
        self._replaced_model = None if model is self.proxy_target.module else model

    @property
    def run_history(self) -> RunHistoryProxy:
        """The logged metrics."""
        return RunHistoryProxy(self.proxy_target)

    @property
    def run_config(self) -> RunConfigProxy:
        """The options and the size of the run."""
        return RunConfigProxy(self.proxy_target)

    optimizer = property(lambda self: next(iter(self.proxy_target.optimizers), None))
    """The first optimizer; None before a fit."""

    @property
    def scheduler(self) -> Any:
        """The first scheduler, or None."""
        configs = self.proxy_target.lr_scheduler_configs
        return configs[0].scheduler if configs else None

    @property
    def _accelerator(self) -> AccelerateProxy:
        return AccelerateProxy(self.proxy_target)

    @property
    def _train_dataloader(self) -> Any:
        return _with_device(self.proxy_target.train_dataloader, self.proxy_target.device)

    @_train_dataloader.setter
    def _train_dataloader(self, loader: Any) -> None:
        _refuse_loader(loader)

    @property
    def _eval_dataloader(self) -> Any:
        trainer = self.proxy_target
        if self._replaced_loader is not None:
            return self._replaced_loader
        loaders = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        loader = loaders[0] if isinstance(loaders, list) and loaders else loaders
        return _with_device(loader, trainer.device)

    @_eval_dataloader.setter
    def _eval_dataloader(self, loader: Any) -> None:
        if self.proxy_target.state.stage not in {"validate", "test"}:
            _refuse_loader(loader)
        self._replaced_loader = loader  # as there, a running evaluation goes on with its own

    def get_model(self) -> Any:
        """Return the model, which is not wrapped here."""
        return self.model

    def gather(self, tensor: Any, padding_value: float | None = None) -> Any:
        """Return the rows of all ranks without those of padding, as `gather_rows`."""
        return gather_rows(self.proxy_target.strategy, tensor, padding_value)

    create_scheduler_fn = property(lambda _: None)
    """The function that makes the scheduler: the module makes its own here."""

    @property
    def train_dataset(self) -> Any:
        """The data set of the training loader; None if it has none."""
        return getattr(self._train_dataloader, "dataset", None)

    @property
    def eval_dataset(self) -> Any:
        """The data set of the loader that validates or tests; None if it has none."""
        return getattr(self._eval_dataloader, "dataset", None)

    @property
    def collate_fn(self) -> Any:
        """The function that makes a batch of samples; None if the training loader has none."""
        return getattr(self._train_dataloader, "collate_fn", None)

    # --- validations ---

    def _run_eval_epoch(self, loader: Any, is_intermediate: bool = False) -> None:  # noqa: ARG002
        """Validate after the current batch, or at the end of an epoch with another model's weights.

        A fit here validates between batches, so the end of the batch is the earliest moment.
        """
        trainer = self.proxy_target
        if is_intermediate and self._replaced_model is None:
            trainer.request_validation()
        elif trainer.progress.stage is EpochStage.BATCHES:
            raise missing_attribute("Trainer", "pytorch-accelerated", "_run_eval_epoch")
        else:
            self._validate_model()

    def _validate_model(self) -> None:
        """Validate with the weights of the model that was set, and put the module's back."""
        trainer, module = self.proxy_target, self.proxy_target.module
        history, callbacks = trainer.history, self.callback_handler.callbacks
        prefix = history.metric_name_prefix
        history.set_metric_name_prefix("")  # validate_again puts it before every name itself
        # clones: a state_dict holds the tensors themselves, which the next line overwrites
        weights = {name: value.clone() for name, value in module.state_dict().items()}
        module.load_state_dict(self.model.state_dict())
        try:
            # only those callbacks: ModelEmaCallback has put a handler of its own on this proxy
            trainer.validate_again(prefix, [adapt_if_foreign(callback) for callback in callbacks])
        finally:
            module.load_state_dict(weights)
            history.set_metric_name_prefix(prefix)

    # --- files ---

    def save_checkpoint(
        self,
        save_path: Any,
        checkpoint_kwargs: dict[str, Any] | None = None,
        save_optimizer: bool = True,
        save_scheduler: bool = True,
        save_per_node: bool = True,  # noqa: ARG002 - theirs
    ) -> None:
        """Write a file in pytorch-accelerated's format, on rank 0."""
        checkpoint = {"model_state_dict": self.model.state_dict()}
        if save_optimizer and self.optimizer is not None:
            checkpoint["optimizer_state_dict"] = self.optimizer.state_dict()
        if save_scheduler and self.scheduler is not None:
            checkpoint["scheduler_state_dict"] = self.scheduler.state_dict()
        if self.proxy_target.is_global_zero:
            torch.save({**checkpoint, **(checkpoint_kwargs or {})}, save_path)

    def load_checkpoint(
        self, checkpoint_path: Any, load_optimizer: bool = True, load_scheduler: bool = True
    ) -> dict[str, Any]:
        """Load a file in pytorch-accelerated's format, and return its contents."""
        return load_states(
            checkpoint_path,
            self.model,
            self.optimizer if load_optimizer else None,
            self.scheduler if load_scheduler else None,
        )

    def save_training_state(
        self, output_dir: Any, checkpoint_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Write a checkpoint in their format into a folder; a resume here needs one of ours."""
        epoch = {"current_epoch": self.run_history.current_epoch}
        if self.proxy_target.is_global_zero:
            Path(output_dir).mkdir(parents=True, exist_ok=True)
        self.save_checkpoint(Path(output_dir) / _STATE_FILE, {**epoch, **(checkpoint_kwargs or {})})
        self.proxy_target.strategy.barrier()

    def load_training_state(self, input_dir: Any) -> dict[str, Any]:
        """Load the checkpoint in a folder, and return its entries beside the states."""
        checkpoint = self.load_checkpoint(Path(input_dir) / _STATE_FILE)
        return {
            name: value for name, value in checkpoint.items() if not name.endswith("_state_dict")
        }


def load_states(path: Any, model: Any, optimizer: Any, scheduler: Any) -> dict[str, Any]:
    """Load a file in pytorch-accelerated's format, and return its contents.

    Args:
        path: the file.
        model: receives the weights.
        optimizer: receives its state if the file has it; None to leave it out.
        scheduler: likewise.
    """
    checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(checkpoint["model_state_dict"])
    for owner, key in ((optimizer, "optimizer_state_dict"), (scheduler, "scheduler_state_dict")):
        if owner is not None and key in checkpoint:
            owner.load_state_dict(checkpoint[key])
    return checkpoint


def _with_device(loader: Any, device: torch.device) -> Any:
    """Return a loader with the attribute `device` that accelerate's loaders have."""
    # one that is a list or a generator takes no attributes, and has none there either
    if isinstance(loader, DataLoader):
        loader.device = device
    return loader


def _refuse_loader(loader: Any) -> None:
    """Raise a UsageError: a loader of a running fit cannot be replaced."""
    raise UsageError(
        f"a callback of pytorch-accelerated put {type(loader).__name__} in the place of a loader "
        "of a run under way, whose place in the data would be lost. Pass the loader that is meant, "
        "or Trainer(limit_train_batches=..., limit_val_batches=...)."
    )
