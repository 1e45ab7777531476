"""`trainer-hooks fit` and the others: what a config and a line of options say is what runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import warm_python
import yaml

from trainer_hooks.adapters import HostedCallback
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import MetricError

LINE = """
model: configured.Trained
data: configured.Points
"""


def printed(answer) -> dict:
    """The config that was printed."""
    assert answer.code in (0, None), answer
    return yaml.safe_load(answer.out)


@pytest.mark.slow
def test_a_config_alone_trains(ask, config) -> None:
    """Module and data by class path, and options of the Trainer: `fit` trains with them."""
    assert ask("fit", "--config", config(LINE)).code == 0
    assert Path("trainer_logs/version_0/metrics.csv").exists()
    assert list(Path("trainer_logs/version_0/checkpoints").glob("epoch=1-*.ckpt"))


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_the_other_commands_run(ask, config, command: str) -> None:
    """`validate`, `test` and `predict` take the same config."""
    answer = ask(command, "--config", config(LINE))
    assert answer.code == 0, answer
    assert {"validate": "val_loss", "test": "test_loss", "predict": ""}[command] in answer.out


@pytest.mark.slow
def test_predictions_that_nothing_keeps(ask, config, tmp_path) -> None:
    """`predict` says first that its predictions are lost, unless something gets them."""
    told = "the predictions go nowhere"
    lost = ask("predict", "--config", config(LINE))
    assert lost.code == 0
    assert told in lost.err.splitlines()[0]
    written = ask("predict", "--config", config(LINE), "--output", "out.csv")
    assert written.code == 0, written
    assert told not in written.err
    header, *rows = Path("out.csv").read_text().splitlines()
    assert header == "prediction"
    assert len(rows) == 16
    for name in ("out.parquet", "nowhere/out.csv"):
        refused = ask("predict", "--config", config(LINE), "--output", name)
        assert refused.code == 2
        assert len(refused.err.splitlines()) <= 2, refused.err
        assert "of PredictionWriter" in refused.err.splitlines()[-1]
    Path("writers.py").write_text(
        "from trainer_hooks.callbacks import BasePredictionWriter\n"
        "class Writer(BasePredictionWriter):\n"
        "    def write_on_batch_end(self, *given): pass\n"
    )
    added = ["--trainer.callbacks+=writers.Writer", "--trainer.callbacks.write_interval=batch"]
    kept = ask("predict", "--config", config(LINE), *added)
    assert kept.code == 0, kept
    assert told not in kept.err


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_an_evaluation_of_a_checkpoint_is_warned_of_nothing(ask, config, command: str) -> None:
    """A run that saves nothing is not told in whose folder the checkpoint lies."""
    file = config(LINE)
    assert ask("fit", "--config", file).code == 0
    (path,) = Path("trainer_logs/version_0").rglob("*.ckpt")
    assert ask(command, "--config", file, "--ckpt_path", str(path)).code == 0


@pytest.mark.slow
def test_a_guest_of_the_same_name_is_not_meant(ask, config) -> None:
    """A short name is that of a class here, also after a foreign one of that name was hosted."""
    foreign = type("EarlyStopping", (), {"__module__": "otherlib"})
    hosted = HostedCallback.hosting(foreign(), EarlyStopping)
    assert type(hosted).__name__ == "EarlyStopping"
    added = ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val_loss"]
    told = printed(ask("fit", "--config", config(LINE), *added, "--print_config"))
    (one,) = told["trainer"]["callbacks"]
    assert one["class_path"] == "trainer_hooks.callbacks.EarlyStopping"


@pytest.mark.slow
def test_callbacks_are_added_by_their_short_names(ask, config) -> None:
    """`+=` adds to the file's callbacks, and the options after it are those of the last one."""
    file = config(LINE + "trainer.callbacks: [LearningRateMonitor]")
    told = printed(
        ask(
            "fit", "--config", file,
            "--trainer.callbacks+=EarlyStopping",
            "--trainer.callbacks.monitor=val_loss",
            "--trainer.callbacks.patience=5",
            "--print_config",
        )
    )["trainer"]["callbacks"]  # fmt: skip
    assert [each["class_path"] for each in told] == [
        "trainer_hooks.callbacks.LearningRateMonitor",
        "trainer_hooks.callbacks.EarlyStopping",
    ]
    assert told[1]["init_args"]["patience"] == 5


def test_every_callback_and_logger_has_its_short_name(here) -> None:
    """No name of the package's callbacks and loggers is taken by two classes."""
    from trainer_hooks import callbacks, loggers
    from trainer_hooks.cli.run.parser import TrainerParser, import_nameable_classes
    from trainer_hooks.trainer.trainer import Trainer

    import_nameable_classes()
    parser = TrainerParser()
    parser.add_trainer_args(Trainer)
    for room, key in ((callbacks, "trainer.callbacks"), (loggers, "trainer.logger")):
        base = room.Callback if room is callbacks else room.Logger
        for name in room.__all__:
            kind = getattr(room, name)
            if isinstance(kind, type) and issubclass(kind, base):
                assert parser.takes(key, kind.__name__)


def test_every_option_of_the_trainer_is_told(ask) -> None:
    """The help has all options of the Trainer, with their types and what they mean."""
    from trainer_hooks.trainer.options.config import option_docs

    told = " ".join(ask("fit", "--help").out.split())
    for name, _, _ in option_docs():
        assert f"--trainer.{name}" in told
    assert "Optimizer steps to train; -1 for no end. (type: int, default: -1)" in told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["EarlyStopping", "configured.Line", "CSVLogger", "StepLR"])
def test_help_tells_of_one_class(ask, name: str) -> None:
    """`--help CLASS` tells what a callback, module, logger or scheduler takes."""
    answer = ask("fit", "--help", name)
    assert answer.code == 0
    wanted = {"EarlyStopping": "patience", "CSVLogger": "save_dir", "StepLR": "step_size"}
    assert wanted.get(name, "how many inputs it has") in answer.out


@pytest.mark.slow
def test_a_number_stays_one_where_a_text_may_stand(ask, config) -> None:
    """`int | str` is read as a number first: a version 3 is the folder version_3."""
    words = [
        "--trainer.logger=CSVLogger",
        "--trainer.logger.save_dir=.",
        "--trainer.logger.version=3",
    ]
    told = printed(ask("fit", "--config", config(LINE), *words, "--print_config"))
    assert told["trainer"]["logger"]["init_args"]["version"] == 3


def test_later_configs_go_over_earlier_ones(ask, config) -> None:
    """Of several files the last one counts, and the line goes over all."""
    first = config(
        "model: {class_path: configured.Trained, init_args: {lr: 0.5}}\ndata: configured.Points"
    )
    second = config("trainer: {max_epochs: 7}", "more.yaml", quiet="")
    told = printed(
        ask("fit", "--config", first, "--config", second, "--model.lr", "0.2", "--print_config")
    )
    assert told["trainer"]["max_epochs"] == 7
    assert told["model"]["init_args"]["lr"] == 0.2


def test_the_environment_gives_what_nothing_else_gives(ask, config, monkeypatch) -> None:
    """A variable holds an option; a config goes over it."""
    monkeypatch.setenv("TRAINER_HOOKS_FIT__TRAINER__MAX_STEPS", "9")
    monkeypatch.setenv("TRAINER_HOOKS_FIT__TRAINER__MAX_EPOCHS", "9")
    told = printed(ask("fit", "--config", config(LINE), "--print_config"))["trainer"]
    assert (told["max_steps"], told["max_epochs"]) == (9, 2)


@pytest.mark.slow
def test_optimizer_and_scheduler_come_from_the_config(ask, config) -> None:
    """A module without `configure_optimizers` gets the optimizer and the scheduler by name."""
    file = config(
        """
        model: configured.Line
        data: configured.Points
        optimizer: {class_path: SGD, init_args: {lr: 0.5}}
        lr_scheduler: {class_path: StepLR, init_args: {step_size: 1, gamma: 0.5}}
        trainer.callbacks: [LearningRateMonitor]
        """
    )
    assert ask("fit", "--config", file).code == 0
    rates = Path("trainer_logs/version_0/metrics.csv").read_text()
    assert "0.25" in rates


@pytest.mark.slow
def test_a_plateau_scheduler_has_its_monitor(ask, config) -> None:
    """`ReduceLROnPlateau` takes the metric's name; torch's own class, which cannot, is refused."""
    file = config(LINE.replace("Trained", "Line") + "optimizer: SGD\nlr_scheduler: PLATEAU")
    text = Path(file).read_text()
    plateau = "{class_path: ReduceLROnPlateau, init_args: {monitor: train_loss}}"
    Path(file).write_text(text.replace("PLATEAU", plateau))
    with pytest.raises(MetricError, match="ReduceLROnPlateau monitors 'train_loss'"):
        ask("fit", "--config", file)
    assert ask("fit", "--config", file, "--lr_scheduler.monitor", "val_loss").code == 0
    Path(file).write_text(text.replace("PLATEAU", "torch.optim.lr_scheduler.ReduceLROnPlateau"))
    answer = ask("fit", "--config", file)
    assert answer.code == 2
    assert "names no metric. Write ReduceLROnPlateau, without torch's path" in answer.err


@pytest.mark.slow
def test_links_stand_in_the_config(ask, config) -> None:
    """`links` gives an argument the value of another, or an attribute of what was made."""
    file = config(LINE + "links: {model.outputs: data.values, model.width: data.init_args.size}")
    from trainer_hooks.cli.run.trainer_cli import TrainerCLI

    cli = TrainerCLI(args=["fit", "--config", file])
    assert (cli.model.hparams.outputs, cli.model.hparams.width) == (3, 4)
    assert cli.model.layer.out_features == 3


@pytest.mark.exhaustive
def test_several_processes_train_from_one_config(config, classes) -> None:
    """Two processes resolve the same config, and the first alone writes it down.

    The optimizer is the config's, which both step with.
    """
    path = os.pathsep.join([str(Path(__file__).parents[3]), str(classes)])
    optimizer = "optimizer: {class_path: SGD, init_args: {lr: 0.5, momentum: 0.9}}"
    file = config(LINE.replace("Trained", "Line") + optimizer)
    words = ["fit", "--config", file, "--trainer.devices", "2"]
    done = warm_python.run(
        [sys.executable, "-m", "trainer_hooks", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [path.name for path in Path("trainer_logs").glob("*/config*")] == ["config.yaml"]
    (saved,) = Path("trainer_logs").glob("*/checkpoints/*.ckpt")
    (state,) = torch.load(saved, weights_only=True)["optimizer_states"]
    assert state["param_groups"][0]["lr"] == 0.5
    assert len(state["state"]) == 2  # each parameter has its momentum


@pytest.mark.slow
def test_an_answer_at_once_loads_neither_torch_nor_the_parser(here) -> None:
    """`trainer-hooks --help`, with the commands of a training in it, imports what it did before."""
    code = (
        "import sys\n"
        "from trainer_hooks.cli.main import main\n"
        "main([])\n"
        "assert not {'torch', 'jsonargparse', 'yaml'} & set(sys.modules)\n"
        "from trainer_hooks import TrainerCLI\n"
        "assert not {'jsonargparse', 'yaml'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_jsonargparse_it_says_what_to_install(ask, monkeypatch) -> None:
    """Without the extra `cli` one line names it."""
    monkeypatch.setitem(sys.modules, "jsonargparse", None)
    answer = ask("fit")
    assert answer.code == 2
    assert "pip install 'trainer-hooks[cli]'" in answer.err
