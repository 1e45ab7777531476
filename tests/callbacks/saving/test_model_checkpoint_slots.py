from __future__ import annotations

from datetime import timedelta

import pytest

from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.errors import MetricError, TrainerHooksWarning

RANKED = {"monitor": "val_loss"}


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


@pytest.mark.parametrize(
    ("options", "by_trainer", "epochs", "saved"),
    [
        ({"every_n_epochs": 2}, {}, 5, [(1, 8), (3, 16)]),
        ({"every_n_epochs": 0}, {}, 2, []),
        ({"every_n_train_steps": 3}, {}, 2, [(0, 3), (1, 6)]),
        ({"every_n_train_steps": 3}, {"steps_per_batch": 2}, 1, [(0, 4), (0, 6)]),
        (RANKED, {"val_check_interval": 0.5}, 2, [(0, 2), (0, 4), (1, 6), (1, 8)]),
        (RANKED, {"val_check_interval": 1, "batches": 2}, 1, [(0, 1), (0, 2)]),
        (RANKED, {"check_val_every_n_epoch": 2}, 5, [(1, 8), (3, 16)]),
        ({}, {"val_batches": 0, "val_check_interval": 0.5}, 1, [(0, 4)]),
        ({"save_on_train_epoch_end": True}, {"val_check_interval": 0.5}, 2, [(0, 4), (1, 8)]),
        ({}, {"steps_per_batch": 0}, 2, [(0, 0), (1, 0)]),
    ],
    ids=[
        "epochs",
        "never",
        "steps across epochs",
        "a multiple that two optimizers jump over",
        "after each validation",
        "after each batch, though 1 == 1.0",
        "after the validation of every second epoch",
        "epochs, where there is no validation",
        "once an epoch, whatever the validations",
        "epochs whose steps cannot be counted",
    ],
)
def test_when_it_saves(fake, scores, tmp_path, options, by_trainer, epochs, saved):
    """Where the options say so it saves, once each, by epoch and step."""
    trainer = fake(keep_all(tmp_path, **options), **by_trainer)
    trainer.on_validation = scores(*range(9))
    trainer.fit(epochs)
    assert trainer.saved == [f"epoch={epoch}-step={step}.ckpt" for epoch, step in saved]


@pytest.mark.parametrize(
    "options",
    [{"every_n_train_steps": 1}, {"train_time_interval": timedelta(seconds=5)}],
    ids=["steps", "time"],
)
def test_batches_without_a_step_save_once(fake, tmp_path, clock, options):
    """While gradients accumulate, the step does not change and nothing is saved again."""
    trainer = fake(keep_all(tmp_path, **options))
    trainer.on_train_batch = lambda t: clock.__setitem__(0, clock[0] + 10)
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


@pytest.mark.parametrize(("interval", "saved"), [(3, []), (1, ["epoch=0-step=1.ckpt"])])
def test_stop_is_waited_for_though_validation_counts_batches(fake, tmp_path, interval, saved):
    """A run that stops validates once more, and the save waits, unless that has just run."""
    saver = keep_all(tmp_path, monitor="val_loss", every_n_train_steps=1)
    trainer = fake(saver, val_check_interval=interval)
    trainer.on_validation = lambda t: t.log(val_loss=1.0)
    trainer.start()
    trainer.on_train_batch = lambda t: t.stop("enough")
    trainer.run_batch(0)
    assert trainer.saved == saved


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
