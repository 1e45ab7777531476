"""Modules and data modules: hyperparameters, data, hooks, what can be read."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from recording import plain

from programs import differs, error


def _data(x: Any, calls: list[str] | None = None) -> Any:
    """Return a class of data modules with every loader."""
    told: list[str] = [] if calls is None else calls

    class Data(x.DataModule):
        def __init__(self, size=2):
            super().__init__()
            self.save_hyperparameters()
            self.size = size

        def prepare_data(self):
            told.append("prepare_data")

        def setup(self, stage=None):
            told.append(f"setup {plain(stage)}")

        def train_dataloader(self):
            return x.loader(3, self.size)

        def val_dataloader(self):
            return x.loader(2, self.size)

        def test_dataloader(self):
            return [x.loader(1, self.size), x.loader(2, self.size, shift=1.0)]

        def predict_dataloader(self):
            return x.loader(2, self.size)

        def teardown(self, stage):
            told.append(f"teardown {plain(stage)}")

    return Data


def data_module(x):
    """Its hooks and loaders in every verb."""
    calls: list[str] = []
    data, module, trainer = _data(x, calls)(), x.Net(), x.trainer()
    trainer.fit(module, datamodule=data)
    validated = trainer.validate(module, datamodule=data, verbose=False)
    tested = trainer.test(module, datamodule=data, verbose=False)
    predicted = trainer.predict(module, datamodule=data)
    return {
        "calls": calls, "validated": validated, "tested": tested, "predicted": predicted,
        "weights": x.weights(module), "same": trainer.datamodule is data,
        "trainer": data.trainer is trainer, "hparams": dict(data.hparams),
    }  # fmt: skip


def data_module_in_second_place(x):
    """A data module may stand where the training loader does."""
    module = x.Net()
    x.trainer().fit(module, _data(x)())
    return {"weights": x.weights(module)}


def data_module_state(x):
    """Its state is in the checkpoint, and comes back."""
    seen = []

    class Data(_data(x)):
        def state_dict(self):
            return {"used": 5}

        def load_state_dict(self, state_dict):
            seen.append(state_dict)

    trainer, module = x.trainer(), x.Net()
    trainer.fit(module, datamodule=Data())
    trainer.save_checkpoint(x.folder / "a.ckpt")
    x.trainer(max_epochs=2).fit(x.Net(), datamodule=Data(), ckpt_path=x.folder / "a.ckpt")
    return {"seen": seen}


def data_module_transfer(x):
    """Its transfer hooks take the place of the module's."""
    calls: list[str] = []

    class Data(_data(x)):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            calls.append("before")
            return batch

        def on_after_batch_transfer(self, batch, dataloader_idx):
            calls.append("after")
            return batch * 2

    module = x.Net()
    x.trainer(limit_val_batches=0).fit(module, datamodule=Data())
    return {"calls": calls, "weights": x.weights(module)}


def data_module_from_datasets(x):
    """`from_datasets` makes loaders of data sets."""
    rows = x.loader(5, 2).dataset
    data = x.DataModule.from_datasets(rows, val_dataset=[rows, rows], batch_size=4)
    loaders = [data.train_dataloader(), *data.val_dataloader()]
    return {
        "sizes": [[len(one), one.batch_size] for one in loaders],
        "shuffled": [type(one.sampler).__name__ for one in loaders],
    }


def data_module_exception(x):
    """`on_exception` of a data module."""
    calls: list[str] = []

    class Data(_data(x)):
        def on_exception(self, exception):
            calls.append(type(exception).__name__)

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            raise ArithmeticError

    error = x.error(lambda: x.trainer().fit(Net(), datamodule=Data()))
    return {"calls": calls, "error": error}


def data_module_load_from_checkpoint(x):
    """A data module is made from a checkpoint."""
    trainer = x.trainer()
    trainer.fit(x.Net(), datamodule=_data(x)(size=3))
    trainer.save_checkpoint(x.folder / "a.ckpt")
    Data = _data(x)
    return {
        "size": Data.load_from_checkpoint(x.folder / "a.ckpt").size,
        "other": Data.load_from_checkpoint(x.folder / "a.ckpt", size=5).size,
    }


def loaders_of_a_module(x):
    """The module's own loaders."""

    class Net(x.Net):
        def train_dataloader(self):
            return x.loader(3)

        def val_dataloader(self):
            return x.loader(1)

        def test_dataloader(self):
            return x.loader(2)

        def predict_dataloader(self):
            return x.loader(1)

    module, trainer = Net(), x.trainer()
    trainer.fit(module)
    return {
        "weights": x.weights(module), "tested": trainer.test(module, verbose=False),
        "predicted": trainer.predict(module),
    }  # fmt: skip


def _plain_hparams(hparams: Any) -> dict[str, Any]:
    return dict(sorted(dict(hparams).items()))


def save_hyperparameters_all(x):
    """All arguments of `__init__`."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2, *, rate=0.5, **more):
            super().__init__()
            self.save_hyperparameters()

    module = Net(3, extra="a")
    return {
        "hparams": dict(module.hparams), "by name": module.hparams.width,
        "initial": dict(module.hparams_initial),
    }  # fmt: skip


def save_hyperparameters_named(x):
    """Some by their names."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2, rate=0.5):
            super().__init__()
            self.save_hyperparameters("width", "rate")

    return {"hparams": dict(Net(3).hparams)}


def save_hyperparameters_ignored(x):
    """All but some."""

    class Net(x.Net):
        def __init__(self, layers, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters(ignore=["layers", "depth"])

    return {"hparams": dict(Net(torch.nn.Linear(1, 1), 3).hparams)}


def save_hyperparameters_in_a_subclass(x):
    """A subclass that calls its base, with and without a call of its own."""

    class Base(x.Net):
        def __init__(self, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters()

    class Silent(Base):
        def __init__(self, rate=0.5, **more):
            super().__init__(**more)

    class Own(Base):
        def __init__(self, rate=0.5, width=7):
            super().__init__(width=width, depth=9)
            self.save_hyperparameters(ignore=["width"])

    return {
        "silent": _plain_hparams(Silent(depth=3).hparams),
        "own": _plain_hparams(Own().hparams),
    }


@differs("The class of some errors", error=(error("ValueError"), error("ModuleError")))
def save_hyperparameters_of_an_object(x):
    """A dict, a namespace, keywords."""

    class One(x.Net):
        def __init__(self, conf):
            super().__init__()
            self.save_hyperparameters(conf)

    class Two(x.Net):
        def __init__(self, **conf):
            super().__init__()
            self.save_hyperparameters(conf)

    class Three(x.Net):
        def __init__(self, width):
            super().__init__()
            self.save_hyperparameters({"doubled": 2 * width})

    return {
        "dict": dict(One({"a": 1, "b": 2}).hparams),
        "namespace": dict(vars(One(argparse.Namespace(a=1)).hparams))
        or dict(One(argparse.Namespace(a=1)).hparams),
        "keywords": dict(Two(a=1).hparams),
        "computed": dict(Three(3).hparams),
        "error": x.error(lambda: One(3)),
    }


def save_hyperparameters_twice(x):
    """A second call adds."""

    class Net(x.Net):
        def __init__(self, width=1, depth=2):
            super().__init__()
            self.save_hyperparameters("width")
            self.save_hyperparameters("depth")

    return {"hparams": dict(Net().hparams)}


def hyperparameters_can_be_changed(x):
    """`hparams` may be changed; the initial ones stay."""

    class Net(x.Net):
        def __init__(self, width=1):
            super().__init__()
            self.save_hyperparameters()

    module = Net()
    module.hparams.width = 5
    module.hparams["more"] = 1
    return {
        "hparams": dict(module.hparams), "initial": dict(module.hparams_initial),
        "missing": x.error(lambda: module.hparams.odd),
    }  # fmt: skip


def without_hyperparameters(x):
    """A module that saves none."""
    return {"hparams": dict(x.Net().hparams)}


def read_in_a_module(x):
    """What a module can read of the run."""
    seen = []

    class Net(x.Net):
        def on_train_batch_start(self, batch, batch_idx):
            seen.append(
                [
                    self.current_epoch, self.global_step, self.global_rank, self.local_rank,
                    str(self.device), str(self.dtype), self.on_gpu, self.logger is None,
                    self.fabric_is_there, len(self.loggers), self.trainer.is_last_batch,
                    self.automatic_optimization, self.training,
                ]
            )  # fmt: skip

        fabric_is_there = False

    x.trainer(max_epochs=2).fit(Net(), x.loader(2))
    return {"seen": seen}


def read_outside_of_a_run(x):
    """The same without a Trainer."""
    module = x.Net()
    return {
        "trainer": x.error(lambda: module.trainer),
        "epoch": module.current_epoch,
        "step": module.global_step,
        "logger": module.logger,
        "rank": module.global_rank,
        "example": module.example_input_array,
        "log": x.error(lambda: module.log("a", 1.0)),
        "optimizers": x.error(lambda: module.optimizers()),
        "strict": module.strict_loading,
    }


def the_trainer_after_a_run(x):
    """What a module and a trainer know of each other when the run is over."""
    module, trainer = x.Net(), x.trainer()
    trainer.fit(module, x.loader(1))
    return {
        "trainer": module.trainer is trainer, "model": trainer.model is module,
        "module": trainer.lightning_module is module, "optimizers": len(trainer.optimizers),
        "training": module.training,
    }  # fmt: skip


def a_module_inside_a_module(x):
    """A part that is a module itself knows the trainer."""
    seen = []

    class Inner(x.Module):
        def forward(self, batch):
            seen.append([self.current_epoch, self.global_step])
            return batch

    class Outer(x.Net):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def training_step(self, batch, batch_idx):
            return self.cost(self.inner(batch))

    x.trainer(max_epochs=2).fit(Outer(), x.loader(2))
    return {"seen": seen}


def predict_step_by_default(x):
    """`predict_step` is the forward."""

    class Net(x.Net):
        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            return super().predict_step(batch, batch_idx) * 2

    return {
        "forward": x.trainer().predict(x.Net(), x.loader(2)),
        "super": x.trainer().predict(Net(), x.loader(2)),
    }


def predictions(x):
    """What `predict` returns of one loader, of several, and of none."""
    trainer, module = x.trainer(), x.Net()
    loaders = [x.loader(2), x.loader(1)]
    return {
        "one": trainer.predict(module, x.loader(2)),
        "several": trainer.predict(module, loaders),
        "a list of one": trainer.predict(module, loaders[1:]),
        "not returned": trainer.predict(module, loaders, return_predictions=False),
        "default": trainer.predict(module, x.loader(1), return_predictions=None),
    }


def evaluation_steps_that_are_missing(x):
    """A verb whose step the module does not have."""

    class Bare(x.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return {
        "fit": x.error(lambda: x.trainer().fit(Bare(), x.loader(1), x.loader(1))),
        "validate": x.error(lambda: x.trainer().validate(Bare(), x.loader(1), verbose=False)),
        "test": x.error(lambda: x.trainer().test(Bare(), x.loader(1), verbose=False)),
        "predict": x.error(lambda: x.trainer().predict(Bare(), x.loader(1))),
    }


def a_step_without_loaders(x):
    """A `validation_step` without validation loaders is not run."""
    hooks = x.hooks("on_validation_start", "on_train_epoch_end")
    x.trainer(hooks).fit(x.Net(), x.loader(1))
    return {"calls": hooks.calls}


def steps_with_fewer_arguments(x):
    """A step may leave out what it does not need."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch):
            seen.append("training")
            return self.cost(batch)

        def validation_step(self, batch):
            seen.append("validation")

        def predict_step(self, batch):
            return 1

    trainer, module = x.trainer(), Net()
    trainer.fit(module, x.loader(1), x.loader(1))
    return {"seen": seen, "predicted": trainer.predict(module, x.loader(1))}


@differs(
    "A step with the argument `dataloader_iter`",
    error=("none", error("ModuleError")),
)
def a_step_with_an_iterator(x):
    """`training_step(self, dataloader_iter)` takes its batches itself."""

    class Net(x.Net):
        def training_step(self, dataloader_iter):
            return self.cost(next(dataloader_iter)[0])

    return {"error": x.error(lambda: x.trainer().fit(Net(), x.loader(3)))}


@differs("Copying or pickling a Trainer", pickled=("none", {"kinds": ["TypeError"]}))
def copies(x):
    """Modules can be copied, trainers only there."""
    import copy
    import pickle

    twin = copy.deepcopy(x.Net())
    return {
        "pickled": x.error(lambda: pickle.dumps(x.trainer())),
        "weights": x.weights(twin),
    }


def off_values(x):
    """A step or loader that is None is off."""
    module = x.Net()
    module.validation_step = None
    hooks = x.hooks("on_validation_start", "on_train_epoch_end")
    x.trainer(hooks).fit(module, x.loader(1), x.loader(1))
    return {"calls": hooks.calls}
