"""One instance of a callback in one run at a time."""

from __future__ import annotations

import threading

import pytest
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Trainer
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.testing import TinyModule

QUIET = {**QUIET_OPTIONS, "max_epochs": 1}
BOTH = (
    r"callback Counter .* is inside fit of TinyModule \(Trainer at 0x\w+\), and (fit|validate) of "
    r"Other \(Trainer at 0x\w+\) would use the same instance"
)


class Other(TinyModule):
    """Another module."""


class Counter(Callback):
    """Count batches and the ends of runs."""

    def __init__(self) -> None:
        self.batches = self.ends = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.batches += 1

    def teardown(self, trainer, module, stage) -> None:
        self.ends += 1


class Inside(Callback):
    """Do something in the first batch."""

    def __init__(self, act) -> None:
        self.act = act

    def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
        if batch_idx == 0:
            self.act()


@pytest.mark.parametrize("fn", ["fit", "validate"])
def test_two_runs_at_once_are_refused(fn) -> None:
    """The error names both runs, nothing of the second has begun, and the first goes on."""
    shared = Counter()
    second = Trainer(callbacks=[shared], **QUIET)

    def nested() -> None:
        with pytest.raises(CallbackError, match=BOTH):
            getattr(second, fn)(Other())
        assert shared.ends == 0
        assert second.state.fn is None

    first = Trainer(callbacks=[shared, Inside(nested)], **QUIET)
    first.fit(TinyModule())
    assert (shared.batches, shared.ends) == (3, 1)
    second.fit(Other())
    assert (shared.batches, shared.ends) == (6, 2)


def test_one_that_is_added_or_brought_is_refused_too() -> None:
    """It does not matter how the second run came by the instance."""
    shared = Counter()

    class Bringing(Other):
        def configure_callbacks(self):
            return [shared]

    def nested() -> None:
        with pytest.raises(CallbackError, match="is inside fit of TinyModule"):
            Trainer(**QUIET).fit(Bringing())
        added = Trainer(callbacks=[Inside(lambda: added.add_callback(shared))], **QUIET)
        with pytest.raises(CallbackError, match="is inside fit of TinyModule"):
            added.fit(Other())

    Trainer(callbacks=[shared, Inside(nested)], **QUIET).fit(TinyModule())
    assert shared.batches == 3


def test_in_another_thread() -> None:
    """Runs in two threads are two runs at once."""
    shared, found = Counter(), []

    def run() -> None:
        try:
            Trainer(callbacks=[shared], **QUIET).fit(Other())
        except CallbackError as error:
            found.append(str(error))

    def threaded() -> None:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    Trainer(callbacks=[shared, Inside(threaded)], **QUIET).fit(TinyModule())
    assert len(found) == 1


def test_one_run_after_another_is_fine() -> None:
    """A run that is over, by whatever end, lets go of its callbacks."""
    shared = Counter()

    def fail() -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        Trainer(callbacks=[shared, Inside(fail)], **QUIET).fit(TinyModule())
    trainer = Trainer(callbacks=[shared], **QUIET)
    trainer.fit(TinyModule())
    trainer.validate()
    Trainer(callbacks=[shared], **QUIET).fit(Other())
    assert (shared.batches, shared.ends) == (6, 4)


def test_the_same_trainer_inside_itself_is_another_error() -> None:
    """It is told that one trainer runs one thing at a time, and goes on holding its callbacks."""
    shared = Counter()
    trainers: list[Trainer] = []

    def nested() -> None:
        with pytest.raises(UsageError, match="was called inside fit of the same trainer"):
            trainers[0].fit(Other())
        with pytest.raises(CallbackError, match="is inside"):
            Trainer(callbacks=[shared], **QUIET).fit(Other())

    trainers.append(Trainer(callbacks=[shared, Inside(nested)], **QUIET))
    trainers[0].fit(TinyModule())


def test_a_run_that_fails_as_it_ends_lets_go() -> None:
    """An error while tearing down leaves no callback inside the run."""

    class Breaks(Callback):
        def teardown(self, trainer, module, stage) -> None:
            raise RuntimeError("torn")

    shared = Counter()
    with pytest.raises(RuntimeError, match="torn"):
        Trainer(callbacks=[shared, Breaks()], **QUIET).fit(TinyModule())
    Trainer(callbacks=[shared], **QUIET).fit(TinyModule())
    assert shared.ends == 2
