"""trainer.replay_training_data(), and the hook between a module's layers and its optimizers."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from trainer_hooks import Band, Callback
from trainer_hooks.errors import UsageError
from trainer_hooks.testing import TinyModule


class Replay(Callback):
    """Replays at the end of the training, and notes the outcome."""

    count = 0

    def on_train_end(self, trainer, module):
        self.count = trainer.replay_training_data()


class Seeing(TinyModule):
    """Records the batches of its training step, and logs them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append((batch_idx, batch[0].sum().item(), torch.is_grad_enabled()))
        loss = self.loss(self(batch), batch)
        self.log("seen", loss, on_step=True, on_epoch=True)
        return loss


def test_each_batch_once_without_learning(quiet_trainer, MemoryLogger) -> None:
    """The training step is given each batch, without gradients; nothing is logged or counted."""
    module, replay, logger = Seeing(), Replay(), MemoryLogger()
    trainer = quiet_trainer(
        callbacks=[replay], logger=logger, log_every_n_steps=1, limit_val_batches=0
    )
    before = None

    class Look(Callback):
        def on_train_epoch_end(self, trainer, module):
            nonlocal before
            before = (module.layer.weight.clone(), dict(trainer.callback_metrics))

    trainer.add_callback(Look())
    trainer.fit(module, list(module.train_dataloader()))
    assert replay.count == 3
    trained, replayed = module.seen[:3], module.seen[3:]
    assert [(i, x) for i, x, _ in trained] == [(i, x) for i, x, _ in replayed]
    assert [grad for _, _, grad in module.seen] == [True] * 3 + [False] * 3
    assert torch.equal(module.layer.weight, before[0])
    assert trainer.callback_metrics["seen"] == before[1]["seen"]
    assert trainer.global_step == trainer.progress.batches_completed == 3
    assert len(logger.seen) == 4  # three steps and the epoch


def test_the_next_epoch_is_as_without(quiet_trainer) -> None:
    """Random state and generator are restored: further training has the same order."""
    ends = []
    for callbacks in ([], [Replay()]):
        module = TinyModule()
        loader = DataLoader(
            TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2),
            batch_size=2,
            shuffle=True,
            generator=torch.Generator().manual_seed(5),
        )
        torch.manual_seed(5)
        trainer = quiet_trainer(callbacks=callbacks)
        trainer.fit(module, loader)
        trainer.max_epochs = 3
        trainer.fit(module, loader)
        ends.append((module.layer.weight.detach(), torch.rand(2)))
    assert torch.equal(ends[0][0], ends[1][0])
    assert torch.equal(ends[0][1], ends[1][1])


class EpochSampler(Sampler):
    """Another order in each epoch, and the first one before set_epoch is called."""

    epoch = 0

    def __len__(self) -> int:
        return 4

    def __iter__(self):
        order = torch.randperm(6, generator=torch.Generator().manual_seed(self.epoch))
        return iter(order[:4].tolist())

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.filterwarnings("ignore:fit has nothing to do")
def test_the_last_epochs_batches_come_again_after_a_resume(quiet_trainer, tmp_path) -> None:
    """A sampler gets the last trained epoch, even if another process trained it."""
    data = TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2)

    class Saving(Callback):
        band = Band.SAVE

        def on_epoch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    def replayed(*callbacks, **kwargs):
        module = Seeing()
        loader = DataLoader(data, batch_size=2, sampler=EpochSampler())
        trainer = quiet_trainer(callbacks=[Replay(), *callbacks], max_epochs=3, limit_val_batches=0)
        trainer.fit(module, loader, **kwargs)
        return [total for _, total, _ in module.seen[-2:]]

    uncut = replayed(Saving())
    for epoch in range(3):
        assert replayed(ckpt_path=tmp_path / f"{epoch}.ckpt") == uncut


def test_limits_hold(quiet_trainer) -> None:
    """As many batches as an epoch has here, and by default the forward alone."""
    replay = Replay()
    quiet_trainer(callbacks=[replay], limit_train_batches=2).fit(TinyModule())
    assert replay.count == 2


def test_where_it_cannot_be_done(quiet_trainer) -> None:
    """Inside an epoch, outside of fit, without length or with manual optimization it says so."""

    class Early(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.replay_training_data()

    with pytest.raises(UsageError, match="inside an epoch"):
        quiet_trainer(callbacks=[Early()]).fit(TinyModule())
    with pytest.raises(UsageError, match="outside of a run"):
        quiet_trainer().replay_training_data()

    class Endless:
        def __iter__(self):
            return itertools.cycle(TinyModule().train_dataloader())

    with pytest.raises(UsageError, match="no length"):
        quiet_trainer(callbacks=[Replay()], max_epochs=-1, max_steps=2, limit_val_batches=0).fit(
            TinyModule(), Endless()
        )

    class Manual(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.manual_backward(self.loss(self(batch), batch))

    with pytest.raises(UsageError, match="optimizes by itself"):
        quiet_trainer(callbacks=[Replay()], limit_val_batches=0).fit(Manual())


def test_the_module_is_whole_before_its_optimizers_are_made(quiet_trainer) -> None:
    """on_after_configure_model sees all layers, and can freeze some before the optimizers."""

    class Late(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.late = None

        def configure_model(self):
            self.late = nn.Linear(2, 2)

        def forward(self, batch):
            return self.late(self.layer(batch[0]))

        def configure_optimizers(self):
            return torch.optim.SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

    class Freeze(Callback):
        def on_after_configure_model(self, trainer, module):
            assert not trainer.optimizers
            module.late.requires_grad_(False)

    trainer = quiet_trainer(callbacks=[Freeze()])
    trainer.fit(Late())
    assert len(trainer.optimizers[0].param_groups[0]["params"]) == 2
