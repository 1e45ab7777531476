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


class Looks:
    """Module or data module that notes the stage and the flags that are True in each hook."""

    def look(self, hook) -> None:
        trainer = self.trainer
        flags = "training", "sanity_checking", "validating", "testing", "predicting", "evaluating"
        self.seen[hook] = trainer.state.stage, *(flag for flag in flags if getattr(trainer, flag))


def looking(hook, returns=None):
    """Return a method that notes the stage, and passes on to the base class or returns a value."""

    def method(self, *arguments):
        self.look(hook)
        return getattr(super(type(self), self), hook)(*arguments) if returns is None else returns

    return method


IN_SET_UP = ("configure_callbacks", "prepare_data", "setup", "configure_model", "teardown")


@pytest.mark.parametrize("method", ["fit", "validate", "test", "predict"])
def test_the_stage_holds_from_the_set_up_to_the_teardown(bare, Tiny, batches, method) -> None:
    """As in Lightning, hooks of the set-up can ask what the run does; afterwards nothing runs."""
    hooks = IN_SET_UP
    if method == "fit":
        hooks += ("on_fit_start", "configure_optimizers", "train_dataloader", "val_dataloader",
                  "on_sanity_check_start", "on_fit_end")  # fmt: skip
    else:
        hooks += ({"validate": "val", "test": "test"}.get(method, method) + "_dataloader",)
    methods = {hook: looking(hook, batches(1) if "loader" in hook else None) for hook in hooks}
    step = {
        name: lambda self, batch, batch_idx: None
        for name in ("validation_step", "test_step", "predict_step")
    }
    module = type("Looking", (Looks, Tiny), {**methods, **step})()
    module.seen = {}
    trainer = bare(num_sanity_val_steps=1)
    getattr(trainer, method)(module)
    expected = {
        "fit": ("train", "training"),
        "validate": ("validate", "validating", "evaluating"),
        "test": ("test", "testing", "evaluating"),
        "predict": ("predict", "predicting"),
    }[method]
    sanity = module.seen.pop("on_sanity_check_start", None)
    assert sanity in (None, ("sanity_check", "sanity_checking", "evaluating"))
    assert (sanity is None) == (method != "fit")
    assert module.seen == dict.fromkeys(set(hooks) - {"on_sanity_check_start"}, expected)
    assert trainer.state.stage is None


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
