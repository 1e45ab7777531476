"""Composer's core: events, time, state, callbacks; each name is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.compat.composer.not_offered import package_getattr

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

HOMES = {
    "Batch": "types",
    "Callback": "callback",
    "DataSpec": "data_spec",
    "Dataset": "types",
    "Engine": "engine",
    "Evaluator": "evaluator",
    "Event": "event",
    "Precision": "precision",
    "Serializable": "types",
    "State": "state",
    "Time": "time",
    "TimeUnit": "time",
    "Timestamp": "time",
    "TrainerMode": "types",
    "ensure_data_spec": "data_spec",
    "ensure_evaluator": "evaluator",
    "ensure_time": "time",
}

__getattr__ = package_getattr(
    __name__,
    HOMES,
    ("Algorithm", "AlgorithmPass", "JSON", "MemoryFormat", "Trace", "get_precision_context"),
)


def __dir__() -> list[str]:
    return __all__
