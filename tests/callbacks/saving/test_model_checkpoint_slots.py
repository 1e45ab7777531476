from __future__ import annotations

import time
from datetime import timedelta

import pytest

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import MetricError, TrainerHooksWarning


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is moved."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def keep_all(tmp_path, **options):
    return ModelCheckpoint(tmp_path, "{epoch}-{step}", save_top_k=-1, **options)


def test_nothing_is_saved_in_fast_dev_run(fake, tmp_path):
    """fast_dev_run writes nothing, also not on an exception."""
    saver = ModelCheckpoint(tmp_path, save_on_exception=True)
    trainer = fake(saver, fast_dev_run=1)
    trainer.start()
    trainer.run_epoch()
    saver.on_exception(trainer, None, RuntimeError())
    assert trainer.saved == []


def test_nothing_is_saved_outside_fit_or_in_the_sanity_check(fake, tmp_path):
    """Validation that is no part of the training sets nothing off."""
    saver = keep_all(tmp_path, save_on_train_epoch_end=False)
    trainer = fake(saver)
    trainer.start()
    trainer.run_batch(0)
    trainer.validate(sanity=True)
    saver.on_batch_checkpoint(trainer, None)
    trainer.state.fn = "validate"
    trainer.validate()
    saver.on_batch_checkpoint(trainer, None)
    assert trainer.saved == []


def test_every_n_epochs(fake, tmp_path):
    """every_n_epochs=2 saves after the second and the fourth epoch."""
    trainer = fake(keep_all(tmp_path, every_n_epochs=2))
    trainer.fit(5)
    assert trainer.saved == ["epoch=1-step=8.ckpt", "epoch=3-step=16.ckpt"]


def test_zero_switches_the_trigger_off(fake, tmp_path):
    """every_n_epochs=0 alone saves never."""
    trainer = fake(keep_all(tmp_path, every_n_epochs=0))
    trainer.fit(2)
    assert trainer.saved == []


def test_every_n_train_steps(fake, tmp_path):
    """every_n_train_steps counts steps across epochs, and saves at no epoch's end besides."""
    trainer = fake(keep_all(tmp_path, every_n_train_steps=3))
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt"]


def test_steps_that_jump_over_the_multiple(fake, tmp_path):
    """With two optimizers a multiple that is jumped over counts."""
    trainer = fake(keep_all(tmp_path, every_n_train_steps=3), steps_per_batch=2)
    trainer.fit(1)
    assert trainer.saved == ["epoch=0-step=4.ckpt", "epoch=0-step=6.ckpt"]


def test_batches_without_a_step_save_once(fake, tmp_path):
    """While gradients accumulate, the step does not change and nothing is saved again."""
    trainer = fake(keep_all(tmp_path, every_n_train_steps=1))
    trainer.start()
    trainer.run_batch(0)
    trainer.steps_per_batch = 0
    trainer.run_batch(1)
    assert trainer.saved == ["epoch=0-step=1.ckpt"]


def test_time_interval(fake, tmp_path, clock):
    """train_time_interval saves at the first batch after it has passed, and starts anew."""
    trainer = fake(keep_all(tmp_path, train_time_interval=timedelta(seconds=25)))
    trainer.on_train_batch = lambda t: clock.__setitem__(0, clock[0] + 10)
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=3.ckpt", "epoch=1-step=6.ckpt"]


def test_time_interval_needs_a_new_step(fake, tmp_path, clock):
    """Time alone, without a step since the last save, saves nothing."""
    trainer = fake(keep_all(tmp_path, train_time_interval=timedelta(seconds=5)))
    trainer.start()
    clock[0] += 10
    trainer.run_batch(0)
    trainer.steps_per_batch = 0
    clock[0] += 10
    trainer.run_batch(1)
    assert trainer.saved == ["epoch=0-step=1.ckpt"]


def test_validation_inside_the_epoch_is_followed_by_a_save(fake, scores, tmp_path):
    """With several validations an epoch, each one is followed by a save, the last not twice."""
    trainer = fake(keep_all(tmp_path, monitor="val_loss"), val_check_interval=0.5)
    trainer.on_validation = scores(1.0, 2.0, 3.0, 4.0)
    trainer.fit(2)
    assert trainer.saved == [f"epoch={s // 5}-step={s}.ckpt" for s in (2, 4, 6, 8)]


def test_interval_of_one_batch_is_not_one_epoch(fake, scores, tmp_path):
    """val_check_interval=1 means each batch, although it equals 1.0."""
    trainer = fake(keep_all(tmp_path, monitor="val_loss"), val_check_interval=1, batches=2)
    trainer.on_validation = scores(1.0, 2.0)
    trainer.fit(1)
    assert trainer.saved == ["epoch=0-step=1.ckpt", "epoch=0-step=2.ckpt"]


def test_validation_of_every_second_epoch(fake, scores, tmp_path):
    """With check_val_every_n_epoch=2, saves follow the validations and not the other epochs."""
    trainer = fake(keep_all(tmp_path, monitor="val_loss"), check_val_every_n_epoch=2)
    trainer.on_validation = scores(1.0, 2.0)
    trainer.fit(5)
    assert trainer.saved == ["epoch=1-step=8.ckpt", "epoch=3-step=16.ckpt"]


def test_without_validation_the_epoch_counts(fake, tmp_path):
    """Where there is no validation, saves follow the epochs, whatever the interval."""
    trainer = fake(keep_all(tmp_path), val_batches=0, val_check_interval=0.5)
    trainer.fit(1)
    assert trainer.saved == ["epoch=0-step=4.ckpt"]


def test_choice_of_the_train_epoch_end_counts(fake, tmp_path):
    """save_on_train_epoch_end=True saves once an epoch, with several validations in it, too."""
    trainer = fake(keep_all(tmp_path, save_on_train_epoch_end=True), val_check_interval=0.5)
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"]


def test_save_on_the_last_batch_waits_for_the_epochs_validation(fake, scores, tmp_path):
    """A step save on an epoch's last batch is ranked by the epoch's validation, not the former."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=4)
    trainer = fake(saver)
    trainer.on_validation = scores(3.0, 2.0)
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt"]
    assert [score.item() for score in saver.best_k_models.values()] == [3.0, 2.0]


def test_save_on_the_batch_that_stops_waits_too(fake, scores, tmp_path):
    """When the run is asked to stop on a batch, that batch is the epoch's last."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=2)
    trainer = fake(saver)
    trainer.on_train_batch = lambda t: t.stop("enough") if t.global_step == 2 else None
    trainer.on_validation = scores(3.0)
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=2.ckpt"]
    assert saver.current_score.item() == 3.0


def test_monitor_of_the_training_does_not_wait(fake, tmp_path):
    """A monitor that the training logs is up to date on the last batch."""
    saver = keep_all(tmp_path, monitor="loss", every_n_train_steps=4)
    trainer = fake(saver)
    trainer.on_train_batch = lambda t: t.log(loss=t.global_step)
    order = []
    trainer.on_validation = lambda t: order.extend(t.saved)
    trainer.fit(1)
    assert order == ["epoch=0-step=4.ckpt"]


def test_sanity_check_tells_that_validation_logs_the_monitor(fake, tmp_path):
    """What the sanity check logged is known to come from validation, and is waited for."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=4)
    trainer = fake(saver)
    trainer.on_validation = lambda t: t.log(val_loss=9.0 if t.sanity_checking else 1.0)
    trainer.validate(sanity=True)
    trainer.fit(1)
    assert saver.current_score.item() == 1.0


def test_step_save_before_the_first_validation(fake, scores, tmp_path):
    """Before a validation has run, a missing monitor is one warning, and last.ckpt is saved."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1, save_last=True)
    trainer = fake(saver)
    trainer.on_validation = scores(1.0)
    with pytest.warns(TrainerHooksWarning, match="Until the first validation has run") as told:
        trainer.fit(1)
    assert len(told) == 1
    assert trainer.saved == ["last.ckpt"] * 3 + ["epoch=0-step=4.ckpt", "last.ckpt"]


def test_step_save_after_a_sanity_check_that_logged_the_monitor(fake, tmp_path):
    """A monitor that the sanity check logged is not called misspelt: it is not there yet."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = fake(saver)
    trainer.on_validation = lambda t: t.log(val_loss=1.0)
    trainer.on_train_batch = lambda t: t.log(train_loss=1.0)
    trainer.validate(sanity=True)
    trainer.callback_metrics.clear()  # as the trainer does after the sanity check
    with pytest.warns(TrainerHooksWarning, match="only a validation logs it") as told:
        trainer.fit(1)
    assert len(told) == 1
    assert "Did you mean" not in str(told[0].message)


def test_step_save_after_a_validation_without_the_monitor(fake, tmp_path):
    """Once validation has run, a monitor that is missing is an error."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=5)
    with pytest.raises(MetricError, match="monitor 'val_loss'"):
        fake(saver).fit(2)


def test_same_moment_is_not_saved_twice(fake, tmp_path):
    """A slot that fires again without a batch in between saves nothing."""
    saver = keep_all(tmp_path)
    trainer = fake(saver)
    trainer.start()
    trainer.run_epoch()
    saver.on_epoch_checkpoint(trainer, None)
    assert trainer.saved == ["epoch=0-step=4.ckpt"]


def test_manual_steps_that_are_not_counted_still_save(fake, tmp_path):
    """An epoch whose steps the trainer could not count is saved like any other."""
    trainer = fake(keep_all(tmp_path), steps_per_batch=0)
    trainer.fit(2)
    assert trainer.saved == ["epoch=0-step=0.ckpt", "epoch=1-step=0.ckpt"]


def last_batch_done(fake, saver, **options):
    trainer = fake(saver, **options)
    trainer.on_validation = lambda t: t.log(val_loss=1.0)
    trainer.validate(sanity=True)
    trainer.start()
    for index in range(4):
        trainer.run_batch(index)
    return trainer


def test_no_waiting_where_no_validation_follows(fake, tmp_path):
    """On the last batch of an epoch that is not validated, a step save does not wait."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=4)
    assert last_batch_done(fake, saver, check_val_every_n_epoch=2).saved
    assert not last_batch_done(fake, saver).saved


def test_no_waiting_where_nothing_is_ranked(fake, tmp_path):
    """With save_top_k=0 the monitor does not matter, and last.ckpt is saved at once."""
    saver = ModelCheckpoint(
        tmp_path, monitor="val_loss", save_top_k=0, save_last=True, every_n_train_steps=4
    )
    assert last_batch_done(fake, saver).saved == ["last.ckpt"]


def test_stop_that_is_not_heeded_yet_is_not_waited_for(fake, scores, tmp_path):
    """While min_epochs keeps the run going, saves are neither put off nor lost."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = fake(saver, min_epochs=2, batches=2)
    trainer.validate(sanity=True)
    trainer.log(val_loss=9.0)
    trainer.on_validation = scores(1.0, 2.0)
    saver.load_state_dict({"is_monitor_validated": True})
    trainer.on_train_batch = lambda t: t.stop("enough")
    trainer.fit(2)
    assert trainer.saved == [f"epoch={e}-step={2 * e + n}.ckpt" for e in (0, 1) for n in (1, 2)]


def test_stop_is_waited_for_though_validation_counts_batches(fake, tmp_path):
    """A run that stops validates once more, whatever the interval, and the save waits for that."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = fake(saver, val_check_interval=3)
    trainer.start()
    trainer.on_train_batch = lambda t: t.stop("enough")
    trainer.run_batch(0)
    assert trainer.saved == []


def test_a_save_put_off_belongs_to_its_epoch(fake, tmp_path):
    """A state from before a save that was put off does not set one off an epoch later."""
    saver = keep_all(tmp_path, every_n_train_steps=100)
    saver.load_state_dict({"deferred_at": 4})
    trainer = fake(saver)
    trainer.progress.batches_completed = 8
    trainer.start()
    saver.on_epoch_checkpoint(trainer, None)
    assert trainer.saved == []


def test_counting_starts_anew_with_a_new_training(fake, tmp_path):
    """A second training of the same callback counts its own steps."""
    saver = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=3, enable_version_counter=False)
    for _ in range(2):
        trainer = fake(saver)
        trainer.fit(2)
        assert trainer.saved == ["step=3.ckpt", "step=6.ckpt"]


def test_no_waiting_where_the_validation_has_run(fake, tmp_path):
    """On the batch that stops the run, a validation that has just run on it is not waited for."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = fake(saver, val_check_interval=1)
    trainer.on_validation = lambda t: t.log(val_loss=1.0)
    trainer.start()
    trainer.on_train_batch = lambda t: t.stop("enough")
    trainer.run_batch(0)
    assert trainer.saved == ["epoch=0-step=1.ckpt"]
