"""The demo's verdicts come from what it compared, so they must be able to be bad ones."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import TensorDataset

from trainer_hooks import Callback, DataModule, Trainer
from trainer_hooks.cli.demo.comparison import (
    StateRow,
    compare_runs,
    compare_states,
    compare_tensors,
)
from trainer_hooks.cli.demo.demo_report import (
    EXAMPLE,
    NEXT_LINES,
    Screen,
    show_callbacks,
    show_comparison,
    show_result,
)
from trainer_hooks.cli.demo.digits import DigitsNet
from trainer_hooks.cli.demo.training import single_threaded

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"EventLog": "EventLog", "SmoothedLoss": "SmoothedLoss"}


def checkpoint() -> dict[str, Any]:
    """Return what the comparison reads of a checkpoint."""
    return {
        "state_dict": {"weight": torch.arange(4.0)},
        "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(4)}}, "param_groups": []}],
        "lr_schedulers": [{"last_epoch": 12, "_last_lr": [0.1]}],
        "trainer_hooks": {"rng": {"torch": torch.arange(8, dtype=torch.uint8)}},
    }


def states(batches: int, resumes: int, value: float) -> dict[str, dict[str, Any]]:
    """Return callback states by key."""
    journal = {"batches": batches, "samples": 8 * batches, "epochs": 1, "resumes": resumes}
    return {"EventLog": journal, "SmoothedLoss": {"value": torch.tensor(value), "batches": 1}}


def rows_of(**changed: dict[str, dict[str, Any]]) -> dict[str, StateRow]:
    """Return the rows of a resume that is right but for what is changed."""
    right = {
        "cut": states(5, 0, 0.5),
        "restored": states(5, 1, 0.5),
        "end": states(9, 1, 0.25),
        "uncut": states(9, 0, 0.25),
    }
    return {row.name: row for row in compare_states(KEYS, **{**right, **changed})}


def show(comparisons: Any, rows: list[StateRow]) -> bool:
    return show_comparison(Screen(is_terminal=False), comparisons, rows, contrast=1)


def test_a_right_resume_is_called_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Equal ends and states that went on make the good verdict."""
    assert show(compare_runs(checkpoint(), checkpoint()), list(rows_of().values()))
    text = capsys.readouterr().out
    assert "equal, bit for bit" in text
    assert "to the last bit" in text
    assert "NOT" not in text
    assert "WRONG" not in text


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("weights", ("state_dict", "weight")),
        ("optimizer, schedule", ("optimizer_states", 0, "state", 0, "exp_avg")),
        ("random numbers", ("trainer_hooks", "rng", "torch")),
    ],
)
def test_another_end_is_called_another(
    part: str, path: tuple[Any, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """One number of the weights, the optimizer or the random generator makes the bad verdict."""
    other = deepcopy(checkpoint())
    tensor: Any = other
    for key in path:
        tensor = tensor[key]
    tensor[-1] += 1
    comparisons = compare_runs(other, checkpoint())
    assert {name for name, c in comparisons.items() if not c.is_equal} == {part}
    assert not show(comparisons, list(rows_of().values()))
    assert "The resumed run is NOT" in capsys.readouterr().out


def test_a_schedule_that_lags_is_found() -> None:
    """A plain number of a scheduler's state counts as well."""
    other = checkpoint()
    other["lr_schedulers"][0]["last_epoch"] = 11
    assert not compare_runs(other, checkpoint())["optimizer, schedule"].is_equal


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"restored": states(0, 1, 0.5)}, {"EventLog batches", "EventLog samples"}),
        ({"end": states(9, 1, 0.2500001)}, {"SmoothedLoss value"}),
        ({"end": states(9, 0, 0.25)}, {"EventLog resumes"}),
        ({"end": states(9, 2, 0.25)}, {"EventLog resumes"}),
        ({"restored": {"EventLog": states(5, 1, 0)["EventLog"]}}, {"SmoothedLoss value"}),
    ],
    ids=["began anew", "lost a batch", "resume not counted", "counted twice", "not restored"],
)
def test_a_state_that_did_not_go_on_is_found(
    changed: dict[str, Any], wrong: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A callback state that began anew, drifted or was not restored makes the bad verdict."""
    rows = rows_of(**changed)
    assert {name for name, row in rows.items() if not row.is_right} == wrong
    assert not show(compare_runs(checkpoint(), checkpoint()), list(rows.values()))
    assert "WRONG" in capsys.readouterr().out


def test_a_plugin_that_is_not_there_has_no_rows() -> None:
    """Callbacks that do not take part are not compared."""
    empty: dict[str, Any] = {}
    rows = compare_states({"SmoothedLoss": "SmoothedLoss"}, empty, empty, empty, empty)
    assert [row.name for row in rows] == ["SmoothedLoss value"]
    assert not rows[0].is_right  # it takes part, but nothing was saved


def test_dictionaries_count_by_their_length() -> None:
    """Of the files that a saver keeps, their number is shown: the folders of two runs differ."""
    one = {"MC": {"best_k_models": {"a/1.ckpt": 1}, "best_model_score": torch.tensor(1.0)}}
    other = {"MC": {"best_k_models": {"b/1.ckpt": 1}, "best_model_score": torch.tensor(1.0)}}
    rows = compare_states({"ModelCheckpoint": "MC"}, one, one, one, other)
    assert [(row.name, row.end, row.is_right) for row in rows] == [
        ("ModelCheckpoint best", torch.tensor(1.0), True),
        ("ModelCheckpoint files", 1, True),
    ]


@pytest.mark.parametrize(("accuracy", "is_good"), [(0.98, True), (0.97, False), (0.5, False)])
def test_an_accuracy_that_is_too_low_is_no_success(
    accuracy: float, is_good: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only more than 97% is good, and the text says so."""
    assert show_result(Screen(is_terminal=False), accuracy, "best.ckpt") is is_good
    text = capsys.readouterr().out
    assert ("NOT over 97%" in text) is not is_good
    assert "best.ckpt" in text


def test_the_three_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines that the demo ends with are code that trains."""
    monkeypatch.chdir(tmp_path)
    data = TensorDataset(torch.rand(4, 1, 8, 8), torch.arange(4))
    names: dict[str, Any] = {
        "MyModule": DigitsNet,
        "MyData": lambda: DataModule.from_datasets(train_dataset=data, batch_size=4),
    }
    assert len(NEXT_LINES) == 3
    with single_threaded():
        exec("\n".join(NEXT_LINES), names)
    assert names["trainer"].current_epoch == 10


def test_callbacks_are_listed_with_their_suppliers(capsys: pytest.CaptureFixture[str]) -> None:
    """Each callback has a line with who supplied it; without the plugin it says how to get it."""

    class Mine(Callback):
        pass

    trainer = Trainer(callbacks=[Mine()], plugins=False, logger=False, enable_progress_bar=False)
    show_callbacks(Screen(is_terminal=False), trainer)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["Mine", "Trainer(callbacks=...)"] for line in lines)
    assert any(line.startswith("ModelCheckpoint") and "by default" in line for line in lines)
    text = " ".join(lines)
    assert f"No callback of {EXAMPLE} takes part" in text
    assert "pip install ./plugins_example/monitoring" in text


def test_comparisons_hold_what_was_compared() -> None:
    """The weights' row of the report is the bit-wise comparison of the two state_dicts."""
    one, other = checkpoint(), checkpoint()
    other["state_dict"]["weight"][0] = -0.0
    found = compare_runs(one, other)["weights"]
    assert found == compare_tensors(other["state_dict"], one["state_dict"])
    assert not found.is_equal
