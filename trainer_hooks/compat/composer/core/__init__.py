"""Composer's core: events, time, state, callbacks; each name is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.core.callback import Callback
    from trainer_hooks.compat.composer.core.data_spec import DataSpec, ensure_data_spec
    from trainer_hooks.compat.composer.core.engine import Engine
    from trainer_hooks.compat.composer.core.evaluator import Evaluator, ensure_evaluator
    from trainer_hooks.compat.composer.core.event import Event
    from trainer_hooks.compat.composer.core.precision import Precision
    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.core.time import Time, Timestamp, TimeUnit, ensure_time
    from trainer_hooks.compat.composer.core.types import Batch, Dataset, Serializable, TrainerMode

__all__ = [
    "Batch",
    "Callback",
    "DataSpec",
    "Dataset",
    "Engine",
    "Evaluator",
    "Event",
    "Precision",
    "Serializable",
    "State",
    "Time",
    "TimeUnit",
    "Timestamp",
    "TrainerMode",
    "ensure_data_spec",
    "ensure_evaluator",
    "ensure_time",
]

__getattr__ = package_getattr(
    __name__,
    {
        "Batch Dataset Serializable TrainerMode": "types",
        "Callback": "callback",
        "DataSpec ensure_data_spec": "data_spec",
        "Engine": "engine",
        "Evaluator ensure_evaluator": "evaluator",
        "Event": "event",
        "Precision": "precision",
        "State": "state",
        "Time TimeUnit Timestamp ensure_time": "time",
    },
)


def __dir__() -> list[str]:
    return __all__
