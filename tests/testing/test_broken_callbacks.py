"""Each check finds what it is for, and nothing else does."""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import sys
import threading
import warnings
from typing import TYPE_CHECKING

import pytest
import torch
from samples import one_in

from trainer_hooks import Callback
from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.testing import examine_callback

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # trainings for each of fifty callbacks


class Counter(Callback):
    """A callback without a fault, which the others spoil."""

    def __init__(self) -> None:
        self.batches = 0

    def on_fit_start(self, trainer, module):
        if trainer.progress.is_new_training:
            self.batches = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state_dict):
        self.batches = state_dict["batches"]


class NeedsArgument(Counter):
    def __init__(self, name) -> None:
        super().__init__()


class Misspelt(Counter):
    def on_train_epoch_stop(self, trainer, module):
        pass


class WrongSignature(Counter):
    pass


# in the class's own body it would be an error at once
WrongSignature.on_train_epoch_end = lambda self, trainer: None


class FitFails(Counter):
    def on_train_epoch_end(self, trainer, module):
        raise ValueError("no epochs, please")


class InitFails(Counter):
    def on_init_end(self, trainer):
        raise ValueError("no trainers, please")


class TestFails(Counter):
    __test__ = False

    def on_test_start(self, trainer, module):
        raise ValueError("no tests, please")


class TestBeforeFitFails(Counter):
    __test__ = False
    seen = None

    def on_fit_start(self, trainer, module):
        super().on_fit_start(trainer, module)
        self.seen = {}

    def on_test_start(self, trainer, module):
        self.seen["test"] = True


class SecondFitFails(Counter):
    file = None

    def on_fit_start(self, trainer, module):
        super().on_fit_start(trainer, module)
        if self.file is not None:
            raise ValueError("is open already")
        self.file = "opened"


class TeardownTwiceFails(Counter):
    def setup(self, trainer, module, stage):
        self.parts = {"file": 1}

    def teardown(self, trainer, module, stage):
        del self.parts["file"]


class CloseTwiceFails(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.parts = {"file": 1}

    def on_close(self, trainer, module):
        del self.parts["file"]


class CloseWithoutRunFails(Counter):
    def on_post_close(self, trainer, module):
        module.eval()


class FailsWhenOthersFail(Counter):
    def on_exception(self, trainer, module, exception):
        raise KeyError("epoch_time")


class SwallowsInto(Counter):
    def teardown(self, trainer, module, stage):
        if self.batches == 2:
            raise ValueError("two batches only?")


class KeyWithId(Counter):
    @property
    def state_key(self):
        return f"Counter {id(self)}"


class KeyWithAddress(Counter):
    @property
    def state_key(self):
        return f"Counter of {Counter.state_dict}"


class KeyWithProcess(Counter):
    @property
    def state_key(self):
        return f"Counter-{os.getpid()}"


class StateNotPlain(Counter):
    def state_dict(self):
        return {"batches": self.batches, "where": print}


class StateNotTakenBack(Counter):
    def load_state_dict(self, state_dict):
        pass


class StateOfOtherType(Counter):
    def load_state_dict(self, state_dict):
        self.batches = float(state_dict["batches"])


class StateLost(Counter):
    """Counts on from what it saved, but what it counts by is not in its state."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += self.weight
        self.weight += 1


class ForgetsAtFitStart(Counter):
    def on_fit_start(self, trainer, module):
        self.batches = 0


class ChangesTraining(Callback):
    """Raises the learning rate after so many batches, which it forgets."""

    def __init__(self) -> None:
        self.seen = 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.seen += 1
        if self.seen == 2:
            with torch.no_grad():
                module.layer.weight += 0.5


class ResumeFails(Counter):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        super().on_train_batch_end(trainer, module, outputs, batch, batch_idx)
        if self.batches == 1:
            self.first_loss = outputs["loss"]
        self.first_loss.item()


class SharedList(Callback):
    losses: list = []  # noqa: RUF012 - the fault

    def on_train_epoch_end(self, trainer, module):
        self.losses.append(trainer.current_epoch)


class SharedDefault(Callback):
    def __init__(self, seen={}) -> None:  # noqa: B006 - the fault
        self.seen = seen

    def on_train_epoch_end(self, trainer, module):
        self.seen[trainer.current_epoch] = len(self.seen)


class SharedCount(Counter):
    total = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        SharedCount.total += 1

    def state_dict(self):
        return {"batches": self.total}

    def load_state_dict(self, state_dict):
        SharedCount.total = state_dict["batches"]

    def on_fit_start(self, trainer, module):
        if trainer.progress.is_new_training:
            SharedCount.total = 0


class DrawsFromTorch(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        torch.rand(1)


class DrawsFromPython(Callback):
    def on_test_end(self, trainer, module):
        random.random()


class Seeds(Callback):
    def on_fit_start(self, trainer, module):
        import numpy as np

        np.random.seed(1)


class DropsNeighbours(Counter):
    def on_save_checkpoint(self, trainer, module, checkpoint):
        checkpoint["callbacks"] = {self.state_key: self.state_dict()}


class ChangesHparams(Callback):
    def on_fit_start(self, trainer, module):
        module.hparams["lr"] = 3


_GO_ON = threading.Event()
_ELSEWHERE: list[Path] = []


class LeaksThread(Callback):
    def on_fit_start(self, trainer, module):
        threading.Thread(target=_GO_ON.wait, name="watcher", daemon=True).start()


_OPENED: list[int] = []


class LeaksFile(Callback):
    def on_fit_start(self, trainer, module):
        _OPENED.append(os.open("losses.txt", os.O_CREAT | os.O_WRONLY))


def once(act):
    """A callback that acts when the first of its kind is made, and never again."""

    class Once(Callback):
        is_done = False

        def __init__(self) -> None:
            if not Once.is_done:
                Once.is_done = True
                act()

    return Once


def at_fit(act):
    return lambda: LambdaCallback(on_fit_start=lambda trainer, module: act())


def handle_signal():
    signal.signal(signal.SIGUSR1, lambda number, frame: None)


def leave():
    os.chdir(_ELSEWHERE[-1])


def allow_tf32():
    torch.set_float32_matmul_precision("high")


class Handler(logging.Handler):
    def emit(self, record):
        pass


CASES = {
    "needs an argument": (NeedsArgument, "construction", "missing 1 required positional"),
    "makes a class": (lambda: Counter, "construction", "Write Counter(...) instead of Counter"),
    "makes nothing": (lambda: None, "construction", "must be an instance of"),
    "makes an empty list": (list, "construction", "an empty list"),
    "makes one only": ((lambda c: lambda: c)(Counter()), "construction", "same object"),
    "misspelt hook": (Misspelt, "hook_names", "'on_train_epoch_stop' is no hook"),
    "signature": (WrongSignature, "hook_signatures", "on_train_epoch_end(self, trainer, module)"),
    "fit": (FitFails, "first_fit", "raised in hook 'on_train_epoch_end'"),
    "init": (InitFails, "first_fit", "by Trainer(callbacks=[...])"),
    "test": (TestFails, "orders", "raised in hook 'on_test_start'"),
    "test before fit": (TestBeforeFitFails, "orders", "in test, first of all"),
    "second fit": (SecondFitFails, "refits", "in a second fit"),
    "teardown twice": (TeardownTwiceFails, "closing", "when teardown of fit is called a second"),
    "close twice": (CloseTwiceFails, "closing", "when on_close is called a second time"),
    "close at once": (CloseWithoutRunFails, "closing", "closed that ran nothing"),
    "error on error": (FailsWhenOthersFail, "failing_run", "'epoch_time'"),
    "error in teardown": (SwallowsInto, "failing_run", "two batches only?"),
    "id in key": (KeyWithId, "state_key", "two callbacks of one factory have the same"),
    "address in key": (KeyWithAddress, "state_key", "holds an address"),
    "process in key": (KeyWithProcess, "state_key", "holds the number of the process"),
    "state not plain": (StateNotPlain, "state_round_trip", "state['where']"),
    "state not back": (StateNotTakenBack, "state_round_trip", "state['batches']: 3 and 0"),
    "state's type": (StateOfOtherType, "state_round_trip", "state['batches']: 3 and 3.0"),
    "state lost": (StateLost, "resumes", "callbacks['StateLost']['batches']"),
    "state reset": (ForgetsAtFitStart, "resumes", "if trainer.progress.is_new_training"),
    "training": (ChangesTraining, "resumes", "apart"),
    "resume raises": (ResumeFails, "resumes", "cut after batch 1 and resumed"),
    "shared list": (SharedList, "shared_state", "SharedList.losses was [] and is [0]"),
    "shared default": (SharedDefault, "shared_state", "the attribute 'seen'"),
    "shared number": (SharedCount, "shared_state", "state_dict()['batches']: 0 and 3"),
    "torch's numbers": (DrawsFromTorch, "random_numbers", "random numbers of torch"),
    "Python's numbers": (DrawsFromPython, "random_numbers", "random numbers of python"),
    "NumPy's numbers": (Seeds, "random_numbers", "random numbers of numpy"),
    "neighbours": (DropsNeighbours, "neighbours", "checkpoint['callbacks']"),
    "hparams": (ChangesHparams, "neighbours", "hparams['lr']: 0.1 and 3"),
    "thread": (LeaksThread, "global_state", "threads 'watcher': nothing before, running"),
    "file": (LeaksFile, "global_state", "losses.txt': nothing before, open"),
    "grad mode": (
        lambda: LambdaCallback(on_close=lambda trainer, module: torch.set_grad_enabled(False)),
        "global_state",
        "grad mode: True before, False afterwards",
    ),
    "dtype": (
        lambda: LambdaCallback(
            on_close=lambda trainer, module: torch.set_default_dtype(torch.float64)
        ),
        "global_state",
        "torch.float32 before, torch.float64 afterwards",
    ),
    "determinism": (
        at_fit(lambda: torch.use_deterministic_algorithms(True)),
        "global_state",
        "determinism 'algorithms': False before, True",
    ),
    "precision": (at_fit(allow_tf32), "global_state", "matmul precision: highest before, high"),
    "signal handler": (at_fit(handle_signal), "global_state", "signal handler 'SIGUSR1'"),
    "once": (once(handle_signal), "global_state", "signal handler 'SIGUSR1'"),
    "warnings": (
        at_fit(lambda: warnings.simplefilter("ignore")),
        "global_state",
        "warnings 'filters'",
    ),
    "environment": (
        at_fit(lambda: os.environ.update(KIT_SPOILT="yes")),
        "global_state",
        "environment variable 'KIT_SPOILT': nothing before, yes",
    ),
    "working directory": (at_fit(leave), "global_state", "elsewhere afterwards"),
    "root logger": (
        at_fit(lambda: logging.getLogger().addHandler(Handler())),
        "global_state",
        "root logger's 'handlers'",
    ),
    "stdout": (
        at_fit(lambda: setattr(sys, "stdout", sys.__stdout__)),
        "global_state",
        "sys 'stdout'",
    ),
    "garbage collection": (at_fit(gc.disable), "global_state", "garbage collection: True before"),
}
RAISING = (
    "fit",
    "init",
    "test",
    "second fit",
    "error on error",
    "error in teardown",
    "resume raises",
)
# the same where the class says that an error takes it out of the run, and does not end that
CASES |= {
    f"{name}, disabled": (
        type(CASES[name][0].__name__, (CASES[name][0],), {"on_error": "disable"}),
        *CASES[name][1:],
    )
    for name in RAISING
}


@pytest.mark.parametrize("name", one_in(12, CASES))
def test_one_check_finds_the_fault(name, tmp_path) -> None:
    """A callback with one fault fails that check alone, with a message that says what it is."""
    factory, check, words = CASES[name]
    _ELSEWHERE.append(tmp_path / "elsewhere")
    _ELSEWHERE[-1].mkdir()
    try:
        report = examine_callback(factory, trainer_options={"max_epochs": 1})
    finally:
        _GO_ON.set()
        _GO_ON.clear()
        while _OPENED:
            os.close(_OPENED.pop())
    assert [result.name for result in report.failed] == [check], str(report)
    assert words in report.failed[0].details
    assert words in str(report)
    assert not report.is_passed


def test_all_faults_are_listed() -> None:
    """Faults that have nothing to do with each other are found in one go."""

    class Bad(TestFails, Misspelt, SecondFitFails, ForgetsAtFitStart, KeyWithId):
        def on_fit_start(self, trainer, module):
            super().on_fit_start(trainer, module)
            torch.rand(1)
            handle_signal()

    found = {result.name for result in examine_callback(Bad).failed}
    assert found == {
        "hook_names", "orders", "refits", "random_numbers", "global_state",
        "state_key",
    }  # fmt: skip


def test_a_check_is_not_run_where_it_would_tell_the_same_again() -> None:
    """What needs a fit is not run if no fit works, and says so; it is no defect."""
    report = examine_callback(FitFails)
    skipped = {result.name: result for result in report.results if result.not_run}
    assert {"orders", "resumes", "costs"} <= set(skipped)
    assert skipped["orders"].outcome == "not run"
    assert "not run: orders: it needs first_fit" in str(report)
