"""Signatures of steps: the batch alone, and arguments that nothing passes."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader

from trainer_hooks import Module, Trainer
from trainer_hooks.errors import ModuleError

QUIET = {**QUIET_OPTIONS, "max_epochs": 1}
DATA = DataLoader(torch.ones(4, 2), batch_size=2)


class Short(Module):
    """Each step takes the batch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.seen: list[str] = []

    def training_step(self, batch):
        self.seen.append("train")
        return self.layer(batch).mean()

    def validation_step(self, batch):
        self.seen.append("validate")

    def test_step(self, batch):
        self.seen.append("test")

    def predict_step(self, batch):
        return self.layer(batch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Other(Short):
    """Has no steps of its own; the tests put them in."""


def test_a_step_may_take_the_batch_alone() -> None:
    """As in Lightning, `batch_idx` may be left out of any step."""
    module, trainer = Short(), Trainer(num_sanity_val_steps=0, **QUIET)
    trainer.fit(module, DATA, DATA)
    assert module.seen == ["train", "train", "validate", "validate"]
    trainer.validate(module, DATA, verbose=False)
    trainer.test(module, DATA, verbose=False)
    assert len(trainer.predict(module, DATA)) == 2
    assert module.seen[4:] == ["validate"] * 2 + ["test"] * 2


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_several_loaders_need_a_third_argument(fn) -> None:
    """A step without dataloader_idx is named in an error, with the signature to write."""
    name = {"validate": "validation_step"}.get(fn, f"{fn}_step")
    module, trainer = Other(), Trainer(**QUIET)
    setattr(module, name, lambda batch, batch_idx: None)
    options = {} if fn == "predict" else {"verbose": False}
    expected = rf"Other\.{name}\(batch, batch_idx\) with 2 loaders.*dataloader_idx=0"
    with pytest.raises(ModuleError, match=expected):
        getattr(trainer, fn)(module, [DATA, DATA], **options)
    seen = []
    setattr(module, name, lambda batch, batch_idx, dataloader_idx=0: seen.append(dataloader_idx))
    getattr(trainer, fn)(module, [DATA, DATA], **options)
    assert seen == [0, 0, 1, 1]


def test_a_fit_with_several_loaders_says_so_before_it_trains() -> None:
    """Nothing is trained with a validation step that cannot be called."""
    module = Short()
    with pytest.raises(ModuleError, match=r"Short\.validation_step\(batch\) with 2 loaders"):
        Trainer(num_sanity_val_steps=0, **QUIET).fit(module, DATA, [DATA, DATA])
    assert module.seen == []


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda batch, batch_idx, extra: None, r"\(batch, batch_idx, extra\): it is called with"),
        (lambda: None, r"\(\): it is called with \(batch, batch_idx\)"),
    ],
    ids=["too many", "none"],
)
def test_other_arguments_are_refused(step, words) -> None:
    """A training step with unknown arguments is an error before the first batch."""
    module = Other()
    module.training_step = step
    with pytest.raises(ModuleError, match=words):
        Trainer(**QUIET).fit(module, DATA)


def test_any_number_of_arguments() -> None:
    """A step that takes `*args` is given all there are."""
    module, seen = Other(), []

    def training_step(*args):
        seen.append(len(args))
        return module.layer(args[0]).mean()

    module.training_step = training_step
    Trainer(**QUIET).fit(module, DATA)
    assert seen == [2, 2]


def test_a_step_that_wants_the_loader(Tiny, quiet_trainer, batches) -> None:
    """Lightning's `training_step(self, dataloader_iter)` is an error with the right signature."""

    class TakesLoaderIterator(Tiny):
        def training_step(self, dataloader_iter):
            return super().training_step(next(dataloader_iter)[0], 0)

    with pytest.raises(ModuleError, match=r"training_step\(dataloader_iter\): .*self, batch, ba"):
        quiet_trainer().fit(TakesLoaderIterator(), batches(1))
