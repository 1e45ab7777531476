"""What a hook of a foreign callback costs over one of ours.

`python benchmarks/foreign_hooks.py [Lightning|Composer|...]` takes all, unless some are named.
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


def main() -> None:
    logging.disable()
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
