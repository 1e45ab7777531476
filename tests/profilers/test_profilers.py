"""The profilers by themselves: what they refuse, find, and write."""

from __future__ import annotations

import copy
import pickle
import pstats

import pytest
import torch
from torch.profiler import ProfilerAction, ProfilerActivity

from trainer_hooks import Module, Trainer
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.profilers import (
    AdvancedProfiler,
    PassThroughProfiler,
    Profiler,
    PyTorchProfiler,
    SimpleProfiler,
)

KINDS = [SimpleProfiler, AdvancedProfiler, PyTorchProfiler, PassThroughProfiler]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "bad", [{"dirpath": 3}, {"filename": ""}, {"filename": "a/b"}, {"filename": 3}], ids=str
)
def test_a_place_that_is_none_is_refused(kind, bad) -> None:
    """A folder is a path, and a file's name has no folder in it."""
    with pytest.raises(OptionError, match=rf"of {kind.__name__}: it must be"):
        kind(**bad)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "all", None])
def test_a_restriction_that_is_none_is_refused(value) -> None:
    """Lines are a number from 1 on, or a share."""
    with pytest.raises(OptionError, match="line_count_restriction"):
        AdvancedProfiler(line_count_restriction=value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"sort_by_key": "time"}, "sort_by_key 'time' of PyTorchProfiler: it must be one of"),
        ({"schedule": 3}, "schedule 3 of PyTorchProfiler: it must be a function"),
        ({"schedule": str}, "a torch.profiler.ProfilerAction"),
        ({"activities": "gpu"}, "activities 'gpu' of PyTorchProfiler: it must be one of 'cpu'"),
        ({"activities": []}, "they must be one or more of 'cpu'"),
    ],
)
def test_what_torch_cannot_record_is_refused(bad, message) -> None:
    """Each argument has its rule."""
    with pytest.raises(OptionError, match=message):
        PyTorchProfiler(**bad)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_marks_for_nsys_need_a_gpu() -> None:
    """`emit_nvtx` marks what a GPU does."""
    with pytest.raises(OptionError, match="there is none here"):
        PyTorchProfiler(emit_nvtx=True)


def test_the_base_cannot_be_made() -> None:
    """A profiler must say what `start` and `stop` do."""
    with pytest.raises(TypeError, match="abstract"):
        Profiler()


@pytest.mark.parametrize("kind", [SimpleProfiler, AdvancedProfiler, PyTorchProfiler])
def test_what_was_not_started_is_not_stopped(kind, tmp_path) -> None:
    """The error names the action."""
    profiler = kind(dirpath=tmp_path)
    profiler.setup("fit")
    with pytest.raises(UsageError, match=r"stop\('it'\): this action was never started"):
        profiler.stop("it")
    profiler.teardown("fit")


def test_simple_times_an_action_once_at_a_time() -> None:
    """One that has started must be stopped first."""
    profiler = SimpleProfiler()
    profiler.start("it")
    with pytest.raises(UsageError, match="has started already"):
        profiler.start("it")


def test_simple_tells_calls_and_times() -> None:
    """Each action has its times, also one that failed; the most expensive stands first."""
    profiler = SimpleProfiler()
    profiler.setup("fit")
    with pytest.raises(ValueError, match="no"), profiler.profile("outer"):
        for _ in range(3):
            with profiler.profile("inner"):
                pass
        raise ValueError("no")
    assert {name: len(t) for name, t in profiler.recorded_durations.items()} == {
        "inner": 3,
        "outer": 1,
    }
    assert profiler.current_actions == {}
    lines = profiler.summary().splitlines()
    assert lines[0] == "FIT profile"
    assert lines[1].split() == ["action", "mean", "(s)", "calls", "total", "(s)", "share"]
    assert [line.split()[0] for line in lines[3:]] == ["total", "outer", "inner"]
    assert lines[3].split()[2] == "4"
    profiler.extended = False
    assert profiler.summary().splitlines()[1].split() == ["action", "mean", "(s)", "total", "(s)"]


def _busy() -> int:
    return sum(range(1000))


def test_advanced_counts_calls_for_the_innermost_action(tmp_path) -> None:
    """What is called inside of an inner action is not the outer one's."""
    profiler = AdvancedProfiler(dirpath=tmp_path, filename="calls", dump_stats=True)
    profiler.setup("fit")
    with profiler.profile("outer"):
        _busy()
        with profiler.profile("inner [a]"):
            _busy()
            _busy()
        _busy()
    profiler.describe()
    text = (tmp_path / "fit-calls.txt").read_text()
    assert "outer\n" in text
    calls = {}
    for path in tmp_path.glob("*.prof"):
        stats = pstats.Stats(str(path)).stats
        calls[path.name] = sum(n for (_, _, name), (n, *_) in stats.items() if name == "_busy")
    assert calls == {"fit-outer.prof": 2, "fit-inner_a_.prof": 2}


def test_advanced_shows_as_many_lines_as_it_may() -> None:
    """A number restricts the lines of each action."""
    profiler = AdvancedProfiler(line_count_restriction=1)
    with profiler.profile("it"):
        _busy()
    assert "due to restriction <1>" in profiler.summary()


def test_pytorch_records_as_the_schedule_says(tmp_path) -> None:
    """Three batches after two, with the actions in them; then a table and a trace."""
    profiler = PyTorchProfiler(dirpath=tmp_path, filename="ops", activities=ProfilerActivity.CPU)
    profiler.setup("fit")
    for _ in range(7):
        with profiler.profile("run_training_batch"), profiler.profile("mine"):
            torch.ones(3) @ torch.ones(3)
    profiler.describe()
    profiler.teardown("fit")
    text = (tmp_path / "fit-ops.txt").read_text()
    [row] = [line for line in text.splitlines() if line.split()[:1] == ["mine"]]
    assert row.split()[-1] == "3"
    assert [path.name for path in tmp_path.glob("*.gz")] == ["fit-trace-0.json.gz"]
    assert not torch.autograd._profiler_enabled()


def test_pytorch_hands_what_it_recorded_to_a_function(tmp_path) -> None:
    """Instead of writing a trace; a schedule of one's own decides when."""
    seen = []

    def schedule(step: int) -> ProfilerAction:
        return ProfilerAction.RECORD_AND_SAVE if step % 2 else ProfilerAction.WARMUP

    profiler = PyTorchProfiler(
        dirpath=tmp_path, schedule=schedule, on_trace_ready=seen.append, activities="cpu"
    )
    profiler.setup("fit")
    for _ in range(4):
        with profiler.profile("predict_step"):
            torch.ones(3).sum()
    profiler.teardown("fit")
    assert len(seen) == 2
    assert list(tmp_path.iterdir()) == []


def test_pytorch_says_where_nothing_was_recorded(tmp_path) -> None:
    """A run that is shorter than the schedule has no table."""
    profiler = PyTorchProfiler(dirpath=tmp_path, activities="cpu")
    profiler.setup("test")
    with profiler.profile("test_step"):
        pass
    assert profiler.summary() == (
        "TEST profile: no batch was recorded, as the run had too few for the schedule"
    )
    profiler.teardown("test")


@pytest.mark.parametrize(("batches", "recorded"), [(2, 2), (4, 4), (7, 3)])
def test_pytorch_records_all_of_a_short_run(batches, recorded, tmp_path) -> None:
    """The usual schedule needs five batches."""

    class Tested(Module):
        def test_step(self, batch, batch_idx):
            torch.ones(2).cumsum(0)

    profiler = PyTorchProfiler(tmp_path, "ops", activities="cpu", export_to_chrome=False)
    quiet = {"logger": False, "enable_progress_bar": False, "accelerator": "cpu"}
    Trainer(profiler=profiler, **quiet).test(Tested(), [torch.ones(1)] * batches, verbose=False)
    names = [event.name for event in profiler.function_events]
    assert names.count("aten::cumsum") == recorded
    assert names.count("test_step") == recorded


def test_pytorch_records_by_hand(tmp_path) -> None:
    """Without a run; the summary ends the recording, and another one may begin."""
    profiler = PyTorchProfiler(tmp_path, activities="cpu", export_to_chrome=False)
    for _ in range(2):
        with profiler.profile("mine"):
            torch.ones(3).cumsum(0)
        assert {"mine", "aten::cumsum"} <= {*profiler.summary().split()}
        assert not torch.autograd._profiler_enabled()


def test_two_profilers_of_torch_are_refused(tmp_path) -> None:
    """The second would stop the first."""
    profiler = PyTorchProfiler(dirpath=tmp_path)
    with torch.profiler.profile(), pytest.raises(UsageError, match="another profiler of torch"):
        profiler.setup("fit")


def test_nothing_is_told_of_nothing(caplog) -> None:
    """What passes through measures nothing, and says so to nobody."""
    profiler = PassThroughProfiler()
    with profiler.profile("it") as name:
        assert name == "it"
    profiler.describe()
    assert (profiler.summary(), caplog.text) == ("", "")


@pytest.mark.parametrize("kind", KINDS)
def test_profilers_are_copied(kind, tmp_path) -> None:
    """At rest, with their arguments."""
    profiler = kind(dirpath=tmp_path, filename="it")
    with profiler.profile("a"):
        pass
    profiler.summary()  # torch has one recording at a time, and this ends it
    for made in (copy.deepcopy(profiler), pickle.loads(pickle.dumps(profiler))):
        assert (type(made), made.dirpath, made.filename) == (kind, tmp_path, "it")
        with made.profile("b"):
            pass
        made.summary()
