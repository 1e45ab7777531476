"""`self.log` in runs: what loggers, callbacks and the progress bar are given, and when."""

from __future__ import annotations

import copy
import pickle
import warnings
from itertools import pairwise

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from trainer_hooks import Band, Callback
from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.metric_objects import metric_parts
from trainer_hooks.metrics.store import floats

PLACES = {
    "training_step": "step",
    "on_train_batch_start": "step",
    "on_before_zero_grad": "step",
    "on_before_backward": "step",
    "on_after_backward": "step",
    "on_before_optimizer_step": "step",
    "on_train_batch_end": "step",
    "on_train_start": "epoch",
    "on_train_epoch_start": "epoch",
    "on_train_batches_end": "epoch",
    "on_train_epoch_end": "epoch",
    "on_validation_start": "epoch",
    "on_validation_epoch_start": "epoch",
    "on_validation_batch_start": "epoch",
    "validation_step": "epoch",
    "on_validation_batch_end": "epoch",
    "on_validation_epoch_end": "epoch",
}
CLOSED = [
    "setup",
    "configure_optimizers",
    "configure_model",
    "configure_callbacks",
    "on_fit_start",
    "on_sanity_check_start",
    "on_sanity_check_end",
    "on_validation_model_eval",
    "on_validation_model_train",
    "on_before_batch_transfer",
    "transfer_batch_to_device",
    "on_after_batch_transfer",
    "lr_scheduler_step",
    "on_save_checkpoint",
    "on_validation_end",
    "on_train_end",
    "on_fit_end",
    "teardown",
]


def logging_in(Tiny, hook: str, **options):
    """A module that logs `x` = 1.0 in one of its methods."""

    def method(self, *args):
        self.log("x", 1.0, **options)
        return None if hook == "validation_step" else getattr(Tiny, hook)(self, *args)

    body = {"validation_step": lambda self, batch, batch_idx: None}
    return type("Logging", (Tiny,), {**body, hook: method})()


@pytest.mark.parametrize("hook", CLOSED)
def test_places_where_a_value_would_mean_nothing(
    Tiny, batches, quiet_trainer, hook, tmp_path
) -> None:
    """Outside training and evaluation log is an error that names the rule."""
    module = logging_in(Tiny, hook)
    if hook == "lr_scheduler_step":
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
        type(module).configure_optimizers = lambda self: ([optimizer], [scheduler])

    class Saver(Callback):
        def on_batch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / "x.ckpt")

    trainer = quiet_trainer(num_sanity_val_steps=1, callbacks=[Saver()])
    with pytest.raises(MetricError, match=r"log\('x'\).*outside training and evaluation"):
        trainer.fit(module, batches(2), batches(2))


@pytest.mark.parametrize("hook", ["predict_step", "on_predict_batch_end", "on_predict_start"])
def test_prediction_logs_nothing(Tiny, batches, quiet_trainer, hook) -> None:
    """In prediction log is an error that names the place."""
    module = logging_in(Tiny, hook)
    module.forward = module.layer.forward
    if hook != "predict_step":
        module.predict_step = lambda batch, batch_idx: batch
    else:
        type(module).predict_step = lambda self, batch, batch_idx: self.log("x", 1.0)
    with pytest.raises(MetricError, match=r"log\('x'\) was called in prediction"):
        quiet_trainer().predict(module, batches(1))


@pytest.mark.parametrize(("hook", "kind"), PLACES.items())
def test_defaults_of_each_place(Tiny, batches, quiet_trainer, MemoryLogger, hook, kind) -> None:
    """In steps and hooks of training batches values go out by step, everywhere else by epoch."""
    logger = MemoryLogger()
    module = logging_in(Tiny, hook)
    quiet_trainer(logger=logger, log_every_n_steps=1).fit(module, batches(3), batches(2))
    steps = [step for step, metrics in logger.seen if "x" in metrics]
    assert steps == ([0, 1, 2] if kind == "step" else [2])
    assert all(metrics["x"] == 1.0 for _, metrics in logger.seen)


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_epoch_start"])
def test_hooks_of_any_epoch_log_to_that_epoch(Tiny, batches, quiet_trainer, MemoryLogger, hook):
    """What on_epoch_start and on_epoch_end log belongs to that epoch, and not to the next."""

    class Numbered(Tiny):
        def validation_step(self, batch, batch_idx): ...

    def method(self):
        name = "val_number" if self.trainer.validating else "number"
        self.log(name, float(self.current_epoch))

    setattr(Numbered, hook, method)
    logger = MemoryLogger()
    quiet_trainer(logger=logger, max_epochs=3).fit(Numbered(), batches(2), batches(1))
    for name in ("number", "val_number"):
        found = [(m["epoch"], m[name]) for _, m in logger.seen if name in m]
        assert found == [(0, 0.0), (1, 1.0), (2, 2.0)]


def test_means_are_weighted_over_an_uneven_last_batch(Tiny, quiet_trainer) -> None:
    """An epoch's mean is that over samples, equal to one computed by hand in 64 bits."""
    generator = torch.Generator().manual_seed(3)
    data = torch.randn(11, 2, generator=generator)
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    by_hand = []

    class LogsUnevenBatches(Tiny):
        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).square().mean()
            by_hand.append((loss.detach().double(), len(batch)))
            self.log("loss", loss, on_epoch=True)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val", batch.mean())

    trainer = quiet_trainer()
    trainer.fit(LogsUnevenBatches(), loader, loader)
    assert [size for _, size in by_hand] == [4, 4, 3]
    expected = sum(loss * size for loss, size in by_hand) / 11
    found = floats(trainer.callback_metrics)
    assert found["loss_epoch"] == pytest.approx(expected.item(), rel=1e-6)
    assert found["val"] == pytest.approx(data.double().mean().item(), rel=1e-6)


def test_all_reductions_in_one_fit(Tiny, quiet_trainer, batches) -> None:
    """sum, min, max, functions and given batch sizes do in a fit what they say."""

    class LogsEachReduction(Tiny):
        def training_step(self, batch, batch_idx):
            value = batch.mean()
            options = {"on_step": False, "on_epoch": True}
            for reduce_fx in ("sum", "min", "max"):
                self.log(reduce_fx, value, reduce_fx=reduce_fx, **options)
            self.log("median", value, reduce_fx=lambda v: v.median(), **options)
            self.log("weighted", value, batch_size=batch_idx + 1, **options)
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer()
    trainer.fit(LogsEachReduction(), batches(3))
    assert floats(trainer.callback_metrics) == {
        "sum": 6.0,
        "min": 1.0,
        "max": 3.0,
        "median": 2.0,
        "weighted": pytest.approx((1 * 1 + 2 * 2 + 3 * 3) / 6),
    }


def test_more_steps_than_one_chunk(Tiny, quiet_trainer) -> None:
    """An epoch of more values than are kept at once has the exact mean."""
    values = torch.arange(300.0)

    class LogsFirstValue(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("x", batch[0, 0], on_epoch=True)
            return super().training_step(batch * 0, batch_idx)

    trainer = quiet_trainer()
    trainer.fit(LogsFirstValue(), [torch.full((1, 2), value.item()) for value in values])
    assert trainer.callback_metrics["x_epoch"].item() == 149.5


def test_values_that_change_in_place_later(Tiny, quiet_trainer, batches, MemoryLogger) -> None:
    """A logged parameter, buffer and loss keep the values of their step."""
    seen = []

    class ChangesLoggedValues(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))
            self.scale = torch.nn.Parameter(torch.ones(1))

        def training_step(self, batch, batch_idx):
            self.count += 1
            self.log("count", self.count, on_epoch=True, reduce_fx="sum")
            self.log("scale", self.scale, on_epoch=True)
            loss = (self.layer(batch) * self.scale).mean()
            self.log("loss", loss, on_epoch=True)
            seen.append((self.scale.item(), loss.item()))
            loss += 100.0
            return loss

    logger = MemoryLogger()
    quiet_trainer(logger=logger, log_every_n_steps=1).fit(ChangesLoggedValues(), batches(4))
    steps = [m for _, m in logger.seen if "count_step" in m]
    assert [m["count_step"] for m in steps] == [1.0, 2.0, 3.0, 4.0]
    assert [(m["scale_step"], m["loss_step"]) for m in steps] == seen
    [epoch] = [m for _, m in logger.seen if "count_epoch" in m]
    assert epoch["count_epoch"] == 10.0
    assert epoch["scale_epoch"] == pytest.approx(sum(s for s, _ in seen) / 4)


def test_log_dict_logs_each(Tiny, quiet_trainer, batches, MemoryLogger) -> None:
    """log_dict hands its arguments to log for each item."""

    class LogsDicts(Tiny):
        def training_step(self, batch, batch_idx):
            values = {"a": batch.mean(), "b": 2}
            self.log_dict(values, prog_bar=True, on_step=False, on_epoch=True, batch_size=1)
            self.log_dict({"c": 1.0}, logger=False, reduce_fx="sum", on_epoch=True)
            return super().training_step(batch, batch_idx)

    logger = MemoryLogger()
    trainer = quiet_trainer(logger=logger)
    trainer.fit(LogsDicts(), batches(3))
    assert logger.seen == [(2, {"epoch": 0, "a": 2.0, "b": 2.0})]
    assert trainer.progress_bar_metrics == {"a": 2.0, "b": 2.0}
    assert trainer.callback_metrics["c_epoch"].item() == 3.0


def test_several_loaders_have_a_suffix(Tiny, quiet_trainer, batches) -> None:
    """With several validation loaders each name says which; results come by loader."""

    class LogsForEachLoader(Tiny):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("acc", float(dataloader_idx))
            if dataloader_idx == 0:
                self.log("first", 5.0, add_dataloader_idx=False)

        def on_validation_epoch_end(self):
            self.log("whole", 9.0)

    trainer = quiet_trainer()
    loaders = {"a": batches(1), "b": batches(2)}
    results = trainer.validate(LogsForEachLoader(), loaders, verbose=False)
    assert results == [
        {"acc/dataloader_idx_0": 0.0, "first": 5.0, "whole": 9.0},
        {"acc/dataloader_idx_1": 1.0, "whole": 9.0},
    ]
    assert set(trainer.callback_metrics) == {
        "acc/dataloader_idx_0",
        "acc/dataloader_idx_1",
        "first",
        "whole",
    }


def test_a_second_evaluation_with_other_loaders(Tiny, quiet_trainer, batches) -> None:
    """The number of loaders may change from one evaluation to the next; names follow it."""

    class LogsLoaderNumber(Tiny):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("acc", float(dataloader_idx))

    trainer, net = quiet_trainer(), LogsLoaderNumber()
    assert trainer.validate(net, batches(1), verbose=False) == [{"acc": 0.0}]
    two = {"a": batches(1), "b": batches(1)}
    assert trainer.validate(net, two, verbose=False) == [
        {"acc/dataloader_idx_0": 0.0},
        {"acc/dataloader_idx_1": 1.0},
    ]
    assert trainer.validate(net, batches(1), verbose=False) == [{"acc": 0.0}]


def test_validation_and_test_may_log_one_name_differently(Tiny, quiet_trainer, batches) -> None:
    """A name belongs to its stage: test may log `acc` with other arguments than validation did."""

    class LogsOneNameTwice(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("acc", 1.0, prog_bar=True)

        def test_step(self, batch, batch_idx):
            self.log("acc", 2.0, on_step=True, on_epoch=True)

    trainer, net = quiet_trainer(), LogsOneNameTwice()
    trainer.fit(net, batches(2), batches(1))
    assert trainer.test(net, batches(1), verbose=False) == [{"acc_epoch": 2.0}]
    assert trainer.validate(net, batches(1), verbose=False) == [{"acc": 1.0}]


def test_an_evaluation_that_broke_off_leaves_nothing(Tiny, quiet_trainer, batches) -> None:
    """Values of an evaluation that failed half-way are not in the next one's means."""

    class BreaksOffValidation(Tiny):
        fails = True

        def validation_step(self, batch, batch_idx):
            self.log("x", batch.mean())
            if self.fails and batch_idx == 1:
                raise RuntimeError("half-way")

    trainer, net = quiet_trainer(), BreaksOffValidation()
    with pytest.raises(RuntimeError, match="half-way"):
        trainer.validate(net, [batch * 1000 for batch in batches(2)], verbose=False)
    net.fails = False
    assert trainer.validate(net, batches(3), verbose=False) == [{"x": 2.0}]


def test_the_sanity_check_leaves_no_metrics(Tiny, quiet_trainer, batches, MemoryLogger) -> None:
    """Neither loggers nor callbacks nor the bar find what the sanity check logged."""
    seen = {}

    class LogsInSanityCheck(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("val", 1.0, prog_bar=True, on_step=True)

        def on_train_start(self):
            seen["callbacks"] = dict(self.trainer.callback_metrics)
            seen["bar"] = self.trainer.progress_bar_metrics
            seen["logged"] = dict(self.trainer.logged_metrics)
            seen["loggers"] = list(self.trainer.logger.seen)

    trainer = quiet_trainer(num_sanity_val_steps=2, logger=MemoryLogger())
    trainer.fit(LogsInSanityCheck(), batches(2), batches(2))
    assert seen == {"callbacks": {}, "bar": {}, "logged": {}, "loggers": []}
    assert "val" in trainer.callback_metrics


def test_a_metric_object_of_a_callback_is_found_though_it_is_falsy() -> None:
    """One whose length is 0, as that of a collection may be, has a state all the same."""
    torchmetrics = pytest.importorskip("torchmetrics")

    class Counted(torchmetrics.MeanMetric):
        def __len__(self) -> int:
            return 0

    class Holds(Callback):
        def __init__(self) -> None:
            self.metric, self.empty = Counted(), {}

    holder = Holds()
    assert metric_parts(torch.nn.Identity(), {"Holds": holder})["Holds.metric"] is holder.metric


def test_a_metric_object_has_the_value_of_each_loader(
    Tiny, quiet_trainer, MemoryLogger, batches
) -> None:
    """One object logged for several loaders: each name has its loader's value, others that of all.

    Those are names that are logged at the end, or without the loader's number. Callbacks and
    loggers get the same values, epoch by epoch.
    """
    torchmetrics = pytest.importorskip("torchmetrics")
    values = ([2.0, 4.0, 12.0], [7.0], [30.0, 10.0])

    class Shares(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.mean, self.values = torchmetrics.MeanMetric(), torchmetrics.CatMetric()
            self.pearson = torchmetrics.PearsonCorrCoef()
            self.extremes = torchmetrics.MetricCollection(
                {"low": torchmetrics.MinMetric(), "high": torchmetrics.MaxMetric()}
            )
            self.total = torchmetrics.SumMetric()
            self.sum_of_both = self.mean + self.total
            self.ends: list[dict[str, float]] = []

        def validation_step(self, batch, batch_idx, dataloader_idx):
            value = batch[0] + self.current_epoch
            for metric in (self.mean, self.extremes, self.total, self.values):
                metric.update(value)
            self.pearson.update(value.repeat(3) * torch.arange(3), torch.tensor([0.0, 1.0, 3.0]))
            self.log_dict({"mean": self.mean, "sum_of_both": self.sum_of_both})
            self.log_dict(self.extremes)
            self.log("pearson", self.pearson)
            if dataloader_idx == 2:
                self.log("all_total", self.total, add_dataloader_idx=False)
                self.log("all_mean", self.mean, add_dataloader_idx=False)

        def on_validation_epoch_end(self):
            assert len(self.values.compute()) == 6
            self.values.reset()  # it was not logged
            self.log_dict({"end_mean": self.mean, "end_pearson": self.pearson})
            self.log("end_low", self.extremes["low"])

    def wanted(epoch: int) -> dict[str, float]:
        found: dict[str, float] = {}
        for index, own in enumerate(values):
            mean, end = sum(own) / len(own), f"/dataloader_idx_{index}"
            found |= {f"mean{end}": mean + epoch, f"low{end}": min(own) + epoch}
            found |= {f"high{end}": max(own) + epoch}
        mean = 65 / 6 + epoch
        return found | {
            "all_mean": mean, "end_mean": mean, "end_low": 2.0 + epoch,
            "all_total": 65.0 + 6 * epoch, "sum_of_both/dataloader_idx_1": 14.0 + 2 * epoch,
        }  # fmt: skip

    loaders = [torch.utils.data.DataLoader(torch.tensor(own)) for own in values]
    logger, module = MemoryLogger(), Shares()
    trainer = quiet_trainer(max_epochs=2, logger=logger, num_sanity_val_steps=0)
    trainer.fit(module, batches(2), loaders)
    rows = [row for _, row in logger.seen if "end_mean" in row]
    for epoch, row in enumerate(rows):
        expected = wanted(epoch)
        assert {name: row[name] for name in expected} == pytest.approx(expected)
        # of all batches the correlation is another one than of a loader with one value
        assert row["pearson/dataloader_idx_1"] == pytest.approx(0.9819805)
        assert row["end_pearson"] < 0.97
    assert len(rows) == 2
    found = trainer.callback_metrics
    assert {name: found[name].item() for name in wanted(1)} == pytest.approx(wanted(1))
    assert trainer.validate(module, loaders, verbose=False)[1]["mean/dataloader_idx_1"] == 9.0
    assert module.mean.update_count == 0


def test_an_object_without_states_has_one_loader(Tiny, quiet_trainer) -> None:
    """A metric object whose state cannot be read is refused for a second loader."""

    class Counts:
        count = 0

        def update(self) -> None:
            self.count += 1

        def compute(self) -> float:
            return float(self.count)

        def reset(self) -> None:
            self.count = 0

    class Logs(Tiny):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            counts[dataloader_idx].update()
            self.log("batches", counts[dataloader_idx])

    loaders = [torch.utils.data.DataLoader(torch.ones(number)) for number in (2, 3)]
    counts = [Counts(), Counts()]
    found = quiet_trainer().validate(Logs(), loaders, verbose=False)
    assert [v for row in found for v in row.values()] == [2.0, 3.0]
    counts = [counts[0]] * 2
    with pytest.raises(MetricError, match="logged for another evaluation loader: it has no metric"):
        quiet_trainer().validate(Logs(), loaders, verbose=False)


def test_metric_objects_over_epochs_equal_sklearn(Tiny, quiet_trainer, MemoryLogger) -> None:
    """A torchmetrics object logged in steps is computed over each epoch, and begins anew."""
    torchmetrics = pytest.importorskip("torchmetrics")
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(50, 3, generator=generator), torch.arange(50) % 3
    expected = sklearn_metrics.accuracy_score(labels, scores.argmax(1))

    class LogsMetricObjects(Tiny):
        def __init__(self) -> None:
            super().__init__()
            kind = {"num_classes": 3, "average": "micro"}
            self.train_acc = torchmetrics.classification.MulticlassAccuracy(**kind)
            self.val_acc = torchmetrics.classification.MulticlassAccuracy(**kind)
            self.val_all = torchmetrics.MetricCollection(
                {
                    "p": torchmetrics.classification.MulticlassPrecision(3, average="macro"),
                    "r": torchmetrics.classification.MulticlassRecall(3, average="macro"),
                },
                prefix="val_",
            )
            self.late = torchmetrics.MeanMetric()

        def training_step(self, batch, batch_idx):
            score, label = batch
            self.train_acc(score, label)
            self.log("acc", self.train_acc, on_step=True, on_epoch=True)
            self.late.update(score.mean())
            return self.layer(score[:, :2]).mean()

        def on_train_epoch_end(self):
            self.log("late", self.late)

        def validation_step(self, batch, batch_idx):
            self.val_acc.update(*batch)
            self.log("val_acc", self.val_acc)
            self.val_all.update(*batch)
            self.log_dict(self.val_all)

    class Watcher(Callback):
        late: list = []  # noqa: RUF012

        def on_epoch_checkpoint(self, trainer, module):
            self.late.append(trainer.callback_metrics["late"].item())

    pairs = torch.utils.data.TensorDataset(scores, labels)
    loader = torch.utils.data.DataLoader(pairs, batch_size=8)
    logger = MemoryLogger()
    trainer = quiet_trainer(max_epochs=3, logger=logger, log_every_n_steps=1, callbacks=[Watcher()])
    trainer.fit(LogsMetricObjects(), loader, loader)
    for name in ("acc_epoch", "val_acc"):
        found = [m[name] for _, m in logger.seen if name in m]
        assert found == pytest.approx([expected] * 3), name
    first = sklearn_metrics.accuracy_score(labels[:8], scores[:8].argmax(1))
    assert logger.seen[0][1]["acc_step"] == pytest.approx(first)
    options = {"average": "macro"}
    for name, score in (("val_p", "precision_score"), ("val_r", "recall_score")):
        right = getattr(sklearn_metrics, score)(labels, scores.argmax(1), **options)
        assert [m[name] for _, m in logger.seen if name in m] == pytest.approx([right] * 3)
    means = [part.mean().item() for part in scores.split(8)]
    assert Watcher.late == pytest.approx([sum(means) / len(means)] * 3, abs=1e-6)


def test_a_collection_in_log_is_refused(Tiny, quiet_trainer, batches) -> None:
    """A torchmetrics collection belongs into log_dict, and log says so at the call."""
    torchmetrics = pytest.importorskip("torchmetrics")

    class LogsCollection(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.all = torchmetrics.MetricCollection({"m": torchmetrics.MeanMetric()})

        def training_step(self, batch, batch_idx):
            self.all.update(batch.mean())
            self.log("all", self.all, on_epoch=True)

    with pytest.raises(MetricError, match=r"log\('all'\).*collection.*log_dict"):
        quiet_trainer().fit(LogsCollection(), batches(1))


def test_callback_metrics_may_be_written_to(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """A value that one callback writes there is found by others, at any later time."""
    from trainer_hooks.callbacks import EarlyStopping

    class Writer(Callback):
        def on_train_batches_end(self, trainer, module):
            trainer.callback_metrics["mine"] = torch.tensor(1.0)
            trainer.callback_metrics["plain"] = 2.0

    trainer = quiet_trainer(max_epochs=9, callbacks=[EarlyStopping("mine", patience=2), Writer()])
    trainer.fit(Tiny(), batches(1))
    assert trainer.current_epoch == 3
    assert trainer.callback_metrics["mine"].item() == 1.0
    trainer.save_checkpoint(tmp_path / "a.ckpt")


def test_values_of_epoch_hooks_are_seen_by_later_callbacks(Tiny, quiet_trainer, batches) -> None:
    """What the module logs in on_train_epoch_end is there for savers and controllers of it."""
    seen = []

    class Epochs:
        """The least that is a metric object."""

        def __init__(self) -> None:
            self.count = 0

        def update(self) -> None:
            self.count += 1

        def compute(self) -> float:
            return float(self.count)

        def reset(self) -> None: ...

    class LogsInEpochHooks(Tiny):
        epochs = Epochs()

        def on_train_epoch_end(self):
            self.log("late", float(self.current_epoch))
            self.epochs.update()
            self.log("object", self.epochs)

    class Reader(Callback):
        band = Band.CONTROL

        def on_train_epoch_end(self, trainer, module):
            seen.append(floats(trainer.callback_metrics))

    quiet_trainer(max_epochs=2, callbacks=[Reader()]).fit(LogsInEpochHooks(), batches(1))
    assert seen == [{"late": 0.0, "object": 1.0}, {"late": 1.0, "object": 2.0}]


# --- when loggers are given what ---


@pytest.mark.parametrize(("accumulate", "every", "steps"), [(1, 3, [2, 5, 8]), (2, 2, [1, 3])])
def test_loggers_get_every_nth_window(
    Tiny, quiet_trainer, batches, MemoryLogger, accumulate, every, steps
) -> None:
    """Step values come every log_every_n_steps windows; the first at step n - 1, as elsewhere."""
    fired = []

    class LogsBatchNumber(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("number", float(self.trainer.progress.batches_completed))
            return super().training_step(batch, batch_idx)

    class Listener(Callback):
        def on_log(self, trainer, module, metrics, step):
            assert module is trainer.module
            fired.append((step, dict(metrics)))

    logger, second = MemoryLogger(), MemoryLogger()
    trainer = quiet_trainer(
        logger=[logger, second],
        log_every_n_steps=every,
        accumulate_grad_batches=accumulate,
        callbacks=[Listener()],
    )
    trainer.fit(LogsBatchNumber(), batches(10))
    assert [step for step, _ in logger.seen] == steps
    # the value is that of the window's last batch
    assert [m["number"] for _, m in logger.seen] == [(s + 1) * accumulate - 1 for s in steps]
    assert fired == second.seen == logger.seen
    # what goes to loggers is there at once, whether or not they are due
    assert trainer.logged_metrics["number"].item() == 9.0


def test_steps_go_on_over_epochs(Tiny, quiet_trainer, batches, MemoryLogger) -> None:
    """The x axis counts windows over all epochs, and epoch values stand at an epoch's last."""

    class LogsInEachEpoch(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("x", 1.0, on_epoch=True)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.log("val", 1.0)

    logger = MemoryLogger()
    quiet_trainer(logger=logger, log_every_n_steps=2, max_epochs=2).fit(
        LogsInEachEpoch(), batches(3), batches(1)
    )
    assert logger.seen == [
        (1, {"epoch": 0, "x_step": 1.0}),
        (2, {"epoch": 0, "val": 1.0}),
        (2, {"epoch": 0, "x_epoch": 1.0}),
        (3, {"epoch": 1, "x_step": 1.0}),
        (5, {"epoch": 1, "x_step": 1.0}),
        (5, {"epoch": 1, "val": 1.0}),
        (5, {"epoch": 1, "x_epoch": 1.0}),
    ]


def test_a_logged_step_and_epoch_take_the_trainers_place(
    Tiny, quiet_trainer, batches, MemoryLogger
) -> None:
    """A value named `step` becomes the x axis, and one named `epoch` stands for the trainer's."""

    class LogsStepAndEpoch(Tiny):
        def training_step(self, batch, batch_idx):
            self.log_dict({"step": 100.0 + batch_idx, "epoch": 0.5, "x": 1.0})
            return super().training_step(batch, batch_idx)

    logger = MemoryLogger()
    quiet_trainer(logger=logger, log_every_n_steps=2).fit(LogsStepAndEpoch(), batches(4))
    assert logger.seen == [(101, {"epoch": 0.5, "x": 1.0}), (103, {"epoch": 0.5, "x": 1.0})]


def test_log_metrics_of_the_trainer(Tiny, quiet_trainer, batches, MemoryLogger) -> None:
    """trainer.log_metrics hands values to all loggers at the present step or a given one."""

    class LogsThroughTrainer(Tiny):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.trainer.log_metrics({"a": 1.0})
            self.trainer.log_metrics({"b": 2.0}, step=70)
            self.trainer.log_metrics({"c": 3.0, "step": 80})

    logger = MemoryLogger()
    trainer = quiet_trainer(logger=logger)
    trainer.fit(LogsThroughTrainer(), batches(2))
    assert logger.seen == [
        (0, {"a": 1.0}),
        (70, {"b": 2.0}),
        (80, {"c": 3.0}),
        (1, {"a": 1.0}),
        (70, {"b": 2.0}),
        (80, {"c": 3.0}),
    ]
    assert floats(trainer.logged_metrics) == {"a": 1.0, "b": 2.0, "c": 3.0}


class Copies(TorchDispatchMode):
    """Counts the operations that copy from the device to the host, or between types."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.partition(".")[0] in {"_local_scalar_dense", "_to_copy"}:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("has_logger", "due"), [(True, [9, 19]), (False, [])])
def test_nothing_is_copied_in_a_step_unless_a_logger_is_due(
    Tiny, quiet_trainer, batches, MemoryLogger, has_logger, due
) -> None:
    """Three log calls a step cost no copy to the host but where the loggers get their values."""
    copies, by_step = Copies(), []

    class LogsLossInEachWay(Tiny):
        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).mean()
            self.log("loss", loss, prog_bar=True, on_epoch=True)
            self.log("twice", loss * 2)
            self.log("number", 0.5)
            return loss

        def on_train_batch_end(self, outputs, batch, batch_idx):
            by_step.append(len(copies.found))

    trainer = quiet_trainer(logger=MemoryLogger() if has_logger else False, log_every_n_steps=10)
    with copies:
        trainer.fit(LogsLossInEachWay(), batches(30))
    steps = [after - before for before, after in pairwise(by_step)]
    # one copy for each of the three values, after the hook of the batch before, and one of the
    # loss, which is looked at where others are copied anyway: a NaN is told of
    assert steps == [4 if index in due else 0 for index in range(29)]


def test_logging_without_a_trainer_warns(Tiny) -> None:
    """A module that nobody runs drops the value, and says so at the caller's line."""
    module = Tiny()
    with pytest.warns(UserWarning, match=r"log\('x'\).*no trainer runs.*dropped") as caught:
        module.log("x", 1.0)
    assert caught[0].filename == __file__


def test_log_dict_without_a_trainer_warns_at_the_callers_line(Tiny) -> None:
    """The warning of log_dict too points at the user's line."""
    with pytest.warns(UserWarning, match=r"log\('x'\)") as caught:
        Tiny().log_dict({"x": 1.0})
    assert caught[0].filename == __file__


def test_logging_is_silent_in_a_run(Tiny, quiet_trainer, batches) -> None:
    """Integers, bools and strange batches are logged without a warning."""

    class LogsPlainValues(Tiny):
        def training_step(self, batch, batch_idx):
            self.log_dict({"int": 3, "bool": True, "tensor": torch.tensor(3)}, on_epoch=True)
            return super().training_step(batch["x"][1], batch_idx)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quiet_trainer().fit(
            LogsPlainValues(), [{"name": "a", "x": (1, batch)} for batch in batches(2)]
        )


# --- what else can be asked of log ---


def test_on_exception_logs_nothing(Tiny, batches, quiet_trainer) -> None:
    """In on_exception log is an error, which is noted on the one that is on its way."""

    class LogsInException(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("x", 1.0)
            raise RuntimeError("in the step")

        def on_exception(self, error):
            self.log("x", 1.0)

    with pytest.raises(RuntimeError, match="in the step") as caught:
        quiet_trainer().fit(LogsInException(), batches(1))
    assert any("log('x')" in note for note in caught.value.__notes__)


def test_a_step_value_where_evaluation_starts_or_ends_is_refused(Tiny, batches, quiet_trainer):
    """There is no step in the start and end hooks of validation, as there is none in training's."""
    for hook in ("on_validation_start", "on_validation_epoch_start", "on_validation_epoch_end"):
        module = logging_in(Tiny, hook, on_step=True)
        with pytest.raises(MetricError, match=r"on_step=True\).*Leave on_step out"):
            quiet_trainer().validate(module, batches(1), verbose=False)


def test_a_name_with_two_reductions_in_an_epoch_is_refused(Tiny, batches, quiet_trainer) -> None:
    """A name that a step sums and the epoch's end averages would hide one of the two."""

    class LogsWithTwoReductions(Tiny):
        kind = "mean"

        def training_step(self, batch, batch_idx):
            self.log("x", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")
            return super().training_step(batch, batch_idx)

        def on_train_epoch_end(self):
            self.log("x", 2.0, reduce_fx=self.kind)

    net = LogsWithTwoReductions()
    with pytest.raises(
        MetricError, match=r"'x', reduce_fx='mean'.*also logged .*'sum'.*of its own"
    ):
        quiet_trainer().fit(net, batches(2))
    net = LogsWithTwoReductions()
    net.kind = "sum"
    quiet_trainer().fit(net, batches(2))


def test_a_loaders_number_in_a_name_is_refused(Tiny, batches, quiet_trainer) -> None:
    """`/dataloader_idx_N` is added by log, and not by hand."""

    class LogsLoaderSuffix(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("x/dataloader_idx_0", 1.0)

    with pytest.raises(MetricError, match="add_dataloader_idx=False"):
        quiet_trainer().validate(LogsLoaderSuffix(), batches(1), verbose=False)


def test_metric_attribute_names_what_is_logged(Tiny, batches, quiet_trainer) -> None:
    """A metric_attribute that is something else, or nothing, is refused."""
    torchmetrics = pytest.importorskip("torchmetrics")

    class Net(Tiny):
        attribute = "acc"

        def __init__(self) -> None:
            super().__init__()
            self.acc, self.other = torchmetrics.MeanMetric(), torchmetrics.MeanMetric()

        def validation_step(self, batch, batch_idx):
            self.acc.update(batch.mean())
            self.log("acc", self.acc, metric_attribute=self.attribute)

    trainer, net = quiet_trainer(), Net()
    assert trainer.validate(net, batches(3), verbose=False) == [{"acc": 2.0}]
    for net.attribute in ("other", "none", "layer.acc"):
        with pytest.raises(MetricError, match=r"metric_attribute='.*Net has no such metric"):
            trainer.validate(net, batches(3), verbose=False)


def test_a_callback_logs_as_its_module_does(Tiny, batches, quiet_trainer, MemoryLogger) -> None:
    """log and log_dict of a callback mean in each hook what the module's mean there."""

    class Logging(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.log("step", batch_idx + 10.0)
            self.log_dict({"a": batch.mean(), "b": 1.0}, on_epoch=True, prog_bar=True)

        def on_train_epoch_end(self, trainer, module):
            self.log("late", 5.0)

    logger, callback = MemoryLogger(), Logging()
    trainer = quiet_trainer(logger=logger, log_every_n_steps=2, callbacks=[callback])
    trainer.fit(Tiny(), batches(2))
    assert logger.seen == [
        (11, {"a_step": 2.0, "b_step": 1.0}),
        (1, {"epoch": 0, "a_epoch": 1.5, "b_epoch": 1.0, "late": 5.0}),
    ]
    assert trainer.progress_bar_metrics["a_epoch"] == 1.5
    with pytest.warns(UserWarning, match="takes part in no run"):
        callback.log("a", 1.0)


def test_a_callback_that_logs_where_it_has_no_meaning(Tiny, batches, quiet_trainer) -> None:
    """A callback is refused where a module is."""

    class Logging(Callback):
        def on_fit_start(self, trainer, module):
            self.log("x", 1.0)

    with pytest.raises(MetricError, match=r"log\('x'\)"):
        quiet_trainer(callbacks=[Logging()]).fit(Tiny(), batches(2))


def test_a_callback_in_a_run_can_be_copied_and_pickled(Tiny, batches, quiet_trainer) -> None:
    """The run is no part of a copy; the callback's own attributes are."""
    copies = []

    class Copied(PickledCallback):
        def on_train_start(self, trainer, module):
            copies.extend([copy.deepcopy(self), pickle.loads(pickle.dumps(PickledCallback()))])
            assert "_run_module" in vars(self)

    quiet_trainer(callbacks=[Copied()]).fit(Tiny(), batches(1))
    assert [vars(one) for one in copies] == [{"mine": 1}, {"mine": 1}]


class PickledCallback(Callback):
    def __init__(self) -> None:
        self.mine = 1


def test_a_given_stop_hands_over_what_is_there(Tiny, batches, quiet_trainer, MemoryLogger) -> None:
    """As in Lightning, the batch after which a stop is asked for is logged though it is not due."""

    class StopsInThirdBatch(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("x", float(batch_idx))
            if batch_idx == 2:
                self.trainer.should_stop = True
            return super().training_step(batch, batch_idx)

    logger = MemoryLogger()
    quiet_trainer(logger=logger).fit(StopsInThirdBatch(), batches(5))
    assert logger.seen == [(2, {"x": 2.0, "epoch": 0})]


def test_values_in_inference_mode(Tiny, batches, quiet_trainer) -> None:
    """A name may be logged inside torch.inference_mode and outside of it."""

    class LogsInInferenceMode(Tiny):
        def training_step(self, batch, batch_idx):
            with torch.inference_mode():
                self.log("x", batch.mean(), on_epoch=True)
            self.log("x", batch.mean(), on_epoch=True)
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(LogsInInferenceMode(), batches(100))
    assert trainer.callback_metrics["x_epoch"].item() == 50.5
