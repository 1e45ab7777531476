from __future__ import annotations

import warnings

import pytest
import torch

from trainer_hooks.callbacks import GradientAccumulationScheduler
from trainer_hooks.errors import CheckpointError, OptionError, UsageError

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


@pytest.mark.parametrize(
    ("scheduling", "message"),
    [
        ({}, r"scheduling \{\} of GradientAccumulationScheduler"),
        (None, "scheduling None of GradientAccumulationScheduler"),
        ([4], r"scheduling \[4\] of"),
        ({-1: 2}, "epoch in scheduling -1 of"),
        ({"0": 2}, "epoch in scheduling '0' of"),
        ({True: 2}, "epoch in scheduling True of"),
        ({0: 0}, "number of batches from epoch 0 on in scheduling 0 of"),
        ({1: 2.0}, "number of batches from epoch 1 on in scheduling 2.0 of"),
    ],
)
def test_bad_scheduling(scheduling, message):
    """Whatever is no dict of epochs from 0 and numbers from 1 is an OptionError that names it."""
    with pytest.raises(OptionError, match=message):
        GradientAccumulationScheduler(scheduling)


def test_the_dict_is_left_alone():
    """The caller's dict is not changed, and a later change of it changes nothing here."""
    scheduling = {3: 8}
    scheduler = GradientAccumulationScheduler(scheduling)
    assert scheduling == {3: 8}
    scheduling[0] = 5
    assert scheduler.scheduling == {0: 1, 3: 8}
    assert scheduler.epochs == [0, 3]
    assert [scheduler.get_accumulate_grad_batches(e) for e in (0, 2, 3, 9)] == [1, 1, 8, 8]
    assert scheduler.going_to_accumulate_grad_batches()
    assert not GradientAccumulationScheduler({2: 1}).going_to_accumulate_grad_batches()


def test_with_the_trainers_own_number(bare, Tiny, batches):
    """A trainer with a number of its own is refused, and keeps it."""
    trainer = bare(GradientAccumulationScheduler({0: 4}), accumulate_grad_batches=4)
    with pytest.raises(UsageError, match=r"accumulate_grad_batches=4.*Leave that option out"):
        trainer.fit(Tiny(), batches())
    assert trainer.accumulate_grad_batches == 4


def test_with_manual_optimization(bare, Tiny, batches):
    """A module that steps when it likes is refused."""
    module = Tiny()
    module.automatic_optimization = False
    with pytest.raises(UsageError, match="optimizes manually"):
        bare(GradientAccumulationScheduler({0: 2})).fit(module, batches())


def test_with_an_optimizer_that_evaluates_the_loss(bare, Tiny, batches):
    """LBFGS is refused, unless nothing is accumulated."""

    class WithLBFGS(Tiny):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=1)

    with pytest.raises(UsageError, match="evaluates the loss itself"):
        bare(GradientAccumulationScheduler({1: 2})).fit(WithLBFGS(), batches())
    bare(GradientAccumulationScheduler({0: 1})).fit(WithLBFGS(), batches())


def steps_after_each_epoch(trainer, module, loader):
    steps = []
    module.on_train_epoch_end = lambda: steps.append(module.trainer.global_step)
    trainer.fit(module, loader)
    return steps


def test_windows_follow_the_epochs(bare, Tiny, batches):
    """Of four batches an epoch, four, two and one step are made; then the number is 1 again."""
    trainer = bare(GradientAccumulationScheduler({1: 2, 2: 4}), max_epochs=3)
    assert steps_after_each_epoch(trainer, Tiny(), batches()) == [4, 6, 7]
    assert trainer.accumulate_grad_batches == 1
    trainer.max_epochs = 1
    assert steps_after_each_epoch(trainer, Tiny(), batches()) == [4]


def test_the_loss_is_divided_by_the_window(bare, Tiny, batches):
    """A window of two batches steps by the mean of their gradients, as the option would."""
    weights = []
    for callbacks, options in (
        ((GradientAccumulationScheduler({0: 2}),), {}),
        ((), {"accumulate_grad_batches": 2}),
    ):
        torch.manual_seed(1)
        module = Tiny()
        bare(*callbacks, **options).fit(module, batches())
        weights.append(module.layer.weight.detach().clone())
    assert torch.equal(*weights)


def resumed(bare, Tiny, batches, path, scheduling):
    trainer = bare(GradientAccumulationScheduler(scheduling), max_epochs=3)
    module = Tiny()
    trainer.fit(module, batches(), ckpt_path=path)
    return trainer.global_step


def test_a_resume_at_every_epoch(bare, Tiny, batches, tmp_path):
    """A run that ended with another number than the next epoch has is gone on with, unwarned."""
    trainer = bare(GradientAccumulationScheduler({1: 2, 2: 4}), max_epochs=1)
    trainer.fit(Tiny(), batches())
    trainer.save_checkpoint(tmp_path / "1.ckpt")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resumed(bare, Tiny, batches, tmp_path / "1.ckpt", {1: 2, 2: 4}) == 7
        # a new schedule replaces the one of then
        assert resumed(bare, Tiny, batches, tmp_path / "1.ckpt", {2: 2}) == 4 + 4 + 2


def test_a_resume_inside_a_window_with_another_schedule(bare, Tiny, batches, tmp_path):
    """Gradients of a window that is no more are refused, as with the trainer's option."""
    module = Tiny()
    module.on_train_batch_end = lambda outputs, batch, batch_idx: (
        module.trainer.save_checkpoint(tmp_path / "in.ckpt") if batch_idx == 2 else None
    )
    bare(GradientAccumulationScheduler({0: 2})).fit(module, batches())
    with pytest.raises(CheckpointError, match="inside a window of 2 batches"):
        resumed(bare, Tiny, batches, tmp_path / "in.ckpt", {0: 4})
