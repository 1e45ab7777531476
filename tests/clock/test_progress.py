"""Progress: the counters of a training."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from trainer_hooks.clock.progress import EpochStage, Progress


def test_a_new_progress_is_that_of_a_new_training() -> None:
    """Nothing is counted yet, no epoch is under way, nothing was validated."""
    progress = Progress()
    assert progress.is_untrained
    assert progress.is_new_training
    assert progress.is_new_training
    assert progress.stage is EpochStage.BETWEEN
    assert progress.validated_at == -1
    counted = {name: n for name, n in progress.state_dict().items() if name != "stage"}
    assert {name for name, n in counted.items() if n != 0} == {"validated_at"}


@pytest.mark.parametrize("counter", ["batches_completed", "epochs_completed"])
def test_anything_trained_is_not_fresh(counter: str) -> None:
    """One batch, or one epoch of an empty loader, ends the fresh state."""
    progress = Progress(**{counter: 1})  # type: ignore[arg-type]
    assert not progress.is_untrained
    assert not progress.is_new_training
    assert not progress.is_new_training


def test_a_restored_step_0_is_no_new_training() -> None:
    """Nothing is trained, and yet it goes on; that it does is not saved with it."""
    progress = Progress(is_restored=True)
    assert progress.is_untrained
    assert not progress.is_new_training
    assert not progress.is_new_training
    assert "is_restored" not in progress.state_dict()


def test_begin_epoch_opens_it_at_its_first_batch() -> None:
    """The counters of the epoch and of the window start over; those of the run go on."""
    progress = Progress(
        epochs_completed=2, batches_completed=9, batches_in_epoch=4, batches_in_window=1
    )
    progress.begin_epoch()
    assert progress == Progress(epochs_completed=2, batches_completed=9, stage=EpochStage.BATCHES)


def test_complete_epoch_counts_it() -> None:
    """The epoch is counted, its batches are not counted again, none is under way."""
    progress = Progress(batches_completed=4, batches_in_epoch=4, stage=EpochStage.ENDED)
    progress.complete_epoch()
    assert progress == Progress(epochs_completed=1, batches_completed=4, batches_in_last_epoch=4)


def test_an_epoch_that_is_abandoned_counts_its_windows_as_repeated() -> None:
    """A state without that count, as most have, sets it to none."""
    progress = Progress()
    plain = progress.state_dict()
    assert "windows_repeated" not in plain
    for _ in range(2):
        progress.begin_epoch()
        for closes_window in (False, False, True, False):
            progress.count_batch(closes_window)
        progress.abandon_epoch(3)
    assert (progress.windows_repeated, progress.batches_completed) == (2, 8)
    assert (progress.batches_in_epoch, progress.batches_in_window) == (0, 0)
    assert progress.stage is EpochStage.BETWEEN
    restored = Progress()
    restored.load_state_dict(progress.state_dict())
    assert restored.windows_repeated == 2
    restored.load_state_dict(plain)
    assert restored.windows_repeated == 0


def test_state_survives_a_json_round_trip() -> None:
    """The state is plain data: what comes back through JSON restores every counter."""
    counters = [field.name for field in fields(Progress) if field.type == "int"]
    progress = Progress(**{name: n for n, name in enumerate(counters, 1)})  # type: ignore[arg-type]
    progress.stage = EpochStage.CLOSING
    state = json.loads(json.dumps(progress.state_dict()))
    restored = Progress()
    restored.load_state_dict(state)
    assert restored == progress
    assert restored.stage is EpochStage.CLOSING
    assert len(counters) >= 7


def test_the_state_holds_no_enum() -> None:
    """The stage is saved as a plain string, which loads without any class of ours."""
    assert type(Progress().state_dict()["stage"]) is str


def test_a_counter_the_state_does_not_know_stays() -> None:
    """A state of an older release, without a counter, leaves that counter where it is."""
    progress = Progress(validated_at=3)
    progress.load_state_dict({"batches_completed": 5})
    assert progress == Progress(batches_completed=5, validated_at=3)


def test_what_the_progress_does_not_know_is_left_out() -> None:
    """A state of a newer release, with a counter more, loads."""
    progress = Progress()
    progress.load_state_dict({"epochs_completed": 1, "moons_completed": 2})
    assert progress == Progress(epochs_completed=1)


def test_a_stage_that_is_none_is_refused_whole() -> None:
    """An unknown stage is an error, and no counter has moved by then."""
    progress = Progress()
    with pytest.raises(ValueError, match="limbo"):
        progress.load_state_dict({"epochs_completed": 1, "stage": "limbo"})
    assert progress == Progress()
