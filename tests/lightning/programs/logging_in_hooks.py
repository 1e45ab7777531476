"""`self.log` in validations, hooks and callbacks; metric objects."""

from __future__ import annotations


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


_OF_BATCHES = (
    "on_train_batch_start", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
    "on_train_batch_end", "on_validation_batch_start", "on_validation_batch_end",
)  # fmt: skip
_OF_EPOCHS = (
    "on_train_start", "on_train_epoch_start", "on_train_epoch_end", "on_validation_start",
    "on_validation_epoch_start", "on_validation_epoch_end",
)  # fmt: skip
_WITHOUT_LOGGING = ("on_validation_end", "on_train_end", "on_fit_end")
_HOWS = {
    "default": {},
    "by step": {"on_step": True, "on_epoch": False},
    "by epoch": {"on_step": False, "on_epoch": True},
    "both": {"on_step": True, "on_epoch": True},
}


def _seen(x, run, how, *, reads_twice=False, **options):
    """Return `callback_metrics` at each hook of a run, where each hook logs a value of its own."""
    seen, calls = {}, {}

    def visit(hook, trainer, module):
        count = calls[hook] = calls.get(hook, 0) + 1
        seen[f"{hook} {count}"] = x.metrics(trainer)["callback"]
        if hook in _WITHOUT_LOGGING:
            return
        arguments = {} if hook in _OF_EPOCHS else how
        module.log(hook, float(count), batch_size=1, **arguments)
        if reads_twice:  # as another callback does in the same hook
            seen[f"{hook} {count}, after log"] = x.metrics(trainer)["callback"]

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            visit("training_step", self.trainer, self)
            return self.cost(batch)

        def validation_step(self, batch, batch_idx):
            visit("validation_step", self.trainer, self)

    def hook_of(name):
        return lambda self, trainer, module, *args: visit(name, trainer, module)

    hooks = {name: hook_of(name) for name in (*_OF_BATCHES, *_OF_EPOCHS, *_WITHOUT_LOGGING)}
    visiting = type("Visiting", (x.Callback,), hooks)()
    trainer = x.trainer(visiting, max_epochs=3, **options)
    if run == "fit":
        trainer.fit(Net(), x.loader(3), x.loader(2))
    else:
        trainer.validate(Net(), x.loader(2), verbose=False)
    return seen


def seen_at_each_hook(x):
    """Which value each hook reads of what each hook has logged: all pairs of hooks."""
    settings = {
        "plain": {}, "validations inside": {"val_check_interval": 1},
        "accumulated": {"accumulate_grad_batches": 2}, "sanity check": {"num_sanity_val_steps": 1},
        "each step": {"log_every_n_steps": 1},
    }  # fmt: skip
    return {
        f"{name}, {setting}": _seen(x, "fit", how, **options)
        for name, how in _HOWS.items()
        for setting, options in settings.items()
    } | {f"{name}, validate": _seen(x, "validate", how) for name, how in _HOWS.items()}


def seen_by_a_later_callback(x):
    """The same, where each hook reads once more after it has logged."""
    return {
        f"{name}, {run}": _seen(x, run, how, reads_twice=True)
        for name, how in _HOWS.items()
        for run in ("fit", "validate")
    }


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


def metrics_after_another_verb(x):
    """What of a fit's metrics is left after a test."""
    trainer, module = x.trainer(), x.Net()
    trainer.fit(module, x.loader(2), x.loader(1))
    fitted = sorted(trainer.callback_metrics)
    trainer.test(module, x.loader(1), verbose=False)
    return {"fitted": fitted, "tested": sorted(trainer.callback_metrics)}
