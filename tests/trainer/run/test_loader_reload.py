"""`reload_dataloaders_every_n_epochs`: when loaders are asked for anew, also after a resume."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, DataModule, Module
from trainer_hooks.errors import DataError


class Trains(Module):
    """Notes the sum of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.seen: list[float] = []

    def training_step(self, batch, batch_idx):
        self.seen.append(float(batch[0].sum()))
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val", self.layer(batch[0]).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Draws(Trains):
    """Draws its data anew each time that it is asked for a loader, from the epoch and at random."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def train_dataloader(self):
        return self._loader("train")

    def val_dataloader(self):
        return self._loader("val")

    def _loader(self, stage: str):
        epoch = self.trainer.current_epoch
        self.asked.append((stage, epoch))
        data = TensorDataset(torch.rand(6, 2) + epoch)
        return DataLoader(data, batch_size=2, shuffle=stage == "train")


class SavesAll(Callback):
    """Saves a checkpoint at every slot."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.paths: list[str] = []

    def _save(self, trainer) -> None:
        self.paths.append(str(self.folder / f"{len(self.paths)}.ckpt"))
        trainer.save_checkpoint(self.paths[-1])

    def on_batch_checkpoint(self, trainer, module):
        self._save(trainer)

    def on_epoch_checkpoint(self, trainer, module):
        self._save(trainer)


def test_a_loader_without_batches_is_refused_in_its_epoch(bare, Tiny, batches) -> None:
    """What is asked for anew must be such as a run can begin with."""

    class Ends(Tiny):
        def train_dataloader(self):
            return batches(2) if self.trainer.current_epoch < 1 else []

    with pytest.raises(DataError, match="gives no batch"):
        bare(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(Ends())


@pytest.mark.parametrize(
    ("every", "epochs"), [(0, [0]), (1, [0, 1, 2, 3, 4]), (2, [0, 2, 4]), (3, [0, 3]), (9, [0])]
)
def test_loaders_are_asked_for_every_n_epochs(every, epochs, bare) -> None:
    """Training loaders are asked for in the epochs of Lightning, those of the validation beside."""
    module = Draws()
    bare(max_epochs=5, reload_dataloaders_every_n_epochs=every).fit(module)
    assert [epoch for stage, epoch in module.asked if stage == "train"] == epochs
    assert [epoch for stage, epoch in module.asked if stage == "val"] == epochs


def test_loaders_that_were_passed_stay(bare, batches) -> None:
    """What the fit was given is gone on with; what it was not given is asked for."""
    module = Draws()
    train = [(batch,) for batch in batches(2)]
    bare(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(module, train)
    assert module.asked == [("val", 0), ("val", 1), ("val", 2)]
    module.asked.clear()
    bare(max_epochs=3, reload_dataloaders_every_n_epochs=1).fit(module, train, train)
    assert module.asked == []


def test_a_data_module_is_asked_too(bare, Tiny, batches) -> None:
    """Its loaders take part, and may be longer than those before."""

    class Grows(DataModule):
        def train_dataloader(self):
            return batches(1 + self.trainer.current_epoch)

    trainer = bare(max_epochs=3, reload_dataloaders_every_n_epochs=1)
    trainer.fit(Tiny(), datamodule=Grows())
    assert trainer.global_step == 1 + 2 + 3
    assert trainer.reload_dataloaders_every_n_epochs == 1


def test_a_second_fit_does_not_ask_twice(bare) -> None:
    """Loaders of its first epoch are those that it begins with; after that the count goes on."""
    module, trainer = Draws(), bare(max_epochs=2, reload_dataloaders_every_n_epochs=2)
    trainer.fit(module)
    trainer.max_epochs = 5
    module.asked.clear()
    trainer.fit(module)
    assert [epoch for stage, epoch in module.asked if stage == "train"] == [2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_resumed_run_has_the_loaders_of_the_uncut_one(every, bare, tmp_path) -> None:
    """From every slot on, epochs, batches and weights are those of the run that was not cut."""
    options = {"max_epochs": 4, "reload_dataloaders_every_n_epochs": every}
    torch.manual_seed(3)
    saves, whole = SavesAll(tmp_path), Draws()
    bare(saves, **options).fit(whole)
    assert len(saves.paths) == 4 * (3 + 1)
    for number, path in enumerate(saves.paths[:-1]):  # after the last there is nothing to do
        torch.manual_seed(99)
        resumed = Draws()
        bare(**options).fit(resumed, ckpt_path=path)
        done = torch.load(path, weights_only=True)["trainer_hooks"]["progress"]["batches_completed"]
        assert resumed.seen == whole.seen[done:], (number, resumed.asked)
        assert torch.equal(resumed.layer.weight, whole.layer.weight), number


class Offsets(DataModule):
    """Draws the offset of its data once, and counts the loaders that it has made."""

    def __init__(self) -> None:
        super().__init__()
        self.offset, self.made = 0.0, 0

    def setup(self, stage) -> None:
        self.offset = float(torch.rand(()))

    def train_dataloader(self):
        self.made += 1
        data = torch.arange(12.0).reshape(6, 2) + self.offset + self.trainer.current_epoch
        return DataLoader(TensorDataset(data), batch_size=2)

    def state_dict(self):
        return {"offset": self.offset, "made": self.made}

    def load_state_dict(self, state) -> None:
        self.offset, self.made = state["offset"], state["made"]


def test_a_data_module_has_its_state_before_and_after_it_makes_the_loaders_again(
    bare, tmp_path
) -> None:
    """Its loaders are made from the saved state, and do not count twice in it."""
    options = {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    saves, whole, data = SavesAll(tmp_path), Trains(), Offsets()
    bare(saves, **options).fit(whole, datamodule=data)
    for path in saves.paths[1:9:3]:  # inside an epoch, at its end, and after it
        resumed, resumed_data = Trains(), Offsets()
        bare(**options).fit(resumed, datamodule=resumed_data, ckpt_path=path)
        done = torch.load(path, weights_only=True)["trainer_hooks"]["progress"]["batches_completed"]
        assert resumed.seen == whole.seen[done:], path
        assert resumed_data.state_dict() == data.state_dict(), path


def test_a_run_without_the_option_writes_nothing_of_it(bare, tmp_path) -> None:
    """A file of then is the one that it was, and one that knows nothing of it can be resumed."""
    trainer = bare(max_epochs=1)
    trainer.fit(Draws())
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    own = torch.load(tmp_path / "one.ckpt", weights_only=True)["trainer_hooks"]
    assert "renewed" not in own
    module = Draws()
    options = {"max_epochs": 3, "reload_dataloaders_every_n_epochs": 1}
    bare(**options).fit(module, ckpt_path=tmp_path / "one.ckpt")
    assert [epoch for stage, epoch in module.asked if stage == "train"] == [0, 1, 2]


class Remembers(Draws):
    """Has a hook that may decide which loaders there are."""

    def on_load_checkpoint(self, checkpoint):
        self.restored = checkpoint["epoch"]


@pytest.mark.parametrize(
    ("kind", "every", "saved_after", "asked"),
    [
        # inside epoch 1, with the loaders of that epoch
        (Draws, 1, 5, [1, 2]), (Draws, 2, 5, [0, 2]), (Draws, 9, 5, [0]),
        # after epoch 1: its loaders have the state with which those of epoch 2 begin
        (Draws, 1, 7, [1, 2]), (Draws, 2, 7, [0, 2]), (Draws, 9, 7, [0]),
        (Remembers, 1, 5, [0, 1, 2]), (Remembers, 9, 5, [0, 0]),
    ],
)  # fmt: skip
def test_a_resume_asks_once_for_the_loaders_of_its_file(
    kind, every, saved_after, asked, bare, tmp_path
) -> None:
    """As saved, where no code of the user's comes before that might change them."""
    options = {"max_epochs": 3, "reload_dataloaders_every_n_epochs": every}
    saver = SavesAll(tmp_path)
    bare(**options, callbacks=[saver]).fit(Draws())
    module = kind()
    # three batches and the end of an epoch have a file each
    bare(**options).fit(module, ckpt_path=saver.paths[saved_after])
    for stage in ("train", "val"):
        assert [epoch for name, epoch in module.asked if name == stage] == asked
