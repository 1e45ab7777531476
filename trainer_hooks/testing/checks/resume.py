"""The check that a run which died and was resumed is the run that never died."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band
from trainer_hooks.runtime import rng
from trainer_hooks.testing.checks.finding import Findings, Note, raised
from trainer_hooks.testing.comparing import differences, listed
from trainer_hooks.testing.report import Defect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainer_hooks.module import Module
    from trainer_hooks.testing.bench import Bench
    from trainer_hooks.trainer import Trainer

__all__ = ["check_resumes"]

_SEED = 3
_PARTS = {
    "state": (
        "the callback's state",
        (
            "Return from state_dict everything that the callback goes by, and take it back in "
            "load_state_dict. Reset it in on_fit_start only if trainer.progress.is_fresh. Name "
            "keys that are meant to differ, such as times, in the class's volatile_state."
        ),
    ),
    "training": (
        "the weights and optimizers, bit for bit,",
        "What the callback does to the training must follow from its saved state.",
    ),
}
"""What can differ: how it is called, and what to do about it."""


class _Cutter(Callback):
    """Saves at every slot. In the run that is cut, the whole folder is kept as it was then.

    It saves in resumed runs as well, to the same names: a callback that hears of saved files hears
    of the same ones.
    """

    band = Band.SAVE

    def __init__(self, folder: Path, archive: Path | None = None) -> None:
        self.folder = folder
        self.archive = archive
        self.cuts: list[str] = []

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Cut after a batch, and after the validation that was due on it."""
        self._cut(trainer, f"batch {trainer.progress.batches_completed}")

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Cut at the end of an epoch."""
        self._cut(trainer, f"epoch {trainer.current_epoch + 1}")

    def _cut(self, trainer: Trainer, name: str) -> None:
        trainer.save_checkpoint(_cut_file(self.folder, name))
        if self.archive is not None:
            shutil.copytree(self.folder, self.archive / name)
            self.cuts.append(name)


def check_resumes(bench: Bench) -> Findings:
    """Find cuts after which the callback's state, or the training, ends otherwise than uncut.

    At each batch and epoch, the checkpoint and the folder are kept as they are at that moment. A
    resumed run finds them so, with a new callback, a new module and other random numbers.
    """
    archive = bench.folder / "archive"
    with bench.room() as folder:
        cutter = _Cutter(folder, archive)
        uncut = _fit(bench, cutter)
    found: dict[str, dict[str, str]] = {"state": {}, "training": {}}
    for name in cutter.cuts:
        shutil.rmtree(folder)
        # the folder must have the same name, which is part of many a state: a file's path
        shutil.copytree(archive / name, folder)
        try:
            with bench.at(folder):
                resumed = _fit(bench, _Cutter(folder), resume_from=_cut_file(folder, name))
        except Exception as error:  # noqa: BLE001 - reported, with the cut
            yield raised(error, f"in a run that was cut after {name} and resumed")
            continue
        for part, differing in _compared(bench, uncut, resumed):
            found[part][name] = differing
    yield from _defects(found)
    yield Note(f"{len(cutter.cuts)} cuts")


def _cut_file(folder: Path, name: str) -> Path:
    """Return where a cut is saved; never by the working directory, which a callback may change."""
    return folder / "cuts" / f"{name}.ckpt"


def _fit(bench: Bench, cutter: _Cutter, resume_from: Path | None = None) -> dict[str, Any]:
    """Return the checkpoint at the end of a fit."""
    with rng.isolated():
        rng.reseed(_SEED if resume_from is None else _SEED + 1)
        trainer = bench.trainer(bench.make(), cutter)
        trainer.fit(bench.make_module(), ckpt_path=resume_from)
        end = cutter.folder / "end.ckpt"
        trainer.save_checkpoint(end)
        trainer.close()
        checkpoint: dict[str, Any] = torch.load(end, weights_only=True)
    return checkpoint


def _compared(
    bench: Bench, uncut: dict[str, Any], resumed: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield what differs: the callback's state, the training, or both."""
    states = differences(_states(bench, uncut), _states(bench, resumed), "callbacks")
    if states:
        yield "state", listed(states)
    training = differences(_training(uncut), _training(resumed), "checkpoint")
    if training:
        yield "training", listed(training)


def _defects(found: dict[str, dict[str, str]]) -> Findings:
    """Yield a defect for each part that differs, with all cuts and the first one's differences."""
    for part, of_cuts in found.items():
        if of_cuts:
            what, remedy = _PARTS[part]
            first = next(iter(of_cuts))
            yield Defect(
                f"a run that is cut anywhere and resumed ends with {what} of an uncut run",
                f"not if cut after {', '.join(of_cuts)}. After {first}, uncut and resumed differ "
                f"at {of_cuts[first]}",
                remedy,
            )


def _states(bench: Bench, end: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the callbacks' states, less what may be another."""
    volatile = bench.may_differ.union(bench.make().volatile_state)
    return {
        key: {name: value for name, value in state.items() if name not in volatile}
        for key, state in end["callbacks"].items()
    }


def _training(end: dict[str, Any]) -> dict[str, Any]:
    """Return the rest of a checkpoint, less what is about the process and not the training."""
    return {key: value for key, value in end.items() if key not in ("callbacks", "trainer_hooks")}
