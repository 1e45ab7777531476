"""`ckpt_path` of every verb, and `load_from_checkpoint`."""

from __future__ import annotations

import torch
from shared import cut_run

from programs import differs, error


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

    path = cut_run(x, module=Net(width=5))
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

    path = cut_run(x)
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

    path = cut_run(x, module=Net({"a": 1, "b": 2}))
    return {"hparams": dict(Net.load_from_checkpoint(path).hparams)}


def a_layer_that_is_made_anew(x):
    """A layer made in `on_load_checkpoint` is trained after a resume."""

    class Net(x.Net):
        def on_load_checkpoint(self, checkpoint):
            self.layer = torch.nn.Linear(2, 1)

    path = cut_run(x)
    module = Net()
    x.trainer(max_epochs=2).fit(module, x.loader(3), ckpt_path=path)
    return {"weights": x.weights(module)}
