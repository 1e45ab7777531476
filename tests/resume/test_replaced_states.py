"""A resume with another scheduler or optimizer on purpose, and the resumes after it."""

from __future__ import annotations

import warnings
from itertools import product

import pytest
import torch
from own_loops import fit_by_run
from quiet_trainers import QUIET_OPTIONS
from samples import spread
from saving_callbacks import SaveEachStep
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from trainer_hooks import Callback, Module
from trainer_hooks.errors import CheckpointError
from trainer_hooks.testing.nested_diff import nested_differences

BATCHES = [torch.tensor([[float(number)], [0.5]]) for number in range(1, 6)]
EACH = len(BATCHES)


class Net(Module):
    """Notes the options of each step."""

    def __init__(self, make) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.constant_(self.layer.bias, 0.1)
        self.make, self.rates = make, []

    def training_step(self, batch, batch_idx):
        group = self.optimizers().param_groups[0]
        self.rates.append((group["lr"], group.get("momentum"), group.get("betas")))
        loss = self.layer(batch).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self):
        with warnings.catch_warnings():
            # SequentialLR sets rates before the first step, and torch says so
            warnings.simplefilter("ignore")
            return self.make(self.parameters())


def by(kind, interval: str = "step", optimizer=SGD, **more):
    """Return a function that makes an optimizer with a scheduler."""

    def make(parameters):
        options = {"momentum": 0.8} if optimizer is SGD else {}
        made = optimizer(parameters, lr=0.2, **options)
        if kind is None:
            return made
        return [made], [{"scheduler": kind(made), "interval": interval, **more}]

    return make


def cycle(total: int):
    return by(lambda optimizer: OneCycleLR(optimizer, 0.4, total_steps=total))


NEW = {
    "a longer cycle": cycle(3 * EACH + 1),
    "cosine by epoch": by(lambda o: CosineAnnealingLR(o, 9), "epoch"),
    "every second epoch": by(lambda o: StepLR(o, 1, 0.5), "epoch", frequency=2),
    "every third step": by(lambda o: StepLR(o, 1, 0.5), frequency=3),
    "warm-up": by(lambda o: SequentialLR(o, [LambdaLR(o, lambda n: n / 4), StepLR(o, 2)], [4])),
    "Adam with a cycle": by(lambda o: OneCycleLR(o, 0.1, total_steps=40), optimizer=Adam),
    "no scheduler": by(None),
    "another order of options": by(lambda o: StepLR(o, 4, 0.3)),
}
OLD = {
    "a cycle": cycle(2 * EACH),
    "step by epoch": by(lambda o: StepLR(o, 1, 0.7), "epoch"),
    "no scheduler": by(None),
}


class Empties(Callback):
    """Takes the schedulers' states out of a checkpoint."""

    def on_load_checkpoint(self, trainer, module, checkpoint) -> None:
        checkpoint["lr_schedulers"] = []


class EmptiesEarly(Callback):
    def on_before_restore(self, trainer, module, checkpoint) -> None:
        checkpoint["lr_schedulers"] = []


class EmptyingNet(Net):
    def on_load_checkpoint(self, checkpoint) -> None:
        checkpoint["lr_schedulers"] = []


WORDS = ["lr_schedulers", "optimizers"]


def resume(bare, folder, make, step, *callbacks, words=WORDS, kind=Net, **options):
    net = kind(make)
    trainer = bare(*callbacks, max_epochs=3, **options)
    trainer.fit(net, BATCHES, ckpt_path=folder / f"{step}.ckpt", overrides=words)
    return net, trainer


@pytest.mark.parametrize(("new", "old", "step"), spread(product(NEW, OLD), [3, EACH, EACH + 2]))
def test_rates_are_those_of_a_run_that_had_the_new_one_from_the_start(
    new, old, step, bare, tmp_path
) -> None:
    """Inside an epoch and after its last batch; resumes of that run are exact, by any line."""
    bare(SaveEachStep(tmp_path), max_epochs=2).fit(Net(OLD[old]), BATCHES)
    from_start = Net(NEW[new])
    bare(max_epochs=3).fit(from_start, BATCHES)
    again = tmp_path / "again"
    net, trainer = resume(bare, tmp_path, NEW[new], step, SaveEachStep(again))
    assert net.rates == from_start.rates[step:]
    state = trainer.optimizers[0].state_dict()
    schedules = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
    for words in (None, WORDS):
        other, later = resume(bare, again, NEW[new], step + 4, words=words)
        assert other.rates == net.rates[4:]
        assert torch.equal(other.layer.weight, net.layer.weight)
        assert nested_differences(state, later.optimizers[0].state_dict()) == []
        present = [config.scheduler.state_dict() for config in later.lr_scheduler_configs]
        assert nested_differences(schedules, present) == []


@pytest.mark.parametrize("how", [Empties, EmptiesEarly, EmptyingNet])
def test_an_emptied_list_takes_the_new_schedulers(how, bare, tmp_path) -> None:
    """In the module's hook or a callback's, each time that the run is started again."""
    make = NEW["cosine by epoch"]
    bare(SaveEachStep(tmp_path), max_epochs=2).fit(Net(OLD["a cycle"]), BATCHES)
    from_start = Net(make)
    bare(max_epochs=3).fit(from_start, BATCHES)
    folder, step, whole = tmp_path, EACH + 1, None
    for _ in range(2):
        callbacks = [SaveEachStep(tmp_path / "again")]
        if issubclass(how, Callback):
            callbacks.append(how())
        kind = how if issubclass(how, Module) else Net
        net, _ = resume(bare, folder, make, step, *callbacks, words=None, kind=kind)
        assert net.rates == from_start.rates[step:]
        assert whole is None or torch.equal(net.layer.weight, whole.layer.weight)
        folder, step, whole = tmp_path / "again", EACH + 4, net


def test_the_word_has_no_effect_where_the_same_was_saved(bare, tmp_path) -> None:
    """A line with it starts a run again exactly, also a scheduler that goes by a metric."""
    make = by(
        lambda o: ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=9.0),
        interval="epoch", monitor="loss_epoch",
    )  # fmt: skip
    whole = Net(make)
    bare(SaveEachStep(tmp_path), max_epochs=3).fit(whole, BATCHES)
    assert whole.rates[-1][0] < 0.2
    for step in (EACH, EACH + 1, 2 * EACH + 3):
        net, _ = resume(bare, tmp_path, make, step)
        assert net.rates == whole.rates[step:]
        assert torch.equal(net.layer.weight, whole.layer.weight)


def test_a_new_scheduler_of_a_metric_begins_anew(bare, tmp_path) -> None:
    """From the rate of `configure_optimizers`: the metrics of earlier epochs are gone."""
    make = by(
        lambda o: ReduceLROnPlateau(o, factor=0.5, patience=0, threshold=9.0),
        interval="epoch", monitor="loss_epoch",
    )  # fmt: skip
    bare(SaveEachStep(tmp_path), max_epochs=2).fit(Net(OLD["step by epoch"]), BATCHES)
    net, _ = resume(bare, tmp_path, make, EACH + 2)
    assert [rate for rate, _, _ in net.rates] == [0.2] * (EACH - 2) + [0.1] * EACH


def test_a_new_optimizer_begins_without_a_state(bare, tmp_path) -> None:
    """With its own options and the weights of the checkpoint; without the word it is refused."""
    bare(SaveEachStep(tmp_path), max_epochs=1).fit(Net(OLD["no scheduler"]), BATCHES)
    make = by(None, optimizer=Adam)
    with pytest.raises(CheckpointError, match=r"take this run's with overrides=\['optimizers'\]"):
        resume(bare, tmp_path, make, 4, words=None)
    net, trainer = resume(bare, tmp_path, make, 4, words="optimizers")
    assert net.rates[0] == (0.2, None, (0.9, 0.999))
    steps = {int(state["step"]) for state in trainer.optimizers[0].state.values()}
    assert steps == {3 * EACH - 4}


def test_other_options_stay_the_checkpoints(bare, tmp_path) -> None:
    """Such as a weight decay; a name of one in `overrides` goes with the word."""

    def make(decay: float, kind):
        def made(parameters):
            optimizer = SGD(parameters, lr=0.1, weight_decay=decay)
            return [optimizer], [kind(optimizer)]

        return made

    bare(SaveEachStep(tmp_path)).fit(Net(make(0.1, lambda o: StepLR(o, 1))), BATCHES)
    cosine = make(0.3, lambda o: CosineAnnealingLR(o, 4))
    with pytest.warns(UserWarning, match="weight_decay 0.1 -> 0.3"):
        _, trainer = resume(bare, tmp_path, cosine, 5, words="lr_schedulers")
    assert trainer.optimizers[0].param_groups[0]["weight_decay"] == 0.1
    _, trainer = resume(bare, tmp_path, cosine, 5, words=["lr_schedulers", "weight_decay"])
    assert trainer.optimizers[0].param_groups[0]["weight_decay"] == 0.3


def test_a_schedule_that_is_too_short_is_named(bare, tmp_path) -> None:
    """It cannot go through the steps that are done; the optimizer is as it was."""
    bare(SaveEachStep(tmp_path), max_epochs=2).fit(Net(OLD["step by epoch"]), BATCHES)
    with pytest.raises(CheckpointError, match="OneCycleLR, is new in this run, and cannot go thr"):
        resume(bare, tmp_path, cycle(4), 7)


@pytest.mark.parametrize("step", [3, EACH])
def test_a_loop_of_ones_own_takes_the_word(step, tmp_path) -> None:
    """`Run(overrides=...)`."""

    def fit(make, *callbacks, epochs=3, **options):
        net = Net(make)
        fit_by_run(net, BATCHES, callbacks=callbacks, max_epochs=epochs, **options, **QUIET_OPTIONS)
        return net

    fit(OLD["a cycle"], SaveEachStep(tmp_path), epochs=2)
    make = NEW["a longer cycle"]
    net = fit(make, ckpt_path=tmp_path / f"{step}.ckpt", overrides=["lr_schedulers"])
    assert net.rates == fit(make).rates[step:]


def test_a_later_fit_of_the_same_trainer_makes_its_optimizers_anew(bare, tmp_path) -> None:
    """Those of its first fit have made steps already."""
    bare(SaveEachStep(tmp_path), max_epochs=2).fit(Net(OLD["step by epoch"]), BATCHES)
    make = NEW["a longer cycle"]
    from_start = Net(make)
    bare(max_epochs=3).fit(from_start, BATCHES)
    net, trainer = Net(make), bare(max_epochs=3)
    trainer.fit(net, BATCHES)
    net.rates.clear()
    trainer.fit(net, BATCHES, ckpt_path=tmp_path / "7.ckpt", overrides=["lr_schedulers"])
    assert net.rates == from_start.rates[7:]
