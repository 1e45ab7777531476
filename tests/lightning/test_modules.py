"""What a module written for Lightning does means the same: optimizers, checkpoints, parts."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch.optim import SGD

from trainer_hooks import DataModule, Module, TrainerHooksWarning
from trainer_hooks.callbacks import BaseFinetuning, ModelCheckpoint
from trainer_hooks.errors import ModuleError, OptimizationError

# --- optimizers ---


def test_what_two_others_share_is_untoggled(Tiny, quiet_trainer, batches) -> None:
    """A parameter that two other optimizers share requires gradients again after a toggle."""

    class SharesLayer(Tiny):
        automatic_optimization = False

        def __init__(self) -> None:
            super().__init__()
            self.shared = torch.nn.Linear(2, 1)

        def configure_optimizers(self):
            mine, shared = self.layer.parameters(), list(self.shared.parameters())
            return [SGD(mine, 0.1), SGD(shared, 0.1), SGD(shared, 0.2)]

        def training_step(self, batch, batch_idx):
            with self.toggled_optimizer(self.optimizers()[0]):
                assert not self.shared.weight.requires_grad

    module = SharesLayer()
    quiet_trainer().fit(module, batches(2))
    assert module.shared.weight.requires_grad


def test_an_optimizer_step_that_drops_its_closure(Tiny, quiet_trainer, batches) -> None:
    """It is an error that names the method, since nothing would be learned."""

    class Net(Tiny):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            optimizer.step()

    with pytest.raises(OptimizationError, match=r"Net\.optimizer_step neither called it"):
        quiet_trainer().fit(Net(), batches(2))


def test_the_closure_comes_by_position(Tiny, quiet_trainer, batches) -> None:
    """`optimizer_step` may call its last argument what it likes, and run it without a step."""
    module = Tiny()
    before = module.layer.weight.clone()

    class ClosureByPosition(Tiny):
        def optimizer_step(self, epoch, batch_idx, optimizer, closure):
            if batch_idx:
                closure()
            else:
                optimizer.step(closure=closure)

    trainer, module = quiet_trainer(), ClosureByPosition()
    trainer.fit(module, batches(3))
    assert trainer.global_step == 1
    assert not torch.equal(before, module.layer.weight)


class Nearby(torch.optim.Optimizer):
    """An optimizer that evaluates the loss so many times a step, as those are written often."""

    def __init__(self, params, times=1) -> None:
        super().__init__(params, {"lr": 0.1})
        self.times = times

    @torch.no_grad()
    def step(self, closure=None):
        for _ in range(self.times):
            self.zero_grad()
            loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])
        return loss


@pytest.mark.parametrize("overrides", [False, True])
def test_an_optional_closure_that_is_evaluated(Tiny, quiet_trainer, batches, overrides) -> None:
    """`step(closure=None)` of another library is given the closure, with gradients on."""

    class CountsTrainingSteps(Tiny):
        def __init__(self, kind) -> None:
            super().__init__()
            torch.nn.init.ones_(self.layer.weight)
            self.kind, self.ran = kind, 0

        def training_step(self, batch, batch_idx):
            self.ran += 1
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            return self.kind(self.parameters())

    class Passing(CountsTrainingSteps):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            optimizer.step(closure=optimizer_closure)

    kind = Passing if overrides else CountsTrainingSteps
    weights = []
    for optimizer, ran in (
        (Nearby, 3),
        (lambda params: Nearby(params, times=2), 6),
        (lambda params: SGD(params, 0.1), 3),
    ):
        module, trainer = kind(optimizer), quiet_trainer()
        trainer.fit(module, batches(3))
        assert (module.ran, trainer.global_step) == (ran, 3)
        weights.append(module.layer.weight)
    assert torch.equal(weights[0], weights[2])
    assert torch.equal(weights[1], weights[2])


def test_an_optional_closure_and_accumulation(Tiny, quiet_trainer, batches) -> None:
    """One evaluation a window is what the plain step does; a second is an error."""

    class KeepsGradients(Tiny):
        times = 1

        def configure_optimizers(self):
            optimizer = Nearby(self.parameters(), self.times)
            optimizer.zero_grad = lambda set_to_none=True: None
            return optimizer

    trainer = quiet_trainer(accumulate_grad_batches=2)
    trainer.fit(KeepsGradients(), batches(4))
    assert trainer.global_step == 2
    module = KeepsGradients()
    module.times = 2
    with pytest.raises(OptimizationError, match="Nearby evaluated the loss twice"):
        quiet_trainer(accumulate_grad_batches=2).fit(module, batches(4))


def test_an_optional_closure_by_hand(Tiny, quiet_trainer, batches) -> None:
    """In manual optimization such an optimizer is handed the closure that `step` is given."""

    class StepsWithClosure(Tiny):
        automatic_optimization = False

        def configure_optimizers(self):
            return Nearby(self.parameters())

        def training_step(self, batch, batch_idx):
            def closure():
                loss = self.layer(batch).mean()
                self.manual_backward(loss)
                return loss

            with torch.enable_grad():
                self.optimizers().step(closure=torch.enable_grad()(closure))

    trainer = quiet_trainer()
    trainer.fit(StepsWithClosure(), batches(3))
    assert trainer.global_step == 3


# --- checkpoints ---


class Rebuilt(Module):
    """Its head is made anew as a checkpoint is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = torch.nn.Linear(2, 1), torch.nn.Linear(1, 1)
        self.rate = 0.1

    def training_step(self, batch, batch_idx):
        return self.head(self.layer(batch)).mean()

    def on_load_checkpoint(self, checkpoint):
        self.head, self.rate = torch.nn.Linear(1, 1), 0.5

    def configure_optimizers(self):
        self.made_with = self.rate
        return SGD(self.parameters(), lr=0.1)


def is_trained(trainer, parameter) -> bool:
    groups = trainer.optimizers[0].param_groups
    return any(each is parameter for group in groups for each in group["params"])


def test_layers_made_anew_are_trained(quiet_trainer, batches, tmp_path) -> None:
    """`configure_optimizers` comes after the module's `on_load_checkpoint` and sees its work."""
    path, trainer = tmp_path / "x.ckpt", quiet_trainer()
    trainer.fit(Rebuilt(), batches(2))
    trainer.save_checkpoint(path)
    module, trainer = Rebuilt(), quiet_trainer(max_epochs=2)
    trainer.fit(module, batches(2), ckpt_path=path)
    assert is_trained(trainer, module.head.weight)
    assert module.made_with == 0.5


def test_layers_made_anew_in_a_later_fit(quiet_trainer, batches, tmp_path) -> None:
    """So it is where the same trainer goes back to a checkpoint with the same module."""
    path, module, trainer = tmp_path / "x.ckpt", Rebuilt(), quiet_trainer()
    trainer.fit(module, batches(2))
    trainer.save_checkpoint(path)
    trainer.max_epochs = 2
    trainer.fit(module, batches(2), ckpt_path=path)
    assert is_trained(trainer, module.head.weight)


def test_finetuning_groups_what_was_made_anew(quiet_trainer, batches, tmp_path) -> None:
    """A callback's `on_load_checkpoint` finds the optimizers that were made of it."""

    class Unfreeze(BaseFinetuning):
        def freeze_before_training(self, module):
            self.freeze(module.layer)

        def finetune_function(self, module, epoch, optimizer):
            if epoch == 1:
                self.unfreeze_and_add_param_group(module.layer, optimizer)

    class OptimizesUnfrozen(Rebuilt):
        def configure_optimizers(self):
            return SGD([p for p in self.parameters() if p.requires_grad], lr=0.1)

    path = tmp_path / "x.ckpt"
    trainer = quiet_trainer(max_epochs=2, callbacks=[Unfreeze()])
    trainer.fit(OptimizesUnfrozen(), batches(2))
    trainer.save_checkpoint(path)
    module, trainer = OptimizesUnfrozen(), quiet_trainer(max_epochs=3, callbacks=[Unfreeze()])
    trainer.fit(module, batches(2), ckpt_path=path)
    assert is_trained(trainer, module.head.weight)
    assert is_trained(trainer, module.layer.weight)


class Watched(Module):
    """Its validation gets worse with each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def validation_step(self, batch, batch_idx):
        self.log("epoch_value", float(self.current_epoch))

    def test_step(self, batch, batch_idx):
        self.log("weight", self.layer.weight.sum())

    def predict_step(self, batch, batch_idx):
        return self.layer.weight.clone()

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("entry", ["test", "validate", "predict"])
def test_the_best_is_evaluated_after_a_fit(quiet_trainer, batches, tmp_path, entry) -> None:
    """Without a model and a path an evaluation takes the best of the fit, and says so once."""
    saver = ModelCheckpoint(tmp_path, monitor="epoch_value")
    trainer = quiet_trainer(max_epochs=3, callbacks=[saver], enable_checkpointing=None)
    module = Watched()
    trainer.fit(module, batches(2), batches(1))
    last = module.layer.weight.clone()
    getattr(trainer, entry)(module, batches(1))
    assert torch.equal(module.layer.weight, last)
    with pytest.warns(TrainerHooksWarning, match=f"{entry} was given neither a model nor"):
        getattr(trainer, entry)(dataloaders=batches(1))
    best = torch.load(saver.best_model_path, weights_only=True)["state_dict"]["layer.weight"]
    assert torch.equal(module.layer.weight, best)
    assert not torch.equal(best, last)


def test_a_module_that_nothing_was_saved_of(quiet_trainer, batches, tmp_path) -> None:
    """Without a checkpoint, and of a module that was not trained, the weights are as they are."""
    trainer = quiet_trainer()
    module = Watched()
    trainer.fit(module, batches(2), batches(1))
    last = module.layer.weight.clone()
    trainer.test(dataloaders=batches(1), verbose=False)
    assert torch.equal(module.layer.weight, last)
    trainer = quiet_trainer(callbacks=[ModelCheckpoint(tmp_path)], enable_checkpointing=None)
    trainer.fit(module, batches(2), batches(1))
    other = Watched()
    weight = other.layer.weight.clone()
    trainer.validate(other, batches(1), verbose=False)
    trainer.test(dataloaders=batches(1), verbose=False)
    assert torch.equal(other.layer.weight, weight)


# --- parts that are modules, and methods that are None ---


def test_a_module_inside_a_module(Tiny, quiet_trainer, batches) -> None:
    """It knows the trainer and its counters, and can log; also one that is made late."""

    class Inner(Module):
        def forward(self, batch):
            self.log("inner", 1.0)
            seen.append((self.current_epoch, self.global_step, self.trainer))
            return batch

    class Outer(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList([Inner()])

        def configure_model(self):
            self.parts.append(Inner())

        def training_step(self, batch, batch_idx):
            for part in self.parts:
                batch = part(batch)
            return super().training_step(batch, batch_idx)

    seen: list = []
    trainer, module = quiet_trainer(max_epochs=2), Outer()
    trainer.fit(module, batches(2))
    assert seen[-1] == (1, 3, trainer)
    assert len(seen) == 8
    assert trainer.callback_metrics["inner"] == 1.0
    assert all(part.trainer is trainer for part in module.parts)


def test_methods_that_are_none(Tiny, quiet_trainer, batches) -> None:
    """A step, a loader or a hook that is None is switched off, in the class and on the object."""

    class MethodsOfNone(Tiny):
        val_dataloader = None
        configure_callbacks = None
        on_train_end = None

        def validation_step(self, batch, batch_idx):
            pytest.fail("it is switched off")

        def train_dataloader(self):
            return batches(2)

    module = MethodsOfNone()
    module.validation_step = module.on_train_start = module.on_fit_start = None
    trainer = quiet_trainer()
    trainer.fit(module)
    trainer.max_epochs = 2
    with pytest.warns(TrainerHooksWarning, match="has no validation_step"):
        trainer.fit(module, batches(2), batches(1))
    assert trainer.global_step == 4


def test_predict_step_of_the_base_class(quiet_trainer, batches) -> None:
    """`super().predict_step` runs the forward."""

    class PredictsOneMore(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, batch):
            return self.layer(batch)

        def predict_step(self, batch, batch_idx):
            return super().predict_step(batch, batch_idx) + 1

    module = PredictsOneMore()
    found = quiet_trainer().predict(module, batches(2), return_predictions=None)
    assert torch.equal(found[1], module(batches(2)[1]) + 1)
    assert quiet_trainer().predict(module, batches(2), return_predictions=False) is None
    with pytest.raises(ModuleError, match="no predict_step and no forward"):
        Module().predict_step(None, 0)


# --- hyperparameters ---


class Whole(Module):
    """All its hyperparameters are one argument."""

    def __init__(self, hparams, extra=1) -> None:
        super().__init__()
        self.save_hyperparameters(hparams)
        self.layer, self.extra = torch.nn.Linear(self.hparams.size, 1), extra

    def training_step(self, batch, batch_idx):
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=0.1)


@dataclass
class Config:
    size: int = 2


class Typed(Whole):
    def __init__(self, hparams: Config) -> None:
        super().__init__(hparams)
        assert type(hparams) is Config


@pytest.mark.parametrize(
    ("kind", "hparams"),
    [
        (Whole, {"size": 2}),
        (Whole, argparse.Namespace(size=2)),
        (Whole, Config()),
        (Typed, Config()),
    ],
)
def test_hyperparameters_that_are_one_argument(
    quiet_trainer, batches, tmp_path, kind, hparams
) -> None:
    """A checkpoint says which argument they were, and the module is made again with it."""
    trainer, path = quiet_trainer(), tmp_path / "x.ckpt"
    trainer.fit(kind(hparams), batches(2))
    trainer.save_checkpoint(path)
    assert torch.load(path, weights_only=True)["hparams_name"] == "hparams"
    made = kind.load_from_checkpoint(path)
    assert dict(made.hparams) == {"size": 2}


def test_one_of_them_is_replaced(quiet_trainer, batches, tmp_path) -> None:
    """`load_from_checkpoint` replaces items of the whole, and other arguments, by name."""
    trainer, path = quiet_trainer(), tmp_path / "x.ckpt"
    trainer.fit(Whole({"size": 2, "seed": 1}), batches(2))
    trainer.save_checkpoint(path)
    made = Whole.load_from_checkpoint(path, seed=5, extra=2)
    assert (dict(made.hparams), made.extra) == ({"size": 2, "seed": 5}, 2)
    made = Whole.load_from_checkpoint(path, hparams=SimpleNamespace(size=2).__dict__)
    assert dict(made.hparams) == {"size": 2}


def test_a_data_module_of_one_argument(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """Likewise a data module."""

    class Data(DataModule):
        def __init__(self, conf) -> None:
            super().__init__()
            self.save_hyperparameters(conf)

        def train_dataloader(self):
            return batches(self.hparams["count"])

    trainer, path = quiet_trainer(), tmp_path / "x.ckpt"
    trainer.fit(Tiny(), datamodule=Data({"count": 2}))
    trainer.save_checkpoint(path)
    assert Data.load_from_checkpoint(path).hparams == {"count": 2}


def test_ignored_in_a_subclass() -> None:
    """What a subclass ignores is left out, though its base class has kept it."""

    class Base(Module):
        def __init__(self, one, two, three) -> None:
            super().__init__()
            self.save_hyperparameters()

    class Sub(Base):
        def __init__(self, one, two, three, four=4) -> None:
            super().__init__(one, two, three)
            self.save_hyperparameters(ignore=["two"])

    module = Sub(1, 2, 3)
    assert dict(module.hparams) == dict(module.saved_hparams) == {"one": 1, "three": 3, "four": 4}


def test_a_dataclass_that_is_a_module() -> None:
    """`save_hyperparameters` in `__post_init__` finds the fields."""

    @dataclass(unsafe_hash=True)
    class DataclassModule(Module):
        size: int = 1

        def __post_init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()

    assert dict(DataclassModule(3).hparams) == {"size": 3}
