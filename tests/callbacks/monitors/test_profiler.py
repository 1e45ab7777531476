from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import Profiler
from trainer_hooks.errors import UsageError
from trainer_hooks.loggers import CSVLogger


def events(path):
    data = Path(path).read_bytes()
    return json.loads(gzip.decompress(data) if path.endswith(".gz") else data)["traceEvents"]


def names(path):
    return [event.get("name", "") for event in events(path)]


def net(Tiny):
    """A module that labels each of its batches in the trace."""

    class Labelled(Tiny):
        def training_step(self, batch, batch_idx):
            with torch.profiler.record_function(f"batch {self.trainer.progress.batches_completed}"):
                return super().training_step(batch, batch_idx)

    return Labelled()


def batches_in(path):
    return sorted({int(n.split()[1]) for n in names(path) if n.startswith("batch ")})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"wait": 1, "warmup": 1, "active": 3}, ["2-4"]),
        ({"wait": 0, "warmup": 0, "active": 2}, ["0-1"]),
        ({"wait": 0, "warmup": 1, "active": 1, "repeat": 2}, ["1-1", "3-3"]),
        ({"wait": 1, "warmup": 1, "active": 2, "repeat": 0}, ["2-3", "6-7", "10-11"]),
        ({"wait": 1, "warmup": 0, "active": 1, "skip_first": 4, "repeat": 2}, ["5-5", "7-7"]),
        ({"wait": 5, "warmup": 2, "active": 9}, ["7-11"]),
        ({"wait": 11, "warmup": 2, "active": 9}, []),
        ({"wait": 99}, []),
    ],
    ids=str,
)
def test_traces_hold_the_batches_of_the_schedule(
    quiet_trainer, Tiny, batches, tmp_path, options, expected
):
    """Each trace is named by the batches that it holds, over epochs, and holds these and no other.

    What the fit ends in the middle of is written too.
    """
    profiler = Profiler(activities="cpu", **options)
    quiet_trainer(callbacks=[profiler], max_epochs=2).fit(net(Tiny), batches(6))
    folder = tmp_path / "profile"
    paths = [str(folder / f"trace-batches={span}.json.gz") for span in expected]
    assert profiler.traces == paths
    assert sorted(map(str, folder.glob("*"))) == sorted(paths)
    for path, span in zip(paths, expected, strict=True):
        first, last = map(int, span.split("-"))
        assert batches_in(path) == list(range(first, last + 1))
        assert any("aten::" in name for name in names(path))


def test_details(quiet_trainer, Tiny, batches, tmp_path):
    """Shapes, memory and lines of code are recorded where they are asked for, and not otherwise."""
    kinds = {}
    for is_wanted in (False, True):
        profiler = Profiler(
            0, 1, 1,
            dirpath=tmp_path / str(is_wanted),
            filename="mine",
            compress=False,
            activities=[ProfilerActivity.CPU],
            record_shapes=is_wanted,
            profile_memory=is_wanted,
            with_stack=is_wanted,
        )  # fmt: skip
        quiet_trainer(callbacks=[profiler]).fit(net(Tiny), batches(3))
        [path] = profiler.traces
        assert path == str(tmp_path / str(is_wanted) / "mine-batches=1-1.json")
        found = events(path)
        kinds[is_wanted] = (
            any("Input Dims" in event.get("args", {}) for event in found),
            any(event.get("name") == "[memory]" for event in found),
            any("training_step" in event.get("name", "") for event in found),
        )
    assert kinds == {False: (False, False, False), True: (True, True, True)}


def test_they_lie_in_the_log_folder(quiet_trainer, Tiny, batches, tmp_path):
    """Where there is a logger, traces stand beside its metrics."""
    profiler = Profiler(0, 0, 1, activities="cpu")
    trainer = quiet_trainer(callbacks=[profiler], logger=CSVLogger(tmp_path))
    trainer.fit(net(Tiny), batches(2))
    assert Path(profiler.traces[0]).parent == Path(trainer.log_dir) / "profile"


class Ends(Callback):
    """Ends the run in the fifth batch."""

    def __init__(self, error):
        self.error = error

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == 4:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), StopTraining("x")])
def test_a_run_that_breaks_off_leaves_what_is_recorded(quiet_trainer, Tiny, batches, error):
    """The trace up to the error is written, torch's profiler is off, and another fit records."""
    profiler, ends = Profiler(0, 1, 9, activities="cpu"), Ends(error)
    trainer = quiet_trainer(callbacks=[profiler, ends])
    if isinstance(error, StopTraining):
        trainer.fit(net(Tiny), batches(8))
    else:
        with pytest.raises(type(error)):
            trainer.fit(net(Tiny), batches(8))
    [path] = profiler.traces
    assert batches_in(path) == [1, 2, 3]
    again = Profiler(0, 0, 1, activities="cpu", filename="again")
    quiet_trainer(callbacks=[again]).fit(net(Tiny), batches(1))
    assert batches_in(again.traces[0]) == [0]


def test_once_the_cycles_are_over_nothing_is_recorded(quiet_trainer, Tiny, batches):
    """After the last cycle torch's profiler is off for the rest of the fit."""
    seen = []

    class Looks(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(torch.autograd.profiler._is_profiler_enabled)

    trainer = quiet_trainer(callbacks=[Profiler(1, 1, 1, activities="cpu"), Looks()])
    trainer.fit(net(Tiny), batches(6))
    # in the batch before the one that is kept it warms up, which is no recording yet
    assert seen == [False, False, True, False, False, False]


def test_beside_another_profiler(quiet_trainer, Tiny, batches):
    """Where another profiler of torch runs already, that is said, and the other is left alone."""
    trainer = quiet_trainer(callbacks=[Profiler(0, 0, 1, activities="cpu")])
    with profile(activities=[ProfilerActivity.CPU]) as other:
        with pytest.raises(UsageError, match=r"Profiler cannot record: .*skip_first"):
            trainer.fit(net(Tiny), batches(1))
        torch.ones(3) + 1
    assert any("aten::add" in event.key for event in other.key_averages())


@pytest.mark.parametrize(
    ("callbacks", "options", "message", "steps"),
    [
        # it begins with the first batch, when the loaders say whether there are enough
        ([{}], {"profiler": "pytorch"}, r"running \(PyTorchProfiler\), .*Leave one of them out", 1),
        ([{}, {}], {}, r"running \(Profiler\), .*skip_first", 0),
        # the second cycle of the first begins in batch 2
        (
            [{"wait": 0, "warmup": 0, "active": 1, "repeat": 0}, {"wait": 0, "skip_first": 1}],
            {},
            r"running \(Profiler\), .*skip_first",
            1,
        ),
    ],
    ids=["with PyTorchProfiler", "two", "later"],
)
def test_beside_one_of_ours(quiet_trainer, Tiny, batches, callbacks, options, message, steps):
    """One that waits or warms up is running too; it is refused before the training if it can be."""
    profilers = [
        Profiler(activities="cpu", filename=f"p{i}", **given) for i, given in enumerate(callbacks)
    ]
    trainer = quiet_trainer(callbacks=profilers, **options)
    with pytest.raises(UsageError, match=rf"Profiler cannot record: another .*{message}"):
        trainer.fit(net(Tiny), batches(6))
    assert trainer.global_step == steps
    # the refused one leaves nothing open
    quiet_trainer(callbacks=[Profiler(0, 0, 1, activities="cpu")]).fit(net(Tiny), batches(1))


def test_two_may_record_other_batches(quiet_trainer, Tiny, batches):
    """Two whose batches do not overlap record both."""
    first = Profiler(0, 0, 1, activities="cpu", filename="first")
    second = Profiler(0, 0, 1, skip_first=2, activities="cpu", filename="second")
    quiet_trainer(callbacks=[first, second]).fit(net(Tiny), batches(4))
    assert [batches_in(one.traces[0]) for one in (first, second)] == [[0], [2]]


def test_what_is_trained_is_the_same(quiet_trainer, Tiny, batches):
    """Recording changes no weight."""
    weights = []
    for callbacks in ([], [Profiler(0, 1, 2, with_stack=True, activities="cpu")]):
        torch.manual_seed(0)
        quiet_trainer(callbacks=callbacks).fit(module := net(Tiny), batches(4))
        weights.append(module.layer.weight)
    assert torch.equal(*weights)


def test_the_log_says_where(quiet_trainer, Tiny, batches, caplog):
    """Each trace is told in the log, with where to open it."""
    caplog.set_level(logging.INFO, logger="trainer_hooks")
    profiler = Profiler(0, 0, 1, activities="cpu")
    quiet_trainer(callbacks=[profiler]).fit(net(Tiny), batches(1))
    assert f"Profiler: wrote {profiler.traces[0]}; open it at https://ui.perfetto.dev" in (
        caplog.messages
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_kernels_of_a_gpu_are_recorded(quiet_trainer, Tiny, batches):
    """Where there is a GPU its kernels are in the trace by default."""
    profiler = Profiler(0, 1, 2)
    quiet_trainer(callbacks=[profiler], accelerator="cuda").fit(net(Tiny), batches(4))
    assert any(event.get("cat") == "kernel" for event in events(profiler.traces[0]))
