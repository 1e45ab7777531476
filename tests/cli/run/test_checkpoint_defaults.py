"""Arguments that a config leaves out come from the checkpoint that it names."""

from __future__ import annotations

import pytest
import yaml

from trainer_hooks import TrainerCLI
from trainer_hooks.checkpoint.file import read_checkpoint, write_checkpoint

TRAINED = """
model: {class_path: configured.Trained, init_args: {lr: 0.05}}
data: {class_path: configured.Points, init_args: {size: 8}}
links: {model.outputs: data.values}
"""
pytestmark = pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
PLAIN = """
model: configured.Trained
data: configured.Points
"""


@pytest.fixture
def saved(ask, config, here) -> str:
    """A checkpoint of a run with arguments other than the defaults, one of them by a link."""
    assert ask("fit", "--config", config(TRAINED)).code == 0
    return str(next(here.rglob("*.ckpt")))


@pytest.fixture
def made(config):
    """Run a command with a config, and return module and data module."""

    def made(*words: str, text: str = PLAIN) -> tuple:
        cli = TrainerCLI(args=[words[0], "--config", config(text), *words[1:]])
        return cli.model, cli.datamodule

    return made


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "test", "predict", "fit"])
def test_what_is_not_given_is_the_checkpoints(saved, made, command: str) -> None:
    """Each command makes module and data as the checkpoint was trained, what was linked too."""
    model, data = made(command, "--ckpt_path", saved)
    assert dict(model.hparams) == {"width": 4, "outputs": 3, "lr": 0.05}
    assert data.size == 8


@pytest.mark.slow
def test_what_is_given_goes_before_it(saved, made) -> None:
    """A value of the file or of the line counts."""
    text = PLAIN.replace("configured.Points", "{class_path: configured.Points, init_args: {size: 2")
    model, data = made("test", f"--ckpt_path={saved}", "--model.lr=0.5", text=text + "}}")
    assert (model.hparams.lr, model.hparams.outputs, data.size) == (0.5, 3, 2)


@pytest.mark.slow
def test_a_link_goes_before_it(saved, made) -> None:
    """So does a link."""
    links = "links: {model.lr: data.values}"
    model, _ = made("test", "--ckpt_path", saved, text=PLAIN + links)
    assert model.hparams.lr == 3


@pytest.mark.slow
def test_classes_that_are_fixed_take_them(saved, made, here) -> None:
    """A script's own classes get them as well; the checkpoint's path may stand in the file."""
    import configured

    cli = TrainerCLI(
        configured.Trained, configured.Points, args={"test": {"ckpt_path": saved}},
        trainer_defaults={"accelerator": "cpu", "plugins": False, "enable_progress_bar": False},
    )  # fmt: skip
    assert (cli.model.hparams.outputs, cli.datamodule.size) == (3, 8)


@pytest.mark.slow
def test_hyperparameters_alone_are_enough(saved, made) -> None:
    """A checkpoint without a config, as a script or Lightning writes it, has them as well."""
    checkpoint = read_checkpoint(saved)
    del checkpoint["config"]
    checkpoint["hyper_parameters"]["told"] = "no argument"
    checkpoint["hyper_parameters"]["_class_path"] = "configured.Trained"
    write_checkpoint(checkpoint, saved)
    model, data = made("test", "--ckpt_path", saved)
    assert (model.hparams.outputs, model.hparams.lr, data.size) == (3, 0.05, 4)


@pytest.mark.slow
def test_a_checkpoint_names_no_class(saved, ask, config) -> None:
    """Which class is made the config says; of another class than the saved one nothing is taken."""
    answer = ask("test", "--ckpt_path", saved)
    assert answer.code == 2
    assert "model: is required and was not given." in answer.err
    line = PLAIN.replace("Trained", "Line")
    told = ask("test", "--config", config(line), "--ckpt_path", saved, "--print_config").out
    assert yaml.safe_load(told)["model"]["init_args"]["outputs"] == 1
