"""The Trainer's options: each one's rule, its documentation, and the plan they make."""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from for_each import for_each

from trainer_hooks import DDPStrategy, Time, Trainer, TrainerHooksError, every
from trainer_hooks.errors import OptionError
from trainer_hooks.trainer.options.config import TrainerConfig, option_docs

ROOT = Path(__file__).parents[3]

DEFAULTS = {
    "accelerator": "auto",
    "devices": "auto",
    "num_nodes": 1,
    "strategy": "auto",
    "sync_batchnorm": False,
    "use_distributed_sampler": True,
    "precision": None,
    "logger": None,
    "callbacks": None,
    "plugins": True,
    "plugin_errors": "warn",
    "strict_hooks": False,
    "callback_errors": None,
    "profile_hooks": False,
    "profiler": None,
    "hook_budget": None,
    "max_epochs": None,
    "min_epochs": None,
    "max_steps": -1,
    "min_steps": None,
    "max_time": None,
    "max_duration": None,
    "limit_train_batches": None,
    "limit_val_batches": None,
    "limit_test_batches": None,
    "limit_predict_batches": None,
    "fast_dev_run": False,
    "overfit_batches": 0.0,
    "val_check_interval": None,
    "check_val_every_n_epoch": 1,
    "num_sanity_val_steps": None,
    "log_every_n_steps": None,
    "accumulate_grad_batches": 1,
    "microbatch_size": None,
    "gradient_clip_val": None,
    "gradient_clip_algorithm": None,
    "iteration_length": None,
    "reload_dataloaders_every_n_epochs": 0,
    "enable_checkpointing": None,
    "enable_progress_bar": None,
    "enable_model_summary": None,
    "enable_run_manifest": None,
    "enable_autolog_hparams": True,
    "barebones": False,
    "default_root_dir": None,
    "deterministic": None,
    "benchmark": None,
    "inference_mode": True,
    "detect_anomaly": False,
    "model_registry": None,
}

INT_0 = "an int of at least 0"
INT_1 = "an int of at least 1"
INT_MINUS_1 = "an int of at least -1"
SHARE = "a float from 0.0 to 1.0"
SWITCH = "True, False or None"

BAD = [
    *[("accelerator", value, "must be one of auto, cpu") for value in ("tpu", None, ["cpu"])],
    *[
        ("devices", value, "must be 'auto', a number of devices above 0")
        for value in (0, True, [], [-1], [True], "two", "", None, 1.5, {0})
    ],
    *[("num_nodes", value, "must be an int of at least 1") for value in (0, None, "2", True)],
    *[("strategy", value, "must be one of auto, ddp") for value in ("deepspeed", None, 1)],
    *[("sync_batchnorm", value, "True or False") for value in (None, 1)],
    *[("use_distributed_sampler", value, "True or False") for value in (None, 1)],
    *[("precision", value, "must be one of") for value in ("half", 8, True, 32.0, ["32"])],
    ("precision", "transformer-engine", "not available"),
    *[("logger", value, "must be True, False, a trainer_hooks Logger") for value in ("cvs", 3)],
    *[("plugins", value, "must be True, False, None, names") for value in ("mine", 3, [1])],
    ("strict_hooks", "yes", "True or False"),
    *[
        ("profiler", value, "'simple', 'advanced', 'pytorch', a profiler")
        for value in ("xla", 3, int)
    ],
    *[("reload_dataloaders_every_n_epochs", v, INT_0) for v in (-1, None, 1.5, "2", True)],
    *[("enable_autolog_hparams", value, "True or False") for value in (None, 1)],
    *[("barebones", value, "True or False") for value in (None, "yes")],
    *[("benchmark", value, SWITCH) for value in (1, "yes")],
    *[("model_registry", value, "None, as Lightning's model registry") for value in ("a/b", 3)],
    ("callback_errors", "disable", "a dict of 'raise' or 'disable' by state_key or class name"),
    ("callback_errors", {"Journal": "ignore"}, "a dict of 'raise' or 'disable'"),
    ("callback_errors", {3: "raise"}, "a dict of 'raise' or 'disable'"),
    *[("plugin_errors", value, "'warn' or 'raise'") for value in ("ignore", None, True)],
    *[("profile_hooks", value, "True or False") for value in (None, 1, "yes")],
    *[
        ("hook_budget", value, "a share over 0% and under 100%, as '2%' or 0.02, or None")
        for value in ("2", 2, "0%", "100%", 0.0, 1.0, -0.1, "lots", True, float("nan"), [0.1])
    ],
    *[("max_epochs", value, INT_MINUS_1) for value in (-2, "3", 1.0, True)],
    *[("min_epochs", value, INT_0) for value in (-1, "3", 1.0, False)],
    *[("max_steps", value, INT_MINUS_1) for value in (-2, None, 10.0, True)],
    *[("min_steps", value, INT_0) for value in (-1, 10.0, True)],
    *[("max_time", value, "max_time") for value in ("1 moon", 5, {"parsecs": 12}, "5", "3ep")],
    *[
        ("val_check_interval", value, "units are iter")
        for value in ("5", "", "-3ba", "0ba", "0ep", "2dur", timedelta(0))
    ],
    ("val_check_interval", {"parsecs": 1}, "keyword arguments of one as a dict"),
    *[
        ("max_duration", value, "units are iter")
        for value in ("5", "", 5, True, "-3ep", "0ep", "1.5ba", "1e400tok", "10 parsecs", "2dur")
    ],
    ("max_duration", "90", "it has no unit. Write a number and a unit"),
    ("max_duration", "90", "st (optimizer steps), sp (samples), tok (tokens), s, m, h and d (wall"),
    ("max_duration", "2iter", "there are no iterations without a length"),
    ("max_duration", "0.5dur", "the unit 'dur' makes no sense here"),
    *[
        (f"limit_{stage}_batches", value, SHARE)
        for stage in ("train", "val", "test", "predict")
        for value in (-1, 1.5, -0.1, "10", True, float("nan"))
    ],
    *[("fast_dev_run", value, "a bool or an int of at least 0") for value in (-1, 1.0, None)],
    *[("overfit_batches", value, SHARE) for value in (-1, 1.5, None, True)],
    *[
        ("val_check_interval", value, "a float over 0.0 and up to 1.0")
        for value in (0, 0.0, -1, 1.5, True)
    ],
    *[("check_val_every_n_epoch", value, INT_1) for value in (0, 1.0, True)],
    *[("num_sanity_val_steps", value, INT_MINUS_1) for value in (-2, 1.0, True)],
    *[("log_every_n_steps", value, INT_0) for value in (-1, 1.0, True)],
    *[("accumulate_grad_batches", value, INT_1) for value in (0, 2.0, {0: 2})],
    *[
        ("microbatch_size", value, "an int of at least 1, 'auto', or None")
        for value in (0, -1, 2.0, "half", True)
    ],
    *[
        ("gradient_clip_val", value, "a number from 0 on")
        for value in (-1.0, "1", True, float("nan"))
    ],
    *[("gradient_clip_algorithm", value, "'norm' or 'value'") for value in ("l2", 2, [])],
    *[("iteration_length", value, INT_1) for value in (0, 1.0)],
    *[
        (f"enable_{what}", value, SWITCH)
        for what in ("checkpointing", "progress_bar", "model_summary", "run_manifest")
        for value in (1, "yes")
    ],
    *[("default_root_dir", value, "a path") for value in (1, b"dir", [])],
    *[("deterministic", value, "True, False, 'warn' or None") for value in ("yes", 1, [])],
    *[("inference_mode", value, "True or False") for value in (None, 1)],
    *[("detect_anomaly", value, "True, False or None") for value in (1, "yes")],
]


@for_each(BAD)
def test_a_bad_value_is_refused_with_its_rule(option: str, value: object, rule: str) -> None:
    """A value outside its option's rule is an OptionError naming option, value and rule."""
    with pytest.raises(OptionError) as caught:
        Trainer(**{option: value})
    message = str(caught.value)
    assert message.startswith(f"Trainer({option}=")
    assert repr(value) in message
    assert rule in message


def test_every_option_but_callbacks_has_a_bad_value_above() -> None:
    """No option goes unchecked: callbacks have their own errors, in the connector."""
    assert {option for option, _, _ in BAD} == set(DEFAULTS) - {"callbacks"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_epochs": 2, "min_epochs": 3}, ["min_epochs=3", "max_epochs=2"]),
        ({"max_epochs": 0, "min_epochs": 3}, ["min_epochs=3", "max_epochs=0"]),
        ({"min_epochs": 1001}, ["min_epochs=1001", "max_epochs=1000"]),
        ({"max_steps": 5, "min_steps": 6}, ["min_steps=6", "max_steps=5"]),
        (
            {"val_check_interval": "2ep", "check_val_every_n_epoch": 2},
            ["val_check_interval='2ep'", "check_val_every_n_epoch=2", "every('2ep') & ..."],
        ),
        (
            {"val_check_interval": 0.5, "check_val_every_n_epoch": None},
            ["val_check_interval=0.5", "check_val_every_n_epoch=None", "int"],
        ),
    ],
)
def test_options_that_contradict_each_other(options: dict, words: list[str]) -> None:
    """Two options that cannot both hold are an OptionError that names both with their values."""
    with pytest.raises(OptionError) as caught:
        Trainer(**options)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("max_epoch", "max_epochs"),
        ("Max_epochs", "max_epochs"),
        ("callback", "callbacks"),
        ("limit_train_batch", "limit_train_batches"),
        ("gradient_clip_value", "gradient_clip_val"),
    ],
)
def test_an_unknown_option_suggests_the_nearest(wrong: str, right: str) -> None:
    """A misspelt option is refused with the one that was probably meant."""
    with pytest.raises(OptionError) as caught:
        Trainer(**{wrong: 3})
    assert f"Trainer({wrong}=...)" in str(caught.value)
    assert f"Did you mean {right!r}?" in str(caught.value)
    assert "help(trainer_hooks.Trainer)" in str(caught.value)


def test_an_unknown_option_that_is_like_no_other() -> None:
    """Nothing is suggested for a name that is far from every option."""
    with pytest.raises(OptionError, match=r"no option 'zzz'\. help"):
        Trainer(zzz=1)


def test_positional_arguments_are_refused() -> None:
    """Options go by keyword, and the message shows how."""
    with pytest.raises(OptionError, match=r"Trainer\(3, \.\.\.\).*keyword.*max_epochs=3"):
        Trainer(3)


def test_a_refused_option_is_caught_as_ours_and_as_a_value_error() -> None:
    """Code that knows nothing of this package catches ValueError."""
    for kind in (ValueError, TrainerHooksError):
        with pytest.raises(kind):
            Trainer(max_epochs="3")


def test_the_options_and_their_defaults_are_frozen() -> None:
    """Names, order and defaults of the options are what users rely on."""
    found = {field.name: field.default for field in dataclasses.fields(TrainerConfig)}
    assert list(found.items()) == list(DEFAULTS.items())


def test_the_signature_shows_all_options() -> None:
    """`inspect.signature(Trainer)`, and so editors and help, show each option by keyword only."""
    parameters = inspect.signature(Trainer).parameters
    assert {name: p.default for name, p in parameters.items()} == DEFAULTS
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert all(p.annotation is not p.empty for p in parameters.values())


def test_every_option_is_documented() -> None:
    """Each option has a sentence, which the reference page is made of."""
    docs = option_docs()
    assert [(name, default) for name, default, _ in docs] == [
        (name, repr(value)) for name, value in DEFAULTS.items()
    ]
    for name, _, doc in docs:
        assert doc.endswith("."), name
        assert len(doc) > 15, name


GOOD = [
    ("accelerator", ["auto", "cpu"]),
    ("devices", ["auto", 1, "1", [0], (0,), "0,", -1, "-1"]),
    ("strategy", ["auto", "single_device", "ddp", DDPStrategy(static_graph=True), "fsdp"]),
    ("precision", [None, 32, "32", "32-true", 64, "64-true", "bf16", "bf16-mixed"]),
    ("logger", [None, True, False, [], "csv", ["csv", "memory"]]),
    ("callbacks", [None, [], ()]),
    ("plugins", [True, False, None, ["x"], ("x",)]),
    ("max_epochs", [None, -1, 0, 5]),
    ("max_steps", [-1, 0, 5]),
    ("max_time", [None, "00:12:00:00", timedelta(hours=1), {"minutes": 1}]),
    ("max_duration", [None, "10ep", "500ba", "1e9tok", Time("5st"), timedelta(hours=1)]),
    ("limit_train_batches", [None, 0, 0.0, 1, 1.0, 0.5]),
    ("fast_dev_run", [True, False, 0, 7]),
    ("overfit_batches", [0, 0.0, 3, 0.5]),
    ("val_check_interval", [None, 1, 1.0, 0.25, 100]),
    ("val_check_interval", ["100ba", "5st", "1e6tok", "9sp", "15m", "00:00:15:00"]),
    ("val_check_interval", ["2ep", "0.1dur", "1iter", every("1ep"), bool]),
    ("val_check_interval", [timedelta(minutes=1), {"minutes": 1}, Time("1h")]),
    ("check_val_every_n_epoch", [None, 1, 5]),
    ("num_sanity_val_steps", [None, -1, 0, 3]),
    ("gradient_clip_val", [None, 0, 0.0, 0.5, 1, float("inf")]),
    ("gradient_clip_algorithm", [None, "norm", "value"]),
    ("default_root_dir", [None, "x", Path("x")]),
    ("deterministic", [None, True, False, "warn"]),
]


@for_each([(o, value) for o, values in GOOD for value in values])
def test_good_values_are_taken(option: str, value: object) -> None:
    """What a rule allows is accepted, at its edges too, and kept as given."""
    config = TrainerConfig(**{option: value})
    assert getattr(config, option) is value
    assert Trainer(**{"accelerator": "cpu", option: value}) is not None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"max_epochs": 1000, "max_steps": -1, "min_epochs": 0, "min_steps": 0}),
        ({"max_steps": 7}, {"max_epochs": -1, "max_steps": 7}),
        ({"max_steps": 0}, {"max_epochs": -1, "max_steps": 0}),
        ({"max_time": "00:00:01:00"}, {"max_epochs": -1, "max_steps": -1, "max_seconds": 60.0}),
        ({"max_time": {"hours": 2}, "fast_dev_run": True}, {"max_seconds": None}),
        ({"val_check_interval": "30ba"}, {"val_check_interval": 30}),
        ({"val_check_interval": "1ep"}, {"val_check_interval": 1.0}),
        ({"val_check_interval": {"minutes": 1}}, {"val_check_interval": Time("1m")}),
        ({"max_duration": "500ba"}, {"max_epochs": -1, "max_duration": Time("500ba")}),
        ({"max_duration": "5ep"}, {"max_epochs": 5, "max_duration": Time("5ep")}),
        ({"max_duration": "5ep", "max_epochs": 3}, {"max_epochs": 3}),
        ({"max_duration": "5ep", "max_epochs": 9}, {"max_epochs": 5}),
        ({"max_duration": "5ep", "max_epochs": -1}, {"max_epochs": 5}),
        ({"max_duration": "5st", "max_steps": 7}, {"max_epochs": -1, "max_steps": 5}),
        ({"max_duration": "5st", "max_epochs": 7}, {"max_epochs": 7, "max_steps": 5}),
        ({"max_duration": "5iter", "iteration_length": 2}, {"max_epochs": 10}),
        ({"max_duration": "500ba", "fast_dev_run": 2}, {"max_duration": None, "max_steps": 2}),
        ({"max_epochs": 3, "max_steps": 7}, {"max_epochs": 3, "max_steps": 7}),
        ({"max_epochs": 0}, {"max_epochs": 0}),
        ({"max_epochs": -1}, {"max_epochs": -1}),
        ({"min_epochs": 2, "min_steps": 9}, {"min_epochs": 2, "min_steps": 9}),
        (
            {},
            {
                "limit_train_batches": 1.0,
                "limit_val_batches": 1.0,
                "limit_test_batches": 1.0,
                "limit_predict_batches": 1.0,
                "val_check_interval": 1.0,
                "check_val_every_n_epoch": 1,
                "num_sanity_val_steps": 2,
                "log_every_n_steps": 50,
                "accumulate_grad_batches": 1,
                "gradient_clip_val": None,
                "gradient_clip_algorithm": "norm",
                "inference_mode": True,
                "detect_anomaly": False,
            },
        ),
        ({"limit_train_batches": 0}, {"limit_train_batches": 0}),
        ({"log_every_n_steps": 1}, {"log_every_n_steps": 1}),
        ({"check_val_every_n_epoch": None}, {"check_val_every_n_epoch": None}),
        ({"num_sanity_val_steps": 0}, {"num_sanity_val_steps": 0}),
    ],
)
def test_the_plan_fills_in_the_defaults(options: dict, expected: dict) -> None:
    """What was not given gets Lightning's default: 1000 epochs unless something else bounds it."""
    plan = TrainerConfig(**options).plan()
    found = {name: getattr(plan, name) for name in expected}
    assert found == expected
    assert [type(value) for value in found.values()] == [type(v) for v in expected.values()]


@pytest.mark.parametrize(("given", "count"), [(True, 1), (1, 1), (5, 5)])
def test_fast_dev_run_bounds_everything(given: int, count: int) -> None:
    """A dry run makes so many batches of each kind in one epoch, whatever else was asked for."""
    plan = TrainerConfig(
        fast_dev_run=given,
        max_epochs=9,
        min_epochs=4,
        max_steps=99,
        min_steps=50,
        limit_train_batches=0.5,
        limit_predict_batches=30,
        val_check_interval=20,
        check_val_every_n_epoch=3,
        num_sanity_val_steps=5,
        overfit_batches=8,
    ).plan()
    assert (plan.max_epochs, plan.min_epochs, plan.max_steps, plan.min_steps) == (1, 0, count, 0)
    for stage in ("train", "val", "test", "predict"):
        limit = getattr(plan, f"limit_{stage}_batches")
        assert (limit, type(limit)) == (count, int)
    assert (plan.val_check_interval, plan.check_val_every_n_epoch) == (1.0, 1)
    assert plan.num_sanity_val_steps == 0


@pytest.mark.parametrize("amount", [3, 0.25])
def test_overfit_batches_bound_training_and_validation_alike(amount: float) -> None:
    """Overfitting takes the same part of both, and leaves the sanity check and the test alone."""
    plan = TrainerConfig(overfit_batches=amount, limit_train_batches=7, limit_test_batches=5).plan()
    assert plan.limit_train_batches == plan.limit_val_batches == amount
    assert plan.limit_test_batches == 5
    assert plan.overfit_batches == amount
    assert plan.num_sanity_val_steps == 2


def test_a_config_cannot_be_changed() -> None:
    """The options that a trainer was given stay what they were."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainerConfig().max_epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize("option", ["max_epochs", "max_steps"])
def test_limits_that_may_be_changed_later(option: str) -> None:
    """A trainer's end can be moved between two fits, by the same rule as at first."""
    trainer = Trainer(**{option: 3})
    setattr(trainer, option, 5)
    assert getattr(trainer, option) == 5
    for bad in (-2, 1.5, True, None, "7"):
        with pytest.raises(OptionError) as caught:
            setattr(trainer, option, bad)
        assert f"trainer.{option} = {bad!r}" in str(caught.value)
    assert getattr(trainer, option) == 5


def test_two_progress_bars_are_refused() -> None:
    """Two bars would write over each other: the message names both."""
    from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar

    with pytest.raises(OptionError, match=r"TQDMProgressBar.*RichProgressBar"):
        Trainer(callbacks=[TQDMProgressBar(), RichProgressBar()])


def test_a_switch_that_contradicts_a_callback() -> None:
    """A callback of a kind that an option switches off is refused, and both are named."""
    from trainer_hooks.callbacks import ModelCheckpoint

    with pytest.raises(OptionError, match=r"enable_checkpointing=False.*ModelCheckpoint"):
        Trainer(enable_checkpointing=False, callbacks=[ModelCheckpoint()])


def test_a_logger_class_is_refused_with_a_hint() -> None:
    """A logger that is a class and not an instance is told apart."""
    from trainer_hooks.loggers import CSVLogger

    with pytest.raises(OptionError, match=r"a class: give an instance"):
        Trainer(logger=CSVLogger)


SNIPPET = """
from trainer_hooks import Trainer

Trainer(max_epochs=3, callbacks=[], limit_train_batches=0.5, max_time="00:01:00:00")
Trainer(max_epochs="3")
Trainer(max_epoch=3)
Trainer(3)
reveal_type(Trainer().max_epochs)
"""


@pytest.mark.exhaustive
def test_type_checkers_see_the_options(tmp_path: Path) -> None:
    """mypy finds a wrong type, an unknown option and a positional one, and nothing else."""
    pytest.importorskip("mypy")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "tests/types.ini", str(snippet)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "snippet.py" in line]
    errors = [line for line in lines if " error: " in line]
    assert {int(line.split(":")[1]) for line in errors} == {5, 6, 7}, done.stdout + done.stderr
    assert "[arg-type]" in errors[0]
    assert "max_epochs" in errors[0]
    assert "[call-arg]" in errors[1]
    assert "max_epoch" in errors[1]
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", "")


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("gpus", 'Write accelerator="gpu", devices=... instead.'),
        ("resume_from_checkpoint", r"Write trainer.fit\(..., ckpt_path=...\) instead."),
        ("max_epoch", "Did you mean 'max_epochs'?"),
    ],
)
def test_an_option_that_is_none_is_told_what_to_write(option, told):
    """Of Lightning 1, or with a letter wrong."""
    with pytest.raises(OptionError, match=f"there is no option '{option}'. {told}"):
        Trainer(**{option: 1})
