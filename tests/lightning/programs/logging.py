"""`self.log`: steps and epochs, loggers, progress bar, reductions, metric objects."""

from __future__ import annotations

from typing import Any

import torch

from programs import differs, error


def _logged(x: Any, log: Any, *, batches: int = 4, val: Any = None, **options: Any) -> Any:
    """Fit with `log(module, loss, batch_idx)` in training_step; tell what was logged where."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            log(self, loss, batch_idx)
            return loss

    journal = x.journal()
    trainer = x.trainer(**{"logger": journal, "log_every_n_steps": 1, "max_epochs": 2, **options})
    trainer.fit(Net(), x.loader(batches), val)
    return {"rows": journal.rows, **x.metrics(trainer)}


def in_a_training_step(x):
    """The default: each step."""
    return _logged(x, lambda module, loss, i: module.log("loss", loss))


def on_epoch(x):
    """The epoch's mean alone."""
    return _logged(x, lambda m, loss, i: m.log("loss", loss, on_step=False, on_epoch=True))


def on_step_and_on_epoch(x):
    """Both, with their suffixes."""
    return _logged(x, lambda m, loss, i: m.log("loss", loss, on_step=True, on_epoch=True))


def on_the_progress_bar(x):
    """`prog_bar`, by step and by epoch."""

    def log(module, loss, i):
        module.log("a", loss, prog_bar=True)
        module.log("b", loss, prog_bar=True, on_step=True, on_epoch=True)
        module.log("c", loss, on_step=False, on_epoch=True)

    return _logged(x, log)


def not_to_the_logger(x):
    """`logger=False`."""
    return _logged(x, lambda m, loss, i: m.log("loss", loss, logger=False, on_epoch=True))


def neither_step_nor_epoch(x):
    """Both off: nothing is logged."""
    return _logged(x, lambda m, loss, i: m.log("loss", loss, on_step=False, on_epoch=False))


def log_dict(x):
    """Several at once."""
    return _logged(
        x, lambda m, loss, i: m.log_dict({"a": loss, "b": 2.0 * i}, on_step=True, on_epoch=True)
    )


def every_n_steps(x):
    """Steps are handed over every third step, counted over epochs."""
    return _logged(
        x, lambda m, loss, i: m.log("i", float(i), on_epoch=True), log_every_n_steps=3, batches=5
    )


def with_accumulation(x):
    """The x axis counts optimizer steps."""
    return _logged(x, lambda m, loss, i: m.log("i", float(i)), accumulate_grad_batches=2, batches=5)


def reductions(x):
    """mean, sum, min and max over an epoch."""

    def log(module, loss, i):
        for name in ("mean", "sum", "min", "max"):
            module.log(name, float(i), on_step=False, on_epoch=True, reduce_fx=name)
        module.log("by torch", float(i), on_step=False, on_epoch=True, reduce_fx=torch.sum)

    return _logged(x, log)


def unknown_reduction(x):
    """A reduction that there is not."""

    def log(module, loss, i):
        module.log("a", loss, reduce_fx="median", on_epoch=True)

    return {"error": x.error(lambda: _logged(x, log))}


@differs(
    "`reduce_fx` that is a function of one's own",
    error=(error("MisconfigurationException"), "none"),
)
def a_reduction_of_ones_own(x):
    """A function that is no reduction of torch."""

    def log(module, loss, i):
        module.log("a", loss, reduce_fx=lambda values: values[0], on_epoch=True)

    return {"error": x.error(lambda: _logged(x, log))}


def weighted_by_batch_size(x):
    """Means are weighted by the size of the batch, found in it or given."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("found", float(batch_idx), on_step=False, on_epoch=True)
            self.log(
                "given", float(batch_idx), on_step=False, on_epoch=True, batch_size=batch_idx + 1
            )
            return self.cost(batch)

    trainer = x.trainer()
    data = torch.utils.data.DataLoader(x.loader(7, 1).dataset, batch_size=3)
    trainer.fit(Net(), data)
    return x.metrics(trainer)


def kinds_of_values(x):
    """Numbers, tensors of one item, and what is refused."""

    def of(value):
        def log(module, loss, i):
            module.log("a", value)

        found = {}
        kind = x.error(lambda: found.update(_logged(x, log, max_epochs=1)["callback"]))
        return kind if kind != "none" else found

    return {
        "int": of(3),
        "bool": of(True),
        "tensor": of(torch.tensor(2.0)),
        "one item": of(torch.tensor([2.0])),
        "long": of(torch.tensor(2)),
        "several": of(torch.tensor([1.0, 2.0])),
        "text": of("a"),
        "none": of(None),
        "list": of([1.0]),
        "dict": of({"b": 1.0}),
    }


def the_same_name_twice(x):
    """One name twice in a step with other settings."""

    def log(module, loss, i):
        module.log("a", loss, on_step=True, on_epoch=False)
        module.log("a", loss, on_step=False, on_epoch=True)

    return {"error": x.error(lambda: _logged(x, log))}


def the_same_name_in_two_hooks(x):
    """One name in two hooks: what is kept."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("a", float(batch_idx))
            return self.cost(batch)

        def on_train_epoch_end(self):
            self.log("a_epoch", 10.0)
            self.log("b", 5.0)

    journal = x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1)
    trainer.fit(Net(), x.loader(2))
    return {"rows": journal.rows, **x.metrics(trainer)}


def in_a_validation_step(x):
    """The default: the mean of all batches."""
    journal = x.journal()
    trainer = x.trainer(logger=journal, max_epochs=2)
    trainer.fit(x.Net(), x.loader(2), x.loader(3))
    return {"rows": journal.rows, **x.metrics(trainer)}


def validation_on_step(x):
    """`on_step` in a validation."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val", self.cost(batch), on_step=True, on_epoch=True)

    journal = x.journal()
    trainer = x.trainer(logger=journal, max_epochs=2)
    trainer.fit(Net(), x.loader(2), x.loader(2))
    return {"rows": journal.rows, **x.metrics(trainer)}


def several_validation_loaders(x):
    """Names are told apart by the loader."""
    journal = x.journal()
    trainer = x.trainer(logger=journal)
    trainer.fit(x.Net(), x.loader(2), [x.loader(2), x.loader(1, shift=1.0)])
    return {"rows": journal.rows, **x.metrics(trainer)}


def add_dataloader_idx(x):
    """Names of one's own for several loaders."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            name = f"val/{'ab'[dataloader_idx]}"
            self.log(name, self.cost(batch), add_dataloader_idx=False)

    journal = x.journal()
    trainer = x.trainer(logger=journal)
    trainer.fit(Net(), x.loader(2), [x.loader(2), x.loader(1, shift=1.0)])
    return {"rows": journal.rows, **x.metrics(trainer)}


def in_hooks_of_a_module(x):
    """Where logging is allowed, and what the default is there."""
    names = (
        "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_backward",
        "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad",
        "on_train_batch_end", "on_train_epoch_end", "on_validation_start",
        "on_validation_epoch_start", "on_validation_batch_start", "on_validation_batch_end",
        "on_validation_epoch_end",
    )  # fmt: skip

    def logging(name):
        def hook(self, *args):
            self.log(name, 1.0)

        return hook

    Net = type("Net", (x.Net,), {name: logging(name) for name in names})
    journal = x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1)
    trainer.fit(Net(), x.loader(2), x.loader(1))
    return {"rows": journal.rows, **x.metrics(trainer)}


def where_logging_is_refused(x):
    """Hooks in which nothing can be logged."""
    names = (
        "setup", "on_fit_start", "on_train_end", "on_fit_end", "on_validation_end", "teardown",
        "configure_optimizers", "on_sanity_check_start",
    )  # fmt: skip
    found = {}
    for name in names:

        def hook(self, *args, name=name, **kwargs):
            self.log("a", 1.0)
            return

        module = type("Net", (x.Net,), {name: hook})()
        found[name] = x.error(
            lambda module=module: x.trainer().fit(module, x.loader(1), x.loader(1))
        )
    return found


def from_a_callback(x):
    """A callback logs through `self.log` and through the module."""

    class Tell(x.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.log("own", float(batch_idx), on_step=True, on_epoch=True)
            module.log("module's", float(batch_idx), prog_bar=True)

        def on_validation_epoch_end(self, trainer, module):
            self.log_dict({"val/a": 1.0, "val/b": 2.0})

    journal = x.journal()
    trainer = x.trainer(Tell(), logger=journal, log_every_n_steps=1)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    return {"rows": journal.rows, **x.metrics(trainer)}


def metric_objects(x):
    """Metrics of torchmetrics: by step and by epoch, reset between."""
    from torchmetrics import MeanMetric, SumMetric

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.mean, self.total = MeanMetric(), SumMetric()

        def training_step(self, batch, batch_idx):
            self.mean(float(batch_idx))
            self.total(float(batch_idx))
            self.log("mean", self.mean, on_step=True, on_epoch=True)
            self.log("total", self.total, on_step=False, on_epoch=True)
            return self.cost(batch)

    journal = x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1, max_epochs=2)
    trainer.fit(Net(), x.loader(3))
    return {"rows": journal.rows, **x.metrics(trainer)}


def metric_objects_in_validation(x):
    """A metric updated in each step of a validation, and one logged at its end."""
    from torchmetrics import MeanMetric

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.first, self.second = MeanMetric(), MeanMetric()

        def validation_step(self, batch, batch_idx):
            self.first(batch)
            self.second.update(batch)
            self.log("first", self.first)

        def on_validation_epoch_end(self):
            self.log("second", self.second.compute())
            self.second.reset()

    journal = x.journal()
    trainer = x.trainer(logger=journal, num_sanity_val_steps=1, max_epochs=2)
    trainer.fit(Net(), x.loader(2), x.loader(3))
    return {"rows": journal.rows, **x.metrics(trainer)}


def metric_collection(x):
    """A collection is logged by `log_dict`."""
    from torchmetrics import MaxMetric, MeanMetric, MetricCollection

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.found = MetricCollection({"mean": MeanMetric(), "max": MaxMetric()}, prefix="t/")

        def training_step(self, batch, batch_idx):
            self.found.update(float(batch_idx))
            self.log_dict(self.found, on_step=False, on_epoch=True)
            return self.cost(batch)

    trainer = x.trainer(max_epochs=2)
    trainer.fit(Net(), x.loader(3))
    return x.metrics(trainer)


def verbs_and_the_logger(x):
    """What `validate` and `test` hand to the logger, and at which step."""
    journal = x.journal()
    trainer, module = x.trainer(logger=journal), x.Net()
    trainer.fit(module, x.loader(3), x.loader(1))
    trainer.validate(module, x.loader(2), verbose=False)
    trainer.test(module, x.loader(2), verbose=False)
    return {"rows": journal.rows, **x.metrics(trainer), "ended": journal.ended}


def metrics_seen_in_hooks(x):
    """Which metrics hooks can read, and when."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("loss", float(batch_idx), on_step=True, on_epoch=True)
            return self.cost(batch)

        def _look(self, where):
            found = self.trainer.callback_metrics
            seen.append([where, {name: float(value) for name, value in found.items()}])

        def on_train_batch_end(self, *args):
            self._look("batch end")

        def on_validation_epoch_end(self):
            self._look("validation epoch end")

        def on_validation_end(self):
            self._look("validation end")

        def on_train_epoch_end(self):
            self._look("epoch end")

        def on_train_epoch_start(self):
            self._look("epoch start")

    x.trainer(max_epochs=2).fit(Net(), x.loader(2), x.loader(1))
    return {"seen": seen}


def a_step_of_ones_own(x):
    """A value named `step` is the x axis."""

    def log(module, loss, i):
        module.log("loss", loss, on_step=False, on_epoch=True)
        module.log("step", float(module.current_epoch * 100), on_step=False, on_epoch=True)

    return _logged(x, log)


def several_loggers(x):
    """Each logger is given the same."""
    first, second = x.journal(), x.journal()

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss)
            return loss

    trainer = x.trainer(logger=[first, second], log_every_n_steps=2)
    trainer.fit(Net(), x.loader(4))
    return {
        "rows": [first.rows, second.rows],
        "first": trainer.logger is first,
        "loggers": len(trainer.loggers),
    }


def hyperparameters(x):
    """What a logger is given of the hyperparameters, of module and data module."""

    class Net(x.Net):
        def __init__(self, width=3, depth=2):
            super().__init__()
            self.save_hyperparameters()

    class Data(x.DataModule):
        def __init__(self, size=2):
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self):
            return x.loader(1, self.hparams.size)

    journal = x.journal()
    x.trainer(logger=journal).fit(Net(width=5), datamodule=Data(size=4))
    return {"hparams": journal.hparams}


@differs(
    "A hyperparameter of one name with two values in module and data module",
    error=(error("RuntimeError"), "none"),
)
def hyperparameters_that_clash(x):
    """The same name with two values in module and data module."""

    class Net(x.Net):
        def __init__(self, size=1):
            super().__init__()
            self.save_hyperparameters()

    class Data(x.DataModule):
        def __init__(self, size=2):
            super().__init__()
            self.save_hyperparameters()

        def train_dataloader(self):
            return x.loader(1)

    trainer = x.trainer(logger=x.journal())
    return {"error": x.error(lambda: trainer.fit(Net(), datamodule=Data()))}


def hyperparameters_not_logged(x):
    """`save_hyperparameters(logger=False)`."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters(logger=False)

    journal = x.journal()
    module = Net()
    x.trainer(logger=journal).fit(module, x.loader(1))
    return {"hparams": journal.hparams, "kept": dict(module.hparams)}


def csv_logger(x):
    """The files and rows of `CSVLogger`."""
    logger = x.loggers.CSVLogger(x.folder, name="runs", version="one")

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("loss", float(batch_idx), on_step=True, on_epoch=True)
            return self.cost(batch)

    x.trainer(logger=logger, log_every_n_steps=1, max_epochs=2).fit(Net(), x.loader(2), x.loader(1))
    rows = (x.folder / "runs" / "one" / "metrics.csv").read_text().splitlines()
    header = rows[0].split(",")
    table = [
        {name: float(value) for name, value in zip(header, row.split(","), strict=True) if value}
        for row in rows[1:]
    ]
    return {"table": table, "name": logger.name, "version": logger.version}


def without_a_logger(x):
    """`logger=False`: nothing to log to, and logging does no harm."""
    found = _logged(x, lambda m, loss, i: m.log("loss", loss), logger=False)
    return {name: found[name] for name in ("callback", "logged", "bar")}


def log_gradients(x):
    """A value with a graph is kept without it."""
    found = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss)
            return loss

        def on_train_epoch_end(self):
            found.append(self.trainer.callback_metrics["loss"].requires_grad)

    x.trainer().fit(Net(), x.loader(1))
    return {"found": found}


def print_in_a_module(x):
    """`self.print` and `trainer.print` return None."""
    found = []

    class Net(x.Net):
        def on_train_start(self):
            found.append([self.print("text"), self.trainer.print("text", end="")])

    x.trainer().fit(Net(), x.loader(1))
    return {"found": found}
