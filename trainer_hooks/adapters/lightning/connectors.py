"""What Lightning's callbacks look into of its Trainer: its connectors."""

from __future__ import annotations

import sys
from typing import Any

from trainer_hooks.adapters.lightning.loops import Lacks, batches_stepped
from trainer_hooks.adapters.views import lacking

__all__ = [
    "AcceleratorConnector",
    "CheckpointConnector",
    "LoggerConnector",
    "precision_plugin",
]


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
