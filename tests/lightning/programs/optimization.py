"""Optimizers: forms of `configure_optimizers`, manual optimization, closures, overrides."""

from __future__ import annotations

from typing import Any

import torch
from torch.optim import LBFGS, SGD, Adam

from programs import differs, error


def _fit(x: Any, module: Any, *callbacks: Any, batches: int = 4, **options: Any) -> dict[str, Any]:
    trainer = x.trainer(*callbacks, **options)
    trainer.fit(module, x.loader(batches))
    counters = x.counters(trainer)
    return {
        "weights": x.weights(module),
        "steps": counters.pop("global_step"),
        "counters": counters,
    }


def _pair(x: Any) -> Any:
    """Return a module of two layers in manual optimization with an optimizer for each."""

    class Pair(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.other = torch.nn.Linear(2, 1)
            torch.nn.init.constant_(self.other.weight, 0.3)
            torch.nn.init.constant_(self.other.bias, 0.0)

        def configure_optimizers(self):
            return SGD(self.layer.parameters(), 0.1), Adam(self.other.parameters(), 0.01)

    return Pair


@differs(
    "Order of a step",
    calls=(
        [
            "module.training_step(tensor[2, 2], 0)", "module.on_before_zero_grad(SGD)",
            "module.on_before_backward(tensor[])", "module.on_after_backward()",
            "module.on_before_optimizer_step(SGD)",
        ],
        [
            "module.on_before_zero_grad(SGD)", "module.training_step(tensor[2, 2], 0)",
            "module.on_before_backward(tensor[])", "module.on_after_backward()",
            "module.on_before_optimizer_step(SGD)",
        ],
    ),
)  # fmt: skip
def order_of_a_step(x):
    """The hooks of one optimizer step."""
    calls = []
    names = (
        "training_step", "on_before_zero_grad", "on_before_backward", "on_after_backward",
        "on_before_optimizer_step",
    )  # fmt: skip
    found = _fit(x, x.recorded(x.Net, *names, into=calls)(), batches=1)
    return {"calls": calls, **found}


def one_optimizer(x):
    """An optimizer alone."""
    return _fit(x, x.Net())


def a_list_of_one(x):
    """A list with one optimizer."""

    class Net(x.Net):
        def configure_optimizers(self):
            return [Adam(self.parameters(), lr=0.05)]

    return _fit(x, Net())


def no_optimizer(x):
    """None: the loop runs, and nothing is trained."""

    class Net(x.Net):
        def configure_optimizers(self):
            return None

    return _fit(x, Net())


def two_lists(x):
    """A list of optimizers and one of schedulers."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    return _fit(x, Net(), max_epochs=3)


@differs(
    "The class of some errors",
    error=(error("RuntimeError"), error("OptimizationError")),
)
def several_in_automatic_optimization(x):
    """Several optimizers need manual optimization."""

    class Net(x.Net):
        def configure_optimizers(self):
            return [SGD(self.parameters(), lr=0.1), SGD(self.parameters(), lr=0.1)]

    return {"error": x.error(lambda: _fit(x, Net()))}


def configured_wrongly(x):
    """What `configure_optimizers` may not return."""

    def of(returned):
        class Net(x.Net):
            def configure_optimizers(self):
                return returned(SGD(self.parameters(), lr=0.1))

        return x.error(lambda: _fit(x, Net()))

    return {
        "a text": of(lambda optimizer: "sgd"),
        "a plateau without a monitor": of(
            lambda optimizer: {
                "optimizer": optimizer,
                "lr_scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
            }
        ),
        "an interval": of(
            lambda optimizer: {
                "optimizer": optimizer,
                "lr_scheduler": {
                    "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1),
                    "interval": "week",
                },
            }
        ),
        "no scheduler": of(
            lambda optimizer: {"optimizer": optimizer, "lr_scheduler": {"interval": "step"}}
        ),
    }


@differs(
    "An unknown key of a scheduler's dict",
    error=("none", {"kinds": ["OptimizationError"]}),
)
def unknown_key_of_a_scheduler(x):
    """A misspelt key of a scheduler's dict."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            return [optimizer], [{"scheduler": scheduler, "intervall": "step"}]

    return {"error": x.error(lambda: _fit(x, Net()))}


def manual(x):
    """`optimizers`, `zero_grad`, `manual_backward` and `step` by hand."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.cost(batch))
            optimizer.step()

    return _fit(x, Net(), max_epochs=2)


def manual_accumulates(x):
    """A step by hand after each second batch."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            self.manual_backward(self.cost(batch) / 2)
            if batch_idx % 2 == 1:
                self.clip_gradients(optimizer, 0.05, "norm")
                optimizer.step()
                optimizer.zero_grad()

    return _fit(x, Net(), max_epochs=2)


def manual_with_two(x):
    """Two optimizers: each step counts."""

    class Net(_pair(x)):
        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            for optimizer, layer in ((first, self.layer), (second, self.other)):
                optimizer.zero_grad()
                self.manual_backward(layer(batch).square().mean())
                optimizer.step()

    return _fit(x, Net())


@differs(
    "`on_before_zero_grad` in manual optimization",
    cleared=(0, 4),
)
def manual_hooks(x):
    """The hooks that manual optimization fires."""
    calls = []
    names = (
        "training_step", "on_before_zero_grad", "on_before_backward", "on_after_backward",
        "on_before_optimizer_step", "on_train_batch_end",
    )  # fmt: skip

    class Net(_pair(x)):
        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            for optimizer, layer in ((first, self.layer), (second, self.other)):
                optimizer.zero_grad()
                loss = layer(batch).square().mean()
                self.manual_backward(loss)
                optimizer.step()
            return {"loss": loss.detach(), "more": 1}

    found = _fit(x, x.recorded(Net, *names, into=calls)(), batches=2)
    others = [call for call in calls if "zero_grad" not in call]
    return {"calls": others, "cleared": len(calls) - len(others), **found}


def manual_with_a_closure(x):
    """`optimizer.step(closure)` runs the closure."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()

            def closure():
                optimizer.zero_grad()
                loss = self.cost(batch)
                self.manual_backward(loss)
                return loss

            optimizer.step(closure=closure)

    return _fit(x, Net())


def manual_refuses(x):
    """Clipping and accumulation are no options of manual optimization."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            pass

    return {
        "clipping": x.error(lambda: _fit(x, Net(), gradient_clip_val=1.0)),
        "accumulation": x.error(lambda: _fit(x, Net(), accumulate_grad_batches=2)),
    }


def manual_backward_in_automatic(x):
    """`manual_backward` is for manual optimization alone."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.manual_backward(loss)
            return loss

    return {"error": x.error(lambda: _fit(x, Net()))}


def toggling(x):
    """A toggled optimizer's parameters alone need gradients."""
    seen = []

    class Net(_pair(x)):
        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            needs = self.layer.weight, self.other.weight
            self.toggle_optimizer(first)
            seen.append([one.requires_grad for one in needs])
            self.untoggle_optimizer(first)
            with self.toggled_optimizer(second):
                seen.append([one.requires_grad for one in needs])
            seen.append([one.requires_grad for one in needs])

    _fit(x, Net(), batches=1)
    return {"seen": seen}


def optimizers_are_wrapped(x):
    """What `optimizers()` gives acts as the optimizer that it stands for."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            wrapped = self.optimizers()
            own = self.optimizers(use_pl_optimizer=False)
            seen.append(
                [isinstance(wrapped, SGD), type(own).__name__, wrapped.param_groups[0]["lr"]]
            )
            seen.append(self.trainer.optimizers[0] is own)
            return super().training_step(batch, batch_idx)

    _fit(x, Net(), batches=1)
    return {"seen": seen}


def lbfgs(x):
    """An optimizer that evaluates its closure several times."""
    steps = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            steps.append(batch_idx)
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            return LBFGS(self.parameters(), lr=0.1, max_iter=3)

    return {"steps": steps, **_fit(x, Net(), batches=2)}


def lbfgs_hooks(x):
    """The hooks around a closure that runs several times."""

    class Net(x.Net):
        def configure_optimizers(self):
            return LBFGS(self.parameters(), lr=0.1, max_iter=2)

    hooks = x.hooks("on_before_backward", "on_after_backward", "on_before_optimizer_step")
    return {**_fit(x, Net(), hooks, batches=1), "calls": hooks.calls}


@differs(
    "`trainer.global_step` after a batch that made no step",
    steps=(8, 4),
)
def optimizer_step_override(x):
    """`optimizer_step` is given epoch, batch, optimizer and closure, and may step less often."""
    seen = []

    class Net(x.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            seen.append([epoch, batch_idx, type(optimizer).__name__, callable(optimizer_closure)])
            if batch_idx % 2 == 0:
                optimizer.step(closure=optimizer_closure)
            else:
                optimizer_closure()

    return {**_fit(x, Net(), max_epochs=2), "seen": [one[:2] + one[3:] for one in seen]}


def optimizer_step_warms_up(x):
    """The documentation's warm-up: the learning rate is set after `super().optimizer_step`."""

    class Net(x.Net):
        def optimizer_step(self, *args, **kwargs):
            super().optimizer_step(*args, **kwargs)
            if self.trainer.global_step < 3:
                for group in self.trainer.optimizers[0].param_groups:
                    group["lr"] = 0.1 * (self.trainer.global_step + 1) / 3

    return _fit(x, Net())


def closure_returns(x):
    """What the closure returns to `optimizer_step`."""
    seen = []

    class Net(x.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            seen.append(optimizer_closure())
            optimizer.step()

    found = _fit(x, Net())
    return {"seen": seen, **found}


def optimizer_zero_grad_override(x):
    """`optimizer_zero_grad` is given epoch, batch and optimizer."""
    seen = []

    class Net(x.Net):
        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            seen.append([epoch, batch_idx, isinstance(optimizer, SGD)])
            optimizer.zero_grad(set_to_none=False)

    found = _fit(x, Net(), max_epochs=2, accumulate_grad_batches=2)
    return {"seen": seen, **found}


def backward_override(x):
    """`backward` is given the loss, and may scale it."""

    class Net(x.Net):
        def backward(self, loss, *args, **kwargs):
            (loss * 2).backward()

    return _fit(x, Net())


@differs(
    "`clip_gradients` with other values than the Trainer was given",
    error=(error("MisconfigurationException"), "none"),
)
def configure_gradient_clipping_override(x):
    """What the override is given, and a clipping by another value."""
    seen = []

    class Net(x.Net):
        def configure_gradient_clipping(
            self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None
        ):
            seen.append([isinstance(optimizer, SGD), gradient_clip_val, gradient_clip_algorithm])
            self.clip_gradients(
                optimizer, gradient_clip_val=gradient_clip_val / 2, gradient_clip_algorithm="norm"
            )

    error = x.error(lambda: _fit(x, Net(), gradient_clip_val=0.1, gradient_clip_algorithm="value"))
    return {"seen": seen[0], "error": error}


@differs(
    "`trainer.min_epochs`, `min_steps`, `gradient_clip_algorithm` that were not given",
    seen=([[None, None]], [[None, "norm"]]),
)
def configure_gradient_clipping_without_a_value(x):
    """The override is called also where the Trainer was given no value."""
    seen = []

    class Net(x.Net):
        def configure_gradient_clipping(
            self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None
        ):
            seen.append([gradient_clip_val, gradient_clip_algorithm])

    found = _fit(x, Net(), batches=1)
    return {"seen": seen, **found}


def gradients_before_clipping(x):
    """`on_before_optimizer_step` sees the gradients before they are clipped."""
    seen = []

    class Net(x.Net):
        def on_before_optimizer_step(self, optimizer):
            seen.append(self.layer.weight.grad)

    found = _fit(x, Net(), batches=1, gradient_clip_val=0.001)
    return {"seen": seen, **found}


def loss_in_a_dict(x):
    """`training_step` may return a dict with the loss; the hooks are given it."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            return {"loss": self.cost(batch), "size": len(batch)}

        def on_train_batch_end(self, outputs, batch, batch_idx):
            seen.append([sorted(outputs), outputs["size"], outputs["loss"].requires_grad])

    return {**_fit(x, Net()), "seen": seen}


@differs(
    '`outputs["loss"]` of `on_train_batch_end` with accumulation',
    share=(0.5, 1.0),
)
def outputs_of_a_batch(x):
    """What `on_train_batch_end` is given of a loss alone, also with accumulation."""
    seen = []

    class Net(x.Net):
        def on_train_batch_end(self, outputs, batch, batch_idx):
            seen.append(outputs["loss"])

    found = _fit(x, Net(), accumulate_grad_batches=2)
    whole = Net(0.0).cost(next(iter(x.loader())))
    return {**found, "share": seen[0] / whole}


@differs(
    "`trainer.global_step` after a batch that made no step",
    steps=(4, 3),
)
def a_step_that_returns_none(x):
    """A batch without a loss is skipped."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 1 else self.cost(batch)

        def on_train_batch_end(self, outputs, batch, batch_idx):
            seen.append(outputs)

    return {**_fit(x, Net()), "seen": seen}


@differs(
    "`training_step` that returns None for each batch of an epoch",
    error=("none", {"kinds": ["ModuleError"]}),
)
def steps_that_all_return_none(x):
    """A forgotten `return`."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.cost(batch)

    return {"error": x.error(lambda: _fit(x, Net()))}


def an_optimizer_step_without_its_closure(x):
    """An override that forgets the closure would train nothing."""

    class Net(x.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            optimizer.step()

    return {"error": x.error(lambda: _fit(x, Net()))}


def frozen_layers(x):
    """`freeze` and `unfreeze`."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.layer.weight.requires_grad = False

    module = Net()
    found = _fit(x, module)
    module.freeze()
    frozen = [module.training, module.layer.bias.requires_grad]
    module.unfreeze()
    return {
        **found,
        "frozen": frozen,
        "thawed": [module.training, module.layer.weight.requires_grad],
    }


def optimizer_with_its_own_closure(x):
    """An optimizer that evaluates the closure it is given, as SAM is usually written."""

    class Own(torch.optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 0.1})

        @torch.no_grad()
        def step(self, closure=None):
            with torch.enable_grad():
                loss = closure()
            for group in self.param_groups:
                for param in group["params"]:
                    param.add_(param.grad, alpha=-group["lr"])
            return loss

    class Net(x.Net):
        def configure_optimizers(self):
            return Own(self.parameters())

    return _fit(x, Net())


def a_new_optimizer_in_a_run(x):
    """`trainer.optimizers` that is set goes on with others."""

    class Net(x.Net):
        def on_train_epoch_start(self):
            if self.current_epoch == 1:
                self.trainer.optimizers = [Adam(self.parameters(), lr=0.01)]

    return _fit(x, Net(), max_epochs=2)


def no_optimizer_and_max_steps(x):
    """`max_steps` ends a fit that has no optimizer."""

    class Net(x.Net):
        def configure_optimizers(self):
            return None

        def on_train_batch_start(self, batch, batch_idx):
            assert self.trainer.current_epoch < 5, "endless"

    return _fit(x, Net(), max_epochs=None, max_steps=6)


def steps_inside_optimizer_step(x):
    """`global_step` as an `optimizer_step` sees it, before and after it steps."""
    seen = []

    class Net(x.Net):
        def optimizer_step(self, *args, **kwargs):
            seen.append(self.trainer.global_step)
            super().optimizer_step(*args, **kwargs)
            seen.append(self.trainer.global_step)

    return {**_fit(x, Net()), "seen": seen}
