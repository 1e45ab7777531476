"""Event: Composer's events, in the order in which a training fires them."""

from __future__ import annotations

from enum import Enum

from trainer_hooks.errors import OptionError, did_you_mean

__all__ = ["Event", "StringEnum"]


class StringEnum(str, Enum):  # noqa: UP042 - a StrEnum prints its value, and these their names
    """An enum of strings: a member equals its value, and is looked up by name or value in any case.

    Raises:
        OptionError: no member has that name or value.
    """

    value: str

    @classmethod
    def _missing_(cls, value: object) -> StringEnum:
        if isinstance(value, str):
            for member in cls:
                if value.lower() in (member.name.lower(), member.value.lower()):
                    return member
        # raised here: for a None, Python would raise a ValueError without the names to choose from
        values = [member.value for member in cls]
        hint = did_you_mean(value, values) if isinstance(value, str) else ""
        raise OptionError(
            f"{cls.__name__} {value!r}: it must be one of {', '.join(values)}.{hint} Choose one."
        )


class Event(StringEnum):
    """A moment of a training, by Composer's name; its value names the callback's method."""

    INIT = "init"
    BEFORE_LOAD = "before_load"
    AFTER_LOAD = "after_load"
    FIT_START = "fit_start"
    ITERATION_START = "iteration_start"
    EPOCH_START = "epoch_start"
    BEFORE_DATALOADER = "before_dataloader"
    AFTER_DATALOADER = "after_dataloader"
    BATCH_START = "batch_start"
    BEFORE_TRAIN_BATCH = "before_train_batch"
    BEFORE_FORWARD = "before_forward"
    AFTER_FORWARD = "after_forward"
    BEFORE_LOSS = "before_loss"
    AFTER_LOSS = "after_loss"
    BEFORE_BACKWARD = "before_backward"
    AFTER_BACKWARD = "after_backward"
    AFTER_TRAIN_BATCH = "after_train_batch"
    BATCH_END = "batch_end"
    BATCH_CHECKPOINT = "batch_checkpoint"
    EPOCH_END = "epoch_end"
    EPOCH_CHECKPOINT = "epoch_checkpoint"
    ITERATION_END = "iteration_end"
    ITERATION_CHECKPOINT = "iteration_checkpoint"
    FIT_END = "fit_end"
    EVAL_BEFORE_ALL = "eval_before_all"
    EVAL_START = "eval_start"
    EVAL_BATCH_START = "eval_batch_start"
    EVAL_BEFORE_FORWARD = "eval_before_forward"
    EVAL_AFTER_FORWARD = "eval_after_forward"
    EVAL_BATCH_END = "eval_batch_end"
    EVAL_END = "eval_end"
    EVAL_AFTER_ALL = "eval_after_all"
    EVAL_STANDALONE_START = "eval_standalone_start"
    EVAL_STANDALONE_END = "eval_standalone_end"
    PREDICT_START = "predict_start"
    PREDICT_BATCH_START = "predict_batch_start"
    PREDICT_BEFORE_FORWARD = "predict_before_forward"
    PREDICT_AFTER_FORWARD = "predict_after_forward"
    PREDICT_BATCH_END = "predict_batch_end"
    PREDICT_END = "predict_end"

    @property
    def is_before_event(self) -> bool:
        """Whether it is the first of two events around something."""
        name = self.value
        return name.endswith("_start") or name.startswith("before_") or "_before_" in name

    @property
    def is_after_event(self) -> bool:
        """Whether it is the second of two events around something."""
        name = self.value
        return name.endswith("_end") or name.startswith("after_") or "_after_" in name

    @property
    def canonical_name(self) -> str:
        """The part of the name that the two events around something have in common."""
        name = self.value
        for mark in ("before_", "after_", "_start", "_end"):
            name = name.replace(mark, "")
        return name

    @property
    def is_eval(self) -> bool:
        """Whether it belongs to an evaluation."""
        return self.value.startswith("eval")

    @property
    def is_predict(self) -> bool:
        """Whether it belongs to a prediction."""
        return self.value.startswith("predict")
