"""The kit finds state that no checkpoint holds, names it, and leaves what is harmless alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.testing import check_callback, examine_callback

pytestmark = pytest.mark.slow  # a dozen trainings for each callback

OTHER_CHECKS = [
    "orders", "closing", "refits", "failing_run", "neighbours", "costs", "global_state",
    "random_numbers",
]  # fmt: skip


class Stopper(Callback):
    """Counts batches, stops at the twentieth, and forgets everything."""

    def __init__(self) -> None:
        self.n = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.n += 1
        if self.n >= 20:
            trainer.stop("enough")


class SavesNothing(Stopper):
    def state_dict(self):
        return {}


class SavesAll(Stopper):
    def state_dict(self):
        return {"n": self.n}

    def load_state_dict(self, state_dict):
        self.n = state_dict["n"]


def defects(factory, **options) -> list[str]:
    """Return what the check of resumes finds, defect by defect."""
    report = examine_callback(factory, skip=OTHER_CHECKS, **options)
    assert [result.name for result in report.failed] in ([], ["resumes"]), str(report)
    return [str(defect) for result in report.failed for defect in result.defects]


@pytest.mark.parametrize("kind", [Stopper, SavesNothing])
def test_a_counter_that_is_in_no_state_is_named(kind) -> None:
    """The attribute, its values with and without a resume, and what to do; and that it shows."""
    first, *others = defects(kind)
    assert "`n` is 20 in the uncut run and " in first
    assert " after a resume (cut after " in first
    assert "Keep it in state_dict() and take it back in load_state_dict()." in first
    assert "volatile_state = frozenset({'n'})" in first
    [length] = [text for text in others if "the length, and the reason to stop," in text]
    assert "run['batches']: 20 and " in length


def test_a_stop_that_was_requested_needs_no_state() -> None:
    """A checkpoint holds the request, so that a callback need not make it again."""
    check_callback(SavesAll)


class Box:
    __slots__ = ("draws", "seen")

    def __init__(self) -> None:
        self.seen = torch.zeros(2)
        self.draws = torch.Generator().manual_seed(1)


class Nested(Callback):
    """Keeps a tensor and a generator in the slots of an object in an attribute."""

    def __init__(self) -> None:
        self.box = Box()
        self._batch = None
        self.history: list[int] = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self._batch = batch  # is another with each batch, and the same in both runs
        self.box.seen += torch.rand(2, generator=self.box.draws)
        self.history.append(batch_idx)


@pytest.mark.exhaustive
def test_whatever_hangs_on_a_callback_is_found() -> None:
    """Slots, parts of objects, tensors and lists are compared and named.

    The generator is not lost: checkpoints hold those that callbacks keep.
    """
    found = defects(Nested)
    assert [text.split("`")[1] for text in found] == ["box.seen", "history"]
    declared = type("Declared", (Nested,), {"volatile_state": frozenset({"box", "history"})})
    assert defects(declared) == []
    assert defects(Nested, may_differ=["box.*", "history"]) == []


class Harmless(Callback):
    """Holds what no resume need bring back: the run, times, code, what each batch makes anew."""

    def __init__(self) -> None:
        self.trainer = self.module = self.optimizer = None
        self.function = lambda value: value
        self._last = None

    def on_train_start(self, trainer, module):
        import threading
        import time

        self.trainer, self.module, self.optimizer = trainer, module, trainer.optimizers[0]
        self.lock = threading.Lock()
        self.began = time.perf_counter()
        self.itself = [self]

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self._last = outputs["loss"]


class Shows(Callback):
    """Keeps a result that others read, and makes it anew in each epoch."""

    def __init__(self) -> None:
        self._losses = []
        self.latest = None

    @property
    def count(self):
        return len(self._losses)

    def on_train_epoch_start(self, trainer, module):
        self._losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self._losses.append(float(outputs["loss"]))
        self.latest = self._losses[-1]


def test_results_are_the_same_at_the_end_even_of_a_run_that_was_over() -> None:
    """What is public is compared at the end, after a cut at the last moment too."""
    found = defects(Shows)
    assert {text.split("`")[1] for text in found} == {"count", "latest"}
    assert all("compared at the end" in text for text in found)


def test_what_is_no_state_is_left_alone() -> None:
    """References to the run, locks, functions, times and circles are not reported."""
    assert defects(Harmless) == []


class LogsCount(Callback):
    """Logs, each third batch, how often it did, by a count that hangs on nothing it holds."""

    def on_fit_start(self, trainer, module):
        count = iter(range(100))
        self.next = lambda: next(count)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        trainer.log_metrics({"count": float(self.next())})


class Writes(Callback):
    """Writes a line for each epoch; a resumed run begins its file anew."""

    def on_train_start(self, trainer, module):
        Path("epochs.txt").write_text("")

    def on_train_epoch_end(self, trainer, module):
        with Path("epochs.txt").open("a") as file:
            print(trainer.current_epoch, file=file)


class AsksForValidation(Callback):
    """Asks for a validation at the tenth batch of a process."""

    volatile_state = frozenset({"n"})

    def on_train_start(self, trainer, module):
        self.n = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.n += 1
        if self.n == 10:
            trainer.request_validation()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (LogsCount, "ends with the metrics of"),
        (Writes, "epochs.txt holds something else"),
        (AsksForValidation, "ends with the sequence of hooks of"),
    ],
)
def test_outer_effects_are_compared(kind, words) -> None:
    """What is logged, written, and asked of the trainer must be the same, whoever holds what."""
    assert any(words in text for text in defects(kind))
