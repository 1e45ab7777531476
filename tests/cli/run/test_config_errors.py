"""What is wrong in a config is told in one line, and nothing is trained or overwritten."""

from __future__ import annotations

import re

import pytest

from trainer_hooks.cli.run.config_errors import class_arguments
from trainer_hooks.errors import MetricError, TrainerHooksAdvice

LINE = """
model: configured.Trained
data: configured.Points
"""
STOPPING = """
callbacks:
- class_path: EarlyStopping
  init_args:
    monitor: val_loss
"""


def in_trainer(text: str) -> str:
    """Text below `trainer`, beside no other option."""
    return LINE + "trainer:\n" + "".join(f"  {line}\n" for line in text.strip().splitlines())


def nested(encoder: str, head: str = "{width: 2}") -> str:
    """A module whose arguments are objects themselves."""
    start = "model:\n  class_path: configured.Nested\n  init_args:\n"
    return f"{start}    encoder: {encoder}\n    head: {head}\n"


CASES = {
    "a misspelt option": (
        in_trainer("max_epoch: 3"),
        (
            "run.yaml, line 5: trainer.max_epoch: there is no 'max_epoch' in trainer. "
            "Did you mean 'max_epochs'? Known: accelerator,"
        ),
    ),
    "a word of another trainer": (
        in_trainer("num_train_epochs: 3"),
        (
            "run.yaml, line 5: trainer.num_train_epochs: there is no 'num_train_epochs' in "
            "trainer. Write max_epochs=... instead. "
        ),
    ),
    "a misspelt group": (
        LINE + "trainr: {max_epochs: 3}",
        "run.yaml, line 4: trainr: there is no 'trainr'. Did you mean 'trainer'? Known: ckpt_path,",
    ),
    "an option without its group": (
        LINE + "max_epochs: 3",
        "run.yaml, line 4: max_epochs: there is no 'max_epochs'. Did you mean 'trainer.max_epochs'",
    ),
    "an argument of the module without its group": (
        LINE + "width: 3",
        "run.yaml, line 4: width: there is no 'width'. An argument of the module is 'model.width'.",
    ),
    "a misspelt argument of the module": (
        "model:\n  class_path: configured.Line\n  init_args: {widht: 3}",
        (
            "run.yaml, line 3: model.widht: configured.Line takes no 'widht'. Did you mean "
            "'width'? Known: lr, outputs, width."
        ),
    ),
    "a misspelt argument of a callback": (
        in_trainer(STOPPING + "    patiense: 3"),
        (
            "run.yaml, line 9: trainer.callbacks.patiense: trainer_hooks.callbacks."
            "EarlyStopping takes no 'patiense'. Did you mean 'patience'?"
        ),
    ),
    "a wrong type of an option": (
        in_trainer("max_epochs: three"),
        "run.yaml, line 5: trainer.max_epochs: 'three' must be int or null.",
    ),
    "a wrong type in a module": (
        "model:\n  class_path: configured.Line\n  init_args:\n    width: wide",
        "run.yaml, line 4: model.width: 'wide' must be int.",
    ),
    "a wrong type in a callback": (
        in_trainer(STOPPING + "    patience: much"),
        "run.yaml, line 9: trainer.callbacks.patience: 'much' must be int.",
    ),
    "a value that breaks an option's rule": (
        in_trainer("max_epochs: -5"),
        "run.yaml, line 5: trainer.max_epochs: Trainer(max_epochs=-5): must be an int of at least",
    ),
    "a seed that is none": (
        LINE + "seed_everything: -2",
        "run.yaml, line 4: seed_everything: seed_everything(-2): must be an integer from 0 to",
    ),
    "a value that breaks a callback's rule": (
        in_trainer(STOPPING + "    patience: -4"),
        "run.yaml, line 6: trainer.callbacks: patience -4 of EarlyStopping: it must be",
    ),
    "a module that is not there": (
        "model: nowhere.Line",
        (
            "run.yaml, line 1: model: nowhere.Line cannot be imported: ModuleNotFoundError: "
            "No module named 'nowhere'."
        ),
    ),
    "a class that is not there": (
        "model: configured.Lime",
        (
            "run.yaml, line 1: model: configured.Lime cannot be imported: module 'configured' has "
            "no attribute 'Lime'. Did you mean 'Line'?"
        ),
    ),
    "a short name that is not there": (
        in_trainer("callbacks:\n- LearningRateMonitor\n- EarlyStoping"),
        (
            "run.yaml, line 7: trainer.callbacks: there is no class 'EarlyStoping'. "
            "Did you mean 'EarlyStopping'? Known: "
        ),
    ),
    "a class that is no callback": (
        in_trainer("callbacks:\n- class_path: configured.Stranger"),
        (
            "run.yaml, line 6: trainer.callbacks: Import path configured.Stranger does not "
            "correspond to a subclass of Callback. Known: "
        ),
    ),
    "a function that is no class": (
        in_trainer("callbacks:\n- class_path: configured.ran"),
        (
            "run.yaml, line 6: trainer.callbacks: Import path configured.ran does not correspond "
            "to a subclass of Callback. Known: "
        ),
    ),
    "a function of Python": (
        "model: os.system",
        "run.yaml, line 1: model: Importing 'os.system' is not allowed, denied by",
    ),
    "a callback that needs an argument": (
        in_trainer("callbacks: [EarlyStopping]"),
        "run.yaml, line 5: trainer.callbacks: trainer_hooks.callbacks.EarlyStopping needs monitor.",
    ),
    "an unknown optimizer": (
        LINE + "optimizer: SGDD",
        "run.yaml, line 4: optimizer: there is no class 'SGDD'. Did you mean 'SGD'?",
    ),
    "a plugin that is not installed": (
        in_trainer("plugins: [acme]"),
        "run.yaml, line 5: trainer.plugins: plugin 'acme' in Trainer(plugins=[...]) is not",
    ),
    "a callback of a package that is not installed": (
        in_trainer("callbacks:\n- acme_monitor.Monitor"),
        (
            "run.yaml, line 6: trainer.callbacks: acme_monitor.Monitor cannot be imported: "
            "ModuleNotFoundError: No module named 'acme_monitor'."
        ),
    ),
    "no module": (
        "data: configured.Points",
        "model: is required and was not given. Give --model, or name it in a config.",
    ),
    "a misspelt argument of a dataclass": (
        nested("configured.Dense", "{widht: 3}"),
        (
            "run.yaml, line 5: model.head.widht: head takes no 'widht'. Did you mean "
            "'width'? Known: width."
        ),
    ),
    "a word that is none of those that may stand": (
        nested("{class_path: configured.Dense, init_args: {activation: tanhh}}"),
        "run.yaml, line 4: model.encoder.activation: 'tanhh' must be one of 'relu', 'tanh'.",
    ),
    "a class that is none of an argument's": (
        nested("configured.Points"),
        "run.yaml, line 4: model.encoder: Import path configured.Points does not correspond",
    ),
    "a wrong type in a union": (
        nested("configured.Dense") + "    rates: [fast]",
        "run.yaml, line 6: model.rates: 'fast' must be list[float] or float or null.",
    ),
    "an argument that is not given": (
        "model: configured.Nested",
        "run.yaml, line 1: model: configured.Nested needs encoder.",
    ),
    "a class where options stand": (
        LINE + "trainer: {class_path: EarlyStopping}",
        "run.yaml, line 4: trainer: it holds options, and no class_path.",
    ),
    "a list where options stand": (
        LINE + "trainer: [max_epochs]",
        "run.yaml, line 4: trainer: ['max_epochs'] is no mapping of options. Write one.",
    ),
    "a word where options stand": (
        LINE + "trainer: fast",
        "run.yaml, line 4: trainer: Unable to load config 'fast'.",
    ),
    "a word where a number or a tensor may stand": (
        LINE + "optimizer:\n  class_path: SGD\n  init_args:\n    lr: fast",
        "run.yaml, line 7: optimizer.lr: 'fast' must be float or Tensor.",
    ),
    "a misspelt key beside class_path": (
        "model: {class_path: configured.Line, ini_args: {width: 3}}",
        (
            "run.yaml, line 1: ini_args: there is no 'ini_args' beside class_path. Did you mean "
            "'init_args'? Known: class_path, init_args, dict_kwargs."
        ),
    ),
    "a value that an optimizer refuses": (
        LINE.replace("Trained", "Line") + "optimizer: {class_path: SGD, init_args: {lr: -1}}",
        "run.yaml, line 4: optimizer: torch.optim.SGD cannot be made: Invalid learning rate: -1.0.",
    ),
    "no optimizer": (
        "model: configured.Line\ndata: configured.Points",
        "optimizer: none is given, and Line has no configure_optimizers. Give one, as --optimizer",
    ),
    "a scheduler without an optimizer": (
        LINE + "lr_scheduler: {class_path: StepLR, init_args: {step_size: 1}}",
        "run.yaml, line 4: lr_scheduler: torch.optim.lr_scheduler.StepLR cannot be made: there is",
    ),
    "a checkpoint that is not there": (
        LINE + "ckpt_path: nowhere.ckpt",
        "run.yaml, line 4: ckpt_path: 'nowhere.ckpt' is not there.",
    ),
    "a bad link": (
        LINE + "links: {model.outputz: data.values}",
        "run.yaml, line 4: links: model.outputz: configured.Trained takes no 'outputz'.",
    ),
    "code in YAML": (
        "model: !!python/object/apply:configured.ran []",
        "run.yaml, line 1: could not determine a constructor for the tag",
    ),
    "a key that stands there twice": (
        LINE + "trainer: {max_epochs: 1}\ntrainer: {max_steps: 1}",
        "run.yaml, line 5: trainer: it stands in line 4 already. Leave one out.",
    ),
    "a key that is no text": (
        LINE + "3: {}",
        "run.yaml, line 4: 3: a key must be a text. Write it in quotes, if it is meant.",
    ),
    "arguments without names": (
        "model: {class_path: configured.Line, init_args: [3]}",
        "run.yaml, line 1: init_args: it must hold arguments by their names. Write some, or none.",
    ),
    "a function that makes one": (
        "model: configured.made",
        "run.yaml, line 1: model: configured.made cannot be made: it is a function. Give a class,",
    ),
    "a module that raises as it is imported": (
        "model: raises.Line",
        "run.yaml, line 1: model: raises.Line cannot be imported: RuntimeError: no disk, in ",
    ),
    "a module that ends the process": ("model: exits.Line", ""),
    "a module that is no Python": (
        in_trainer("callbacks: [broken.Line]"),
        "run.yaml, line 5: trainer.callbacks: broken.Line cannot be imported: SyntaxError: ",
    ),
    "no class path": (
        "model: .configured.Line",
        "run.yaml, line 1: model: .configured.Line cannot be imported: ",
    ),
    "an alias that is not there": ("model: *gone", "run.yaml, line 1: found undefined alias"),
    "a mapping to merge from": (
        LINE + "all: &all {max_epochs: 1}\ntrainer: {<<: *all}",
        "run.yaml, line 4: all: there is no 'all'. An argument of the module is 'model.all'. ",
    ),
    "aliases of aliases": (
        "".join(f"k{i}: &k{i} [{', '.join([f'*k{i - 1}' if i else 'x'] * 9)}]\n" for i in range(9)),
        "run.yaml: it comes to ",
    ),
    "an alias of what it is in": ("model: &me [*me]", "run.yaml: an alias in it stands for what"),
    "an empty file": ("", "run.yaml: it holds no keys. Write some, as model and trainer."),
    "a list": ("- model", "run.yaml: it holds no keys. Write some, as model and trainer."),
    "brackets without end": (
        "a: " + "[" * 3000 + "]" * 3000,
        "run.yaml: it is nested deeper than 100 levels.",
    ),
    "broken YAML": ("model: {a: 1\ntrainer: {}", "run.yaml, line 2: expected ',' or '}'"),
}


@pytest.mark.slow
def test_a_mistake_in_a_file_is_one_line(ask, config, monkeypatch) -> None:
    """The line names file, line, key and value, what was meant, and what may stand there.

    No pattern for messages of the parser has become idle with a new version of it.
    """
    from trainer_hooks.cli.run import config_errors as mistakes

    given, wrong, told = [], {}, mistakes.explain_error

    def note(error, sources, parser):
        given.append(str(error))
        return told(error, sources, parser)

    monkeypatch.setattr(mistakes, "explain_error", note)
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    config('raise RuntimeError("no disk")', "raises.py", quiet="")
    config("raise SystemExit(3)", "exits.py", quiet="")
    config("class Line(:", "broken.py", quiet="")
    for case, (text, wanted) in CASES.items():
        line = ask("fit", "--config", config(text, quiet="")).line
        if not line.removeprefix("trainer-hooks fit: error: ").startswith(wanted):
            wrong[case] = line
    assert wrong == {}
    ask("fit", "--config", config(LINE), "--trainer.max_epoch=3")
    ask("fit", "--config", config(LINE), "--lr_scheduler.factr=3")
    ask("fit", "--config", "nowhere.yaml")
    patterns = {n: value for n, value in vars(mistakes).items() if isinstance(value, re.Pattern)}
    idle = [n for n, pattern in patterns.items() if not any(map(pattern.search, given))]
    assert idle == []


BYTES = {
    "not UTF-8": (b"\xff\xfem\0o\0d\0", "run.yaml: byte 0 is no UTF-8. Save it as text in UTF-8."),
    "no text": (b"model: \0", "run.yaml: unacceptable character #x0000"),
    "another end of line": (b"model: configured.Lime\r\n", "run.yaml, line 1: model: configured.L"),
    "a mark of its order": (b"\xef\xbb\xbfmodel: configured.Lime", "run.yaml, line 1: model: conf"),
}


@pytest.mark.slow
def test_a_file_that_is_hardly_one_is_one_line(ask, here) -> None:
    """What bytes a file holds, or that it is a folder, is told as any other mistake."""
    for content, wanted in BYTES.values():
        (here / "run.yaml").write_bytes(content)
        line = ask("fit", "--config", "run.yaml").line
        assert line.startswith(f"trainer-hooks fit: error: {wanted}"), line
    (here / "folder").mkdir()
    line = ask("fit", "--config", "folder").line
    assert line == "trainer-hooks fit: error: folder: it is a folder. Give a file of YAML or JSON."


@pytest.mark.slow
def test_a_long_file_is_read(ask, here) -> None:
    """A file of some megabytes takes no longer than seconds, and its mistake has its line."""
    rows = "".join(f"# {'x' * 60}\n" for _ in range(50_000))
    (here / "run.yaml").write_text(f"{rows}model: configured.Lime\n")
    assert "run.yaml, line 50001: model: configured.Lime" in ask("fit", "--config", "run.yaml").line


@pytest.mark.slow
def test_no_refused_config_runs_code(ask, config) -> None:
    """What a refused config names is neither called nor made."""
    import configured

    configured.RAN.clear()
    for case in (
        "a class that is no callback", "a function that is no class", "a function that makes one",
        "code in YAML",
    ):  # fmt: skip
        ask("fit", "--config", config(CASES[case][0], quiet=""))
    assert configured.RAN == []


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--trainer.max_epoch", "3"], "on the command line: trainer.max_epoch: there is no"),
        (
            ["--trainer.max_epochs=x"],
            "on the command line: trainer.max_epochs: 'x' must be int or null",
        ),
        (["--config", "nowhere.yaml"], "on the command line: config: File does not exist"),
        (["--help", "Nothing"], "--help Nothing: no argument takes a class of that name."),
        (
            ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.patiense=3"],
            (
                "on the command line: trainer.callbacks.patiense: trainer_hooks.callbacks."
                "EarlyStopping takes no 'patiense'. Did you mean 'patience'?"
            ),
        ),
        (["nowhere.yaml"], "nowhere.yaml: it stands after no option. Write --config nowhere.yaml."),
        (
            ["--ckpt_path", "bset"],
            "ckpt_path: 'bset' is not there. In its folder there is no .ckpt",
        ),
        (["--ckpt_path", "bset"], "Did you mean 'best'? Give a checkpoint, or one of auto, best,"),
        (
            ["--model", "configured.Trainet"],
            "module 'configured' has no attribute 'Trainet'. Did you mean 'Trained'?",
        ),
        (
            ["--optimizer", "adamw"],
            "optimizer: there is no class 'adamw'. Did you mean 'AdamW'?",
        ),
        (["--lr_scheduler", "StepLR"], "lr_scheduler: torch.optim.lr_scheduler.StepLR needs step_"),
        (["--lr_scheduler", "ReduceLROnPlateau"], "ReduceLROnPlateau needs monitor. Give it in"),
        (
            ["--lr_scheduler=ReduceLROnPlateau", "--lr_scheduler.factr=0.5"],
            "ReduceLROnPlateau takes no 'factr'. Did you mean 'factor'? Known: cooldown, eps, fac",
        ),
        (
            [
                "--lr_scheduler=torch.optim.lr_scheduler.ReduceLROnPlateau",
                "--lr_scheduler.monitor=val_loss",
            ],
            "torch.optim.lr_scheduler.ReduceLROnPlateau takes no 'monitor'. Known: cooldown, eps,",
        ),
        (
            ["--lr_scheduler.factr=0.5"],
            "line: lr_scheduler.factr: torch.optim.lr_scheduler.LRScheduler takes no 'factr'",
        ),
        (
            ["--trainer.callbacks=EarlyStopping", "--trainer.callbacks.EarlyStopping.patience=7"],
            (
                "on the command line: trainer.callbacks.EarlyStopping.patience: "
                "trainer_hooks.callbacks.EarlyStopping takes no 'EarlyStopping.patience'. Did you "
                "mean 'patience'? Known: "
            ),
        ),
        (
            ["--trainer.callbacks=Nope"],
            "line: trainer.callbacks: there is no class 'Nope'",
        ),
    ],
)
def test_a_mistake_on_the_line_is_one_line(ask, config, words: list[str], wanted: str) -> None:
    """The same for the words of the command line, which it says."""
    assert wanted in ask("fit", "--config", config(LINE), *words).line


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("FIT__TRAINER__MAX_EPOCHS", "many", "trainer.max_epochs: 'many' must be int or null."),
        ("FIT__MODEL", "configured.Lime", "model: configured.Lime cannot be imported: module 'con"),
        ("FIT__CONFIG", "nowhere.yaml", "config: File does not exist: "),
        ("FIT__LINKS", "nonsense", "links: 'nonsense' is no mapping. Write targets and sources"),
        ("FIT__LINKS", "{model.a: data.b}", "links: model.a: configured.Trained takes no 'a'."),
        (
            "FIT__TRAINER__MAX_EPOCH",
            "3",
            "there is no argument trainer.max_epoch. Did you mean 'trainer.max_epochs'?",
        ),
    ],
)
def test_a_mistake_in_the_environment_is_one_line(
    ask, config, monkeypatch, name: str, value: str, wanted: str
) -> None:
    """It names the variable, also where a file gives the argument another value."""
    monkeypatch.setenv(f"TRAINER_HOOKS_{name}", value)
    line = ask("fit", "--config", config(f"{LINE}links: {{model.outputs: data.values}}")).line
    start = f"trainer-hooks fit: error: TRAINER_HOOKS_{name} of the environment: "
    assert line.startswith(f"{start}{wanted}"), line


def test_what_a_constructor_raises_keeps_its_traceback(ask, config) -> None:
    """It may be the code's own fault; a note says which object it is, and where it is written."""
    file = config("model: {class_path: configured.Line, init_args: {width: -3}}")
    with pytest.raises(RuntimeError, match="negative dimension -3") as caught:
        ask("fit", "--config", file)
    assert caught.value.__notes__ == ["raised in making model, run.yaml, line 9"]
    assert caught.value.__traceback__ is not None


@pytest.mark.slow
@pytest.mark.filterwarnings("always::trainer_hooks.errors.TrainerHooksAdvice")
def test_a_monitor_that_nothing_logs_is_told_with_its_place(ask, config) -> None:
    """The sanity check advises of one that is all but a name; the error names file and line."""
    stopping = STOPPING.replace("val_loss", "vall_loss").strip().replace("\n", "\n  ")
    with (
        pytest.warns(TrainerHooksAdvice, match="sanity check logged 'val_loss' and no such metric"),
        pytest.raises(MetricError, match="monitor 'vall_loss' of EarlyStopping") as caught,
    ):
        ask("fit", "--config", config(f"  {stopping}\n{LINE}"))
    assert caught.value.__notes__[-1] == "run.yaml, line 12: trainer.callbacks.monitor"


def test_the_arguments_of_a_class_below_one_of_python() -> None:
    """`Counter` passes its keywords on to `dict`, which has no signature."""
    assert class_arguments("collections.Counter") == ["iterable"]


def test_a_seed_that_is_none_is_one_line(ask, config, monkeypatch) -> None:
    """So is a seed of the environment that is no number."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "fuzzy")
    assert "PL_GLOBAL_SEED='fuzzy' in the environment" in ask("fit", "--config", config(LINE)).line


@pytest.mark.slow
def test_nothing_is_overwritten(ask, config) -> None:
    """A config that is refused leaves an earlier run's folder as it was."""
    from pathlib import Path

    ask("fit", "--config", config(LINE))
    before = {path: path.stat().st_mtime_ns for path in Path("trainer_logs").rglob("*")}
    assert ask("fit", "--config", "run.yaml", "--trainer.max_epochs=x").code == 2
    assert {path: path.stat().st_mtime_ns for path in Path("trainer_logs").rglob("*")} == before


def test_a_config_with_a_letter_wrong_is_told(ask, config) -> None:
    """A file beside it that was probably meant is named."""
    name = config("{}")
    assert f"Did you mean {name!r}?" in ask("fit", "--config", f"{name}x").err
