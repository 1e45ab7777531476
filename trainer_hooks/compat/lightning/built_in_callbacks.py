"""The built-in callbacks under Lightning's names: subclasses that leave other names to the user.

`class Saver(ModelCheckpoint)` in a program for Lightning may have an `on_log` or `candidates` of
its own, since Lightning's class has neither.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from trainer_hooks import Callback, callbacks
from trainer_hooks._names import leave_to_user
from trainer_hooks.adapters.lightning.names import (
    BUILT_IN_EXTRAS,
    CALLBACK_NAMES,
    names_of_the_user,
)

if TYPE_CHECKING:
    from trainer_hooks.callbacks import (
        BackboneFinetuning,
        BaseFinetuning,
        BasePredictionWriter,
        BatchSizeFinder,
        Checkpoint,
        DeviceStatsMonitor,
        EarlyStopping,
        EMAWeightAveraging,
        GradientAccumulationScheduler,
        LambdaCallback,
        LearningRateFinder,
        LearningRateMonitor,
        ModelCheckpoint,
        ModelPruning,
        ModelSummary,
        OnExceptionCheckpoint,
        ProgressBar,
        QuantizationAwareTraining,
        RichModelSummary,
        RichProgressBar,
        SpikeDetection,
        StochasticWeightAveraging,
        ThroughputMonitor,
        Timer,
        TQDMProgressBar,
        WeightAveraging,
    )

    ProgressBarBase = ProgressBar

__all__ = [
    "BackboneFinetuning",
    "BaseFinetuning",
    "BasePredictionWriter",
    "BatchSizeFinder",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EMAWeightAveraging",
    "EarlyStopping",
    "GradientAccumulationScheduler",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "OnExceptionCheckpoint",
    "ProgressBar",
    "ProgressBarBase",
    "QuantizationAwareTraining",
    "RichModelSummary",
    "RichProgressBar",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "ProgressBarBase":  # the name of Lightning 1.x
        return globals().setdefault(name, __getattr__("ProgressBar"))
    kind = getattr(callbacks, name)
    # the next access finds it, so that there is one class
    return globals().setdefault(name, _built_in(kind))


def __dir__() -> list[str]:
    return __all__


def _built_in(kind: type[Callback]) -> type[Callback]:
    """Return a built-in callback's class as one of Lightning's, a subclass."""

    def subclasshook(cls: type, other: type) -> Any:
        # the trainer makes some itself, such as the default ModelCheckpoint
        return kind in other.__mro__ if cls is made else NotImplemented

    contents: dict[str, Any] = {
        "__module__": "trainer_hooks.compat.lightning.callbacks",
        "__doc__": kind.__doc__,
        # a search by name, as for a command line, finds the class of trainer_hooks
        "guest_class": kind,
        "__subclasshook__": classmethod(subclasshook),
    }
    made: type = ABCMeta(kind.__name__, (kind,), contents)
    leave_to_user(made, names_of_the_user(Callback, CALLBACK_NAMES))
    extras = BUILT_IN_EXTRAS.intersection(dir(kind))
    leave_to_user(made, extras, is_hidden=False)
    return made
