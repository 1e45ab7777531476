from __future__ import annotations

import logging
import pickle
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch

from trainer_hooks.callbacks import OOMObserver
from trainer_hooks.callbacks.monitors import memory_files
from trainer_hooks.errors import CheckpointError, UsageError
from trainer_hooks.testing import TinyModule

ENDINGS = [
    "_memory_flamegraph.svg",
    "_segment_flamegraph.svg",
    "_segment_plot.html",
    "_snapshot.pickle",
    "_trace_plot.html",
]


class Greedy(TinyModule):
    """Has no memory left in its third batch, and heeds that or not."""

    def __init__(self, allocator, heeds=False):
        super().__init__()
        self.allocator, self.heeds, self.count = allocator, heeds, 0

    def on_train_batch_start(self, batch, batch_idx):
        self.count += 1
        if self.count == 3:
            try:
                self.allocator.runs_out()
            except torch.OutOfMemoryError:
                if not self.heeds:
                    raise


@pytest.fixture
def run_out(bare, allocator):
    """Train until there is no memory left; return the observer."""

    def run(**options):
        observer = OOMObserver(**options)
        with pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
            bare(observer).fit(Greedy(allocator))
        return observer

    return run


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_what_is_left(run_out, tmp_path):
    """The snapshot, two pages of torch's viewer and two flame graphs lie in the log folder."""
    observer = run_out()
    assert names(tmp_path / "memory") == [f"rank0_oom{ending}" for ending in ENDINGS]
    assert sorted(observer.files) == sorted(map(str, (tmp_path / "memory").iterdir()))
    start = tmp_path / "memory" / "rank0_oom"
    found = pickle.loads(Path(f"{start}_snapshot.pickle").read_bytes())
    assert [event["action"] for event in found["device_traces"][0]][-1] == "oom"
    assert "Active Memory Timeline" in Path(f"{start}_trace_plot.html").read_text()
    assert "Allocator State History" in Path(f"{start}_segment_plot.html").read_text()


@pytest.mark.parametrize(
    ("ending", "outer"), [("memory", "stream_0"), ("segment", "stream_0 seg_4096")]
)
def test_flame_graphs(run_out, tmp_path, ending, outer):
    """Who holds how much is told for every frame, in an SVG that is well-formed."""
    run_out()
    path = tmp_path / "memory" / f"rank0_oom_{ending}_flamegraph.svg"
    titles = [e.text for e in ET.parse(path).iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0] == "all (2048 bytes, 100.0%)"
    for name in outer.split():
        assert f"{name} (2048 bytes, 100.0%)" in titles
    assert "active_allocated (1024 bytes, 50.0%)" in titles
    assert "net.py:1:fit (1000 bytes, 48.8%)" in titles
    assert "net.py:1:<lambda> (500 bytes, 24.4%)" in titles


def test_what_fails_is_logged_and_the_error_stays(run_out, monkeypatch, caplog, tmp_path):
    """An error of its own is logged with its traceback; the others are written."""

    def write(self, trainer, ending, content):
        if ending.endswith(".html"):
            raise PermissionError(f"no {ending}")
        return original(self, trainer, ending, content)

    original = memory_files.MemoryFiles.write
    monkeypatch.setattr(memory_files.MemoryFiles, "write", write)
    with caplog.at_level(logging.WARNING, "trainer_hooks"):
        observer = run_out()
    assert len(observer.files) == len(names(tmp_path / "memory")) == 3
    told = [r for r in caplog.records if r.levelname == "WARNING"]
    assert told[0].getMessage() == (
        "OOMObserver: device 0 has no memory for 9999 bytes: the process holds 2048, 5 are free"
    )
    assert [record.getMessage() for record in told[1:]] == [
        "OOMObserver could not write its _trace_plot.html",
        "OOMObserver could not write its _segment_plot.html",
    ]
    assert all(record.exc_info[0] is PermissionError for record in told[1:])


class Measuring(Greedy):
    """Logs what cannot be averaged without memory."""

    def loss(self, outputs, batch):
        self.log("own", outputs.mean())
        return super().loss(outputs, batch)


def test_it_needs_memory_itself(bare, allocator, monkeypatch, caplog, tmp_path):
    """Counts are named without any memory; a name with a metric that needs some is logged once."""
    asked = []

    def metrics(trainer):
        asked.append(trainer)
        allocator.runs_out()

    observers = [OOMObserver(filename="{batch}-a"), OOMObserver(filename="{own:.1f}-b")]
    trainer = bare(*observers)
    monkeypatch.setattr(type(trainer), "callback_metrics", property(metrics))
    with caplog.at_level(logging.WARNING, "trainer_hooks"), pytest.raises(torch.OutOfMemoryError):
        trainer.fit(Measuring(allocator))
    assert names(tmp_path / "memory") == [f"2-a{ending}" for ending in ENDINGS]
    assert len(asked) == 5
    assert sum("has no memory" in message for message in caplog.messages) == 2
    assert sum("could not write" in message for message in caplog.messages) == 5


def test_no_snapshot(run_out, monkeypatch, caplog):
    """Where torch cannot take a snapshot, that is logged, and the error stays what it is."""

    def snapshot():
        raise RuntimeError("not now")

    monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
    with caplog.at_level(logging.WARNING, "trainer_hooks"):
        observer = run_out()
    assert observer.files == []
    assert "OOMObserver could not take a snapshot of the memory" in caplog.messages


def test_copies(run_out):
    """Copies go to an address; if its store does not answer, that is logged."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    observer = run_out(filename="x", remote_file_name="memory://oom/{rank}-{batch}")
    assert sorted(store.ls("/oom", detail=False)) == [f"/oom/0-2{ending}" for ending in ENDINGS]
    assert len(observer.files) == 10
    store.rm("/oom", recursive=True)


def test_a_copy_that_fails(run_out, monkeypatch, caplog):
    """Where the store of the copies does not answer, that is logged, and the files are here."""
    pytest.importorskip("fsspec")

    def upload(source, address, what):
        raise CheckpointError(f"{address} does not answer")

    monkeypatch.setattr("trainer_hooks.checkpoint.remote.upload", upload)
    with caplog.at_level(logging.WARNING, "trainer_hooks"):
        observer = run_out(remote_file_name="memory://oom/a")
    assert len(observer.files) == 5
    assert sum("could not write its" in message for message in caplog.messages) == 5


def test_one_that_is_handled(bare, allocator, tmp_path):
    """An error that something handles is met too, and the run goes on."""
    observer = OOMObserver()
    trainer = bare(observer)
    trainer.fit(Greedy(allocator, heeds=True))
    assert trainer.progress.batches_completed == 3
    assert len(observer.files) == 5


def test_it_is_attached_once_and_lets_go(bare, allocator, tmp_path):
    """Torch is told once in a process; between runs nothing is recorded and nobody listens."""
    observer = OOMObserver(77, folder=tmp_path / "x")
    trainer = bare(observer)
    trainer.fit(TinyModule())
    trainer.test(TinyModule())
    assert len(allocator.observers) == 1
    sizes = [call and (call["max_entries"], call["stacks"]) for call in allocator.calls]
    assert sizes == [(77, "python"), None, (77, "python"), None]
    with pytest.raises(torch.OutOfMemoryError):
        allocator.runs_out()
    assert not (tmp_path / "x").exists()


def test_two_observers(bare, allocator, tmp_path):
    """Each writes its own files, and the longer history is kept for both."""
    trainer = bare(OOMObserver(5, filename="a"), OOMObserver(9, filename="b"))
    with pytest.raises(torch.OutOfMemoryError):
        trainer.fit(Greedy(allocator))
    assert {name[0] for name in names(tmp_path / "memory")} == {"a", "b"}
    assert [call and call["max_entries"] for call in allocator.calls] == [5, 9, None]


def test_files_of_another_training_are_not_written_over(run_out, bare, allocator, tmp_path):
    """A new training refuses before it trains, unless it may write over them."""
    run_out()
    message = r"files 'rank0_oom_.*' and 2 more in .*, the folder of OOMObserver: this training"
    with pytest.raises(UsageError, match=message):
        bare(OOMObserver()).fit(TinyModule())
    assert allocator.recording is None
    run_out(overwrite=True)


class Hungry(TinyModule):
    """Asks for more memory than there is."""

    def on_train_batch_start(self, batch, batch_idx):
        torch.empty(1 << 50, dtype=torch.uint8, device=self.device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device(bare, tmp_path):
    """On a CUDA device that runs out of memory the error of torch is raised, and the files are."""
    observer = OOMObserver()
    with pytest.raises(torch.OutOfMemoryError):
        bare(observer, accelerator="cuda", devices=1).fit(Hungry())
    assert names(tmp_path / "memory") == [f"rank0_oom{ending}" for ending in ENDINGS]
    path = tmp_path / "memory" / "rank0_oom_snapshot.pickle"
    traces = pickle.loads(path.read_bytes())["device_traces"]
    assert any(event["action"] == "oom" for device in traces for event in device)
    assert not torch._C._cuda_isHistoryEnabled()
