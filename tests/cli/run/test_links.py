"""Links in a config: what takes what, and that each that is none is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from samples import one_in

from trainer_hooks import TrainerCLI
from trainer_hooks.errors import UsageError

LINE = """
model: configured.Trained
data: configured.Points
"""
STOPPING = """
trainer.callbacks:
- class_path: EarlyStopping
  init_args: {monitor: val_loss, patience: 9}
- LearningRateMonitor
"""


@pytest.fixture
def made(config):
    """Make the objects of a config with a line of links; nothing runs."""

    def made(link: str, text: str = LINE) -> TrainerCLI:
        return TrainerCLI(run=False, args=["--config", config(f"{text}\nlinks: {{{link}}}\n")])

    return made


@pytest.mark.slow
def test_a_callback_takes_what_was_made(made) -> None:
    """An argument of a callback, named by its class, takes an attribute of the data module."""
    cli = made("trainer.callbacks.EarlyStopping.patience: data.values", LINE + STOPPING)
    assert cli.trainer.early_stopping_callback.patience == 3


@pytest.mark.slow
def test_a_callback_takes_an_argument_by_its_place(made) -> None:
    """Its place in the list does for its name, and an argument for an attribute."""
    cli = made("trainer.callbacks.0.patience: data.init_args.size", LINE + STOPPING)
    assert cli.trainer.early_stopping_callback.patience == 4


def test_a_logger_takes_what_was_made(made) -> None:
    """So does an argument of a logger that stands alone."""
    logger = "trainer.logger: {class_path: CSVLogger, init_args: {save_dir: logs}}\n"
    cli = made("trainer.logger.CSVLogger.version: data.values", LINE + logger)
    assert cli.trainer.logger.version == 3


def test_an_option_of_the_trainer_takes_what_was_made(made) -> None:
    """So does an option itself, also from the module."""
    links = "trainer.max_steps: model.layer.in_features, trainer.max_epochs: data.values"
    cli = made(f"{links}, model.outputs: data.values")
    assert cli.model.layer.out_features == 3
    assert (cli.trainer.max_steps, cli.trainer.max_epochs) == (4, 3)


@pytest.mark.slow
def test_an_optimizer_and_a_scheduler_take_what_was_made(ask, config) -> None:
    """An argument that is required may come by a link alone."""
    file = config(
        """
        model: configured.Line
        data: configured.Points
        optimizer: {class_path: SGD}
        lr_scheduler: {class_path: StepLR, init_args: {gamma: 0.5}}
        links: {optimizer.lr: model.hparams.lr, lr_scheduler.step_size: data.values}
        trainer.callbacks: [LearningRateMonitor]
        """
    )
    assert ask("fit", "--config", file, "--trainer.max_epochs=4").code == 0
    rates = Path("trainer_logs/version_0/metrics.csv").read_text()
    assert "0.1" in rates
    assert "0.05" in rates
    assert "0.025" not in rates


@pytest.mark.slow
def test_the_written_config_makes_the_same_again(ask, config) -> None:
    """The file of a run has the links, and the values as they were given."""
    links = "links: {trainer.callbacks.EarlyStopping.patience: data.values}"
    ask("fit", "--config", config(LINE + STOPPING + links))
    written = Path("trainer_logs/version_0/config.yaml")
    told = yaml.safe_load(written.read_text())
    assert told["links"] == {"trainer.callbacks.EarlyStopping.patience": "data.values"}
    assert told["trainer"]["callbacks"][0]["init_args"]["patience"] == 9
    cli = TrainerCLI(args=["fit", "--config", str(written)])
    assert cli.trainer.early_stopping_callback.patience == 3


def test_links_of_a_script_with_its_own_classes(config) -> None:
    """Where the classes are fixed a source may be an argument by its plain name."""
    import configured

    file = config("links: {model.outputs: data.values, model.width: data.size}")
    given = ["--config", file, "--data.size=8"]
    cli = TrainerCLI(configured.Trained, configured.Points, run=False, args=given)
    assert (cli.model.hparams.outputs, cli.model.hparams.width) == (3, 8)
    with pytest.raises(UsageError, match="there is no 'outputz' in model"):
        TrainerCLI(
            configured.Trained, configured.Points, run=False,
            args=["--config", config("links: {model.outputz: data.values}")],
            parser_kwargs={"exit_on_error": False},
        )  # fmt: skip


def test_links_may_stand_in_a_dict(classes) -> None:
    """A dict in the place of the line may hold them."""
    given = {
        "model": {"class_path": "configured.Trained"},
        "data": {"class_path": "configured.Points"},
        "links": {"model.outputs": "data.values"},
    }
    assert TrainerCLI(run=False, args=given).model.hparams.outputs == 3


WRONG = {
    "model.outputz: data.values": (
        "model.outputz: configured.Trained takes no 'outputz'. Did you mean 'outputs'?"
    ),
    "model.outputs: data.value": (
        "model.outputs: data.value: Points has no attribute 'value'. Did you mean 'values'? Set"
    ),
    "model.outputs: data.values.first": "model.outputs: data.values.first: int has no attribute",
    "model.outputs: dat.values": "model.outputs: dat.values: there is no 'dat'. Did you mean 'data",
    "modl.outputs: data.values": "modl.outputs: there is no 'modl'. Did you mean 'model'?",
    "model.outputs: data.init_args.sise": (
        "model.outputs: data.init_args.sise: there is no such argument."
    ),
    "model: data.values": "model: it is no argument of an object. Write one, as model.num_classes.",
    "seed_everything: data.values": "seed_everything: it is no argument of an object.",
    "model.outputs: [1, 2]": "model.outputs: [1, 2] is no key. Write a target and a source,",
    "model.outputs: trainer.logger": (
        "model.outputs: trainer.logger is None, which is no value for 'outputs' of Trained."
    ),
    "model.outputs: data.val_dataloader": "model.outputs: data.val_dataloader is <bound method",
    "model.outputs: trainer.progress": "model.outputs: trainer.progress: the Trainer is made last.",
    "model.width: data.values, data.size: model.layer": "data.size: model.layer: Invalid link",
    "lr_scheduler.step_size: data.values": "lr_scheduler.step_size: no lr_scheduler is given.",
    "trainer.max_epoch: data.values": (
        "trainer.max_epoch: there is no 'max_epoch' in trainer. Did you mean 'max_epochs'?"
    ),
    "trainer.callbacks.EarlyStoping.patience: data.values": (
        "trainer.callbacks.EarlyStoping.patience: callbacks has no 'EarlyStoping'. Did you mean "
        "'EarlyStopping'? Known: EarlyStopping, LearningRateMonitor, LearningRateMonitor."
    ),
    "trainer.callbacks.3.patience: data.values": (
        "trainer.callbacks.3.patience: callbacks has no '3'."
    ),
    "trainer.callbacks.LearningRateMonitor.log_momentum: data.values": (
        "trainer.callbacks.LearningRateMonitor.log_momentum: callbacks has 2 of "
        "LearningRateMonitor. Name one by its place, from 0: trainer.callbacks.1."
    ),
    "trainer.callbacks.EarlyStopping.patiense: data.values": (
        "trainer.callbacks.EarlyStopping.patiense: trainer_hooks.callbacks."
        "early_stopping.EarlyStopping takes no 'patiense'. Did you mean 'patience'?"
    ),
    "trainer.callbacks.EarlyStopping.monitor: data.values": (
        "trainer.callbacks.EarlyStopping.monitor: data.values is 3, which is no value for "
        "'monitor' of EarlyStopping."
    ),
    "trainer.callbacks.patience: data.values": (
        "trainer.callbacks.patience: write an option of the Trainer, as trainer.max_steps, or an"
    ),
    "trainer.logger.CSVLogger.name: data.values": (
        "trainer.logger.CSVLogger.name: logger has no 'CSVLogger'. Known: none is given."
    ),
}


@pytest.mark.parametrize("link", one_in(3, WRONG, otherwise="slow"))
def test_a_link_that_is_none_is_one_line(ask, config, link: str) -> None:
    """The line names file, line and link, and what is wrong with it; nothing is trained."""
    text = f"{LINE}{STOPPING}- LearningRateMonitor\nlinks:\n  " + link.replace(", d", "\n  d")
    line = ask("fit", "--config", config(text)).line
    last = text.count("\n") + 9
    wanted = f"trainer-hooks fit: error: run.yaml, line {last}: links: {WRONG[link]}"
    assert line.startswith(wanted), line


NEEDING = """
trainer.callbacks:
- class_path: configured.Breaks
- LearningRateMonitor
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--links", "{model.outputs: data.values, model.width: data.init_args.size}"],
        ["--links={model.outputs: data.values}", "--links.model.width=data.init_args.size"],
        ["--links.model.outputs", "data.values", "--links.model.width", "data.init_args.size"],
        ["--config", "more.yaml", "--links.model.width", "data.init_args.size"],
    ],
    ids=str,
)
def test_links_stand_on_the_line(config, words: list[str]) -> None:
    """Links of the line and of several files come to one another; a later one replaces an equal."""
    config("links: {model.outputs: data.values}", "more.yaml", quiet="")
    file = config(f"{LINE}links: {{model.width: data.values, model.lr: data.init_args.size}}")
    cli = TrainerCLI(run=False, args=["--config", file, *words])
    assert (cli.model.hparams.outputs, cli.model.hparams.width, cli.model.hparams.lr) == (3, 4, 4)
    assert list(cli.config.links) == ["model.width", "model.lr", "model.outputs"]


@pytest.mark.slow
def test_links_of_the_line_are_written_down(ask, config) -> None:
    """What is printed, and what a run writes, has all links, and makes the same again."""
    file = config(f"{LINE}links: {{model.outputs: data.values}}")
    words = ["fit", "--config", file, "--links.trainer.max_steps", "data.values"]
    wanted = {"model.outputs": "data.values", "trainer.max_steps": "data.values"}
    assert yaml.safe_load(ask(*words, "--print_config").out)["links"] == wanted
    assert ask(*words).code == 0
    written = Path("trainer_logs/version_0/config.yaml")
    assert yaml.safe_load(written.read_text())["links"] == wanted
    assert TrainerCLI(args=["fit", "--config", str(written)]).trainer.global_step == 3


def test_the_environment_may_hold_links(ask, config, monkeypatch) -> None:
    """So may a variable, below the files, and one that names a config file."""
    monkeypatch.setenv("TRAINER_HOOKS_FIT__LINKS", "{model.outputs: data.values, model.lr: data.x}")
    monkeypatch.setenv("TRAINER_HOOKS_FIT__CONFIG", config(f"{LINE}links: {{model.lr: data.y}}"))
    told = yaml.safe_load(ask("fit", "--print_config").out)
    assert told["links"] == {"model.outputs": "data.values", "model.lr": "data.y"}


@pytest.mark.slow
def test_a_link_gives_what_is_required(ask, config) -> None:
    """A required argument of a callback may come by a link alone, also in the written config."""
    file = config(f"{LINE}{NEEDING}links: {{trainer.callbacks.Breaks.at: data.values}}")
    with pytest.raises(RuntimeError, match="cut"):
        ask("fit", "--config", file)
    written = "trainer_logs/version_0/config.yaml"
    assert yaml.safe_load(Path(written).read_text())["trainer"]["callbacks"][0]["init_args"] == {
        "at": None
    }
    with pytest.raises(RuntimeError, match="cut"):
        ask("fit", "--config", written)
    assert Path("trainer_logs/version_1/metrics.csv").read_text().splitlines()[-1].startswith("2,")


@pytest.mark.slow
def test_a_link_gives_it_to_none_but_its_target(ask, config) -> None:
    """Another callback of that class, to which nothing is linked, still needs the argument."""
    text = f"{LINE}{NEEDING}- configured.Breaks\nlinks: {{trainer.callbacks.0.at: data.values}}"
    assert ask("fit", "--config", config(text)).line == (
        "trainer-hooks fit: error: run.yaml, line 14: trainer.callbacks: configured.Breaks needs "
        "at. Give it in init_args, or link to trainer.callbacks.2.at."
    )


@pytest.mark.slow
@pytest.mark.parametrize("link", one_in(3, [link for link in WRONG if ", d" not in link]))
def test_a_link_of_the_line_that_is_none_is_one_line(ask, config, link: str) -> None:
    """It says that it stands on the command line."""
    text = f"{LINE}{STOPPING}- LearningRateMonitor\n"
    line = ask("fit", "--config", config(text), f"--links={{{link}}}").line
    wanted = f"trainer-hooks fit: error: on the command line: links: {WRONG[link]}"
    assert line.startswith(wanted), line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--links", "data.values"], "links: 'data.values' is no mapping. Write targets and sour"),
        (["--links={a: b"], "links: '{a: b' is no mapping."),
        (["--links.model.outputs"], "links: model.outputs: '' is no key. Write a target and a"),
        (["--links"], "links: None is no mapping."),
        (["--links.=data.values"], "links: : 'data.values' is no key. Write a target and a"),
    ],
    ids=str,
)
def test_what_is_no_link_on_the_line(ask, config, words: list[str], wanted: str) -> None:
    """Words that hold no link at all are told of as well."""
    line = ask("fit", "--config", config(LINE), *words).line
    assert line.startswith(f"trainer-hooks fit: error: on the command line: {wanted}"), line
