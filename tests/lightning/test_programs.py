"""The same programs on Lightning and here: what differs is what the docs say, and no more."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_ATTRIBUTES = "tests/trainer/test_lightning_attributes.py"

ELSEWHERE = {
    '`clip_gradients` in manual optimization with `precision="16-mixed"`': (
        "tests/loops/test_equivalence.py"
    ),
    'The loss scale of `precision="16-mixed"` with several optimizers': (
        "tests/loops/test_equivalence.py"
    ),
    "A name with characters that MLflow forbids, in `MLFlowLogger`": (
        "tests/loggers/test_mlflow.py"
    ),
    "Evaluation data of several processes, in numbers that do not divide evenly": (
        "tests/distributed/test_loader_sharding.py"
    ),
    "A subclass of `CSVLogger` or `TensorBoardLogger` that overrides `name` or `version`": (
        _ATTRIBUTES
    ),
    "Hyperparameters of a module that another module makes in its `__init__`": _ATTRIBUTES,
    "LBFGS, or another optimizer that evaluates the loss itself, with accumulation": (
        "tests/loops/test_microbatches.py"
    ),
    "Progress bar and model summary where rich is installed": _ATTRIBUTES,
    "`ModelCheckpoint(save_last=True)` with a monitor": (
        "tests/callbacks/saving/test_model_checkpoint_slots.py"
    ),
    "`CSVLogger` with a `version` whose folder has a `metrics.csv`, in a new training": (
        "tests/loggers/test_resume.py"
    ),
    '`"last"` and `"best"` in a trainer that has not trained': (
        "tests/trainer/identity/test_run_identity.py"
    ),
    **dict.fromkeys(
        (
            "`load_from_checkpoint(hparams_file=...)` of a file that is not there",
            "`load_from_checkpoint(strict=True)` of a module with `strict_loading = False`",
            "`ModelCheckpoint(every_n_train_steps=4)` with `val_check_interval=4`",
            "An address of another store (`s3://...`) as the folder of a CSVLogger",
            "`Tuner(trainer).lr_find` with fewer batches until `max_epochs` than `num_training`",
            "The column FLOPs of a model summary",
        ),
        "tests/compat/lightning/test_small_differences.py",
    ),
    "`config.yaml` of `LightningCLI` with `--trainer.logger=False`": (
        "tests/compat/lightning/test_cli.py"
    ),
    "`init_train_tqdm` and so on of a progress bar, without a terminal": (
        "tests/callbacks/progress/test_tqdm_progress.py"
    ),
    "Environment variables `PL_TRAINER_...`": _ATTRIBUTES,
    "Callbacks of installed packages, from the group `lightning.pytorch.callbacks_factory`": (
        "tests/plugins/test_of_lightning.py"
    ),
    "Files in the folder of a logger": "tests/programs",
    "Random numbers on a resume at the end of an epoch": (
        "tests/programs/of_lightning/text_to_speech.py"
    ),
    "The folder of a logger without a `version` on a resume": (
        "tests/programs/of_lightning/protein_folding.py"
    ),
    "`StochasticWeightAveraging` of a module with BatchNorm": (
        "tests/programs/of_lightning/weight_averaging.py"
    ),
    "Private methods of built-in callbacks, such as `ModelCheckpoint._save_checkpoint`": (
        "tests/programs/of_lightning/own_logger.py"
    ),
    "The method `to` of a batch, in a run on the CPU": "tests/programs/of_lightning/graphs.py",
    "A stop that was requested before the checkpoint was saved": "tests/resume/test_stops.py",
    "Copying or pickling a Trainer in a run": "tests/trainer/test_copying.py",
    "`Trainer(benchmark=True)`": "tests/trainer/options/test_barebones.py",
    "`profiler`": "tests/profilers",
    "`reload_dataloaders_every_n_epochs`": "tests/trainer/run/test_loader_reload.py",
    "`weights_only=False` where a checkpoint is opened": (
        "tests/trainer/test_lightning_attributes.py"
    ),
    "Hyperparameters that are no plain data": "tests/adapters/lightning/isolated_modules.py",
    "SIGTERM": "tests/resume/test_preempted.py",
    "`on_exception` after an exception in `teardown`": "tests/trainer/run/test_lifecycle.py",
    "The weights that `use_lottery_ticket_hypothesis` resets to after a resume": (
        "tests/contract/test_built_in_callbacks.py"
    ),
    "`ThroughputMonitor`'s counts of validation, `validate/batches` and its like, in a fit": (
        "tests/callbacks/monitors/test_throughput_monitor.py"
    ),
    "Random numbers of persistent workers, and of workers of a `StatefulDataLoader`": (
        "tests/data/test_stream.py"
    ),
    "A loader and a training that draw global random numbers by turns, over 1000 in an epoch": (
        "tests/data/test_draw_recorder.py"
    ),
    "`seed_everything(workers=True)`": "tests/runtime/test_rng.py",
    "The last digit of means, of logged values and of weights in `WeightAveraging`": (
        "compare.py takes numbers for the same that differ by less than 1e-6 of them"
    ),
}
"""Rows of the page that no program shows, and what does."""


AS_IN_LIGHTNING = ["options.default_logger", "optimizer_steps.outputs_of_a_batch"]
"""Programs that differ with the names of trainer_hooks, and not with Lightning's."""


@pytest.fixture
def compare(monkeypatch):
    """The module that runs the programs and compares what they give."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module("compare")


@pytest.mark.exhaustive
@pytest.mark.skipif(
    importlib.util.find_spec("pytorch_lightning") is None,
    reason="needs Lightning: pip install -c constraints.txt trainer-hooks[lightning-tests]",
)
def test_every_program_does_the_same(compare) -> None:
    """What a program does on Lightning it does here, but for what it declares to be different.

    It does with the names of trainer_hooks, and with Lightning's, by its import lines alone.
    """
    found = compare.run_all()
    wrong = [
        f"{name}, {value}, {half}: {text}"
        for name, program in compare.all_programs().items()
        for half in ("here", "ported")
        for value, text in compare.objections(
            program, found["lightning"][name]["values"], found[half][name]["values"]
        ).items()
        if half == "here" or name not in AS_IN_LIGHTNING
    ]
    assert wrong == [], "\n".join(wrong)
    for name in AS_IN_LIGHTNING:
        values = [found[half][name]["values"] for half in ("lightning", "ported")]
        assert not compare.compare(*values), values


def test_each_difference_stands_in_the_docs(compare, monkeypatch) -> None:
    """A program names a row of the page, and each row is shown by a program or elsewhere."""
    monkeypatch.syspath_prepend(str(HERE.parents[1] / "docs"))
    sections = importlib.import_module("lightning_reasons").MEANINGS
    rows = {row[0] for section in sections.values() for row in section}
    shown = {
        difference.row
        for program in compare.all_programs().values()
        for difference in compare.differences_of(program).values()
    }
    assert shown - rows == set(), "say these in MEANINGS of docs/lightning_reasons.py"
    assert rows - shown == set(ELSEWHERE), "write a program, or say in ELSEWHERE what shows it"


def test_each_program_says_what_it_is_about(compare) -> None:
    """A program has a docstring."""
    assert [name for name, program in compare.all_programs().items() if not program.__doc__] == []


def test_a_new_difference_is_found_and_one_that_is_gone(compare) -> None:
    """Declared differences must be as declared; errors need one class in common."""

    @sys.modules["programs"].differs("a row", known=(1, 2), gone=(1, 2))
    def program(x): ...

    lightning = {"known": 1, "gone": 1, "error": {"kinds": ["TypeError"]}, "new": [0.1]}
    here = {"known": 2, "gone": 1, "error": {"kinds": ["OptionError", "TypeError"]}, "new": [0.2]}
    wrong = compare.objections(program, lightning, here)
    assert {name: text.partition(":")[0] for name, text in wrong.items()} == {
        "new": "a new difference",
        "gone": "the same by now, 1",
    }
    other = {**here, "known": 3, "gone": 2, "new": [0.1]}
    assert "not what is declared" in compare.objections(program, lightning, other)["known"]
    assert compare.compare({"weights": [0.1]}, {"weights": [0.1 + 1e-9]})
    assert not compare.compare({"mean": [0.1]}, {"mean": [0.1 + 1e-9]})
