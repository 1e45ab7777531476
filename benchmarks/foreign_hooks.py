"""What a hook of a foreign callback costs over one of ours: `python benchmarks/foreign_hooks.py`.

Needs pytorch-lightning. Each figure is the least of several rounds, so that a busy machine matters
less; "lacking" is a hook that the callback does not override.
"""

from __future__ import annotations

import timeit
from types import SimpleNamespace

import pytorch_lightning
import torch

from trainer_hooks import Callback, Module
from trainer_hooks.connector import CallbackConnector

CALLS, ROUNDS = 100_000, 7


class Native(Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        pass


class Foreign(pytorch_lightning.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        pass


class Trainer(SimpleNamespace):
    __hash__ = object.__hash__


def microseconds(callback: object, hook: str, *arguments: object) -> float:
    """Return what one firing of a hook costs with a callback alone."""
    relay = CallbackConnector([callback], discover=False).relay
    trainer, module = Trainer(), Module()
    fire = getattr(relay, hook)
    rounds = timeit.repeat(lambda: fire(trainer, module, *arguments), number=CALLS, repeat=ROUNDS)
    return min(rounds) / CALLS * 1e6


def main() -> None:
    batch = torch.ones(2)
    for name, kind in (("native", Native), ("foreign", Foreign)):
        called = microseconds(kind(), "on_train_batch_start", batch, 0)
        lacking = microseconds(kind(), "on_after_backward")
        print(f"{name}: {called:.3f} µs called, {lacking:.3f} µs lacking")


if __name__ == "__main__":
    main()
