"""Module and DataModule: every method, outside a run and inside one."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import pytest
import torch
from small_modules import ManualLinear, ScheduledLinear
from torch.optim import SGD

from trainer_hooks import Callback, DataModule, Module, Trainer
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.errors import ModuleError, OptionError, TrainerHooksWarning, UsageError
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.trainer.states import TrainerFn


class Plain(Module):
    """A module at the top level, so that it can be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        self.log("loss", 1.0)
        return self.layer(batch).mean()

    def configure_optimizers(self):
        return SGD(self.parameters(), lr=0.1)


# --- what is refused ---


@pytest.mark.parametrize("step", ["training_step", "validation_step", "test_step", "predict_step"])
def test_a_step_that_is_not_defined(step: str) -> None:
    """Calling a step that the module does not define says which one."""
    with pytest.raises(ModuleError, match=f"Module has no {step}"):
        getattr(Module(), step)(None, 0)


@pytest.mark.parametrize(
    "value", [torch.nn.Linear(1, 1), torch.nn.Parameter(torch.ones(1)), 0.1, None]
)
def test_an_init_that_leaves_out_that_of_its_base(value) -> None:
    """The error says so at the first submodule or parameter, or else as a run begins."""

    class Bare(Module):
        def __init__(self) -> None:
            self.value = value

        def training_step(self, batch, batch_idx):
            return batch.mean()

    with pytest.raises(ModuleError, match=r"Bare.__init__ has not called super\(\).__init__\(\)"):
        Trainer(logger=False, enable_checkpointing=False).fit(Bare(), [torch.ones(1)])


def test_configure_optimizers_that_is_not_defined() -> None:
    """The message says what to return."""
    with pytest.raises(ModuleError, match=r"Module has no configure_optimizers.*or None"):
        Module().configure_optimizers()


@pytest.mark.parametrize(
    "use",
    [
        lambda module: module.trainer,
        lambda module: module.optimizers(),
        lambda module: module.lr_schedulers(),
        lambda module: module.print("x"),
        lambda module: module.toggle_optimizer(SGD(module.parameters(), lr=0.1)),
    ],
)
def test_what_needs_a_trainer(use) -> None:
    """Without a trainer the message says when there is one."""
    with pytest.raises(UsageError, match=r"Plain is attached to no trainer.*within fit"):
        use(Plain())


def test_manual_backward_outside_a_fit() -> None:
    """Without a run there is nothing to scale the loss with."""
    with pytest.raises(UsageError, match=r"Plain\.manual_backward.*outside fit.*= False"):
        Plain().manual_backward(torch.zeros((), requires_grad=True))


def test_manual_backward_with_automatic_optimization(Tiny, quiet_trainer, batches) -> None:
    """In automatic optimization the trainer calls backward; the message says how to do both."""

    class Net(Tiny):
        def training_step(self, batch, batch_idx):
            self.manual_backward(self.layer(batch).mean())

    with pytest.raises(UsageError, match=r"Net\.manual_backward.*automatic_optimization = False"):
        quiet_trainer().fit(Net(), batches(1))


def test_manual_backward_after_a_fit(quiet_trainer, batches) -> None:
    """When the run is over, what it offered is gone."""

    net = ManualLinear()
    quiet_trainer().fit(net, batches(1))
    with pytest.raises(UsageError, match="outside fit"):
        net.manual_backward(torch.zeros((), requires_grad=True))


@pytest.mark.parametrize("algorithm", ["l2", "Norm", "", 2])
def test_an_unknown_way_of_clipping(algorithm: object) -> None:
    """Gradients are clipped by norm or by value, and nothing else stands for either."""
    module = Plain()
    with pytest.raises(OptionError, match=r"gradient_clip_algorithm=.*'norm' or 'value'"):
        module.clip_gradients(module.configure_optimizers(), 0.5, algorithm)


# --- outside a run ---


def test_without_a_trainer_counters_are_zero() -> None:
    """What only reads has an answer before the first run too."""
    module = Plain()
    assert (module.current_epoch, module.global_step, module.global_rank) == (0, 0, 0)
    assert module.logger is None
    assert module.loggers == []
    assert module.hparams == {}
    assert module.configure_callbacks() == ()
    assert module.configure_model() is None


def test_device_and_dtype_are_those_of_the_parameters() -> None:
    """They follow the first parameter, or the first buffer, and have a default."""
    module = Plain()
    assert (module.device, module.dtype) == (torch.device("cpu"), torch.float32)
    module.double().to("meta")
    assert (module.device, module.dtype) == (torch.device("meta"), torch.float64)
    assert (Module().device, Module().dtype) == (torch.device("cpu"), torch.get_default_dtype())
    buffered = Module()
    buffered.register_buffer("count", torch.zeros(1, device="meta"))
    assert buffered.device == torch.device("meta")


def test_every_hook_is_a_method_that_does_nothing() -> None:
    """super().on_train_start() works in each hook, with the hook's arguments."""
    module = Module()
    for name, spec in HOOKS.items():
        arguments = [a for a in spec.arguments if a not in {"trainer", "module"}]
        assert getattr(module, name)(*arguments) is None
        assert getattr(Module, name).__doc__ == spec.summary


def test_freeze_and_unfreeze() -> None:
    """Freezing stops gradients and goes into eval mode; both give the module back."""
    module = Plain()
    assert module.freeze() is module
    assert not any(p.requires_grad for p in module.parameters())
    assert not module.training
    assert not module.layer.training
    assert module.unfreeze() is module
    assert all(p.requires_grad for p in module.parameters())
    assert module.layer.training


def with_gradients(value: float = 3.0) -> tuple[Plain, SGD]:
    module = Plain()
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, value)
    return module, module.configure_optimizers()


@pytest.mark.parametrize("algorithm", [None, "norm"])
def test_clipping_by_norm(algorithm) -> None:
    """The norm over all of an optimizer's parameters becomes the bound."""
    module, optimizer = with_gradients()
    module.clip_gradients(optimizer, 0.5, algorithm)
    norm = torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
    assert norm.item() == pytest.approx(0.5, rel=1e-4)


def test_clipping_by_value() -> None:
    """Each element is cut to the bound."""
    module, optimizer = with_gradients(-3.0)
    module.clip_gradients(optimizer, 0.5, "value")
    assert all((p.grad == -0.5).all() for p in module.parameters())


def test_clipping_by_nothing_changes_nothing() -> None:
    """Without a bound the gradients stay."""
    module, optimizer = with_gradients()
    module.clip_gradients(optimizer)
    assert all((p.grad == 3.0).all() for p in module.parameters())


def test_the_default_hooks_do_what_torch_does() -> None:
    """backward, zero_grad, optimizer_step and scheduler steps can be called via super()."""
    module = Plain()
    optimizer = module.configure_optimizers()
    module.backward(module.layer(torch.ones(1, 2)).sum())
    assert module.layer.weight.grad.tolist() == [[1.0, 1.0]]
    before = module.layer.bias.item()
    module.optimizer_step(0, 0, optimizer, lambda: None)
    assert module.layer.bias.item() == pytest.approx(before - 0.1)
    module.optimizer_zero_grad(0, 0, optimizer)
    assert module.layer.weight.grad is None
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    for value in (1.0, 2.0):
        module.lr_scheduler_step(plateau, torch.tensor(value))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)


# --- in a run ---


def test_what_a_run_offers(quiet_trainer, batches, MemoryLogger) -> None:
    """Inside a run the module reads its trainer's counters, loggers and optimizers."""
    logger, seen = MemoryLogger(), []

    class ReadsItsRun(ScheduledLinear):
        def training_step(self, batch, batch_idx):
            assert self.trainer is trainer
            assert self.logger is logger
            assert self.loggers == [logger]
            assert self.optimizers().optimizer is trainer.optimizers[0]
            assert self.lr_schedulers() is trainer.lr_scheduler_configs[0].scheduler
            seen.append((self.current_epoch, self.global_step))
            return super().training_step(batch, batch_idx)

    trainer = quiet_trainer(max_epochs=2, logger=logger)
    net = ReadsItsRun()
    trainer.fit(net, batches(2))
    assert seen == [(0, 0), (0, 1), (1, 2), (1, 3)]
    assert net.trainer is trainer
    assert (net.current_epoch, net.global_step) == (2, 4)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_forms_of_optimizers_and_schedulers(Tiny, quiet_trainer, batches, count) -> None:
    """One comes alone, several in a list; without any, an empty list and None."""
    found = {}

    class SeveralOptimizers(Tiny):
        automatic_optimization = False

        def configure_optimizers(self):
            made = [SGD(self.parameters(), lr=0.1) for _ in range(count)]
            return made, [torch.optim.lr_scheduler.StepLR(o, 1) for o in made]

        def training_step(self, batch, batch_idx):
            found["wrapped"] = self.optimizers()
            found["bare"] = self.optimizers(use_pl_optimizer=False)
            found["schedulers"] = self.lr_schedulers()

    trainer = quiet_trainer()
    trainer.fit(SeveralOptimizers(), batches(1))
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    if count == 1:
        assert found["bare"] is trainer.optimizers[0]
        assert found["wrapped"].optimizer is trainer.optimizers[0]
        assert found["schedulers"] is schedulers[0]
    else:
        assert found["bare"] == trainer.optimizers
        assert [wrapper.optimizer for wrapper in found["wrapped"]] == trainer.optimizers
        assert found["schedulers"] == (schedulers or None)


def test_a_wrapped_optimizer_is_like_its_own(Tiny, quiet_trainer, batches) -> None:
    """In manual optimization steps count and fire hooks; all else is the optimizer's."""
    events = []

    class StepsByHand(Tiny):
        automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            assert optimizer.param_groups is optimizer.optimizer.param_groups
            optimizer.zero_grad()
            loss = self.layer(batch).mean()
            self.manual_backward(loss)
            optimizer.step()
            return loss

        def on_before_zero_grad(self, optimizer):
            events.append("zero_grad")

        def on_before_backward(self, loss):
            events.append("before backward")

        def on_after_backward(self):
            events.append("after backward")

        def on_before_optimizer_step(self, optimizer):
            assert isinstance(optimizer, SGD)
            events.append("before step")

        def on_after_optimizer_step(self, optimizer):
            events.append("after step")

    trainer = quiet_trainer()
    trainer.fit(StepsByHand(), batches(2))
    one = ["zero_grad", "before backward", "after backward", "before step", "after step"]
    assert events == one * 2
    assert trainer.global_step == 2


def test_toggling(Tiny, quiet_trainer, batches) -> None:
    """While one optimizer is toggled, only its parameters need gradients; then all as before."""
    seen = []

    class TogglesOptimizers(Tiny):
        automatic_optimization = False

        def __init__(self) -> None:
            super().__init__()
            self.other = torch.nn.Linear(2, 1)
            self.fixed = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def configure_optimizers(self):
            return SGD(self.layer.parameters(), lr=0.1), SGD([*self.other.parameters(), self.fixed])

        def needs(self):
            return [p.requires_grad for p in (self.layer.bias, self.other.bias, self.fixed)]

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            self.toggle_optimizer(first)
            seen.append(self.needs())
            self.untoggle_optimizer(first)
            seen.append(self.needs())
            with pytest.raises(ZeroDivisionError), self.toggled_optimizer(second):
                seen.append(self.needs())
                raise ZeroDivisionError
            seen.append(self.needs())
            self.toggle_optimizer(first)
            self.toggle_optimizer(second)
            seen.append(self.needs())
            self.untoggle_optimizer(second)
            seen.append(self.needs())
            self.untoggle_optimizer(second)

    quiet_trainer().fit(TogglesOptimizers(), batches(1))
    everything, first, second = [True, True, False], [True, False, False], [False, True, False]
    assert seen == [first, everything, second, everything, second, everything]


@pytest.mark.parametrize("is_manual", [True, False])
def test_an_optimizer_toggles_the_model(is_manual, Tiny, quiet_trainer, batches) -> None:
    """Lightning's `optimizer.toggle_model()`: others' parameters require no gradient in it."""
    seen = []

    class Toggles(Tiny):
        def __init__(self):
            super().__init__()
            self.other = torch.nn.Linear(2, 2)
            self.automatic_optimization = not is_manual

        def configure_optimizers(self):
            return SGD(self.layer.parameters(), lr=0.1), SGD(self.other.parameters(), lr=0.1)

        def training_step(self, batch, batch_idx):
            first, _ = self.optimizers()
            with first.toggle_model(sync_grad=True):
                seen.append([self.layer.bias.requires_grad, self.other.bias.requires_grad])
            seen.append([self.layer.bias.requires_grad, self.other.bias.requires_grad])

    if is_manual:
        quiet_trainer().fit(Toggles(), batches(1))
        assert seen == [[True, False], [True, True]]
    else:
        toggles = Toggles()
        toggles.configure_optimizers = lambda: SGD(toggles.parameters(), lr=0.1)
        toggles.training_step = lambda *_: toggles.optimizers().toggle_model()
        with pytest.raises(UsageError, match=r"toggle_model\(\) was called with automatic"):
            quiet_trainer().fit(toggles, batches(1))


def test_printing_goes_through_the_trainer(Tiny, quiet_trainer, batches, capsys) -> None:
    """self.print prints, whether there is a bar or not."""

    class PrintsAtEnd(Tiny):
        def on_train_end(self):
            self.print("done", 1, sep="-")

    quiet_trainer().fit(PrintsAtEnd(), batches(1))
    assert capsys.readouterr().out == "done-1\n"


@pytest.mark.parametrize("make", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_leave_the_run_out(quiet_trainer, batches, make) -> None:
    """A module that is copied inside a run is whole, and belongs to no trainer."""
    copies = []

    class Copier(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            copies.append(make(module))
            assert module.trainer is trainer

    module = Plain()
    trainer = quiet_trainer(callbacks=[Copier()])
    trainer.fit(module, batches(1))
    [copied] = copies
    assert torch.equal(copied.layer.weight, module.layer.weight)
    with pytest.raises(UsageError, match="attached to no trainer"):
        copied.trainer  # noqa: B018
    with pytest.warns(UserWarning, match="no trainer runs"):
        copied.log("x", 1.0)
    assert "_trainer" not in str(copied.state_dict().keys())
    trainer.max_epochs = 2
    trainer.fit(module, batches(1))
    quiet_trainer().fit(copied, batches(1))


# --- what a module may override ---


def test_optimizer_step_is_the_modules(Tiny, quiet_trainer, batches) -> None:
    """An overridden optimizer_step decides whether and how to step, and its closure trains."""
    calls = []

    class ChoosesRateOfStep(Tiny):
        def training_step(self, batch, batch_idx):
            calls.append("step")
            return super().training_step(batch, batch_idx)

        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            calls.append((epoch, batch_idx))
            if batch_idx == 1:
                optimizer_closure()  # trains, and does not step
                return
            for group in optimizer.param_groups:
                group["lr"] = 0.0 if batch_idx == 0 else 1.0
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)

    torch.manual_seed(0)
    net, rates = ChoosesRateOfStep(), []
    weights = [net.layer.weight.clone()]

    class Watcher(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            assert outputs["loss"].grad_fn is None
            weights.append(module.layer.weight.clone())
            rates.append(trainer.optimizers[0].param_groups[0]["lr"])

    trainer = quiet_trainer(callbacks=[Watcher()])
    trainer.fit(net, batches(3))
    assert calls == [(0, 0), "step", (0, 1), "step", (0, 2), "step"]
    moved = [not torch.equal(a, b) for a, b in pairwise(weights)]
    assert moved == [False, False, True]
    assert rates == [0.0, 0.0, 1.0]
    assert trainer.global_step == 2


def test_an_overridden_optimizer_step_trains_the_same(Tiny, quiet_trainer, batches) -> None:
    """With the closure handed on, weights are those of a run without the override, bit for bit."""

    class PlainOptimizerStep(Tiny):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            optimizer.step(closure=optimizer_closure)

    results = []
    for kind in (Tiny, PlainOptimizerStep):
        torch.manual_seed(0)
        module = kind()
        trainer = quiet_trainer(accumulate_grad_batches=2, gradient_clip_val=0.1, max_epochs=2)
        trainer.fit(module, batches(5))
        results.append((module.layer.weight, module.layer.bias, trainer.global_step))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[0][2] == results[1][2] == 6


OVERRIDES = ["backward", "optimizer_zero_grad", "configure_gradient_clipping", "optimizer_step"]


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("is_set", [False, True], ids=["in the class", "on the instance"])
def test_parts_of_a_step_are_the_modules(Tiny, quiet_trainer, batches, name, is_set) -> None:
    """An overridden part is called with its arguments once a window, in place of the default."""
    calls = []

    class OverridesPart(Tiny):
        pass

    def part(*args, **kwargs):
        calls.append((args, kwargs))
        return getattr(Tiny, name)(net, *args, **kwargs)

    if not is_set:
        setattr(OverridesPart, name, lambda self, *args, **kwargs: part(*args, **kwargs))
    net = OverridesPart()
    if is_set:
        setattr(net, name, part)
    trainer = quiet_trainer(gradient_clip_val=0.5, gradient_clip_algorithm="value")
    trainer.fit(net, batches(3))
    assert len(calls) == 3
    args, kwargs = calls[1]
    if name == "backward":
        assert args[0].requires_grad
    elif name == "optimizer_zero_grad":
        assert args == (0, 1, trainer.optimizers[0])
    elif name == "configure_gradient_clipping":
        assert args == (trainer.optimizers[0],)
        assert kwargs == {"gradient_clip_val": 0.5, "gradient_clip_algorithm": "value"}
    else:
        assert args[:2] == (0, 1)


def test_backward_may_do_without_gradients(Tiny, quiet_trainer, batches) -> None:
    """An overridden backward is what makes gradients: one that makes none trains nothing."""

    class SkipsBackward(Tiny):
        def backward(self, loss):
            pass

    net = SkipsBackward()
    before = net.layer.weight.clone()
    quiet_trainer().fit(net, batches(2))
    assert torch.equal(net.layer.weight, before)


def test_clipping_may_be_the_modules_alone(Tiny, quiet_trainer, batches) -> None:
    """An overridden configure_gradient_clipping is called without an option too."""
    given = []

    class ClipsGradients(Tiny):
        def configure_gradient_clipping(
            self, optimizer, gradient_clip_val, gradient_clip_algorithm
        ):
            given.append((gradient_clip_val, gradient_clip_algorithm))
            self.clip_gradients(optimizer, 1e-9, "value")

    net = ClipsGradients()
    before = net.layer.weight.clone()
    quiet_trainer().fit(net, batches(2))
    assert given == [(None, "norm")] * 2
    assert torch.allclose(net.layer.weight, before, atol=1e-8)


def test_lr_scheduler_step_is_the_modules(quiet_trainer, batches) -> None:
    """An overridden lr_scheduler_step steps the schedulers, without a metric where none is due."""
    calls = []

    class KeepsSchedulerStill(ScheduledLinear):
        def lr_scheduler_step(self, scheduler, metric):
            calls.append((scheduler, metric))

    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(KeepsSchedulerStill(), batches(1))
    [config] = trainer.lr_scheduler_configs
    assert calls == [(config.scheduler, None)] * 2
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.1


def test_configure_model_builds_before_the_optimizer(Tiny, quiet_trainer, batches) -> None:
    """Layers that configure_model builds are there when optimizers are made, and are trained."""

    class BuildsLateLayer(Tiny):
        def configure_model(self):
            if not hasattr(self, "late"):
                self.late = torch.nn.Linear(1, 1)

        def training_step(self, batch, batch_idx):
            return self.late(self.layer(batch)).mean()

    net = BuildsLateLayer()
    trainer = quiet_trainer()
    trainer.fit(net, batches(1))
    trained = {id(p) for p in trainer.optimizers[0].param_groups[0]["params"]}
    assert {id(p) for p in net.late.parameters()} <= trained
    assert net.late.weight.grad is not None


class Keyed(Callback):
    """A callback of which several can be told apart."""

    def __init__(self, key: str) -> None:
        self.key, self.epochs = key, 0

    @property
    def state_key(self) -> str:
        return self._generate_state_key(key=self.key)

    def state_dict(self):
        return {"epochs": self.epochs}

    def on_train_epoch_end(self, trainer, module):
        self.epochs += 1


def test_configure_callbacks_replace_those_of_their_type(
    Tiny, quiet_trainer, batches, caplog
) -> None:
    """A module's callbacks take the place of all of their type and its bases, whatever their keys.

    The module's own stay among themselves; the trainer's return with another module.
    """

    class Derived(Keyed):
        pass

    class Counter(Callback):
        epochs = 0

        def on_train_epoch_end(self, trainer, module):
            self.epochs += 1

    users, others, modules = [Keyed("a"), Keyed("b")], [Counter(), Callback()], [Derived("b")]

    class ReplacesCallbacks(Tiny):
        def configure_callbacks(self):
            return modules

    trainer = quiet_trainer(callbacks=[*users, *others])
    with caplog.at_level("INFO", "trainer_hooks"):
        trainer.fit(ReplacesCallbacks(), batches(1))
    assert [c.epochs for c in users] == [0, 0]
    assert [c.epochs for c in modules] == [1]
    assert {id(c) for c in trainer.callbacks} == {*map(id, others), *map(id, modules)}
    (line,) = [r.getMessage() for r in caplog.records if "configure_callbacks" in r.getMessage()]
    assert "ReplacesCallbacks replaces callback Keyed (" in line
    assert line.count("from Trainer(callbacks=...)") == 2
    modules[:] = [Keyed("b"), Keyed("c")]
    trainer.fit(ReplacesCallbacks(), batches(1))
    assert [c.epochs for c in modules] == [1, 1]
    trainer.fit(Tiny(), batches(1))
    assert [c.epochs for c in users] == [1, 1]
    assert others[0].epochs == 3


def test_configure_callbacks_may_return_one_that_the_trainer_has(
    Tiny, quiet_trainer, batches, caplog
) -> None:
    """It takes part once, and the line names only the others that it replaces."""
    users = [Keyed("a"), Keyed("b")]

    class Returns(Tiny):
        def configure_callbacks(self):
            return users[0]

    trainer = quiet_trainer(callbacks=users)
    with caplog.at_level("INFO", "trainer_hooks"):
        trainer.fit(Returns(), batches(1))
    assert [c.epochs for c in users] == [1, 0]
    assert "'b'" in caplog.text
    assert "'a'" not in caplog.text


def test_configure_callbacks_may_return_one(Tiny, quiet_trainer, batches) -> None:
    """A single callback needs no list, and acts like the trainer's own."""

    class ConfiguresEarlyStopping(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("x", 1.0)
            return super().training_step(batch, batch_idx)

        def configure_callbacks(self):
            return EarlyStopping("x", patience=1)

    trainer = quiet_trainer(max_epochs=9)
    trainer.fit(ConfiguresEarlyStopping(), batches(1))
    assert trainer.current_epoch == 2
    assert trainer.early_stopping_callback is not None


def test_hooks_of_the_module_take_no_trainer(Tiny, quiet_trainer, batches) -> None:
    """A module's hooks are called without trainer and module, after those of callbacks."""
    calls = []

    class NotesHooks(Tiny):
        def setup(self, stage):
            calls.append(("setup", stage))

        def on_train_batch_end(self, outputs, batch, batch_idx):
            calls.append(("module", batch_idx, outputs["loss"].item()))

        def teardown(self, stage):
            calls.append(("teardown", stage))

    class First(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            calls.append(("callback", batch_idx, outputs["loss"].item()))

    quiet_trainer(callbacks=[First()]).fit(NotesHooks(), batches(1))
    assert [call[0] for call in calls] == ["setup", "callback", "module", "teardown"]
    assert calls[1][1:] == calls[2][1:]


def test_loaders_of_the_module(Tiny, quiet_trainer, batches) -> None:
    """A module that has loaders needs none passed; one that is passed counts more."""
    seen = []

    class HasLoaders(Tiny):
        def train_dataloader(self):
            return batches(1)

        def val_dataloader(self):
            return batches(2)

        def test_dataloader(self):
            return batches(3)

        def predict_dataloader(self):
            return batches(4)

        def training_step(self, batch, batch_idx):
            seen.append("train")
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            seen.append("val")

        def test_step(self, batch, batch_idx):
            seen.append("test")

        def predict_step(self, batch, batch_idx):
            return batch_idx

    trainer, net = quiet_trainer(), HasLoaders()
    trainer.fit(net)
    trainer.test(net, verbose=False)
    assert seen == ["train"] + ["val"] * 2 + ["test"] * 3
    assert trainer.predict(net) == [0, 1, 2, 3]
    assert trainer.predict(net, batches(1)) == [0]


# --- data modules ---


def noted(base: type, calls: list, who: str, **extra):
    """A subclass of `base` that notes the calls of its data hooks."""

    def note(name):
        def method(self, *args):
            calls.append((who, name, *args))
            return extra.get(name)

        return method

    return type(base.__name__, (base,), {name: note(name) for name in extra})


def test_the_data_module_goes_before_the_module(Tiny, quiet_trainer, batches) -> None:
    """prepare_data, setup and teardown are called first on the data module."""
    calls: list = []
    hooks = {"prepare_data": None, "setup": None, "teardown": None}
    net = noted(Tiny, calls, "module", **hooks)()
    data = noted(DataModule, calls, "data", train_dataloader=batches(1), **hooks)()
    trainer = quiet_trainer()
    trainer.fit(net, datamodule=data)
    assert data.trainer is trainer
    assert trainer.datamodule is data
    names = [call[:2] for call in calls]
    assert names[:5] == [
        ("data", "prepare_data"),
        ("module", "prepare_data"),
        ("data", "setup"),
        ("module", "setup"),
        ("data", "train_dataloader"),
    ]
    assert names[5:] == [("data", "teardown"), ("module", "teardown")]
    assert {call[2] for call in calls if call[1] in {"setup", "teardown"}} == {"fit"}


@pytest.mark.parametrize("method", ["fit", "validate", "test", "predict"])
def test_the_stage_of_setup_and_teardown_has_a_value(Tiny, quiet_trainer, batches, method) -> None:
    """As in Lightning: a member of `TrainerFn`, which is a text as well."""
    calls: list = []
    steps = dict.fromkeys(("validation_step", "test_step", "predict_step"))
    net = noted(Tiny, calls, "module", setup=None, teardown=None, **steps)()
    data = noted(DataModule, calls, "data", setup=None, teardown=None)()
    for loader in ("train", "val", "test", "predict"):
        setattr(data, f"{loader}_dataloader", lambda: batches(1))
    hooks = []

    class Notes(Callback):
        def setup(self, trainer, module, stage):
            hooks.append(("setup", stage))

        def on_evaluation_run_start(self, trainer, module, stage):
            hooks.append(("evaluation", stage))

        def teardown(self, trainer, module, stage):
            hooks.append(("teardown", stage))

    getattr(quiet_trainer(callbacks=Notes()), method)(net, datamodule=data)
    stages = [call[2] for call in calls if call[1] in {"setup", "teardown"}]
    stages += [stage for _, stage in hooks]
    assert len(stages) == (7 if method in ("validate", "test") else 6)
    assert {stage.value for stage in stages} == set(stages) == {method}
    assert all(isinstance(stage, TrainerFn) for stage in stages)


@pytest.mark.parametrize("stage", ["fit", "validate", "test", "predict"])
def test_the_loaders_of_a_data_module(Tiny, quiet_trainer, batches, stage) -> None:
    """Each stage asks for the loaders that it needs, and tells setup and teardown its name."""
    calls: list = []

    class HasUnusedLoader(Tiny):
        def validation_step(self, batch, batch_idx): ...

        def test_step(self, batch, batch_idx): ...

        def predict_step(self, batch, batch_idx): ...

        def train_dataloader(self):
            pytest.fail("the data module's counts more")

    data = noted(
        DataModule,
        calls,
        "data",
        setup=None,
        train_dataloader=batches(1),
        val_dataloader=batches(1),
        test_dataloader=batches(1),
        predict_dataloader=batches(1),
        teardown=None,
    )()
    getattr(quiet_trainer(), stage)(HasUnusedLoader(), datamodule=data)
    loaders = {
        "fit": ["train_dataloader", "val_dataloader"],
        "validate": ["val_dataloader"],
        "test": ["test_dataloader"],
        "predict": ["predict_dataloader"],
    }[stage]
    names = [call[1] for call in calls]
    assert names == ["setup", *loaders, "teardown"]
    assert calls[0][2] == calls[-1][2] == stage


def test_a_data_module_is_told_of_exceptions_and_torn_down(Tiny, quiet_trainer, batches) -> None:
    """When a run fails, the data module is given the exception and then torn down."""
    calls: list = []
    hooks = {"train_dataloader": batches(1), "on_exception": None, "teardown": None}
    data = noted(DataModule, calls, "data", **hooks)()

    class RaisesInStep(Tiny):
        def training_step(self, batch, batch_idx):
            raise ZeroDivisionError("in the step")

    with pytest.raises(ZeroDivisionError) as caught:
        quiet_trainer().fit(RaisesInStep(), datamodule=data)
    assert calls[1:] == [("data", "on_exception", caught.value), ("data", "teardown", "fit")]


def test_the_state_of_a_data_module_is_kept(Tiny, quiet_trainer, batches, tmp_path) -> None:
    """What state_dict returns is in the checkpoint, and comes back before the fit goes on."""

    class Data(DataModule):
        def __init__(self) -> None:
            self.seen, self.loaded = 0, None

        def train_dataloader(self):
            self.seen += 1
            return batches(1)

        def state_dict(self):
            return {"seen": self.seen}

        def load_state_dict(self, state_dict):
            self.loaded = state_dict

    path = tmp_path / "a.ckpt"
    trainer = quiet_trainer()
    trainer.fit(Tiny(), datamodule=Data())
    trainer.save_checkpoint(path)
    data = Data()
    quiet_trainer(max_epochs=2).fit(Tiny(), datamodule=data, ckpt_path=path)
    assert data.loaded == {"seen": 1}


def test_a_data_module_does_nothing_by_itself() -> None:
    """Every method of the base class can be called via super()."""
    data = DataModule()
    assert data.prepare_data() is None
    assert data.setup("fit") is None
    assert data.teardown("fit") is None
    assert data.state_dict() == {}
    assert data.load_state_dict({}) is None
    assert data.on_exception(ValueError()) is None
    for name in ("train", "val", "test", "predict"):
        assert getattr(data, f"{name}_dataloader")() is None


def test_a_data_module_from_datasets(Tiny, quiet_trainer) -> None:
    """Each data set gets a loader; only training is shuffled; what is left out is left out."""
    from torch.utils.data import RandomSampler, SequentialSampler

    data = torch.ones(6, 2)
    module = DataModule.from_datasets(data, test_dataset=data, batch_size=4)
    assert isinstance(module.train_dataloader().sampler, RandomSampler)
    assert isinstance(module.test_dataloader().sampler, SequentialSampler)
    assert [len(batch) for batch in module.test_dataloader()] == [4, 2]
    assert module.val_dataloader() is None

    class CountsTestSamples(Tiny):
        def validation_step(self, batch, batch_idx):
            pytest.fail("there is no validation data")

        def test_step(self, batch, batch_idx):
            self.log("n", float(len(batch)), reduce_fx="sum")

    trainer, net = quiet_trainer(), CountsTestSamples()
    trainer.fit(net, datamodule=module)
    assert trainer.num_training_batches == 2
    assert trainer.test(net, datamodule=module, verbose=False) == [{"n": 6.0}]


def test_from_datasets_of_a_subclass(quiet_trainer, Tiny) -> None:
    """A subclass keeps its own hooks and arguments; lists and dicts of data sets are several."""
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    class Doubling(DataModule):
        def __init__(self, factor: float = 1.0) -> None:
            self.factor = factor

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch[0] * self.factor

    class Endless(IterableDataset):
        def __iter__(self):
            return iter([1])

    data = TensorDataset(torch.ones(2, 2))
    module = Doubling.from_datasets(
        data, [data, data], predict_dataset={"a": data}, test_dataset=Endless(), factor=2.0
    )
    assert type(module) is Doubling
    assert [type(loader) for loader in module.val_dataloader()] == [DataLoader] * 2
    assert list(module.predict_dataloader()) == ["a"]
    assert next(iter(module.test_dataloader())).tolist() == [1]
    seen = []

    class NotesBatches(Tiny):
        def training_step(self, batch, batch_idx):
            seen.append(batch.tolist())
            return super().training_step(batch, batch_idx)

    quiet_trainer(limit_val_batches=0).fit(NotesBatches(), datamodule=module)
    assert seen == [[[2.0, 2.0]]] * 2


# --- the default steps ---


@pytest.fixture
def Default():
    """A module of forward and loss, without steps."""

    class Default(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, batch):
            return self.layer(batch)

        def loss(self, outputs, batch):
            return (outputs - batch.sum(1, keepdim=True)).square().mean()

        def configure_optimizers(self):
            return SGD(self.parameters(), lr=0.01)

    return Default


def test_forward_and_loss_are_enough(Default, quiet_trainer, batches) -> None:
    """Without steps a module trains, validates, tests and predicts; losses have their names."""
    torch.manual_seed(0)
    net, trainer = Default(), quiet_trainer(max_epochs=30)
    data = [batch / 4 for batch in batches(4)]
    [before] = trainer.validate(net, data, verbose=False)
    trainer.fit(net, data, data)
    assert set(trainer.callback_metrics) == {"train_loss", "train_loss_epoch", "val_loss"}
    assert set(trainer.progress_bar_metrics) == {"train_loss", "val_loss"}
    [after] = trainer.validate(net, data, verbose=False)
    assert after["val_loss"] < before["val_loss"] / 3
    assert trainer.callback_metrics["val_loss"].item() == after["val_loss"]
    [tested] = trainer.test(net, data, verbose=False)
    assert tested == {"test_loss": after["val_loss"]}
    predictions = trainer.predict(net, data)
    assert torch.equal(predictions[1], net(data[1]))


def test_the_validation_loss_is_that_of_all_samples(Default, quiet_trainer) -> None:
    """val_loss is the mean over samples, and several loaders have one each."""
    net, trainer = Default(), quiet_trainer()
    parts = [torch.ones(4, 2), torch.zeros(1, 2)]
    expected = net.loss(net(torch.cat(parts)), torch.cat(parts)).item()
    assert trainer.validate(net, parts, verbose=False) == [{"val_loss": pytest.approx(expected)}]
    results = trainer.validate(net, {"a": parts[:1], "b": parts[1:]}, verbose=False)
    assert [list(result) for result in results] == [
        ["val_loss/dataloader_idx_0"],
        ["val_loss/dataloader_idx_1"],
    ]


def test_the_default_steps_fire_the_forward_hooks(Default, quiet_trainer, batches) -> None:
    """Forward and loss hooks fire around the default steps, with outputs and the loss."""
    events = []

    class Watcher(Callback):
        def on_before_forward(self, trainer, module):
            events.append("before forward")

        def on_after_forward(self, trainer, module, outputs):
            events.append(("after forward", tuple(outputs.shape)))

        def on_before_loss(self, trainer, module):
            events.append("before loss")

        def on_after_loss(self, trainer, module, loss):
            events.append(("after loss", loss.shape))

        def on_validation_before_forward(self, trainer, module):
            events.append("val before")

        def on_validation_after_forward(self, trainer, module, outputs):
            events.append(("val after", tuple(outputs.shape)))

        def on_predict_before_forward(self, trainer, module):
            events.append("predict before")

        def on_predict_after_forward(self, trainer, module, outputs):
            events.append(("predict after", tuple(outputs.shape)))

    trainer, net = quiet_trainer(callbacks=[Watcher()]), Default()
    trainer.fit(net, batches(1), batches(1))
    trainer.predict(net, batches(1))
    assert events == [
        "before forward",
        ("after forward", (2, 1)),
        "before loss",
        ("after loss", ()),
        "val before",
        ("val after", (2, 1)),
        "predict before",
        ("predict after", (2, 1)),
    ]


def test_a_module_with_a_training_step_has_no_default_validation(
    Default, quiet_trainer, batches
) -> None:
    """Where training is the module's own, a method named loss does not make a validation."""

    class OnlyTrainingStep(Default):
        def training_step(self, batch, batch_idx):
            return self.loss(self(batch), batch)

    trainer, net = quiet_trainer(), OnlyTrainingStep()
    with pytest.warns(TrainerHooksWarning, match="has no validation_step"):
        trainer.fit(net, batches(1), batches(1))
    assert trainer.num_val_batches == []
    assert "val_loss" not in trainer.callback_metrics


def test_all_gather_of_one_rank_adds_no_dimension(Tiny, quiet_trainer, batches) -> None:
    """As in Lightning: tensors are as they were, numbers become tensors on the module's device."""
    gathered = {}

    class Gathers(Tiny):
        def test_step(self, batch, batch_idx):
            given = {"a": torch.ones(2, 3), "b": [1, 0.5]}
            gathered.update(
                self.all_gather(given), strategy=self.trainer.strategy.all_gather(batch)
            )
            assert self.all_gather(given["a"], sync_grads=True) is given["a"]

    trainer = quiet_trainer()
    trainer.test(Gathers(), batches(1), verbose=False)
    assert gathered["a"].shape == (2, 3)
    assert gathered["strategy"].shape == batches(1)[0].shape
    assert [(type(value), value.shape) for value in gathered["b"]] == [(torch.Tensor, ())] * 2


def test_a_buffer_that_is_not_saved_can_be_assigned() -> None:
    """It stays out of the state, as with a module of torch; a name of ours is refused."""
    module = Module()
    module.register_buffer("queue", torch.zeros(3), persistent=False)
    module.register_buffer("mean", torch.zeros(3))
    module.queue, module.mean = torch.ones(3), torch.full((3,), 2.0)
    assert module.queue.tolist() == [1.0] * 3
    assert list(module.state_dict()) == ["mean"]
    with pytest.raises(ModuleError, match="on_fit_start"):
        module.register_buffer("on_fit_start", torch.zeros(1), persistent=False)
