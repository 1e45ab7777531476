"""What Lightning's callbacks look into of its Trainer: its state, strategy and connectors."""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.adapters.lightning.loops import Lacks, batches_stepped
from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.runtime import move_to_device

__all__ = [
    "AcceleratorConnector",
    "CheckpointConnector",
    "LoggerConnector",
    "StateView",
    "StrategyView",
    "precision_plugin",
]


class StateView:
    """`trainer.state`, in words of Lightning's own enums where the package is imported.

    Args:
        trainer: whose.
        home: Lightning's package.
    """

    def __init__(self, trainer: Any, home: str) -> None:
        self._state = trainer.state
        self._words = sys.modules.get(f"{home}.trainer.states")

    @property
    def fn(self) -> Any:
        """What is run: `"fit"`, `"validate"`, `"test"` or `"predict"`, or None."""
        return self._word("TrainerFn", self._state.fn)

    @property
    def stage(self) -> Any:
        """What of it is under way, from the beginning of a run on; None outside of one."""
        fn, stage = self._state.fn, self._state.stage
        return self._word("RunningStage", stage or ("train" if fn == "fit" else fn))

    @property
    def status(self) -> Any:
        """How it stands."""
        return self._word("TrainerStatus", self._state.status)

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return bool(self._state.status == "finished")

    @property
    def stopped(self) -> bool:
        """Whether it is over or was interrupted."""
        return self._state.status in {"finished", "interrupted"}

    def _word(self, name: str, value: Any) -> Any:
        return value if value is None or self._words is None else vars(self._words)[name](value)


class StrategyView(View):
    """`trainer.strategy`: the processes; its module is the one that callbacks get.

    Args:
        target: the trainer's.
        trainer: the view of the trainer.
    """

    __slots__ = ("_view",)

    def __init__(self, target: Any, trainer: Any) -> None:
        super().__init__(target)
        object.__setattr__(self, "_view", trainer)

    @property
    def lightning_module(self) -> Any:
        """The module, as callbacks get it."""
        return self._view.lightning_module

    @property
    def model(self) -> Any:
        """The same."""
        return self._view.lightning_module

    @property
    def precision_plugin(self) -> Any:
        """Lightning's own object for the precision."""
        return self._view.precision_plugin

    def all_gather(self, tensor: Any, group: Any = None, sync_grads: bool = False) -> Any:
        """Return the tensors of all processes; in one process the tensor as it is, as there."""
        if self.view_target.world_size == 1:
            return tensor
        return self.view_target.all_gather(tensor, group, sync_grads)

    def batch_to_device(self, batch: Any, device: Any = None, dataloader_idx: int = 0) -> Any:
        """Return a batch where the module is, by way of its transfer hooks."""
        module = self.view_target.lightning_module
        if module is None:
            return move_to_device(batch, device or self.view_target.root_device)
        device = device or module.device
        batch = module.on_before_batch_transfer(batch, dataloader_idx)
        batch = module.transfer_batch_to_device(batch, device, dataloader_idx)
        return module.on_after_batch_transfer(batch, dataloader_idx)

    @property
    def optimizers(self) -> Any:
        """The optimizers; those that are set make the next step."""
        return self.view_target.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Any) -> None:
        self.view_target.optimizers = optimizers

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        """Give the optimizers the states of a checkpoint."""
        for optimizer, state in zip(
            self.view_target.optimizers, checkpoint["optimizer_states"], strict=True
        ):
            optimizer.load_state_dict(state)

    def load_model_state_dict(self, checkpoint: Any, strict: bool = True) -> None:
        """Give the module the weights of a checkpoint."""
        self.view_target.lightning_module.load_state_dict(checkpoint["state_dict"], strict=strict)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise lacking("Trainer.strategy", "Lightning", name) from None


class LoggerConnector(Lacks):
    """`trainer._logger_connector`: whether and how to log."""

    _name = "_logger_connector"

    @property
    def should_update_logs(self) -> bool:
        """Whether this is a step whose metrics go to the loggers."""
        trainer = self._trainer
        every = trainer.log_every_n_steps
        if every < 1:
            return False
        count = batches_stepped(trainer) + 1 if trainer.state.fn == "fit" else 1
        return bool(count % every == 0 or trainer.should_stop)

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:
        """Hand metrics to the loggers, at the step of the batch in work unless it is given."""
        if step is None and "step" not in metrics:
            epoch = self._trainer.current_epoch
            self._trainer.log_metrics(metrics, batches_stepped(self._trainer), epoch=epoch)
        else:
            self._trainer.log_metrics(metrics, step)


class CheckpointConnector(Lacks):
    """`trainer._checkpoint_connector`."""

    _name = "_checkpoint_connector"

    def dump_checkpoint(self, weights_only: bool | None = False) -> dict[str, Any]:
        """Return what a checkpoint of this moment would hold."""
        found: dict[str, Any] = self._trainer.dump_checkpoint(bool(weights_only))
        return found


def precision_plugin(trainer: Any, home: str) -> Any:
    """Return Lightning's object for the precision of a trainer, or ours where it is not imported.

    Args:
        trainer: whose.
        home: Lightning's package.
    """
    kinds = sys.modules.get(f"{home}.plugins.precision")
    if kinds is None:
        return trainer.precision_plugin
    name = trainer.precision
    if name.endswith("-mixed"):
        return kinds.MixedPrecision(name, trainer.device.type, trainer.scaler)
    if name == "64-true":
        return kinds.DoublePrecision()
    return kinds.Precision() if name == "32-true" else kinds.HalfPrecision(name)


class AcceleratorConnector:
    """`trainer._accelerator_connector`: the processes.

    Args:
        trainer: whose.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    @property
    def is_distributed(self) -> bool:
        """Whether there are several processes."""
        return bool(self._trainer.world_size > 1)

    @property
    def use_distributed_sampler(self) -> bool:
        """Whether each process is given its share of the data: always."""
        return True

    @property
    def strategy(self) -> Any:
        """The processes."""
        return self._trainer.strategy

    def __getattr__(self, name: str) -> Any:
        raise lacking("Trainer._accelerator_connector", "Lightning", name)
