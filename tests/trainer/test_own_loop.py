"""Run: its forms of models and optimizers, how it is left, its errors, and what it keeps."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch import nn
from torch.utils.data import DataLoader

from trainer_hooks import Callback, Module, Run, StopTraining
from trainer_hooks.callbacks import (
    BatchSizeFinder,
    EarlyStopping,
    LearningRateFinder,
    ModelCheckpoint,
    StochasticWeightAveraging,
)
from trainer_hooks.errors import (
    CallbackError,
    CheckpointStateError,
    MetricError,
    ModuleError,
    OptimizationError,
    OptionError,
    TrainerHooksWarning,
    UsageError,
)

QUIET: dict[str, Any] = {**QUIET_OPTIONS, "max_epochs": 2}


class Pairs(Callback):
    """Notes the hooks that come in pairs."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        for name in (
            "setup", "teardown", "on_fit_start", "on_fit_end", "on_train_start", "on_train_end",
            "on_train_epoch_start", "on_train_epoch_end", "on_train_batch_start",
            "on_train_batch_end", "on_validation_start", "on_validation_end",
            "on_validation_batch_start", "on_validation_batch_end", "on_train_batches_end",
            "on_exception",
        ):  # fmt: skip
            setattr(self, name, self._listener(name))

    def _listener(self, name: str) -> Any:
        return lambda *_: self.calls.append(name)

    def assert_paired(self) -> None:
        opened = []
        for name in self.calls:
            if name == "setup" or name.endswith("_start"):
                opened.append(name.removesuffix("_start"))
            elif name == "teardown":
                assert opened.pop() == "setup", self.calls
            elif name.endswith("_end") and name != "on_train_batches_end":
                assert opened.pop() == name.removesuffix("_end"), self.calls
        assert opened == [], self.calls


def batches(number: int = 4) -> DataLoader:
    data = torch.arange(number * 4.0).reshape(number * 2, 2).sin()
    return DataLoader(data, batch_size=2)


def a_net() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(2, 1)


def a_run(*callbacks: Any, net: nn.Module | None = None, **options: Any) -> tuple[Run, nn.Module]:
    net = net or a_net()
    optimizer = options.pop("optimizer", None) or torch.optim.SGD(net.parameters(), lr=0.1)
    return Run(net, optimizer, callbacks=list(callbacks), **QUIET | options), net


def train_on(run: Run, net: nn.Module, batch: Any) -> torch.Tensor:
    loss = net(batch).square().mean()
    run.backward(loss)
    run.step()
    run.log("loss", loss)
    return loss


# --- how a loop is left ---


def leave_by_break_in_batches(run, net):
    for _ in run.epochs():
        for number, batch in enumerate(run.batches(batches())):
            train_on(run, net, batch)
            if number == 1:
                break


def leave_before_the_step(run, net):
    for _ in run.epochs():
        for number, batch in enumerate(run.batches(batches())):
            if number == 2:
                break
            train_on(run, net, batch)


def leave_by_return_in_a_batch(run, net):
    for _ in run.epochs():
        for batch in run.batches(batches()):
            run.backward(net(batch).square().mean())
            return


def leave_epochs(run, net):
    for _ in run.epochs():
        for batch in run.batches(batches()):
            train_on(run, net, batch)
        break


def leave_a_validation(run, net):
    for _ in run.epochs():
        for batch in run.batches(batches()):
            train_on(run, net, batch)
        with run.validation():
            for batch in run.batches(batches(3)):
                run.log("val_loss", net(batch).mean())
                break


def leave_by_return_in_a_validation(run, net):
    for _ in run.epochs():
        for batch in run.batches(batches()):
            train_on(run, net, batch)
        with run.validation():
            for batch in run.batches(batches(3)):
                run.log("val_loss", net(batch).mean())
                return


def keep_the_generators(run, net):
    """Leave both loops while something else still holds their generators."""
    held = []
    for _ in range(2):
        held.append(run.epochs())
        for _ in held[-1]:
            held.append(run.batches(batches()))
            for batch in held[-1]:
                train_on(run, net, batch)
                break
            break


def stop_by_an_error(run, net):
    for _ in run.epochs():
        for batch in run.batches(batches()):
            train_on(run, net, batch)
            raise StopTraining("enough")


def continue_over_batches(run, net):
    for _ in run.epochs():
        for number, batch in enumerate(run.batches(batches())):
            if number % 2:
                continue
            train_on(run, net, batch)


def validate_inside(run, net):
    for _ in run.epochs():
        for number, batch in enumerate(run.batches(batches())):
            train_on(run, net, batch)
            if number % 2:
                with run.validation() as metrics:
                    for other in run.batches(batches(2)):
                        run.log("val_loss", net(other).mean())
                assert list(metrics) == ["val_loss"]


WAYS = [
    leave_by_break_in_batches, leave_before_the_step, leave_by_return_in_a_batch, leave_epochs,
    leave_a_validation, leave_by_return_in_a_validation, keep_the_generators, stop_by_an_error,
    continue_over_batches, validate_inside,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:the loop called no run.backward")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_pairs_are_closed_and_a_checkpoint_goes_on(way, tmp_path) -> None:
    """However the loop is left, hooks are paired, and the checkpoint of the end is resumed from."""
    pairs = Pairs()
    run, net = a_run(pairs)
    with run:
        way(run, net)
    pairs.assert_paired()
    assert pairs.calls[-3:] == ["on_train_end", "on_fit_end", "teardown"]
    run.save_checkpoint(tmp_path / "end.ckpt")
    epochs = run.progress.epochs_completed
    again, other = a_run(Pairs(), ckpt_path=tmp_path / "end.ckpt", max_epochs=4)
    with again:
        assert [epoch for epoch in again.epochs() if train_epoch(again, other)] == [
            *range(epochs, 4)
        ]


def train_epoch(run: Run, net: nn.Module) -> bool:
    for batch in run.batches(batches()):
        train_on(run, net, batch)
    return True


def test_the_last_lines_name_the_call_of_the_user(tmp_path, caplog) -> None:
    """A loop of one's own goes on with `Run`, and not with a `fit` that is nowhere in it."""
    caplog.set_level("INFO", "trainer_hooks")

    def train(**options: Any) -> None:
        saver = ModelCheckpoint(tmp_path, save_on_train_epoch_end=True)
        run, net = a_run(saver, enable_checkpointing=True, default_root_dir=tmp_path, **options)
        with run:
            for _ in run.epochs():
                for batch in run.batches(batches()):
                    train_on(run, net, batch)

    train()
    ended, way_on = (record.getMessage() for record in caplog.records[-2:])
    assert ended.startswith("Run ended at epoch 2, step 8: max_epochs=2 epochs are done")
    file = str(tmp_path / "epoch=1-step=8.ckpt")
    assert way_on == f"to go on, with a higher max_epochs: Run(..., ckpt_path={file!r})"
    with pytest.warns(TrainerHooksWarning, match="Run has nothing to do: max_epochs=2"):
        train(ckpt_path=file)


def test_an_error_in_the_loop_is_raised_with_its_place() -> None:
    """An error keeps its type, and has a note with the batch; the run is torn down."""
    pairs = Pairs()
    run, net = a_run(pairs)
    with pytest.raises(ZeroDivisionError) as caught, run:
        for _ in run.epochs():
            for number, batch in enumerate(run.batches(batches())):
                train_on(run, net, batch) if number < 2 else 1 / 0
    assert "in epoch 0, training batch 2" in caught.value.__notes__
    assert pairs.calls[-2:] == ["on_exception", "teardown"]


# --- loops that forget something ---


def no_with(run, net):
    run.log("a", 1)


def no_epochs(run, net):
    with run:
        list(run.batches(batches()))


def no_batches(run, net):
    with run:
        for _ in run.epochs():
            pass


def no_step(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())


def two_backwards(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                run.backward(net(batch).mean())


def no_backward(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                net(batch).mean().backward()
                run.step()


def validation_before_the_step(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                with run.validation():
                    pass


def validation_in_a_validation(run, net):
    with run, run.validation(), run.validation():
        pass


def step_in_a_validation(run, net):
    with run, run.validation():
        run.step()


def backward_outside(run, net):
    with run:
        for _ in run.epochs():
            run.backward(net(torch.ones(2, 2)).mean())


def two_training_loaders(run, net):
    with run:
        for _ in run.epochs():
            train_epoch(run, net)
            train_epoch(run, net)


def another_loader(run, net):
    with run, run.validation():
        list(run.batches(batches(1)))
        list(run.batches(batches(1)))


def no_loader(run, net):
    with run:
        for _ in run.epochs():
            list(run.batches())


def save_before_the_step(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                run.save_checkpoint("x.ckpt")


def open_twice(run, net):
    with run, run:
        pass


def foreign_optimizer(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                run.step(torch.optim.SGD(net.parameters(), lr=1.0))


def never_a_loss(run, net):
    with run:
        for _ in run.epochs():
            list(run.batches(batches()))


def loss_without_gradient(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean().detach())


def a_number_as_loss(run, net):
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean().item())


def loaders_as_name(run, net):
    with run, run.validation(2):
        pass


def a_value_to_keep(run, net):
    with run:
        for _ in run.epochs():
            run.keep("rollouts", torch.ones(2))


def keep_outside(run, net):
    with run:
        run.keep("rollouts", lambda: torch.ones(2))


def a_list_of_values(run, net):
    with run:
        run.log_dict([("loss", 1.0)])


FORGOTTEN: list[tuple[Any, type[Exception], str]] = [
    (no_with, UsageError, r"run.log\('a', ...\) was called on a Run that is not open.*with run:"),
    (no_epochs, UsageError, "outside of an epoch.*for epoch in run.epochs"),
    (no_batches, UsageError, "epoch 0 ended without training.*for batch in run.batches"),
    (no_step, UsageError, "epoch 0, training batch 0 ended after run.backward.*run.step"),
    (two_backwards, UsageError, "twice in epoch 0, training batch 0.*accumulate=True"),
    (no_backward, UsageError, "epoch 0, training batch 0 without a backward.*run.backward"),
    (validation_before_the_step, UsageError, "epoch 0, training batch 0 before its step"),
    (validation_in_a_validation, UsageError, "in a validation that is open"),
    (step_in_a_validation, UsageError, "in a validation, in which nothing is trained"),
    (backward_outside, UsageError, "outside of a training batch"),
    (two_training_loaders, UsageError, "second time in epoch 0.*CombinedLoader"),
    (another_loader, UsageError, "loader 2 of a validation that was opened for 1.*num_dataloaders"),
    (no_loader, UsageError, r"given no loader, and Run none either.*run.batches\(loader\)"),
    (save_before_the_step, UsageError, "before its step, where no run can go on"),
    (open_twice, UsageError, "open already"),
    (foreign_optimizer, UsageError, "not an optimizer of this run"),
    (never_a_loss, ModuleError, "no run.backward.* for each of 4 batches of epoch 0"),
    (loss_without_gradient, ModuleError, "run.backward was given a loss that does not require"),
    (a_number_as_loss, ModuleError, r"was given -?[\d.]+ of type float.*without .item\(\)"),
    (loaders_as_name, UsageError, r"validation\(2\).*num_dataloaders=2"),
    (a_value_to_keep, UsageError, r"keep\('rollouts', Tensor\): pass the function"),
    (keep_outside, UsageError, "outside of an epoch.*loop of run.epochs"),
    (a_list_of_values, MetricError, r"log_dict\(list\)"),
]


@pytest.mark.filterwarnings("ignore:the loop called no run.backward.* in epoch")
@pytest.mark.parametrize(
    ("loop", "kind", "message"), FORGOTTEN, ids=[case[0].__name__ for case in FORGOTTEN]
)
def test_a_loop_that_forgets_something_is_told(loop, kind, message) -> None:
    """The error names what was left out, where, and the line to write."""
    run, net = a_run()
    with pytest.raises(kind, match=f"(?s){message}"):
        loop(run, net)


def test_logging_between_two_epochs_is_refused() -> None:
    """Outside of epochs and validations a value would belong to nothing."""
    run, _ = a_run()
    with pytest.raises(MetricError, match="called in a place outside"), run:
        run.log("a", 1.0)


def test_a_batch_that_is_left_out_is_told_once() -> None:
    """`continue` before the backward skips a batch, with a warning."""
    run, net = a_run(max_epochs=1)
    with pytest.warns(TrainerHooksWarning, match="epoch 0, batch 1"), run:
        continue_over_batches(run, net)
    assert run.progress.steps_completed == 2


# --- options, models and optimizers ---


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"val_check_interval": 2}, OptionError, "with run.validation"),
        ({"num_sanity_val_steps": 2}, OptionError, "with run.validation"),
        ({"microbatch_size": 2}, OptionError, "accumulate=True"),
        ({"max_epoch": 2}, OptionError, "max_epochs"),
        ({"overrides": ["lr"]}, OptionError, "without ckpt_path"),
        ({"optimizers": []}, OptionError, r"Run\(optimizers=...\).*Did you mean 'optimizer'"),
        ({"schedulers": []}, OptionError, r"Run\(schedulers=...\).*Did you mean 'scheduler'"),
        ({"callbacks": [LearningRateFinder()]}, CallbackError, "LearningRateFinder cannot take"),
        ({"callbacks": BatchSizeFinder()}, CallbackError, "BatchSizeFinder cannot take part"),
    ],
)
def test_options_that_the_loop_decides_are_refused(options, kind, message) -> None:
    """Each says which line of the loop takes its place."""
    net = a_net()
    with pytest.raises(kind, match=message):
        Run(net, torch.optim.SGD(net.parameters(), 0.1), **QUIET | options)


@pytest.mark.parametrize("plugins", [True, False])
def test_installed_plugins_take_part(plugins, monkeypatch) -> None:
    """The callbacks of an installed package, unless plugins are off."""
    kind = pytest.importorskip("trainer_hooks_monitoring").EventLog
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    run, net = a_run(plugins=plugins)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                train_on(run, net, batch)
    logs = [one for one in run.trainer.callbacks if isinstance(one, kind)]
    assert [log.counts.batches for log in logs] == [8] * plugins


def test_a_callback_that_needs_steps_is_refused_later_too() -> None:
    """`add_callback` refuses it as the constructor does."""
    run, _ = a_run()
    with pytest.raises(CallbackError, match="LearningRateFinder"):
        run.trainer.add_callback(LearningRateFinder())


@pytest.mark.parametrize(
    ("model", "optimizer", "kind", "message"),
    [
        (nn.Linear, None, ModuleError, "It is a class"),
        ({}, None, ModuleError, "no model"),
        ({"a.b": nn.Linear(1, 1)}, None, ModuleError, "no dot"),
        (nn.Linear(1, 1), torch.optim.Adam, OptimizationError, "a function that gets"),
        (nn.Linear(1, 1), 3, OptimizationError, "must be a torch.optim.Optimizer"),
    ],
)
def test_wrong_models_and_optimizers(model, optimizer, kind, message) -> None:
    """What is no model or optimizer is refused at once."""
    with pytest.raises(kind, match=message):
        Run(model, optimizer, **QUIET)


def of_another_optimizer(optimizer):
    other = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    return torch.optim.lr_scheduler.StepLR(other, 1)


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (torch.optim.lr_scheduler.ReduceLROnPlateau, "'monitor': 'val_loss'"),
        (lambda _: "cos", "'cos' as a scheduler: it must be a torch scheduler"),
        (of_another_optimizer, "StepLR, which drives an optimizer that is not among them"),
    ],
)
def test_wrong_schedulers(scheduler, message) -> None:
    """The error names the Run, and not a method that nobody wrote."""
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run = Run(net, optimizer, scheduler(optimizer), **QUIET)
    with pytest.raises(OptimizationError, match=f"Run was given .*{message}"), run:
        pass


@pytest.mark.filterwarnings("ignore:Run was given no optimizer, and trains nothing")
def test_a_step_without_an_optimizer() -> None:
    """The warning and the error name the option."""
    net = a_net()
    run = Run(net, **QUIET)
    with pytest.raises(UsageError, match=r"without an optimizer: pass Run\(optimizer="), run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                run.step()


def test_a_closure_that_returns_nothing() -> None:
    """LBFGS needs the loss, and would end in an error of its own."""
    net = a_net()
    run, _ = a_run(net=net, optimizer=torch.optim.LBFGS(net.parameters()))
    with pytest.raises(UsageError, match="closure returned None, and LBFGS needs the loss"), run:
        for _ in run.epochs():
            for batch in run.batches(batches()):

                def closure(batch=batch) -> None:
                    run.zero_grad()
                    run.backward(net(batch).square().mean())

                run.step(closure=closure)


@pytest.mark.parametrize("clears", ["optimizer", "model", "run"])
@pytest.mark.parametrize("window", [1, 2])
def test_gradients_that_are_cleared_in_a_window_are_told(window, clears) -> None:
    """`zero_grad` is in every plain loop, and does no harm as long as each batch steps."""
    net = a_net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run, _ = a_run(net=net, optimizer=optimizer, accumulate_grad_batches=window)
    owner = {"optimizer": optimizer, "model": net, "run": run}[clears]
    expected = pytest.raises(UsageError, match=r"before epoch 0, training batch 1: .* zero_grad")
    with nullcontext() if window == 1 else expected, run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                owner.zero_grad()
                run.backward(net(batch).mean())
                run.step()


def test_gradients_of_one_layer_may_be_dropped_in_a_window() -> None:
    """So a layer stays as it is; also one whose parameters come first."""
    net = nn.Sequential(a_net(), nn.Linear(1, 1))
    before = net[0].weight.clone()
    run, _ = a_run(net=net, accumulate_grad_batches=2)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                run.backward(net(batch).mean())
                for parameter in net[0].parameters():
                    parameter.grad = None
                run.step()
    assert torch.equal(net[0].weight, before)
    assert run.trainer.global_step == 4


def test_a_window_set_inside_an_epoch_counts_from_the_next_one() -> None:
    """Its batches are divided by the number that says when the optimizer steps."""

    class SetsWindow(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            trainer.accumulate_grad_batches = 2

    net = nn.Linear(1, 1)
    run = Run(net, torch.optim.SGD(net.parameters(), lr=0.1), callbacks=[SetsWindow()], **QUIET)
    steps = []
    with run:
        for _ in run.epochs():
            for batch in run.batches([torch.ones(1, 1)] * 4):
                run.backward(net(batch).mean())
                run.step()
            steps.append(run.progress.steps_completed)
    assert steps == [4, 6]


def test_a_closure_clears_the_gradients_of_its_window() -> None:
    """LBFGS evaluates the loss of the last batch anew."""
    net = a_net()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=2)
    run, _ = a_run(net=net, optimizer=optimizer, accumulate_grad_batches=2)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                loss = net(batch).square().mean()
                if not run.trainer.progress.batches_in_window:
                    run.backward(loss)

                def closure(batch=batch):
                    run.zero_grad()
                    loss = net(batch).square().mean()
                    run.backward(loss)
                    return loss

                run.step(closure=closure)


def test_swa_with_batch_norm_ends_in_a_warning() -> None:
    """A loop of the user's cannot be gone through again: the warning names torch's function."""
    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1))
    swa = StochasticWeightAveraging(0.05, swa_epoch_start=1)
    run, _ = a_run(swa, net=net, max_epochs=3)
    run.open()
    for _ in run.epochs():
        train_epoch(run, net)
    with pytest.warns(TrainerHooksWarning, match="update_bn"):
        run.close()


def test_a_metric_object_is_not_registered() -> None:
    """Its state_dict is empty, so the error says where checkpoints look for it."""
    metric = pytest.importorskip("torchmetrics").MeanMetric()
    run, _ = a_run()
    with pytest.raises(CheckpointStateError, match=r"MeanMetric\): .* net.mean = \.\.\."):
        run.register("mean", metric)


def test_an_optimizer_of_other_parameters() -> None:
    """The error names FSDP's new parameters and the form that follows them."""
    run = Run(a_net(), torch.optim.SGD(a_net().parameters(), 0.1), **QUIET)
    with pytest.raises(OptimizationError, match="lambda parameters"), run:
        pass


def test_weights_keep_their_names(tmp_path) -> None:
    """A single model's weights have its own names, so that other tools load them."""
    run, net = a_run(max_epochs=1)
    with run:
        leave_epochs(run, net)
    run.save_checkpoint(tmp_path / "x.ckpt")
    weights = torch.load(tmp_path / "x.ckpt", weights_only=True)["state_dict"]
    plain = a_net()
    plain.load_state_dict(weights)
    assert torch.equal(plain.weight, net.weight)
    assert run.module.weight is net.weight
    assert type(run.module).__name__ == "Linear"


def test_a_module_with_hooks_of_its_own() -> None:
    """A Module takes part with its hooks, and makes its optimizers itself."""

    class Own(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.epochs = a_net(), 0

        def on_train_epoch_end(self) -> None:
            self.epochs += 1

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Own()
    run = Run(module, **QUIET)
    with run:
        for _ in run.epochs():
            train_epoch(run, module.layer)
    assert module.epochs == 2
    assert run.progress.steps_completed == 8


def test_schedulers_step_at_their_interval() -> None:
    """A function gets the optimizer; a config says when it steps."""
    net = a_net()
    run = Run(
        net,
        lambda parameters: torch.optim.SGD(parameters, lr=1.0),
        {
            "scheduler": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5),
            "interval": "step",
        },
        **QUIET | {"max_epochs": 1},
    )
    with run:
        leave_epochs(run, net)
    assert run.trainer.optimizers[0].param_groups[0]["lr"] == 0.5**4


@pytest.mark.slow
def test_a_compiled_model_keeps_its_names() -> None:
    """torch.compile's wrapper trains, and the weights have the names of the model inside it."""
    net = a_net()
    compiled = torch.compile(net, backend="eager")
    run = Run(compiled, torch.optim.SGD(net.parameters(), lr=0.1), **QUIET | {"max_epochs": 1})
    before = net.weight.clone()
    with run:
        leave_epochs(run, compiled)
    assert list(run.module.state_dict()) == ["weight", "bias"]
    assert not torch.equal(net.weight, before)


def test_a_compiled_layer_takes_the_names_of_checkpoints() -> None:
    """As in a Module, by whoever loads them."""
    net = nn.Sequential(nn.Linear(2, 1))
    net[0] = torch.compile(net[0], backend="eager")
    module = Run(net, torch.optim.SGD(net.parameters(), lr=0.1), **QUIET).module
    assert list(module.state_dict()) == ["0._orig_mod.weight", "0._orig_mod.bias"]
    module.load_state_dict({"0.weight": torch.ones(1, 2), "0.bias": torch.ones(1)})
    assert all(bool((value == 1).all()) for value in module.state_dict().values())


def test_outputs_reach_the_hooks() -> None:
    """What run.output is given is the hooks' outputs, in a training batch beside the loss."""
    seen: list[Any] = []

    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            seen.append(sorted(outputs))

        def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, *_: Any) -> None:
            seen.append(outputs)

    run, net = a_run(Look(), max_epochs=1)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches(1)):
                train_on(run, net, batch)
                run.output({"scores": net(batch)})
            with run.validation():
                for number, _ in enumerate(run.batches(batches(2))):
                    run.output(number)
    assert seen == [["loss", "scores"], 0, 1]
    run, net = a_run(max_epochs=1)
    with pytest.raises(UsageError, match="pass a dict"), run:
        for _ in run.epochs():
            for _ in run.batches(batches(1)):
                run.output(3)


@pytest.mark.exhaustive
def test_it_loads_little_more_than_a_bare_fit() -> None:
    """Its own five files are all that comes to those of a bare fit."""
    program = """
import sys, torch
from torch import nn
off = dict(accelerator="cpu", logger=False, plugins=False, max_epochs=1, enable_progress_bar=False,
           enable_model_summary=False, enable_checkpointing=False, enable_run_manifest=False)
batches = [torch.ones(2, 2)]
if sys.argv[1] == "fit":
    from trainer_hooks import Module, Trainer
    class Net(Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)
        def training_step(self, batch, batch_idx):
            return self.layer(batch).mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)
    Trainer(**off).fit(Net(), batches)
else:
    from trainer_hooks import Run
    net = nn.Linear(2, 1)
    run = Run(net, torch.optim.SGD(net.parameters(), 0.1), **off)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches):
                run.backward(net(batch).mean())
                run.step()
print(*sorted(name for name in sys.modules if name.startswith("trainer_hooks")))
"""
    loaded = {}
    for loop in ("fit", "run"):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program, loop],
            capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        loaded[loop] = set(done.stdout.splitlines()[-1].split())
    assert {name.removeprefix("trainer_hooks.") for name in loaded["run"] - loaded["fit"]} == {
        "loops.loop_position", "loops.own_evaluation", "loops.own_loop", "loops.own_step",
        "module.loop_module", "trainer.own_loop",
    }  # fmt: skip


def gan(folder: Any = None, ckpt_path: Any = None, *, saves_at: int = -1) -> dict[str, Any]:
    """Train two models with two optimizers; return their weights."""
    torch.manual_seed(3)
    nets = {"g": nn.Linear(2, 2), "d": nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.3))}
    optimizers = {
        name: torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.5, 0.9))
        for name, net in nets.items()
    }
    run = Run(nets, optimizers, ckpt_path=ckpt_path, **QUIET)
    loader = DataLoader(torch.arange(12.0).reshape(6, 2).sin(), batch_size=2, shuffle=True)
    with run:
        for _ in run.epochs():
            for real in run.batches(loader):
                fake = nets["g"](torch.randn_like(real))
                run.backward(-nets["d"](real).mean())
                run.backward(nets["d"](fake.detach()).mean(), accumulate=True)
                run.step(optimizers["d"])
                run.backward(-nets["d"](fake).mean())
                run.step(optimizers["g"])
                if run.progress.steps_completed == saves_at:
                    run.save_checkpoint(folder / "gan.ckpt")
    assert run.progress.steps_completed == 12
    return run.module.state_dict()


@pytest.mark.parametrize("steps", [4, 6])
def test_two_models_with_two_optimizers(tmp_path, steps) -> None:
    """A GAN's weights are those of the plain loop, and a resume in an epoch is exact."""
    weights = gan()
    assert list(weights) == ["g.weight", "g.bias", "d.0.weight", "d.0.bias"]
    gan(tmp_path, saves_at=steps)
    resumed = gan(ckpt_path=tmp_path / "gan.ckpt")
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert all(torch.equal(weights[name], value) for name, value in plain_gan().items())


def plain_gan() -> dict[str, Any]:
    torch.manual_seed(3)
    nets = {"g": nn.Linear(2, 2), "d": nn.Sequential(nn.Linear(2, 1), nn.Dropout(0.3))}
    opt = {
        name: torch.optim.Adam(net.parameters(), lr=0.01, betas=(0.5, 0.9))
        for name, net in nets.items()
    }
    loader = DataLoader(torch.arange(12.0).reshape(6, 2).sin(), batch_size=2, shuffle=True)
    for _ in range(2):
        for real in loader:
            opt["d"].zero_grad()
            opt["g"].zero_grad()
            fake = nets["g"](torch.randn_like(real))
            (-nets["d"](real).mean()).backward()
            nets["d"](fake.detach()).mean().backward()
            opt["d"].step()
            opt["g"].zero_grad()
            (-nets["d"](fake).mean()).backward()
            opt["g"].step()
    return nn.ModuleDict(nets).state_dict()


def test_lbfgs_gets_a_closure() -> None:
    """An optimizer that evaluates the loss itself needs one, and the error says so."""
    net = a_net()
    run, _ = a_run(net=net, optimizer=torch.optim.LBFGS(net.parameters(), lr=0.1), max_epochs=1)
    losses = []
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):

                def closure(batch=batch):
                    run.zero_grad()
                    loss = net(batch).square().mean()
                    run.backward(loss)
                    losses.append(loss.item())
                    return loss

                run.step(closure=closure)
    assert losses[-1] < losses[0]
    run, _ = a_run(net=net, optimizer=torch.optim.LBFGS(net.parameters(), lr=0.1))
    with pytest.raises(UsageError, match="closure=closure"), run:
        leave_epochs(run, net)


def test_named_validations_have_their_own_metrics() -> None:
    """A second validation set has its name in its metrics; values after the batches too."""
    run, net = a_run(max_epochs=1)
    with run:
        for _ in run.epochs():
            train_epoch(run, net)
            for name in ("", "far"):
                with run.validation(name) as metrics:
                    for batch in run.batches(batches(2)):
                        assert not net.training
                        assert not net(batch).requires_grad
                        run.log("val_loss", net(batch).mean())
                    run.log("whole", 1.0)
                assert set(metrics) == (
                    {"val_loss", "whole"} if not name else {"val_loss/far", "whole/far"}
                )
    assert net.training
    assert {"val_loss", "val_loss/far"} <= set(run.trainer.callback_metrics)


# --- loops without epochs, and the user's own state ---


class Cart:
    """An environment with a state of its own, as of reinforcement learning."""

    def __init__(self) -> None:
        self.random, self.place = random.Random(4), 0.0

    def move(self, action: int) -> tuple[torch.Tensor, float]:
        self.place += (action or -1) * self.random.random()
        return torch.tensor([self.place, self.random.random()]), -abs(self.place)

    def state_dict(self) -> dict[str, Any]:
        version, numbers, gauss = self.random.getstate()
        return {"random": [version, list(numbers), gauss], "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        version, numbers, gauss = state["random"]
        self.random.setstate((version, tuple(numbers), gauss))
        self.place = state["place"]


def policy_gradient(folder: Any, ckpt_path: Any = None, *, ends_at: int = 8) -> Any:
    """Collect a few moves between two updates, without a loader."""
    torch.manual_seed(2)
    net, cart = nn.Linear(2, 2), Cart()
    saver = ModelCheckpoint(folder, "last", every_n_train_steps=1, save_top_k=-1)
    run = Run(
        net,
        lambda parameters: torch.optim.Adam(parameters, lr=0.01),
        callbacks=saver,
        ckpt_path=ckpt_path,
        **QUIET | {"max_epochs": -1, "max_steps": ends_at, "enable_checkpointing": True},
    )
    run.register("cart", cart)
    seen = []
    with run:
        for number in run.steps():
            loss, place = torch.zeros(()), torch.zeros(2)
            for _ in range(3):
                moves = torch.distributions.Categorical(logits=net(place))
                action = moves.sample()
                place, reward = cart.move(int(action))
                loss = loss - moves.log_prob(action) * reward
            run.backward(loss)
            run.step()
            seen.append(number)
    return net.state_dict(), seen, cart.state_dict()


def test_a_policy_gradient_is_resumed_exactly(tmp_path) -> None:
    """A loop of updates without epochs goes on with environment, weights and random numbers."""
    weights, seen, cart = policy_gradient(tmp_path / "uncut")
    assert seen == list(range(8))
    policy_gradient(tmp_path / "cut", ends_at=3)
    resumed, seen, other = policy_gradient(tmp_path / "cut", "last")
    assert seen == [3, 4, 5, 6, 7]
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)
    assert cart == other


def test_steps_begin_the_loader_again() -> None:
    """Without epochs a loader that ends begins again, until the steps are done."""
    run, net = a_run(max_epochs=-1, max_steps=6)
    with run:
        numbers = [train_on(run, net, batch) for batch in run.steps(batches(4))]
    assert len(numbers) == 6
    assert run.progress.epochs_completed == 2


def validated_steps(folder: Any, *callbacks: Any, **options: Any) -> list[int]:
    """Train in steps, with a validation after every second one that logs a value of a list."""
    values = [5.0, 3.0, 4.0, 2.0, 6.0, 6.0, 6.0, 1.0]
    saver = ModelCheckpoint(
        folder, monitor="val", filename="{step}", auto_insert_metric_name=False, save_top_k=2
    )
    options = {"max_epochs": -1, "max_steps": 16, "enable_checkpointing": True} | options
    run, net = a_run(saver, *callbacks, **options)
    steps = []
    with run:
        assert run.trainer.check_val_every_n_epoch == 1
        for batch in run.steps(batches(5)):
            assert run.trainer.check_val_every_n_epoch is None
            train_on(run, net, batch)
            steps.append(run.trainer.global_step)
            if run.trainer.global_step % 2 == 0:
                with run.validation():
                    run.log("val", values[run.trainer.global_step // 2 - 1])
    return steps


def test_callbacks_that_monitor_act_at_each_validation_between_steps(tmp_path) -> None:
    """A saver keeps the best of all validations, and a stopper counts each."""
    validated_steps(tmp_path / "all")
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["16.ckpt", "8.ckpt"]
    stopping = EarlyStopping("val", patience=3)
    steps = validated_steps(tmp_path / "stopped", stopping)
    assert steps == [*range(1, 15)]
    assert stopping.stopped_epoch == 2
    assert sorted(p.name for p in (tmp_path / "stopped").iterdir()) == ["4.ckpt", "8.ckpt"]


def test_they_do_so_after_a_resume_inside_an_epoch(tmp_path) -> None:
    """The files and the stop are those of the run that was not cut."""
    validated_steps(tmp_path / "cut", EarlyStopping("val", patience=3), max_steps=9)
    path = tmp_path / "cut" / "8.ckpt"
    stopping = EarlyStopping("val", patience=3)
    # the batch of the checkpoint is gone through once more, without effect
    steps = validated_steps(tmp_path / "cut", stopping, ckpt_path=path)
    assert steps[-6:] == [*range(9, 15)]
    assert sorted(p.name for p in (tmp_path / "cut").iterdir()) == ["4.ckpt", "8.ckpt"]


def rollouts(folder: Any = None, ckpt_path: Any = None, *callbacks: Any, saves_at: int = -1) -> Any:
    """Collect data once an epoch with the weights of its start, and update on it in batches."""
    torch.manual_seed(2)
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    run = Run(net, optimizer, ckpt_path=ckpt_path, callbacks=callbacks, **QUIET)
    with run:
        for _ in run.epochs():
            data = run.keep("data", lambda: net(torch.randn(8, 2)).detach() + torch.rand(8, 2))
            for batch in run.batches(DataLoader(data, batch_size=2, shuffle=True)):
                run.backward(net(batch).square().mean())
                run.step()
                if run.progress.steps_completed == saves_at:
                    run.save_checkpoint(folder / "x.ckpt")
    return net.state_dict()


@pytest.mark.parametrize("steps", [1, 4, 6])
def test_rollouts_of_an_epoch_are_kept(tmp_path, steps) -> None:
    """A resume inside an epoch goes on with the data that its start had collected."""
    weights = rollouts()
    rollouts(tmp_path, saves_at=steps)
    resumed = rollouts(ckpt_path=tmp_path / "x.ckpt")
    assert all(torch.equal(weights[name], resumed[name]) for name in weights)


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook on_train_epoch_start")
@pytest.mark.parametrize("epoch", [0, 1])
def test_a_save_as_an_epoch_begins_is_before_its_lines(tmp_path, epoch) -> None:
    """A resume runs the epoch's first lines, with the random numbers that they had."""

    class Saves(Callback):
        def on_train_epoch_start(self, trainer, module):
            if trainer.current_epoch == epoch:
                trainer.save_checkpoint(tmp_path / "x.ckpt")

    weights = rollouts(tmp_path, None, Saves())
    resumed = rollouts(None, tmp_path / "x.ckpt", Saves())
    assert all(torch.equal(resumed[name], value) for name, value in weights.items())


def test_registered_parts_need_their_methods() -> None:
    """An object without state_dict, and a second object of a name, are refused."""
    run, _ = a_run()
    with pytest.raises(CheckpointStateError, match="no state_dict and no load_state_dict"):
        run.register("a", object())
    cart = run.register("cart", Cart())
    run.register("cart", cart)
    with pytest.raises(CheckpointStateError, match="another object has this name"):
        run.register("cart", Cart())


def test_generators_as_loaders() -> None:
    """A generator function's batches, of unknown number, make an epoch each."""
    run, net = a_run()
    with run:
        for epoch in run.epochs():
            for batch in run.batches(torch.ones(1, 2) * i for i in range(epoch + 1)):
                train_on(run, net, batch)
    assert run.progress.batches_completed == 3
    assert run.progress.steps_completed == 3


def test_an_endless_generator_ends_with_the_steps() -> None:
    """max_steps ends an epoch that would have no end."""
    run, net = a_run(max_epochs=-1, max_steps=3)
    with run:
        for _ in run.epochs():
            for batch in run.batches(torch.ones(1, 2) for _ in count()):
                train_on(run, net, batch)
    assert run.progress.steps_completed == 3


# --- resumes from inside of validations and saves ---


def validating(  # noqa: C901 - one loop, with its callback
    folder: Any, ckpt_path: Any = None, *, cut: str = ""
) -> tuple[Any, Any]:
    """Train with a validation inside the epoch and two at its end; save where `cut` says."""

    class Cut(Callback):
        def __init__(self) -> None:
            self.seen = 0
            self.calls: list[Any] = []

        def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
            self.calls.append(("validated", trainer.progress.batches_completed))
            self.seen += 1
            if f"validation batch {self.seen}" == cut:
                trainer.save_checkpoint(folder / "cut.ckpt")

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            self.calls.append(("trained", trainer.progress.batches_completed))
            if f"batch {trainer.progress.batches_completed}" == cut:
                trainer.save_checkpoint(folder / "cut.ckpt")

        def state_dict(self) -> dict[str, Any]:
            return {"seen": self.seen}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.seen = state["seen"]

    torch.manual_seed(5)
    net = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.4), nn.Linear(4, 1))
    saver = Cut()
    run = Run(
        net, torch.optim.Adam(net.parameters(), lr=0.01), ckpt_path=ckpt_path, callbacks=[saver],
        **QUIET,
    )  # fmt: skip
    loader = DataLoader(torch.arange(16.0).reshape(8, 2).sin(), batch_size=2, shuffle=True)

    def validate(name: str = "") -> None:
        with run.validation(name):
            for batch in run.batches(batches(2)):
                run.log("val_loss", net(batch).mean() + torch.rand(()))

    with run:
        for _ in run.epochs():
            torch.rand(1)
            for batch in run.batches(loader):
                loss = net(batch).square().mean()
                run.backward(loss)
                run.step()
                run.log("loss", loss, on_step=True, on_epoch=True)
                if run.progress.steps_completed % 3 == 0:
                    validate()
                    torch.rand(1)
                if f"save {run.progress.steps_completed}" == cut:
                    run.save_checkpoint(folder / "cut.ckpt")
            validate()
            torch.rand(1)
            validate("far")
    end = {name: value.item() for name, value in run.trainer.callback_metrics.items()}
    return (net.state_dict(), end, torch.rand(3)), saver.calls


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize(
    "cut",
    [
        *(f"validation batch {number}" for number in (1, 2, 3, 5, 6, 8)),
        *(f"batch {number}" for number in (1, 3, 4, 6)),
        *(f"save {number}" for number in (2, 3, 4, 6, 8)),
    ],
)
def test_a_cut_inside_a_validation_or_at_a_save(tmp_path, cut) -> None:
    """A run that is resumed there ends with the same weights, metrics and random numbers."""
    uncut, calls = validating(tmp_path)
    validating(tmp_path, cut=cut)
    resumed, left = validating(tmp_path, tmp_path / "cut.ckpt")
    for name, value in uncut[0].items():
        assert torch.equal(value, resumed[0][name]), name
    assert uncut[1] == resumed[1]
    assert torch.equal(uncut[2], resumed[2])
    # a validation that was cut is gone through from its start
    assert left == calls[len(calls) - len(left) :]


def test_a_resume_that_misses_the_validation_is_told(tmp_path) -> None:
    """Where the loop does not come to the validation again, a warning says why."""

    class Save(Callback):
        def on_validation_start(self, trainer: Any, module: Any) -> None:
            trainer.save_checkpoint(tmp_path / "cut.ckpt")

    def train(run: Run, net: nn.Module, *, validates: bool) -> None:
        with run:
            for _ in run.epochs():
                for number, batch in enumerate(run.batches(batches())):
                    train_on(run, net, batch)
                    if validates and number == 1:
                        with run.validation():
                            list(run.batches(batches(1)))

    with pytest.warns(TrainerHooksWarning, match="was saved in the hook"):
        train(*a_run(Save(), max_epochs=1), validates=True)
    run, net = a_run(Save(), max_epochs=1, ckpt_path=tmp_path / "cut.ckpt")
    with pytest.warns(TrainerHooksWarning, match="inside a validation, to which the loop did not"):
        train(run, net, validates=False)


def saved_between(folder: Any, ckpt_path: Any = None) -> tuple[nn.Module, list[str]]:
    """Train a batch, save, leave the batches, validate, save; return the net and its hook calls."""
    pairs = Pairs()
    run, net = a_run(pairs, max_epochs=1, ckpt_path=ckpt_path)
    with run:
        for _ in run.epochs():
            for batch in run.batches(batches()):
                train_on(run, net, batch)
                run.save_checkpoint(folder / "in-batch.ckpt")
                break
            with run.validation():
                list(run.batches(batches(1)))
            run.save_checkpoint(folder / "validated.ckpt")
    return net, pairs.calls


def test_a_resumed_loop_leaves_its_batch_as_the_first_did(tmp_path) -> None:
    """The batch that a resume goes through once more is closed before the validation after it."""
    net, calls = saved_between(tmp_path)
    resumed, left = saved_between(tmp_path, tmp_path / "in-batch.ckpt")
    assert torch.equal(resumed.weight, net.weight)
    first = left.index("on_train_batches_end")
    assert left[first:] == calls[calls.index("on_train_batches_end") :]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("last", [1, 2, 3])
def test_a_loop_that_was_left_is_left_by_a_resume_too(tmp_path, window, last) -> None:
    """No checkpoint lies between the break and the epoch's next stage."""

    def train(folder: Any, cut: int = 0, ckpt_path: Any = None) -> tuple[nn.Module, list[Any], int]:
        net, seen = a_net(), []
        saver = ModelCheckpoint(folder, every_n_train_steps=1)
        run = Run(
            net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5), callbacks=saver,
            accumulate_grad_batches=window, ckpt_path=ckpt_path,
            **QUIET | {"enable_checkpointing": True},
        )  # fmt: skip
        loader, moments = batches(5), count(1)

        def come_here() -> None:
            if next(moments) == cut:
                raise KeyError("cut")

        with run:
            for epoch in run.epochs():
                for batch in run.batches(loader):
                    train_on(run, net, batch)
                    seen.append((epoch, run.progress.batches_in_epoch))
                    come_here()
                    if run.progress.batches_in_epoch == last - 1:
                        break
                come_here()
                with run.validation():
                    for batch in run.batches(batches(1)):
                        run.log("val_loss", net(batch).mean())
                        come_here()
                come_here()
        return net, seen, next(moments)

    net, seen, moments = train(tmp_path / "uncut")
    assert len(seen) == 2 * last
    for moment in range(1, moments):
        folder = tmp_path / str(moment)
        with pytest.raises(KeyError):
            train(folder, moment)
        (file,) = list(folder.glob("*.ckpt")) or (None,)
        resumed, left, _ = train(folder, ckpt_path=file)
        assert left == seen[len(seen) - len(left) :], moment
        assert torch.equal(resumed.weight, net.weight), moment


def test_a_resumed_epoch_has_one_training_loader_too(tmp_path) -> None:
    """Where the batches lie behind the resume, a second loader is refused as in the first run."""
    saved_between(tmp_path)
    run, _ = a_run(max_epochs=1, ckpt_path=tmp_path / "validated.ckpt")
    with pytest.raises(UsageError, match="called a second time in epoch 0"), run:
        for _ in run.epochs():
            assert list(run.batches(batches())) == []
            list(run.batches(batches()))


# --- notebooks ---


def test_a_loop_in_several_cells() -> None:
    """With open() a loop that an error left goes on in the next cell, with the next batch."""
    run, net = a_run(max_epochs=2)
    run.open()
    seen = []
    loader = batches()

    def cell(ends_at: int) -> None:
        for epoch in run.epochs():
            for batch in run.batches(loader):
                train_on(run, net, batch)
                seen.append((epoch, run.progress.batches_in_epoch))
                if len(seen) == ends_at:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cell(2)
    cell(-1)
    run.close()
    run.close()
    assert seen == [(epoch, number) for epoch in range(2) for number in range(4)]


@pytest.mark.parametrize(
    ("is_trained", "steps_after"), [(True, [1, 1, 2]), (False, [0, 1, 2])], ids=["ended", "cut"]
)
def test_an_accumulation_window_in_several_cells(is_trained, steps_after) -> None:
    """The next cell ends the window of a trained batch; one that was cut has left none."""
    run, net = a_run(max_epochs=1, accumulate_grad_batches=2)
    run.open()
    loader, steps = batches(), []

    def cell(*, interrupted: bool) -> None:
        for _ in run.epochs():
            for batch in run.batches(loader):
                if is_trained or not interrupted:
                    train_on(run, net, batch)
                if interrupted:
                    raise KeyboardInterrupt
                steps.append(run.progress.steps_completed)

    with pytest.raises(KeyboardInterrupt):
        cell(interrupted=True)
    cell(interrupted=False)
    run.close()
    assert steps == steps_after


def test_a_resume_that_is_interrupted_logs_in_batches(tmp_path) -> None:
    """The next cell, which takes the batch after the resumed one, logs values of batches."""
    saved_between(tmp_path)
    run, net = a_run(max_epochs=1, ckpt_path=tmp_path / "in-batch.ckpt")
    run.open()
    loader, losses = batches(), []

    def cell(*, interrupted: bool) -> None:
        for _ in run.epochs():
            for batch in run.batches(loader):
                if interrupted:
                    raise KeyboardInterrupt
                losses.append(train_on(run, net, batch).item())

    with pytest.raises(KeyboardInterrupt):
        cell(interrupted=True)
    cell(interrupted=False)
    run.close()
    assert len(losses) == 3
    # by default a value of a batch is one of its step; outside of batches it would be a mean
    assert run.trainer.callback_metrics["loss"].item() == losses[-1]


def test_an_error_at_a_validations_end_leaves_eval_mode() -> None:
    """Where a loop catches the error, it goes on in train mode."""

    class Fails(Callback):
        def on_validation_epoch_end(self, trainer: Any, module: Any) -> None:
            raise LookupError("no such score")

    run, net = a_run(Fails(), max_epochs=1)
    with run:
        for _ in run.epochs():
            train_epoch(run, net)
            with pytest.raises(LookupError), run.validation():
                assert not net.training
                list(run.batches(batches(1)))
            assert net.training


def test_with_again_goes_on(tmp_path) -> None:
    """A Run that was left is entered again, and goes on with the next epoch."""
    run, net = a_run(max_epochs=3)
    epochs = []
    for _ in range(2):
        with run:
            for epoch in run.epochs():
                train_epoch(run, net)
                epochs.append(epoch)
                if epoch == 0:
                    break
    assert epochs == [0, 1, 2]
