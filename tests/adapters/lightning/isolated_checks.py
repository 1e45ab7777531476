"""The proxies that callbacks of Lightning get in our Trainer.

`test_package.py` runs these tests with the package `lightning`, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import trainer_hooks
import trainer_hooks.callbacks
from trainer_hooks.adapters import to_lightning
from trainer_hooks.trainer.identity.run_identity import TRAININGS, ProcessTrainings

pl = pytest.importorskip("pytorch_lightning", reason="needs pytorch-lightning")
theirs = pl.callbacks
theirs_loggers = pl.loggers

pytestmark = pytest.mark.filterwarnings("ignore")

IMPORTS = ("pytorch_lightning",)


class Ours(trainer_hooks.Module):
    """A module of ours."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val", self.layer(batch).pow(2).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def loader():
    return DataLoader(torch.arange(32.0).reshape(8, 4) / 32, batch_size=2)


def trainer(*callbacks, **options):
    quiet = {
        "accelerator": "cpu", "max_epochs": 1, "default_root_dir": tempfile.mkdtemp(),
        "enable_progress_bar": False, "enable_model_summary": False, "logger": False,
        "num_sanity_val_steps": 0, "enable_checkpointing": None, "plugins": False,
    }  # fmt: skip
    return trainer_hooks.Trainer(**{**quiet, **options}, callbacks=list(callbacks))


def seen_by(name, look, **options):
    """Return what a callback of Lightning sees in a hook, of a fit with a module of ours."""
    found = []

    def hook(self, trainer, pl_module, *rest):
        found.append(look(trainer, pl_module))

    guest = type("Looking", (pl.Callback,), {name: hook})()
    trainer(guest, **options).fit(Ours(), loader(), loader())
    return found


def error_of(reach):
    """Return the error's text where a callback reaches for something of Lightning's Trainer."""

    def look(trainer, module):
        try:
            return reach(trainer)
        except (AttributeError, trainer_hooks.TrainerHooksError) as error:
            return str(error)

    (message,) = seen_by("on_fit_start", look)
    return message


def test_an_attribute_that_is_lacking_is_named():
    message = error_of(lambda trainer: trainer.weather)
    assert "'weather' of Lightning's Trainer" in message
    assert "on_fit_start of callback Looking (state_key 'lightning:Looking'" in message
    message = error_of(lambda trainer: trainer.strategy.weather)
    assert "'weather' of Lightning's Trainer.strategy" in message


def test_batches_without_a_backward_are_refused():
    message = error_of(lambda trainer: setattr(trainer.fit_loop, "_skip_backward", True))
    assert "StochasticWeightAveraging" in message


def test_isinstance_takes_the_views():
    def look(trainer, module):
        return [
            isinstance(trainer, pl.Trainer), isinstance(module, pl.LightningModule),
            isinstance(module, Ours), isinstance(module, torch.nn.Module),
            trainer.lightning_module is module, module.trainer is trainer,
            trainer.strategy.lightning_module is module,
        ]  # fmt: skip

    assert seen_by("on_fit_start", look) == [[True] * 7]


def test_what_callbacks_reach_for_is_there():
    def look(trainer, module):
        trainer.strategy.barrier()
        trainer.fit_loop.current_epoch = 7
        return [
            trainer.is_global_zero, trainer.strategy.broadcast(3), trainer.num_devices,
            trainer.strategy.reduce_boolean_decision(True), str(trainer.strategy.root_device),
            trainer._accelerator_connector.is_distributed, trainer.local_rank, trainer.scaler,
            trainer.fit_loop.epoch_loop._batches_that_stepped, trainer.fit_loop.current_epoch,
            trainer.state.fn.value, trainer.state.stage.value, trainer.state.status.value,
            len(trainer.strategy.optimizers), trainer.enable_validation, trainer.datamodule,
            sorted(trainer._checkpoint_connector.dump_checkpoint()["state_dict"]),
        ]  # fmt: skip

    first, second = seen_by("on_train_batch_end", look, limit_train_batches=2)
    assert first == [
        True, 3, 1, True, "cpu", False, 0, None, 0, 0, "fit", "train", "running", 1, True, None,
        ["layer.bias", "layer.weight"],
    ]  # fmt: skip
    assert second[8] == 1


def test_a_setting_of_the_optimizers_reaches_the_step():
    class Swap(pl.Callback):
        def on_train_start(self, trainer, pl_module):
            trainer.strategy.optimizers = [torch.optim.SGD(pl_module.parameters(), 0.0)]

    module = Ours()
    before = module.layer.weight.detach().clone()
    trainer(Swap()).fit(module, loader())
    assert torch.equal(before, module.layer.weight)


def test_foreign_callbacks_are_found_as_they_were_given():
    saver, stopper = theirs.ModelCheckpoint(), theirs.EarlyStopping("val")
    found = []

    class Look(pl.Callback):
        def on_fit_start(self, trainer, pl_module):
            found.append(trainer.checkpoint_callback is saver)
            found.append(trainer.early_stopping_callback is stopper)
            found.append(self in trainer.callbacks)

    ours = trainer(Look(), saver, stopper)
    ours.fit(Ours(), loader(), loader())
    assert found == [True] * 3
    names = [type(callback).__name__ for callback in ours.callbacks]
    assert names.count("ModelCheckpoint") == 1
    assert names[-1] == "ModelCheckpoint"


def test_defaults_step_back():
    summary, timer = theirs.ModelSummary(), theirs.Timer()
    bar = theirs.TQDMProgressBar()
    ours = trainer(
        summary, timer, bar, max_time="00:01:00:00",
        enable_progress_bar=None, enable_model_summary=None,
    )  # fmt: skip
    names = [type(callback).__name__ for callback in ours.callbacks]
    assert sorted(names) == sorted(
        ["ModelSummary", "Timer", "TQDMProgressBar", "ModelCheckpoint"]
    ), names


def test_log_logs_under_the_guests_hook():
    class Logs(pl.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            self.log("a", 1.0)
            pl_module.log("b", 2.0)

    guest = Logs()
    ours = trainer(guest)
    ours.fit(Ours(), loader())
    assert ours.callback_metrics["a"] == 1
    assert ours.callback_metrics["b"] == 2
    assert "log" not in vars(guest)


def test_teardown_is_left_out_after_an_error():
    calls = []

    class Fails(pl.Callback):
        def on_train_batch_end(self, *args):
            raise RuntimeError("on purpose")

        def on_exception(self, trainer, pl_module, exception):
            calls.append(str(exception))

        def teardown(self, *args, **named):
            calls.append("teardown")

    with contextlib.suppress(RuntimeError):
        trainer(Fails()).fit(Ours(), loader())
    assert calls == ["on purpose"]


def test_stopping_stops():
    class Stops(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            trainer.should_stop = True

    ours = trainer(Stops())
    ours.fit(Ours(), loader())
    assert ours.global_step == 1


def test_a_resume_from_a_savers_file_fires_no_hook_twice():
    folder = Path(tempfile.mkdtemp())
    ends = []

    class Counts(pl.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            ends.append(trainer.current_epoch)

    saver = theirs.ModelCheckpoint(dirpath=folder, monitor="val", save_top_k=-1)
    trainer(Counts(), saver).fit(Ours(), loader(), loader())
    (path,) = folder.iterdir()
    second = theirs.ModelCheckpoint(dirpath=folder, monitor="val", save_top_k=-1)
    trainer(Counts(), second, max_epochs=2).fit(Ours(), loader(), loader(), ckpt_path=path)
    assert ends == [0, 1]
    assert len(second.best_k_models) == 2


def test_a_logger_of_fabric_is_taken_too():
    from lightning_fabric.loggers import CSVLogger

    from trainer_hooks.adapters.lightning import adapt_logger

    folder = Path(tempfile.mkdtemp())
    logger = adapt_logger(CSVLogger(folder, flush_logs_every_n_steps=1))
    trainer(logger=logger, log_every_n_steps=1).fit(Ours(), loader(), loader())
    (file,) = folder.rglob("metrics.csv")
    assert "loss" in file.read_text().splitlines()[0]


def test_the_last_checkpoint_of_a_guest_is_found():
    saver = theirs.ModelCheckpoint(save_last=True)
    ours = trainer(saver)
    ours.fit(Ours(), loader())
    again = trainer(theirs.ModelCheckpoint(save_last=True, dirpath=saver.dirpath), max_epochs=2)
    again.fit(Ours(), loader(), ckpt_path="last")
    assert again.current_epoch == 2


def test_the_words_find_the_files_of_guests():
    folder = tempfile.mkdtemp()

    def fresh(epochs):
        saver = theirs.ModelCheckpoint(folder, "{epoch}", "seen", save_top_k=3, save_last=True)
        return saver, trainer(saver, max_epochs=epochs)

    class Seen(Theirs):
        def on_validation_epoch_end(self):
            self.log("seen", abs(self.current_epoch - 1.0))

        def validation_step(self, batch, batch_idx):
            pass

        def test_step(self, batch, batch_idx):
            self.log("weight", self.layer.weight.sum())

    module = Seen()
    saver, first = fresh(3)
    first.fit(module, loader(), loader(), ckpt_path="auto")
    assert first.current_epoch == 3
    assert Path(saver.best_model_path).name == "epoch=1.ckpt"
    found = {
        word: first.test(ckpt_path=word, dataloaders=loader(), verbose=False)[0]["weight"]
        for word in ("best", "last", saver.best_model_path, saver.last_model_path)
    }
    assert found["best"] == found[saver.best_model_path] != found["last"]
    assert found["last"] == found[saver.last_model_path]
    for word in ("auto", "last"):
        ProcessTrainings.__init__(TRAININGS)  # as if this process had just begun
        _, again = fresh(4)
        again.fit(Seen(), loader(), loader(), ckpt_path=word)
        assert (again.current_epoch, again.global_step) == (4, 16)
    ProcessTrainings.__init__(TRAININGS)
    _, other = fresh(3)
    weight = other.test(Seen(), loader(), ckpt_path="best", verbose=False)[0]["weight"]
    assert weight == found["best"]


def test_a_guest_saves_when_the_process_is_told_to_end():
    folder = tempfile.mkdtemp()

    class Ends(pl.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if batch_idx == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    with contextlib.suppress(SystemExit):
        trainer(Ends(), theirs.ModelCheckpoint(folder)).fit(Theirs(), loader())
    (path,) = Path(folder).iterdir()
    assert path.name == "requested-epoch=0-step=2.ckpt"
    again = trainer(theirs.ModelCheckpoint(folder))
    again.fit(Theirs(), loader(), ckpt_path="auto")
    whole = trainer(max_epochs=1)
    whole.fit(Theirs(), loader())
    assert again.global_step == whole.global_step == 4


def test_a_guest_saves_when_it_is_asked():
    folder = tempfile.mkdtemp()

    class Asks(trainer_hooks.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                trainer.request_checkpoint()

    trainer(Asks(), theirs.ModelCheckpoint(folder, save_top_k=0)).fit(Theirs(), loader())
    (path,) = Path(folder).iterdir()
    assert path.name == "requested-epoch=0-step=2.ckpt"


def test_overridden_inner_methods_run():
    asked = []

    class Patient(theirs.EarlyStopping):
        def _evaluate_stopping_criteria(self, current):
            asked.append(float(current))
            return True, "enough"

    ours = trainer(Patient("val"), max_epochs=3)
    ours.fit(Ours(), loader(), loader())
    assert ours.current_epoch == 1
    assert len(asked) == 1


class Theirs(pl.LightningModule):
    """A module of Lightning."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Counting(trainer_hooks.Callback):
    """A callback of ours, with a state."""

    def __init__(self):
        self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        self.log("batches", float(self.batches))
        if self.batches == 6:
            trainer.stop("enough")

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


def there(*callbacks, **options):
    quiet = {
        "accelerator": "cpu", "logger": False, "enable_progress_bar": False,
        "enable_model_summary": False, "default_root_dir": tempfile.mkdtemp(),
        "enable_checkpointing": False,
    }  # fmt: skip
    return pl.Trainer(**{**quiet, **options}, callbacks=list(callbacks))


def test_a_logger_hears_once_of_a_savers_file():
    class Listening(theirs_loggers.CSVLogger):
        heard = 0

        def after_save_checkpoint(self, checkpoint_callback):
            self.heard += 1

    folder = tempfile.mkdtemp()
    for saver in (theirs.ModelCheckpoint(folder), trainer_hooks.callbacks.ModelCheckpoint(folder)):
        logger = Listening(folder)
        trainer(saver, logger=logger).fit(Ours(), loader())
        assert logger.heard == 1


def test_a_hook_that_lightning_lacks_is_refused():
    class Before(trainer_hooks.Callback):
        def on_before_loss(self, trainer, module):
            pass

    with pytest.raises(trainer_hooks.TrainerHooksError) as caught:
        to_lightning(Before())
    assert "Lightning has no hook 'on_before_loss'" in str(caught.value)


def test_one_of_ours_that_restarts_the_training_is_refused_as_it_is_converted():
    for callback in (
        trainer_hooks.callbacks.LearningRateFinder(),
        trainer_hooks.callbacks.BatchSizeFinder(),
    ):
        with pytest.raises(trainer_hooks.TrainerHooksError) as caught:
            to_lightning(callback)
        name = type(callback).__name__
        assert f"to_lightning({name}): Lightning's trainer has no" in str(caught.value)
        assert "Tuner" in str(caught.value)


def test_our_accumulation_schedule_makes_the_steps_of_theirs():
    steps = []
    for scheduler in (
        theirs.GradientAccumulationScheduler({1: 2}),
        to_lightning(trainer_hooks.callbacks.GradientAccumulationScheduler({1: 2})),
    ):
        run = there(scheduler, max_epochs=3)
        run.fit(Theirs(), loader())
        steps.append(run.global_step)
    assert steps[0] == steps[1] < 3 * len(loader())


def test_one_of_ours_runs_in_lightnings_trainer_also_resumed():
    counting = Counting()
    first = there(to_lightning(counting), max_epochs=1)
    first.fit(Theirs(), loader())
    path = Path(tempfile.mkdtemp(), "cut.ckpt")
    first.save_checkpoint(path)
    assert float(first.callback_metrics["batches"]) == 4
    resumed = Counting()
    second = there(to_lightning(resumed), max_epochs=3)
    second.fit(Theirs(), loader(), ckpt_path=path)
    assert resumed.batches == 6
    assert second.global_step == 6


def heard_by(listed, hook, change):
    """Return the batches that a callback hears of in two epochs, there and here.

    Args:
        listed: whether it is among the callbacks from the beginning.
        hook: a hook of another callback.
        change: what that one does in its first call of the hook, given the trainer and this one.
    """

    class Counts(pl.Callback):
        batches = 0

        def on_train_batch_end(self, *args):
            self.batches += 1

    found = []
    for make in (there, trainer):
        counts, changes = Counts(), [change]

        def act(self, trainer, pl_module, *rest, counts=counts, changes=changes, **named):
            while changes:
                changes.pop()(trainer, counts)

        other = type("Changing", (pl.Callback,), {hook: act})()
        one = make(other, *([counts] if listed else []), max_epochs=2)
        one.fit(Theirs(), loader())
        found.append(counts.batches)
    return found


def set_callbacks(trainer, callbacks):
    trainer.callbacks = callbacks


def add_in_place(trainer, one):
    trainer.callbacks += [one]


def test_a_guest_adds_callbacks():
    ways = [
        lambda trainer, one: trainer.callbacks.append(one),
        lambda trainer, one: trainer.callbacks.insert(0, one),
        lambda trainer, one: trainer.callbacks.extend([one]),
        add_in_place,
        lambda trainer, one: set_callbacks(trainer, [*trainer.callbacks, one]),
    ]
    for way in ways:
        for hook in ("setup", "on_fit_start", "on_train_start", "on_train_epoch_start"):
            assert heard_by(False, hook, way) == [8, 8]
        assert heard_by(False, "on_train_epoch_end", way) == [4, 4]


def test_a_guest_removes_callbacks():
    ways = [
        lambda trainer, one: trainer.callbacks.remove(one),
        lambda trainer, one: trainer.callbacks.pop(trainer.callbacks.index(one)),
        lambda trainer, one: set_callbacks(trainer, [c for c in trainer.callbacks if c is not one]),
    ]
    for way in ways:
        for hook, batches in (("setup", 0), ("on_train_start", 0), ("on_train_epoch_end", 4)):
            assert heard_by(True, hook, way) == [batches, batches]


def test_what_a_guest_adds_is_found_as_it_was_given():
    added, ours, seen = pl.Callback(), Counting(), []

    class Adds(pl.Callback):
        def setup(self, trainer, pl_module, stage):
            trainer.callbacks.extend([added, ours])

        def on_train_start(self, trainer, pl_module):
            seen.extend(one in trainer.callbacks for one in (self, added, ours))
            trainer.callbacks.remove(added)
            seen.append(added in trainer.callbacks)

    trainer(Adds()).fit(Ours(), loader())
    assert seen == [True, True, True, False]
    assert ours.batches == 4
