"""Built-in callbacks that both have."""

from __future__ import annotations

from typing import Any

import torch
from side import Rows

from programs import differs, error

AT_THE_END = "`EarlyStopping` at a value that ends the run by a threshold or by not being finite"
ERRORS = "The class of some errors"


def _decaying(x: Any, values: list[float]) -> Any:
    """Return a module class that logs these values, one for each epoch's validation."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val", values[self.current_epoch])

    return Net


def _stopped(x: Any, values: list[float], **options: Any) -> dict[str, Any]:
    stopper = x.callbacks.EarlyStopping("val", **options)
    trainer = x.trainer(stopper, max_epochs=len(values))
    trainer.fit(_decaying(x, values)(), x.loader(2), x.loader(1))
    return {
        "epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch,
        "waited": stopper.wait_count, "best": float(stopper.best_score), "mode": stopper.mode,
        "stop": trainer.should_stop,
    }  # fmt: skip


def early_stopping(x):
    """Patience of two epochs."""
    return _stopped(x, [1.0, 0.9, 0.95, 0.92, 0.93, 0.5], patience=2)


def early_stopping_max(x):
    """The other way round."""
    return _stopped(x, [1.0, 2.0, 1.5, 1.6, 3.0], mode="max", patience=2)


def early_stopping_min_delta(x):
    """An improvement must be large enough."""
    return _stopped(x, [1.0, 0.95, 0.91, 0.5, 0.1], min_delta=0.1, patience=2)


@differs(AT_THE_END, best=(0.5, 0.1), waited=(0, 1))
def early_stopping_thresholds(x):
    """A value that is good enough, and one that is too bad."""
    good = _stopped(x, [1.0, 0.5, 0.1, 0.0], stopping_threshold=0.2)
    bad = _stopped(x, [1.0, 5.0, 0.1, 0.0], divergence_threshold=4.0)
    return {"best": good.pop("best"), "waited": bad.pop("waited"), "good": good, "bad": bad}


@differs(AT_THE_END, waited=(0, 1))
def early_stopping_not_finite(x):
    """NaN stops, unless `check_finite` is off."""
    on = _stopped(x, [1.0, float("nan"), 0.5])
    return {
        "waited": on.pop("waited"),
        "on": on,
        "off": _stopped(x, [1.0, float("nan"), 0.5], check_finite=False),
    }


@differs(ERRORS, strict=(error("RuntimeError"), error("MetricError")))
def early_stopping_without_the_value(x):
    """An unknown monitor is refused, unless `strict` is off."""

    def run(**options):
        stopper = x.callbacks.EarlyStopping("nothing", **options)
        x.trainer(stopper, max_epochs=2).fit(x.Net(), x.loader(1), x.loader(1))

    return {"strict": x.error(run), "not strict": x.error(lambda: run(strict=False))}


def early_stopping_on_a_training_value(x):
    """A monitor that is logged in training."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("a", float(self.current_epoch), on_step=False, on_epoch=True)
            return self.cost(batch)

    stopper = x.callbacks.EarlyStopping("a", patience=2)
    trainer = x.trainer(stopper, max_epochs=6)
    trainer.fit(Net(), x.loader(2))
    return {"epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch}


def early_stopping_at_the_end_of_training(x):
    """`check_on_train_epoch_end=False` waits for the validation."""
    return _stopped(x, [1.0, 2.0, 3.0, 4.0], patience=1, check_on_train_epoch_end=False)


def early_stopping_and_min_epochs(x):
    """`min_epochs` holds it back."""
    stopper = x.callbacks.EarlyStopping("val", patience=1)
    trainer = x.trainer(stopper, max_epochs=6, min_epochs=4)
    trainer.fit(_decaying(x, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])(), x.loader(2), x.loader(1))
    return {"epochs": trainer.current_epoch, "stopped": stopper.stopped_epoch}


def early_stopping_options(x):
    """What it cannot be given."""
    return {
        "mode": x.error(lambda: x.callbacks.EarlyStopping("a", mode="odd")),
        "monitor": x.error(lambda: x.callbacks.EarlyStopping()),
    }


def early_stopping_resumes(x):
    """Its count goes on after a resume."""
    values = [1.0, 2.0, 3.0, 4.0, 5.0]

    def trainer(epochs):
        return x.trainer(x.callbacks.EarlyStopping("val", patience=3), max_epochs=epochs)

    first = trainer(2)
    first.fit(_decaying(x, values)(), x.loader(2), x.loader(1))
    first.save_checkpoint(x.folder / "a.ckpt")
    second = trainer(5)
    second.fit(_decaying(x, values)(), x.loader(2), x.loader(1), ckpt_path=x.folder / "a.ckpt")
    stopper = second.early_stopping_callback
    return {"epochs": second.current_epoch, "waited": stopper.wait_count}


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


def gradient_accumulation_scheduler(x):
    """Batches in a step, by epoch."""
    scheduler = x.callbacks.GradientAccumulationScheduler({0: 1, 1: 2, 3: 4})
    steps = []

    class Net(x.Net):
        def on_train_epoch_end(self):
            steps.append([self.global_step, self.trainer.accumulate_grad_batches])

    module = Net()
    x.trainer(scheduler, max_epochs=4).fit(module, x.loader(4))
    return {"steps": steps, "weights": x.weights(module)}


@differs(
    ERRORS,
    empty=(error("TypeError"), error("OptionError")),
    with_the_option=(error("ValueError"), error("UsageError")),
)
def gradient_accumulation_scheduler_options(x):
    """What it cannot be given."""
    make = x.callbacks.GradientAccumulationScheduler
    return {
        "empty": x.error(lambda: make({})),
        "zero": x.error(lambda: make({0: 0})),
        "negative": x.error(lambda: make({-1: 2})),
        "with_the_option": x.error(
            lambda: x.trainer(make({1: 2}), accumulate_grad_batches=2).fit(x.Net(), x.loader(2))
        ),
    }


def weight_averaging(x):
    """The average of the weights is swapped in for validation and at the end."""
    module = x.Net()
    average = x.callbacks.WeightAveraging(use_buffers=True)
    trainer = x.trainer(average, max_epochs=2)
    trainer.fit(module, x.loader(3), x.loader(2))
    return {"averaged": x.weights(module), "metrics": x.metrics(trainer)}


def weight_averaging_by_hook(x):
    """`should_update` decides by step or by epoch."""

    class Own(x.callbacks.WeightAveraging):
        def should_update(self, step_idx=None, epoch_idx=None):
            return epoch_idx is not None

    module = x.Net()
    x.trainer(Own(), max_epochs=3).fit(module, x.loader(3))
    return {"weights": x.weights(module)}


def ema_weight_averaging(x):
    """The exponential average."""
    module = x.Net()
    average = x.callbacks.EMAWeightAveraging(
        decay=0.8, update_every_n_steps=2, update_starting_at_step=1
    )
    x.trainer(average, max_epochs=2).fit(module, x.loader(3))
    return {"weights": x.weights(module)}


def stochastic_weight_averaging(x):
    """Averages from an epoch on, with its own learning rate."""
    module = x.Net()
    swa = x.callbacks.StochasticWeightAveraging(swa_lrs=0.05, swa_epoch_start=2, annealing_epochs=2)
    rates = []

    class See(x.Callback):
        def on_train_epoch_end(self, trainer, module):
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    x.trainer(swa, See(), max_epochs=5).fit(module, x.loader(3))
    return {"weights": x.weights(module), "rates": rates}


@differs(
    "An unknown `annealing_strategy` of `StochasticWeightAveraging`",
    anneal=("none", error("OptionError")),
)
def stochastic_weight_averaging_options(x):
    """What it cannot be given."""
    make = x.callbacks.StochasticWeightAveraging
    return {
        "rate": x.error(lambda: make(swa_lrs=-1.0)),
        "start": x.error(lambda: make(swa_lrs=0.1, swa_epoch_start=0)),
        "share": x.error(lambda: make(swa_lrs=0.1, swa_epoch_start=1.5)),
        "anneal": x.error(lambda: make(swa_lrs=0.1, annealing_strategy="odd")),
    }


def backbone_finetuning(x):
    """The backbone is frozen until an epoch."""
    seen = []

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.backbone = torch.nn.Linear(2, 2)
            torch.nn.init.eye_(self.backbone.weight)
            torch.nn.init.zeros_(self.backbone.bias)

        def forward(self, batch):
            return self.layer(self.backbone(batch))

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

        def on_train_epoch_start(self):
            needs = self.backbone.weight.requires_grad
            rates = [group["lr"] for group in self.trainer.optimizers[0].param_groups]
            seen.append([self.current_epoch, needs, [round(rate, 8) for rate in rates]])

    module = Net()
    tuning = x.callbacks.BackboneFinetuning(
        unfreeze_backbone_at_epoch=2, backbone_initial_ratio_lr=0.1
    )
    x.trainer(tuning, max_epochs=4).fit(module, x.loader(3))
    return {"seen": seen, "weights": x.weights(module)}


def base_finetuning(x):
    """A finetuning of one's own."""

    class Own(x.callbacks.BaseFinetuning):
        def freeze_before_training(self, pl_module):
            self.freeze(pl_module.layer)

        def finetune_function(self, pl_module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group(pl_module.layer, optimizer, lr=0.05)

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.head = torch.nn.Linear(1, 1)
            torch.nn.init.ones_(self.head.weight)
            torch.nn.init.zeros_(self.head.bias)

        def forward(self, batch):
            return self.head(self.layer(batch))

        def configure_optimizers(self):
            return torch.optim.SGD(self.head.parameters(), lr=0.1)

    module = Net()
    trainer = x.trainer(Own(), max_epochs=3)
    trainer.fit(module, x.loader(3))
    return {
        "weights": x.weights(module), "groups": len(trainer.optimizers[0].param_groups),
    }  # fmt: skip


def timer(x):
    """`Timer` stops when its time is over, and tells the times."""
    clock = x.callbacks.Timer(duration={"milliseconds": 100}, interval="epoch")

    class Slow(x.Net):
        def training_step(self, batch, batch_idx):
            while clock.time_remaining() > 0:
                pass
            return self.cost(batch)

    trainer = x.trainer(clock, max_epochs=3)
    trainer.fit(Slow(), x.loader(2), x.loader(1))
    return {
        "epochs": trainer.current_epoch, "elapsed": clock.time_elapsed() > 0,
        "left": clock.time_remaining() <= 0, "validated": clock.time_elapsed("validate") > 0,
        "tested": clock.time_elapsed("test"),
        "started": clock.start_time() is not None, "none": x.callbacks.Timer().time_remaining(),
        "interval": x.error(lambda: x.callbacks.Timer(interval="odd")),
    }  # fmt: skip


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


def model_pruning(x):
    """Weights are pruned after each epoch."""
    module = x.Net()
    pruning = x.callbacks.ModelPruning(
        "l1_unstructured", parameters_to_prune=[(module.layer, "weight")], amount=1
    )
    x.trainer(pruning, max_epochs=1).fit(module, x.loader(2))
    return {"zeros": int((module.layer.weight == 0).sum())}


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
