"""TrainerPlaceholderValues: what a scheduler needs and only a run knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.compat.accelerated.run_config import TrainerRunConfig

__all__ = ["TrainerPlaceholderValues", "filled_in"]


class _Run(Protocol):
    """What a trainer knows of its run."""

    run_config: TrainerRunConfig | None

    def loader_length(self, stage: str) -> int:
        """Return the batches of a loader."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """A number that is computed from a placeholder."""

    of: Callable[[_Run], int]

    def __add__(self, number: int) -> _Computed:
        return _Computed(lambda trainer: self.of(trainer) + number)

    def __mul__(self, number: int) -> _Computed:
        return _Computed(lambda trainer: self.of(trainer) * number)


def _config(trainer: _Run, name: str) -> int:
    assert trainer.run_config is not None
    number: int = trainer.run_config[name]
    return number


class TrainerPlaceholderValues(Enum):
    """Numbers that stand in a `partial` of a scheduler until the run is known.

    They can be added to and multiplied, as in `TrainerPlaceholderValues.NUM_EPOCHS * 2`.
    """

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
        """Return what stands for so much more."""
        return self.value + number

    def __mul__(self, number: int) -> _Computed:
        """Return what stands for so many times as much."""
        return self.value * number


def filled_in(trainer: _Run, made_by: Callable[..., Any]) -> Callable[..., Any]:
    """Return what makes a scheduler, the placeholders of a `partial` filled in."""
    if not isinstance(made_by, partial):
        return made_by
    known = {}
    for name, value in made_by.keywords.items():
        stands_for = value.value if isinstance(value, TrainerPlaceholderValues) else value
        known[name] = stands_for.of(trainer) if isinstance(stands_for, _Computed) else value
    return partial(made_by.func, *made_by.args, **known)
