"""Optimizers: forms of `configure_optimizers`, and the order of a step."""

from __future__ import annotations

import torch
from shared import fitted
from torch.optim import SGD, Adam

from programs import differs, error


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
    found = fitted(x, x.recorded(x.Net, *names, into=calls)(), batches=1)
    return {"calls": calls, **found}


def one_optimizer(x):
    """An optimizer alone."""
    return fitted(x, x.Net())


def a_list_of_one(x):
    """A list with one optimizer."""

    class Net(x.Net):
        def configure_optimizers(self):
            return [Adam(self.parameters(), lr=0.05)]

    return fitted(x, Net())


def no_optimizer(x):
    """None: the loop runs, and nothing is trained."""

    class Net(x.Net):
        def configure_optimizers(self):
            return None

    return fitted(x, Net())


def two_lists(x):
    """A list of optimizers and one of schedulers."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]

    return fitted(x, Net(), max_epochs=3)


@differs(
    "The class of some errors",
    error=(error("RuntimeError"), error("OptimizationError")),
)
def several_in_automatic_optimization(x):
    """Several optimizers need manual optimization."""

    class Net(x.Net):
        def configure_optimizers(self):
            return [SGD(self.parameters(), lr=0.1), SGD(self.parameters(), lr=0.1)]

    return {"error": x.error(lambda: fitted(x, Net()))}


def configured_wrongly(x):
    """What `configure_optimizers` may not return."""

    def of(returned):
        class Net(x.Net):
            def configure_optimizers(self):
                return returned(SGD(self.parameters(), lr=0.1))

        return x.error(lambda: fitted(x, Net()))

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
    "An unknown key of the dict of an optimizer or a scheduler",
    error=("none", {"kinds": ["OptimizationError"]}),
)
def unknown_key_of_a_scheduler(x):
    """A misspelt key of a scheduler's dict."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
            return [optimizer], [{"scheduler": scheduler, "intervall": "step"}]

    return {"error": x.error(lambda: fitted(x, Net()))}


def no_optimizer_and_max_steps(x):
    """`max_steps` ends a fit that has no optimizer."""

    class Net(x.Net):
        def configure_optimizers(self):
            return None

        def on_train_batch_start(self, batch, batch_idx):
            assert self.trainer.current_epoch < 5, "endless"

    return fitted(x, Net(), max_epochs=None, max_steps=6)


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

    return fitted(x, Net())


def a_new_optimizer_in_a_run(x):
    """`trainer.optimizers` that is set goes on with others."""

    class Net(x.Net):
        def on_train_epoch_start(self):
            if self.current_epoch == 1:
                self.trainer.optimizers = [Adam(self.parameters(), lr=0.01)]

    return fitted(x, Net(), max_epochs=2)


def frozen_layers(x):
    """`freeze` and `unfreeze`."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.layer.weight.requires_grad = False

    module = Net()
    found = fitted(x, module)
    module.freeze()
    frozen = [module.training, module.layer.bias.requires_grad]
    module.unfreeze()
    return {
        **found,
        "frozen": frozen,
        "thawed": [module.training, module.layer.weight.requires_grad],
    }


@differs(
    "`self.optimizers().step()` with automatic optimization",
    error=("none", {"kinds": ["UsageError"]}),
)
def step_by_hand_beside_the_trainer(x):
    """A step of one's own in automatic optimization."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.optimizers().step()
            return self.cost(batch)

    return {"error": x.error(lambda: fitted(x, Net()))}


@differs("A second `fit` with the same module", rate=(0.05, 0.025))
def second_fit(x):
    """The rate of a scheduler after a fit of one epoch, twice."""

    class Net(x.Net):
        def configure_optimizers(self):
            optimizer = SGD(self.parameters(), lr=0.1)
            return [optimizer], torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    module = Net()
    trainer = x.trainer(max_epochs=1)
    trainer.fit(module, x.loader(2))
    first = trainer.optimizers[0].param_groups[0]["lr"]
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, x.loader(2))
    return {"first": first, "rate": trainer.optimizers[0].param_groups[0]["lr"]}
