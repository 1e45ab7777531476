"""A program of LightningCLI: subclass with linked arguments, a config file, a subcommand."""

import sys
from pathlib import Path

import torch
from tiny_data import digits
from lightning.pytorch import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI, OptimizerCallable
from torch.utils.data import DataLoader

HOSTED = "LightningCLI makes Lightning's Trainer itself"


class DigitsDataModule(LightningDataModule):
    def __init__(self, batch_size: int = 16, hidden: int = 4):
        super().__init__()
        self.batch_size = batch_size
        self.hidden = hidden

    def train_dataloader(self):
        return DataLoader(digits(48), self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(digits(16), self.batch_size)


class LitDigits(LightningModule):
    def __init__(self, hidden: int = 8, optimizer: OptimizerCallable = torch.optim.Adam):
        super().__init__()
        self.save_hyperparameters(ignore=["optimizer"])
        self.make_optimizer = optimizer
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, hidden), torch.nn.ReLU(),
            torch.nn.Linear(hidden, 10),
        )  # fmt: skip

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return self.make_optimizer(self.parameters())


class MyCLI(LightningCLI):
    def add_arguments_to_parser(self, parser):
        parser.link_arguments("model.hidden", "data.hidden")
        parser.add_argument("--notes", default="none")
        parser.set_defaults({"trainer.max_epochs": 2})

    def before_fit(self):
        self.before = self.config.fit.notes

    def after_fit(self):
        self.after = self.trainer.global_step


def main():
    Path("config.yaml").write_text(
        "model:\n  hidden: 6\n  optimizer:\n    class_path: torch.optim.SGD\n"
        "    init_args:\n      lr: 0.1\ntrainer:\n  logger: false\n  accelerator: cpu\n"
    )
    sys.argv = ["program.py", "fit", "--config", "config.yaml", "--data.batch_size=8", "--notes=x"]
    cli = MyCLI(LitDigits, DigitsDataModule, seed_everything_default=7,
                save_config_kwargs={"overwrite": True})  # fmt: skip
    return {"hidden": cli.datamodule.hidden, "before": cli.before, "after": cli.after,
            "epochs": cli.config.fit.trainer.max_epochs}  # fmt: skip
