"""StochasticWeightAveraging in runs."""

from __future__ import annotations

import math

import pytest
import torch
from samples import one_in
from torch import nn
from torch.optim.swa_utils import SWALR

from trainer_hooks import Callback
from trainer_hooks.callbacks import EarlyStopping, StochasticWeightAveraging
from trainer_hooks.errors import (
    CheckpointError,
    OptimizationError,
    OptionError,
    TrainerHooksWarning,
)
from trainer_hooks.testing import TinyModule


class Rates(Callback):
    """Notes the learning rate that each epoch is trained with."""

    def __init__(self) -> None:
        self.seen = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == 0:
            self.seen.append(trainer.optimizers[0].param_groups[0]["lr"])


def test_the_average_is_of_the_starts_of_the_last_epochs(quiet_trainer, weights, mean) -> None:
    """From swa_epoch_start on, each epoch's weights are averaged in as it begins."""
    module, swa = TinyModule(), StochasticWeightAveraging(0.05, swa_epoch_start=3)
    quiet_trainer(callbacks=[weights, swa], max_epochs=5).fit(module)
    assert (swa.swa_start, swa.swa_end) == (2, 4)
    assert swa.n_averaged.item() == 3
    torch.testing.assert_close(module.layer.weight.detach(), mean(weights.starts[2:]))


@pytest.mark.parametrize(
    ("start", "first"), [(0.8, 7), (0.5, 4), (0.0, 0), (1.0, 9), (1, 0), (4, 3)]
)
def test_where_it_starts(start, first, quiet_trainer) -> None:
    """An int counts epochs from 1, a float is a share of max_epochs."""
    swa = StochasticWeightAveraging(0.05, swa_epoch_start=start)
    quiet_trainer(callbacks=[swa], max_epochs=10, limit_train_batches=1).fit(TinyModule())
    assert swa.swa_start == first
    assert swa.n_averaged.item() == 10 - first


def test_the_share_is_of_each_fit(quiet_trainer) -> None:
    """A second training with other max_epochs starts at its own share of them."""
    swa = StochasticWeightAveraging(0.05, swa_epoch_start=0.5)
    quiet_trainer(callbacks=[swa], max_epochs=4).fit(TinyModule())
    quiet_trainer(callbacks=[swa], max_epochs=8).fit(TinyModule())
    assert swa.swa_start == 3
    assert swa.n_averaged.item() == 5


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("linear", [0.1, 0.1, 0.3, 0.5, 0.5]), ("cos", [0.1, 0.1, 0.3, 0.5, 0.5])],
)
def test_the_learning_rate_is_annealed(strategy, expected, quiet_trainer) -> None:
    """From the start on it goes to swa_lrs in annealing_epochs epochs, and stays there."""

    class Plain(TinyModule):
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    rates = Rates()
    swa = StochasticWeightAveraging(0.5, 2, annealing_epochs=2, annealing_strategy=strategy)
    quiet_trainer(callbacks=[swa, rates], max_epochs=5).fit(Plain())
    assert rates.seen == pytest.approx(expected)


def test_the_curves_differ(quiet_trainer) -> None:
    """A cosine is not a straight line, a quarter of the way."""
    seen = {}
    for strategy in ("cos", "linear"):
        rates = Rates()
        swa = StochasticWeightAveraging(0.5, 1, 4, strategy)
        quiet_trainer(callbacks=[swa, rates], max_epochs=2).fit(TinyModule())
        seen[strategy] = rates.seen[1]
    assert seen["linear"] == pytest.approx(0.1 + 0.4 / 4)
    assert seen["cos"] == pytest.approx(0.1 + 0.4 * (1 - math.cos(math.pi / 4)) / 2)


def test_the_scheduler_is_swapped(quiet_trainer) -> None:
    """The module's scheduler makes way for SWALR, which steps each epoch."""
    trainer = quiet_trainer(callbacks=[StochasticWeightAveraging(0.5, 2)], max_epochs=2)
    trainer.fit(TinyModule())
    (config,) = trainer.lr_scheduler_configs
    assert isinstance(config.scheduler, SWALR)
    assert (config.interval, config.frequency) == ("epoch", 1)


def test_a_rate_for_each_group(quiet_trainer) -> None:
    """swa_lrs may be a list, which is not changed, and must have the groups' length."""

    class Two(TinyModule):
        def configure_optimizers(self):
            return torch.optim.SGD(
                [{"params": [self.layer.weight]}, {"params": [self.layer.bias]}], lr=0.1
            )

    lrs = [0.5, 0.25]
    trainer = quiet_trainer(
        callbacks=[StochasticWeightAveraging(lrs, 1, annealing_epochs=0)], max_epochs=2
    )
    trainer.fit(Two())
    assert [group["lr"] for group in trainer.optimizers[0].param_groups] == [0.5, 0.25]
    assert lrs == [0.5, 0.25]
    with pytest.raises(OptionError, match="the optimizer has 2 parameter groups"):
        quiet_trainer(callbacks=[StochasticWeightAveraging([0.5], 1)]).fit(Two())


def test_statistics_are_computed_for_the_average(quiet_trainer, normed, mean) -> None:
    """BatchNorm's statistics are means over the training batches; its momentum is as before."""
    module = normed()
    trainer = quiet_trainer(callbacks=[StochasticWeightAveraging(0.05, 1)], max_epochs=2)
    batches = list(module.train_dataloader())
    trainer.fit(module, batches)
    assert trainer.current_epoch == 2  # no epoch was added
    assert trainer.global_step == 6
    inputs = [batch[0] for batch in batches]
    torch.testing.assert_close(module.norm.running_mean, mean([x.mean(dim=0) for x in inputs]))
    torch.testing.assert_close(module.norm.running_var, mean([x.var(dim=0) for x in inputs]))
    assert module.norm.num_batches_tracked.item() == 3
    assert module.norm.momentum == 0.1


def test_frozen_statistics_stay(quiet_trainer, normed) -> None:
    """A BatchNorm layer in eval mode keeps what it has: no forward would fill it again."""
    module = normed()
    module.norm.eval()
    with torch.no_grad():
        module.norm.running_mean.fill_(0.125)
    quiet_trainer(callbacks=[StochasticWeightAveraging(0.05, 1)]).fit(module)
    assert module.norm.running_mean.tolist() == [0.125, 0.125]


def test_the_pass_leaves_no_trace(quiet_trainer, normed, MemoryLogger) -> None:
    """The pass for the statistics logs nothing and draws no random number that is not put back."""
    drawn = []
    for callbacks in ([], [StochasticWeightAveraging(0.05, 1)]):
        logger, module = MemoryLogger(), normed()
        trainer = quiet_trainer(
            callbacks=callbacks, logger=logger, log_every_n_steps=1, limit_val_batches=0
        )
        torch.manual_seed(1)
        trainer.fit(module)
        drawn.append((torch.rand(()).item(), [sorted(m) for _, m in logger.seen]))
    assert drawn[0] == drawn[1]


def test_a_stop_hands_over_the_average_too(quiet_trainer, weights, mean) -> None:
    """A training that is stopped early has averaged weights at its end as well."""
    stop = EarlyStopping("val_loss", patience=1, min_delta=9.0)
    module = TinyModule()
    trainer = quiet_trainer(
        callbacks=[weights, StochasticWeightAveraging(0.05, 1), stop], max_epochs=9
    )
    trainer.fit(module)
    assert trainer.current_epoch < 9
    torch.testing.assert_close(module.layer.weight.detach(), mean(weights.starts))


def test_a_training_without_end(quiet_trainer) -> None:
    """Without max_epochs an int is needed to start at; the average comes over at the stop."""
    with pytest.raises(OptionError, match="share of max_epochs"):
        quiet_trainer(callbacks=[StochasticWeightAveraging(0.1)], max_epochs=-1, max_steps=4).fit(
            TinyModule()
        )
    swa = StochasticWeightAveraging(0.1, swa_epoch_start=1)
    quiet_trainer(callbacks=[swa], max_epochs=-1, max_steps=4).fit(TinyModule())
    assert swa.swa_end == math.inf
    assert swa.n_averaged.item() == 2


def test_a_start_after_the_end_is_told(quiet_trainer) -> None:
    """Where nothing will be averaged, a warning says so, and the weights are left alone."""
    plain, module = TinyModule(), TinyModule()
    quiet_trainer().fit(plain)
    swa = StochasticWeightAveraging(0.1, swa_epoch_start=2)
    with pytest.warns(TrainerHooksWarning, match="nothing will be averaged"):
        quiet_trainer(callbacks=[swa]).fit(module)
    assert swa.n_averaged is None
    assert torch.equal(module.layer.weight, plain.layer.weight)


def test_several_schedulers_are_refused(quiet_trainer) -> None:
    """There is one scheduler to swap, of one optimizer."""

    class Several(TinyModule):
        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            schedulers = [torch.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2)]
            return [optimizer], schedulers

    with pytest.raises(OptimizationError, match="1 optimizers and 2 schedulers"):
        quiet_trainer(callbacks=[StochasticWeightAveraging(0.1)]).fit(Several())


def test_avg_fn_is_used(quiet_trainer, weights) -> None:
    """A function of one's own averages: here the latest weights win."""
    module = TinyModule()
    swa = StochasticWeightAveraging(0.05, 1, avg_fn=lambda _average, weight, _count: weight)
    quiet_trainer(callbacks=[weights, swa], max_epochs=3).fit(module)
    assert torch.equal(module.layer.weight, weights.starts[-1])


def test_resumed_without_an_average(quiet_trainer, tmp_path) -> None:
    """A checkpoint without it, resumed after the start, is warned of."""
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(TinyModule())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    swa = StochasticWeightAveraging(0.05, 1)
    with pytest.warns(TrainerHooksWarning) as told:
        quiet_trainer(callbacks=[swa], max_epochs=3).fit(
            TinyModule(), ckpt_path=tmp_path / "x.ckpt"
        )
    assert any("begins at epoch 2 and not at 0" in str(w.message) for w in told)
    assert swa.n_averaged.item() == 1


def test_manual_optimization_with_statistics_is_told(quiet_trainer) -> None:
    """A module that optimizes by itself is not run again; the warning says what to call."""

    class Manual(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.norm = nn.BatchNorm1d(2)

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(self.layer(self.norm(batch[0])), batch))
            optimizer.step()

    with pytest.warns(TrainerHooksWarning, match="update_bn"):
        quiet_trainer(callbacks=[StochasticWeightAveraging(0.05, 1)], limit_val_batches=0).fit(
            Manual()
        )


@pytest.mark.slow
@pytest.mark.parametrize("strategy", one_in(2, ["cos", "linear"]))
def test_an_exact_resume_with_statistics(strategy, normed, callback_contract) -> None:
    """With BatchNorm and dropout too, a run that was cut at any batch ends bit-equal."""
    callback_contract(
        lambda: StochasticWeightAveraging(0.05, 2, 2, strategy),
        module=normed,
        trainer_options={"max_epochs": 4},
    )


def test_a_damaged_average_is_told(quiet_trainer, tmp_path) -> None:
    """The average of another module in a checkpoint that was changed is one clear error."""
    swa = StochasticWeightAveraging(0.05, 1)
    trainer = quiet_trainer(callbacks=[swa], max_epochs=3)
    trainer.fit(TinyModule())
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    checkpoint = torch.load(tmp_path / "x.ckpt", weights_only=True)
    del checkpoint["callbacks"]["StochasticWeightAveraging"]["average_model_state"]["layer.weight"]
    torch.save(checkpoint, tmp_path / "x.ckpt")
    another = quiet_trainer(callbacks=[StochasticWeightAveraging(0.05, 1)], max_epochs=4)
    with pytest.raises(CheckpointError, match="average of the weights of TinyModule") as caught:
        another.fit(TinyModule(), ckpt_path=tmp_path / "x.ckpt")
    assert "\n" not in str(caught.value)
