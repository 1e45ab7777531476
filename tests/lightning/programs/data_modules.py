"""Data modules, and the loaders of a module."""

from __future__ import annotations

from typing import Any

from plain_values import plain


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
