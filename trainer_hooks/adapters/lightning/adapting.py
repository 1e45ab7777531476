"""adapt: which adapter a callback of Lightning gets, and what it counts as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.adapters.lightning.callbacks import LightningGuest
from trainer_hooks.adapters.lightning.special import AveragingGuest, WriterGuest
from trainer_hooks.adapters.lightning.tuning import TunerGuest
from trainer_hooks.callbacks import Checkpoint, EarlyStopping, ModelSummary, Timer

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

__all__ = ["adapt"]

_KINDS: dict[str, type[Callback]] = {
    "callbacks.checkpoint.Checkpoint": Checkpoint,
    "callbacks.progress.progress_bar.ProgressBar": HostedBar,
    "callbacks.early_stopping.EarlyStopping": EarlyStopping,
    "callbacks.model_summary.ModelSummary": ModelSummary,
    "callbacks.timer.Timer": Timer,
}
"""What Lightning's classes count as."""

_PACKAGES = ("lightning.pytorch.", "pytorch_lightning.")

_HOSTS: dict[str, type[LightningGuest]] = {
    "callbacks.prediction_writer.BasePredictionWriter": WriterGuest,
    "callbacks.batch_size_finder.BatchSizeFinder": TunerGuest,
    "callbacks.lr_finder.LearningRateFinder": TunerGuest,
    "callbacks.stochastic_weight_avg.StochasticWeightAveraging": AveragingGuest,
}
"""The adapters of those that reach deeper into the trainer than others."""


def adapt(guest: Any) -> Callback:
    """Return the adapter of a callback of Lightning."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(guest).__mro__}
    kinds = [
        kind
        for name, kind in _KINDS.items()
        if any(f"{package}{name}" in names for package in _PACKAGES)
    ]
    for name, host in _HOSTS.items():
        if not names.isdisjoint(f"{package}{name}" for package in _PACKAGES):
            return host.hosting(guest, *kinds)
    return LightningGuest.hosting(guest, *kinds)
