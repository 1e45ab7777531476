"""TrainerCLI in one's own script: classes, hooks, defaults, and what it leaves behind."""

from __future__ import annotations

import copy
import pickle
import sys

import pytest
import torch
import warm_python
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Trainer, TrainerCLI
from trainer_hooks.cli.run.config_origins import ConfigOrigins
from trainer_hooks.cli.run.save_config import SaveConfigCallback
from trainer_hooks.errors import UsageError

OFF = {**QUIET_OPTIONS, "max_epochs": 1}


@pytest.fixture
def own(here):
    """The module of the classes."""
    import configured

    return configured


def test_own_classes_take_their_arguments_directly(own) -> None:
    """With classes given, their arguments stand below `model` and `data`, by type."""
    cli = TrainerCLI(
        own.Trained, own.Points, trainer_defaults=OFF,
        args=["fit", "--model.lr=0.5", "--data.size", "8", "--seed_everything=4"],
    )  # fmt: skip
    assert cli.model.hparams.lr == 0.5
    assert cli.datamodule.size == 8
    assert cli.trainer.current_epoch == 1
    assert torch.initial_seed() == 4


def test_a_dict_may_take_the_place_of_the_line(own) -> None:
    """`args` may be a dict, as a notebook or a sweep has it."""
    cli = TrainerCLI(
        own.Trained, own.Points, trainer_defaults=OFF, run=False, args={"model": {"lr": 0.25}}
    )
    assert cli.model.hparams.lr == 0.25
    assert cli.subcommand is None


def test_a_dict_may_name_the_command(own) -> None:
    """With a command in the dict, that is carried out."""
    cli = TrainerCLI(
        own.Trained, own.Points, trainer_defaults=OFF, args={"fit": {"model": {"lr": 0.25}}}
    )
    assert cli.model.hparams.lr == 0.25
    assert cli.trainer.current_epoch == 1


def test_without_run_the_objects_are_made_alone(own) -> None:
    """`run=False` makes module, data and Trainer, and trains nothing."""
    cli = TrainerCLI(own.Trained, own.Points, trainer_defaults=OFF, run=False, args=[])
    assert cli.trainer.current_epoch == 0
    assert isinstance(cli.trainer, Trainer)


def test_a_subclass_acts_before_and_after_and_links(own) -> None:
    """The hooks of a subclass are called in order, and its arguments and links count."""
    calls = []

    class Own(TrainerCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_argument("--factor", type=int, default=2)
            parser.link_arguments(
                ("factor", "data.size"), "model.outputs", compute_fn=lambda a, b: a * b
            )

        def before_instantiate_classes(self):
            calls.append("before_instantiate")

        def after_instantiate_classes(self):
            calls.append("after_instantiate")

        def before_fit(self):
            calls.append("before_fit")

        def after_fit(self):
            calls.append(f"after_fit {self.model.layer.out_features}")

    Own(own.Trained, own.Points, trainer_defaults=OFF, args=["fit", "--factor", "3"])
    assert calls == ["before_instantiate", "after_instantiate", "before_fit", "after_fit 12"]


def test_the_defaults_of_the_trainer_and_its_callbacks(own) -> None:
    """`trainer_defaults` are defaults that a line may change; its callbacks take part."""

    class Counts(Callback):
        seen = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.seen += 1

    counts = Counts()
    TrainerCLI(
        own.Trained, own.Points, trainer_defaults={**OFF, "callbacks": [counts]},
        args=["fit", "--trainer.max_epochs", "2"],
    )  # fmt: skip
    assert counts.seen == 8


def test_subclass_mode_takes_any_subclass(own) -> None:
    """With `subclass_mode_model` a class path below the given class may be given."""
    cli = TrainerCLI(
        own.Line, own.Points, trainer_defaults=OFF, subclass_mode_model=True, run=False,
        args=["--model", "configured.Trained", "--model.lr", "0.3"],
    )  # fmt: skip
    assert type(cli.model) is own.Trained


def test_a_callback_may_be_an_argument_of_its_own(own) -> None:
    """A callback's class among the arguments becomes one of the Trainer's callbacks."""
    from trainer_hooks.callbacks import EarlyStopping

    class Own(TrainerCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_class_args(EarlyStopping, "stopping")
            parser.set_defaults({"stopping.monitor": "val_loss", "stopping.patience": 9})

    cli = Own(own.Trained, own.Points, trainer_defaults=OFF, run=False, args=[])
    assert cli.trainer.early_stopping_callback.patience == 9


def test_a_trainer_of_ones_own_takes_more(own) -> None:
    """A subclass of the Trainer may take arguments beside the options."""

    class Mine(Trainer):
        def __init__(self, shout: bool = False, **options) -> None:
            super().__init__(**options)
            self.shout = shout

    cli = TrainerCLI(
        own.Trained, own.Points, trainer_class=Mine, trainer_defaults=OFF, run=False,
        args=["--trainer.shout=true"],
    )  # fmt: skip
    assert cli.trainer.shout is True


def test_an_optimizer_may_be_an_argument_of_the_module(own) -> None:
    """`link_to` gives an optimizer's class path and arguments to the module."""

    class Given(own.Line):
        def __init__(self, optimizer: dict, width: int = 4) -> None:
            super().__init__(width)
            self.given = optimizer

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), **self.given["init_args"])

    class Own(TrainerCLI):
        def add_arguments_to_parser(self, parser):
            parser.add_optimizer_args(torch.optim.SGD, "sgd", link_to="model.optimizer")

    cli = Own(
        Given, own.Points, trainer_defaults=OFF, args=["fit", "--sgd.lr=0.7"],
        auto_configure_optimizers=False,
    )  # fmt: skip
    assert cli.trainer.optimizers[0].param_groups[0]["lr"] == 0.7


@pytest.mark.slow
def test_the_configs_optimizer_goes_before_the_modules(own) -> None:
    """An optimizer in the config takes the place of the module's, with a warning."""
    with pytest.warns(UserWarning, match="takes the place of Trained.configure_optimizers"):
        cli = TrainerCLI(
            own.Trained, own.Points, trainer_defaults=OFF,
            args=["fit", "--optimizer=Adam", "--optimizer.lr=0.01"],
        )  # fmt: skip
    assert isinstance(cli.trainer.optimizers[0], torch.optim.Adam)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["copy", "pickle"],
)
def test_a_copy_of_the_module_has_the_configs_optimizer(own, copied) -> None:
    """A pickle too, as processes that are spawned get it: the module's own would be silent."""
    with pytest.warns(UserWarning, match="takes the place of Trained.configure_optimizers"):
        cli = TrainerCLI(
            own.Trained, own.Points, trainer_defaults=OFF, run=False,
            args=["--optimizer=RMSprop", "--lr_scheduler=StepLR", "--lr_scheduler.step_size=3"],
        )  # fmt: skip
    model = copied(cli.model)
    (optimizer,), (scheduler,) = model.configure_optimizers()
    assert isinstance(optimizer, torch.optim.RMSprop)
    assert scheduler.step_size == 3
    assert optimizer.param_groups[0]["params"] == [*model.parameters()]
    assert next(model.parameters()) is not next(cli.model.parameters())


def test_a_mistake_is_an_error_where_it_is_asked_for(own) -> None:
    """With `exit_on_error=False` the line is that of a UsageError."""
    with pytest.raises(UsageError, match=r"trainer\.max_epoch: there is no 'max_epoch' in trainer"):
        TrainerCLI(
            own.Trained, own.Points, args=["fit", "--trainer.max_epoch=3"],
            parser_kwargs={"exit_on_error": False},
        )  # fmt: skip


def test_what_writes_the_config_may_be_ones_own(own, tmp_path) -> None:
    """`save_config` of a subclass of SaveConfigCallback has parser and config at hand."""
    seen = []

    class Own(SaveConfigCallback):
        def save_config(self, trainer, module, stage):
            seen.append((stage, self.config.trainer.max_epochs))

    TrainerCLI(
        own.Trained, own.Points, trainer_defaults=OFF, save_config_callback=Own,
        save_config_kwargs={"save_to_log_dir": False}, args=["fit"],
    )  # fmt: skip
    assert seen == [("fit", 1)]


@pytest.mark.slow
def test_without_jsonargparse_it_says_what_to_install():
    """A script's TrainerCLI names the extra where its parser is not installed."""
    program = (
        "import sys; sys.modules['jsonargparse'] = None\n"
        "from trainer_hooks.compat.lightning.cli import LightningCLI\n"
        "LightningCLI(args=['fit'])"
    )
    command = [sys.executable, "-c", program]
    done = warm_python.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "UsageError: LightningCLI: jsonargparse is not installed: pip install" in done.stderr


def test_a_subclass_that_refuses_its_arguments_is_one_line(own, monkeypatch, capsys) -> None:
    """An error of `add_arguments_to_parser`, before there is a parser, is one line."""

    class Refuses(TrainerCLI):
        def add_arguments_to_parser(self, parser) -> None:
            raise UsageError("this script takes no arguments of its own")

    monkeypatch.setattr("sys.argv", ["/somewhere/train.py", "fit"])
    with pytest.raises(SystemExit) as left:
        Refuses(own.Trained)
    assert left.value.code == 2
    assert capsys.readouterr().err == (
        "train.py fit: error: this script takes no arguments of its own\n"
    )


def test_a_config_may_hold_everything_under_the_command(own, here) -> None:
    """Without a command on the line, the only one that the files name is carried out."""
    (here / "all.yaml").write_text("fit:\n  model:\n    lr: 0.125\n")
    cli = TrainerCLI(own.Trained, own.Points, trainer_defaults=OFF, args=["--config", "all.yaml"])
    assert (cli.subcommand, cli.model.hparams.lr) == ("fit", 0.125)
    assert cli.trainer.current_epoch == 1
    (here / "more.yaml").write_text("test:\n  model:\n    lr: 0.5\n")
    words = ("--config", "all.yaml", "--config", "more.yaml")
    assert ConfigOrigins.of(words, None).only_command() is None
