"""A fit that trains nothing is told of once, at its start, its first step or its first epoch."""

from __future__ import annotations

import itertools

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.optim.lr_scheduler import LambdaLR

import trainer_hooks.compat.lightning as pl
from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint, NaNGuard
from trainer_hooks.errors import MetricError, TrainerHooksAdvice, TrainerHooksWarning


class Net(Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = torch.nn.Linear(2, 2)
        self.head = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.head(self.backbone(batch)).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class WithoutReturn(Net):
    def configure_optimizers(self):
        torch.optim.SGD(self.parameters(), lr=0.1)


class WithoutReturnInLightning(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.head(batch).mean()

    def configure_optimizers(self):
        return None


class Manual(Net):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        self.manual_backward(super().training_step(batch, batch_idx))


class OwnLoss(Net):
    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        return torch.ones((), requires_grad=True)


class Detached(Manual):
    def training_step(self, batch, batch_idx):
        self.manual_backward(torch.ones((), requires_grad=True))
        self.optimizers().step()


class FrozenPart(Net):
    def configure_optimizers(self):
        self.backbone.requires_grad_(False)
        return torch.optim.SGD(self.backbone.parameters(), lr=0.1)


class WithoutRate(Net):
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Scheduled(Net):
    """The rate of an epoch is the next of `rates`."""

    rates = (0.0, 0.0)

    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        return [optimizer], [LambdaLR(optimizer, lambda epoch: self.rates[min(epoch, 1)])]


class FromZero(Scheduled):
    rates = (0.0, 1.0)


class ToZero(Scheduled):
    rates = (1.0, 0.0)


def batches(count: int = 4) -> list[torch.Tensor]:
    return [torch.ones(3, 2) for _ in range(count)]


def told(recwarn) -> list[str]:
    return [str(w.message) for w in recwarn.list if issubclass(w.category, TrainerHooksWarning)]


@pytest.mark.parametrize("options", [{"max_epochs": 2}, {"fast_dev_run": 2}], ids=["fit", "dry"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WithoutReturn, r"configure_optimizers returned None: .* Return the optimizer"),
        (WithoutReturnInLightning, r"configure_optimizers returned None: .* Return the optimizer"),
        (Manual, r"has made no optimizer step in \d batches: .* self.optimizers\(\).step\(\)"),
        (OwnLoss, r"no parameter of SGD has a gradient .* Compute it from the output"),
        (Detached, r"no parameter of SGD has a gradient .* Compute it from the output"),
        (FrozenPart, r"each parameter of SGD is frozen.* requires_grad_\(True\)"),
        (WithoutRate, r"the learning rate of SGD is 0.* Pass lr="),
        (Scheduled, r"the learning rate of SGD is still 0 after .* scheduler"),
    ],
)
def test_nothing_is_trained(kind, message, options) -> None:
    """One warning, with the reason and the cure; the weights are those of the start."""
    net = kind()
    before = [parameter.detach().clone() for parameter in net.parameters()]
    with pytest.warns(TrainerHooksAdvice, match=message) as warned:
        Trainer(**options, **QUIET_OPTIONS).fit(net, batches())
    said = [str(one.message) for one in warned if "no length" not in str(one.message)]
    assert len(said) == 1, said
    assert all(map(torch.equal, before, net.parameters()))


@pytest.mark.slow
def test_manual_optimization_in_an_epoch_without_end() -> None:
    """It is told without an end of the epoch, which would never come."""

    class Stops(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1200:
                trainer.stop("test")

    trainer = Trainer(max_steps=5, callbacks=[Stops()], **QUIET_OPTIONS)
    with pytest.warns(TrainerHooksAdvice, match="has made no optimizer step in 1000 batches"):
        trainer.fit(Manual(), itertools.repeat(torch.ones(3, 2)))


class StepsEveryThird(Manual):
    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        if batch_idx % 3 == 2:
            self.optimizers().step()
            self.optimizers().zero_grad()


def test_a_resume_between_two_steps_is_no_training_of_nothing(tmp_path, recwarn) -> None:
    """The checkpoint counts the steps before it; the batches that are left make none."""

    class Saves(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 5:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    Trainer(max_epochs=1, callbacks=[Saves()], **QUIET_OPTIONS).fit(StepsEveryThird(), batches(8))
    trainer = Trainer(max_epochs=1, **QUIET_OPTIONS)
    trainer.fit(StepsEveryThird(), batches(8), ckpt_path=tmp_path / "x.ckpt")
    assert trainer.global_step == 2
    assert not [text for text in told(recwarn) if "no optimizer step" in text]


class StepsBareOptimizer(Manual):
    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        self.optimizers(use_pl_optimizer=False).step()
        self.zero_grad()


class StepsInBackward(Net):
    """The gradients are used and dropped as they are made."""

    def __init__(self) -> None:
        super().__init__()

        def step(parameter):
            with torch.no_grad():
                parameter.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None

        for parameter in self.parameters():
            parameter.register_post_accumulate_grad_hook(step)


class FirstBatchSkipped(Net):
    def training_step(self, batch, batch_idx):
        return None if batch_idx == 0 else super().training_step(batch, batch_idx)


class WithoutOptimizer(Net):
    def configure_optimizers(self):
        return []


class NothingToTrain(Net):
    """A frozen module that only looks at the batches."""

    def training_step(self, batch, batch_idx):
        return None

    def configure_optimizers(self):
        self.requires_grad_(False)


class RateOfItsOwn(Net):
    """The module sets the rate, from 0 on."""

    def on_train_batch_start(self, batch, batch_idx):
        for group in self.optimizers().param_groups:
            group["lr"] = 0.1 * batch_idx


@pytest.mark.parametrize(
    "kind",
    [
        Net,
        StepsEveryThird,
        StepsBareOptimizer,
        StepsInBackward,
        FirstBatchSkipped,
        FromZero,
        ToZero,
        WithoutOptimizer,
        NothingToTrain,
        RateOfItsOwn,
    ],
)
@pytest.mark.filterwarnings("ignore:.*training_step returned None")
def test_where_something_is_trained(kind, recwarn) -> None:
    """No word where weights change, or where none is meant to."""
    for accumulated in (1, 2):
        if accumulated == 1 or kind().automatic_optimization:
            Trainer(max_epochs=2, accumulate_grad_batches=accumulated, **QUIET_OPTIONS).fit(
                kind(), batches()
            )
    assert [text for text in told(recwarn) if "returned None in epoch" not in text] == []


def test_a_first_batch_without_a_loss_is_not_the_first_step() -> None:
    """The step that is looked at is the first that was trained, of whichever batch."""

    class SkipsTheFirst(Net):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.0)

    trainer = Trainer(max_epochs=1, **QUIET_OPTIONS)
    with (
        pytest.warns(TrainerHooksWarning, match="batch 0: such a batch is skipped"),
        pytest.warns(TrainerHooksAdvice, match="SGD is 0, and no scheduler changes it"),
    ):
        trainer.fit(SkipsTheFirst(), [torch.ones(1, 2)] * 3)


def test_an_optimizer_of_other_parameters() -> None:
    """An optimizer over none of the module's parameters is told of once."""

    class Foreign(Net):
        def configure_optimizers(self):
            return torch.optim.SGD(Net().parameters(), lr=0.1)

    with pytest.warns(
        TrainerHooksWarning, match=r"4 of 4 parameters .*it trains nothing of the module"
    ) as warned:
        Trainer(max_epochs=2, **QUIET_OPTIONS).fit(Foreign(), batches())
    assert len(warned) == 1


def test_a_trial_run_gives_no_advice(recwarn) -> None:
    """A trial run leaves the advice to the fit."""
    net = WithoutRate()

    class Tries(Callback):
        def on_fit_start(self, trainer, module):
            with trainer.trial_run() as trial:
                trial.train(2)

    trainer = Trainer(max_epochs=1, **QUIET_OPTIONS)
    trainer.fit(net, batches())
    assert len(told(recwarn)) == 1


# --- monitors ------------------------------------------------------------------------------------


class Validates(Net):
    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("val_own", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", batch.mean())


WITHOUT_VALIDATION = pytest.mark.parametrize(
    ("loader", "options"), [(None, {}), (batches(1), {"limit_val_batches": 0})]
)


@WITHOUT_VALIDATION
def test_a_stopper_that_no_validation_serves(tmp_path, loader, options) -> None:
    """A validation metric without a validation is an error before the first batch."""
    options = {**QUIET_OPTIONS, "default_root_dir": tmp_path, **options}
    trainer = Trainer(max_epochs=1, callbacks=[EarlyStopping(monitor="val_loss")], **options)
    with pytest.raises(MetricError, match="'val_loss' of EarlyStopping: it must be") as error:
        trainer.fit(Validates(), batches(), loader)
    assert "Pass validation data, and a module with a validation_step" in str(error.value)
    assert "Did you mean" not in str(error.value)
    assert trainer.global_step == 0


@pytest.mark.filterwarnings("ignore:.*Without it no checkpoint is ranked")
@WITHOUT_VALIDATION
def test_a_saver_that_no_validation_serves(tmp_path, loader, options) -> None:
    """A validation metric without a validation is told of before the first batch."""
    seen = []

    class Looks(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            seen.append(len(warned))
            trainer.stop("test")

    options = {**QUIET_OPTIONS, "enable_checkpointing": None, **options}
    saver = ModelCheckpoint(monitor="val_loss")
    trainer = Trainer(
        max_epochs=1, callbacks=[saver, Looks()], default_root_dir=tmp_path, **options
    )
    message = "monitor 'val_loss' of ModelCheckpoint: this fit runs no val"
    with pytest.warns(TrainerHooksAdvice, match=message) as warned:
        trainer.fit(Validates(), batches(), loader)
    # before the first batch; without a loader the fit has said so itself
    assert seen[0] == (2 if loader is None else 1)


@pytest.mark.parametrize("name", ["train_loss", "loss", "valence"])
def test_a_monitor_of_the_training(tmp_path, name, recwarn) -> None:
    """A metric whose name is not that of a validation may be logged by anybody."""

    class Logs(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log(name, loss, on_epoch=True)
            return loss

    options = {**QUIET_OPTIONS, "enable_checkpointing": None}
    watchers = [EarlyStopping(name), ModelCheckpoint(monitor=name)]
    Trainer(max_epochs=1, callbacks=watchers, default_root_dir=tmp_path, **options).fit(
        Logs(), batches()
    )
    assert told(recwarn) == []


def test_a_monitor_that_is_there_already(recwarn) -> None:
    """A name like a validation's that a callback logs as the training starts is no mistake."""

    class Logs(Callback):
        def on_train_start(self, trainer, module):
            trainer.callback_metrics["val_own"] = torch.ones(())

    trainer = Trainer(max_epochs=1, callbacks=[Logs(), EarlyStopping("val_loss")], **QUIET_OPTIONS)
    trainer.fit(Validates(), batches(), batches(1))
    assert told(recwarn) == []


@pytest.mark.parametrize("kind", [EarlyStopping, ModelCheckpoint])
@pytest.mark.parametrize(
    "name", ["val_acc", "accuracy", "val/F1", "test_MulticlassF1Score", "auroc", "mIoU", "r2_score"]
)
def test_a_metric_of_which_more_is_better(kind, name) -> None:
    """Watched with mode="min", it is advised of at the line that makes the callback."""
    with pytest.warns(
        TrainerHooksAdvice, match=f'{name!r} of {kind.__name__}.*mode="max"'
    ) as warned:
        kind(monitor=name)
    assert warned[0].filename == __file__
    assert len(warned) == 1


@pytest.mark.parametrize("kind", [EarlyStopping, ModelCheckpoint])
def test_a_metric_of_which_less_is_better(kind, recwarn) -> None:
    """A loss, an error, or a name that only contains such a word is watched as it is."""
    for name in (
        "val_loss",
        "f1_loss",
        "accuracy_error",
        "face_loss",
        "mapping",
        "account",
        "step",
    ):
        kind(monitor=name)
    kind(monitor="val_acc", mode="max")
    assert told(recwarn) == []


@pytest.mark.filterwarnings("ignore:.*not finite")
def test_gradients_that_a_guard_dropped_say_nothing_of_the_loss(recwarn) -> None:
    """A first batch that is skipped for its gradients is no loss without a way to the weights."""

    class Nan(Callback):
        def on_after_backward(self, trainer, module):
            if trainer.progress.batches_completed < 2:
                for parameter in module.parameters():
                    parameter.grad.fill_(float("nan"))

    trainer = Trainer(**QUIET_OPTIONS, max_epochs=1, callbacks=[Nan(), NaNGuard(action="skip")])
    trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(8, 2), 2))
    assert not [one for one in recwarn if issubclass(one.category, TrainerHooksAdvice)]


def test_a_monitor_that_waits_for_the_first_validation_is_told_so() -> None:
    """Before that nothing says that the module does not log it."""

    class Validated(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.head(self.backbone(batch)).mean())

    data = torch.utils.data.DataLoader(torch.ones(4, 2), 2)
    stopper = EarlyStopping("val_loss", check_on_train_epoch_end=True)
    trainer = Trainer(
        **QUIET_OPTIONS,
        max_epochs=2,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=2,
        callbacks=stopper,
    )
    with pytest.raises(MetricError, match=r"logged so far: 'loss'\. No validation has run yet: if"):
        trainer.fit(Validated(), data, data)
