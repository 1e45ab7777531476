"""From where `log` is called, and what it means there."""

from __future__ import annotations

from enum import Enum

__all__ = ["Scope"]


class Scope(Enum):
    """From where `log` is called, which decides what it means."""

    CLOSED = "a place outside training and evaluation"
    TRAIN_BATCH = "a training batch"
    TRAIN_EPOCH = "the start or end of a training epoch"
    EVALUATION = "a validation or test batch"
    EVALUATION_EPOCH = "the start or end of validation or test"
    PREDICTION = "prediction"

    @property
    def is_of_batches(self) -> bool:
        """Whether there are steps, so that single values can be handed on."""
        return self in (Scope.TRAIN_BATCH, Scope.EVALUATION)

    @property
    def may_log(self) -> bool:
        """Whether a value means anything there."""
        return self not in (Scope.CLOSED, Scope.PREDICTION)

    @property
    def family(self) -> tuple[Scope, ...]:
        """The scopes whose values are handed on together at the end of an epoch."""
        if self in (Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH):
            return (Scope.TRAIN_BATCH, Scope.TRAIN_EPOCH)
        return (Scope.EVALUATION, Scope.EVALUATION_EPOCH)
