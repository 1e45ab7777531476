"""What watches and cuts the runs of random configurations."""

from __future__ import annotations

import hashlib
import os
import random
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from trainer_hooks import Band, Callback, Trainer

if TYPE_CHECKING:
    from pathlib import Path

SLOTS = ("on_batch_checkpoint", "on_epoch_checkpoint", "on_iteration_checkpoint")
IN_TRAINING = ("on_train_batch_start", "on_before_backward", "on_train_batch_end")
IN_VALIDATION = ("on_validation_start", "on_validation_batch_start", "on_validation_batch_end")
OTHER_HOOKS = ("on_train_batch_end", "on_train_epoch_start", "on_train_epoch_end", "on_epoch_end")
WATCHED = {*IN_TRAINING, *IN_VALIDATION, *OTHER_HOOKS}


class Cut(Exception):
    """Ends a run after a save."""


def random_numbers() -> list[Any]:
    """Return where the global random numbers of each library are, in short."""
    _, numpy, place, *rest = np.random.get_state()
    return [
        hash(random.getstate()),
        hash((numpy.tobytes(), place, *rest)),
        hash(torch.get_rng_state().numpy().tobytes()),
    ]


def digest(value: Any) -> Any:
    """Return a batch, an output or a loss in short: the same for the same bits."""
    if isinstance(value, torch.Tensor):
        held = value.detach().contiguous()
        held = held.view(torch.uint8) if held.dim() else held.reshape(1).view(torch.uint8)
        bits = hashlib.blake2b(held.cpu().numpy().tobytes(), digest_size=8).hexdigest()
        return (str(value.dtype), tuple(value.shape), bits)
    if isinstance(value, dict):
        return {name: digest(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [digest(part) for part in value]
    return value if isinstance(value, int | float | str | type(None)) else type(value).__name__


class Recorder(Callback):
    """Note every hook call with the counters, digests of what it is given, and random numbers."""

    unseen = frozenset(
        {"on_save_checkpoint", "on_checkpoint_saved", "on_init_start", "on_init_end"}
    )

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def run_event(self, event: str, *args: Any) -> None:
        if event in self.unseen:
            return
        trainer = args[0]
        progress = trainer.progress
        counters = (progress.epochs_completed, progress.batches_completed, progress.steps_completed)
        given = [digest(arg) for arg in args[2:]]
        drawn = random_numbers() if event in IN_TRAINING else None
        is_last = trainer.is_last_batch
        self.calls.append([event, counters, is_last, given, drawn])


class Cutter(Callback):
    """Saves at chosen slots; cuts the run at a slot, or by a signal at some call of a hook."""

    band = Band.SAVE

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self.folder, self.recorder = folder, recorder
        self.saves: set[Any] = set()
        self.how, self.at = "", None
        self.slots: list[Any] = []
        self.counts: dict[str, int] = {}
        self.saved: dict[Any, tuple[Path, int]] = {}
        self.end: dict[str, Any] = {}

    def run_event(self, event: str, *args: Any) -> None:
        trainer = args[0]
        if event == "on_train_end":
            path = self.folder / "end.ckpt"
            trainer.save_checkpoint(path)
            self.end = torch.load(path, weights_only=True)
        elif event in SLOTS:
            self._slot(trainer, (event, trainer.current_epoch, trainer.progress.batches_completed))
        elif event in WATCHED and not trainer.sanity_checking:
            self.counts[event] = self.counts.get(event, 0) + 1
            if self.at == (event, self.counts[event]):
                self._act(trainer)

    def _slot(self, trainer: Trainer, slot: Any) -> None:
        self.slots.append(slot)
        if slot in self.saves or slot == self.at:
            self._save(trainer, slot)
        if slot == self.at and self.how == "error":
            raise Cut
        if slot == self.at and self.how == "stop":
            trainer.stop("cut here")

    def _act(self, trainer: Trainer) -> None:
        if self.how == "hook":
            self._save(trainer, self.at)
            raise Cut
        os.kill(os.getpid(), signal.SIGTERM)

    def _save(self, trainer: Trainer, place: Any) -> None:
        path = self.folder / f"{'-'.join(map(str, place))}.ckpt"
        trainer.save_checkpoint(path)
        self.saved[place] = path, len(self.recorder.calls)
