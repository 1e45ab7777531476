"""`trainer-hooks checkpoint diff A B`: in what two files differ, and by how much."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch

from trainer_hooks import Trainer, seed_everything
from trainer_hooks.callbacks import ModelCheckpoint
from trainer_hooks.checkpoint.difference import DifferenceType, Tolerance, differences
from trainer_hooks.checkpoint.inspection import CheckpointContents, CheckpointKind
from trainer_hooks.loggers import CSVLogger, TensorBoardLogger
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


@pytest.fixture
def pair(ask, tmp_path):
    """Write two files of what is given and compare them; return code and differences by path."""

    def pair(one, other, *options):
        for name, parts in (("a", one), ("b", other)):
            torch.save({"state_dict": {"w": torch.ones(2)}, **parts}, tmp_path / f"{name}.ckpt")
        answer = ask("diff", tmp_path / "a.ckpt", tmp_path / "b.ckpt", "--json", *options)
        assert answer.err == ""
        told = json.loads(answer.out, parse_constant=pytest.fail)
        assert told["is_equal"] is (answer.code == 0)
        assert bool(told["differences"]) is (answer.code == 1)
        return {found.pop("path"): found for found in told["differences"]}

    return pair


def test_the_same_run_twice_holds_the_same(ask, save) -> None:
    """Two runs from one seed are equal, to the last random number: code 0."""
    answer = ask("diff", save("a.ckpt"), save("b.ckpt"))
    assert (answer.code, answer.err) == (0, "")
    shown = answer.out.splitlines()
    assert shown[-1] == "equal"
    parts = ("weights", "optimizers", "callbacks", "loop", "random numbers", "hyperparameters")
    for part in parts:
        assert [line.split() for line in shown if line.startswith(part)] == [
            [*part.split(), "equal"]
        ]


def fit_in(folder) -> Path:
    """Train in a folder with loggers and savers, and return the last checkpoint."""
    seed_everything(1)
    savers = [
        ModelCheckpoint(monitor="val_loss", save_last=True),
        ModelCheckpoint(monitor="train_loss", dirpath=folder / "more", every_n_train_steps=2),
    ]
    trainer = Trainer(
        max_epochs=2, default_root_dir=folder, callbacks=savers, accelerator="cpu",
        logger=[CSVLogger(folder), TensorBoardLogger(folder)],
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(TinyModule())
    return Path(savers[0].last_model_path)


@pytest.mark.slow
def test_two_folders_of_one_training_differ_in_paths_alone(ask, tmp_path) -> None:
    """Paths and event files are told apart, and can be left out: code 0 then."""
    paths = [fit_in(tmp_path / name) for name in ("a", "b")]
    answer = ask("diff", *paths)
    assert answer.code == 1
    shown = answer.out.splitlines()
    assert shown[-1] == "equal but for paths and event files, which --ignore paths leaves out"
    verdicts = {line.split("  ")[0]: line for line in shown[2:13]}
    assert verdicts["weights"].endswith(" equal")
    assert "equal but for" in verdicts["callbacks"]
    assert verdicts["files"].endswith("equal but for 3 paths")
    assert "  callbacks[\"ModelCheckpoint{'monitor': 'train_loss'}\"].dirpath: " in answer.out
    assert "every_n_epochs" not in answer.out
    answer = ask("diff", *paths, "--ignore", "paths")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines()[-1] == "equal but for paths and event files"
    told = json.loads(ask("diff", *paths, "--json").out)
    assert (told["verdict"], told["parts"]["callbacks"]) == ("paths", "paths")
    assert told["parts"]["random numbers"] == "equal"
    assert all(one["is_place"] for one in told["differences"])


def test_a_score_behind_another_path_is_compared(pair) -> None:
    """The records of one file in two folders belong together, and no other value is a path."""

    def saver(folder, score, best):
        paths = {f"/{folder}/epoch=1.ckpt": score}
        return {"callbacks": {"S": {"best_k": paths, "best": f"/{folder}/{best}", "m": folder}}}

    found = pair(saver("a", 1.0, "x.ckpt"), saver("b", 1.0, "x.ckpt"))
    assert {path: one["is_place"] for path, one in found.items()} == {
        "callbacks.S.best_k": True, "callbacks.S.best": True, "callbacks.S.m": False,
    }  # fmt: skip
    found = pair(saver("a", 1.0, "model.c"), saver("b", 1.0, "other.c"))
    assert not found["callbacks.S.best"]["is_place"]
    found = pair(saver("a", 1.0, "x.ckpt"), saver("b", 2.0, "y.ckpt"), "--ignore", "paths")
    assert set(found) == {
        'callbacks.S.best_k["/a/epoch=1.ckpt"]', "callbacks.S.best", "callbacks.S.m",
    }  # fmt: skip


def test_data_from_another_place_is_a_difference(pair) -> None:
    """Where a run reads may change what it learns: only where it writes can be left out."""
    found = pair(
        {"hyper_parameters": {"data": "/a/x"}, "config": {"trainer": {"default_root_dir": "a"}}},
        {"hyper_parameters": {"data": "/b/x"}, "config": {"trainer": {"default_root_dir": "b"}}},
        "--ignore", "paths",
    )  # fmt: skip
    assert set(found) == {"hyper_parameters.data"}


def test_two_moments_of_a_run_differ(ask, save, tmp_path) -> None:
    """Weights, callback values, counters and optimizer values are told by their paths: code 1."""
    save(at={1: "one.ckpt", 3: "three.ckpt"})
    answer = ask("diff", tmp_path / "one.ckpt", tmp_path / "three.ckpt")
    assert (answer.code, answer.err) == (1, "")
    shown = answer.out.splitlines()
    assert shown[:2] == [f"A: {tmp_path / 'one.ckpt'}", f"B: {tmp_path / 'three.ckpt'}"]
    assert "weights: 2 of 2 tensors differ (2 in values)" in shown
    assert "  callbacks[\"Counter{'what': 'batches'}\"].count: 1 -> 3" in shown
    assert "  global_step: 1 -> 3" in shown
    assert any(
        line.startswith("  layer.weight: 2 of 2 elements differ, by up to ") for line in shown
    )
    (step,) = [line for line in shown if "optimizer_states[0].state[0].step:" in line]
    assert step.endswith("1 of 1 element differ, by up to 2 (tensor(1) -> tensor(3))")


def test_the_same_as_json(pair) -> None:
    """A record for each difference, with numbers to count with."""
    found = pair(
        {"state_dict": {"w": torch.tensor([1.0, 2.0, 3.0])}, "callbacks": {"C": {"n": 3}}},
        {"state_dict": {"w": torch.tensor([1.0, 2.5, 1.0])}, "callbacks": {"C": {"n": 5}}},
    )
    assert found == {
        "w": {
            "part": "weights", "how": "tensor", "is_place": False,
            "max_abs": 2.0, "differing": 2, "elements": 3,
        },
        "callbacks.C.n": {
            "part": "callbacks", "how": "value", "is_place": False, "a": 3, "b": 5,
        },
    }  # fmt: skip


def test_two_models(ask, save) -> None:
    """Weights that only one has, and those of another shape or dtype, are told as such."""
    answer = ask("diff", save("a.ckpt"), save("b.ckpt", width=3))
    assert answer.code == 1
    assert "weights: 2 of 2 tensors differ (1 of another shape, 1 in values)" in answer.out
    assert "  layer.weight: shape (1, 2) -> (1, 3)\n" in answer.out
    assert "  hyper_parameters.width: 2 -> 3\n" in answer.out


def test_missing_unexpected_and_dtype(pair) -> None:
    """A weight of A alone, of B alone, and one that is kept in other numbers."""
    found = pair(
        {"state_dict": {"old": torch.ones(1), "kept": torch.ones(1)}},
        {"state_dict": {"new": torch.ones(2), "kept": torch.ones(1).half()}},
    )
    assert {path: entry["how"] for path, entry in found.items()} == {
        "old": "only in A",
        "kept": "dtype",
        "new": "only in B",
    }
    assert (found["kept"]["a"], found["kept"]["b"]) == ("float32", "float16")


def test_nan_is_equal_to_nan(pair) -> None:
    """In tensors and in numbers; NaN and a number differ, by NaN."""
    nan, tensor = math.nan, torch.tensor([math.nan, math.inf, 1.0])
    assert pair({"epoch": nan, "x": tensor}, {"epoch": nan, "x": tensor.clone()}) == {}
    found = pair({"x": tensor}, {"x": torch.tensor([0.0, math.inf, 1.0])})
    assert found["x"]["max_abs"] == "nan"
    assert found["x"]["differing"] == 1
    found = pair({"epoch": nan}, {"epoch": 1.0})
    assert found["epoch"]["a"] == "nan"


@pytest.mark.parametrize(
    ("options", "paths"),
    [
        ((), {"n", "w"}),
        (("--atol", "0.05"), {"n", "w"}),
        (("--atol", "0.2"), set()),
        (("--rtol", "0.002"), set()),
        (("--rtol", "0.0005", "--atol", "0.05"), set()),
    ],
)
def test_tolerances(options, paths, pair) -> None:
    """Numbers and tensors that are near enough count as equal: `atol + rtol * |b|`."""
    one = {"n": 100.0, "state_dict": {"w": torch.tensor([100.0])}}
    other = {"n": 100.1, "state_dict": {"w": torch.tensor([100.1])}}
    assert set(pair(one, other, *options)) == paths


def test_a_tolerance_reaches_no_infinity(pair) -> None:
    """Infinity is near to nothing, and a number too big for a float is compared all the same."""
    one, other = (
        {"n": math.inf, "m": 10**400, "k": 1.0},
        {"n": 1.0, "m": 10**400 + 1, "k": math.inf},
    )
    found = pair(one, other, "--rtol", "10")
    assert set(found) == {"n", "m", "k"}


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16,
        torch.float64, torch.complex64, torch.uint16, torch.uint32, torch.uint64,
        torch.float8_e4m3fn,
    ],
)  # fmt: skip
def test_every_dtype_is_compared(dtype, pair) -> None:
    """One element that differs is found, and by how much."""
    one, other = torch.tensor([0, 1, 1]).to(dtype), torch.tensor([0, 1, 0]).to(dtype)
    assert pair({"x": one}, {"x": one.clone()}) == {}
    found = pair({"x": one}, {"x": other})["x"]
    assert (found["max_abs"], found["differing"], found["elements"]) == (1.0, 1, 3)


def test_values_of_numpy_and_queues() -> None:
    """Arrays are compared as tensors are, those of texts as a whole, queues item by item."""

    def contents(number: float, text: str) -> CheckpointContents:
        state = {
            "array": np.array([1.0, math.nan, number]),
            "number": np.float32(number),
            "same": np.float32("nan"),
            "text": np.array([text]),
            "queue": deque([1, number]),
            "dates": [dt.date(2026, 1, 1)],
        }
        return CheckpointContents(
            "x", CheckpointKind.OTHER, 0, {"state_dict": {}, "callbacks": {"C": state}}
        )

    assert not list(differences(contents(1, "a"), contents(1, "a"), Tolerance()))
    found = list(differences(contents(1, "a"), contents(3, "b"), Tolerance()))
    assert [(difference.path, difference.how) for difference in found] == [
        ("callbacks.C.array", DifferenceType.TENSOR),
        ("callbacks.C.number", DifferenceType.VALUE),
        ("callbacks.C.text[2]", DifferenceType.VALUE),
        ("callbacks.C.queue[1]", DifferenceType.VALUE),
    ]
    assert (found[0].max_abs, found[0].differing) == (2.0, 1)


def test_big_integers_are_compared_exactly(pair) -> None:
    """Two numbers that are the same as floats are not the same."""
    found = pair({"x": torch.tensor([2**60])}, {"x": torch.tensor([2**60 + 1])})
    assert found["x"]["differing"] == 1


def test_the_way_to_a_value(pair) -> None:
    """Names, other keys and indices make a path; what changed its type or length is told."""
    found = pair(
        {"callbacks": {"A{'x': 1}": {"list": [1, 2], "t": (1, "a"), 3: "x", "kind": [1]}}},
        {"callbacks": {"A{'x': 1}": {"list": [1], "t": (1, "b"), 3: "y", "kind": "[1]"}}},
    )
    assert {path: entry["how"] for path, entry in found.items()} == {
        "callbacks[\"A{'x': 1}\"].list[1]": "only in A",
        "callbacks[\"A{'x': 1}\"].t[1]": "value",
        "callbacks[\"A{'x': 1}\"][3]": "value",
        "callbacks[\"A{'x': 1}\"].kind": "type",
    }


def test_numbers_that_differ_never_look_the_same(ask, tmp_path) -> None:
    """A float is shown with all of its digits."""
    for name, number in (("a", 0.1), ("b", 0.1 + 2**-40)):
        torch.save({"state_dict": {}, "x": number}, tmp_path / f"{name}.ckpt")
    answer = ask("diff", tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    assert "  x: 0.1 -> 0.1000000000009095\n" in answer.out


def test_many_differences_are_cut_in_text(ask, tmp_path) -> None:
    """Twenty of a part are listed, and how many more there are; JSON has all."""
    for name, number in (("a", 1.0), ("b", 2.0)):
        weights = {f"w{index}": torch.tensor(number) for index in range(30)}
        torch.save({"state_dict": weights}, tmp_path / f"{name}.ckpt")
    paths = (tmp_path / "a.ckpt", tmp_path / "b.ckpt")
    assert "  and 10 more (--json lists all)\n" in ask("diff", *paths).out
    assert len(json.loads(ask("diff", *paths, "--json").out)["differences"]) == 30


def test_a_checkpoint_and_its_weights(ask, save, tmp_path) -> None:
    """Files of different kinds are compared in what both hold."""
    path = save()
    torch.save(torch.load(path, weights_only=True)["state_dict"], tmp_path / "w.pt")
    answer = ask("diff", path, tmp_path / "w.pt")
    assert answer.code == 1
    assert "weights          equal\n" in answer.out
    assert "random numbers" in answer.out.splitlines()[-1]
    assert "callbacks: 1 difference" in answer.out


@pytest.mark.parametrize("option", ["--atol=-1", "--rtol=x", "--atol=nan", "--rtol=inf"])
def test_a_tolerance_is_a_number(option, ask, save, capsys) -> None:
    """A tolerance that makes no sense is refused as argparse does."""
    with pytest.raises(SystemExit) as exit_:
        ask("diff", "a", "b", option)
    assert exit_.value.code == 2
    assert "must be a number from 0 on" in capsys.readouterr().err
