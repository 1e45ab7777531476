"""Every scheduler of torch, alone and inside those that combine others, is resumed at each step."""

from __future__ import annotations

import warnings
from itertools import product

import pytest
import torch
from own_loops import fit_by_run
from samples import one_in
from saving_callbacks import SaveEachStep
from torch.optim import lr_scheduler

from trainer_hooks import Callback, Module
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.testing import nested_diff

STEPS = 7

SIMPLE = {
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, 0.3, total_iters=3),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=5),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.2, step_size_up=2),
    "CyclicLR, a mode of its own": lambda o: lr_scheduler.CyclicLR(
        o, 0.01, 0.2, step_size_up=2, scale_fn=half_each_cycle, cycle_momentum=False
    ),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.8),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (step + 1)),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, total_iters=4),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [2, 3, 5], 0.5),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9 + 0.01 * step),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.3, total_steps=STEPS + 1),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=5, power=2.0),
    "StepLR": lambda o: lr_scheduler.StepLR(o, 2, 0.5),
    "a scheduler that empties its state": lambda o: Emptying(o),
}
COMBINED = {
    "alone": lambda o, make: make(o),
    "SequentialLR": lambda o, make: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.5, 2), make(o)], milestones=[2]
    ),
    "ChainedScheduler": lambda o, make: lr_scheduler.ChainedScheduler(
        [make(o), lr_scheduler.ExponentialLR(o, 0.95)], optimizer=o
    ),
}


def half_each_cycle(cycle: float) -> float:
    return 0.5**cycle


class Emptying(lr_scheduler.LRScheduler):
    """Takes each entry out of the state that it loads."""

    def __init__(self, optimizer) -> None:
        self.factors = [1.0, 0.7, 0.4]
        super().__init__(optimizer)

    def get_lr(self):
        factor = self.factors[self.last_epoch % len(self.factors)]
        return [base * factor for base in self.base_lrs]

    def load_state_dict(self, state_dict) -> None:
        while state_dict:
            name, value = state_dict.popitem()
            setattr(self, name, value)


class Net(Module):
    """A layer whose rates and momenta are written down in each step."""

    def __init__(self, make) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.constant_(self.layer.bias, 0.1)
        self.make, self.rates = make, []

    def training_step(self, batch, batch_idx):
        group = self.optimizers().param_groups[0]
        self.rates.append((float(group["lr"]), group["momentum"]))
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.8)
        with warnings.catch_warnings():
            # SequentialLR sets rates before the first step, and torch says so
            warnings.simplefilter("ignore")
            scheduler = self.make(optimizer)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


BATCHES = [torch.full((2, 1), float(number)) for number in range(STEPS)]


def test_the_table_holds_every_scheduler_of_torch() -> None:
    """But for the base class, and for the one that goes by a metric, which has tests of its own."""
    of_torch = {
        name
        for name, kind in vars(lr_scheduler).items()
        if isinstance(kind, type) and issubclass(kind, lr_scheduler.LRScheduler) and name[0] != "_"
    }
    tabled = {name.partition(",")[0] for name in SIMPLE} | COMBINED.keys()
    assert of_torch - {"LRScheduler", "ReduceLROnPlateau"} <= tabled


# torch's OneCycleLR takes no other start than its own
PAIRS = [pair for pair in product(SIMPLE, COMBINED) if pair != ("OneCycleLR", "SequentialLR")]


@pytest.mark.parametrize("pair", one_in(2, PAIRS), ids="-".join)
def test_a_scheduler_is_resumed_at_each_step(pair, bare, tmp_path) -> None:
    """Rates, momenta, weights and the schedulers' states are those of the run that was not cut."""
    name, combined = pair

    def net() -> Net:
        return Net(lambda optimizer: COMBINED[combined](optimizer, SIMPLE[name]))

    whole, trainer = net(), bare(SaveEachStep(tmp_path))
    trainer.fit(whole, BATCHES)
    state = trainer.lr_scheduler_configs[0].scheduler.state_dict()
    for step in (1, 2, 3, STEPS - 1):
        resumed, again = net(), bare()
        again.fit(resumed, BATCHES, ckpt_path=tmp_path / f"{step}.ckpt")
        assert resumed.rates == whole.rates[step:]
        assert torch.equal(resumed.layer.weight, whole.layer.weight)
        resumed_state = again.lr_scheduler_configs[0].scheduler.state_dict()
        assert nested_diff.nested_differences(state, resumed_state) == []


@pytest.mark.parametrize("name", ["CyclicLR", "StepLR"])
def test_a_scheduler_is_resumed_in_a_loop_of_ones_own(name, tmp_path) -> None:
    """As in the Trainer's."""
    options = {
        "accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    whole, resumed = Net(SIMPLE[name]), Net(SIMPLE[name])
    fit_by_run(whole, BATCHES, callbacks=[SaveEachStep(tmp_path)], **options)
    fit_by_run(resumed, BATCHES, ckpt_path=tmp_path / "3.ckpt", **options)
    assert resumed.rates == whole.rates[3:]
    assert torch.equal(resumed.layer.weight, whole.layer.weight)


PLATEAU_BATCHES, EPOCHS = 4, 2
SAVED_IN = [
    "on_train_batch_end", "on_validation_start", "on_validation_epoch_end",
    "on_validation_end", "on_batch_checkpoint", "on_train_batches_end", "on_epoch_checkpoint",
]  # fmt: skip


class Watched(Module):
    """Its validation logs its own number, by which a scheduler that counts steps goes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        torch.nn.init.constant_(self.layer.weight, 0.5)
        torch.nn.init.constant_(self.layer.bias, 0.1)
        self.register_buffer("validations", torch.zeros(()))
        self.rates, self.watched = [], []

    def training_step(self, batch, batch_idx):
        self.rates.append(self.optimizers().param_groups[0]["lr"])
        return self.layer(batch).square().mean()

    def on_validation_epoch_start(self) -> None:
        self.validations += 1

    def validation_step(self, batch, batch_idx) -> None:
        self.log("number", self.validations.clone())

    def lr_scheduler_step(self, scheduler, metric) -> None:
        self.watched.append(float(metric))
        scheduler.step(metric)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        plateau = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": plateau, "monitor": "number", "interval": "step"},
        }


def saving_in(hook: str, folder) -> Callback:
    """Return a callback that saves in each call of a hook, with the steps that were watched."""

    class Saving(Callback):
        cuts = ()

        def save(self, trainer, module, *_) -> None:
            if not trainer.sanity_checking:
                self.cuts += ((folder / f"{len(self.cuts)}.ckpt", len(module.watched)),)
                trainer.save_checkpoint(self.cuts[-1][0])

    setattr(Saving, hook, Saving.save)
    assert hook in HOOKS
    return Saving()


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize("by_run", [False, True])
@pytest.mark.parametrize("hook", SAVED_IN)
def test_a_scheduler_by_step_with_a_monitor_is_resumed(hook, by_run, bare, tmp_path) -> None:
    """It steps once for each step, with the value of that step's validation, wherever it is cut."""
    data = [torch.full((2, 1), float(number)) for number in range(PLATEAU_BATCHES)]
    options = {"max_epochs": EPOCHS, "val_check_interval": 1, "num_sanity_val_steps": 0}
    quiet = {
        "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
        "enable_model_summary": False,
    }  # fmt: skip

    def fit(net, *callbacks, ckpt_path=None):
        if by_run:
            more = {"callbacks": callbacks, "ckpt_path": ckpt_path, "accelerator": "cpu"}
            return fit_by_run(net, data, [torch.ones(1, 1)], **more, **quiet, **options)
        trainer = bare(*callbacks, **options)
        trainer.fit(net, data, [torch.ones(1, 1)], ckpt_path=ckpt_path)
        return trainer

    whole, saving = Watched(), saving_in(hook, tmp_path)
    state = fit(whole, saving).lr_scheduler_configs[0].scheduler.state_dict()
    assert whole.watched == [float(number + 1) for number in range(PLATEAU_BATCHES * EPOCHS)]
    for path, steps in saving.cuts[:-1]:
        resumed = Watched()
        again = fit(resumed, ckpt_path=path)
        assert resumed.watched == whole.watched[steps:], path.name
        assert resumed.rates == whole.rates[len(whole.rates) - len(resumed.rates) :]
        assert torch.equal(resumed.layer.weight, whole.layer.weight)
        resumed_state = again.lr_scheduler_configs[0].scheduler.state_dict()
        assert nested_diff.nested_differences(state, resumed_state) == []
