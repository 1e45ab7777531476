"""EarlyStoppingCallback in runs."""

from __future__ import annotations

import pytest

from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.compat.accelerated.callbacks import EarlyStoppingCallback


def test_it_is_early_stopping() -> None:
    """It is that callback, with other arguments."""
    assert issubclass(EarlyStoppingCallback, EarlyStopping)


def test_it_stops_early_by_their_name_of_the_validation_loss(trained, Scripted) -> None:
    """`eval_loss_epoch` is `val_loss`; two epochs without improvement end the fit."""
    callback = EarlyStoppingCallback(2)
    trainer = trained(callback, Scripted(), max_epochs=5)
    assert trainer.current_epoch == 4
    assert callback.best_score == 1.0


def test_an_improvement_must_beat_the_threshold(trained, Scripted) -> None:
    """With a threshold of 2 a loss that falls from 3 to 1 is no improvement."""
    trainer = trained(EarlyStoppingCallback(1, 2.0), Scripted(), max_epochs=5)
    assert trainer.current_epoch == 2


@pytest.mark.parametrize(("reset", "best"), [(True, 2.0), (False, 1.0)])
def test_a_second_fit_begins_anew_if_that_is_wanted(trained, Scripted, reset, best) -> None:
    """With `reset_on_train` the best value of the first fit does not count in the second."""
    callback = EarlyStoppingCallback(9, reset_on_train=reset)
    module = Scripted()
    trainer = trained(callback, module, max_epochs=2)
    trainer.max_epochs = 4
    trainer.fit(module)
    assert callback.best_score == best


def test_a_resumed_run_stops_for_the_reason_that_it_had_stopped_for(
    trained, Scripted, bare, tmp_path
) -> None:
    """The metric has the name under which it was logged, as when the run stopped first."""
    stopped = trained(EarlyStoppingCallback(2), Scripted(), max_epochs=5)
    stopped.save_checkpoint(tmp_path / "end.ckpt")
    resumed = bare(EarlyStoppingCallback(2), max_epochs=9)
    resumed.fit(Scripted(), ckpt_path=tmp_path / "end.ckpt")
    assert "val_loss" in stopped.stop_reason
    assert (resumed.current_epoch, resumed.stop_reason) == (4, stopped.stop_reason)
