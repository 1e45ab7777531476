"""Checkpoints: what is saved and when, what a resume does, how modules are loaded."""

from __future__ import annotations

from typing import Any

import torch

from programs import differs, error


def _saved(x: Any, *, batches: int = 4, val: Any = None, **options: Any) -> Any:
    """Fit with a ModelCheckpoint made with options; tell what files it left, and what it says."""
    trainer_options = {
        name: options.pop(name)
        for name in ("max_epochs", "max_steps", "val_check_interval", "accumulate_grad_batches",
                     "check_val_every_n_epoch", "limit_val_batches")
        if name in options
    }  # fmt: skip
    saver = x.callbacks.ModelCheckpoint(**{"dirpath": x.folder / "saved", **options})
    trainer = x.trainer(saver, enable_checkpointing=True, **{"max_epochs": 3, **trainer_options})
    trainer.fit(x.Net(), x.loader(batches), val)
    score = saver.best_model_score
    return {
        "files": x.files("saved/*"),
        "best": _name(saver.best_model_path),
        "last": _name(saver.last_model_path),
        "score": None if score is None else float(score),
        "kept": sorted(_name(path) for path in saver.best_k_models),
        "monitor": saver.monitor,
    }


def _name(path: Any) -> str:
    return str(path).rpartition("/")[2]


def model_checkpoint(x):
    """The default: the newest, once each epoch."""
    return _saved(x)


def monitored(x):
    """The best by a value."""
    return _saved(x, val=x.loader(2), monitor="val", mode="max")


def monitored_min(x):
    """The best is the smallest."""
    return _saved(x, val=x.loader(2), monitor="val", save_top_k=2)


def save_all(x):
    """`save_top_k=-1` keeps all."""
    return _saved(x, save_top_k=-1)


def save_none(x):
    """`save_top_k=0` keeps none."""
    return _saved(x, save_top_k=0)


def save_last(x):
    """`last.ckpt` beside the best."""
    return _saved(x, val=x.loader(2), monitor="val", mode="max", save_last=True)


def save_last_alone(x):
    """`save_last` without a monitor."""
    return _saved(x, save_last=True)


def save_top_two_and_last(x):
    """Two of the best, and the last."""
    return _saved(x, val=x.loader(2), monitor="val", mode="max", save_top_k=2, save_last=True)


def filename(x):
    """Names with epoch, step and a metric."""
    return _saved(
        x, val=x.loader(2), monitor="val", save_top_k=-1, filename="{epoch:02d}-{step}-{val:.3f}"
    )


def filename_without_metric_names(x):
    """`auto_insert_metric_name=False`."""
    return _saved(
        x, val=x.loader(2), monitor="val", save_top_k=-1, auto_insert_metric_name=False,
        filename="epoch={epoch}-at-{step}",
    )  # fmt: skip


def filename_with_a_folder(x):
    """A name with a folder in it."""
    found = _saved(x, filename="sub/{epoch}", save_top_k=-1)
    return {**found, "files": x.files("saved/**/*")}


@differs(
    "`ModelCheckpoint(save_top_k=-1)` with a filename that does not change",
    files=(
        ["saved/model.ckpt"],
        ["saved/model-v1.ckpt", "saved/model-v2.ckpt", "saved/model.ckpt"],
    ),
    best=("model.ckpt", "model-v2.ckpt"),
)
def fixed_filename(x):
    """The same name each time: versions are told apart."""
    return _saved(x, filename="model", save_top_k=-1)


def fixed_filename_overwritten(x):
    """`enable_version_counter=False` writes over the file."""
    return _saved(x, filename="model", save_top_k=-1, enable_version_counter=False)


def every_n_epochs(x):
    """Every second epoch."""
    return _saved(x, every_n_epochs=2, save_top_k=-1, max_epochs=5)


def every_n_train_steps(x):
    """Every third step."""
    return _saved(x, every_n_train_steps=3, save_top_k=-1)


def every_n_train_steps_with_accumulation(x):
    """Steps are optimizer steps."""
    return _saved(x, every_n_train_steps=2, save_top_k=-1, accumulate_grad_batches=2, batches=5)


def every_n_steps_monitored(x):
    """A monitored value from training, by steps."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss)
            return loss

    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", monitor="loss", every_n_train_steps=2, save_top_k=2,
        filename="{step}",
    )  # fmt: skip
    trainer = x.trainer(saver, enable_checkpointing=True, max_epochs=2)
    trainer.fit(Net(), x.loader(4))
    return {"files": x.files("saved/*"), "best": _name(saver.best_model_path)}


def save_on_train_epoch_end(x):
    """At the end of the training epoch, before or after the validation."""
    return {
        "on": _saved(x, val=x.loader(1), save_on_train_epoch_end=True, save_top_k=-1),
    }


def in_a_validation_inside(x):
    """A save after each validation inside of the epoch."""
    return _saved(
        x, val=x.loader(1), monitor="val", save_top_k=-1, val_check_interval=2, max_epochs=2
    )


def without_validation_each_epoch(x):
    """A monitor of a validation in each second epoch."""
    return _saved(
        x, val=x.loader(1), monitor="val", save_top_k=-1, check_val_every_n_epoch=2, max_epochs=4
    )


def monitor_that_is_not_logged(x):
    """An unknown monitor is refused."""
    return {"error": x.error(lambda: _saved(x, val=x.loader(1), monitor="nothing"))}


def options_that_are_refused(x):
    """What ModelCheckpoint cannot be given."""
    make = x.callbacks.ModelCheckpoint
    return {
        "mode": x.error(lambda: make(monitor="a", mode="odd")),
        "top k": x.error(lambda: make(monitor="a", save_top_k=-2)),
        "no monitor": x.error(lambda: make(save_top_k=3)),
        "both": x.error(lambda: make(every_n_epochs=1, every_n_train_steps=1)),
        "negative": x.error(lambda: make(every_n_epochs=-1)),
    }


def default_checkpointing(x):
    """`enable_checkpointing=True` alone: one file, in the logger's folder or the root."""
    trainer = x.trainer(enable_checkpointing=True, max_epochs=2)
    trainer.fit(x.Net(), x.loader(3))
    return {
        "files": x.files("**/*.ckpt"),
        "path": _name(trainer.checkpoint_callback.best_model_path),
        "callbacks": len(trainer.checkpoint_callbacks),
    }


def no_checkpointing(x):
    """`enable_checkpointing=False`, and its clash with a callback."""
    saver = x.callbacks.ModelCheckpoint()
    return {
        "callback": x.trainer().checkpoint_callback,
        "error": x.error(lambda: x.trainer(saver, enable_checkpointing=False)),
    }


def keys_of_a_file(x):
    """The keys of Lightning that a checkpoint has, and its counters."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), 0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    trainer, module = x.trainer(max_epochs=2), Net()
    trainer.fit(module, x.loader(3))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    found = torch.load(x.folder / "a.ckpt", weights_only=False)
    known = (
        "epoch", "global_step", "state_dict", "loops", "callbacks", "optimizer_states",
        "lr_schedulers", "hparams_name", "hyper_parameters",
    )  # fmt: skip
    return {
        "there": [name for name in known if name in found],
        "epoch": found["epoch"], "step": found["global_step"],
        "weights": dict(found["state_dict"]), "hparams": dict(found["hyper_parameters"]),
        "optimizers": len(found["optimizer_states"]),
        "scheduler": found["lr_schedulers"][0]["last_epoch"],
        "name": found["hparams_name"],
    }  # fmt: skip


@differs("The class of some errors", resumed=(error("KeyError"), error("CheckpointError")))
def weights_alone(x):
    """`save_checkpoint(weights_only=True)`."""
    trainer, module = x.trainer(), x.Net()
    trainer.fit(module, x.loader(3))
    trainer.save_checkpoint(x.folder / "a.ckpt", weights_only=True)
    found = torch.load(x.folder / "a.ckpt", weights_only=True)
    full = ("loops", "optimizer_states", "lr_schedulers", "callbacks")
    return {
        "full": [name for name in full if name in found], "weights": dict(found["state_dict"]),
        "resumed": x.error(
            lambda: x.trainer().fit(x.Net(), x.loader(1), ckpt_path=x.folder / "a.ckpt")
        ),
    }  # fmt: skip


def _cut(x: Any, *callbacks: Any, epochs: int = 1, module: Any = None, **options: Any) -> Any:
    """Train for some epochs and save; return the path."""
    trainer = x.trainer(*callbacks, max_epochs=epochs, **options)
    trainer.fit(module or x.Net(), x.loader(3), x.loader(1))
    trainer.save_checkpoint(x.folder / "cut.ckpt")
    return x.folder / "cut.ckpt"


def resume_at_the_end_of_an_epoch(x):
    """Counters, hooks and weights of a run that goes on."""
    path = _cut(x)
    hooks = x.hooks("on_train_start", "on_train_epoch_start", "on_train_batch_start")
    trainer, module = x.trainer(hooks, max_epochs=3), x.Net()
    trainer.fit(module, x.loader(3), x.loader(1), ckpt_path=path)
    return {
        "calls": hooks.calls, "counters": x.counters(trainer), "weights": x.weights(module),
        "path": _name(trainer.ckpt_path),
    }  # fmt: skip


@differs("Sanity check on a resume", checked=(1, 0))
def resume_and_the_sanity_check(x):
    """Whether a resume begins with a sanity check."""
    path = _cut(x)
    hooks = x.hooks("on_sanity_check_start")
    x.trainer(hooks, max_epochs=2, num_sanity_val_steps=1).fit(
        x.Net(), x.loader(3), x.loader(1), ckpt_path=path
    )
    return {"checked": len(hooks.calls)}


@differs("A resume inside an epoch", same=(False, True))
def resume_inside_an_epoch(x):
    """A run that is cut after two of four batches, and goes on."""

    class Saver(x.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if trainer.global_step == 2:
                trainer.save_checkpoint(x.folder / "inside.ckpt")

    uncut = x.Net()
    torch.manual_seed(5)
    x.trainer(Saver(), max_epochs=2).fit(uncut, x.loader(4, shuffle=True))
    module, trainer = x.Net(), x.trainer(max_epochs=2)
    trainer.fit(module, x.loader(4, shuffle=True), ckpt_path=x.folder / "inside.ckpt")
    return {
        "same": x.weights(uncut) == x.weights(module), "counters": x.counters(trainer),
    }  # fmt: skip


def resume_restores_optimizers(x):
    """Momentum and schedulers go on."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), 0.05)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    path = _cut(x, module=Net())
    module, trainer = Net(), x.trainer(max_epochs=3)
    trainer.fit(module, x.loader(3), x.loader(1), ckpt_path=path)
    return {"weights": x.weights(module), "rate": trainer.optimizers[0].param_groups[0]["lr"]}


@differs(
    "Callbacks and counters on a resume",
    restored=("before configure_optimizers", "after configure_optimizers"),
    step=(0, 3),
)
def resume_order_of_hooks(x):
    """When a resume calls what restores, and when state is there."""
    calls: list[str] = []
    steps: list[int] = []

    class Keeper(x.Callback):
        def state_dict(self):
            return {"a": 1}

        def load_state_dict(self, state_dict):
            calls.append(f"load_state_dict {state_dict}")

        def on_load_checkpoint(self, trainer, module, checkpoint):
            calls.append("callback on_load_checkpoint")

        def setup(self, trainer, module, stage):
            calls.append("setup")

        def on_fit_start(self, trainer, module):
            calls.append("on_fit_start")
            steps.append(trainer.global_step)

        def on_train_start(self, trainer, module):
            calls.append(f"on_train_start {trainer.global_step} {trainer.current_epoch}")

    class Net(x.Net):
        def on_load_checkpoint(self, checkpoint):
            calls.append("module on_load_checkpoint")

        def configure_optimizers(self):
            calls.append("configure_optimizers")
            return super().configure_optimizers()

    path = _cut(x, Keeper())
    calls.clear()
    x.trainer(Keeper(), max_epochs=2).fit(Net(), x.loader(3), ckpt_path=path)
    made = calls.index("configure_optimizers")
    is_late = made < calls.index("callback on_load_checkpoint")
    calls.remove("configure_optimizers")
    return {
        "calls": calls,
        "restored": f"{'after' if is_late else 'before'} configure_optimizers",
        "step": steps[-1],
    }


def callback_state(x):
    """State under `state_key`, for two callbacks of one class."""
    seen = []

    class Counter(x.Callback):
        def __init__(self, what):
            self.what, self.count = what, 0

        @property
        def state_key(self):
            return f"Counter[what={self.what}]"

        def on_train_batch_end(self, *args):
            self.count += 1 if self.what == "batches" else 10

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state_dict):
            seen.append([self.what, state_dict["count"]])
            self.count = state_dict["count"]

    first = [Counter("batches"), Counter("tens")]
    path = _cut(x, *first)
    keys = sorted(torch.load(path, weights_only=False)["callbacks"])
    second = [Counter("tens"), Counter("batches")]
    x.trainer(*second, max_epochs=2).fit(x.Net(), x.loader(3), ckpt_path=path)
    return {"keys": keys, "seen": sorted(seen), "counts": [one.count for one in second]}


def save_and_load_hooks(x):
    """`on_save_checkpoint` adds to the file, `on_load_checkpoint` reads it."""
    seen = []

    class Net(x.Net):
        def on_save_checkpoint(self, checkpoint):
            checkpoint["module's"] = [1, 2]

        def on_load_checkpoint(self, checkpoint):
            seen.append(checkpoint["module's"])

    class Adds(x.Callback):
        def on_save_checkpoint(self, trainer, module, checkpoint):
            checkpoint["callback's"] = "text"

        def on_load_checkpoint(self, trainer, module, checkpoint):
            seen.append(checkpoint["callback's"])

    path = _cut(x, Adds(), module=Net())
    x.trainer(Adds(), max_epochs=2).fit(Net(), x.loader(3), ckpt_path=path)
    Net.load_from_checkpoint(path)
    return {"seen": seen}


def test_of_the_best(x):
    """`ckpt_path="best"` and `"last"`, and no path at all after a fit."""
    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", monitor="val", mode="max", save_last=True
    )
    trainer, module = x.trainer(saver, enable_checkpointing=True, max_epochs=3), x.Net()
    trainer.fit(module, x.loader(3), x.loader(1))
    trained = x.weights(module)
    best = trainer.test(module, x.loader(2), ckpt_path="best", verbose=False)
    weights = x.weights(module)
    return {
        "best": best, "weights": weights, "changed": weights != trained,
        "last": trainer.test(module, x.loader(2), ckpt_path="last", verbose=False),
        "given": trainer.test(module, x.loader(2), verbose=False),
        "no model": trainer.test(dataloaders=x.loader(2), verbose=False),
        "path": trainer.test(
            module, x.loader(2), ckpt_path=saver.best_model_path, verbose=False
        ),
        "missing": x.error(lambda: trainer.test(module, x.loader(1), ckpt_path="no.ckpt")),
    }  # fmt: skip


@differs(
    "`test`, `validate`, `predict` without a model, after a fit that saved nothing",
    error=(error("ValueError"), "none"),
)
def test_without_a_file(x):
    """A verb without a model after a fit that saved nothing."""
    trainer = x.trainer()
    trainer.fit(x.Net(), x.loader(1))
    return {"error": x.error(lambda: trainer.test(dataloaders=x.loader(1), verbose=False))}


@differs("The class of some errors", best=(error("ValueError"), error("CheckpointNotFoundError")))
def best_without_a_fit(x):
    """`"best"` where nothing was saved."""
    trainer = x.trainer()
    return {
        "best": x.error(lambda: trainer.test(x.Net(), x.loader(1), ckpt_path="best")),
    }


@differs(
    '`fit(ckpt_path="last")` where nothing was saved',
    first=("none", error("CheckpointError")),
)
def ckpt_path_last(x):
    """`fit(ckpt_path="last")` finds the last."""

    def trainer(epochs):
        saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", save_last=True)
        return x.trainer(saver, enable_checkpointing=True, max_epochs=epochs)

    first = x.error(lambda: trainer(1).fit(x.Net(), x.loader(3), ckpt_path="last"))
    if first != "none":
        trainer(1).fit(x.Net(), x.loader(3))
    second, module = trainer(2), x.Net()
    second.fit(module, x.loader(3), ckpt_path="last")
    return {
        "first": first, "second": x.counters(second), "weights": x.weights(module),
        "files": x.files("saved/*"),
    }  # fmt: skip


def load_from_checkpoint(x):
    """A module is made from a file, with its hyperparameters, or others."""

    class Net(x.Net):
        def __init__(self, width=3, depth=1):
            super().__init__()
            self.save_hyperparameters()

    path = _cut(x, module=Net(width=5))
    loaded = Net.load_from_checkpoint(path)
    other = Net.load_from_checkpoint(path, depth=8)
    return {
        "hparams": dict(loaded.hparams), "other": dict(other.hparams),
        "weights": x.weights(loaded), "training": loaded.training,
        "missing": x.error(lambda: Net.load_from_checkpoint(x.folder / "no.ckpt")),
        "instance": x.error(lambda: loaded.load_from_checkpoint(path)),
    }  # fmt: skip


def load_from_checkpoint_strictly(x):
    """Weights that are missing, and `strict=False`."""

    class Larger(x.Net):
        def __init__(self):
            super().__init__()
            self.more = torch.nn.Linear(1, 1)
            torch.nn.init.ones_(self.more.weight)
            torch.nn.init.ones_(self.more.bias)

    class Lenient(Larger):
        def __init__(self):
            super().__init__()
            self.strict_loading = False

    path = _cut(x)
    return {
        "strict": x.error(lambda: Larger.load_from_checkpoint(path)),
        "not strict": x.weights(Larger.load_from_checkpoint(path, strict=False)),
        "by the module": x.weights(Lenient.load_from_checkpoint(path)),
        "resume": x.error(lambda: x.trainer(max_epochs=2).fit(
            Larger(), x.loader(3), ckpt_path=path
        )),
    }  # fmt: skip


def load_from_checkpoint_of_a_dict(x):
    """A module whose `__init__` takes one object of hyperparameters."""

    class Net(x.Net):
        def __init__(self, conf):
            super().__init__()
            self.save_hyperparameters(conf)

    path = _cut(x, module=Net({"a": 1, "b": 2}))
    return {"hparams": dict(Net.load_from_checkpoint(path).hparams)}


def a_layer_that_is_made_anew(x):
    """A layer made in `on_load_checkpoint` is trained after a resume."""

    class Net(x.Net):
        def on_load_checkpoint(self, checkpoint):
            self.layer = torch.nn.Linear(2, 1)

    path = _cut(x)
    module = Net()
    x.trainer(max_epochs=2).fit(module, x.loader(3), ckpt_path=path)
    return {"weights": x.weights(module)}


@differs(
    "A fit with nothing left to train",
    calls=([], ["on_train_start()", "on_train_end()"]),
    fewer=(error("MisconfigurationException"), "none"),
)
def resume_a_run_that_is_done(x):
    """A resume with the same `max_epochs` trains nothing."""
    path = _cut(x, epochs=2)
    hooks = x.hooks("on_train_start", "on_train_epoch_start", "on_train_end")
    trainer, module = x.trainer(hooks, max_epochs=2), x.Net()
    trainer.fit(module, x.loader(3), ckpt_path=path)
    return {
        "calls": hooks.calls, "counters": x.counters(trainer), "weights": x.weights(module),
        "fewer": x.error(
            lambda: x.trainer(max_epochs=1).fit(x.Net(), x.loader(3), ckpt_path=path)
        ),
    }  # fmt: skip


@differs(
    "A name in `ModelCheckpoint(filename=...)` that was not logged",
    files=(["saved/nope=0.00.ckpt"], ["saved/nope=nan.ckpt"]),
)
def filename_with_an_unknown_name(x):
    """A name in the filename that was not logged."""
    return {"files": _saved(x, filename="{nope:.2f}")["files"]}


@differs("`ModelCheckpoint` where the metric is NaN", kept=(True, False))
def a_metric_that_is_nan(x):
    """NaN as the first value of the monitor."""

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            self.log("val", float("nan"))

    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", monitor="val")
    trainer = x.trainer(saver, enable_checkpointing=True)
    trainer.fit(Net(), x.loader(1), x.loader(1))
    return {"kept": saver.best_model_score is not None}


@differs(
    "`ModelCheckpoint(save_on_exception=True)`",
    files=(["saved/model.ckpt"], ["saved/exception-epoch=0-step=1.ckpt"]),
)
def save_on_exception(x):
    """A file is written when something raises."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise ArithmeticError
            return super().training_step(batch, batch_idx)

    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", filename="model", save_on_exception=True
    )
    error = x.error(lambda: x.trainer(saver, enable_checkpointing=True).fit(Net(), x.loader(3)))
    return {"error": error, "files": x.files("saved/*")}


@differs("A second `fit` with another module", epochs=(1, 2))
def another_module_in_a_second_fit(x):
    """The same trainer, two modules."""
    hooks = x.hooks("on_train_epoch_start")
    trainer = x.trainer(hooks)
    trainer.fit(x.Net(), x.loader(1))
    trainer.fit(x.Net(), x.loader(1))
    return {"epochs": len(hooks.calls)}
