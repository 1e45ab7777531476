"""`check_callback` and `examine_callback`: what they take, return, raise, and leave alone."""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from itertools import pairwise, permutations
from pathlib import Path

import pytest
import torch
import warm_python

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import CallbackError, MetricError, OptionError
from trainer_hooks.hooks.profile import HookProfile
from trainer_hooks.testing import (
    ContractError,
    ContractReport,
    TinyModule,
    check_callback,
    examine_callback,
)
from trainer_hooks.testing.contract import CHECKS
from trainer_hooks.testing.process_state import process_changes, read_process_state

pytestmark = pytest.mark.slow  # likewise, whole contracts


ALL_BUT_RESUMES = [check.name for check in CHECKS if check.name != "resumes"]
"""What tests about resumes leave out: they take a third of a contract's time."""


class Good(Callback):
    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def on_fit_start(self, trainer, module):
        if trainer.progress.is_new_training:
            self.losses = []

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.losses.append(outputs["loss"])

    def state_dict(self):
        return {"losses": list(self.losses)}

    def load_state_dict(self, state_dict):
        self.losses = list(state_dict["losses"])


class Clock(Good):
    """Has a state that is another after a resume, as a clock has."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Clock.made += 1
        self.number = Clock.made

    def state_dict(self):
        return {"number": self.number, **super().state_dict()}

    def load_state_dict(self, state_dict):
        super().load_state_dict(state_dict)
        self.number = state_dict["number"]

    def on_train_start(self, trainer, module):
        self.number += 1


def test_a_good_callback_passes_every_check() -> None:
    """The report names each check, in the order of the table, and all are passed."""
    report = check_callback(Good)
    assert isinstance(report, ContractReport)
    assert [result.name for result in report.results] == [check.name for check in CHECKS]
    assert report.is_passed
    assert all(result.is_passed and result.outcome == "passed" for result in report.results)
    assert str(report).startswith("callback Good keeps the contract in all of 16 checks.")
    notes = {result.name: result.details for result in report.results if result.note}
    assert notes["orders"].startswith("12 orders")
    assert notes["resumes"] == "9 cuts"
    assert " us in the hooks of each training batch" in notes["costs"]


def test_the_costs_are_those_of_the_callback_alone(monkeypatch) -> None:
    """The time in training batches is told apart from that of the other hooks, `on_close` too."""
    now = [0]
    monkeypatch.setitem(HookProfile.__init__.__kwdefaults__, "clock", lambda: now[0])

    class Slow(Callback):
        def on_fit_start(self, trainer, module):
            now[0] += 2_000_000

        def on_close(self, trainer, module):
            now[0] += 500_000

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            now[0] += 3_000

    class SlowModule(TinyModule):
        def on_train_batch_end(self, *_):
            now[0] += 7_000

    others = [check.name for check in CHECKS if check.name != "costs"]
    report = check_callback(Slow, module=SlowModule, skip=others)
    [note] = [result.details for result in report.results if result.note]
    assert note.startswith("3.0 us in the hooks of each training batch, 2.50 ms in all others of")


def test_each_entry_point_comes_first_after_each_other_one_and_last() -> None:
    """The orders hold each first place, each pair alone and in a row, and each last place."""
    orders: list[list[str]] = []

    class Notes(Callback):
        def __init__(self) -> None:
            self.stages: list[str] = []
            orders.append(self.stages)

        def setup(self, trainer, module, stage):
            self.stages.append(stage.value)

    others = [check.name for check in CHECKS if check.name != "orders"]
    report = check_callback(Notes, skip=others)
    stages = ("fit", "validate", "test", "predict")
    # the first run's callback and its twin come before
    whole = [tuple(order) for order in orders[2:]]
    assert f"{len(whole)} orders of {', '.join(stages)}" in str(report)
    assert {order[0] for order in whole} == set(stages)
    assert {order[:2] for order in whole} == set(permutations(stages, 2))
    full = [order for order in whole if len(order) == 4]
    assert {pair for order in full for pair in pairwise(order)} == set(permutations(stages, 2))
    assert {order[-1] for order in full if set(order) == set(stages)} == set(stages)


class ReadsSecondLoader(Callback):
    """Needs a module with two validation loaders."""

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:  # as in Lightning, there are no values of several then
            assert trainer.callback_metrics["val_loss/dataloader_idx_1"] > 0


class TwoLoaders(TinyModule):
    def val_dataloader(self):
        return [super().val_dataloader(), super().val_dataloader()]


def test_a_module_with_two_validation_loaders() -> None:
    """The kit's module may be given another loader, for a callback that needs it."""
    check_callback(ReadsSecondLoader, module=TwoLoaders, skip="resumes")


def test_an_error_is_placed_in_the_callback() -> None:
    """The defect names the callback's line, not that of the library which it called."""
    line = inspect.getsourcelines(ReadsSecondLoader.on_validation_end)[1] + 2
    with pytest.raises(ContractError) as caught:
        check_callback(ReadsSecondLoader)
    text = str(caught.value)
    assert f", at {__file__}:{line}" in text
    assert "no metric 'val_loss/dataloader_idx_1' of the last run." in text
    assert "check_callback(..., module=...)" in text


def test_teardown_gets_its_stage_as_in_a_run() -> None:
    """Also where it is called a second time: a member of `TrainerFn`."""

    class Reads(Callback):
        def teardown(self, trainer, module, stage):
            assert stage.value in {"fit", "validate", "test", "predict"}

    check_callback(Reads, skip="resumes")


def test_the_error_lists_every_defect() -> None:
    """`check_callback` raises one AssertionError with expected, seen and what to do for each."""

    class Bad(Good):
        def on_fit_strat(self, trainer, module):
            pass

        def on_predict_end(self, trainer, module):
            raise ValueError("no predictions")

    with pytest.raises(ContractError) as caught:
        check_callback(Bad)
    assert isinstance(caught.value, AssertionError)
    text = str(caught.value)
    assert "Bad breaks the contract in 2 of 16 checks" in text
    assert text.count("expected: ") >= 2
    assert text.count("what to do: ") == text.count("seen: ") == text.count("expected: ")
    assert "no predictions" in text
    assert "Did you mean 'on_fit_start'?" in text
    assert not caught.value.report.is_passed


@pytest.mark.parametrize("check", [check_callback, examine_callback])
def test_an_instance_is_no_factory(check) -> None:
    """A callback in place of its factory is refused, with what to write."""
    with pytest.raises(CallbackError, match=r"Pass a factory: check_callback\(lambda: Good"):
        check(Good())
    with pytest.raises(CallbackError, match=r"Pass a factory"):
        check([Good, Good()])


@pytest.mark.parametrize("given", ["Good", 3, None, []])
def test_what_cannot_be_called_is_no_factory(given) -> None:
    """So is anything else that cannot be called, and an empty list."""
    with pytest.raises(CallbackError, match="given to the test kit"):
        examine_callback(given)


@pytest.mark.exhaustive
def test_a_factory_of_several_is_checked_for_each() -> None:
    """As a plugin's entry point may, a factory returns a list; each callback has its results."""

    class Bad(Good):
        def on_test_end(self, trainer, module):
            raise ValueError("no tests")

    report = examine_callback(lambda: [Good(), Bad()], skip="resumes")
    assert [(result.subject, result.name) for result in report.failed] == [
        (Bad.__qualname__, "orders")
    ]
    assert len(report.results) == 2 * len(CHECKS)
    assert "callback Good keeps" in str(report)
    assert [r.subject for r in examine_callback([Good, Clock], skip=["resumes"]).results][::16] == [
        "Good",
        "Clock",
    ]


def test_a_check_can_be_left_out() -> None:
    """`skip` leaves out what the callback is meant to break; a wrong name is refused."""

    class Augment(Good):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            torch.rand(1)

    report = check_callback(Augment, skip=["random_numbers", "resumes"])
    assert "not run: random_numbers: left out, as asked" in str(report)
    with pytest.raises(OptionError, match="Did you mean 'random_numbers'"):
        check_callback(Good, skip="random_number")


@pytest.mark.exhaustive
def test_a_state_may_differ_after_a_resume() -> None:
    """A key in `may_differ` is not compared after a resume; all others are."""
    [result] = examine_callback(Clock, skip=ALL_BUT_RESUMES).failed
    assert result.name == "resumes"
    assert "['number']" in result.details
    assert "losses" not in result.details
    check_callback(Clock, may_differ=["number"], skip=ALL_BUT_RESUMES)


@pytest.mark.exhaustive
def test_the_moments_of_a_hook_may_differ_after_a_resume() -> None:
    """A hook that is named is left out of the sequence: a file in the background is done by chance.

    The callback saves at a moment that it does not keep over a resume.
    """

    class Saves(Callback):
        volatile_state = frozenset({"batches", "extra.ckpt"})

        def __init__(self):
            self.batches = 0

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            self.batches += 1
            if self.batches == 5:
                trainer.save_checkpoint("extra.ckpt")

    [result] = examine_callback(Saves, skip=ALL_BUT_RESUMES).failed
    assert "'on_checkpoint_saved" in result.details
    check_callback(Saves, may_differ=["on_checkpoint_saved"], skip=ALL_BUT_RESUMES)


@pytest.mark.exhaustive
def test_the_module_and_the_options_can_be_ones_own() -> None:
    """A callback that needs a metric passes with a module that logs it, and fails without."""

    class Scored(TinyModule):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            self.log("score", float(batch_idx), on_epoch=True)

    with pytest.raises(ContractError, match=MetricError.__name__):
        check_callback(lambda: EarlyStopping("score"))
    seen = []

    class Looks(Callback):
        def on_fit_start(self, trainer, module):
            seen.append((type(module), trainer.max_epochs))

    check_callback(
        lambda: [EarlyStopping("score"), Looks()], module=Scored, trainer_options={"max_epochs": 1}
    )
    assert (Scored, 1) in seen


def test_a_module_that_does_not_train_is_not_the_callbacks_fault() -> None:
    """A module or options that fail without the callback raise what they raise, with a note."""

    class Broken(TinyModule):
        def loss(self, outputs, batch):
            raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss") as caught:
        examine_callback(Good, module=Broken)
    assert "without the callback" in caught.value.__notes__[-1]
    with pytest.raises(OptionError, match="max_epoch"):
        examine_callback(Good, trainer_options={"max_epoch": 2})


@pytest.mark.exhaustive
def test_a_module_without_a_test_step_is_not_tested() -> None:
    """Only the entry points that the module has are tried: here six orders of three."""

    class Plain(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = TinyModule()

        def training_step(self, batch, batch_idx):
            return self.inner.loss(self.inner(batch), batch)

        def validation_step(self, batch, batch_idx):
            pass

        def predict_step(self, batch, batch_idx):
            return self.inner(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self):
            return self.inner.train_dataloader()

        val_dataloader = test_dataloader = predict_dataloader = train_dataloader

    report = check_callback(Good, module=Plain, skip="resumes")
    assert "6 orders of fit, validate, predict" in str(report)


def test_the_kit_leaves_everything_as_it_was(
    tmp_path, tmp_path_factory, monkeypatch, capfd
) -> None:
    """Whatever a callback does to the process is put back; nothing is printed or left in files."""

    class Wild(Callback):
        def on_fit_start(self, trainer, module):
            print("here I am")
            torch.set_default_dtype(torch.float64)
            os.environ["KIT_WILD"] = elsewhere
            os.environ.pop("KIT_KEPT", None)
            os.chdir(Path(os.environ["KIT_WILD"]))
            warnings.simplefilter("ignore")
            torch.manual_seed(0)

        def on_close(self, trainer, module):
            torch.set_grad_enabled(False)

    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KIT_KEPT", "yes")
    before, numbers = read_process_state(), torch.get_rng_state()
    assert not examine_callback(Wild).is_passed
    assert process_changes(before) == ()
    assert torch.equal(numbers, torch.get_rng_state())
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


def test_relative_paths_go_to_a_temporary_folder(tmp_path, monkeypatch) -> None:
    """What a callback writes by a relative path, in its constructor or later, is gone."""
    monkeypatch.chdir(tmp_path)

    class Writer(Callback):
        def __init__(self) -> None:
            self.folder = Path("results").absolute()
            self.folder.mkdir(exist_ok=True)

        def on_fit_end(self, trainer, module):
            Path("result.txt").write_text("done")

    check_callback(Writer, skip="resumes")
    assert list(tmp_path.iterdir()) == []


def test_a_warning_of_the_callback_is_the_users_own(recwarn) -> None:
    """Warnings that the callback gives go where the user's filters send them."""

    class Warns(Callback):
        def on_fit_end(self, trainer, module):
            warnings.warn("beware", UserWarning, stacklevel=1)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [result] = examine_callback(Warns).failed
    assert result.name == "first_fit"
    assert "UserWarning: beware" in result.details


def test_two_tiny_modules_are_equal_and_draw_no_random_numbers() -> None:
    """TinyModule is the same each time, and leaves the global random numbers alone."""
    state = torch.get_rng_state()
    first, second = TinyModule(), TinyModule()
    for module in (first, second):
        trainer = Trainer(
            max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, accelerator="cpu",
        )  # fmt: skip
        trainer.fit(module)
    assert torch.equal(first.layer.weight, second.layer.weight)
    assert torch.equal(state, torch.get_rng_state())
    assert {"train_loss", "val_loss", "val_acc"} <= set(trainer.callback_metrics)


def test_no_option_lets_errors_pass() -> None:
    """A callback that is disabled at its first error would keep every other rule by silence."""

    class Observer(Good):
        on_error = "disable"

        def on_validation_end(self, trainer, module):
            raise LookupError("no such curve")

    for policies in ({}, {"Observer": "disable"}):
        report = examine_callback(Observer, trainer_options={"callback_errors": policies})
        [failed] = report.failed
        assert failed.name == "first_fit"
        assert "LookupError: no such curve (raised in hook 'on_validation_end'" in failed.details


SURGE = """
from trainer_hooks import Callback, Hooks

class SurgeHooks(Hooks):
    def on_surge(self, trainer, module, height):
        '''Called after a batch with a surge.'''

class Watch(Callback, SurgeHooks):
    on_error = "disable"
    made = 0

    def __init__(self):
        Watch.made += 1
        self.batches = self.surges = 0

    def on_fit_start(self, trainer, module):
        if trainer.progress.is_new_training:
            self.batches = self.surges = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.batches += 1
        if self.batches % 2 == 0:
            trainer.call_event("on_surge", height=1.5)

    def on_surge(self, trainer, module, height):
        self.surges += 1
        assert [type(item) for item in trainer.callbacks].count(Watch) == 1

    def state_dict(self):
        return {"batches": self.batches, "surges": self.surges}

    def load_state_dict(self, state):
        self.batches, self.surges = state["batches"], state["surges"]

def make():
    return Watch()
"""
CHECKING = """
import sys
sys.path.insert(0, sys.argv[1])
import surge_package
from trainer_hooks.testing import check_callback
print(check_callback(surge_package.make))
"""


def test_hooks_of_installed_packages_are_there(tmp_path, monkeypatch) -> None:
    """A package's callback can fire a hook of the package; the package's plugins take no part."""
    (tmp_path / "surge_package.py").write_text(SURGE)
    info = tmp_path / "surge_package-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: surge-package\nVersion: 2.0\n")
    # under one name, which must not bring the callback when the hooks are asked for
    (info / "entry_points.txt").write_text(
        "[trainer_hooks.hooks]\nsurge = surge_package:SurgeHooks\n"
        "[trainer_hooks.callbacks_factory]\nsurge = surge_package:make\n"
    )
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    done = warm_python.run(
        [sys.executable, "-c", CHECKING, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "callback Watch keeps the contract in all of 16 checks." in done.stdout
