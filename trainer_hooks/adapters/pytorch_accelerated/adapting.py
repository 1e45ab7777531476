"""adapt: which adapter a callback of pytorch-accelerated gets, and what it counts as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.kinds import HostedBar
from trainer_hooks.adapters.pytorch_accelerated.callbacks import AcceleratedGuest
from trainer_hooks.adapters.pytorch_accelerated.special import (
    BarGuest,
    EmaGuest,
    EvaluatingGuest,
    LimitGuest,
)
from trainer_hooks.callbacks import Checkpoint, EarlyStopping

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

__all__ = ["adapt"]

_HOME = "pytorch_accelerated.callbacks"

_KINDS: dict[str, type[Callback]] = {
    f"{_HOME}.SaveBestModelCallback": Checkpoint,
    f"{_HOME}.SaveTrainingStateCallback": Checkpoint,
    f"{_HOME}.ProgressBarCallback": HostedBar,
    f"{_HOME}.EarlyStoppingCallback": EarlyStopping,
}

_HOSTS = {
    f"{_HOME}.LimitBatchesCallback": LimitGuest,
    f"{_HOME}.ModelEmaCallback": EmaGuest,
    f"{_HOME}.ProgressBarCallback": BarGuest,
}
"""The adapters of those that change what a run consists of."""


def adapt(guest: Any) -> Callback:
    """Return the adapter of a callback of pytorch-accelerated."""
    names = {f"{kind.__module__}.{kind.__qualname__}" for kind in type(guest).__mro__}
    kinds = [kind for name, kind in _KINDS.items() if name in names]
    if f"{_HOME}.StepBasedEvaluationCallback" in names and _has_step_end_of_theirs(guest):
        return EvaluatingGuest.hosting(guest, *kinds)
    host = next((host for name, host in _HOSTS.items() if name in names), AcceleratedGuest)
    return host.hosting(guest, *kinds)


def _has_step_end_of_theirs(guest: Any) -> bool:
    """Return whether what it does at the end of a step is the built-in callback's own."""
    kinds = type(guest).__mro__
    owner = next(kind for kind in kinds if "on_train_step_end" in vars(kind))
    return f"{owner.__module__}.{owner.__qualname__}" == f"{_HOME}.StepBasedEvaluationCallback"
