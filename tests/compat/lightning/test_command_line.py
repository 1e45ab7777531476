"""LightningCLI under the import lines: names, subcommands and hyperparameters as in Lightning."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from trainer_hooks.compat.lightning import LightningModule, Trainer, callbacks, loggers
from trainer_hooks.compat.lightning.cli import LightningCLI
from trainer_hooks.compat.lightning.demos.boring_classes import BoringModel
from trainer_hooks.errors import ModuleError, TrainerHooksWarning

pytest.importorskip("jsonargparse")


@pytest.mark.parametrize(
    "package", ["", "lightning.pytorch.loggers.", "pytorch_lightning.loggers."]
)
@pytest.mark.parametrize("name", ["CSVLogger", "TensorBoardLogger"])
def test_names_on_the_command_line_are_lightnings_classes(package, name, tmp_path, monkeypatch):
    """Short names, Lightning's own paths, and those in `trainer_defaults`."""
    monkeypatch.chdir(tmp_path)
    path = f"{package}{name}"
    options = {"run": False, "seed_everything_default": False}
    by_line = LightningCLI(
        BoringModel, args=[f"--trainer.logger={path}", "--trainer.logger.save_dir=logs"], **options
    )
    defaults = {"logger": {"class_path": path, "init_args": {"save_dir": "logs"}}}
    by_defaults = LightningCLI(BoringModel, args=[], trainer_defaults=defaults, **options)
    for cli in (by_line, by_defaults):
        assert type(cli.trainer.logger) is getattr(loggers, name)
        assert cli.trainer.logger.log_dir == str(Path("logs", "lightning_logs", "version_0"))


def test_a_callback_of_the_command_line_is_lightnings(tmp_path, monkeypatch):
    """One that is written by its short name; in the saved config stands its path."""
    monkeypatch.chdir(tmp_path)
    line = ["--trainer.callbacks+=Timer", "--trainer.callbacks.duration=00:00:01:00"]
    cli = LightningCLI(BoringModel, args=line, run=False, seed_everything_default=False)
    assert callbacks.Timer in {type(callback) for callback in cli.trainer.callbacks}


class Injected(torch.nn.Module):
    def __init__(self, width: int = 3):
        super().__init__()
        self.layer = torch.nn.Linear(width, width)


class Takes(BoringModel):
    def __init__(self, net: torch.nn.Module, width: int = 2):
        super().__init__()
        self.save_hyperparameters()
        self.net = net


def test_a_module_with_an_injected_module_loads_from_its_checkpoint(tmp_path, monkeypatch):
    """The config's form of the argument is its hyperparameter; nothing is imported for a file."""
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    words = ["fit", f"--model.net={__name__}.Injected", "--model.net.width=5"]
    limits = {"max_steps": 1, "limit_val_batches": 0, "enable_checkpointing": False}
    cli = LightningCLI(
        Takes, args=words, trainer_defaults={**quiet, **limits}, save_config_callback=None
    )
    spec = {"class_path": f"{__name__}.Injected", "init_args": {"width": 5}}
    assert cli.model.hparams["net"] == spec
    cli.trainer.save_checkpoint("saved.ckpt")
    loaded = Takes.load_from_checkpoint("saved.ckpt")
    assert loaded.net.layer.weight.equal(cli.model.net.layer.weight)
    assert loaded.hparams["net"] == spec
    with pytest.warns(TrainerHooksWarning, match="'net' of Takes as pickles"):
        given = Takes.load_from_checkpoint("saved.ckpt", net=Injected(5))
    assert given.net.layer.weight.equal(cli.model.net.layer.weight)
    checkpoint = torch.load("saved.ckpt", weights_only=True)
    for path in ("antigravity.Other", "subprocess.Popen"):
        checkpoint["hyper_parameters"]["net"] = {"class_path": path, "init_args": {"args": "true"}}
        torch.save(checkpoint, "other.ckpt")
        with pytest.raises(ModuleError, match=f"{path} is no Module of an imported module"):
            Takes.load_from_checkpoint("other.ckpt")
    assert "antigravity" not in sys.modules


class Exports(Trainer):
    def export(self, model: LightningModule, path: str, opset: int = 17):
        """Export the model."""
        self.exported = (type(model).__name__, path, opset)


def test_a_subcommand_of_ones_own_gets_its_arguments(tmp_path, monkeypatch):
    """Its method is one of the Trainer's subclass; another one can be carried out after it."""
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    defaults = {**quiet, "limit_test_batches": 1, "enable_checkpointing": False}

    class Own(LightningCLI):
        @staticmethod
        def subcommands():
            return {**LightningCLI.subcommands(), "export": {"model"}}

        def after_export(self):
            self._run_subcommand("test")

        def after_test(self):
            self.tested = True

    cli = Own(
        BoringModel, trainer_class=Exports, args=["export", "--path=m.onnx"],
        trainer_defaults=defaults,
    )  # fmt: skip
    assert cli.trainer.exported == ("BoringModel", "m.onnx", 17)
    assert cli.tested
    for name, value in (("SUBCOMMAND", "export"), ("EXPORT__PATH", "b.onnx")):
        monkeypatch.setenv(f"PL_{name}", value)
    cli = Own(
        BoringModel, trainer_class=Exports, args=[], trainer_defaults=defaults,
        parser_kwargs={"default_env": True},
    )  # fmt: skip
    assert (cli.subcommand, cli.trainer.exported) == ("export", ("BoringModel", "b.onnx", 17))


def test_callbacks_in_trainer_defaults_are_objects(capsys):
    """A config of one is refused, as Lightning fails with it, too."""
    defaults = {"callbacks": {"class_path": "LearningRateMonitor"}, "accelerator": "cpu"}
    with pytest.raises(SystemExit):
        LightningCLI(BoringModel, args=[], run=False, trainer_defaults=defaults)
    assert "must be an instance of trainer_hooks.Callback" in capsys.readouterr().err
