"""Hooks: their order and arguments in each verb."""

from __future__ import annotations

from typing import Any

import torch

from programs import differs

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


def setup_and_teardown(x):
    """The order of data module, callbacks and module, and the value of `stage`."""
    calls: list[str] = []

    def note(name):
        def method(self, *arguments, **named):
            *_, stage = *arguments, *named.values()
            calls.append(f"{name} {stage.value}")

        return method

    def noted(base, name):
        return type(name, (base,), {h: note(f"{name} {h}") for h in ("setup", "teardown")})()

    class Data(x.DataModule):
        def train_dataloader(self):
            return x.loader(1)

        test_dataloader = train_dataloader

    data = noted(Data, "data")
    trainer = x.trainer(noted(x.Callback, "callback"))
    trainer.fit(noted(x.Net, "module"), datamodule=data)
    trainer.test(noted(x.Net, "module"), datamodule=data, verbose=False)
    return {"calls": calls}


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
