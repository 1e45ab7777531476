from __future__ import annotations

import logging
import math

import pytest
import torch

from trainer_hooks import Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import MetricError, StateKeyError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band


def test_missing_monitor_is_an_error(fake):
    """A monitor that was not logged ends the run, with what was logged."""
    trainer = fake(EarlyStopping("val_los"))
    trainer.on_validation = lambda t: t.log(val_loss=1)
    with pytest.raises(MetricError, match=r"monitor 'val_los' of EarlyStopping.*'val_loss'\. Did"):
        trainer.fit(1)


def test_missing_monitor_that_is_not_strict_warns_once(fake):
    """strict=False makes a missing monitor one warning, and the run goes on."""
    trainer = fake(EarlyStopping("x", strict=False))
    with pytest.warns(TrainerHooksWarning, match="monitor 'x' of EarlyStopping") as told:
        trainer.fit(3)
    assert len(told) == 1
    assert trainer.current_epoch == 3


def run(fake, scores, stopper, values, **options):
    trainer = fake(stopper, **options)
    trainer.on_validation = scores(*values)
    trainer.fit(len(values))
    return trainer


def test_band_is_control():
    """Early stopping decides after the module's hooks and before the savers."""
    assert EarlyStopping("x").band is Band.CONTROL


@pytest.mark.parametrize(
    ("patience", "values", "epochs"),
    [
        (2, [5, 4, 4, 4, 4], 4),
        (2, [5, 6, 4, 6, 6, 6], 5),
        (1, [5, 5, 5], 2),
        (0, [5, 5, 5], 2),
        (3, [5, 4, 3, 2], 4),
    ],
)
def test_patience(fake, scores, patience, values, epochs):
    """It asks to stop after so many checks in a row without improvement."""
    stopper = EarlyStopping("val_loss", patience=patience)
    trainer = run(fake, scores, stopper, values)
    assert trainer.current_epoch == epochs
    assert trainer.should_stop == (stopper.stopping_reason == "patience_exhausted")
    if trainer.should_stop:
        assert stopper.stopped_epoch == epochs - 1
        assert "val_loss did not improve in" in trainer.stop_reason


def test_mode_max(fake, scores):
    """mode="max" takes greater values for better."""
    trainer = run(fake, scores, EarlyStopping("val_loss", patience=1, mode="max"), [1, 2, 3, 2, 5])
    assert trainer.current_epoch == 4


@pytest.mark.parametrize(("mode", "sign"), [("min", -1), ("max", 1)])
def test_min_delta(fake, scores, mode, sign):
    """A gain of min_delta or less is no improvement."""
    stopper = EarlyStopping("val_loss", min_delta=0.5, patience=1, mode=mode)
    trainer = run(fake, scores, stopper, [sign * v for v in (1, 2, 2.5, 4)])
    assert trainer.current_epoch == 3
    assert stopper.best_score.item() == sign * 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_check_finite(fake, scores, value):
    """A value that is no finite number stops at once, and is never the best."""
    stopper = EarlyStopping("val_loss")
    trainer = run(fake, scores, stopper, [1.0, value, 0.5])
    assert trainer.current_epoch == 2
    assert stopper.stopping_reason == "non_finite_metric"
    assert stopper.best_score.item() == 1.0


def test_nan_without_check_finite_is_no_improvement(fake, scores):
    """check_finite=False counts NaN as a check without improvement, and as nothing worse."""
    stopper = EarlyStopping("val_loss", patience=2, check_finite=False, divergence_threshold=9.0)
    trainer = run(fake, scores, stopper, [1.0, math.nan, 0.5, math.nan, math.nan, 0.1])
    assert trainer.current_epoch == 5
    assert stopper.stopping_reason == "patience_exhausted"


@pytest.mark.parametrize(
    ("mode", "values", "threshold"), [("min", [3, 2, 1], 2.0), ("max", [1, 2, 3], 2.0)]
)
def test_stopping_threshold(fake, scores, mode, values, threshold):
    """It stops when the value reaches the threshold, equality included."""
    stopper = EarlyStopping("val_loss", mode=mode, stopping_threshold=threshold)
    assert run(fake, scores, stopper, values).current_epoch == 2
    assert stopper.stopping_reason == "stopping_threshold"


@pytest.mark.parametrize(
    ("mode", "values", "threshold"), [("min", [3, 5, 6, 1], 5.0), ("max", [3, 1, 0, 5], 1.0)]
)
def test_divergence_threshold(fake, scores, mode, values, threshold):
    """It stops when the value is worse than the threshold, equality not."""
    stopper = EarlyStopping("val_loss", mode=mode, divergence_threshold=threshold)
    assert run(fake, scores, stopper, values).current_epoch == 3
    assert stopper.stopping_reason == "divergence_threshold"


def test_checks_after_each_validation_where_there_are_several(fake, scores):
    """With several validations an epoch, each one is a check."""
    stopper = EarlyStopping("val_loss", patience=2)
    trainer = fake(stopper, val_check_interval=1)
    trainer.on_validation = scores(1.0, 1.0, 1.0)
    trainer.fit(1)
    assert trainer.global_step == 3


def test_checks_training_epochs_where_there_is_no_validation(fake):
    """Without validation each training epoch is a check."""
    trainer = fake(EarlyStopping("loss", patience=1), val_batches=0, val_check_interval=0.5)
    trainer.on_train_batch = lambda t: t.log(loss=1.0)
    trainer.fit(5)
    assert trainer.current_epoch == 2


def test_choice_of_when_to_check_counts(fake, scores):
    """check_on_train_epoch_end=True checks once an epoch, with several validations in it, too."""
    stopper = EarlyStopping("val_loss", patience=1, check_on_train_epoch_end=True)
    trainer = fake(stopper, val_check_interval=2)
    trainer.on_validation = scores(1, 9, 9, 8, 9, 9)
    trainer.fit(3)
    assert trainer.current_epoch == 3


def test_no_check_in_sanity_check_validate_and_fast_dev_run(fake):
    """Validation that is no part of the training is no check."""
    stopper = EarlyStopping("x", check_on_train_epoch_end=False)
    trainer = fake(stopper)
    trainer.validate(sanity=True)
    trainer.fast_dev_run = 1
    trainer.validate()
    trainer.fast_dev_run = 0
    trainer.state.fn = "validate"
    trainer.validate()
    assert stopper.wait_count == 0


def stopped_state(fake, scores, **options):
    stopper = EarlyStopping("val_loss", **options)
    trainer = run(fake, scores, stopper, [1.0, 2.0, 2.0, 2.0, 2.0])
    assert trainer.should_stop
    return stopper.state_dict(), trainer.progress


def resumed(fake, stopper, state, progress):
    trainer = fake(stopper)
    trainer.progress = progress
    stopper.load_state_dict(state)
    trainer.start()
    return trainer


def test_new_patience_counts_on_resume(fake, scores):
    """With more patience than was waited, the resumed run goes on; the wait goes on counting."""
    state, progress = stopped_state(fake, scores, patience=2)
    again = EarlyStopping("val_loss", patience=4)
    trainer = resumed(fake, again, state, progress)
    assert (trainer.should_stop, again.patience, again.wait_count) == (False, 4, 2)
    assert (again.stopping_reason, again.stopped_epoch) == ("not_stopped", 0)
    trainer.on_validation = scores(2.0, 2.0, 2.0)
    trainer.fit(9)
    assert again.wait_count == 4


def test_new_threshold_counts_on_resume(fake, scores):
    """A threshold that this run does not have stops it no longer."""
    state, progress = stopped_state(fake, scores, divergence_threshold=1.5)
    assert resumed(
        fake, EarlyStopping("val_loss", divergence_threshold=1.5), state, progress
    ).should_stop
    assert not resumed(fake, EarlyStopping("val_loss"), state, progress).should_stop


def test_state_is_safe_and_takes_lightnings(tmp_path):
    """The state loads with weights_only=True, and one with Lightning's keys only is taken."""
    stopper = EarlyStopping("val_loss")
    torch.save(stopper.state_dict(), tmp_path / "s.pt")
    loaded = torch.load(tmp_path / "s.pt", weights_only=True)
    del loaded["stopping_value"]
    loaded |= {"wait_count": 2, "patience": 99}
    stopper.load_state_dict(loaded)
    assert (stopper.wait_count, stopper.patience) == (2, 3)


def test_state_key_is_as_in_lightning():
    """The key holds monitor and mode; a choice that may change between runs does not enter it."""
    key = "EarlyStopping{'monitor': 'a', 'mode': 'max'}"
    assert EarlyStopping("a", mode="max").state_key == key
    assert EarlyStopping("a", mode="max", patience=9, min_delta=1.0).state_key == key


def test_two_on_one_monitor_need_a_name():
    """Two on one monitor are an error, until a name tells them apart."""
    with pytest.raises(StateKeyError):
        CallbackConnector([EarlyStopping("a"), EarlyStopping("a", patience=9)], discover=False)
    CallbackConnector([EarlyStopping("a"), EarlyStopping("a", name="slow")], discover=False)


def test_verbose(fake, scores, caplog):
    """verbose=True logs improvements and the decision at INFO; otherwise it is silent."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    run(fake, scores, EarlyStopping("val_loss", patience=1), [1.0, 2.0])
    assert not caplog.messages
    run(fake, scores, EarlyStopping("val_loss", patience=1, verbose=True), [1.0, 2.0])
    assert ["improved" in caplog.messages[0], "did not improve" in caplog.messages[1]] == [
        True,
        True,
    ]


@pytest.mark.parametrize("step", [1, 9], ids=["before", "after"])
def test_somebody_elses_request_is_not_withdrawn(fake, scores, step):
    """A stop that another asked for, before this callback or after it, is not taken back."""
    trainer = fake(EarlyStopping("val_loss", patience=1), min_epochs=3)
    trainer.on_validation = scores(2.0, 3.0, 1.0, 0.5, 0.6)
    trainer.on_train_batch = lambda t: t.stop("other") if t.global_step == step else None
    trainer.fit(9)
    assert trainer.current_epoch == 3
    assert trainer.stop_reason == "other"


def test_one_process_logs(fake, scores, caplog):
    """With log_rank_zero_only=True, a process that is not the first logs nothing."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    for only, told in ((False, 1), (True, 0)):
        caplog.clear()
        trainer = fake(EarlyStopping("val_loss", verbose=True, log_rank_zero_only=only))
        trainer.is_global_zero = False
        trainer.on_validation = scores(1.0)
        trainer.fit(1)
        assert len(caplog.messages) == told


@pytest.mark.parametrize(("mode", "better"), [("min", torch.lt), ("max", torch.gt)])
def test_the_comparison_is_readable(mode, better):
    """`monitor_op` is the comparison of the mode, as it is in Lightning."""
    assert EarlyStopping("x", mode=mode).monitor_op is better


def test_private_methods_of_lightnings_are_called_or_warned_of(recwarn):
    """Those that decide whether to check, and that check, are called, and no other."""
    members = {
        "_should_skip_check": lambda self, trainer: checked.append("asked"),
        "_run_early_stopping_check": lambda self, trainer: checked.append("checked"),
    }
    checked = []
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    stopper = type("Plain", (EarlyStopping,), members)("val_loss")
    loader = [torch.ones(2, 2)]
    trainer = Trainer(max_epochs=1, enable_model_summary=False, callbacks=[stopper], **quiet)
    trainer.fit(Validated("val_loss"), loader, loader)
    assert checked == ["asked", "checked"]
    assert not recwarn.list
    criteria = {"_evaluate_stopping_criteria": lambda self, current: (True, "of its own")}
    stopper = type("Judges", (EarlyStopping,), criteria)("val_loss")
    trainer = Trainer(max_epochs=3, enable_model_summary=False, callbacks=[stopper], **quiet)
    trainer.fit(Validated("val_loss"), loader, loader)
    assert (trainer.current_epoch, stopper.stopping_reason_message) == (1, "of its own")
    name = "_validate_condition_metric"
    kind = type("Mine", (EarlyStopping,), {name: lambda self, argument: None})
    with pytest.warns(TrainerHooksWarning, match=f"calls the method '{name}'.*_run_early_stopping"):
        Trainer(callbacks=[kind("val_loss")], **quiet)


class Validated(Module):
    """A module whose validation logs a metric."""

    def __init__(self, name: str = "val_score") -> None:
        super().__init__()
        self.layer, self.name = torch.nn.Linear(2, 1), name

    def training_step(self, batch, batch_idx):
        return self.layer(batch).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log(self.name, batch.mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("options", [{"limit_val_batches": 0}, {}], ids=["no batches", "no data"])
def test_a_metric_that_cannot_come_is_an_error_before_the_first_step(quiet_trainer, options):
    """A fit without validations and a stopper of a validation metric: nothing is trained."""
    trainer = quiet_trainer(max_epochs=2, callbacks=[EarlyStopping("val_score")], **options)
    data = [torch.ones(2, 2)] * 3
    with pytest.raises(MetricError, match=r"'val_score' of EarlyStopping: .*runs no validation"):
        trainer.fit(Validated(), data, data if options else None)
    assert trainer.global_step == 0


def test_a_metric_that_cannot_come_is_advised_of_if_not_strict(quiet_trainer):
    """With strict=False the same fit trains through."""
    stopper = EarlyStopping("val_score", strict=False)
    trainer = quiet_trainer(max_epochs=2, callbacks=[stopper], limit_val_batches=0)
    with pytest.warns(TrainerHooksWarning, match="runs no validation"):
        trainer.fit(Validated(), [torch.ones(2, 2)] * 3)
    assert trainer.global_step == 6


class Scored(Validated):
    """Logs the next of some scores at each validation."""

    def __init__(self, *scores: float) -> None:
        super().__init__()
        self.scores = iter(scores)

    def validation_step(self, batch, batch_idx):
        self.log("val_score", next(self.scores))


def test_a_stopper_and_a_saver_for_several_fits_begin_afresh(quiet_trainer, tmp_path):
    """The second fit has worse scores throughout: it trains on while these improve."""
    stopper = EarlyStopping("val_score", patience=1)
    saver = ModelCheckpoint(tmp_path, monitor="val_score")
    data = [torch.ones(2, 2)] * 3
    for scores, epochs, best in (((3.0, 1.0, 2.0), 3, 1.0), ((9.0, 8.0, 7.0, 7.5), 4, 7.0)):
        trainer = quiet_trainer(
            max_epochs=9, callbacks=[stopper, saver], num_sanity_val_steps=0,
            enable_checkpointing=True,
        )  # fmt: skip
        trainer.fit(Scored(*scores), data, data[:1])
        assert trainer.current_epoch == epochs
        assert (stopper.best_score, saver.best_model_score) == (best, best)
