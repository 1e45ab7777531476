"""Manual optimization: steps by hand, toggling, several optimizers."""

from __future__ import annotations

from typing import Any

import torch
from shared import fitted
from torch.optim import SGD, Adam

from programs import differs


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

    return fitted(x, Net(), max_epochs=2)


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

    return fitted(x, Net(), max_epochs=2)


def manual_with_two(x):
    """Two optimizers: each step counts."""

    class Net(_pair(x)):
        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            for optimizer, layer in ((first, self.layer), (second, self.other)):
                optimizer.zero_grad()
                self.manual_backward(layer(batch).square().mean())
                optimizer.step()

    return fitted(x, Net())


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

    found = fitted(x, x.recorded(Net, *names, into=calls)(), batches=2)
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

    return fitted(x, Net())


def manual_refuses(x):
    """Clipping and accumulation are no options of manual optimization."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            pass

    return {
        "clipping": x.error(lambda: fitted(x, Net(), gradient_clip_val=1.0)),
        "accumulation": x.error(lambda: fitted(x, Net(), accumulate_grad_batches=2)),
    }


def manual_backward_in_automatic(x):
    """`manual_backward` is for manual optimization alone."""

    class Net(x.Net):
        def training_step(self, batch, batch_idx):
            loss = self.cost(batch)
            self.manual_backward(loss)
            return loss

    return {"error": x.error(lambda: fitted(x, Net()))}


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

    fitted(x, Net(), batches=1)
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

    fitted(x, Net(), batches=1)
    return {"seen": seen}


def gan(x):
    """A generator and a discriminator in manual optimization with schedulers."""

    class Gan(x.Module):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.made, self.judged = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
            with torch.no_grad():
                for number, parameter in enumerate(self.parameters()):
                    parameter.fill_(0.1 * (number + 1))

        def training_step(self, batch, batch_idx):
            first, second = self.optimizers()
            self.toggle_optimizer(first)
            loss = -self.judged(self.made(batch)).mean()
            self.log("g", loss, prog_bar=True)
            self.manual_backward(loss)
            first.step()
            first.zero_grad()
            self.untoggle_optimizer(first)
            self.toggle_optimizer(second)
            loss = self.judged(self.made(batch).detach()).mean() - self.judged(batch).mean()
            self.log("d", loss, prog_bar=True)
            self.manual_backward(loss)
            second.step()
            second.zero_grad()
            self.untoggle_optimizer(second)

        def on_train_epoch_end(self):
            for scheduler in self.lr_schedulers():
                scheduler.step()

        def configure_optimizers(self):
            first = torch.optim.Adam(self.made.parameters(), 0.01, betas=(0.5, 0.9))
            second = torch.optim.Adam(self.judged.parameters(), 0.02)
            return [first, second], [
                torch.optim.lr_scheduler.ExponentialLR(one, 0.5) for one in (first, second)
            ]

    module, journal = Gan(), x.journal()
    trainer = x.trainer(logger=journal, log_every_n_steps=1, max_epochs=2)
    trainer.fit(module, x.loader(3))
    return {"weights": x.weights(module), "rows": journal.rows, "counters": x.counters(trainer)}


def manual_and_checkpoints(x):
    """Manual optimization with two optimizers and saves by steps."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.cost(batch))
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]

    saver = x.callbacks.ModelCheckpoint(
        dirpath=x.folder / "saved", every_n_train_steps=4, save_top_k=-1, filename="{step}"
    )
    trainer = x.trainer(saver, enable_checkpointing=True)
    trainer.fit(Net(), x.loader(6))
    return {"files": x.files("saved/*"), "step": trainer.global_step}


def logging_axis_in_manual_optimization(x):
    """The x axis of loggers where two optimizers step in a batch."""

    class Net(x.Net):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            self.log("i", float(batch_idx))
            for optimizer in self.optimizers():
                self.manual_backward(self.cost(batch))
                optimizer.step()
                optimizer.zero_grad()

        def configure_optimizers(self):
            return [torch.optim.SGD(self.parameters(), 0.1) for _ in range(2)]

    journal = x.journal()
    x.trainer(logger=journal, log_every_n_steps=2).fit(Net(), x.loader(4))
    return {"rows": journal.rows}
