"""Attributes of a trainer as in Lightning: its strategy, its fit loop, its list of callbacks."""

from __future__ import annotations

import copy

import pytest
import torch
from small_modules import ValidatedLinear
from torch.optim import LBFGS, SGD, Adam

from trainer_hooks import Callback, Trainer
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.errors import (
    CallbackError,
    CheckpointStateError,
    OptimizationError,
    OptionError,
    UsageError,
)

BATCHES = [torch.ones(1, 2)] * 4


class Other(SGD):
    """Notes that it stepped."""

    def __init__(self, parameters) -> None:
        super().__init__(parameters, lr=0.0)
        self.steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


class Swaps(Callback):
    """Sets other optimizers in the hook of a name, in one of two ways."""

    def __init__(self, hook: str, way: str, make=Other) -> None:
        self.way, self.make, self.before, self.made = way, make, None, None
        setattr(self, hook, self.swap)

    def swap(self, trainer, module, *_) -> None:
        if self.made is None:
            self.made = self.make(module.parameters())
            self.before = module.layer.weight.detach().clone()
            target = trainer if self.way == "trainer" else trainer.strategy
            target.optimizers = [self.made]


class TestOptimizers:
    """Optimizers that are set in a fit."""

    @pytest.mark.parametrize("way", ["trainer", "strategy"])
    @pytest.mark.parametrize("hook", ["on_fit_start", "on_train_start", "on_train_batch_start"])
    def test_they_make_the_steps(self, quiet_trainer, way, hook):
        """Those that are set step from then on, and those before do not."""
        net, swaps = ValidatedLinear(), Swaps(hook, way)
        trainer = quiet_trainer(max_epochs=1, callbacks=[swaps])
        trainer.fit(net, BATCHES)
        assert swaps.made.steps == 4
        assert torch.equal(net.layer.weight, swaps.before)
        assert trainer.optimizers == trainer.strategy.optimizers == [swaps.made]
        assert trainer.global_step == 4

    def test_in_manual_optimization(self, quiet_trainer):
        """`module.optimizers()` gives those that were set."""

        class Manual(ValidatedLinear):
            automatic_optimization = False

            def training_step(self, batch, batch_idx):
                self.manual_backward(self.layer(batch).mean())
                self.optimizers().step()

        swaps = Swaps("on_train_batch_start", "strategy")
        quiet_trainer(max_epochs=1, callbacks=[swaps]).fit(Manual(), BATCHES)
        assert swaps.made.steps == 4

    def test_with_an_optimizer_step_of_the_modules_own(self, quiet_trainer):
        """A module that overrides `optimizer_step` is given those that were set."""

        class Own(ValidatedLinear):
            def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
                optimizer.step(closure=optimizer_closure)

        swaps = Swaps("on_train_start", "trainer")
        quiet_trainer(max_epochs=1, callbacks=[swaps]).fit(Own(), BATCHES)
        assert swaps.made.steps == 4

    def test_what_the_step_cannot_take(self, quiet_trainer):
        """One that needs another kind of step is refused, and the others stay."""
        make = lambda parameters: LBFGS(list(parameters))  # noqa: E731
        trainer = quiet_trainer(max_epochs=1, callbacks=[Swaps("on_train_start", "trainer", make)])
        with pytest.raises(OptimizationError, match="evaluates the loss itself"):
            trainer.fit(ValidatedLinear(), BATCHES)
        assert [type(optimizer) for optimizer in trainer.optimizers] == [SGD]

    def test_several_in_automatic_optimization(self, quiet_trainer):
        """Automatic optimization takes one, here as from `configure_optimizers`."""

        class Two(Callback):
            def on_train_start(self, trainer, module):
                trainer.optimizers = [Adam(module.parameters()), Adam(module.parameters())]

        with pytest.raises(OptimizationError, match="automatic optimization takes one"):
            quiet_trainer(max_epochs=1, callbacks=[Two()]).fit(ValidatedLinear(), BATCHES)

    def test_outside_of_a_fit(self, quiet_trainer):
        """Between two fits there is no step that it could reach."""
        trainer = quiet_trainer(max_epochs=1)
        with pytest.raises(UsageError, match="no fit is under way"):
            trainer.optimizers = []


class TestStrategy:
    """`trainer.strategy` and `trainer.accelerator`."""

    def test_the_processes_and_what_they_train(self, quiet_trainer):
        """One process does what several would; the module and its optimizers are there."""
        net, trainer = ValidatedLinear(), quiet_trainer(max_epochs=1)
        strategy = trainer.strategy
        assert strategy.lightning_module is None
        trainer.fit(net, BATCHES)
        assert (strategy.lightning_module, strategy.model) == (net, net)
        assert strategy.optimizers == trainer.optimizers
        assert strategy.lr_scheduler_configs == []
        assert strategy.root_device == trainer.device == trainer.accelerator.root_device
        assert strategy.broadcast({"a": 1}) == {"a": 1}
        assert strategy.reduce_boolean_decision(True) is True
        assert strategy.barrier("here") is None
        assert (strategy.world_size, strategy.is_global_zero) == (1, True)
        assert strategy.precision_plugin is trainer.precision_plugin
        assert repr(strategy) == "<strategy of rank 0 of 1>"
        with pytest.raises(AttributeError, match="nothing_like_it"):
            strategy.nothing_like_it  # noqa: B018

    def test_a_batch_and_the_states_of_a_checkpoint(self, quiet_trainer):
        """A batch moves through the module's hooks; weights and optimizer states can be loaded."""
        moved = []

        class Moves(ValidatedLinear):
            def on_before_batch_transfer(self, batch, dataloader_idx):
                moved.append(dataloader_idx)
                return batch

        trainer = quiet_trainer(max_epochs=1)
        strategy = trainer.strategy
        assert (strategy.num_processes, strategy.num_nodes) == (1, 1)
        assert strategy.batch_to_device([torch.ones(1)])[0].device.type == "cpu"
        with pytest.raises(UsageError, match="before any run"):
            strategy.load_model_state_dict({"state_dict": {}})
        trainer.fit(net := Moves(), BATCHES)
        checkpoint = copy.deepcopy(trainer.dump_checkpoint())  # which refers to the weights
        moved.clear()
        assert torch.equal(strategy.batch_to_device(BATCHES[0], dataloader_idx=3), BATCHES[0])
        assert moved == [3]
        with torch.no_grad():
            net.layer.weight.zero_()
        strategy.load_model_state_dict(checkpoint)
        strategy.load_optimizer_state_dict(checkpoint)
        assert net.layer.weight.abs().sum() > 0
        with pytest.raises(RuntimeError, match="Missing key"):
            strategy.load_model_state_dict({"state_dict": {}})
        strategy.load_model_state_dict({"state_dict": {}}, strict=False)

    def test_the_accelerator(self, quiet_trainer):
        """It says of what kind the device is, and how many there are."""
        accelerator = quiet_trainer().accelerator
        assert accelerator.name() == "cpu"
        assert accelerator.auto_device_count() == 1
        assert accelerator.is_available()
        assert accelerator.get_device_stats("cpu") == {}
        assert repr(accelerator) == "<accelerator 'cpu'>"

    def test_a_checkpoint_is_dumped_written_and_removed(self, quiet_trainer, tmp_path):
        """What `dump_checkpoint` returns can be written with more in it, resumed from, removed."""
        trainer = quiet_trainer(max_epochs=1)
        with pytest.raises(UsageError, match="nothing to save yet"):
            trainer.dump_checkpoint()
        trainer.fit(ValidatedLinear(), BATCHES)
        path = tmp_path / "new" / "own.ckpt"
        checkpoint = {**trainer.dump_checkpoint(), "mine": {"a": torch.ones(2), "b": (1, "x")}}
        trainer.strategy.save_checkpoint(checkpoint, path)
        assert load_checkpoint(path)["mine"]["b"] == (1, "x")
        further = quiet_trainer(max_epochs=2)
        further.fit(ValidatedLinear(), BATCHES, ckpt_path=path)
        assert further.global_step == 8
        assert "optimizer_states" not in trainer.dump_checkpoint(weights_only=True)
        trainer.strategy.remove_checkpoint(path)
        trainer.strategy.remove_checkpoint(path)
        assert not path.exists()

    def test_what_cannot_be_written(self, quiet_trainer, tmp_path):
        """An object of its own class is refused, and so are options of a store."""
        trainer = quiet_trainer(max_epochs=1)
        trainer.fit(ValidatedLinear(), BATCHES)
        with pytest.raises(CheckpointStateError, match="mine"):
            trainer.strategy.save_checkpoint({"mine": ValidatedLinear()}, tmp_path / "x.ckpt")
        with pytest.raises(OptionError, match=r"storage_options={'a': 1}\): must be None"):
            trainer.save_checkpoint(tmp_path / "x.ckpt", storage_options={"a": 1})
        assert list(tmp_path.glob("*.ckpt")) == []
        trainer.save_checkpoint(tmp_path / "x.ckpt", None, None)
        assert (tmp_path / "x.ckpt").exists()

    def test_the_scaler(self, quiet_trainer):
        """There is a scaler where float16 needs one."""
        assert quiet_trainer().scaler is None
        trainer = quiet_trainer(precision="16-mixed")
        assert trainer.scaler is trainer.precision_plugin.scaler is not None


class Watch(Callback):
    """Notes the counters of the fit loop in some hooks."""

    def __init__(self) -> None:
        self.seen: list = []

    def note(self, trainer, hook: str) -> None:
        loop = trainer.fit_loop
        epochs, batches = loop.epoch_progress.current, loop.epoch_loop.batch_progress
        self.seen.append(
            (
                hook,
                (epochs.ready, epochs.processed, epochs.completed),
                (batches.current.ready, batches.current.processed, batches.current.completed),
                batches.is_last_batch,
                loop.epoch_loop.batch_idx,
                loop.epoch_loop.total_batch_idx,
            )
        )
        assert loop.batch_idx == loop.epoch_loop.batch_idx
        assert loop.total_batch_idx == loop.epoch_loop.total_batch_idx

    def on_train_start(self, trainer, module):
        self.note(trainer, "start")

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.note(trainer, "batch start")

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.note(trainer, "batch end")

    def on_train_epoch_end(self, trainer, module):
        self.note(trainer, "epoch end")

    def on_train_end(self, trainer, module):
        self.note(trainer, "end")


class TestFitLoop:
    """`trainer.fit_loop`."""

    def test_its_counters(self, quiet_trainer):
        """They say what is begun, what is run and what is over, as Lightning's do."""
        watch, trainer = Watch(), quiet_trainer(max_epochs=2, callbacks=[])
        trainer.callbacks.append(watch)
        trainer.fit(ValidatedLinear(), BATCHES[:2])
        assert watch.seen == [
            ("start", (0, 0, 0), (0, 0, 0), False, -1, -1),
            ("batch start", (1, 0, 0), (1, 0, 0), False, 0, 0),
            ("batch end", (1, 0, 0), (1, 1, 0), False, 0, 0),
            ("batch start", (1, 0, 0), (2, 1, 1), True, 1, 1),
            ("batch end", (1, 0, 0), (2, 2, 1), True, 1, 1),
            ("epoch end", (1, 1, 0), (2, 2, 2), True, 1, 1),
            ("batch start", (2, 1, 1), (1, 0, 0), False, 0, 2),
            ("batch end", (2, 1, 1), (1, 1, 0), False, 0, 2),
            ("batch start", (2, 1, 1), (2, 1, 1), True, 1, 3),
            ("batch end", (2, 1, 1), (2, 2, 1), True, 1, 3),
            ("epoch end", (2, 2, 1), (2, 2, 2), True, 1, 3),
            ("end", (2, 2, 2), (2, 2, 2), True, 1, 3),
        ]
        loop = trainer.fit_loop
        assert loop.epoch_progress.total.started == loop.current_epoch == 2
        assert loop.epoch_loop.global_step == 4
        assert (loop.max_batches, loop.max_epochs, loop.max_steps) == (2, 2, -1)
        batches = loop.epoch_loop.batch_progress
        assert (batches.current.ready, batches.current.completed) == (2, 2)
        assert (batches.is_last_batch, loop.epoch_loop.batch_idx) == (True, 1)
        assert repr(loop.epoch_progress.current) == "<ready 2, processed 2, completed 2>"

    def test_limits_that_are_set_in_a_fit(self, quiet_trainer):
        """A fit that is under way goes by another number of epochs, longer or shorter."""

        class Longer(Callback):
            def on_train_epoch_end(self, trainer, module):
                trainer.fit_loop.max_epochs = 3

        trainer = quiet_trainer(max_epochs=1, callbacks=[Longer()])
        trainer.fit(ValidatedLinear(), BATCHES)
        assert trainer.current_epoch == trainer.max_epochs == 3

        class Shorter(Callback):
            def on_train_start(self, trainer, module):
                trainer.fit_loop.epoch_loop.max_steps = 3
                trainer.fit_loop.min_epochs = 0

        trainer = quiet_trainer(max_epochs=5, callbacks=[Shorter()])
        trainer.fit(ValidatedLinear(), BATCHES)
        assert trainer.global_step == trainer.fit_loop.max_steps == 3
        assert (trainer.fit_loop.min_epochs, trainer.fit_loop.min_steps) == (0, 0)

    def test_the_first_epoch_may_be_another(self, quiet_trainer):
        """A count of completed epochs that is set before a first fit is where it begins."""
        trainer, epochs = quiet_trainer(max_epochs=5), []
        trainer.fit_loop.epoch_progress.current.processed = 3
        trainer.fit_loop.epoch_progress.current.completed = 3
        net = ValidatedLinear()
        net.on_train_epoch_start = lambda: epochs.append(net.current_epoch)
        trainer.fit(net, BATCHES)
        assert epochs == [3, 4]

    def test_what_cannot_be_set(self, quiet_trainer):
        """Counts of batches, and of epochs inside one, are not to be set; nor is nonsense."""
        trainer = quiet_trainer(max_epochs=1)
        with pytest.raises(UsageError, match="the batches processed cannot be set"):
            trainer.fit_loop.epoch_loop.batch_progress.current.processed = 1
        with pytest.raises(OptionError, match="must be an int of at least 0"):
            trainer.fit_loop.epoch_progress.current.completed = -1

        class Inside(Callback):
            def on_train_batch_start(self, trainer, module, batch, batch_idx):
                trainer.fit_loop.epoch_progress.current.completed = 4

        with pytest.raises(UsageError, match="was set inside an epoch"):
            quiet_trainer(max_epochs=1, callbacks=[Inside()]).fit(ValidatedLinear(), BATCHES)


class A(Callback):
    pass


class B(Callback):
    pass


def test_no_attribute_can_be_read_in_on_init_start(quiet_trainer) -> None:
    """The error says in which hook there are attributes."""

    class Reads(Callback):
        def on_init_start(self, trainer):
            assert not hasattr(trainer, "max_epochs")
            assert repr(trainer) == "<Trainer under construction>"
            trainer.max_epochs  # noqa: B018 - to read it is the mistake

    message = r"^an attribute of \w*Trainer was read before it was constructed.* in on_init_end"
    with pytest.raises(AttributeError, match=message):
        quiet_trainer(callbacks=Reads())


class TestCallbacks:
    """`trainer.callbacks`, which is changed as a list is."""

    def names(self, trainer: Trainer) -> list[str]:
        return [type(callback).__name__ for callback in trainer.callbacks]

    def test_it_is_changed_as_a_list(self, quiet_trainer):
        """Whatever changes the list registers callbacks or takes them out."""
        a, b, c, d = A(), B(), A(), B()
        trainer = quiet_trainer()
        trainer.callbacks.append(a)
        trainer.callbacks.extend([b, c])
        trainer.callbacks += [d]
        assert trainer.callbacks == [a, b, c, d]
        held = trainer.callbacks
        held.remove(b)
        assert held == trainer.callbacks == [a, c, d]
        assert trainer.callbacks.pop() is d
        trainer.callbacks.insert(0, b)
        assert set(trainer.callbacks) == {a, b, c}
        trainer.callbacks[0] = d
        assert set(trainer.callbacks) == {b, c, d}
        del trainer.callbacks[0:2]
        assert len(trainer.callbacks) == 1
        trainer.callbacks = [a, b]
        assert trainer.callbacks == [a, b]
        trainer.callbacks.clear()
        assert trainer.callbacks == []

    def test_what_is_none_is_refused(self, quiet_trainer):
        """A refused callback is in neither list."""
        trainer = quiet_trainer()
        held = trainer.callbacks
        with pytest.raises(CallbackError):
            held.append("a callback")
        assert held == trainer.callbacks == []
