"""Training: what of a module's training outlives the runs that it consists of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks.clock import Progress, Timekeeper
from trainer_hooks.metrics import History, MetricStore
from trainer_hooks.module import Optimization

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.module import Module

__all__ = ["Training"]


@dataclass(slots=True)
class Training:
    """How far a module has been trained, which one fit after another goes on with.

    Attributes:
        module: what is trained; None before the first fit.
        progress: the counters.
        timekeeper: what its clock needs besides.
        metrics: the logged values.
        history: what of them was due, over the whole training.
        optimization: optimizers and schedulers.
        is_configured: whether a fit has made those.
        setup: what they were made as, in plain data.
        began: which parts trained, and which parameters required gradients, as it began.
        scaler: the state of the loss scaler, between two fits.
        num_batches: training batches of the last epoch; infinity where that is unknown.
        length: the same of an epoch that nothing ends early.
        samples: samples of a batch and an epoch of the last fit; None where its loader has no say.
        left: what the last fit left of its loaders and places, for checkpoints saved after it.
        saved_at: when the last checkpoint was saved, or that which the last fit was given.
        hparams: what was saved of the module's hyperparameters as the last fit began, by which a
            restart knows its own checkpoints.
        saved_batches: batches that were done when a checkpoint was saved last that can be resumed.
        newest_path: that checkpoint, or the one that the last fit was given; empty without one.
        newest_batches: batches that are done in it.
    """

    module: Module | None = None
    progress: Progress = field(default_factory=Progress)
    timekeeper: Timekeeper = field(default_factory=Timekeeper)
    metrics: MetricStore = field(default_factory=MetricStore)
    history: History = field(init=False)
    optimization: Optimization = field(default_factory=Optimization)
    is_configured: bool = False
    setup: dict[str, Any] = field(default_factory=dict)
    began: dict[str, Any] = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)
    num_batches: int | float = math.inf
    length: int | float = math.inf
    samples: tuple[int, int] | None = None
    left: dict[str, Any] = field(default_factory=dict)
    saved_at: int = 0
    hparams: Mapping[str, Any] | None = None
    saved_batches: int = -1
    newest_path: str = ""
    newest_batches: int = 0

    def __post_init__(self) -> None:
        self.history = History(self.progress, self.metrics.show)
