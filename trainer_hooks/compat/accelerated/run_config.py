"""The options and sizes of a run of pytorch-accelerated's Trainer, and placeholders for them."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class _Computed:
    """A number computed from the run's sizes when they are known.

    Attributes:
        of: returns the number, given the trainer.
    """

    of: Callable[[_RunSizes], int]

    def __add__(self, number: int) -> _Computed:
        return _Computed(lambda trainer: self.of(trainer) + number)

    def __mul__(self, number: int) -> _Computed:
        return _Computed(lambda trainer: self.of(trainer) * number)


def _config(trainer: _RunSizes, name: str) -> int:
    assert trainer.run_config is not None
    number: int = trainer.run_config[name]
    return number


class TrainerPlaceholderValues(Enum):
    """Numbers that stand in a `partial` of a scheduler until the run is known.

    They can be added to and multiplied, as in `TrainerPlaceholderValues.NUM_EPOCHS * 2`.
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

    def __add__(self, number: int) -> _Computed:
        """Return a placeholder of the sum."""
        return self.value + number

    def __mul__(self, number: int) -> _Computed:
        """Return a placeholder of the product."""
        return self.value * number


def fill_placeholders(trainer: _RunSizes, factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a scheduler's factory with the placeholders among its keywords replaced by numbers.

    Args:
        trainer: the trainer whose run is set up.
        factory: returns a scheduler, given an optimizer; only those of a `partial` are looked at.
    """
    # a function of the user's own reads the numbers by itself
    if not isinstance(factory, partial):
        return factory
    keywords = {}
    for name, value in factory.keywords.items():
        number = value.value if isinstance(value, TrainerPlaceholderValues) else value
        keywords[name] = number.of(trainer) if isinstance(number, _Computed) else value
    return partial(factory.func, *factory.args, **keywords)
