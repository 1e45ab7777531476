"""Hooks that build the module and its callbacks, and what hooks can see."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from programs import differs, error


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
    """The module's own callbacks replace those of the same type, whatever their state keys."""
    calls: list[str] = []

    class Tell(x.Callback):
        def __init__(self, name):
            self.name = name

        @property
        def state_key(self):
            return self.name

        def on_train_start(self, trainer, module):
            calls.append(self.name)

    class Other(Tell):
        pass

    class Net(x.Net):
        def configure_callbacks(self):
            return self.brought

    for kind in (Tell, Other):
        net = Net()
        net.brought = [kind("module's"), kind("its second")]
        x.trainer(Tell("trainer's"), max_epochs=1).fit(net, x.loader(1))
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


@differs("`trainer.state.status` in `teardown`", torn=("running", "finished"))
def on_train_end_sees(x):
    """Counters and stage in the last hooks."""
    seen = []

    class See(x.Callback):
        def _look(self, trainer, where):
            seen.append(
                [where, trainer.current_epoch, trainer.global_step, trainer.training,
                 trainer.state.fn, trainer.state.status]
            )  # fmt: skip

        def on_train_epoch_end(self, trainer, module):
            self._look(trainer, "epoch end")

        def on_train_end(self, trainer, module):
            self._look(trainer, "train end")

        def on_fit_end(self, trainer, module):
            self._look(trainer, "fit end")

        def teardown(self, trainer, module, stage):
            self._look(trainer, "teardown")

    x.trainer(See(), max_epochs=2).fit(x.Net(), x.loader(2))
    return {"torn": seen[-1].pop(), "seen": seen}


def counters_in_validation(x):
    """`global_step` and `current_epoch` in a validation inside and at the end of an epoch."""
    seen = []

    class Net(x.Net):
        def on_validation_start(self):
            seen.append([self.current_epoch, self.global_step, self.trainer.is_last_batch])

    x.trainer(val_check_interval=2, max_epochs=2).fit(Net(), x.loader(4), x.loader(1))
    return {"seen": seen}


def stop_in_a_validation(x):
    """`should_stop` set in a validation inside of the epoch."""
    hooks = x.hooks("on_train_batch_end", "on_train_epoch_end", "on_validation_end")

    class Net(x.Net):
        def on_validation_epoch_end(self):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, val_check_interval=2, max_epochs=3)
    trainer.fit(Net(), x.loader(6), x.loader(1))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}


def stop_before_training(x):
    """`should_stop` set in `on_train_start`."""
    hooks = x.hooks("on_train_epoch_start", "on_train_batch_start", "on_train_end")

    class Net(x.Net):
        def on_train_start(self):
            self.trainer.should_stop = True

    trainer = x.trainer(hooks, max_epochs=3)
    trainer.fit(Net(), x.loader(3))
    return {"calls": hooks.calls, "counters": x.counters(trainer)}
