"""A checkpoint that a fit cannot go on from is refused by one clear error; nothing changes."""

from __future__ import annotations

import copy

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, CombinedLoader, Module, Trainer
from trainer_hooks.checkpoint.parts import FORMAT
from trainer_hooks.errors import (
    CheckpointError,
    DataError,
    TrainerHooksError,
    TrainerHooksWarning,
)


class Net(Module):
    def __init__(self, width=3, groups=1, schedulers=0, optimizers=1):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.second = nn.Linear(width, 1)
        self.groups, self.schedulers, self.number = groups, schedulers, optimizers
        self.automatic_optimization = optimizers == 1

    def training_step(self, batch, batch_idx):
        loss = self.second(self.first(batch[0])).square().mean()
        self.log("loss", loss, on_epoch=True)
        if not self.automatic_optimization:
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
        return loss

    def configure_optimizers(self):
        parts = [self.first, self.second][: self.groups] if self.groups > 1 else [self]
        groups = [{"params": part.parameters()} for part in parts]
        made = [torch.optim.Adam(copy.copy(groups), lr=0.1)]
        if self.number > 1:
            made.append(torch.optim.SGD(self.first.parameters(), lr=0.1))
        return made, [StepLR(made[0], 1) for _ in range(self.schedulers)]


def loader(samples=12, **kwargs):
    data = TensorDataset(torch.arange(samples * 2.0).reshape(samples, 2) / samples)
    return DataLoader(data, **{"batch_size": 3, "shuffle": True, **kwargs})


def trainer_of(folder, callbacks=(), **options):
    return Trainer(
        callbacks=callbacks,
        default_root_dir=folder,
        **{"max_epochs": 2, **QUIET_OPTIONS, **options},
    )


@pytest.fixture
def saved(tmp_path):
    """Files of a run, saved at each batch and epoch."""
    return save_all(tmp_path / "saved", Net(), loader(), accumulate_grad_batches=2)


def save_all(folder, module, train, **options):
    """Save at each of a run's batches and epochs; return the folder."""

    class Saver(Callback):
        def on_batch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(folder / f"batch-{trainer.progress.batches_completed}.ckpt")

        def on_epoch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(folder / f"epoch-{trainer.current_epoch}.ckpt")
            trainer.save_checkpoint(folder / "weights.ckpt", weights_only=True)

    trainer_of(folder, [Saver()], **options).fit(module, train)
    return folder


def refuse(path, error, module=None, train=None, **options):
    """Fit from `path`; return the error's text once it is clear that nothing was changed."""
    module = Net() if module is None else module
    before = copy.deepcopy(module.state_dict())
    options = {"accumulate_grad_batches": 2, **options}
    if not module.automatic_optimization:
        options.pop("accumulate_grad_batches")
    trainer = trainer_of(path.parent, **options)
    with pytest.raises(error) as caught:
        trainer.fit(module, loader() if train is None else train, ckpt_path=path)
    assert isinstance(caught.value, TrainerHooksError)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert trainer.progress.is_new_training
    assert trainer.progress == type(trainer.progress)()
    assert trainer.callback_metrics == {}
    assert all(not optimizer.state for optimizer in trainer.optimizers)
    assert all(group["lr"] == 0.1 for o in trainer.optimizers for group in o.param_groups)
    return str(caught.value)


def change(path, **changes):
    """Write a file like `path` with changes in its `trainer_hooks` part."""
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["trainer_hooks"].update(changes)
    changed = path.with_name("changed.ckpt")
    torch.save(checkpoint, changed)
    return changed


def test_weights_alone(saved):
    """Weights alone cannot be resumed from, and the message says what to do with them."""
    text = refuse(saved / "weights.ckpt", CheckpointError)
    assert "cannot be resumed from: it holds weights alone" in text
    assert "Net.load_from_checkpoint" in text


def test_a_file_of_another_framework(saved):
    """A file with weights under the right key has no state to resume from."""
    checkpoint = torch.load(saved / "epoch-0.ckpt", weights_only=True)
    del checkpoint["trainer_hooks"], checkpoint["pytorch-lightning_version"]
    torch.save(checkpoint, saved / "other.ckpt")
    text = refuse(saved / "other.ckpt", CheckpointError)
    assert "was saved neither by trainer_hooks nor by Lightning" in text


def test_a_newer_format(saved):
    """A format from the future is refused by its number, with the version that wrote it."""
    path = change(saved / "epoch-0.ckpt", format=FORMAT + 1, version="9.9")
    text = refuse(path, CheckpointError)
    assert f"has format {FORMAT + 1}, saved by trainer_hooks 9.9: this version knows" in text
    assert f"formats up to {FORMAT}" in text


def test_another_models_weights(saved):
    """Missing, unexpected and misshapen weights are listed, all in one message."""

    class Other(Net):
        def __init__(self):
            super().__init__(width=4)
            self.third = self.second
            del self.second
            self.groups = 1

    text = refuse(saved / "epoch-0.ckpt", CheckpointError, Other())
    assert "do not fit" in text
    assert "Missing key(s) in state_dict: third.weight, third.bias; " in text
    assert "Unexpected key(s) in state_dict: second.weight, second.bias" in text
    assert "of another shape: first.weight (saved (3, 2), here (4, 2))" in text


def test_another_number_of_optimizers(tmp_path, saved):
    """Two optimizers cannot take the states of one."""
    text = refuse(saved / "epoch-0.ckpt", CheckpointError, Net(optimizers=2))
    assert "holds 1 entries under 'optimizer_states', but configure_optimizers returned 2" in text


def test_another_number_of_schedulers(saved):
    """A scheduler that was not there before has no state to go on from."""
    text = refuse(saved / "epoch-0.ckpt", CheckpointError, Net(schedulers=1))
    assert "holds 0 entries under 'lr_schedulers', but configure_optimizers returned 1" in text


def test_other_parameter_groups(saved):
    """Parameter groups of another size are refused before any state is taken back."""
    text = refuse(saved / "epoch-0.ckpt", CheckpointError, Net(groups=2))
    assert "Adam had parameter groups of [4] parameters when it was saved" in text
    assert "and has groups of [2, 2] now" in text


def test_another_accumulation_inside_a_window(saved):
    """Gradients of half a window are of no use to a window of another length."""
    text = refuse(saved / "batch-1.ckpt", CheckpointError, accumulate_grad_batches=4)
    assert "was saved inside a window of 2 batches" in text
    assert "accumulate_grad_batches=4" in text


def test_another_accumulation_between_windows_goes_on(saved):
    """Between two windows the number of batches that accumulate may change, which is told."""
    trainer = trainer_of(saved, accumulate_grad_batches=4)
    expected = "was saved with accumulate_grad_batches=2, and this run has 4"
    with pytest.warns(TrainerHooksWarning, match=expected):
        trainer.fit(Net(), loader(), ckpt_path=saved / "batch-4.ckpt")
    assert trainer.progress.batches_completed == 8


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"batch_size": 4}, ["number of batches was 4 and is 3", "batch_size was 3 and is 4"]),
        ({"samples": 15}, ["number of batches was 4 and is 5", "samples was 12 and is 15"]),
        ({"samples": 11}, ["number of samples was 12 and is 11"]),
        (
            {"generator": torch.Generator()},
            ["random generators of its own (generator=) was 0 and is 1"],
        ),
    ],
    ids=["batch size", "more samples", "as many batches", "generator"],
)
def test_another_loader_inside_an_epoch(saved, train, said):
    """Where the epoch's batches cannot be found again, the message says what differs."""
    text = refuse(saved / "batch-2.ckpt", DataError, train=loader(**train))
    assert f"checkpoint '{saved / 'batch-2.ckpt'}' cannot be resumed from" in text
    assert all(part in text for part in said)
    assert "saved at the end of an epoch" in text


def test_another_number_of_loaders_inside_an_epoch(saved):
    """Two loaders in place of one are not the same batches."""
    train = CombinedLoader([loader(), loader()])
    text = refuse(saved / "batch-2.ckpt", DataError, train=train)
    assert "the number of loaders was 1 and is 2" in text


def test_another_loader_between_epochs_goes_on(saved):
    """Between two epochs a loader may be another one, and one warning says what is different."""
    trainer = trainer_of(saved, accumulate_grad_batches=2)
    train = loader(samples=15, generator=torch.Generator())
    with pytest.warns(TrainerHooksWarning) as said:
        trainer.fit(Net(), train, ckpt_path=saved / "epoch-0.ckpt")
    (warning,) = said
    assert str(warning.message) == (
        "the training loader is not as it was: number of batches was 4 and is 5; number of samples "
        "was 12 and is 15. The run goes on with it from the epoch that begins, and is not the one "
        "that was saved any more."
    )
    assert trainer.progress.batches_completed == 4 + 5


def test_a_loader_that_ends_too_early(tmp_path):
    """A loader without length that has fewer batches than were done is named as the cause."""

    class Stream:
        def __init__(self, count):
            self.count = count

        def __iter__(self):
            return iter([[torch.ones(3, 2)]] * self.count)

    folder = save_all(tmp_path / "saved", Net(), Stream(4))
    trainer = trainer_of(folder)
    with pytest.raises(DataError, match="ended after 2 batches, but 3 of this epoch were done"):
        trainer.fit(Net(), Stream(2), ckpt_path=folder / "batch-3.ckpt")


def test_a_refused_evaluation_changes_nothing(saved):
    """Weights of another model are refused by test and validate too."""

    class Wider(Net):
        def test_step(self, batch, batch_idx):
            pass

    module = Wider(width=5)
    before = copy.deepcopy(module.state_dict())
    with pytest.raises(CheckpointError, match="of another shape"):
        trainer_of(saved).test(module, loader(), ckpt_path=saved / "weights.ckpt", verbose=False)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
