"""Callbacks that say how much is run, and when."""

from __future__ import annotations

import pytest

from trainer_hooks import Callback, Trainer
from trainer_hooks.compat.accelerated.callbacks import (
    LimitBatchesCallback,
    LimitEvalStepsCallback,
    StepBasedEvaluationCallback,
)
from trainer_hooks.errors import UsageError
from trainer_hooks.testing import TinyModule


class _Counting(Callback):
    def __init__(self):
        self.validated = []

    def on_validation_start(self, trainer, module):
        self.validated.append([trainer.progress.batches_completed, 0])

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.validated[-1][1] += 1


def test_so_many_batches_of_each_loader_are_run(quiet) -> None:
    """Training, validation, test and prediction take one batch, and the next run takes all."""
    count, callback, module = _Counting(), LimitBatchesCallback(1), TinyModule()
    trainer = Trainer(max_epochs=2, callbacks=[callback, count], **quiet)
    trainer.fit(module)
    assert trainer.global_step == 2
    assert count.validated == [[1, 1], [2, 1]]
    assert len(trainer.predict(module)) == 1
    trainer.remove_callback(callback)
    assert len(trainer.predict(module)) == 2


def test_it_validates_after_so_many_batches(quiet) -> None:
    """Batches are counted over epochs, and the epochs' own validations stay."""
    count = _Counting()
    trainer = Trainer(max_epochs=2, callbacks=[StepBasedEvaluationCallback(2), count], **quiet)
    trainer.fit(TinyModule())
    assert [place for place, _ in count.validated] == [2, 3, 4, 6]


@pytest.mark.parametrize(
    ("only", "expected"), [(True, [[2, 1], [3, 2], [4, 1], [6, 2]]), (False, None)]
)
def test_validations_between_batches_are_cut_short(quiet, only, expected) -> None:
    """Those at the end of an epoch stay whole, unless all are to be cut."""
    count = _Counting()
    callbacks = [StepBasedEvaluationCallback(2), LimitEvalStepsCallback(1, only), count]
    trainer = Trainer(max_epochs=2, callbacks=callbacks, **quiet)
    trainer.fit(TinyModule())
    assert count.validated == (expected or [[2, 1], [3, 1], [4, 1], [6, 1]])
    count.validated.clear()
    trainer.validate(verbose=False)
    assert count.validated[0][1] == (2 if only else 1)


def test_limits_are_for_their_moment(quiet) -> None:
    """Outside of it they are refused, with the moment at which to call them."""
    trainer = Trainer(**quiet)
    with pytest.raises(UsageError, match="hook `setup`"):
        trainer.limit_batches(1)
    with pytest.raises(UsageError, match="on_validation_run_start"):
        trainer.limit_validation(1)
