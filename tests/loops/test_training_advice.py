"""Advice in a fit that trains otherwise than meant: told once where it is certain, else never."""

from __future__ import annotations

import warnings

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, StepLR

from trainer_hooks import Callback, Module, Run, Trainer
from trainer_hooks.callbacks import (
    BackboneFinetuning,
    EarlyStopping,
    LambdaCallback,
    ModelCheckpoint,
)
from trainer_hooks.errors import TrainerHooksAdvice

DATA = list(torch.linspace(-1, 1, 30).reshape(5, 2, 3))


class Net(Module):
    """A trunk with a dropout and a top; trained well."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.drop = nn.Dropout(0.25)
        self.top = nn.Linear(4, 1)

    def loss(self, batch):
        return (self.top(self.drop(self.trunk(batch))) - 1).square().mean()

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def advised(module: Module, data=DATA, callbacks=(), **options) -> list[str]:
    """Return the advice of a fit of three epochs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksAdvice)
        Trainer(**{"max_epochs": 3, **QUIET_OPTIONS, "callbacks": list(callbacks), **options}).fit(
            module, data
        )
    return [str(one.message) for one in caught if issubclass(one.category, TrainerHooksAdvice)]


# --- parameters that no optimizer has ---


class TopOnly(Net):
    def configure_optimizers(self):
        return torch.optim.Adam(self.top.parameters(), lr=0.01)


class TopAndManual(TopOnly):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


@pytest.mark.parametrize("kind", [TopOnly, TopAndManual])
def test_parameters_that_no_optimizer_has(kind) -> None:
    """They had gradients and did not change: the parts, their number, and both cures are told."""
    [message] = advised(kind())
    assert message == (
        f"trunk.0 of {kind.__name__}: 2 parameters had gradients in the first epoch, and "
        f"no optimizer of {kind.__name__}.configure_optimizers steps them: they stay as they were. "
        "Pass them to the optimizer, as with self.parameters(); or freeze them with "
        "requires_grad_(False), which saves their backward."
    )


class FrozenTrunk(TopOnly):
    def __init__(self) -> None:
        super().__init__()
        self.trunk.requires_grad_(False)


class DetachedTrunk(TopOnly):
    def loss(self, batch):
        return (self.top(self.drop(self.trunk(batch).detach())) - 1).square().mean()


class TrunkInEvalMode(TopOnly):
    def __init__(self) -> None:
        super().__init__()
        self.trunk.eval()


class WeightsAlone(Net):
    """Leaves the biases of its layers as they are, which is a choice and no oversight."""

    def configure_optimizers(self):
        return torch.optim.SGD([p for p in self.parameters() if p.ndim > 1], lr=0.01)


class OwnStepOfTrunk(TopOnly):
    def on_train_batch_end(self, outputs, batch, batch_idx):
        with torch.no_grad():
            for parameter in self.trunk.parameters():
                parameter.sub_(0.01 * parameter.grad)


class BareOptimizer(TopOnly):
    def __init__(self) -> None:
        super().__init__()
        self.others = torch.optim.SGD(self.trunk.parameters(), lr=0.01)

    def on_before_optimizer_step(self, optimizer):
        self.others.step()


class LaterGroup(TopOnly):
    def on_train_epoch_end(self):
        if self.current_epoch == 0:
            self.optimizers().add_param_group({"params": list(self.trunk.parameters())})


class AddsLater(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if batch_idx == 1 and trainer.current_epoch == 2:
            trainer.optimizers[0].add_param_group({"params": list(module.trunk.parameters())})


class Teacher(Net):
    def __init__(self) -> None:
        super().__init__()
        self.teacher = nn.Linear(3, 1)

    def loss(self, batch):
        with torch.no_grad():
            wanted = self.teacher(batch)
        return (self.top(self.drop(self.trunk(batch))) - wanted).square().mean()

    def configure_optimizers(self):
        mine = [*self.trunk.parameters(), *self.top.parameters()]
        return torch.optim.SGD(mine, lr=0.01)


class Unused(TopOnly):
    def loss(self, batch):
        return self.top(torch.cat([batch, batch[:, :1]], dim=1)).square().mean()


class WithBackbone(TopOnly):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = self.trunk


# --- gradients that are never cleared ---


class Manual(Net):
    """Clears its gradients in the way that a case names."""

    def __init__(self, way: str = "", steps_every: int = 1) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.way, self.steps_every = way, steps_every

    def clear(self) -> None:
        to_none = not self.way.endswith("to zeros")
        if self.way.startswith("optimizer"):
            self.optimizers().zero_grad(set_to_none=to_none)
        elif self.way.startswith("module"):
            self.zero_grad(set_to_none=to_none)
        elif self.way == "by hand":
            for parameter in self.parameters():
                parameter.grad = None
        elif self.way:
            factor = {"by hand to zeros": 0.0, "decay": 0.5}[self.way]
            for parameter in self.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def training_step(self, batch, batch_idx):
        self.manual_backward(self.loss(batch))
        if (batch_idx + 1) % self.steps_every == 0:
            self.optimizers().step()
            self.clear()


class ClearsFirst(Manual):
    def training_step(self, batch, batch_idx):
        self.clear()
        self.manual_backward(self.loss(batch))
        self.optimizers().step()


WAYS = ["optimizer", "optimizer to zeros", "module", "module to zeros", "by hand",
        "by hand to zeros", "decay"]  # fmt: skip


def test_gradients_that_are_never_cleared() -> None:
    """Three steps in a row are enough, in one epoch or in several."""
    told = (
        "Manual.training_step makes optimizer steps and clears no gradients: each step is by the "
        "sum over all batches so far. Call self.optimizers().zero_grad() before "
        "self.manual_backward(loss)."
    )
    assert advised(Manual()) == [told]
    assert advised(Manual(), DATA[:2]) == [told]


# --- a schedule over all steps that is stepped by epochs ---


class Scheduled(Net):
    def __init__(self, make, interval="epoch", every=1) -> None:
        super().__init__()
        self.make, self.interval, self.every = make, interval, every

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        scheduler = self.make(optimizer)
        config = {"scheduler": scheduler, "interval": self.interval, "frequency": self.every}
        return {"optimizer": optimizer, "lr_scheduler": config}


@pytest.mark.parametrize(
    ("make", "options", "steps"),
    [
        (lambda o: OneCycleLR(o, 0.1, total_steps=15), {}, 15),
        (lambda o: OneCycleLR(o, 0.1, epochs=3, steps_per_epoch=5), {}, 15),
        (lambda o: CosineAnnealingLR(o, T_max=15), {}, 15),
        (lambda o: CosineAnnealingLR(o, T_max=9), {"accumulate_grad_batches": 2}, 9),
        (lambda o: CosineAnnealingLR(o, T_max=6), {"limit_train_batches": 2}, 6),
    ],
)
def test_a_schedule_over_all_steps_that_is_stepped_by_epochs(make, options, steps) -> None:
    """It is planned for exactly the steps of the fit, and would end after a few of them."""
    [message] = advised(Scheduled(make), **options)
    assert f"is planned for {steps} steps, as many as this fit has" in message
    assert "3 times in all" in message
    assert '{"scheduler": scheduler, "interval": "step"}' in message


@pytest.mark.parametrize(("total", "is_told"), [(15, True), (16, False)])
def test_a_one_cycle_without_steps_for_an_epoch_that_begins_again(total, is_told) -> None:
    """It is planned for the steps of the fit, of which two are made once more."""
    module = Scheduled(lambda o: OneCycleLR(o, 0.1, total_steps=total), "step")

    def interrupt(trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == 7:
            raise KeyboardInterrupt

    trainer = Trainer(
        max_epochs=3, callbacks=[LambdaCallback(on_train_batch_end=interrupt)], **QUIET_OPTIONS
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(module, DATA)
    with warnings.catch_warnings(record=True) as caught, pytest.raises(ValueError, match="of tot"):
        warnings.simplefilter("always", TrainerHooksAdvice)
        trainer.fit(module, DATA)
    told = [str(w.message) for w in caught if issubclass(w.category, TrainerHooksAdvice)]
    assert len(told) == is_told
    assert all("for 15 steps, and raises after them: this training makes 17" in t for t in told)
    assert trainer.estimated_stepping_batches == 17


# --- eval mode, and a name in the place of self.log ---


class Peeks(Net):
    def training_step(self, batch, batch_idx):
        self.eval()
        with torch.no_grad():
            self.loss(batch)
        return self.loss(batch)


class PeeksAndGoesOn(Net):
    def training_step(self, batch, batch_idx):
        self.eval()
        with torch.no_grad():
            self.loss(batch)
        self.train()
        return super().training_step(batch, batch_idx)


class EvalByHook(Net):
    def on_train_epoch_start(self):
        self.eval()


class EvalByBatchHook(Net):
    def on_train_batch_start(self, batch, batch_idx):
        self.eval()


class EvalInAPart(Net):
    def training_step(self, batch, batch_idx):
        self.trunk.eval()
        return super().training_step(batch, batch_idx)


class EvalWithoutEffect(Net):
    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.drop = nn.Linear(3, 4), nn.Identity()

    def training_step(self, batch, batch_idx):
        self.eval()
        return super().training_step(batch, batch_idx)


def test_eval_mode_that_a_step_leaves() -> None:
    """The layers that act otherwise in it are named."""
    [message] = advised(Peeks())
    assert message.startswith(
        "Peeks.training_step leaves the module in eval mode, in which its BatchNorm1d, Dropout acts"
    )
    assert "Call self.train() after what needs self.eval()" in message


class OwnLog(Net):
    def __init__(self) -> None:
        super().__init__()
        self.values = []
        self.log = lambda name, value: self.values.append((name, value))


class PassesLogOn(Net):
    def __init__(self) -> None:
        super().__init__()
        inner = self.log

        def log(name, value, **options):
            inner(f"of_net/{name}", value, **options)

        self.log = log


class PlainLogger(Net):
    """`log` is often a logger of the standard library, which is no mistake."""

    def __init__(self) -> None:
        super().__init__()
        self.log = __import__("logging").getLogger("of-the-net")

    def training_step(self, batch, batch_idx):
        return self.loss(batch)


def test_a_function_in_the_place_of_log() -> None:
    """Nothing that the step logs arrives anywhere."""
    [message] = advised(OwnLog())
    assert message.startswith("OwnLog has a function of its own in the place of self.log")
    assert "Give the attribute another name than `log`." in message


class ByCallback(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        module.eval()


RIGHT = {
    "plain": (Net, {}),
    "frozen": (FrozenTrunk, {}),
    "detached": (DetachedTrunk, {}),
    "weights alone": (WeightsAlone, {}),
    "stepped by hand": (OwnStepOfTrunk, {}),
    "a bare optimizer": (BareOptimizer, {}),
    "a group added": (LaterGroup, {}),
    "a group added later": (TopOnly, {"callbacks": [AddsLater()]}),
    "a group added by a function": (
        TopOnly,
        {"callbacks": [LambdaCallback(on_epoch_start=lambda t, m: t.current_epoch < 9 or
                                      t.optimizers[0].add_param_group({"params": []}))]},
    ),
    "a teacher": (Teacher, {}),
    "not used": (Unused, {}),
    "finetuning": (
        WithBackbone, {"callbacks": [BackboneFinetuning(unfreeze_backbone_at_epoch=1)]},
    ),
    **{f"cleared after, {way}": (lambda way=way: Manual(way), {}) for way in WAYS},
    **{f"cleared before, {way}": (lambda way=way: ClearsFirst(way), {}) for way in WAYS},
    "accumulated": (lambda: Manual("optimizer", steps_every=2), {}),
    "one by step": (
        lambda: Scheduled(lambda o: OneCycleLR(o, 0.1, total_steps=16), "step"), {},
    ),
    "by epochs": (lambda: Scheduled(lambda o: CosineAnnealingLR(o, T_max=3)), {}),
    "by other epochs": (lambda: Scheduled(lambda o: CosineAnnealingLR(o, T_max=14)), {}),
    "one batch an epoch": (
        lambda: Scheduled(lambda o: CosineAnnealingLR(o, T_max=3)), {"limit_train_batches": 1},
    ),
    "another scheduler": (lambda: Scheduled(lambda o: StepLR(o, 15)), {}),
    "no last epoch": (
        lambda: Scheduled(lambda o: CosineAnnealingLR(o, T_max=15)),
        {"max_epochs": -1, "max_steps": 15},
    ),
    "peeks and goes on": (PeeksAndGoesOn, {}),
    "eval by a hook": (EvalByHook, {}),
    "eval by a hook of batches": (EvalByBatchHook, {}),
    "eval by a callback": (Net, {"callbacks": [ByCallback()]}),
    "eval of a part": (EvalInAPart, {}),
    "eval without effect": (EvalWithoutEffect, {}),
    "log passes on": (PassesLogOn, {}),
    "log is a logger": (PlainLogger, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_none_where_all_is_as_meant(name) -> None:
    """Advice that may be wrong is worse than none."""
    make, options = RIGHT[name]
    assert advised(make(), **options) == []


def test_a_layer_in_eval_mode_is_told_of_for_its_mode_alone() -> None:
    """It is meant to be frozen, whether an optimizer has it or not."""
    [message] = advised(TrunkInEvalMode())
    assert "will be trained in eval mode" in message


def test_nothing_is_told_twice_or_later() -> None:
    """A second fit of the trainer, and the epochs after the first, look at nothing again."""
    trainer, module = Trainer(max_epochs=1, **QUIET_OPTIONS), TopOnly()
    with pytest.warns(TrainerHooksAdvice, match="trunk"):
        trainer.fit(module, DATA)
    trainer.max_epochs = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", TrainerHooksAdvice)
        trainer.fit(module, DATA)


def test_no_look_is_left_after_the_first_batches() -> None:
    """A batch of a later epoch costs nothing: no function waits for one."""
    waiting = []

    class Waiting(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            waiting.append(len(trainer._core.context.after_first_batches))

    for module in (Net(), Manual("optimizer")):
        waiting.clear()
        advised(module, callbacks=[Waiting()])
        assert waiting[4:] == [0] * 11


def test_an_own_loop_is_told_of_its_optimizer() -> None:
    """A Run names its argument; its modes are its own affair."""
    model = Net()
    options = {key: value for key, value in QUIET_OPTIONS.items() if key != "plugins"}
    parts = nn.Sequential(model.trunk, model.top)
    optimizer = torch.optim.SGD(model.top.parameters(), lr=0.1)

    def train() -> None:
        with Run(parts, optimizer, max_epochs=1, plugins=False, **options) as run:
            for _ in run.epochs():
                for batch in run.batches(DATA):
                    run.backward(parts(batch).square().mean())
                    run.step()

    with pytest.warns(TrainerHooksAdvice, match=r"no optimizer of Run\(optimizer=...\) steps them"):
        train()


@pytest.mark.parametrize(
    ("monitor", "mode", "is_advised"),
    [
        ("val_loss", "max", True), ("train/loss_epoch", "max", True), ("ValLoss", "max", True),
        ("word_error", "max", True), ("neg_loss", "max", False), ("loss_reduction", "max", False),
        ("val_loss", "min", False), ("val_acc", "max", False), ("inverse-error", "max", False),
        ("loss_of_precision", "max", False), ("closset", "max", False), ("glossary", "max", False),
    ],
)  # fmt: skip
def test_a_mode_that_contradicts_the_name(monitor, mode, is_advised) -> None:
    """Of a loss less is better, unless another word of its name turns it round."""
    for kind in (EarlyStopping, ModelCheckpoint):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TrainerHooksAdvice)
            kind(monitor=monitor, mode=mode)
        words = f'monitor {monitor!r} of {kind.__name__}: with mode="max" a higher value'
        cure = f'write {kind.__name__}(..., mode="min")'
        told = [str(one.message) for one in caught]
        assert [words in text and cure in text for text in told] == [True] * is_advised


def test_a_fit_of_unknown_length_is_not_compared() -> None:
    """Without a known number of steps no schedule can be planned for all of them."""

    def endless():
        yield from DATA

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return endless()

    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    assert advised(Scheduled(lambda o: CosineAnnealingLR(o, T_max=15)), loader) == []
