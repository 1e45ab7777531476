"""What an error of a callback does: the callback's policy, the user's, and what is told of it."""

from __future__ import annotations

import signal
import sys
from asyncio import CancelledError
from functools import partial

import pytest
import torch

from trainer_hooks import Callback, StopTraining
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import TerminationSignal, TrainerHooksWarning


class Counts(Callback):
    """Counts batches, and fails when it is told to, where it is told to."""

    def __init__(self, fails_in: str = "", at: int = 2, error: BaseException | None = None) -> None:
        self.fails_in = fails_in
        self.at = at
        self.error = error or ValueError("bad day")
        self.count = 0

    def _fail(self, place: str) -> None:
        if place == self.fails_in:
            raise self.error

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1
        if self.count >= self.at:
            self._fail("on_train_batch_end")

    def state_dict(self):
        self._fail("state_dict")
        return {"count": self.count}

    def load_state_dict(self, state_dict):
        self._fail("load_state_dict")
        self.count = state_dict["count"]


class Other(Counts):
    """The same under another key."""


DISABLE = {"callback_errors": {"Counts": "disable"}}


def disabled(trainer):
    [report] = [report for report in trainer.callback_report if not report.is_active]
    return report


@pytest.mark.parametrize("name", ["Counts", "named"])
def test_the_user_decides_by_class_or_state_key(name, bare, Tiny, batches) -> None:
    """`callback_errors` takes a callback out that says nothing of errors itself; others stay."""
    callback, other = Counts("on_train_batch_end"), Other()
    if name == "named":
        callback = type("Kind", (Counts,), {"state_key": "named"})("on_train_batch_end")
    trainer = bare(callback, other, callback_errors={name: "disable"})
    with pytest.warns(TrainerHooksWarning, match="failed in hook 'on_train_batch_end'") as caught:
        trainer.fit(Tiny(), batches(4))
    assert len(caught) == 1
    assert (callback.count, other.count) == (2, 4)
    assert trainer.callbacks == [other]


def test_the_user_goes_before_the_callback(bare, Tiny, batches) -> None:
    """Who wants to see errors of a callback that asks to be tolerated gets them."""
    callback = Counts("on_train_batch_end")
    callback.on_error = "disable"
    trainer = bare(callback, callback_errors={"Counts": "raise"})
    with pytest.raises(ValueError, match="bad day") as caught:
        trainer.fit(Tiny(), batches(4))
    [note] = caught.value.__notes__
    assert note == (
        "raised in hook 'on_train_batch_end' of callback Counts (state_key 'Counts', from "
        "Trainer(callbacks=...))"
    )


class MutedError(Exception):
    """Cannot say what it is: its `__str__` fails, and so does the look-up of anything it lacks."""

    def __str__(self) -> str:
        return self.args[0].missing

    def __getattr__(self, name):
        raise LookupError(name)


def test_an_error_that_cannot_be_told_disables_too(bare, Tiny, batches) -> None:
    """A `__str__` that fails ends no run, and the report names what it raised."""
    callback = Counts("on_train_batch_end", error=MutedError(1))
    trainer = bare(callback, **DISABLE)
    with pytest.warns(TrainerHooksWarning, match="failed in hook 'on_train_batch_end'"):
        trainer.fit(Tiny(), batches(4))
    assert disabled(trainer).error == "MutedError: <str() of it raised AttributeError>"


def test_a_state_whose_error_cannot_be_told_is_lost_in_order(bare, Tiny, batches) -> None:
    """A `state_dict` that fails without a message is told of as any other."""

    class Mute(Counts):
        def state_dict(self):
            raise MutedError(2)

    trainer = bare(Mute("on_train_batch_end"), callback_errors={"Mute": "disable"})
    with pytest.warns(TrainerHooksWarning, match="its state is lost"):
        trainer.fit(Tiny(), batches(4))
    assert "MutedError: <str() of it raised AttributeError>" in disabled(trainer).state


class OwnError(BaseException):
    """Derives from BaseException, as those of some packages do."""


_NO_EXCEPTIONS = [
    SystemExit(3),
    CancelledError(),
    GeneratorExit(),
    OwnError("bad"),
    StopIteration(),
]


@pytest.mark.parametrize("place", ["on_train_batch_end", "state_dict", "load_state_dict"])
@pytest.mark.parametrize("error", _NO_EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_an_error_that_is_no_exception_disables_too(
    error, place, bare, Tiny, batches, tmp_path
) -> None:
    """`sys.exit` and the like in a tolerated callback are faults of it, as in loading a plugin."""
    first = bare(Counts(), Other())
    first.fit(Tiny(), batches(4))
    first.save_checkpoint(tmp_path / "first.ckpt")
    trainer = bare(Counts(place, error=error), other := Other(), max_epochs=2, **DISABLE)

    def resume() -> None:
        trainer.fit(Tiny(), batches(4), ckpt_path=tmp_path / "first.ckpt")
        trainer.save_checkpoint(tmp_path / "second.ckpt")

    with pytest.warns(TrainerHooksWarning, match=f"failed in hook '{place}'"):
        resume()
    assert (trainer.global_step, other.count) == (8, 8)
    assert disabled(trainer).error.startswith(type(error).__name__)
    saved = torch.load(tmp_path / "second.ckpt", weights_only=True)["callbacks"]
    # its state of the failure, or else the one that it was given
    assert saved == {
        "Counts": {"count": 5 if place == "on_train_batch_end" else 4},
        "Other": {"count": 8},
    }


def test_on_save_checkpoint_disables_too(bare, Tiny, batches, tmp_path) -> None:
    """The checkpoint is written without what the callback was to add."""

    class Adds(Counts):
        state_key = "Adds"

        def on_save_checkpoint(self, trainer, module, checkpoint):
            sys.exit("no more")

    trainer = bare(Adds(), callback_errors={"Adds": "disable"})
    trainer.fit(Tiny(), batches(2))
    with pytest.warns(TrainerHooksWarning, match="failed in hook 'on_save_checkpoint'"):
        trainer.save_checkpoint(tmp_path / "a.ckpt")
    assert torch.load(tmp_path / "a.ckpt", weights_only=True)["callbacks"] == {"Adds": {"count": 2}}


@pytest.mark.parametrize("handler", ["function", "partial", "object", "method"])
def test_the_exit_of_a_signal_handler_is_never_swallowed(handler, bare, Tiny, batches) -> None:
    """A handler of the program's own runs inside any hook, and its `sys.exit` ends the program."""

    class Exits:
        def __call__(self, *_):
            sys.exit(5)

        method = __call__

    def function(*_):
        sys.exit(5)

    kinds = {
        "function": function, "partial": partial(function, 1), "object": Exits(),
        "method": Exits().method,
    }  # fmt: skip

    class Killed(Counts):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            signal.raise_signal(signal.SIGTERM)

    trainer = bare(Killed(), callback_errors={"Killed": "disable"})
    before = signal.signal(signal.SIGTERM, kinds[handler])
    try:
        with pytest.raises(SystemExit, match="5"):
            trainer.fit(Tiny(), batches(2))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TerminationSignal(15)])
def test_ctrl_c_and_termination_are_never_swallowed(error, bare, Tiny, batches) -> None:
    """What a person or the system wants is no fault, and passes."""
    trainer = bare(Counts("on_train_batch_end", error=error), **DISABLE)
    with pytest.raises(type(error)):
        trainer.fit(Tiny(), batches(4))


def test_stop_training_is_never_swallowed(bare, Tiny, batches) -> None:
    """A tolerated callback may end the run."""
    callback = Counts("on_train_batch_end", error=StopTraining("enough"))
    trainer = bare(callback, **DISABLE)
    trainer.fit(Tiny(), batches(4))
    assert trainer.progress.batches_completed == 2
    assert trainer.callbacks == [callback]


def test_the_report_lists_all(bare, Tiny, batches) -> None:
    """Those that take part, then the disabled, with hook, error and traceback."""
    trainer = bare(Counts("on_train_batch_end"), Other(), **DISABLE)
    assert [(r.name, r.on_error, r.is_active) for r in trainer.callback_report] == [
        ("Counts", "disable", True),
        ("Other", "raise", True),
    ]
    with pytest.warns(TrainerHooksWarning):
        trainer.fit(Tiny(), batches(4))
    assert [r.name for r in trainer.callback_report] == ["Other", "Counts"]
    report = disabled(trainer)
    assert (report.state_key, report.supplier) == ("Counts", "Trainer(callbacks=...)")
    assert (report.band, report.hook) == ("OBSERVE", "on_train_batch_end")
    assert report.error == "ValueError: bad day"
    assert "in _fail\n    raise self.error" in report.traceback
    assert report.state == "its last state is kept in checkpoints"


def test_the_last_state_is_still_saved_and_restored(bare, Tiny, batches, tmp_path) -> None:
    """A checkpoint after the failure has the state of that moment; a resume hands it back."""
    trainer = bare(Counts("on_train_batch_end"), **DISABLE)
    with pytest.warns(TrainerHooksWarning):
        trainer.fit(Tiny(), batches(4))
    path = tmp_path / "late.ckpt"
    trainer.save_checkpoint(path)
    assert torch.load(path, weights_only=True)["callbacks"] == {"Counts": {"count": 2}}
    again = Counts()
    bare(again, max_epochs=2).fit(Tiny(), batches(4), ckpt_path=path)
    assert again.count == 2 + 4


def test_a_state_dict_that_fails_is_an_error_of_the_callback(bare, Tiny, batches, tmp_path) -> None:
    """Tolerated, it does not spoil the others' checkpoint; the report says what is lost."""
    trainer = bare(Counts("state_dict"), Other(), **DISABLE)
    trainer.fit(Tiny(), batches(4))
    path = tmp_path / "some.ckpt"
    with pytest.warns(TrainerHooksWarning, match=r"failed in hook 'state_dict'.*state is lost"):
        trainer.save_checkpoint(path)
    assert torch.load(path, weights_only=True)["callbacks"] == {"Other": {"count": 4}}
    assert disabled(trainer).state == "its state is lost: state_dict() is what failed"


def test_a_state_dict_that_fails_raises_otherwise(bare, Tiny, batches, tmp_path) -> None:
    """Not tolerated, the error names the callback, and no file is written."""
    trainer = bare(Counts("state_dict"))
    trainer.fit(Tiny(), batches(4))
    with pytest.raises(ValueError, match="bad day") as caught:
        trainer.save_checkpoint(tmp_path / "some.ckpt")
    assert "raised by state_dict() of callback Counts" in caught.value.__notes__[0]
    assert list(tmp_path.glob("*.ckpt")) == []


@pytest.mark.parametrize("place", ["load_state_dict", "state_dict"])
def test_a_state_that_was_given_survives_a_failure(place, bare, Tiny, batches, tmp_path) -> None:
    """What the checkpoint held for a callback that then fails goes into the next one unchanged."""
    path = tmp_path / "first.ckpt"
    trainer = bare(Counts())
    trainer.fit(Tiny(), batches(4))
    trainer.save_checkpoint(path)
    trainer = bare(Counts(place), max_epochs=2, **DISABLE)

    def resume() -> None:
        trainer.fit(Tiny(), batches(4), ckpt_path=path)
        trainer.save_checkpoint(tmp_path / "second.ckpt")

    with pytest.warns(TrainerHooksWarning, match=f"failed in hook '{place}'"):
        resume()
    saved = torch.load(tmp_path / "second.ckpt", weights_only=True)
    assert saved["callbacks"] == {"Counts": {"count": 4}}
    assert disabled(trainer).state == (
        "the state that it was given on the resume is kept in checkpoints: "
        f"{place}() is what failed"
    )


def test_both_fail() -> None:
    """A callback whose hook and then whose state_dict fails is reported once, with both."""

    class Broken(Callback):
        on_error = "disable"

        def on_fit_start(self, trainer, module):
            raise ValueError("hook")

        def state_dict(self):
            raise LookupError("state")

    connector = CallbackConnector(Broken(), discover=False)
    with pytest.warns(TrainerHooksWarning, match="hook") as caught:
        connector.relay.on_fit_start(None, None)
    assert len(caught) == 1
    [report] = connector.callback_report()
    assert report.state == "its state is lost: state_dict() failed too, with LookupError: state"
    assert connector.state_dict() == {}


def test_a_misspelt_name_is_told(bare, Tiny, batches) -> None:
    """A name in `callback_errors` that no callback has is warned of when a run begins."""
    trainer = bare(Counts(), callback_errors={"Count": "disable"})
    with pytest.warns(TrainerHooksWarning, match=r"speaks of 'Count'.*Did you mean 'Counts'\?"):
        trainer.fit(Tiny(), batches(1))


def test_a_name_of_the_modules_own_callback_is_none(bare, Tiny, batches) -> None:
    """What a module brings or replaces, and what an earlier run disabled, is not misspelt."""

    class Brings(Tiny):
        def configure_callbacks(self):
            return [Other("on_train_batch_end")]

    both = {"Other": "disable", "Counts": "disable"}
    trainer = bare(Counts("on_train_batch_end"), callback_errors=both)
    for model in (Brings(), Tiny()):  # `Other` derives from `Counts`, and replaces it
        with pytest.warns(TrainerHooksWarning, match="failed in hook") as caught:
            trainer.fit(model, batches(3))
        assert len(caught) == 1
    trainer.fit(Tiny(), batches(3))


def test_an_event_of_ones_own_is_shielded_too(bare) -> None:
    """`call_event` treats errors like the trainer's own hooks do."""

    class Listens(Callback):
        def verify(self, value):
            raise ValueError(value)

    trainer = bare(Listens(), callback_errors={"Listens": "disable"})
    with pytest.warns(TrainerHooksWarning, match="failed in hook 'verify'"):
        trainer.call_event("verify", value=3)
    trainer.call_event("verify", value=4)
    trainer = bare(Listens())
    with pytest.raises(ValueError, match="4") as caught:
        trainer.call_event("verify", value=4)
    assert "raised in hook 'verify' of callback" in caught.value.__notes__[0]
