"""Other callbacks that both have, and the list of them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from side import Rows
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from programs import differs, error

ERRORS = "The class of some errors"


def _rated(x: Any, **options: Any) -> Any:
    """Fit two parameter groups with a LearningRateMonitor."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(
                [{"params": [self.layer.weight]}, {"params": [self.layer.bias], "lr": 0.01}],
                lr=0.1, momentum=0.9, weight_decay=0.001,
            )  # fmt: skip
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    journal, monitor = x.journal(), x.callbacks.LearningRateMonitor(**options)
    trainer = x.trainer(monitor, logger=journal, max_epochs=2, log_every_n_steps=2)
    trainer.fit(Net(), x.loader(3))
    return {"rows": journal.rows, "lrs": dict(monitor.lrs)}


def learning_rate_monitor(x):
    """By the scheduler's interval, by epoch, by step."""
    return {
        "default": _rated(x), "epoch": _rated(x, logging_interval="epoch"),
        "step": _rated(x, logging_interval="step"),
    }  # fmt: skip


@differs(
    "`DeviceStatsMonitor` with accumulation, and in the sanity check",
    sanity=(2, 0),
    steps_of_windows=([0, 0, 0, 0, 1, 1], [0, 0, 1, 1]),
)
def device_stats_monitor(x):
    """Names, and the steps of its rows, in each verb; with accumulation."""

    def run(options, *verbs):
        journal = x.journal()
        monitor = x.callbacks.DeviceStatsMonitor()
        trainer, module = x.trainer(monitor, logger=journal, **options), x.Net()
        trainer.fit(module, x.loader(3), x.loader(2) if verbs else None)
        for verb in verbs:
            getattr(trainer, verb)(module, x.loader(2), verbose=False)
        rows = [[step, sorted(row)] for step, row in journal.rows]
        return [row for row in rows if any("DeviceStats" in name for name in row[1])]

    checked = run({"num_sanity_val_steps": 2, "log_every_n_steps": 2}, "validate", "test")
    is_checked = "train" not in checked[0][1][0]
    windows = run({"accumulate_grad_batches": 2, "log_every_n_steps": 1})
    return {
        "rows": checked[2 * is_checked :],
        "sanity": 2 * is_checked,
        "steps_of_windows": [step for step, _ in windows],
    }


def learning_rate_monitor_options(x):
    """Momentum and weight decay; what is refused."""
    return {
        "more": _rated(x, log_momentum=True, log_weight_decay=True, logging_interval="epoch"),
        "interval": x.error(lambda: x.callbacks.LearningRateMonitor(logging_interval="odd")),
        "no logger": x.error(
            lambda: x.trainer(x.callbacks.LearningRateMonitor()).fit(x.Net(), x.loader(1))
        ),
    }


def learning_rate_monitor_without_scheduler(x):
    """Without a scheduler the rates are logged too."""
    journal, monitor = x.journal(), x.callbacks.LearningRateMonitor()
    x.trainer(monitor, logger=journal, log_every_n_steps=1).fit(x.Net(), x.loader(2))
    return {"rows": journal.rows, "lrs": dict(monitor.lrs)}


def prediction_writer(x):
    """A writer is given predictions and indices, by batch and by epoch."""

    def run(interval, **options):
        calls = []

        class Own(x.callbacks.BasePredictionWriter):
            def write_on_batch_end(
                self,
                trainer,
                pl_module,
                prediction,
                batch_indices,
                batch,
                batch_idx,
                dataloader_idx,
            ):
                calls.append([list(prediction.shape), batch_indices, batch_idx, dataloader_idx])

            def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
                calls.append([len(predictions), batch_indices])

        returned = x.trainer(Own(interval)).predict(x.Net(), x.loader(2), **options)
        return [calls, None if returned is None else len(returned)]

    return {
        "batch": run("batch"), "epoch": run("epoch"), "both": run("batch_and_epoch"),
        "quiet": run("batch", return_predictions=False),
    }  # fmt: skip


def prediction_writer_with_several_loaders(x):
    """Predictions and indices of two loaders."""
    calls = []

    class Own(x.callbacks.BasePredictionWriter):
        def write_on_epoch_end(self, trainer, pl_module, predictions, batch_indices):
            calls.append([[len(one) for one in predictions], batch_indices])

    x.trainer(Own("epoch")).predict(x.Net(), [x.loader(2), x.loader(1)])
    return {"calls": calls}


def bars_and_summaries_do_no_harm(x):
    """The bars and the summary change nothing of a run."""
    module = x.Net()
    trainer = x.trainer(
        x.callbacks.TQDMProgressBar(refresh_rate=1), x.callbacks.ModelSummary(max_depth=2),
        enable_progress_bar=True, enable_model_summary=True,
    )  # fmt: skip
    trainer.fit(module, x.loader(3), x.loader(1))
    return {"weights": x.weights(module), "bar": type(trainer.progress_bar_callback).__name__}


def progress_bar_metrics(x):
    """What a bar's `get_metrics` shows."""
    seen = []

    class Bar(x.callbacks.TQDMProgressBar):
        def get_metrics(self, trainer, pl_module):
            found = super().get_metrics(trainer, pl_module)
            seen.append(sorted(found))
            found.pop("v_num", None)
            return found

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss, prog_bar=True)
            return loss

    x.trainer(Bar(), enable_progress_bar=True, logger=x.journal()).fit(Net(), x.loader(2))
    return {"seen": seen[-1]}


def two_bars_are_refused(x):
    """Only one progress bar."""
    bars = x.callbacks.TQDMProgressBar(), x.callbacks.TQDMProgressBar()
    return {"error": x.error(lambda: x.trainer(*bars, enable_progress_bar=True))}


@differs(ERRORS, error=(error("RuntimeError"), error("StateKeyError")))
def the_same_state_key_twice(x):
    """Two callbacks with state under one key."""

    class Keeps(x.Callback):
        def state_dict(self):
            return {"a": 1}

    return {"error": x.error(lambda: x.trainer(Keeps(), Keeps()))}


@differs("`state_dict` of a callback", calls=(0, 3))
def a_state_that_nothing_saves(x):
    """How often a state is asked for in three epochs without a saver."""
    calls = []

    class Counts(x.Callback):
        def state_dict(self):
            calls.append(1)
            return {"calls": len(calls)}

    trainer = x.trainer(Counts(), max_epochs=3, num_sanity_val_steps=0)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    return {"calls": len(calls)}


def on_exception_checkpoint(x):
    """`OnExceptionCheckpoint` writes a file when something raises."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise ArithmeticError
            return super().training_step(batch, batch_idx)

    saver = x.callbacks.OnExceptionCheckpoint(x.folder / "saved", filename="failed")
    error = x.error(lambda: x.trainer(saver).fit(Net(), x.loader(3)))
    return {"error": error, "files": x.files("saved/*")}


@differs(
    "Order of callbacks",
    order=(["EarlyStopping", "RecordedCallback"], ["RecordedCallback", "EarlyStopping"]),
)
def order_of_callbacks(x):
    """Checkpoints come last, a stopper where its band is."""
    stopper = x.callbacks.EarlyStopping("val")
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder)
    plain = x.hooks("on_fit_end")
    trainer = x.trainer(saver, stopper, plain, enable_checkpointing=True)
    names = [type(one).__name__ for one in trainer.callbacks]
    return {"last": names[-1], "order": names[:-1]}


def callbacks_can_be_read(x):
    """The lists and first ones by kind."""
    stopper = x.callbacks.EarlyStopping("val")
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder)
    trainer = x.trainer(saver, stopper, enable_checkpointing=True)
    return {
        "stopper": trainer.early_stopping_callback is stopper,
        "stoppers": len(trainer.early_stopping_callbacks),
        "saver": trainer.checkpoint_callback is saver,
        "savers": len(trainer.checkpoint_callbacks),
        "bar": trainer.progress_bar_callback,
    }


@differs(
    "`trainer.callbacks.insert(0, callback)`",
    first=(True, False),
)
def inserted_callbacks(x):
    """A callback that is inserted into the list."""
    trainer = x.trainer(x.callbacks.EarlyStopping("val"))
    inserted = x.callbacks.ModelCheckpoint(dirpath=x.folder)
    trainer.callbacks.insert(0, inserted)
    return {"first": trainer.callbacks[0] is inserted}


def batch_size_finder_and_rate_finder_are_there(x):
    """The finders can be made with Lightning's arguments."""
    x.callbacks.BatchSizeFinder(mode="power", steps_per_trial=2, init_val=2)
    x.callbacks.LearningRateFinder(min_lr=1e-6, num_training_steps=5)
    return {
        "mode": x.error(lambda: x.callbacks.BatchSizeFinder(mode="odd")),
    }


@differs(
    "Callback state that only running code could load",
    error=("none", error("CheckpointStateError")),
)
def state_that_code_must_load(x):
    """A callback whose state is an object."""

    class Keeps(x.Callback):
        def state_dict(self):
            return {"a": Rows}

    trainer = x.trainer(Keeps())
    trainer.fit(x.Net(), x.loader(1))
    return {"error": x.error(lambda: trainer.save_checkpoint(x.folder / "a.ckpt"))}


def throughput_monitor(x):
    """The names that `ThroughputMonitor` logs."""
    monitor = x.callbacks.ThroughputMonitor(batch_size_fn=len, window_size=2)
    journal = x.journal()
    trainer, module = x.trainer(monitor, logger=journal, log_every_n_steps=1), x.Net()
    trainer.fit(module, x.loader(4))
    trainer.predict(module, x.loader(2))
    rows = [row for row in journal.rows if "epoch" not in row[1] or len(row[1]) > 1]
    return {
        "steps": [step for step, _ in rows],
        "samples": [row.get("train|samples") for _, row in rows],
        "batches": [row.get("train|batches") for _, row in rows],
        "names": [sorted(row) for _, row in rows],
    }


@differs(
    "`batch_indices` in a `BasePredictionWriter`, where the sampler is not known",
    indices=([], None),
)
def prediction_writer_of_a_list(x):
    """A list of batches has no sampler."""
    calls = []

    class Own(x.callbacks.BasePredictionWriter):
        def write_on_batch_end(self, trainer, pl_module, prediction, batch_indices, *_):
            calls.append(batch_indices)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.trainer(Own("batch")).predict(x.Net(), [torch.ones(2, 2)])
    return {"indices": calls[0]}


def lambda_without_functions(x):
    """None stands for no function."""
    seen = []
    callback = x.callbacks.LambdaCallback(on_fit_start=None, on_fit_end=lambda *_: seen.append(1))
    x.trainer(callback).fit(x.Net(), x.loader(1))
    return {"seen": seen}


def modes_that_a_hook_sets(x):
    """They outlast the fit, and begin the next."""
    seen = []

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(1)

        def on_train_start(self):
            seen.append(self.norm.training)
            self.norm.eval()

    module = Net()
    trainer = x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(1), x.loader(1))
    seen.append(module.norm.training)
    x.trainer(max_epochs=1).fit(module, x.loader(1))
    return {"seen": seen}


@differs(
    '`LearningRateMonitor("step")` with accumulation',
    steps=([0, 0, 1, 1, 2, 2], [0, 1, 2]),
    logged=([], ["lr-SGD"]),
)
def learning_rate_monitor_by_step_with_accumulation(x):
    """The steps of its rows, and what is in `logged_metrics`, where batches accumulate."""
    journal, monitor = x.journal(), x.callbacks.LearningRateMonitor(logging_interval="step")
    trainer = x.trainer(monitor, logger=journal, log_every_n_steps=1, accumulate_grad_batches=2)
    trainer.fit(x.Net(), x.loader(6))
    return {"steps": [step for step, _ in journal.rows], "logged": sorted(trainer.logged_metrics)}


def pictures_by_callbacks(x):
    """Callbacks log pictures of the gradients of inputs, and of the model's outputs on a grid."""

    class InputGradients(x.Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            inputs = torch.nn.Parameter(batch)
            pl_module.eval()
            pl_module(inputs).sum().backward()
            pl_module.train()
            picture = inputs.grad.abs().unsqueeze(0)
            trainer.logger.experiment.add_image("inputs", picture, trainer.global_step)

    class Outputs(x.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            steps = torch.linspace(-1, 1, 3)
            pl_module.eval()
            with torch.no_grad():
                picture = pl_module(torch.cartesian_prod(steps, steps)).reshape(1, 3, 3).sigmoid()
            pl_module.train()
            trainer.logger.experiment.add_image("outputs", picture, trainer.global_step)

    module, logger = x.Net(), x.loggers.TensorBoardLogger(x.folder)
    trainer = x.trainer(
        InputGradients(), Outputs(), logger=logger, max_epochs=2, accumulate_grad_batches=2
    )
    trainer.fit(module, x.loader(3))
    written = EventAccumulator(str(logger.log_dir), size_guidance={"images": 0}).Reload()
    return {
        "pictures": {
            tag: [[event.step, list(event.encoded_image_string)] for event in written.Images(tag)]
            for tag in written.Tags()["images"]
        },
        "weights": x.weights(module),
    }
