"""`self.log` in training: steps and epochs, reductions, values."""

from __future__ import annotations

from typing import Any

import torch
import torchmetrics

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


_AT_ALL_STEPS = [[step, {"i": float(step // 2 * 2), "epoch": 0}] for step in range(4)]


@differs("A value that is logged at some steps only", rows=(_AT_ALL_STEPS, _AT_ALL_STEPS[::2]))
def at_some_steps(x):
    """Every second step."""
    return _logged(x, lambda m, loss, i: m.log("i", float(i)) if i % 2 == 0 else None, max_epochs=1)


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


def a_step_of_ones_own(x):
    """A value named `step` is the x axis."""

    def log(module, loss, i):
        module.log("loss", loss, on_step=False, on_epoch=True)
        module.log("step", float(module.current_epoch * 100), on_step=False, on_epoch=True)

    return _logged(x, log)


def without_a_logger(x):
    """`logger=False`: nothing to log to, and logging does no harm."""
    found = _logged(x, lambda m, loss, i: m.log("loss", loss), logger=False)
    return {name: found[name] for name in ("callback", "logged", "bar")}


@differs(
    "`on_step=True` with a metric object that was only updated",
    steps=([], [0.0, 0.5]),
)
def a_metric_that_is_only_updated(x):
    """Without `forward` there is no value of the batch."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.seen = torchmetrics.MeanMetric()

        def training_step(self, batch, batch_idx):
            self.seen.update(float(batch_idx))
            self.log("seen", self.seen, on_step=True, on_epoch=True)
            return self.cost(batch)

    journal = x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1, max_epochs=1)
    trainer.fit(Net(), x.loader(2))
    rows = [row for _, row in journal.rows]
    return {
        "steps": [row["seen_step"] for row in rows if "seen_step" in row],
        "epoch": [row["seen_epoch"] for row in rows if "seen_epoch" in row],
    }


@differs(
    "The x axis of a validation inside an unfinished accumulation window",
    steps=([0, 1, 2, 3], [0, 1, 1, 3]),
)
def a_validation_inside_a_window(x):
    """Validations after the second batch of a window of three, and after the epoch's last one."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.cost(batch))

    journal = x.journal()
    options = {"max_epochs": 2, "accumulate_grad_batches": 3, "val_check_interval": 2}
    trainer = x.trainer(logger=journal, log_every_n_steps=1, **options)
    trainer.fit(Net(), x.loader(4), x.loader(1))
    return {"steps": [step for step, row in journal.rows if "val_loss" in row]}


def one_name_in_two_loaders(x):
    """The name has no index, so that both loaders log it."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self.log("a", float(dataloader_idx), add_dataloader_idx=False)

    trainer = x.trainer()
    return {"error": x.error(lambda: trainer.validate(Net(), [x.loader(1), x.loader(1)]))}


def a_whole_number(x):
    """Of a tensor of integers and of a bool."""
    return _logged(
        x, lambda m, loss, i: m.log_dict({"a": torch.tensor(i), "b": torch.tensor(True)})
    )
