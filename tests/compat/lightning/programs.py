"""Programs for LightningCLI, run by Lightning's and by the one that takes its place.

Each is a function of `pl`, the package, and returns what is to be the same in both.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import yaml
from torch.utils.data import DataLoader, TensorDataset

SIDE = sys.argv[1]
if SIDE == "lightning":
    import pytorch_lightning as pl
    from pytorch_lightning.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
else:
    import trainer_hooks.compat.lightning as pl
    from trainer_hooks.compat.lightning.cli import (
        LightningArgumentParser,
        LightningCLI,
        SaveConfigCallback,
    )

QUIET = {
    "accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False,
    "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0,
}  # fmt: skip


class Net(pl.LightningModule):
    """A layer.

    Args:
        width: how many inputs it has.
        classes: how many outputs.
        lr: how far a step goes.
    """

    def __init__(self, width: int = 4, classes: int = 1, lr: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, classes)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch[0]).square().mean())

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self.layer(batch[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr_of())

    def lr_of(self):
        return self.hparams.lr


class Bare(pl.LightningModule):
    """A layer that names no optimizer."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.layer = torch.nn.Linear(width, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()


class Small(Net):
    """Another."""

    def __init__(self, width: int = 4, extra: str = "none"):
        super().__init__(width)
        self.extra = extra

    def lr_of(self):
        return 0.1


class Data(pl.LightningDataModule):
    """Points.

    Args:
        size: how many make a batch.
    """

    def __init__(self, size: int = 4):
        super().__init__()
        self.save_hyperparameters()
        self.size = size
        self.num_classes = 3

    def loader(self):
        points = torch.randn(16, 4, generator=torch.Generator().manual_seed(5))
        return DataLoader(TensorDataset(points), batch_size=self.size)

    train_dataloader = val_dataloader = test_dataloader = predict_dataloader = loader


def cli(*words, kind=LightningCLI, model=Net, data=Data, **options):
    options.setdefault("trainer_defaults", QUIET)
    options.setdefault("save_config_callback", None)
    return kind(model, data, args=list(words), **options)


def weights(made):
    return [value.double().sum().item() for value in made.model.state_dict().values()]


def parsed(made, *groups):
    config = made.config if made.subcommand is None else made.config[made.subcommand]
    return {name: config[name].as_dict() for name in groups or ("model", "data")}


def arguments():
    made = cli(
        "fit", "--model.lr=0.5", "--data.size", "8", "--trainer.max_steps=3", "--seed_everything=7"
    )
    return parsed(made), weights(made), made.trainer.global_step, made.config.fit.seed_everything


def commands():
    found = {}
    for name in ("validate", "test", "predict"):
        made = cli(name, "--seed_everything=1")
        found[name] = {k: round(float(v), 6) for k, v in made.trainer.callback_metrics.items()}
    return found


def without_run():
    made = cli("--model.width=4", run=False)
    return made.subcommand, parsed(made), made.trainer.global_step, type(made.datamodule).__name__


def subclass_mode():
    made = cli(
        "fit", "--model=programs.Small", "--model.extra=told", "--data=programs.Data",
        "--data.size=2", model=Net, data=Data, subclass_mode_model=True, subclass_mode_data=True,
    )  # fmt: skip
    return type(made.model).__name__, made.model.extra, parsed(made), made.datamodule.size


def any_class():
    made = cli(
        "fit",
        "--model=programs.Net",
        "--model.lr=0.3",
        "--data=programs.Data",
        model=None,
        data=None,
    )
    return type(made.model).__name__, parsed(made)


def no_data():
    class Own(Net):
        def train_dataloader(self):
            return Data().loader()

    made = cli("fit", model=Own, data=None)
    return made.datamodule, made.trainer.global_step


def a_function():
    def make(width: int = 4, twice: bool = False) -> Net:
        return Net(width, lr=0.2 if twice else 0.1)

    made = cli("fit", "--model.twice=true", model=make)
    return made.model.hparams.lr


def more_arguments():
    class Own(LightningCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_argument("--factor", type=int, default=2)
            parser.set_defaults({"trainer.max_steps": 2, "model.lr": 0.25})
            parser.link_arguments("data.size", "model.width")
            parser.link_arguments(
                ("factor", "data.size"), "model.classes", compute_fn=lambda a, b: a * b
            )

    made = cli("fit", "--factor=3", kind=Own)
    return (
        made.model.hparams.classes,
        made.trainer.global_step,
        made.config.fit.factor,
        parsed(made),
    )


def link_of_what_was_made():
    class Own(LightningCLI):
        def add_arguments_to_parser(self, parser):
            parser.link_arguments("data.num_classes", "model.classes", apply_on="instantiate")

    made = cli("fit", kind=Own)
    return made.model.hparams.classes, made.model.layer.out_features


def hooks():
    calls = []

    class Own(LightningCLI):
        def before_instantiate_classes(self):
            calls.append(("before_instantiate", hasattr(self, "model")))

        def after_instantiate_classes(self):
            calls.append(("after_instantiate", self.trainer.global_step))

        def instantiate_classes(self):
            super().instantiate_classes()
            calls.append(("instantiate", type(self.model).__name__))

        def instantiate_trainer(self, **kwargs):
            calls.append(("trainer", sorted(kwargs)))
            return super().instantiate_trainer(max_steps=2, **kwargs)

        def before_fit(self):
            calls.append(("before_fit", self.trainer.global_step))

        def after_fit(self):
            calls.append(("after_fit", self.trainer.global_step))

        def before_test(self):
            calls.append("never")

    cli("fit", kind=Own)
    return calls


def a_command_of_its_own():
    class Own(LightningCLI):
        def fit(self, model, **kwargs):
            self.told = sorted(kwargs)
            self.trainer.fit(model, **kwargs)

    return cli("fit", kind=Own).told


def optimizer_and_scheduler():
    made = cli(
        "fit", "--optimizer=torch.optim.Adam", "--optimizer.lr=0.01",
        "--lr_scheduler=torch.optim.lr_scheduler.StepLR", "--lr_scheduler.step_size=1", model=Bare,
    )  # fmt: skip
    return type(made.trainer.optimizers[0]).__name__, weights(made)


def configured_optimizers():
    class Own(LightningCLI):
        @staticmethod
        def configure_optimizers(module, optimizer, lr_scheduler=None):
            optimizer.param_groups[0]["lr"] = 0.7
            return optimizer

    made = cli("fit", "--optimizer=SGD", "--optimizer.lr=0.01", model=Bare, kind=Own)
    return made.trainer.optimizers[0].param_groups[0]["lr"], weights(made)


def optimizer_args():
    class Own(LightningCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_optimizer_args(torch.optim.Adam)
            parser.add_lr_scheduler_args(torch.optim.lr_scheduler.ExponentialLR)

    made = cli("fit", "--optimizer.lr=0.02", "--lr_scheduler.gamma=0.5", model=Bare, kind=Own)
    return made.config.fit.optimizer.lr, weights(made)


def optimizer_linked():
    class Given(Bare):
        def __init__(self, made: dict, width: int = 4):
            super().__init__(width)
            self.made = made

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=self.made["init_args"]["lr"])

    class Own(LightningCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_optimizer_args(torch.optim.SGD, nested_key="sgd", link_to="model.made")

    made = cli("fit", "--sgd.lr=0.3", model=Given, kind=Own, auto_configure_optimizers=False)
    return made.model.made["class_path"], made.trainer.optimizers[0].param_groups[0]["lr"]


def files_over_each_other():
    Path("a.yaml").write_text("model: {lr: 0.5, width: 4}\ntrainer: {max_steps: 9}")
    Path("b.yaml").write_text("trainer: {max_steps: 2}\ndata: {size: 2}")
    made = cli("fit", "--config", "a.yaml", "--config", "b.yaml", "--model.lr=0.125")
    return parsed(made), made.trainer.max_steps


def one_file_for_commands():
    Path("all.yaml").write_text("fit: {model: {lr: 0.5}}\ntest: {model: {lr: 0.25}}")
    return parsed(cli("--config", "all.yaml", "test"))


def environment():
    os.environ.update(PL_FIT__MODEL__LR="0.75", PL_FIT__TRAINER__MAX_STEPS="2")
    try:
        made = cli("fit", parser_kwargs={"default_env": True})
    finally:
        del os.environ["PL_FIT__MODEL__LR"], os.environ["PL_FIT__TRAINER__MAX_STEPS"]
    return parsed(made), made.trainer.max_steps


def default_files():
    Path("default.yaml").write_text("model: {lr: 0.0625}")
    made = cli("fit", parser_kwargs={"fit": {"default_config_files": ["default.yaml"]}})
    return parsed(made)


def print_config():
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli("fit", "--model.lr=0.5", "--print_config")
    told = yaml.safe_load(out.getvalue())
    return {name: told[name] for name in ("model", "data")}, told["trainer"]["max_epochs"]


def saved_config():
    cli(
        "fit", "--model.lr=0.5", "--trainer.logger=CSVLogger", "--trainer.logger.save_dir=.",
        "--trainer.logger.name=run", "--trainer.logger.version=0",
        save_config_callback=SaveConfigCallback, save_config_kwargs={"config_filename": "own.yaml"},
        trainer_defaults={name: value for name, value in QUIET.items() if name != "logger"},
    )  # fmt: skip
    told = yaml.safe_load(Path("run/version_0/own.yaml").read_text())
    return told["model"], told["data"], told["seed_everything"]


def own_save_config():
    seen = []

    class Own(SaveConfigCallback):
        def save_config(self, trainer, pl_module, stage):
            told = yaml.safe_load(self.parser.dump(self.config, skip_none=False))
            seen.append(
                (
                    stage,
                    told["model"],
                    type(trainer.model if hasattr(trainer, "model") else 0) is not int,
                )
            )

    cli("fit", save_config_callback=Own, save_config_kwargs={"save_to_log_dir": False})
    return seen


def a_callback_as_argument():
    class Own(LightningCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_lightning_class_args(pl.callbacks.EarlyStopping, "stopping")
            parser.set_defaults({"stopping.monitor": "val_loss", "stopping.patience": 5})

    made = cli("fit", "--stopping.patience=2", kind=Own)
    return [c.patience for c in made.trainer.callbacks if type(c).__name__ == "EarlyStopping"]


def callbacks_by_name():
    made = cli(
        "fit", "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val_loss",
        "--trainer.callbacks.patience=4", "--trainer.callbacks+=LearningRateMonitor",
        "--trainer.logger=CSVLogger", "--trainer.logger.save_dir=.",
        trainer_defaults={name: value for name, value in QUIET.items() if name != "logger"},
    )  # fmt: skip
    named = {type(callback).__name__ for callback in made.trainer.callbacks}
    return sorted(named & {"EarlyStopping", "LearningRateMonitor"})


def persistent_callbacks():
    class Counts(pl.Callback):
        seen = 0

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            self.seen += 1

    counts = Counts()
    cli("fit", trainer_defaults={**QUIET, "callbacks": [counts]})
    return counts.seen


def a_dict():
    made = LightningCLI(
        Net, Data, args={"fit": {"model": {"lr": 0.5}, "trainer": {"max_steps": 2}}},
        trainer_defaults=QUIET, save_config_callback=None,
    )  # fmt: skip
    return parsed(made), made.trainer.global_step


def own_parser():
    class Own(LightningArgumentParser):
        pass

    made = cli("--model.lr=0.5", run=False, parser_class=Own)
    return type(made.parser) is Own, parsed(made)


def seed():
    return [
        cli(
            "fit", "--trainer.max_steps=1", seed_everything_default=value
        ).config.fit.seed_everything
        for value in (3, False)
    ]


def wrong():
    told = {}
    for word in ("--model.lrr=3", "--trainer.max_epochs=three", "--nothing=1"):
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            try:
                cli("fit", word)
            except SystemExit as exit_:
                told[word] = exit_.code
    return told


def checkpoint_arguments():
    trained = cli("fit", "--model.classes=2")
    trained.trainer.save_checkpoint("made.ckpt")
    made = cli("test", "--ckpt_path=made.ckpt")
    return made.model.hparams.classes


def given_before_checkpoint():
    cli("fit", "--model.classes=2").trainer.save_checkpoint("given.ckpt")
    return cli(
        "test", "--ckpt_path=given.ckpt", "--model.lr=0.75", "--model.classes=2"
    ).model.hparams.lr


def data_of_checkpoint():
    cli("fit", "--data.size=2").trainer.save_checkpoint("data.ckpt")
    return cli("test", "--ckpt_path=data.ckpt").datamodule.size


PROGRAMS = [
    arguments, commands, without_run, subclass_mode, any_class, no_data, a_function, more_arguments,
    link_of_what_was_made, hooks, a_command_of_its_own, optimizer_and_scheduler,
    configured_optimizers, optimizer_args, optimizer_linked, files_over_each_other,
    one_file_for_commands, environment, default_files, print_config, saved_config, own_save_config,
    a_callback_as_argument, callbacks_by_name, persistent_callbacks, a_dict, own_parser, seed,
    wrong, checkpoint_arguments, given_before_checkpoint, data_of_checkpoint,
]  # fmt: skip


def main():
    told = {}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for program in PROGRAMS:
            torch.manual_seed(0)
            with contextlib.redirect_stdout(io.StringIO()):
                told[program.__name__] = program()
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    sys.modules["programs"] = sys.modules["__main__"]  # by which name class paths name the classes
    warnings.simplefilter("ignore")
    main()
