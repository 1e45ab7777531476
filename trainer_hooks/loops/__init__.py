"""The loops: training, evaluation, prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._lazy import loader_of

if TYPE_CHECKING:
    from trainer_hooks.loops.evaluation import EvaluationLoop
    from trainer_hooks.loops.fit import FitLoop
    from trainer_hooks.loops.leaving import Leaving
    from trainer_hooks.loops.prediction import PredictionLoop
    from trainer_hooks.loops.requests import drop_requests
    from trainer_hooks.loops.second_validation import validate_again
    from trainer_hooks.loops.steps import has_evaluation, overrides

__all__ = [
    "EvaluationLoop",
    "FitLoop",
    "Leaving",
    "PredictionLoop",
    "drop_requests",
    "has_evaluation",
    "overrides",
    "validate_again",
]

if not TYPE_CHECKING:  # so that a name that is not there is an error to type checkers
    __getattr__ = loader_of(
        __name__,
        {
            "EvaluationLoop": "evaluation",
            "FitLoop": "fit",
            "Leaving": "leaving",
            "PredictionLoop": "prediction",
            "drop_requests": "requests",
            "has_evaluation": "steps",
            "overrides": "steps",
            "validate_again": "second_validation",
        },
    )
