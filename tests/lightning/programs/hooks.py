"""Hooks: their order and arguments in each verb, and what follows an exception."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from programs import differs, error

FIT = (
    "setup", "on_fit_start", "on_sanity_check_start", "on_sanity_check_end", "on_train_start",
    "on_train_epoch_start", "on_train_batch_start", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end", "on_train_epoch_end", "on_train_end",
    "on_fit_end", "on_exception", "teardown",
)  # fmt: skip
VALIDATION = (
    "on_validation_start", "on_validation_epoch_start", "on_validation_batch_start",
    "on_validation_batch_end", "on_validation_epoch_end", "on_validation_end",
)  # fmt: skip
TEST = (
    "on_test_start", "on_test_epoch_start", "on_test_batch_start", "on_test_batch_end",
    "on_test_epoch_end", "on_test_end",
)  # fmt: skip
PREDICT = (
    "on_predict_start", "on_predict_epoch_start", "on_predict_batch_start",
    "on_predict_batch_end", "on_predict_epoch_end", "on_predict_end",
)  # fmt: skip
OF_CALLBACKS = (*FIT, *VALIDATION, *TEST, *PREDICT)
OF_MODULES = tuple(
    name
    for name in OF_CALLBACKS
    if name not in ("on_sanity_check_start", "on_sanity_check_end", "on_exception")
)
STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def _both(x: Any, *more: str, module: Any = None) -> tuple[list[str], Any, Any]:
    """Return a list of calls, a callback and a module that write theirs down."""
    calls: list[str] = []
    hooks = x.hooks(*OF_CALLBACKS, into=calls)
    made = x.recorded(module or x.Net, *OF_MODULES, *STEPS, *more, into=calls)()
    return calls, hooks, made


def fit(x):
    """Every hook of a fit of two epochs, callback and module, with its arguments."""
    calls, hooks, module = _both(x)
    x.trainer(hooks, max_epochs=2).fit(module, x.loader(2))
    return {"calls": calls}


def fit_and_validation(x):
    """The same with a sanity check and a validation in each epoch."""
    calls, hooks, module = _both(x)
    x.trainer(hooks, max_epochs=2, num_sanity_val_steps=1).fit(module, x.loader(2), x.loader(2))
    return {"calls": calls}


def fit_and_validation_inside(x):
    """A validation inside of the epoch."""
    calls, hooks, module = _both(x)
    x.trainer(hooks, val_check_interval=2).fit(module, x.loader(4), x.loader(1))
    return {"calls": calls}


def fit_with_accumulation(x):
    """The hooks of batches that share a step."""
    calls, hooks, module = _both(x)
    x.trainer(hooks, accumulate_grad_batches=2).fit(module, x.loader(3))
    return {"calls": calls}


def validate(x):
    """Every hook of `validate`."""
    calls, hooks, module = _both(x)
    x.trainer(hooks).validate(module, x.loader(2), verbose=False)
    return {"calls": calls}


def test(x):
    """Every hook of `test`."""
    calls, hooks, module = _both(x)
    x.trainer(hooks).test(module, x.loader(2), verbose=False)
    return {"calls": calls}


def predict(x):
    """Every hook of `predict`."""
    calls, hooks, module = _both(x)
    x.trainer(hooks).predict(module, x.loader(2))
    return {"calls": calls}


def several_loaders(x):
    """`dataloader_idx` is passed where there are several loaders."""
    calls: list[str] = []

    class Net(x.Net):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            calls.append(f"validation_step {batch_idx} {dataloader_idx}")

        def test_step(self, batch, batch_idx, dataloader_idx):
            calls.append(f"test_step {batch_idx} {dataloader_idx}")

        def predict_step(self, batch, batch_idx, dataloader_idx):
            calls.append(f"predict_step {batch_idx} {dataloader_idx}")
            return self(batch)

    names = [name for name in OF_CALLBACKS if "batch" in name]
    trainer = x.trainer(x.hooks(*names, into=calls))
    loaders = [x.loader(2), x.loader(1)]
    trainer.fit(Net(), x.loader(1), loaders)
    trainer.test(Net(), loaders, verbose=False)
    trainer.predict(Net(), loaders)
    return {"calls": calls}


@differs("Loaders are made", loaders_first=(False, True))
def data_hooks(x):
    """What is called of a module to have its data, in a fit."""
    calls: list[str] = []

    class Net(x.Net):
        def train_dataloader(self):
            return x.loader(1)

        def val_dataloader(self):
            return x.loader(1)

    names = (
        "prepare_data", "setup", "configure_model", "configure_optimizers", "on_fit_start",
        "train_dataloader", "val_dataloader", "on_train_start", "teardown",
    )  # fmt: skip
    x.trainer().fit(x.recorded(Net, *names, into=calls)())
    order = [call for call in calls if "dataloader" not in call]
    first = calls.index("module.train_dataloader()") < calls.index("module.on_fit_start()")
    return {"calls": order, "loaders_first": first}


def transfer_hooks(x):
    """The hooks that move a batch, with their arguments, in training and validation."""
    calls: list[str] = []
    names = ("on_before_batch_transfer", "transfer_batch_to_device", "on_after_batch_transfer")
    module = x.recorded(x.Net, *names, "training_step", "validation_step", into=calls)()
    x.trainer().fit(module, x.loader(2), x.loader(1))
    return {"calls": calls}


def transfer_hooks_change_the_batch(x):
    """What the transfer hooks return is what the step is given."""
    seen = []

    class Net(x.Net):
        def on_before_batch_transfer(self, batch, dataloader_idx):
            return batch + 1

        def transfer_batch_to_device(self, batch, device, dataloader_idx):
            seen.append(str(device))
            return super().transfer_batch_to_device(batch * 2, device, dataloader_idx)

        def on_after_batch_transfer(self, batch, dataloader_idx):
            return batch - 1

    module = Net()
    x.trainer().fit(module, x.loader(2))
    return {"seen": seen, "weights": x.weights(module)}


def model_modes(x):
    """The module's own hooks that set it to evaluate and to train."""
    calls: list[str] = []
    names = (
        "on_validation_model_eval", "on_validation_model_train", "on_test_model_eval",
        "on_test_model_train", "on_predict_model_eval",
    )  # fmt: skip
    module = x.recorded(x.Net, *names, into=calls)()
    trainer = x.trainer()
    trainer.fit(module, x.loader(1), x.loader(1))
    trainer.test(module, x.loader(1), verbose=False)
    trainer.predict(module, x.loader(1))
    return {"calls": calls, "training": module.training}


def modes_are_put_back(x):
    """A part in eval mode before a validation is in eval mode after it."""
    seen = []

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.frozen = torch.nn.BatchNorm1d(2)

        def on_train_start(self):
            self.frozen.eval()

        def on_train_epoch_end(self):
            seen.append([self.training, self.frozen.training])

        def on_validation_start(self):
            seen.append([self.training, self.frozen.training])

    x.trainer(max_epochs=2).fit(Net(), x.loader(1), x.loader(1))
    return {"seen": seen}


@differs(
    "What hooks return",
    validations=(1, 2),
    ended=(4, 5),
    counters=(
        {"global_step": 4, "current_epoch": 2, "batches": [5, 4], "epochs": [2, 2]},
        {"global_step": 4, "current_epoch": 2, "batches": [5, 5], "epochs": [2, 2]},
    ),
)
def minus_one_ends_an_epoch(x):
    """-1 from the module's `on_train_batch_start` leaves out the rest of the epoch."""
    calls: list[str] = []

    class Net(x.Net):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if self.current_epoch == 0 and batch_idx == 1 else None

    names = ("on_train_batch_start", "on_train_batch_end", "on_train_epoch_end")
    hooks = x.hooks(*names, "on_validation_start", into=calls)
    module = Net()
    trainer = x.trainer(hooks, max_epochs=2)
    trainer.fit(module, x.loader(3), x.loader(1))
    return {
        "calls": [call for call in calls if "validation" not in call and "batch_end" not in call],
        "ended": sum("batch_end" in call for call in calls),
        "validations": sum("validation" in call for call in calls),
        "weights": x.weights(module),
        "counters": x.counters(trainer),
    }


def _failing(x: Any, where: str, verb: str = "fit") -> dict[str, Any]:
    """Run with a callback that raises in a hook; tell which hooks follow, and the error."""

    class OwnError(Exception):
        pass

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OwnError

    calls: list[str] = []
    failing = type("Failing", (x.Callback,), {where: fail})()
    trainer = x.trainer(x.hooks(*OF_CALLBACKS, into=calls), failing)
    module = x.Net()
    loaders = (x.loader(2), x.loader(1)) if verb == "fit" else (x.loader(2),)
    error = x.error(lambda: getattr(trainer, verb)(module, *loaders))
    after = calls[-3:] if len(calls) > 3 else calls
    torn = [call for call in calls if call.startswith("teardown")]
    rest = [call for call in after if call not in torn]
    return {
        "calls": rest[-1:],
        "error": error,
        "torn": len(torn),
        "status": trainer.state.status,
        "training": module.training,
    }


TEARDOWN = "`teardown` after an exception"
MODE = "The module's mode after an exception in an evaluation"


@differs(TEARDOWN, torn=(0, 1))
def exception_in_a_training_batch(x):
    """`on_exception` follows."""
    return _failing(x, "on_train_batch_start")


@differs(TEARDOWN, torn=(0, 1))
def exception_in_fit_start(x):
    """The same early in a fit."""
    return _failing(x, "on_fit_start")


@differs(TEARDOWN, torn=(0, 1))
def exception_in_setup(x):
    """The same in `setup`."""
    return _failing(x, "setup")


@differs(TEARDOWN, torn=(0, 1))
@differs(MODE, training=(False, True))
def exception_in_test(x):
    """The same in another verb."""
    return _failing(x, "on_test_batch_end", "test")


@differs(TEARDOWN, torn=(0, 1))
@differs(MODE, training=(False, True))
def exception_in_validation(x):
    """The same in a validation inside of fit; the module is back in training mode."""
    return _failing(x, "on_validation_batch_start")


@differs(
    "`trainer.fit_loop.epoch_loop.batch_progress` after a run",
    counters=(
        {"global_step": 2, "current_epoch": 0, "batches": [3, 2], "epochs": [1, 0]},
        {"global_step": 2, "current_epoch": 0, "batches": [2, 2], "epochs": [1, 0]},
    ),
)
def exception_in_a_step(x):
    """What `on_exception` is given, and what the counters say."""

    class OwnError(Exception):
        pass

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise OwnError
            return super().training_step(batch, batch_idx)

    hooks = x.hooks("on_exception", "on_train_end", "on_fit_end")
    trainer = x.trainer(hooks)
    error = x.error(lambda: trainer.fit(Net(), x.loader(4)))
    return {"calls": hooks.calls, "error": error, "counters": x.counters(trainer)}


@differs("Ctrl-C", error=({"kinds": ["SystemExit"]}, {"kinds": ["KeyboardInterrupt"]}))
def keyboard_interrupt(x):
    """What Ctrl-C in a step becomes."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            raise KeyboardInterrupt

    hooks = x.hooks("on_exception", "on_train_end")
    trainer = x.trainer(hooks)
    error = x.error(lambda: trainer.fit(Net(), x.loader(2)))
    return {"calls": hooks.calls, "error": error, "interrupted": trainer.interrupted}


def hooks_of_several_callbacks(x):
    """Callbacks are called as they are listed, before the module."""
    calls: list[str] = []

    def tell(name: str) -> Any:
        class Tell(x.Callback):
            state_key = name

            def on_train_start(self, trainer, module):
                calls.append(name)

        return Tell()

    class Net(x.Net):
        def on_train_start(self):
            calls.append("module")

    x.trainer(tell("a"), tell("b"), tell("c")).fit(Net(), x.loader(1))
    return {"calls": calls}


def configure_callbacks(x):
    """The module's own callbacks are added, and replace those of the same type."""
    calls: list[str] = []

    class Tell(x.Callback):
        def __init__(self, name):
            self.name = name

        def on_train_start(self, trainer, module):
            calls.append(self.name)

    class Other(Tell):
        pass

    class Net(x.Net):
        def configure_callbacks(self):
            return [Tell("module's")]

    trainer = x.trainer(Tell("trainer's"), max_epochs=1)
    trainer.fit(Net(), x.loader(1))
    return {"calls": calls}


def configure_model(x):
    """Layers made in `configure_model` are trained."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.more = None

        def configure_model(self):
            if self.more is None:
                self.more = torch.nn.Linear(1, 1)
                torch.nn.init.ones_(self.more.weight)
                torch.nn.init.zeros_(self.more.bias)

        def forward(self, batch):
            return self.more(super().forward(batch))

    module = Net()
    trainer = x.trainer()
    trainer.fit(module, x.loader(3))
    trainer.test(module, x.loader(1), verbose=False)
    return {"weights": x.weights(module)}


@differs("The class of some errors", unknown=(error("TypeError"), error("CallbackError")))
def lambda_callback(x):
    """`LambdaCallback` calls its functions with the hook's arguments."""
    calls = []
    callback = x.callbacks.LambdaCallback(
        setup=lambda trainer, module, stage: calls.append(stage),
        on_train_batch_end=lambda trainer, module, outputs, batch, batch_idx: calls.append(
            [sorted(outputs), batch_idx]
        ),
        on_fit_end=lambda *args: calls.append(len(args)),
    )
    x.trainer(callback).fit(x.Net(), x.loader(2))
    return {"calls": calls, "unknown": x.error(lambda: x.callbacks.LambdaCallback(on_odd=print))}


def stage_of_setup(x):
    """The stage that `setup` and `teardown` are given in each verb."""
    calls: list[str] = []
    module = x.recorded(x.Net, "setup", "teardown", into=calls)()
    trainer = x.trainer()
    trainer.fit(module, x.loader(1))
    trainer.validate(module, x.loader(1), verbose=False)
    trainer.test(module, x.loader(1), verbose=False)
    trainer.predict(module, x.loader(1))
    return {"calls": calls}


def outputs_of_evaluation(x):
    """What the batch end hooks are given of what steps return."""
    seen = []

    class Net(x.Net):
        def validation_step(self, batch, batch_idx):
            return {"mean": self(batch).mean(), "idx": batch_idx}

        def test_step(self, batch, batch_idx):
            return None

        def predict_step(self, batch, batch_idx):
            return [batch_idx]

    class See(x.Callback):
        def on_validation_batch_end(self, trainer, module, outputs, *args):
            seen.append(outputs)

        def on_test_batch_end(self, trainer, module, outputs, *args):
            seen.append(outputs)

        def on_predict_batch_end(self, trainer, module, outputs, *args):
            seen.append(outputs)

    trainer, module = x.trainer(See()), Net()
    trainer.validate(module, x.loader(2), verbose=False)
    trainer.test(module, x.loader(1), verbose=False)
    trainer.predict(module, x.loader(2))
    return {"seen": seen}


@differs(
    "`max_steps` reached inside an epoch",
    validations=(0, 1),
)
def validation_where_max_steps_ends(x):
    """`max_steps` is reached inside of an epoch that a validation is due after."""
    hooks = x.hooks("on_validation_start", "on_train_epoch_end", "on_train_end")
    x.trainer(hooks, max_epochs=None, max_steps=2).fit(x.Net(), x.loader(4), x.loader(1))
    others = [call for call in hooks.calls if "validation" not in call]
    return {"calls": others, "validations": len(hooks.calls) - len(others)}


@differs(
    "`on_validation_model_zero_grad` in manual optimization",
    kept=(False, True),
)
def gradients_of_manual_optimization(x):
    """Whether gradients outlive a validation in manual optimization."""
    seen = []

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.manual_backward(self.cost(batch))

        def on_train_epoch_end(self):
            seen.append(self.layer.weight.grad is not None)

    x.trainer().fit(Net(), x.loader(1), x.loader(1))
    return {"kept": seen[0]}


def gradients_in_hooks(x):
    """Where gradients are there: after backward, at a batch's end, at the next one's start."""
    seen = []

    class Net(x.Net):
        def _look(self, where):
            seen.append([where, self.layer.weight.grad is not None])

        def on_train_batch_start(self, *args):
            self._look("start")

        def on_after_backward(self):
            self._look("after backward")

        def on_train_batch_end(self, *args):
            self._look("end")

        def on_validation_start(self):
            self._look("validation")

    x.trainer().fit(Net(), x.loader(2), x.loader(1))
    return {"seen": seen}


@differs("The module argument of hooks", named=("pl_module", "module"))
def names_of_arguments(x):
    """What a hook's arguments are called; a callback may call the module as it likes."""
    seen = []

    class Tell(x.Callback):
        def on_train_start(self, trainer, pl_module):
            super().on_train_start(trainer=trainer, pl_module=pl_module)
            seen.append(type(pl_module).__name__)

    x.trainer(Tell()).fit(x.Net(), x.loader(1))
    names = list(inspect.signature(x.Callback.on_train_start).parameters)
    return {"seen": seen, "named": names[-1]}
