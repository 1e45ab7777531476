"""What `trainer.state` says, and that its words are Lightning's enums and texts at once."""

from __future__ import annotations

import pickle

import pytest

from trainer_hooks import Callback
from trainer_hooks.trainer.states import RunningStage, TrainerFn, TrainerState, TrainerStatus


class Notes(Callback):
    """Notes the state in some hooks."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, object, object]] = []

    def _note(self, trainer) -> None:
        state = trainer.state
        self.seen.append((state.fn, state.stage, state.status))

    def on_sanity_check_start(self, trainer, module):
        self._note(trainer)

    def on_train_start(self, trainer, module):
        self._note(trainer)

    def on_validation_start(self, trainer, module):
        self._note(trainer)


def test_a_word_that_is_none_is_an_error() -> None:
    """The enums know Lightning's values and no others."""
    with pytest.raises(ValueError, match="fitting"):
        TrainerFn("fitting")
    assert [fn.value for fn in TrainerFn] == ["fit", "validate", "test", "predict"]
    assert [stage.name for stage in RunningStage] == [
        "TRAINING", "SANITY_CHECKING", "VALIDATING", "TESTING", "PREDICTING",
    ]  # fmt: skip
    assert [s.stopped for s in TrainerStatus] == [False, False, True, True]
    assert [s.dataloader_prefix for s in RunningStage] == ["train", "val", "val", "test", "predict"]
    assert [s.evaluating for s in RunningStage] == [False, True, True, True, False]


def test_the_state_is_members_of_the_enums(bare, Tiny, batches) -> None:
    """In each hook it is a member, which is also equal to its text; pickles keep it."""
    notes = Notes()
    trainer = bare(notes, num_sanity_val_steps=1)
    state = trainer.state
    assert (state.fn, state.stage, state.status) == (None, None, TrainerStatus.INITIALIZING)
    assert not state.stopped

    class Validates(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

    trainer.fit(Validates(), batches(1), batches(1))
    fit, running = TrainerFn.FITTING, TrainerStatus.RUNNING
    assert notes.seen == [
        (fit, RunningStage.SANITY_CHECKING, running),
        (fit, RunningStage.SANITY_CHECKING, running),
        (fit, RunningStage.TRAINING, running),
        (fit, RunningStage.VALIDATING, running),
    ]
    assert all(isinstance(stage, RunningStage) for _, stage, _ in notes.seen)
    assert (state.fn, state.stage, f"{state.status}") == ("fit", None, "finished")
    assert (state.finished, state.interrupted, state.stopped) == (True, False, True)
    assert isinstance(state, TrainerState)
    assert pickle.loads(pickle.dumps(state)) == state


def test_a_run_that_failed_is_interrupted(bare, Tiny, batches) -> None:
    """What was asked for last stays readable, as in Lightning."""

    class Fails(Tiny):
        def validation_step(self, batch, batch_idx):
            raise ValueError("no")

    trainer = bare()
    with pytest.raises(ValueError, match="no"):
        trainer.validate(Fails(), batches(1))
    assert (trainer.state.fn, trainer.interrupted) == (TrainerFn.VALIDATING, True)
    assert (trainer.state.finished, trainer.state.stopped) == (False, True)
