"""Predictions in one file: what was predicted can be read back, in each format."""

from __future__ import annotations

import json
import signal
import sys
from collections import namedtuple
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import warm_python
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from trainer_hooks import Module
from trainer_hooks.callbacks import PredictionWriter
from trainer_hooks.callbacks.prediction_files import FORMATS, PartWriter, as_table
from trainer_hooks.errors import OptionError

DATA = TensorDataset(torch.arange(11.0))
ENDINGS = (".csv", ".jsonl", ".npz", ".pt")
Pair = namedtuple("Pair", "low high")


@dataclass
class Output:
    logits: torch.Tensor
    words: list


class Returns(Module):
    """Predicts what a function makes of the samples."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def predict_step(self, batch, batch_idx, dataloader_idx=0):
        return self.function(batch[0])


@pytest.fixture
def written(bare, tmp_path):
    """A function that writes predictions to a file and reads them back as columns of lists."""

    def write(function, ending, loaders=None, **options):
        path = tmp_path / f"out{ending}"
        trainer = bare(PredictionWriter(path), **options)
        loaders = DataLoader(DATA, 4) if loaders is None else loaders
        assert trainer.predict(Returns(function), loaders, return_predictions=False) is None
        assert names(tmp_path) == [path.name]
        return read(path)

    return write


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def read(path: Path) -> dict[str, list]:
    if path.suffix == ".csv":
        return pd.read_csv(path).to_dict("list")
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {name: [row[name] for row in rows] for name in rows[0]}
    if path.suffix == ".npz":
        return {name: value.tolist() for name, value in np.load(path).items()}
    content = torch.load(path, weights_only=True)
    return {
        name: value.tolist()
        if isinstance(value, torch.Tensor)
        else [row.tolist() if isinstance(row, torch.Tensor) else row for row in value]
        for name, value in content.items()
    }


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.filterwarnings("ignore:.*draws its samples in a random order")
def test_numbers_come_in_the_order_of_the_data(written, ending, shuffle):
    """A number a sample: one column, in the order of the data set."""
    assert written(lambda x: x, ending, DataLoader(DATA, 4, shuffle=shuffle)) == {
        "prediction": list(range(11))
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_of_several_numbers(written, ending):
    """A row of a tensor is a row of the array, a list, or in a csv columns 0, 1."""
    found = written(lambda x: torch.stack([x, -x], 1), ending)
    if ending == ".csv":
        assert found == {"0": list(range(11)), "1": [-n for n in range(11)]}
    else:
        assert found == {"prediction": [[n, -n] for n in range(11)]}


@pytest.mark.parametrize("ending", ENDINGS)
def test_nested_predictions(written, ending):
    """Keys, positions and names of fields are joined by dots; a number stands for the batch."""
    found = written(
        lambda x: {
            "a": x.int(),
            "b": {"c": (x > 4, torch.stack([x, x], 1).bfloat16())},
            "pair": Pair(low=x.double() - 0.1, high=np.asarray(x) + 1),
            "size": len(x),
        },
        ending,
    )
    rows = {"b.c.1": [[n, n] for n in range(11)]}
    if ending == ".csv":
        rows = {"b.c.1.0": list(range(11)), "b.c.1.1": list(range(11))}
    assert found == {
        "a": list(range(11)),
        "b.c.0": [n > 4 for n in range(11)],
        **rows,
        "pair.low": [n - 0.1 for n in range(11)],
        "pair.high": [n + 1 for n in range(11)],
        "size": [4] * 8 + [3] * 3,
    }


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".pt"])
def test_texts(written, ending):
    """A list has an item for each sample; texts of any alphabet, with commas and line ends."""
    words = [f'é "{n}",\n' for n in range(11)]
    found = written(lambda x: Output(x, [words[int(n)] for n in x]), ending)
    assert found == {"logits": list(range(11)), "words": words}


@pytest.mark.parametrize("ending", [".jsonl", ".npz", ".pt"])
@pytest.mark.parametrize("nested", [False, True], ids=["list", "nested tensor"])
def test_ragged_sizes(written, ending, nested):
    """Samples with as many boxes as their number: a list each, in an npz values and lengths."""
    boxes = [torch.full((n, 2), float(n)) for n in range(11)]

    def predict(x):
        found = [boxes[int(n)] for n in x]
        return {
            "boxes": torch.nested.nested_tensor(found, layout=torch.jagged) if nested else found,
            "score": x,
        }

    found = written(predict, ending)
    assert found.pop("score") == list(range(11))
    if ending == ".npz":
        assert found["boxes.lengths"] == list(range(11))
        cuts = np.cumsum(found["boxes.lengths"])[:-1]
        found = {"boxes": [part.tolist() for part in np.split(np.array(found["boxes"]), cuts)]}
    assert found == {"boxes": [box.tolist() for box in boxes]}


def test_rows_with_their_own_keys(bare, tmp_path):
    """A jsonl holds for each sample the keys that it has."""
    rows = [{"n": 1, "mask": None}, {"n": 2}, {"other": [1.5, "x"]}]
    path = tmp_path / "out.jsonl"
    module = Returns(lambda x: [rows[int(n)] for n in x])
    bare(PredictionWriter(path)).predict(module, DataLoader(TensorDataset(torch.arange(3)), 2))
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows


@pytest.mark.parametrize("ending", ENDINGS)
def test_several_loaders(written, ending):
    """A column tells the loaders apart."""
    found = written(lambda x: x, ending, [DataLoader(DATA, 4), DataLoader(DATA, 11)])
    assert found == {"dataloader": [0] * 11 + [1] * 11, "prediction": [*range(11), *range(11)]}


@pytest.mark.parametrize("ending", ENDINGS)
def test_no_rows(bare, tmp_path, ending):
    """Of predictions without rows there is a file that can be read."""
    path = tmp_path / f"none{ending}"
    bare(PredictionWriter(path)).predict(Returns(lambda x: x[:0]), DataLoader(DATA, 4))
    if ending in (".csv", ".jsonl"):
        assert path.read_text() == ""
    else:
        assert read(path) == {}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_number_for_each_batch(written, ending):
    """A number alone is one row for its batch."""
    assert written(lambda x: x.sum(), ending) == {"prediction": [6.0, 22.0, 27.0]}


class Stream(IterableDataset):
    def __iter__(self):
        yield from [(torch.tensor(n),) for n in (3.0, 1.0, 2.0)]


def test_samples_without_indices(written):
    """A stream is written in its order, and without a warning: one process has one order."""
    assert written(lambda x: x, ".jsonl", DataLoader(Stream(), 2)) == {
        "prediction": [3.0, 1.0, 2.0]
    }


REFUSED = {
    "a text in npz": (".npz", lambda x: ["a"] * len(x), "holds values of type 'str'.*jsonl"),
    "an object": (".csv", lambda x: [object() for _ in x], "it holds object. Return tensors"),
    "an object in pt": (".pt", lambda x: [object() for _ in x], "it holds object. Return tensors"),
    "complex in jsonl": (".jsonl", lambda x: x + 1j, "it holds a tensor of torch.complex64"),
    "ragged in csv": (".csv", lambda x: [torch.ones(int(n) + 2) for n in x], "same in all.*jsonl"),
    "keys in csv": (".csv", lambda x: {f"k{len(x)}": x}, "'k3' and another 'k4'.*jsonl"),
    "keys in pt": (".pt", lambda x: {f"k{len(x)}": x}, "'k3' and another batch 'k4'.*jsonl"),
    "a type in npz": (".npz", lambda x: x if len(x) == 4 else x.int(), "int32, and others.*jsonl"),
    "squares in npz": (".npz", lambda x: [torch.ones(2, int(n)) for n in x], "first dimension.*pt"),
    "different counts": (".pt", lambda x: (x, x[:2]), "different numbers of rows.*'0' 4, '1' 2"),
    "nothing": (".csv", lambda x: None, "predict_step returned None"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_predictions_that_cannot_be_written(bare, tmp_path, case):
    """The error names the batch and what to take; nothing is left, and an older file stays."""
    ending, function, told = REFUSED[case]
    path = tmp_path / f"out{ending}"
    path.write_text("older")
    with pytest.raises(OptionError, match=rf"(?s)out{ending}' of PredictionWriter.*{told}"):
        bare(PredictionWriter(path)).predict(Returns(function), DataLoader(DATA, 4))
    assert path.read_text() == "older"
    assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize(
    "later", [{"b": torch.ones(2)}, {"a": torch.ones(2, 1)}], ids=["b", "a 2d"]
)
def test_ranks_with_other_keys(tmp_path, ending, later):
    """The rank that begins later refuses its first batch; rows of .jsonl have keys of their own."""
    writers = [PartWriter(tmp_path, rank, FORMATS[ending]) for rank in (0, 3)]
    writers[0].append(as_table({"a": torch.ones(2)}), [(0, 0), (0, 1)])
    is_refused = ending != ".jsonl" and not (ending == ".csv" and "a" in later)

    with pytest.raises(ValueError, match="ranks 0 and 3") if is_refused else nullcontext():
        writers[1].append(as_table(later), [(0, 2), (0, 3)])
    for writer in writers:
        writer.close()


def test_bad_paths(bare, tmp_path, monkeypatch):
    """A bad path is refused at once, or before the first batch."""
    with pytest.raises(OptionError, match=r"ending must be one of .csv.*Did you mean '.jsonl'"):
        PredictionWriter("out.json1")
    with pytest.raises(OptionError, match="must be of this machine"):
        PredictionWriter("s3://bucket/out.csv")
    with pytest.raises(OptionError, match="must be a path"):
        PredictionWriter(3)
    (tmp_path / "folder.csv").mkdir()

    def never(x):
        raise AssertionError("a batch was predicted")

    monkeypatch.setattr(Path, "mkdir", _refuse)
    for name, told in {
        "nowhere/out.csv": "there is no folder .*nowhere",
        "folder.csv": "it is a folder",
        "out.csv": "cannot be written to .Permission denied",
    }.items():
        with pytest.raises(OptionError, match=told):
            bare(PredictionWriter(tmp_path / name)).predict(Returns(never), DataLoader(DATA, 4))


def _refuse(*_, **__):
    raise PermissionError(13, "Permission denied")


def test_a_trial_run_and_an_error_leave_the_older_file(bare, tmp_path):
    """`fast_dev_run` replaces no file, nor does a run that fails."""
    path = tmp_path / "out.csv"
    path.write_text("older")
    bare(PredictionWriter(path), fast_dev_run=1).predict(Returns(lambda x: x), DataLoader(DATA, 4))

    def fail(x):
        if len(x) == 3:
            raise RuntimeError("third batch")
        return x

    with pytest.raises(RuntimeError, match="third batch"):
        bare(PredictionWriter(path)).predict(Returns(fail), DataLoader(DATA, 4))
    assert path.read_text() == "older"
    assert names(tmp_path) == ["out.csv"]


PROGRAM = """
import os, signal, sys, torch
from torch.utils.data import DataLoader, TensorDataset
from trainer_hooks import Module, Trainer
from trainer_hooks.callbacks import PredictionWriter
from trainer_hooks.callbacks.prediction_files import FORMATS, PartWriter, as_table
class Dies(Module):
    def predict_step(self, batch, batch_idx):
        if batch_idx == 1:
            os.kill(os.getpid(), int(sys.argv[1]))
        return batch[0]
trainer = Trainer(
    callbacks=[PredictionWriter("out.csv")], logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
)
trainer.predict(Dies(), DataLoader(TensorDataset(torch.arange(11.0)), 4))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_keeps_the_older_file(bare, tmp_path, number):
    """A killed run leaves the older file, and no other that a next run would not remove."""
    path = tmp_path / "out.csv"
    path.write_text("older")
    command = [sys.executable, "-c", PROGRAM, str(int(number))]
    done = warm_python.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode in (-number, 128 + number), done.stderr
    assert path.read_text() == "older"
    left = [name for name in names(tmp_path) if name != "out.csv"]
    assert len(left) == (1 if number == signal.SIGKILL else 0), left
    assert all(name.startswith(".out.csv.") for name in left)
    bare(PredictionWriter(path)).predict(Returns(lambda x: x), DataLoader(DATA, 4))
    assert read(path) == {"prediction": list(range(11))}
    assert names(tmp_path) == ["out.csv"]
