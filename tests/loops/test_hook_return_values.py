"""Return values of hooks: -1 of a module's `on_train_batch_start`, and unexpected ones."""

from __future__ import annotations

import warnings

import pytest

from trainer_hooks import Callback, TrainerHooksWarning
from trainer_hooks.callbacks import LambdaCallback
from trainer_hooks.errors import ModuleError


@pytest.fixture
def Shortened(Tiny):
    """A module that leaves out the rest of an epoch from a batch on."""

    class Shortened(Tiny):
        def __init__(self, epoch=1, first=1) -> None:
            super().__init__()
            self.epoch, self.first, self.seen = epoch, first, []

        def on_train_batch_start(self, batch, batch_idx):
            return -1 if (self.current_epoch, batch_idx) == (self.epoch, self.first) else None

        def training_step(self, batch, batch_idx):
            self.seen.append((self.current_epoch, batch_idx))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.seen.append("validated")

    return Shortened


@pytest.mark.parametrize("options", [{}, {"profile_hooks": True}, {"accumulate_grad_batches": 2}])
def test_the_rest_of_an_epoch_is_left_out(
    options, Shortened, quiet_trainer, batches, capsys
) -> None:
    """-1 ends the epoch's batches with this one; its end and the epochs after it are as ever."""
    module = Shortened()
    trainer = quiet_trainer(max_epochs=3, **options)
    trainer.fit(module, batches(3), batches(1))
    assert module.seen == [
        (0, 0), (0, 1), (0, 2), "validated",
        (1, 0), "validated",
        (2, 0), (2, 1), (2, 2), "validated",
    ]  # fmt: skip
    assert trainer.current_epoch == 3


def test_a_resume_after_it(Shortened, quiet_trainer, batches, tmp_path) -> None:
    """A checkpoint from the end of such an epoch goes on with the next one."""

    class Save(Callback):
        def on_epoch_checkpoint(self, trainer, module):
            trainer.save_checkpoint(tmp_path / f"{trainer.current_epoch}.ckpt")

    uncut = Shortened()
    quiet_trainer(max_epochs=3, callbacks=Save()).fit(uncut, batches(3))
    module = Shortened()
    quiet_trainer(max_epochs=3).fit(module, batches(3), ckpt_path=tmp_path / "1.ckpt")
    assert module.seen == uncut.seen[-3:]
    assert module.layer.weight.equal(uncut.layer.weight)


def test_any_other_result_is_told_once(Tiny, quiet_trainer, batches) -> None:
    """A hook that returns a value is named in an error, with the method to call instead."""

    class Stops(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            return -1

    class ReturnsFalse(Tiny):
        def on_train_start(self):
            return False

    trainer = quiet_trainer(max_epochs=2, callbacks=Stops())
    with pytest.warns(TrainerHooksWarning) as caught:
        trainer.fit(ReturnsFalse(), batches(2))
    told = [str(one.message) for one in caught]
    assert len(told) == 2
    assert "the hook 'on_train_start' of module" in told[0]
    assert "returned False" in told[0]
    assert "the hook 'on_train_batch_start' of" in told[1]
    assert "trainer.skip_batch() or trainer.stop(reason)" in told[1]
    assert trainer.global_step == 4


def test_a_lambda_returns_by_chance(Tiny, quiet_trainer, batches) -> None:
    """The return value of a function in a hook's place is ignored."""
    seen = {}
    callback = LambdaCallback(on_train_start=lambda *args: seen.setdefault("a", 1))
    with warnings.catch_warnings(action="error"):
        quiet_trainer(callbacks=callback).fit(Tiny(), batches(1))


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("training_epoch_end", "on_train_epoch_end"),
        ("validation_epoch_end", "on_validation_epoch_end"),
        ("test_epoch_end", "on_test_epoch_end"),
        ("training_step_end", "on_train_batch_end"),
        ("validation_step_end", "on_validation_batch_end"),
    ],
)
def test_methods_of_lightning_1(name, instead, Tiny, quiet_trainer, batches) -> None:
    """A method that nothing calls any more is an error with the new name."""
    Net = type("Net", (Tiny,), {name: lambda self, outputs: None})
    with pytest.raises(ModuleError, match=rf"{name}.*nothing calls it. Define {instead}\("):
        quiet_trainer().fit(Net(), batches(1))
