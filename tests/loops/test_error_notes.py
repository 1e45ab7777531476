"""An error in a step says in a note which batch it was, and keeps its type and message."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainer_hooks import Callback


class Fault(Exception):
    pass


@pytest.fixture
def Failing(Tiny):
    """A module whose steps all fail at the same batch."""

    class Failing(Tiny):
        def __init__(self, step, at=1) -> None:
            super().__init__()
            self.step, self.at = step, at

        def training_step(self, batch, batch_idx):
            return self._run("training_step", batch, batch_idx)

        def validation_step(self, batch, batch_idx, dataloader_idx=0):
            self._run("validation_step", batch, batch_idx)

        def test_step(self, batch, batch_idx, dataloader_idx=0):
            self._run("test_step", batch, batch_idx)

        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            self._run("predict_step", batch, batch_idx)

        def _run(self, step, batch, batch_idx):
            if step == self.step and batch_idx == self.at and self.current_epoch == 0:
                raise Fault(step)
            return self.layer(batch).mean()

    return Failing


@pytest.mark.parametrize(
    ("fn", "step", "note"),
    [
        ("fit", "training_step", "in epoch 0, training batch 1"),
        ("fit", "validation_step", "in validation batch 1"),
        ("validate", "validation_step", "in validation batch 1"),
        ("test", "test_step", "in test batch 1"),
        ("predict", "predict_step", "in predict batch 1"),
    ],
)
def test_the_batch_is_named(fn, step, note, Failing, quiet_trainer, batches) -> None:
    """Each kind of step."""
    loaders = (batches(2), batches(2)) if fn == "fit" else (batches(2),)
    with pytest.raises(Fault, match=step) as caught:
        getattr(quiet_trainer(), fn)(Failing(step), *loaders)
    assert caught.value.__notes__ == [note]


def test_a_batch_of_the_sanity_check_is_named_as_one(Failing, quiet_trainer, batches) -> None:
    """No validation of the training has begun then."""
    with pytest.raises(Fault) as caught:
        quiet_trainer(num_sanity_val_steps=2).fit(
            Failing("validation_step"), batches(2), batches(2)
        )
    assert caught.value.__notes__ == ["in the sanity check, validation batch 1"]


@pytest.mark.parametrize("fn", ["validate", "test", "predict"])
def test_the_loader_is_named(fn, Failing, quiet_trainer, batches) -> None:
    """Where there are several, the loader is named, too."""
    step = {"validate": "validation_step", "test": "test_step", "predict": "predict_step"}[fn]
    loaders = [DataLoader(batches(count), batch_size=None) for count in (1, 2)]
    with pytest.raises(Fault) as caught:
        getattr(quiet_trainer(), fn)(Failing(step), loaders)
    (note,) = caught.value.__notes__
    assert note.endswith("batch 1 of loader 1")


def test_a_hook_of_a_batch(Tiny, quiet_trainer, batches) -> None:
    """An error of a hook inside a batch has both places."""

    class Broken(Callback):
        def on_before_backward(self, trainer, module, loss):
            raise Fault

    with pytest.raises(Fault) as caught:
        quiet_trainer(callbacks=Broken()).fit(Tiny(), batches(1))
    hook, batch = caught.value.__notes__
    assert hook.startswith("raised in hook 'on_before_backward'")
    assert batch == "in epoch 0, training batch 0"


class FaultyData(Dataset):
    """Four samples, of which the one at index 2 cannot be loaded."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            raise Fault("img_2.png")
        return torch.ones(2)


class FaultyStream(IterableDataset):
    """As `FaultyData`, without a length, so that batches are loaded ahead."""

    def __iter__(self):
        return map(FaultyData().__getitem__, range(4))


@pytest.mark.parametrize("data", [FaultyData(), FaultyStream()])
@pytest.mark.parametrize(
    ("fn", "note"),
    [
        ("fit", "in epoch 0, training batch 2, while it was loaded"),
        ("validate", "in validation batch 2, while it was loaded"),
        ("test", "in test batch 2, while it was loaded"),
        ("predict", "in predict batch 2, while it was loaded"),
    ],
)
def test_the_batch_that_cannot_be_loaded_is_named(fn, note, data, Failing, quiet_trainer) -> None:
    """The error comes from the data set, and its traceback names no batch."""
    with pytest.raises(Fault, match=r"img_2\.png") as caught:
        getattr(quiet_trainer(), fn)(Failing("none"), DataLoader(data, batch_size=1))
    assert caught.value.__notes__ == [note]


def test_a_validation_batch_in_a_fit_that_cannot_be_loaded(Failing, quiet_trainer, batches) -> None:
    """It is not taken for a training batch."""
    with pytest.raises(Fault) as caught:
        quiet_trainer().fit(Failing("none"), batches(1), DataLoader(FaultyData(), batch_size=1))
    assert caught.value.__notes__ == ["in validation batch 2, while it was loaded"]


def test_an_interrupt_while_a_batch_is_loaded_has_no_note(Tiny, quiet_trainer) -> None:
    """A note would make the interpreter print the whole traceback."""

    def interrupted():
        yield torch.ones(1, 2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        quiet_trainer().fit(Tiny(), interrupted())
    assert not hasattr(caught.value, "__notes__")
