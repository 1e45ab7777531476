"""Options of the Trainer: what is refused, what is read, precision, seeds, inference."""

from __future__ import annotations

import multiprocessing
import sys

import torch

from programs import differs, error


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


@differs(
    "`estimated_stepping_batches` in a `fit` after one that was left inside an epoch",
    steps=(12, 13),
)
def estimated_stepping_batches_of_an_epoch_that_begins_again(x):
    """The first fit ends with an error after the second epoch's first step."""
    seen = []

    class Net(x.Net):
        def on_train_batch_start(self, batch, batch_idx):
            seen.append([self.current_epoch, batch_idx])
            if len(seen) == 6:
                raise ValueError("broken")

    module, trainer = Net(), x.trainer(max_epochs=3)
    broken = x.error(lambda: trainer.fit(module, x.loader(4)))
    seen.append("again")
    trainer.fit(module, x.loader(4))
    steps, done = trainer.estimated_stepping_batches, trainer.global_step
    return {"broken": broken, "seen": seen, "steps": steps, "done": done}


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
