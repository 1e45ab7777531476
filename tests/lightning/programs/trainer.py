"""The Trainer: its limits, its verbs, and what can be read from it."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import sys
from typing import Any

import torch

from programs import differs, error


def _hooks(x: Any) -> Any:
    return x.hooks(
        "on_train_epoch_start", "on_train_batch_start", "on_validation_epoch_start",
        "on_validation_batch_start", "on_train_epoch_end",
    )  # fmt: skip


def _limits(x: Any, val: Any = None, **options: Any) -> dict[str, Any]:
    """Fit with options; tell what was run and where it ended."""
    hooks, module = _hooks(x), x.Net()
    trainer = x.trainer(hooks, **options)
    trainer.fit(module, x.loader(6), val)
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "weights": x.weights(module),
        "num_training_batches": trainer.num_training_batches,
        "num_val_batches": trainer.num_val_batches if val else None,
    }


def max_epochs(x):
    """Two epochs over all batches."""
    return _limits(x, max_epochs=2)


def max_steps(x):
    """The run ends inside the second epoch."""
    return _limits(x, max_epochs=None, max_steps=8)


def max_steps_before_max_epochs(x):
    """Of two limits the first that is reached counts."""
    return _limits(x, max_epochs=3, max_steps=2)


def max_steps_zero(x):
    """No step at all."""
    return _limits(x, max_steps=0)


def max_epochs_zero(x):
    """No epoch at all."""
    return _limits(x, max_epochs=0)


def max_time(x):
    """A time that is over at once stops after the first batch's check."""
    hooks, module = _hooks(x), x.Net()
    trainer = x.trainer(hooks, max_epochs=3, max_time=dt.timedelta(0))
    trainer.fit(module, x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def max_time_waits_for_min_epochs(x):
    """`min_epochs` holds also if the time is over."""
    hooks = x.hooks("on_train_epoch_start")
    trainer = x.trainer(hooks, max_epochs=4, min_epochs=2, max_time="00:00:00:00")
    trainer.fit(x.Net(), x.loader(2))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def limit_train_batches_int(x):
    """A number of batches."""
    return _limits(x, limit_train_batches=2)


def limit_train_batches_float(x):
    """A share of the batches."""
    return _limits(x, limit_train_batches=0.5)


@differs(
    "`trainer.num_training_batches`, `num_val_batches` with a limit of 0",
    num_training_batches=("inf", 0),
)
def limit_train_batches_zero(x):
    """No batch: fit does nothing."""
    return _limits(x, limit_train_batches=0)


def limit_train_batches_one(x):
    """1 is one batch, 1.0 is all of them."""
    return _limits(x, limit_train_batches=1) | {"all": _limits(x, limit_train_batches=1.0)}


def limit_val_batches(x):
    """A number and a share of the validation batches."""
    number = _limits(x, x.loader(4), limit_val_batches=1)
    return {"number": number, "share": _limits(x, x.loader(4), limit_val_batches=0.75)}


@differs(
    "`trainer.num_training_batches`, `num_val_batches` with a limit of 0",
    num_val_batches=([], [0]),
)
def limit_val_batches_zero(x):
    """No validation."""
    return _limits(x, x.loader(4), limit_val_batches=0)


def limit_test_and_predict_batches(x):
    """The limits of the two other verbs."""
    hooks = x.hooks("on_test_batch_start", "on_predict_batch_start")
    trainer = x.trainer(hooks, limit_test_batches=1, limit_predict_batches=0.5)
    tested = trainer.test(x.Net(), x.loader(4), verbose=False)
    predicted = trainer.predict(x.Net(), x.loader(4))
    return {"calls": hooks.calls, "tested": tested, "predicted": predicted}


def val_check_interval_int(x):
    """A validation after every second batch."""
    return _limits(x, x.loader(1), val_check_interval=2, max_epochs=2)


def val_check_interval_float(x):
    """A validation after each half of an epoch."""
    return _limits(x, x.loader(1), val_check_interval=0.5)


def val_check_interval_across_epochs(x):
    """With `check_val_every_n_epoch=None` the batches are counted through."""
    return _limits(x, x.loader(1), val_check_interval=4, check_val_every_n_epoch=None, max_epochs=2)


def val_check_interval_uneven(x):
    """An interval that does not divide the epoch."""
    return _limits(x, x.loader(1), val_check_interval=4, max_epochs=2)


def val_check_interval_too_large(x):
    """An interval larger than the epoch is refused."""
    trainer = x.trainer(val_check_interval=7)
    return {"error": x.error(lambda: trainer.fit(x.Net(), x.loader(6), x.loader(1)))}


def check_val_every_n_epoch(x):
    """A validation in every second epoch."""
    return _limits(x, x.loader(1), check_val_every_n_epoch=2, max_epochs=4)


def check_val_and_interval(x):
    """Both: inside of every second epoch."""
    return _limits(x, x.loader(1), check_val_every_n_epoch=2, val_check_interval=3, max_epochs=2)


def accumulate_grad_batches(x):
    """Two batches to a step; the odd one at the end is a step of its own."""
    hooks, module = x.hooks("on_before_optimizer_step", "on_train_batch_end"), x.Net()
    trainer = x.trainer(hooks, accumulate_grad_batches=2, max_epochs=2)
    trainer.fit(module, x.loader(5))
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "weights": x.weights(module),
        "stepping": trainer.estimated_stepping_batches,
    }


def accumulate_and_max_steps(x):
    """`max_steps` counts optimizer steps."""
    return _limits(x, accumulate_grad_batches=4, max_steps=3, max_epochs=None)


def gradient_clip_norm(x):
    """Gradients clipped by norm, the default."""
    return _limits(x, gradient_clip_val=0.05)


def gradient_clip_value(x):
    """Gradients clipped by value."""
    return _limits(x, gradient_clip_val=0.02, gradient_clip_algorithm="value")


def gradient_clip_accumulated(x):
    """Clipped once for each step, after accumulation."""
    return _limits(x, gradient_clip_val=0.05, accumulate_grad_batches=3)


def gradient_clip_zero(x):
    """0 clips nothing."""
    return _limits(x, gradient_clip_val=0)


def gradient_clip_unknown(x):
    """An unknown algorithm is refused."""
    return {"error": x.error(lambda: x.trainer(gradient_clip_algorithm="odd"))}


def sanity_check(x):
    """Two validation batches before training."""
    hooks = x.hooks(
        "on_sanity_check_start", "on_validation_batch_start", "on_validation_epoch_end",
        "on_sanity_check_end", "on_train_start",
    )  # fmt: skip
    trainer = x.trainer(hooks, num_sanity_val_steps=2)
    trainer.fit(x.Net(), x.loader(2), x.loader(3))
    return {"calls": hooks.calls, "metrics": x.metrics(trainer)}


def sanity_check_all(x):
    """-1 takes all batches."""
    hooks = x.hooks("on_validation_batch_start", "on_sanity_check_end")
    trainer = x.trainer(hooks, num_sanity_val_steps=-1)
    trainer.fit(x.Net(), x.loader(2), x.loader(3))
    return {"calls": hooks.calls}


def sanity_check_is_not_logged(x):
    """What the sanity check logs goes to no logger and stays in no metrics."""
    seen, journal = [], x.journal()

    class Net(x.Net):
        def on_train_start(self):
            seen.append(sorted(self.trainer.callback_metrics))

    x.trainer(logger=journal, num_sanity_val_steps=1).fit(Net(), x.loader(2), x.loader(3))
    return {"seen": seen, "rows": journal.rows}


def overfit_batches_int(x):
    """Two batches of training, also for validation."""
    return _limits(x, x.loader(4), overfit_batches=2, max_epochs=2)


def overfit_batches_float(x):
    """A share of the batches."""
    return _limits(x, x.loader(4), overfit_batches=0.5)


def overfit_batches_does_not_shuffle(x):
    """A shuffled loader is gone through in order."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(batch[:, 0])
            return self.cost(batch)

    x.trainer(overfit_batches=2, max_epochs=2).fit(Net(), x.loader(6, shuffle=True))
    return {"seen": seen}


def fast_dev_run(x):
    """One batch of everything, no logs and no files."""
    hooks, journal = _hooks(x), x.journal()
    trainer = x.trainer(
        hooks, fast_dev_run=True, logger=journal, max_epochs=5, enable_checkpointing=True
    )
    trainer.fit(x.Net(), x.loader(6), x.loader(4))
    return {
        "calls": hooks.calls,
        "counters": x.counters(trainer),
        "rows": journal.rows,
        "files": x.files(),
        "limits": [trainer.max_steps, trainer.num_sanity_val_steps, trainer.limit_val_batches],
    }


def fast_dev_run_number(x):
    """A number of batches of everything."""
    return _limits(x, x.loader(4), fast_dev_run=3)


def min_epochs(x):
    """A request to stop waits until the epochs are done."""
    hooks = x.hooks("on_train_epoch_start")

    class Net(x.Net):
        def on_train_batch_end(self, *args):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, min_epochs=2, max_epochs=5)
    trainer.fit(Net(), x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def min_steps(x):
    """A request to stop waits until the steps are done."""

    class Net(x.Net):
        def on_train_batch_end(self, *args):
            self.trainer.should_stop = True

    trainer = x.trainer(min_steps=4, max_epochs=5)
    trainer.fit(Net(), x.loader(3))
    return {"counters": x.counters(trainer)}


@differs(
    "`trainer.fit_loop.epoch_loop.batch_progress` after a run",
    after=([2, True], [0, False]),
)
def counters_of_the_epoch(x):
    """The batches of the epoch under way, and what they are after the fit."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer, where):
            batches = trainer.fit_loop.epoch_loop.batch_progress
            seen.append(
                [
                    where, batches.current.ready, batches.current.processed,
                    batches.current.completed, bool(batches.is_last_batch),
                    trainer.fit_loop.epoch_loop.batch_idx, trainer.global_step,
                ]
            )  # fmt: skip

        def on_train_batch_start(self, trainer, *args):
            self._look(trainer, "batch start")

        def on_train_batch_end(self, trainer, *args):
            self._look(trainer, "batch end")

        def on_validation_start(self, trainer, *args):
            self._look(trainer, "validation")

        def on_train_epoch_end(self, trainer, *args):
            self._look(trainer, "epoch end")

    trainer = x.trainer(See(), max_epochs=2)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    after = trainer.fit_loop.epoch_loop.batch_progress
    return {"seen": seen, "after": [after.current.completed, bool(after.is_last_batch)]}


def should_stop(x):
    """A request to stop in the middle of an epoch ends after that batch."""
    hooks = x.hooks(
        "on_train_batch_end", "on_validation_start", "on_train_epoch_end", "on_train_end"
    )

    class Net(x.Net):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.trainer.should_stop = batch_idx == 1

    trainer = x.trainer(hooks, max_epochs=5)
    trainer.fit(Net(), x.loader(4), x.loader(1))
    return {"calls": hooks.calls, "counters": x.counters(trainer), "stop": trainer.should_stop}


def stages_in_hooks(x):
    """`state.fn`, `state.stage` and the flags of the stages, as hooks see them."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer):
            state = trainer.state
            seen.append(
                [
                    state.fn, state.stage, trainer.training, trainer.validating, trainer.testing,
                    trainer.predicting, trainer.sanity_checking,
                ]
            )  # fmt: skip

        def on_train_start(self, trainer, module):
            self._look(trainer)

        def on_validation_start(self, trainer, module):
            self._look(trainer)

        def on_test_start(self, trainer, module):
            self._look(trainer)

        def on_predict_start(self, trainer, module):
            self._look(trainer)

    trainer = x.trainer(See(), num_sanity_val_steps=1)
    trainer.fit(x.Net(), x.loader(1), x.loader(1))
    trainer.validate(x.Net(), x.loader(1), verbose=False)
    trainer.test(x.Net(), x.loader(1), verbose=False)
    trainer.predict(x.Net(), x.loader(1))
    return {"seen": seen, "status": trainer.state.status}


def fit_returns_none(x):
    """`fit` returns None."""
    return {"returned": x.trainer().fit(x.Net(), x.loader(1))}


def verbs_return(x):
    """`validate` and `test` return the metrics of each loader, as dicts of floats."""
    trainer, module = x.trainer(), x.Net()
    loaders = [x.loader(2), x.loader(1, shift=1.0)]
    return {
        "validate": trainer.validate(module, x.loader(2), verbose=False),
        "validate several": trainer.validate(module, loaders, verbose=False),
        "test": trainer.test(module, x.loader(2), verbose=False),
        "test several": trainer.test(module, loaders, verbose=False),
    }


def fit_twice_goes_on(x):
    """A second fit of the same module with more epochs goes on counting."""
    module, trainer = x.Net(), x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(3))
    first = x.counters(trainer)
    trainer.fit_loop.max_epochs = 2
    hooks = x.hooks("on_train_epoch_start")
    trainer.callbacks.append(hooks)
    trainer.fit(module, x.loader(3))
    return {
        "first": first,
        "second": x.counters(trainer),
        "weights": x.weights(module),
        "calls": hooks.calls,
    }


def fit_twice_that_is_done(x):
    """A second fit of what has reached its end trains nothing."""
    module, trainer = x.Net(), x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(3))
    trainer.fit(module, x.loader(3))
    return {"counters": x.counters(trainer), "weights": x.weights(module)}


@differs(
    "The class of some errors",
    unknown=(error("TypeError"), error("OptionError")),
)
def options_that_are_refused(x):
    """What the Trainer cannot be given."""
    return {
        "max_epochs text": x.error(lambda: x.trainer(max_epochs=-2)),
        "max_steps": x.error(lambda: x.trainer(max_steps=-2)),
        "limit": x.error(lambda: x.trainer(limit_train_batches=-1)),
        "share": x.error(lambda: x.trainer(limit_val_batches=1.5)),
        "unknown": x.error(lambda: x.trainer(unknown_option=1)),
        "accelerator": x.error(lambda: x.trainer(accelerator="abacus")),
        "precision": x.error(lambda: x.trainer(precision="12-odd")),
        "check_val": x.error(lambda: x.trainer(check_val_every_n_epoch=0.5)),
        "interval": x.error(lambda: x.trainer(val_check_interval=1.5)),
        "overfit": x.error(lambda: x.trainer(overfit_batches=-1)),
        "fast": x.error(lambda: x.trainer(fast_dev_run=-1)),
        "max_time": x.error(lambda: x.trainer(max_time="soon")),
    }


@differs(
    "The class of some errors",
    no_model=(error("TypeError"), error("UsageError")),
)
def fit_without_what_it_needs(x):
    """A module without a step, optimizers or data."""

    class NoStep(x.Module):
        def configure_optimizers(self):
            return None

    class NoLoss(x.Net):
        def training_step(self, batch, batch_idx):
            return "text"

    return {
        "no step": x.error(lambda: x.trainer().fit(NoStep(), x.loader(1))),
        "no data": x.error(lambda: x.trainer().fit(x.Net())),
        "no module": x.error(lambda: x.trainer().fit(torch.nn.Linear(2, 1), x.loader(1))),
        "no loss": x.error(lambda: x.trainer().fit(NoLoss(), x.loader(1))),
        "no test data": x.error(lambda: x.trainer().test(x.Net())),
        "no_model": x.error(lambda: x.trainer().validate(dataloaders=x.loader(1))),
        "data twice": x.error(
            lambda: x.trainer().fit(x.Net(), x.loader(1), datamodule=x.DataModule())
        ),
    }


@differs(
    "`trainer.min_epochs`, `min_steps`, `gradient_clip_algorithm` that were not given",
    min_epochs=(None, 0),
    min_steps=(None, 0),
    gradient_clip_algorithm=(None, "norm"),
)
def read_before_a_run(x):
    """What a new trainer says of itself."""
    trainer = x.trainer(max_epochs=3)
    names = (
        "current_epoch", "global_step", "should_stop", "max_epochs", "min_epochs", "max_steps",
        "min_steps", "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
        "log_every_n_steps", "num_training_batches", "is_global_zero", "global_rank", "local_rank",
        "world_size", "num_nodes", "num_devices", "limit_train_batches", "limit_val_batches",
        "limit_test_batches", "limit_predict_batches", "val_check_interval",
        "check_val_every_n_epoch", "training", "validating", "precision", "loggers", "logger",
        "is_last_batch", "ckpt_path", "callback_metrics",
    )  # fmt: skip
    return {name: getattr(trainer, name) for name in names} | {
        "root": str(trainer.default_root_dir) == str(x.folder),
        "log_dir": str(trainer.log_dir) == str(x.folder),
    }


def estimated_stepping_batches(x):
    """Steps of the whole fit, asked for in `configure_optimizers`."""
    seen = []

    class Net(x.Net):
        def configure_optimizers(self):
            seen.append(self.trainer.estimated_stepping_batches)
            return super().configure_optimizers()

    for options in ({"max_epochs": 3}, {"max_steps": 5}, {"accumulate_grad_batches": 4}):
        x.trainer(**options).fit(Net(), x.loader(6))
    x.trainer(limit_train_batches=3, max_epochs=2).fit(Net(), x.loader(6))
    return {"seen": seen}


def inference_mode(x):
    """Whether gradients can be made in an evaluation."""
    seen = []

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            seen.append([torch.is_inference_mode_enabled(), torch.is_grad_enabled()])

    x.trainer().validate(Net(), x.loader(1), verbose=False)
    x.trainer(inference_mode=False).validate(Net(), x.loader(1), verbose=False)
    x.trainer().fit(Net(), x.loader(1), x.loader(1))
    return {"seen": seen}


def detect_anomaly(x):
    """Anomaly detection is on in the steps only."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(torch.is_anomaly_enabled())
            return super().training_step(batch, batch_idx)

    x.trainer(detect_anomaly=True).fit(Net(), x.loader(1))
    return {"seen": seen, "after": torch.is_anomaly_enabled()}


@differs("`Trainer(deterministic=True)`", after=(True, False))
def deterministic(x):
    """Torch's switch."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(torch.are_deterministic_algorithms_enabled())
            return super().training_step(batch, batch_idx)

    x.trainer(deterministic=True).fit(Net(), x.loader(1))
    after = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    return {"seen": seen, "after": after}


def precision_bf16(x):
    """`bf16-mixed`: the forward's type, and the weights."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(str(self(batch).dtype))
            return super().training_step(batch, batch_idx)

    module = Net()
    x.trainer(precision="bf16-mixed").fit(module, x.loader(3))
    return {"seen": seen, "weights": x.weights(module)}


def precision_64(x):
    """`64-true`: module and batches are doubles."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append([str(batch.dtype), str(self.layer.weight.dtype), str(self.dtype)])
            return super().training_step(batch, batch_idx)

    module = Net()
    x.trainer(precision="64-true").fit(module, x.loader(3))
    return {"seen": seen, "weights": x.weights(module)}


def shuffled_data_and_dropout(x):
    """After a seed the same samples, in the same order, and the same random numbers."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            seen.append(batch[:, 0])
            return self.cost(torch.nn.functional.dropout(batch))

    x.package.seed_everything(3)
    module = Net()
    x.trainer(max_epochs=2, num_sanity_val_steps=1).fit(
        module, x.loader(5, shuffle=True), x.loader(2)
    )
    return {"seen": seen, "weights": x.weights(module), "next": torch.rand(1)}


def seed_everything(x):
    """The seed that is set, and what is drawn."""
    import os
    import random

    returned = x.package.seed_everything(7, workers=True)
    drawn = [random.random(), float(torch.rand(1))]
    return {"returned": returned, "drawn": drawn, "kept": os.environ.pop("PL_GLOBAL_SEED", None)}


@differs(
    "`trainer.max_epochs`, `num_sanity_val_steps`, `fast_dev_run`",
    values=([None, "inf", True], [-1, -1, 1]),
)
def options_without_an_end(x):
    """How no end, all batches and a dry run are read from the trainer."""
    endless = x.trainer(max_epochs=None, max_steps=5, num_sanity_val_steps=-1)
    dry = x.trainer(fast_dev_run=True)
    return {"values": [endless.max_epochs, endless.num_sanity_val_steps, dry.fast_dev_run]}


@differs("`log_every_n_steps=0`, read from the trainer", read=(0, sys.maxsize))
def log_every_zero_steps(x):
    """0 hands no single values to the loggers."""
    journal = x.journal()

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("i", float(batch_idx), on_step=True, on_epoch=True)
            return self.cost(batch)

    trainer = x.trainer(logger=journal, log_every_n_steps=0)
    trainer.fit(Net(), x.loader(3))
    return {"rows": journal.rows, "read": trainer.log_every_n_steps}


@differs(
    "`trainer.max_epochs`, `max_steps`",
    epochs=(error("AttributeError"), "none"),
    steps=(error("AttributeError"), "none"),
)
def limits_that_are_set(x):
    """Whether the limits may be set after the Trainer is made."""
    trainer = x.trainer(max_epochs=1)
    return {
        "epochs": x.error(lambda: setattr(trainer, "max_epochs", 3)),
        "steps": x.error(lambda: setattr(trainer, "max_steps", 3)),
    }


@differs(
    "Default logger",
    logger=("TensorBoardLogger", "CSVLogger"),
    folder=("lightning_logs", "trainer_logs"),
)
def default_logger(x):
    """The logger of `logger=True`."""
    logger = x.trainer(logger=True).logger
    return {"logger": type(logger).__name__, "folder": logger.name, "version": logger.version}


@differs("Persistent workers of a loader", left=(0, 1))
def persistent_workers(x):
    """Whether a loader's workers live on after the fit."""
    loader = x.loader(2, num_workers=1, persistent_workers=True)
    before = len(multiprocessing.active_children())
    x.trainer().fit(x.Net(), loader)
    return {"left": len(multiprocessing.active_children()) - before}
