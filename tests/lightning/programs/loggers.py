"""Loggers: hyperparameters, files, several of them."""

from __future__ import annotations

from programs import differs, error


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


def hyperparameters_of_evaluations(x):
    """An evaluation without a fit passes them too."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

    logged = {}
    for name in ("validate", "test", "predict"):
        journal = x.journal()
        silent = {} if name == "predict" else {"verbose": False}
        getattr(x.trainer(logger=journal), name)(Net(width=5), x.loader(1), **silent)
        logged[name] = journal.hparams
    return {"logged": logged}


def hyperparameters_changed_before_fit(x):
    """A logger is given those that `save_hyperparameters` kept, whatever became of them."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

    journal, module = x.journal(), Net()
    module.hparams.width = 5
    module.hparams["more"] = 1
    x.trainer(logger=journal).fit(module, x.loader(1))
    return {"hparams": journal.hparams}


class _Plain:
    """A logger of the user's own, of no base class."""

    name = version = save_dir = None

    def __init__(self):
        self.rows, self.hparams, self.ends = [], {}, []

    def log_metrics(self, metrics, step=None):
        self.rows.append((step, metrics))

    def log_hyperparams(self, params, *args):
        self.hparams = dict(params)

    def log_graph(self, model):
        pass

    def after_save_checkpoint(self, checkpoint_callback):
        pass

    def save(self):
        pass

    def finalize(self, status):
        self.ends.append(status)


def a_logger_by_its_methods(x):
    """An object with a logger's methods is a logger."""
    plain = _Plain()

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.log("loss", loss)
            return loss

    x.trainer(logger=plain, log_every_n_steps=1).fit(Net(), x.loader(3))
    rows = [(step, {name: float(value) for name, value in row.items()}) for step, row in plain.rows]
    return {"rows": rows, "ends": plain.ends, "hparams": plain.hparams}


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


def metrics_by_name_alone(x):
    """A logger that takes its metrics by name is written to."""
    journal = x.journal()

    class ByName(type(journal)):
        def log_metrics(self, *, metrics, step=None):
            super().log_metrics(metrics, step)

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.log("loss", float(batch_idx))
            return self.cost(batch)

    logger = ByName()
    x.trainer(logger=logger, log_every_n_steps=1).fit(Net(), x.loader(2))
    return {"rows": [[step, metrics["loss"]] for step, metrics in logger.rows]}


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


def a_callback_that_evaluates(x):
    """A callback reads `outputs` and writes to the logger itself."""

    class Writes(x.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.logger.log_metrics({"own": float(outputs["loss"])}, step=trainer.global_step)

    journal = x.journal()
    x.trainer(Writes(), logger=journal).fit(x.Net(), x.loader(2))
    return {"rows": journal.rows}


def tensorboard_logger(x):
    """Names and folders of the TensorBoardLogger."""
    logger = x.loggers.TensorBoardLogger(x.folder, name="runs", version="one")

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

    x.trainer(logger=logger, log_every_n_steps=1).fit(Net(), x.loader(2), x.loader(1))
    return {
        "name": logger.name, "version": logger.version,
        "folder": str(logger.log_dir).replace(str(x.folder), ""),
        "files": [name.partition(".")[0] for name in x.files("runs/**/events*")],
        "hparams": x.files("runs/**/hparams.yaml"),
    }  # fmt: skip


def versions_of_a_csv_logger(x):
    """A second run has the next version."""
    seen = []
    for _ in range(2):
        logger = x.loggers.CSVLogger(x.folder, name="runs")
        x.trainer(logger=logger).fit(x.Net(), x.loader(1), x.loader(1))
        seen.append([logger.version, str(logger.log_dir).replace(str(x.folder), "")])
    return {"seen": seen}


def checkpoints_in_the_loggers_folder(x):
    """Without `dirpath` the files go to the logger's folder."""
    logger = x.loggers.CSVLogger(x.folder, name="runs", version="one")
    trainer = x.trainer(logger=logger, enable_checkpointing=True)
    trainer.fit(x.Net(), x.loader(2))
    return {"files": x.files("**/*.ckpt")}


def checkpoints_of_a_sub_dir(x):
    """The files of a run whose TensorBoardLogger has a folder inside its folder."""

    class Net(x.Net):
        def __init__(self, width=3):
            super().__init__()
            self.save_hyperparameters()

    logger = x.loggers.TensorBoardLogger(x.folder, name="runs", version="one", sub_dir="part")
    x.trainer(logger=logger, enable_checkpointing=True).fit(Net(), x.loader(2))
    return {"files": x.files("**/*.ckpt"), "hparams": x.files("**/hparams.yaml")}


def checkpoints_of_a_logger_of_ones_own(x):
    """Folders of loggers with a name and a version, with and without `save_dir`."""
    attributes = [
        {"save_dir": "sd", "version": 7},
        {"save_dir": "sd", "version": "eight"},
        {"version": 9},
        {"save_dir": "sd", "name": "", "version": 7},
    ]
    for own in attributes:
        if "save_dir" in own:
            own["save_dir"] = str(x.folder / own["save_dir"])
        logger = type("Own", (type(x.journal()),), own)()
        x.trainer(logger=logger, enable_checkpointing=True).fit(x.Net(), x.loader(2))
    return {"files": x.files("**/*.ckpt"), "root_dir": logger.root_dir}


@differs(
    "Checkpoints with a logger whose class is your own and defines `log_dir`",
    files=(
        ["sd/journal/version_0/checkpoints/epoch=0-step=2.ckpt"],
        ["own/checkpoints/epoch=0-step=2.ckpt"],
    ),
)
def checkpoints_of_a_logger_with_a_log_dir(x):
    """A logger with both folders."""
    folders = {
        name: str(x.folder / path) for name, path in (("save_dir", "sd"), ("log_dir", "own"))
    }
    logger = type("Own", (type(x.journal()),), folders)()
    x.trainer(logger=logger, enable_checkpointing=True).fit(x.Net(), x.loader(2))
    return {"files": x.files("**/*.ckpt")}
