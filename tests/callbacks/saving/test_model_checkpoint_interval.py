"""ModelCheckpoint(save_interval=...): any time, filter or function says when it saves."""

from __future__ import annotations

import pytest

from trainer_hooks import Time, after, every, once
from trainer_hooks.callbacks import ModelCheckpoint


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ("3ba", [3, 6]),
        ("2st", [2, 4, 6, 8]),
        ("6sp", [3, 6]),
        (1, [4, 8]),
        ("2ep", [8]),
        (Time("0.5dur"), [4, 8]),
        (every("1ep") & after("0.5dur") | once("1ba"), [1, 4, 8]),
        (lambda clock: clock.batches == 5, [5]),
    ],
    ids=["batches", "steps", "samples", "1 epoch", "epochs", "share", "filter", "function"],
)
def test_when_it_saves(fit, tmp_path, interval, expected) -> None:
    """Two epochs of four batches of two samples are saved where the interval says, once each."""
    saver = ModelCheckpoint(tmp_path / "kept", "{step}", save_top_k=-1, save_interval=interval)
    fit(saver)
    found = sorted(int(path.stem.removeprefix("step=")) for path in (tmp_path / "kept").iterdir())
    assert found == expected


def test_a_resumed_run_goes_on_counting(fit, tmp_path) -> None:
    """An interval that was under way when a run was cut ends where it would have ended."""

    def saver() -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path / "kept", "{step}", save_top_k=-1, save_interval="3ba")

    fit(saver(), max_epochs=1)
    fit(saver(), max_epochs=2, ckpt_path=tmp_path / "kept" / "step=3.ckpt")
    assert sorted(path.stem for path in (tmp_path / "kept").iterdir()) == ["step=3", "step=6"]


def test_the_state_key_says_it_where_it_is_given() -> None:
    """Keys of savers without one are those of older files."""
    assert "save_interval" not in ModelCheckpoint().state_key
    assert "every('2ba')" in ModelCheckpoint(save_interval="2ba").state_key
