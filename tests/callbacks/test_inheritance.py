"""How far the built-in callbacks stand from `Callback`."""

from __future__ import annotations

import pytest
from for_each import for_each

import trainer_hooks.callbacks
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks import (
    Checkpoint,
    EMAWeightAveraging,
    ModelCheckpoint,
    OnExceptionCheckpoint,
    ProgressBar,
    RichProgressBar,
    TQDMProgressBar,
    WeightAveraging,
    WSDCheckpointCallback,
)
from trainer_hooks.compat.accelerated.callbacks import (
    ModelEmaCallback,
    ProgressBarCallback,
    SaveBestModelCallback,
    SaveTrainingStateCallback,
)
from trainer_hooks.compat.composer.callbacks import CheckpointSaver

LIMIT = 3

EXPORTED = [getattr(trainer_hooks.callbacks, name) for name in trainer_hooks.callbacks.__all__]
BUILT_IN = [kind for kind in EXPORTED if isinstance(kind, type) and issubclass(kind, Callback)]


@for_each(BUILT_IN)
def test_few_classes_stand_between_a_built_in_and_callback(kind: type[Callback]) -> None:
    """Who reads a built-in reads three other classes at most; all else are parts that it holds."""
    above = kind.__mro__[1:]
    ends = (Callback, *Callback.__mro__[1:])
    between = [other.__name__ for other in above if other not in ends]
    assert len(between) <= LIMIT, f"{kind.__name__} stands on {' on '.join(between)} on Callback"


@pytest.mark.parametrize(
    ("base", "kinds"),
    [
        (
            Checkpoint,
            [
                CheckpointSaver,
                ModelCheckpoint,
                ModelEmaCallback,
                OnExceptionCheckpoint,
                SaveBestModelCallback,
                SaveTrainingStateCallback,
                WSDCheckpointCallback,
            ],
        ),
        (ModelCheckpoint, [SaveBestModelCallback, ModelEmaCallback]),
        (SaveBestModelCallback, [ModelEmaCallback]),
        (ProgressBar, [TQDMProgressBar, RichProgressBar, ProgressBarCallback]),
        (TQDMProgressBar, [ProgressBarCallback]),
        (WeightAveraging, [EMAWeightAveraging]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_what_a_built_in_counts_as(base: type[Callback], kinds: list[type[Callback]]) -> None:
    """A trainer finds savers and bars by their class, and so do users."""
    assert [kind for kind in kinds if not issubclass(kind, base)] == []
