"""The options and sizes of a run of pytorch-accelerated's Trainer, and placeholders for them."""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TrainerPlaceholderValues", "TrainerRunConfig", "fill_placeholders"]


@dataclass(frozen=True)
class TrainerRunConfig:
    """The options and sizes of a run; they are attributes, and items as in older releases.

    Attributes:
        num_epochs: epochs of the run.
        train_per_device_batch_size: samples of a training batch of one process.
        train_dl_kwargs: arguments of the training loader, or None.
        eval_per_device_batch_size: samples of an evaluation batch of one process.
        eval_dl_kwargs: arguments of the evaluation loader, or None.
        gradient_accumulation_steps: batches of a step.
        gradient_clip_value: the largest entry of a gradient, or None.
        train_total_batch_size: samples of a step, over all processes.
        eval_total_batch_size: samples of an evaluation batch, over all processes.
        num_update_steps_per_epoch: steps of an epoch, over all processes.
        num_local_update_steps_per_epoch: steps of an epoch of one process.
        max_num_train_steps: the maximum number of steps, or None.
        is_local_process_zero: whether this is the first process of its machine.
        is_world_process_zero: whether this is the first of all processes.
        is_distributed: whether there are several processes.
        mixed_precision: `"no"`.
        num_processes: the number of processes.
    """

    num_epochs: int
    train_per_device_batch_size: int
    train_dl_kwargs: dict[str, Any] | None
    eval_per_device_batch_size: int
    eval_dl_kwargs: dict[str, Any] | None
    gradient_accumulation_steps: int
    gradient_clip_value: float | None
    train_total_batch_size: int
    eval_total_batch_size: int
    num_update_steps_per_epoch: int
    num_local_update_steps_per_epoch: int
    max_num_train_steps: int | None
    is_local_process_zero: bool
    is_world_process_zero: bool
    is_distributed: bool
    mixed_precision: str
    num_processes: int

    def __getitem__(self, name: str) -> Any:
        """Return a value by name."""
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class _RunSizes(Protocol):
    """A trainer that knows the sizes of its run."""

    run_config: TrainerRunConfig | None

    def loader_length(self, stage: str) -> int:
        """Return the number of batches of the loader of `"train"` or `"eval"`."""


class _Arithmetic:
    """A number that is not known yet: sums, differences and products of it are such numbers too."""

    __slots__ = ()

    def __add__(self, other: object) -> _Computed:
        """Return a placeholder of the sum."""
        return _combine(operator.add, self, other)

    def __radd__(self, other: object) -> _Computed:
        """Return a placeholder of the sum."""
        return _combine(operator.add, other, self)

    def __sub__(self, other: object) -> _Computed:
        """Return a placeholder of the difference."""
        return _combine(operator.sub, self, other)

    def __rsub__(self, other: object) -> _Computed:
        """Return a placeholder of the difference."""
        return _combine(operator.sub, other, self)

    def __mul__(self, other: object) -> _Computed:
        """Return a placeholder of the product."""
        return _combine(operator.mul, self, other)

    def __rmul__(self, other: object) -> _Computed:
        """Return a placeholder of the product."""
        return _combine(operator.mul, other, self)


@dataclass(frozen=True, slots=True)
class _Computed(_Arithmetic):
    """A number computed from the run's sizes when they are known.

    Attributes:
        of: returns the number, given the trainer.
    """

    of: Callable[[_RunSizes], float]


def _combine(operation: Callable[[Any, Any], float], left: object, right: object) -> _Computed:
    """Return a placeholder of an operation on two numbers, each of which may not be known yet."""
    # at once: in a run it would be far from the line that is wrong, and 2 * "x" is no error
    if not (isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)):
        return NotImplemented  # type: ignore[no-any-return]  # Python then raises its TypeError
    return _Computed(lambda trainer: operation(_filled(trainer, left), _filled(trainer, right)))


_NUMBERS = (int, float, _Arithmetic)


def _filled(trainer: _RunSizes, value: Any) -> Any:
    """Return the number that a placeholder stands for; other values as they are."""
    number = value.value if isinstance(value, TrainerPlaceholderValues) else value
    return number.of(trainer) if isinstance(number, _Computed) else value


def _config(trainer: _RunSizes, name: str) -> int:
    assert trainer.run_config is not None
    number: int = trainer.run_config[name]
    return number


class TrainerPlaceholderValues(_Arithmetic, Enum):
    """Numbers that stand in a `partial` of a scheduler until the run is known.

    They can be added, subtracted and multiplied, with numbers and with each other, as in
    `TrainerPlaceholderValues.NUM_EPOCHS * 2`.
    """

    # in objects, since Enum takes a bare function for a method and not for a member
    NUM_EPOCHS = _Computed(lambda trainer: _config(trainer, "num_epochs"))
    NUM_UPDATE_STEPS_PER_EPOCH = _Computed(
        lambda trainer: _config(trainer, "num_update_steps_per_epoch")
    )
    PER_PROCESS_NUM_UPDATE_STEPS_PER_EPOCH = _Computed(
        lambda trainer: _config(trainer, "num_local_update_steps_per_epoch")
    )
    TRAIN_DATALOADER_LEN = _Computed(lambda trainer: trainer.loader_length("train"))
    EVAL_DATALOADER_LEN = _Computed(lambda trainer: trainer.loader_length("eval"))


def fill_placeholders(trainer: _RunSizes, factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scheduler's factory with the placeholders among its keywords replaced by numbers.

    Args:
        trainer: the trainer whose run is set up.
        factory: returns a scheduler, given an optimizer; only those of a `partial` are looked at.
    """
    # a function of the user's own reads the numbers by itself
    if not isinstance(factory, partial):
        return factory
    keywords = {name: _filled(trainer, value) for name, value in factory.keywords.items()}
    return partial(factory.func, *factory.args, **keywords)
