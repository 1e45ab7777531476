"""`ModelCheckpoint`: when it saves, what it keeps, what files are called."""

from __future__ import annotations

import datetime as dt
from typing import Any

import torch

from programs import differs


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


def last_of_a_fit_without_a_save(x):
    """`save_last` where no validation, and too few steps, come to save after."""
    return {
        "no validation": _saved(x, save_last=True, save_on_train_epoch_end=False),
        "a link": _saved(
            x, save_last="link", save_on_train_epoch_end=False, dirpath=x.folder / "saved" / "link"
        ),
        "few steps": _saved(
            x, save_last=True, every_n_train_steps=100, dirpath=x.folder / "saved" / "few"
        ),
    }


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
    files=(["saved/epoch=0-step=1.ckpt"], ["saved/exception-epoch=0-step=1.ckpt"]),
)
def save_on_exception(x):
    """A file is written when something raises."""
    return _saved_on_exception(x)


def save_on_exception_by_name(x):
    """A file of the name that was given is written when something raises."""
    return _saved_on_exception(x, filename="model")


def _saved_on_exception(x, **options):
    """Return the files of a fit that an error ends."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise ArithmeticError
            return super().training_step(batch, batch_idx)

    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", save_on_exception=True, **options
    )
    error = x.error(lambda: x.trainer(saver, enable_checkpointing=True).fit(Net(), x.loader(3)))
    return {"error": error, "files": x.files("saved/*")}


def save_weights_only(x):
    """`ModelCheckpoint(save_weights_only=True)`."""
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", save_weights_only=True)
    x.trainer(saver, enable_checkpointing=True).fit(x.Net(), x.loader(2))
    found = torch.load(saver.best_model_path, weights_only=False)
    return {"full": [name for name in ("optimizer_states", "callbacks") if name in found]}


def checkpoints_by_time(x):
    """`train_time_interval` of no length saves after each batch; one file is kept."""
    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", train_time_interval=dt.timedelta(microseconds=1), save_top_k=-1,
        filename="{step}",
    )  # fmt: skip
    x.trainer(saver, enable_checkpointing=True).fit(x.Net(), x.loader(3))
    return {"files": x.files("saved/*")}


def two_checkpoint_callbacks(x):
    """Two of them in one run, each with its files and state."""
    first = x.callbacks.ModelCheckpoint(dirpath=x.folder / "a", monitor="val")
    second = x.callbacks.ModelCheckpoint(dirpath=x.folder / "b", every_n_train_steps=2)
    trainer = x.trainer(first, second, enable_checkpointing=True, max_epochs=2)
    trainer.fit(x.Net(), x.loader(3), x.loader(1))
    return {"files": x.files("**/*.ckpt"), "first": trainer.checkpoint_callback is first}


def checkpoint_resumes(x):
    """A resumed ModelCheckpoint knows its best."""

    def saver():
        return x.callbacks.ModelCheckpoint(
            dirpath=x.folder / "saved", monitor="val", mode="max", save_last=True
        )

    first = saver()
    x.trainer(first, enable_checkpointing=True, max_epochs=2).fit(x.Net(), x.loader(3), x.loader(1))
    second = saver()
    x.trainer(second, enable_checkpointing=True, max_epochs=4).fit(
        x.Net(), x.loader(3), x.loader(1), ckpt_path=first.last_model_path
    )
    return {
        "same": second.best_model_path == first.best_model_path,
        "score": float(second.best_model_score), "files": x.files("saved/*"),
    }  # fmt: skip


def state_key_of_model_checkpoint(x):
    """The key of its state in a file, which Lightning's files have, too."""
    saver = x.callbacks.ModelCheckpoint(dirpath=x.folder / "saved", monitor="val")
    trainer = x.trainer(saver, x.callbacks.EarlyStopping("val"), enable_checkpointing=True)
    trainer.fit(x.Net(), x.loader(2), x.loader(1))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    found = torch.load(x.folder / "a.ckpt", weights_only=False)["callbacks"]
    state = next(value for key, value in found.items() if key.startswith("ModelCheckpoint"))
    known = (
        "monitor", "best_model_score", "best_model_path", "current_score", "dirpath",
        "best_k_models", "kth_best_model_path", "kth_value", "last_model_path",
    )  # fmt: skip
    return {
        "keys": sorted(found), "state": [name for name in known if name in state],
        "score": float(state["best_model_score"]), "monitor": state["monitor"],
    }  # fmt: skip


@differs(
    "`ModelCheckpoint(every_n_train_steps=N)` where a batch makes several steps",
    files=(
        ["saved/step=12.ckpt", "saved/step=6.ckpt"],
        ["saved/step=10.ckpt", "saved/step=12.ckpt", "saved/step=4.ckpt", "saved/step=6.ckpt"],
    ),
)
def every_n_steps_of_two_optimizers(x):
    """Each batch makes two steps: the count of steps passes over some multiples of three."""

    class Pair(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.cost(batch))
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD([one], 0.1) for one in self.layer.parameters()]

    saver = x.callbacks.ModelCheckpoint(
        x.folder / "saved", every_n_train_steps=3, save_top_k=-1, filename="{step}"
    )
    x.trainer(saver, enable_checkpointing=True).fit(Pair(), x.loader(6))
    return {"files": x.files("saved/*")}
