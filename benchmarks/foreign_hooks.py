"""What a hook of a foreign callback costs over one of ours, and one of ours in Lightning's Trainer.

`python benchmarks/foreign_hooks.py [Lightning|Composer|lent|...]` takes all, unless some are named.
Frameworks that are not installed are left out. The end of a training batch is measured inside of a
fit, whose trainer each adapter is handed; "lacking" is a hook that no callback overrides. Each
figure is the least of several rounds, so that a busy machine matters less.
"""

from __future__ import annotations

import importlib
import logging
import sys
import timeit
from typing import TYPE_CHECKING, Any

import trainer_hooks
import trainer_hooks.adapters
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.testing import TinyModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALLS, ROUNDS = 20_000, 7
GUESTS = {
    "Lightning": ("pytorch_lightning", "Callback", "on_train_batch_end"),
    "Composer": ("composer", "Callback", "batch_end"),
    "pytorch-accelerated": (
        "pytorch_accelerated.callbacks", "TrainerCallback", "on_train_step_end",
    ),
    "transformers": ("transformers", "TrainerCallback", "on_step_end"),
}  # fmt: skip
"""By framework: where its base class is, its name, and the method that a batch calls."""
HOOKS = {"pytorch-accelerated": "on_before_backward"}
"""The hook of ours that calls the method, where it is not the end of the batch."""


def nothing(self: object, *args: object, **kwargs: object) -> None:
    """Do nothing."""


class Native(trainer_hooks.Callback):
    """One of ours."""

    on_train_batch_end = nothing


def is_asked_for(framework: str) -> bool:
    """Return whether the command names a framework, or none."""
    return not sys.argv[1:] or framework in sys.argv[1:]


def guests() -> Iterator[tuple[str, Any, str]]:
    """Give the name, a callback and the hook of each framework that is installed."""
    yield "native", Native(), "on_train_batch_end"
    for framework, (package, base, method) in GUESTS.items():
        if not is_asked_for(framework):
            continue
        try:
            kind = getattr(importlib.import_module(package), base)
        except ImportError as error:
            print(f"{framework}: left out: {error}")
            continue
        guest = type("Guest", (kind,), {method: nothing})()
        yield framework, adapt_if_foreign(guest), HOOKS.get(framework, "on_train_batch_end")
    if not is_asked_for("Ignite"):
        return
    try:
        from ignite.engine import Events

        from trainer_hooks.adapters.ignite import adapt
    except ImportError as error:
        print(f"Ignite: left out: {error}")
        return
    handler = adapt(lambda engine: None, event=Events.ITERATION_COMPLETED)
    yield "Ignite", handler, "on_train_batch_end"


def least(call: Callable[[], object]) -> float:
    """Return what a call costs, in microseconds."""
    return min(timeit.repeat(call, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


class Measuring(trainer_hooks.Callback):
    """Fires a hook of another callback, alone, at the end of the second batch."""

    def __init__(self, callback: Any, hook: str) -> None:
        self.relay = CallbackConnector([callback], discover=False).relay
        self.hook = hook
        self.figures: tuple[float, float] | None = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx == 1 and self.figures is None:
            given = (outputs["loss"],) if self.hook == "on_before_backward" else None
            given = given or (outputs, batch, batch_idx)
            fire, lacking = getattr(self.relay, self.hook), self.relay.on_after_backward
            self.figures = (
                least(lambda: fire(trainer, module, *given)),
                least(lambda: lacking(trainer, module)),
            )


LENT = {
    "on_train_batch_start": 2,
    "on_before_backward": 1,
    "on_after_backward": 0,
    "on_before_optimizer_step": 1,
    "on_train_batch_end": 3,
}
"""The hooks of a batch in Lightning, and the number of their arguments after the module."""


def measure_lent() -> None:
    """Print what each hook of one of ours costs in Lightning's Trainer over one of a native one.

    Both are called in turns, so that a busy machine delays both.
    """
    try:
        import pytorch_lightning as pl
        import torch
        from torch.utils.data import DataLoader
    except ImportError as error:
        print(f"ours in Lightning: left out: {error}")
        return
    native = type("Native", (pl.Callback,), dict.fromkeys(LENT, nothing))()
    ours = type("Ours", (trainer_hooks.Callback,), dict.fromkeys(LENT, nothing))()
    lent = trainer_hooks.adapters.to_lightning(ours)

    class Net(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    class Measures(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx != 1:
                return
            for hook, count in LENT.items():
                given = ({"loss": torch.zeros(())}, batch, 1)[-count:] if count else ()
                costs = {}
                for _ in range(ROUNDS):
                    for name, callback in (("native", native), ("lent", lent)):
                        call = getattr(callback, hook)
                        cost = timeit.timeit(
                            lambda c=call, g=given: c(trainer, module, *g), number=CALLS
                        )
                        costs[name] = min(costs.get(name, cost), cost)
                least_native, least_lent = (costs[n] / CALLS * 1e6 for n in ("native", "lent"))
                print(
                    f"ours in Lightning, {hook}: {least_lent:.2f} µs, native {least_native:.2f} µs"
                )
            trainer.should_stop = True

    pl.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[native, lent, Measures()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(Net(), DataLoader(torch.rand(16, 4), batch_size=2))  # fmt: skip


def main() -> None:
    logging.disable()
    if is_asked_for("lent"):
        measure_lent()
    for framework, callback, hook in guests():
        measuring = Measuring(callback, hook)
        trainer_hooks.Trainer(
            callbacks=[callback, measuring], accelerator="cpu", logger=False, max_epochs=1,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            num_sanity_val_steps=0, plugins=False,
        ).fit(TinyModule())  # fmt: skip
        called, lacking = measuring.figures or (float("nan"), float("nan"))
        print(f"{framework}: {called:.2f} µs called, {lacking:.2f} µs lacking")


if __name__ == "__main__":
    main()
