from __future__ import annotations

import contextlib
import pickle
from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback, every
from trainer_hooks.callbacks import MemorySnapshot, OOMObserver
from trainer_hooks.callbacks.monitors.cuda_memory import is_allocator_readable
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning, UsageError
from trainer_hooks.testing import TinyModule


class Seen(Callback):
    """Notes in which batches, from 0 on, the allocator records."""

    def __init__(self, allocator):
        self.allocator = allocator
        self.batches = []

    def on_before_backward(self, trainer, module, loss):
        if self.allocator.recording:
            self.batches.append(trainer.progress.batches_completed)


class Failing(Callback):
    """Fails after so many batches."""

    def __init__(self, batches):
        self.batches = batches

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.progress.batches_completed == self.batches:
            raise ArithmeticError("as it should")


@pytest.fixture
def fit(bare, allocator):
    """Train three batches an epoch under a snapshot; return it and where it recorded."""

    def run(*callbacks, ckpt_path=None, trainer=None, **options):
        snapshot, seen = MemorySnapshot(**options), Seen(allocator)
        made = bare(snapshot, seen, *callbacks, **{"max_epochs": 3, **(trainer or {})})
        with contextlib.suppress(ArithmeticError):
            made.fit(TinyModule(), ckpt_path=ckpt_path)
        return snapshot, seen.batches

    return run


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.mark.parametrize(
    ("options", "batches"),
    [
        ({}, [1, 2, 3]),
        ({"skip_batches": 0, "interval": "1ba"}, [0]),
        ({"skip_batches": 4}, [4, 5, 6]),
        ({"skip_batches": 0, "interval": 1}, [0, 1, 2]),
        ({"skip_batches": 2, "interval": "1ep"}, [2]),
        ({"skip_batches": 1, "interval": "4sp"}, [1, 2]),
        ({"skip_batches": 0, "interval": "0.5dur"}, [0, 1, 2, 3, 4]),
        ({"skip_batches": 0, "interval": every("2ba")}, [0, 1]),
        ({"skip_batches": 1, "interval": lambda clock: clock.batches == 4}, [1, 2, 3]),
        ({"skip_batches": 7, "interval": "1ep"}, [7, 8]),
        ({"skip_batches": 8, "interval": "9ep"}, [8]),
        ({"skip_batches": 9}, []),
    ],
)
def test_one_interval_is_recorded(fit, allocator, options, batches):
    """After the batches that are skipped one interval is recorded, and nothing outside of it."""
    snapshot, recorded = fit(**options)
    assert recorded == batches
    assert len(snapshot.files) == (2 if batches else 0)
    if batches:
        begun, ended = allocator.calls
        assert begun["max_entries"] == 100_000
        assert begun["clear_history"]
        assert ended is None


def test_the_files_are_those_of_torch(fit, tmp_path):
    """The pickle holds the snapshot, and the page has it and asks for the view over time."""
    snapshot, _ = fit()
    assert names(tmp_path / "memory") == [
        f"rank0.4.memory_snapshot.{e}" for e in ("html", "pickle")
    ]
    found = {Path(path).suffix: Path(path) for path in snapshot.files}
    with found[".pickle"].open("rb") as file:
        assert pickle.load(file)["segments"][0]["total_size"] == 2048
    page = found[".html"].read_text()
    assert "Active Memory Timeline" in page
    assert "snapshot.pickle" in page


def test_names(fit, tmp_path):
    """Counts, the process and metrics can stand in the names, and so can folders."""
    name = "at/{epoch}-{step}-{batch_in_epoch}-{rank}-{world_size}-{train_loss:.0f}"
    snapshot, _ = fit(folder=tmp_path / "x", filename=name)
    assert [Path(path).parent for path in snapshot.files] == [tmp_path / "x" / "at"] * 2
    assert Path(snapshot.files[0]).name.startswith("1-4-1-0-1-")


def test_a_fit_that_ends_inside_writes_what_it_has(fit, allocator, tmp_path):
    """An error inside the interval does not lose what was recorded by then."""
    snapshot, recorded = fit(Failing(2))
    assert recorded == [1]
    assert names(tmp_path / "memory")[0] == "rank0.2.memory_snapshot.html"
    assert len(snapshot.files) == 2
    assert allocator.recording is None


def test_it_is_done_once(fit, tmp_path):
    """A run that goes on after the interval records nothing, and a new training does."""
    saving = {"enable_checkpointing": True, "max_epochs": 2}
    fit(trainer=saving)
    (path,) = tmp_path.rglob("*.ckpt")
    snapshot, recorded = fit(trainer={**saving, "max_epochs": 4}, ckpt_path=path)
    assert (snapshot.files, recorded) == ([], [])
    _, recorded = fit(folder=tmp_path / "other")
    assert recorded == [1, 2, 3]


def test_one_that_was_cut_inside_begins_anew(fit, tmp_path):
    """A run that goes on from inside the interval writes over what the cut part left."""
    options = {"interval": "5ba", "filename": "one", "trainer": {"enable_checkpointing": True}}
    fit(Failing(5), **options)
    (path,) = tmp_path.rglob("*.ckpt")
    snapshot, recorded = fit(Failing(99), ckpt_path=path, **options)
    assert recorded == [4, 5, 6, 7, 8]
    assert names(tmp_path / "memory") == ["one.html", "one.pickle"]
    assert len(snapshot.files) == 2


def test_files_of_another_training_are_not_written_over(fit, tmp_path):
    """A new training refuses before it trains, unless it may write over them."""
    fit()
    message = r"files 'rank0.4.memory_snapshot.html', 'rank0.4.*' in .*, the folder of MemorySnap"
    with pytest.raises(UsageError, match=message):
        fit()
    (tmp_path / "memory" / "notes.html").write_text("")
    _, recorded = fit(overwrite=True)
    assert recorded == [1, 2, 3]


def test_other_stores(fit):
    """The folder may be an address, and copies go to another, both found by fsspec."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    address = "memory://snapshots/copies/{rank}-{batch}"
    snapshot, _ = fit(folder="memory://snapshots/own", filename="a", remote_file_name=address)
    found = ["own/a.pickle", "own/a.html", "copies/0-4.pickle", "copies/0-4.html"]
    assert snapshot.files == [f"memory://snapshots/{name}" for name in found]
    for name in found[::2]:
        assert pickle.loads(store.cat_file(f"/snapshots/{name}"))["segments"]
    with pytest.raises(UsageError, match=r"files 'a.html', 'a.pickle' in 'memory://snapshots/own'"):
        fit(folder="memory://snapshots/own", filename="a")
    store.rm("/snapshots", recursive=True)


def test_a_copy_that_fails_is_told(fit, monkeypatch, tmp_path):
    """Where the store of the copies does not answer, there is a warning, and the files are here."""
    pytest.importorskip("fsspec")

    def upload(source, address, what):
        raise CheckpointError(f"{address} does not answer")

    monkeypatch.setattr("trainer_hooks.checkpoint.remote.upload", upload)
    with pytest.warns(TrainerHooksWarning, match="MemorySnapshot could not upload copies of .*ans"):
        snapshot, recorded = fit(remote_file_name="memory://x/a")
    assert recorded == [1, 2, 3]
    assert len(snapshot.files) == len(names(tmp_path / "memory")) == 2


def test_beside_an_observer_the_history_goes_on(fit, allocator):
    """Where an observer records too, it goes on after the interval, and ends with the run."""
    _, recorded = fit(OOMObserver(500_000), max_entries=70)
    assert recorded == list(range(9))
    sizes = [call and (call["max_entries"], call["clear_history"]) for call in allocator.calls]
    assert sizes == [(500_000, True), (500_000, True), None]


@pytest.mark.parametrize("kind", [MemorySnapshot, OOMObserver])
def test_without_cuda_it_warns_once(bare, tmp_path, kind):
    """On the CPU there is one warning over all runs, and nothing is written."""
    trainer = bare(kind())
    with pytest.warns(TrainerHooksWarning, match=f"{kind.__name__} does nothing: it needs a CUDA"):
        trainer.fit(TinyModule())
    trainer.fit(TinyModule())  # another warning would be an error
    trainer.test(TinyModule())
    assert not (tmp_path / "memory").exists()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device(bare):
    """On a CUDA device the allocations of the interval are in the snapshot, with their stacks."""
    snapshot = MemorySnapshot(interval="1ba")
    bare(snapshot, accelerator="cuda", devices=1, max_epochs=2).fit(TinyModule())
    (path,) = [path for path in snapshot.files if path.endswith(".pickle")]
    found = pickle.loads(Path(path).read_bytes())
    events = [event for device in found["device_traces"] for event in device]
    assert any(event["action"] == "alloc" and event["frames"] for event in events)
    assert not torch._C._cuda_isHistoryEnabled()


def test_an_allocator_without_history(monkeypatch):
    """An allocator that keeps no history is told by name, and is good enough for statistics."""
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "cudaMallocAsync")
    device = torch.device("cuda", 0)
    with pytest.warns(TrainerHooksWarning, match="Mine does nothing: the allocator 'cudaMalloc"):
        assert not is_allocator_readable(device, "Mine")
    assert not is_allocator_readable(
        device, "Mine", is_quiet=True
    )  # another warning would be an error
    assert is_allocator_readable(device, "Mine", history=False)
