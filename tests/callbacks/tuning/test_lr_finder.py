from __future__ import annotations

import copy
import logging
import math
import re

import pytest
import torch

from trainer_hooks import Callback, Module, TrainerHooksWarning, Tuner
from trainer_hooks.callbacks import EarlyStopping, LearningRateFinder
from trainer_hooks.callbacks.tuning.lr_finder import LRFinderResult
from trainer_hooks.errors import ModuleError, OptionError, UsageError

FEW = {"min_lr": 1e-4, "num_training_steps": 30, "early_stop_threshold": None}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("exponential", [1e-4, 10**-3.6, 10**-3.4, 10**-3.2]),
        ("linear", [1e-4, 0.10009, 0.150085, 0.20008]),
    ],
)
def test_the_rates(mode, expected):
    """The rates are those that Lightning tries; the last one is the highest."""
    result = LRFinderResult(mode, 1e-4, 1, 20)
    assert [result.rate(step) for step in range(4)] == pytest.approx(expected)
    assert result.rate(19) == 1


LOSSES = [5.0, 4.9, 4.8, 4.4, 4.3, 4.0, 3.8, 3.7, 3.0, 2.9]
LOSSES += [2.0, 1.9, 1.7, 1.65, 1.6, 1.7, 1.9, 2.5, 4.0, 3.0]


def result(losses=LOSSES):
    found = LRFinderResult("exponential", 1e-4, 1, len(losses))
    found.results = {"lr": [1e-4 * 1e4 ** (k / 20) for k in range(len(losses))], "loss": losses}
    return found


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        ((), 0.01584893192461114),
        ((0, 1), 0.006309573444801933),
        ((5, 5), 0.006309573444801933),
    ],
)
def test_the_suggestion(skips, expected):
    """The loss falls most from the rate before to the next one."""
    assert result().suggestion(*skips) == pytest.approx(expected)


def test_noise_among_the_lowest_rates_is_no_steep_fall():
    """Over the rates themselves each wave of the loss would be steeper there than any fall."""
    losses = [5 + 0.001 * math.sin(step) for step in range(60)]
    losses += [5 - 0.1 * step for step in range(20)]
    tried = result(losses)
    assert tried.suggestion() >= tried.results["lr"][59]


@pytest.mark.parametrize("mode", ["exponential", "linear"])
def test_with_the_suggestion_digits_are_learned(mode, quiet_trainer):
    """A classifier of real images, of which all batches of an epoch are one."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    pairs = torch.tensor(digits.data).float() / 16, torch.tensor(digits.target)

    class Digits(Module):
        def __init__(self):
            super().__init__()
            self.lr = 1e-3
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
            )

        def training_step(self, batch, batch_idx):
            loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=self.lr)

    torch.manual_seed(0)
    module = Digits()
    Tuner(quiet_trainer(max_epochs=100)).lr_find(module, [pairs], mode=mode, num_training=100)
    trainer = quiet_trainer(max_epochs=30)
    trainer.fit(module, [pairs])
    assert trainer.callback_metrics["loss"] < 0.5, module.lr


def test_a_suggestion_of_too_few(caplog):
    """Where nothing is left to compare, there is no suggestion, and it is said why."""
    with caplog.at_level(logging.WARNING, logger="trainer_hooks"):
        assert result(LOSSES[:12]).suggestion() is None
        assert result([math.nan] * 20).suggestion() is None
    assert "of 12 steps, 1 are left" in caplog.text
    assert result([math.nan] * 3 + LOSSES[3:]).suggestion(0, 0) is not None
    with pytest.raises(OptionError, match="skip_begin -1 of suggestion"):
        result().suggestion(-1)


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ([math.nan] * 2, "the loss is nan from step 1 on, at the rate 0.0001. No learning rate"),
        ([1.0, math.inf], "the loss is inf from step 2 on, at the rate .*Pass a lower max_lr"),
    ],
)
def test_a_loss_without_a_number_is_the_reason(losses, told, caplog):
    """Where the loss is NaN or infinite, that is said, once, and not that steps are missing."""
    caplog.set_level(logging.WARNING, logger="trainer_hooks")
    tried = result(losses)
    assert tried.suggestion() is tried.suggestion() is None
    [message] = caplog.messages
    assert re.search(told, message)


def test_the_plot():
    """The plot has the losses over the rates, on a logarithmic axis, and the suggestion marked."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure = result().plot(suggest=True)
    (axes,) = figure.axes
    assert (axes.get_xscale(), axes.get_xlabel(), axes.get_ylabel()) == (
        "log", "Learning rate", "Loss",
    )  # fmt: skip
    line, mark = axes.lines
    assert list(line.get_ydata()) == LOSSES
    assert mark.get_xdata()[0] == result().suggestion()
    own, ax = plt.subplots()
    assert result().plot(ax=ax) is own
    assert len(ax.lines) == 1
    plt.close("all")


def everything(module):
    """Everything that a trial could leave behind in a module and in the random numbers."""
    return {
        "weights": copy.deepcopy(module.state_dict()),
        "gradients": torch.cat(
            [torch.zeros(0), *(p.grad.flatten() for p in module.parameters() if p.grad is not None)]
        ),
        "calls": module.calls,
        "losses": torch.tensor(module.notes["losses"]),
        "total": module.total.clone(),
        "generator": module.generator.get_state(),
        "hparams": dict(module.hparams),
        "modes": [part.training for part in module.modules()],
        "random": torch.get_rng_state(),
    }


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, second[name]), name
        elif name == "weights":
            assert all(torch.equal(v, second[name][k]) for k, v in value.items())
        else:
            assert value == second[name], name


class Counter(Callback):
    def __init__(self):
        self.heard = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.heard += 1


def test_it_restores_everything_it_touched(bare, probed, run, MemoryLogger):
    """After the test all is as before: weights, buffers, attributes, generators, random numbers."""
    seen = []
    counter, logger, module = Counter(), MemoryLogger(), probed()

    class Watching(LearningRateFinder):
        def lr_find(self, trainer, pl_module):
            before = everything(pl_module)
            optimizer = trainer.optimizers[0]
            super().lr_find(trainer, pl_module)
            assert_same(before, everything(pl_module))
            assert trainer.optimizers[0] is optimizer
            assert not optimizer.state
            assert optimizer.param_groups[0]["lr"] == 0.01
            assert pl_module.trainer is trainer
            seen.append((trainer.global_step, trainer.current_epoch, counter.heard, logger.seen[:]))

    trainer = bare(Watching(**FEW, update_attr=False), counter, logger=logger)
    trainer.fit(module)
    assert seen == [(0, 0, 0, [])]
    assert len(run) == 30 + 32 + 32  # the trial, the epoch, its validation
    assert counter.heard == 32


def test_the_training_is_the_same_as_without_it(bare, probed):
    """Where no rate is set, a fit after the test ends bit for bit as one without it."""
    ends = []
    for callbacks in ((), (LearningRateFinder(**FEW, update_attr=False),)):
        module = probed()
        bare(*callbacks, max_epochs=2).fit(module)
        ends.append(everything(module))
    assert_same(*ends)


def test_the_rate_is_set(bare, probed):
    """The suggestion goes into the attribute, the hyperparameters, the checkpoint and the run."""
    finder, module = LearningRateFinder(**FEW), probed()
    trainer = bare(finder)
    trainer.fit(module)
    rate = finder.optimal_lr.suggestion()
    assert len(finder.optimal_lr.results["lr"]) == 30
    assert rate not in (None, 0.01)
    assert module.lr == module.hparams.lr == module.saved_hparams["lr"] == finder.chosen == rate
    assert trainer.optimizers[0].param_groups[0]["lr"] == rate


def test_schedulers_begin_with_the_rate(bare, probed):
    """A schedule is that of an optimizer made with the rate, in all its groups."""

    class Scheduled(type(probed())):
        def configure_optimizers(self):
            groups = [
                {"params": self.net.parameters(), "lr": self.lr / 10},
                {"params": self.head.parameters()},
            ]
            optimizer = torch.optim.SGD(groups, lr=self.lr)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return [optimizer], [scheduler]

    module = Scheduled()
    trainer = bare(LearningRateFinder(**FEW))
    trainer.fit(module)
    assert module.lr != 0.01
    rates = [group["lr"] for group in trainer.optimizers[0].param_groups]
    assert rates == pytest.approx([module.lr / 20, module.lr / 2])


def test_it_ends_where_the_loss_diverges(bare, probed):
    """Once the smoothed loss is over the threshold, no more rates are tried."""
    found = LearningRateFinder(1e-3, 1e4, 60, update_attr=False)
    bare(found).fit(probed(samples=256, batch_size=64))
    losses = found.optimal_lr.results["loss"]
    assert 5 < len(losses) < 60
    assert not losses[-1] <= 4 * min(losses[:-1])
    assert all(loss <= 4 * min(losses[: i + 1]) for i, loss in enumerate(losses[:-1]))


def test_windows_and_short_loaders(bare, probed, run):
    """Steps are of whole windows, over as many epochs as it takes, without a validation."""
    finder = LearningRateFinder(1e-6, 1e-5, 20, early_stop_threshold=None, update_attr=False)
    bare(finder, accumulate_grad_batches=3, limit_val_batches=0).fit(probed(samples=8))
    assert len(finder.optimal_lr.results["loss"]) == 20
    # an epoch of four batches has two windows
    assert len(run) == 40 + 4


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda m: (
                delattr(m, "lr")
                or m.hparams.clear()
                or setattr(m, "configure_optimizers", lambda: torch.optim.SGD(m.parameters(), 0.1))
            ),
            UsageError,
            "no 'lr' and no 'learning",
        ),
        (
            lambda m: (
                setattr(m, "training_step", lambda *a: None)
                or setattr(m, "automatic_optimization", False)
            ),
            ModuleError,
            "returned no loss",
        ),
        (
            lambda m: (
                setattr(
                    m,
                    "configure_optimizers",
                    lambda: [torch.optim.SGD(m.parameters(), 0.1) for _ in range(2)],
                )
                or setattr(m, "automatic_optimization", False)
            ),
            UsageError,
            "has 2 optimizers",
        ),
    ],
    ids=["no attribute", "no loss", "two optimizers"],
)
def test_what_cannot_be_tested(bare, probed, change, error, message):
    """A module without a rate to set, without a loss or with several optimizers is refused."""
    module = probed()
    change(module)
    with pytest.raises(error, match=message):
        bare(LearningRateFinder(**FEW)).fit(module)


def test_steps_that_are_all_skipped(bare, probed):
    """A module whose steps skip every batch does not keep the test going for ever."""
    module = probed()
    module.training_step = lambda batch, batch_idx: None
    finder = LearningRateFinder(**FEW)
    with (
        pytest.warns(TrainerHooksWarning, match="training_step returned None"),
        pytest.raises(ModuleError, match="None for each of"),
    ):
        bare(finder).fit(module)


def test_a_resumed_run_does_not_try_again(bare, probed, run, tmp_path):
    """What was found comes back with the checkpoint, and the rate is set in the new module."""
    finder = LearningRateFinder(**FEW)
    first = bare(finder)
    first.fit(probed())
    first.save_checkpoint(tmp_path / "1.ckpt")
    run.clear()
    again, module = LearningRateFinder(**FEW), probed()
    trainer = bare(again, max_epochs=2)
    trainer.fit(module, ckpt_path=tmp_path / "1.ckpt")
    assert len([stage for stage, _ in run if stage == "train"]) == 32
    assert again.optimal_lr.results == finder.optimal_lr.results
    assert module.lr == finder.chosen == trainer.optimizers[0].param_groups[0]["lr"]


def test_in_the_middle_of_a_training(bare, probed):
    """At the start of a later epoch it tries with the weights of then; momentum is kept."""
    rates = []

    class Later(LearningRateFinder):
        def on_fit_start(self, trainer, pl_module):
            return

        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                momentum = [s["momentum_buffer"].clone() for s in self._states(trainer)]
                before = everything(pl_module)
                self.lr_find(trainer, pl_module)
                del before["hparams"]
                after = everything(pl_module)
                assert_same(before, {name: after[name] for name in before})
                kept = [s["momentum_buffer"] for s in self._states(trainer)]
                assert all(map(torch.equal, momentum, kept))
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

        def _states(self, trainer):
            return trainer.optimizers[0].state.values()

    finder = Later(**FEW)
    trainer = bare(finder, max_epochs=3)
    trainer.fit(probed())
    assert rates == [0.01, finder.chosen, finder.chosen]
    assert trainer.global_step == 96


def test_inside_an_epoch(bare, probed):
    """A trial between two batches is refused: their loader cannot be shared."""
    module = probed()
    module.on_train_batch_start = lambda batch, batch_idx: module.trainer.trial_run(steps=1)
    with pytest.raises(UsageError, match="inside an epoch"):
        bare().fit(module)
    with pytest.raises(UsageError, match="outside of a run"):
        bare().trial_run(steps=1)


def test_an_error_in_the_trial(bare, probed):
    """What fails in the trial is raised, and everything is put back all the same."""
    module = probed(limit=1)
    before = everything(module)
    with pytest.raises(torch.OutOfMemoryError):
        bare(LearningRateFinder(**FEW)).fit(module)
    after = everything(module)
    assert_same(before, after)


class TestTuner:
    def test_it_leaves_the_trainer_alone(self, bare, probed, run, MemoryLogger):
        """The trainer's counters, callbacks and loggers hear nothing, the module gets its rate."""
        logger, counter, module = MemoryLogger(), Counter(), probed()
        stopping = EarlyStopping("train_loss", check_on_train_epoch_end=True)
        trainer = bare(counter, stopping, logger=logger)
        before, heard = everything(module), stopping.state_dict()
        found = Tuner(trainer).lr_find(
            module, min_lr=1e-4, num_training=30, early_stop_threshold=None
        )
        after = everything(module)
        assert after.pop("hparams") == {"lr": found.suggestion(), "batch_size": 2}
        before.pop("hparams")
        assert_same(before, after)
        assert module.lr == found.suggestion()
        assert (trainer.global_step, counter.heard, logger.seen) == (0, 0, [])
        assert stopping.state_dict() == heard
        assert trainer.module is None
        assert len(run) == 30
        trainer.fit(module)
        assert trainer.optimizers[0].param_groups[0]["lr"] == module.lr
        assert trainer.global_step == 32

    def test_without_setting_it(self, bare, probed):
        """update_attr=False only looks; loaders may be passed."""
        module = probed()
        loader = module.train_dataloader()
        found = Tuner(bare()).lr_find(
            module, loader, num_training=20, update_attr=False, early_stop_threshold=None
        )
        assert len(found.results["lr"]) == 20
        assert module.lr == 0.01

    def test_bad_use(self, bare, probed):
        """Whatever makes no sense is an error with what to do."""
        with pytest.raises(UsageError, match="must be given a trainer_hooks"):
            Tuner(LearningRateFinder())
        with pytest.raises(UsageError, match="method 'test' of Tuner"):
            Tuner(bare()).lr_find(probed(), method="test")
        with pytest.raises(OptionError, match=r"num_training 1 of Tuner\.lr_find: it must be"):
            Tuner(bare()).lr_find(probed(), num_training=1)
        with pytest.raises(UsageError, match="has a LearningRateFinder"):
            Tuner(bare(LearningRateFinder())).lr_find(probed())
        with pytest.raises(UsageError, match="other loaders than fit takes"):
            Tuner(bare()).lr_find(probed(), dataloaders=[1])

    def test_a_dry_run(self, bare, probed):
        """Nothing is tried in a dry run."""
        assert Tuner(bare(fast_dev_run=True)).lr_find(probed()) is None
