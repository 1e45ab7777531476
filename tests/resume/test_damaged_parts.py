"""Checkpoints that another program has changed: each loads, or one error names the part."""

from __future__ import annotations

import copy
import random
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.checkpoint.parts import restoring_part
from trainer_hooks.errors import CheckpointError, DataError, TrainerHooksError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

CUT_AT = 15  # inside an epoch, after a validation, and inside an accumulation window


class Net(Module):
    """Has an optimizer of two groups with moments, a scheduler, buffers and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout(0.2))
        self.last = nn.Linear(3, 1)

    def training_step(self, batch, batch_idx):
        loss = self.last(self.first(batch[0])).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.last(self.first(batch[0])).square().mean())

    def configure_optimizers(self):
        groups = [
            {"params": self.first.parameters(), "lr": 0.1},
            {"params": self.last.parameters()},
        ]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]


class Seen(Callback):
    """A user's callback, which trusts its state."""

    def __init__(self) -> None:
        self.batches, self.last = 0, [1, 2]

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.batches += 1

    def state_dict(self) -> dict[str, Any]:
        return {"batches": self.batches, "last": list(self.last)}

    def load_state_dict(self, state_dict) -> None:
        self.batches, self.last = int(state_dict["batches"]), list(state_dict["last"])


class Cut(Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        if trainer.progress.batches_completed == CUT_AT:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/whole.ckpt")
            raise RuntimeError("cut")


def train(folder: Path, *callbacks: Callback, ckpt_path: str | None = None) -> Trainer:
    data = TensorDataset(torch.randn(20, 4, generator=torch.Generator().manual_seed(1)))
    shuffled = DataLoader(
        data, batch_size=2, shuffle=True, generator=torch.Generator().manual_seed(4)
    )
    saver = ModelCheckpoint(folder, monitor="val_loss", every_n_train_steps=2, save_top_k=2)
    trainer = Trainer(
        accelerator="cpu", max_epochs=2, logger=False, plugins=False, enable_progress_bar=False,
        enable_model_summary=False, accumulate_grad_batches=2, val_check_interval=4,
        log_every_n_steps=1, default_root_dir=folder,
        callbacks=[EarlyStopping("val_loss", patience=9), saver, Seen(), *callbacks],
    )  # fmt: skip
    trainer.fit(Net(), shuffled, DataLoader(data, batch_size=5), ckpt_path=ckpt_path)
    return trainer


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, Any]:
    """A checkpoint of such a run, as plain data."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.raises(RuntimeError, match="cut"):
        train(folder, Cut())
    loaded: dict[str, Any] = torch.load(folder / "whole.ckpt", weights_only=True)
    return loaded


def paths_in(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths_in(value, (*path, key))


REMOVE, RENAME = "remove", "rename"
VALUES = [
    None, 3, -1, 2.5, True, "x", [], {}, [1, 2], {"a": 1}, torch.ones(2), torch.ones(3, 7),
    REMOVE, RENAME,
]  # fmt: skip


def damage(data: dict[str, Any], draw: random.Random) -> tuple[tuple[Any, ...], Any]:
    """Replace, remove or rename one of the thousands of values, at any depth."""
    path, value = draw.choice(list(paths_in(data))), draw.choice(VALUES)
    owner = data
    for key in path[:-1]:
        owner = owner[key]
    key = path[-1]
    if value is REMOVE or (value is RENAME and isinstance(owner, list)):
        del owner[key]
    elif value is RENAME:
        owner[f"{key}x"] = owner.pop(key)
    else:
        owner[key] = value
    return path, value


def check_damages(whole: dict[str, Any], folder: Path, seeds: range) -> tuple[int, int]:
    """Resume from drawn damages; return how many were loaded, and how many were refused."""
    loaded = refused = 0
    path = str(folder / "drawn.ckpt")
    for seed in seeds:
        data = copy.deepcopy(whole)
        drawn = damage(data, random.Random(seed))
        torch.save(data, path)
        try:
            train(folder, ckpt_path=path)
            loaded += 1
        except TrainerHooksError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {drawn}: {type(error).__name__}") from error
    return loaded, refused


@pytest.mark.slow
def test_some_damages_are_told(whole, tmp_path) -> None:
    """Of drawn damages, each loads or raises an error of trainer_hooks."""
    loaded, refused = check_damages(whole, tmp_path, range(30))
    assert loaded > 5
    assert refused > 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", [30, 130])
def test_a_hundred_damages_are_told(whole, tmp_path, first) -> None:
    """So do many more of them."""
    loaded, refused = check_damages(whole, tmp_path, range(first, first + 100))
    assert loaded > 15
    assert refused > 15


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("optimizer_states", 0, "state", 1, "exp_avg"), torch.ones(2)),
        (("optimizer_states", 0, "state", 1, "exp_avg"), REMOVE),
        (("optimizer_states", 0, "state", 1, "step"), -1),
        (("optimizer_states", 0, "state", 1, "step"), torch.tensor(float("nan"))),
        (("optimizer_states", 0, "param_groups", 1, "lr"), "x"),
        (("optimizer_states", 0, "param_groups", 1, "betas"), REMOVE),
        (("optimizer_states", 0, "param_groups", 1, "amsgrad"), True),
        (("optimizer_states", 0, "param_groups", 1, "decoupled_weight_decay"), torch.ones(2)),
        (("lr_schedulers", 0, "_step_count"), {}),
        (("lr_schedulers",), REMOVE),
        (("trainer_hooks", "rng", "torch"), REMOVE),
        (("trainer_hooks", "progress", "tokens_completed"), []),
        (("trainer_hooks", "stream", "position"), {}),
        (("trainer_hooks", "stream", "opened_with", "rng", "python"), 3),
        (("trainer_hooks", "setup", "optimizers", 0, "groups"), REMOVE),
        (("trainer_hooks", "metrics", "epoch", 0, "scope"), 3),
        (("trainer_hooks", "history", "series", "val_loss", "stride"), 0),
        (("trainer_hooks", "state_versions", "Seen"), None),
        (("callbacks", "Seen", "batches"), REMOVE),
        (("state_dict", "last.weight"), None),
    ],
    ids=str,
)
def test_the_part_is_named(path, value, whole, tmp_path) -> None:
    """The error names the file and the part, says what to do, and has the cause."""
    data = copy.deepcopy(whole)
    owner = data
    for key in path[:-1]:
        owner = owner[key]
    if value is REMOVE:
        del owner[path[-1]]
    else:
        owner[path[-1]] = value
    torch.save(data, tmp_path / "drawn.ckpt")
    with pytest.raises(CheckpointError) as caught:
        train(tmp_path, ckpt_path=str(tmp_path / "drawn.ckpt"))
    message = str(caught.value)
    assert f"checkpoint '{tmp_path / 'drawn.ckpt'}' cannot be " in message
    assert caught.value.__cause__ is not None


def numbers_in(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of the plain numbers of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for key, value in items:
        if isinstance(value, dict | list):
            found += numbers_in(value, (*path, key))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((*path, key))
    return found


def with_tensor(whole: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    data = copy.deepcopy(whole)
    owner = data
    for key in path[:-1]:
        owner = owner[key]
    owner[path[-1]] = torch.tensor([4.0, 5.0, 6.0])
    return data


def check_tensors(whole: dict[str, Any], folder: Path, paths: list[tuple[Any, ...]]) -> None:
    for path in paths:
        torch.save(with_tensor(whole, path), folder / "drawn.ckpt")
        try:
            train(folder, ckpt_path=str(folder / "drawn.ckpt"))
        except TrainerHooksError as error:
            assert "drawn.ckpt" in str(error), path  # noqa: PT017 - most of them are loaded
        except Exception as error:
            raise AssertionError(f"{path}: {type(error).__name__}: {error}") from error


def test_a_tensor_where_a_number_belongs(whole, tmp_path) -> None:
    """It is told of with the file before the loop compares it, which torch would refuse."""
    path = str(tmp_path / "drawn.ckpt")
    torch.save(with_tensor(whole, ("trainer_hooks", "stream", "num_batches")), path)
    with pytest.raises(CheckpointError, match=re.escape(path)) as caught:
        train(tmp_path, ckpt_path=path)
    assert "'num_batches' in its part 'stream' is a Tensor, and must be a number" in str(
        caught.value
    )
    metrics = whole["trainer_hooks"]["metrics"]["epoch"]
    check_tensors(
        whole,
        tmp_path,
        [("trainer_hooks", "metrics", "epoch", index, "total") for index in range(len(metrics))],
    )


@pytest.mark.slow
def test_some_tensors_where_numbers_belong(whole, tmp_path) -> None:
    """Of all numbers of our parts, each such file loads, or an error names the file."""
    paths = [path for path in numbers_in(whole) if path[0] == "trainer_hooks"]
    check_tensors(whole, tmp_path, random.Random(3).sample(paths, 24))


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(4))
def test_all_tensors_where_numbers_belong(whole, tmp_path, part) -> None:
    """So do all the others, also of optimizers, schedulers and callbacks."""
    check_tensors(whole, tmp_path, numbers_in(whole)[part::4])


def test_a_capturable_optimizer_goes_on_on_the_cpu(whole, tmp_path) -> None:
    """`capturable=True`, which a run on a GPU saves and torch refuses on the CPU, is set back."""
    data = copy.deepcopy(whole)
    for group in data["optimizer_states"][0]["param_groups"]:
        group["capturable"] = True
    resumed = []
    for name, saved in (("whole", whole), ("gpu", data)):
        torch.save(saved, tmp_path / f"{name}.ckpt")
        resumed.append(train(tmp_path, ckpt_path=str(tmp_path / f"{name}.ckpt")))
    (optimizer,) = resumed[1].optimizers
    assert [group["capturable"] for group in optimizer.param_groups] == [False, False]
    expected, weights = (trainer.module.state_dict() for trainer in resumed)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_an_error_of_a_users_callback_is_the_cause() -> None:
    """The user's exception is shown below ours, and its notes are in the message."""
    mine = KeyError("batches")
    mine.add_note("raised by load_state_dict() of Seen")
    with (
        pytest.raises(CheckpointError, match=r"'callbacks' .*KeyError: .*of Seen") as caught,
        restoring_part("callbacks", "a.ckpt"),
    ):
        raise mine
    assert caught.value.__cause__ is mine


@pytest.mark.parametrize(
    "error", [DataError("d"), CheckpointError("c"), MemoryError(), SystemExit()]
)
def test_other_errors_pass_through(error) -> None:
    """Errors of trainer_hooks say more already, and those of the machine are no fault of a file."""
    with pytest.raises(type(error)) as caught, restoring_part("callbacks", "a.ckpt"):
        raise error
    assert caught.value is error


class Unreadable(torch.utils.data.Dataset):
    """A data set that cannot be read."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index):
        raise ValueError("a bad sample")


@pytest.mark.parametrize("data", [DataLoader(Unreadable()), (1 // 0 for _ in range(1))])
def test_an_error_of_the_data_is_not_the_files(data) -> None:
    """A resume goes through the loader: an error of it stays as it is."""
    with pytest.raises((ValueError, ZeroDivisionError)), restoring_part("stream", "a.ckpt"):
        next(iter(data))
