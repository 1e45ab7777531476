"""`Trainer(profiler=...)`: which actions of a run a profiler is told of, and what others cost."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from trainer_hooks import Callback, Trainer
from trainer_hooks.errors import OptionError
from trainer_hooks.profilers import PassThroughProfiler, Profiler, SimpleProfiler


class Notes(Profiler):
    """Notes every call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def start(self, action_name):
        self.calls.append(f"+{action_name}")

    def stop(self, action_name):
        self.calls.append(f"-{action_name}")

    def setup(self, stage, local_rank=None, log_dir=None):
        self.calls.append(f"setup {stage.value} {local_rank}")

    def teardown(self, stage):
        self.calls.append(f"teardown {stage.value}")

    def describe(self):
        self.calls.append("describe")


@pytest.fixture
def Both(Tiny):
    """A module with all steps and a hook."""

    class Both(Tiny):
        def validation_step(self, batch, batch_idx):
            pass

        test_step = validation_step

        def predict_step(self, batch, batch_idx):
            return batch

        def on_train_epoch_end(self):
            pass

    return Both


class Ends(Callback):
    """Has a hook."""

    def on_train_end(self, trainer, module):
        pass


def test_an_object_that_cannot_profile_is_refused() -> None:
    """It must have the methods of a profiler."""
    with pytest.raises(OptionError, match="'simple', 'advanced', 'pytorch'"):
        Trainer(profiler=object())
    with pytest.raises(OptionError, match="profiler"):
        Trainer(profiler=SimpleProfiler)


def test_the_actions_of_a_fit(bare, Both, batches) -> None:
    """The loop's parts, the steps and every hook that somebody has, one inside another."""
    notes = Notes()
    trainer = bare(Ends(), profiler=notes)
    trainer.fit(Both(), batches(2), batches(1))
    batch = [
        "+train_dataloader_next", "-train_dataloader_next",
        "+run_training_batch",
        "+training_step", "-training_step", "+backward", "-backward",
        "+optimizer_step", "-optimizer_step",
        "-run_training_batch",
    ]  # fmt: skip
    assert notes.calls == [
        "setup fit 0",
        "+run_training_epoch",
        *batch,
        *batch,
        "+run_validation", "+validation_step", "-validation_step", "-run_validation",
        "+[Module]Both.on_train_epoch_end", "-[Module]Both.on_train_epoch_end",
        "-run_training_epoch",
        "+[Callback]Ends.on_train_end", "-[Callback]Ends.on_train_end",
        "describe",
        "teardown fit",
    ]  # fmt: skip


@pytest.mark.parametrize(("fn", "step"), [("test", "test_step"), ("predict", "predict_step")])
def test_the_actions_of_an_evaluation(fn, step, bare, Both, batches) -> None:
    """Each batch is a step."""
    notes = Notes()
    getattr(bare(profiler=notes), fn)(Both(), batches(2))
    assert notes.calls[1:-2] == [f"+{step}", f"-{step}"] * 2


def test_all_is_stopped_where_a_run_fails(bare, Tiny) -> None:
    """What is open is ended, and the profiler tells what it found by then."""
    notes = Notes()
    with pytest.raises(RuntimeError):
        bare(profiler=notes).fit(Tiny(), [torch.ones(1, 9)])
    opened = [call for call in notes.calls if call[0] in "+-"]
    assert sum(1 if call[0] == "+" else -1 for call in opened) == 0
    assert notes.calls[-2:] == ["describe", "teardown fit"]


def test_a_second_run_is_not_watched_twice(bare, Both, batches) -> None:
    """It is put in and taken out by each."""
    profiler = SimpleProfiler()
    trainer = bare(profiler=profiler)
    trainer.fit(Both(), batches(2))
    trainer.test(Both(), batches(3), verbose=False)
    assert len(profiler.recorded_durations["training_step"]) == 2
    assert len(profiler.recorded_durations["test_step"]) == 3


def test_parts_of_ones_own_are_measured(bare, Tiny, batches) -> None:
    """`trainer.profiler` is there with a profiler and without."""

    class Own(Tiny):
        def training_step(self, batch, batch_idx):
            with self.trainer.profiler.profile("mine"):
                return super().training_step(batch, batch_idx)

    trainer = bare(profiler="simple")
    trainer.fit(Own(), batches(2))
    assert len(trainer.profiler.recorded_durations["mine"]) == 2
    trainer = bare()
    trainer.fit(Own(), batches(2))
    assert isinstance(trainer.profiler, PassThroughProfiler)


@pytest.mark.parametrize("name", ["simple", "Advanced", "pytorch"])
def test_profilers_by_name(name, bare, Both, batches, tmp_path, caplog) -> None:
    """Each logs what it found, and trains the same."""
    plain, trainer = bare(), bare(profiler=name)
    modules = []
    for one in (plain, trainer):
        torch.manual_seed(1)
        modules.append(Both())
        caplog.clear()
        one.fit(modules[-1], batches(6))
    assert type(trainer.profiler).__name__.lower() == f"{name}profiler".lower()
    assert "FIT profile" in caplog.text
    assert torch.equal(modules[0].layer.weight, modules[1].layer.weight)
    assert not modules[1].layer._forward_hooks


def test_it_goes_with_a_profile_of_hooks(bare, Both, batches, capsys) -> None:
    """Both look on at the same calls."""
    notes = Notes()
    trainer = bare(Ends(), profiler=notes, profile_hooks=True)
    trainer.fit(Both(), batches(1))
    assert "+[Callback]Ends.on_train_end" in notes.calls
    assert {record.hook for record in trainer.hook_profile.records} >= {"on_train_end"}
    assert "Ends" in capsys.readouterr().out


def _calls_of_a_step(trainer: Trainer, module) -> list[str]:
    """Return the functions of the package that a batch calls."""
    called: list[str] = []

    class Counts(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 2:
                sys.setprofile(note)

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            sys.setprofile(None)

    def note(frame, event, _):
        if event == "call" and "trainer_hooks" in frame.f_code.co_filename:
            called.append(frame.f_code.co_name)

    trainer.add_callback(Counts())
    trainer.fit(module, [torch.ones(1, 2)] * 4)
    return called


@pytest.mark.slow
def test_a_step_without_a_profiler_calls_nothing_of_it(bare, Both) -> None:
    """A run after one with a profiler, and one without, call the same functions in a batch."""
    before = _calls_of_a_step(bare(), Both())
    watched = _calls_of_a_step(bare(profiler=Notes()), Both())
    assert _calls_of_a_step(bare(), Both()) == before
    assert {"measured", "_begin", "_end"} <= set(watched)
    assert not {"measured", "_begin", "_end", "watched"} & set(before)
    code = "import trainer_hooks as t; t.Trainer(logger=False); import sys; "
    code += "assert not [m for m in sys.modules if m.startswith('trainer_hooks.profilers')]"

    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
