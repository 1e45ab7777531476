"""Steps of optimizers: closures, overrides, losses that are missing, gradients."""

from __future__ import annotations

import importlib

import torch
from shared import fitted
from torch.optim import LBFGS, SGD

from programs import differs, error


def lbfgs(x):
    """An optimizer that evaluates its closure several times."""
    steps = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            steps.append(batch_idx)
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            return LBFGS(self.parameters(), lr=0.1, max_iter=3)

    return {"steps": steps, **fitted(x, Net(), batches=2)}


def lbfgs_hooks(x):
    """The hooks around a closure that runs several times."""

    class Net(x.Net):
        def configure_optimizers(self):
            return LBFGS(self.parameters(), lr=0.1, max_iter=2)

    hooks = x.hooks("on_before_backward", "on_after_backward", "on_before_optimizer_step")
    return {**fitted(x, Net(), hooks, batches=1), "calls": hooks.calls}


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

    return {**fitted(x, Net(), max_epochs=2), "seen": [one[:2] + one[3:] for one in seen]}


def optimizer_step_warms_up(x):
    """The documentation's warm-up: the learning rate is set after `super().optimizer_step`."""

    class Net(x.Net):
        def optimizer_step(self, *args, **kwargs):
            super().optimizer_step(*args, **kwargs)
            if self.trainer.global_step < 3:
                for group in self.trainer.optimizers[0].param_groups:
                    group["lr"] = 0.1 * (self.trainer.global_step + 1) / 3

    return fitted(x, Net())


def closure_returns(x):
    """What the closure returns to `optimizer_step`."""
    seen = []

    class Net(x.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure):
            seen.append(optimizer_closure())
            optimizer.step()

    found = fitted(x, Net())
    return {"seen": seen, **found}


def optimizer_zero_grad_override(x):
    """`optimizer_zero_grad` is given epoch, batch and optimizer."""
    seen = []

    class Net(x.Net):
        def optimizer_zero_grad(self, epoch, batch_idx, optimizer):
            seen.append([epoch, batch_idx, isinstance(optimizer, SGD)])
            optimizer.zero_grad(set_to_none=False)

    found = fitted(x, Net(), max_epochs=2, accumulate_grad_batches=2)
    return {"seen": seen, **found}


def backward_override(x):
    """`backward` is given the loss, and may scale it."""

    class Net(x.Net):
        def backward(self, loss, *args, **kwargs):
            (loss * 2).backward()

    return fitted(x, Net())


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

    error = x.error(
        lambda: fitted(x, Net(), gradient_clip_val=0.1, gradient_clip_algorithm="value")
    )
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

    found = fitted(x, Net(), batches=1)
    return {"seen": seen, **found}


def gradients_before_clipping(x):
    """`on_before_optimizer_step` sees the gradients before they are clipped."""
    seen = []

    class Net(x.Net):
        def on_before_optimizer_step(self, optimizer):
            seen.append(self.layer.weight.grad)

    found = fitted(x, Net(), batches=1, gradient_clip_val=0.001)
    return {"seen": seen, **found}


def loss_in_a_dict(x):
    """`training_step` may return a dict with the loss; the hooks are given it."""
    seen = []

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            return {"loss": self.cost(batch), "size": len(batch)}

        def on_train_batch_end(self, outputs, batch, batch_idx):
            seen.append([sorted(outputs), outputs["size"], outputs["loss"].requires_grad])

    return {**fitted(x, Net()), "seen": seen}


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

    found = fitted(x, Net(), accumulate_grad_batches=2)
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

    return {**fitted(x, Net()), "seen": seen}


@differs(
    "`training_step` that returns None for each batch of an epoch",
    error=("none", {"kinds": ["ModuleError"]}),
)
def steps_that_all_return_none(x):
    """A forgotten `return`."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            self.cost(batch)

    return {"error": x.error(lambda: fitted(x, Net()))}


def an_optimizer_step_without_its_closure(x):
    """An override that forgets the closure would train nothing."""

    class Net(x.Net):
        def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure=None):
            optimizer.step()

    return {"error": x.error(lambda: fitted(x, Net()))}


def steps_inside_optimizer_step(x):
    """`global_step` as an `optimizer_step` sees it, before and after it steps."""
    seen = []

    class Net(x.Net):
        def optimizer_step(self, *args, **kwargs):
            seen.append(self.trainer.global_step)
            super().optimizer_step(*args, **kwargs)
            seen.append(self.trainer.global_step)

    return {**fitted(x, Net()), "seen": seen}


def grad_norm(x):
    """`grad_norm` of a module's gradients."""
    norms = importlib.import_module(x.utilities).grad_norm
    seen = []

    class Net(x.Net):
        def on_before_optimizer_step(self, optimizer):
            seen.append(norms(self.layer, norm_type=2))

    x.trainer().fit(Net(), x.loader(2))
    return {"seen": seen}


def several_losses(x):
    """A loss of several parts, logged apart, with a weight that is a buffer."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.register_buffer("share", torch.tensor(0.3))

        def training_step(self, batch, batch_idx):
            first, second = self.cost(batch), self.layer.weight.abs().sum()
            self.log_dict({"first": first, "second": second}, prog_bar=True)
            return {"loss": first + self.share * second, "first": first.detach()}

    module, journal = Net(), x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=2, max_epochs=2)
    trainer.fit(module, x.loader(3))
    return {"weights": x.weights(module), "rows": journal.rows, **x.metrics(trainer)}
