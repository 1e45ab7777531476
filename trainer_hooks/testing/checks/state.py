"""Checks of a callback's state: its key, its way through a file, and what a checkpoint holds."""

from __future__ import annotations

import copy
import os
import re
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.checkpoint import load_checkpoint
from trainer_hooks.errors import CheckpointStateError
from trainer_hooks.hooks import Band
from trainer_hooks.testing.comparing import differences, listed
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from trainer_hooks.module import Module
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.testing.checks.finding import Findings
    from trainer_hooks.trainer import Trainer

__all__ = ["check_neighbours", "check_state_key", "check_state_round_trip"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def check_state_key(bench: Bench) -> Findings:
    """Find keys that would be another in the next process."""
    first, second = bench.make(), bench.make()
    remedy = "Return self._generate_state_key(...) with arguments that are the same in every run."
    if first.state_key != second.state_key:
        seen = f"{first.state_key!r} and {second.state_key!r}"
        yield Defect("two callbacks of one factory have the same state_key", seen, remedy)
        return
    address = _ADDRESS.search(first.state_key)
    passing = {
        "an address": address[0] if address else None,
        "the id of the callback": str(id(first)),
        "the number of the process": rf"\b{os.getpid()}\b",
    }
    for what, pattern in passing.items():
        if pattern is not None and re.search(pattern, first.state_key):
            yield Defect(
                "the state_key is the same in the next process",
                f"{first.state_key!r} holds {what}",
                remedy,
            )


class _Reader(Callback):
    """Notes what a callback says of its state when a checkpoint was put back."""

    band = Band.TRANSFORM  # before the callback goes on from its state

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.read: dict[str, Any] = {}

    def on_after_load(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any] | None
    ) -> None:
        """Note it."""
        self.read = copy.deepcopy(self.callback.state_dict())


def check_state_round_trip(bench: Bench) -> Findings:
    """Find states that do not come back from a file as they were saved."""
    callback, fresh = bench.make(), bench.make()
    reader = _Reader(fresh)
    with bench.room() as folder:
        file = folder / "state.ckpt"
        trainer = bench.trainer(callback)
        trainer.fit(bench.make_module())
        try:
            trainer.save_checkpoint(file)
        except CheckpointStateError as error:
            yield Defect("the state can be saved", str(error), "Save plain data and tensors.")
            return
        trainer.close()
        saved = load_checkpoint(file)["callbacks"]
        other = bench.trainer(reader, fresh)
        other.fit(bench.make_module(), ckpt_path=file)
        other.close()
    found = differences(saved.get(callback.state_key, {}), reader.read, "state")
    if found:
        yield Defect(
            "what a new callback returns after load_state_dict is what was saved",
            f"saved and returned differ at {listed(found)}",
            "Take back in load_state_dict every item that state_dict returns, of the same type.",
        )


class _Witness(Callback):
    """A neighbour with a state of its own, which looks at checkpoints."""

    band = Band.TRANSFORM

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return something that would be missed."""
        return {"of": type(self).__name__}

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Keep what there is."""
        self.seen = {
            "keys": set(checkpoint),
            "states": copy.deepcopy(checkpoint.get("callbacks", {})),
        }


class _LastWitness(_Witness):
    """One that looks when the callback had its turn."""

    band = Band.SAVE


def check_neighbours(bench: Bench) -> Findings:
    """Find callbacks that change what belongs to others: hyperparameters, states, other keys."""
    callback, module = bench.make(), bench.make_module()
    before, after = _Witness(), _LastWitness()
    hparams = copy.deepcopy(dict(module.hparams))
    with bench.room() as folder:
        trainer = bench.trainer(before, callback, after)
        trainer.fit(module)
        trainer.save_checkpoint(folder / "all.ckpt")
        trainer.close()
    found = differences(hparams, dict(module.hparams), "hparams")
    if found:
        yield Defect(
            "the module's hyperparameters are as they were",
            listed(found),
            "Copy what you want to change.",
        )
    for seen in (before.seen["states"], after.seen["states"]):
        seen.pop(callback.state_key, None)
    found = [f"the key {key!r} is gone" for key in before.seen["keys"] - after.seen["keys"]]
    found += differences(before.seen["states"], after.seen["states"], "checkpoint['callbacks']")
    if found:
        yield Defect(
            "on_save_checkpoint leaves other callbacks' states in the checkpoint",
            listed(found),
            "Write under a key of your own, or return it from state_dict.",
        )
