"""Run a random configuration uncut, saving, and cut and resumed; tell where they differ."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import traceback
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from conftest import differences, scramble
from random_recording import (
    IN_TRAINING,
    IN_VALIDATION,
    OTHER_HOOKS,
    Cut,
    Cutter,
    Recorder,
    digest,
    random_numbers,
)
from random_setups import Setup, setup_of
from random_space import trainer_class

from trainer_hooks.callbacks import Checkpoint, ModelCheckpoint
from trainer_hooks.errors import TerminationSignal, TrainerHooksError, TrainerHooksWarning

if TYPE_CHECKING:
    from pathlib import Path

    from trainer_hooks import Trainer

Options = dict[str, Any]

OFF: dict[str, Any] = {
    "logger": False,
    "plugins": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
INEXACT = ("exact", "cannot be found", "is another", "other random numbers", "hooks of that moment")


class Leaving(ModelCheckpoint):
    """Saves where a signal comes, and nowhere else."""


@dataclass
class Outcome:
    """What a run left behind."""

    recorder: Recorder
    cutter: Cutter
    metrics: dict[str, Any] = field(default_factory=dict)
    random_numbers: list[Any] = field(default_factory=list)
    is_cut: bool = False
    warned: list[str] = field(default_factory=list)


def run(
    options: Options,
    folder: Path,
    *,
    saves: Any = (),
    cut: tuple[str, Any] = ("", None),
    resume_from: Path | None = None,
    seed: int = 3,
) -> Outcome:
    """Run a configuration; everything is made anew, as in a new process."""
    if resume_from is None:
        shutil.rmtree(folder / "saved", ignore_errors=True)
    (folder / "own").mkdir(parents=True, exist_ok=True)
    scramble(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchdata's loader calls what torch deprecates
        setup = setup_of(options, folder / "saved")
    recorder = Recorder()
    cutter = Cutter(folder / "own", recorder)
    cutter.saves, (cutter.how, cutter.at) = set(saves), cut
    leaving = []
    if options["cut"].startswith("signal"):
        leaving = [Leaving(folder / "left", save_on_exception=True, save_top_k=0)]
        if resume_from is None:
            shutil.rmtree(folder / "left", ignore_errors=True)
    outcome = Outcome(recorder, cutter)
    printed = contextlib.redirect_stdout(io.StringIO())
    with warnings.catch_warnings(record=True) as caught, printed:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", TrainerHooksWarning)
        callbacks = [recorder, *leaving, *setup.callbacks, cutter]
        trainer = trainer_class(options)(
            callbacks=callbacks,
            default_root_dir=folder,
            accelerator=options["accelerator"],
            enable_checkpointing=any(isinstance(one, Checkpoint) for one in callbacks),
            **{**OFF, **setup.options},
        )
        if resume_from is not None:
            scramble(seed + 40)
        try:
            trainer.fit(setup.module, setup.train, setup.val, ckpt_path=resume_from)
        except (Cut, TerminationSignal):
            outcome.is_cut = True
    _note(outcome, trainer, setup)
    outcome.warned = [str(one.message) for one in caught]
    return outcome


def _note(outcome: Outcome, trainer: Trainer, setup: Setup) -> None:
    both = {**trainer.callback_metrics, **trainer.logged_metrics}
    outcome.metrics = {name: digest(value) for name, value in both.items()}
    outcome.metrics["weights"] = digest(dict(setup.module.state_dict()))
    outcome.random_numbers = random_numbers()
    own = outcome.cutter.end.get("trainer_hooks", {})
    own.pop("wall_times", None)
    # a loader that keeps its own position can be led to the end of its last epoch from several
    own.get("stream", {}).pop("last_epoch", None)


def compared(uncut: Outcome, other: Outcome, calls_before: int | None) -> list[str]:
    """Return how a run differs from what is left of the uncut one.

    Args:
        uncut: the run to compare with.
        other: another.
        calls_before: how many calls of the uncut one the other did not make; None: count back.
    """
    calls = other.recorder.calls
    names = [call[0] for call in calls]
    if calls_before != 0:
        calls = calls[names.index("on_train_start") + 1 :] if "on_train_start" in names else calls
    before = len(uncut.recorder.calls) - len(calls) if calls_before is None else calls_before
    found = []
    expected = uncut.recorder.calls[max(before, 0) :]
    for number, (first, second) in enumerate(zip(expected, calls, strict=False)):
        wrong = differences(first, second)
        if wrong:
            found.append(f"call {number}, {first[0]} {first[1]}: {wrong[0]}; got {second[0]}")
            break
    if len(expected) != len(calls):
        found.append(f"{len(expected)} and {len(calls)} calls")
    found += differences(uncut.cutter.end, other.cutter.end, "end")[:4]
    found += differences(uncut.metrics, other.metrics, "metrics")[:3]
    found += differences(uncut.random_numbers, other.random_numbers, "random numbers")
    return [text if len(text) < 300 else f"{text[:300]}..." for text in found]


@dataclass
class Result:
    """What became of a configuration: `same`, `refused`, `warned` or `differs`, and how."""

    status: str
    details: list[str] = field(default_factory=list)


def examine(options: Options, folder: Path, seed: int) -> Result:
    """Run a configuration uncut, uncut with saves, and cut and resumed; compare."""
    is_run = False
    try:
        uncut = run(options, folder)
        is_run = True
        return _compared_with(uncut, options, folder, random.Random(seed))
    except TrainerHooksError as error:
        status = "differs" if is_run else "refused"
        return Result(status, [f"{type(error).__name__}: {error} at {_place(error)}"])
    except Exception as error:
        told = f"{type(error).__name__}: {str(error)[:300]} at {_place(error)}"
        return Result("differs", [told if is_run else f"the uncut run fails: {told}"])


def _place(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def _compared_with(uncut: Outcome, options: Options, folder: Path, chosen: random.Random) -> Result:
    """Compare an uncut run with one that saves, and with one that is cut."""
    places = sorted(set(uncut.cutter.slots), key=uncut.cutter.slots.index)
    if not places:
        return Result("refused", ["there is nothing to cut"])
    saving = run(options, folder, saves=chosen.sample(places, min(3, len(places))))
    wrong = compared(uncut, saving, 0)
    if wrong:
        return Result("differs", ["saving changes the run", *wrong])
    return _cut(options, folder, chosen, uncut, saving)


def _cut(
    options: Options, folder: Path, chosen: random.Random, uncut: Outcome, saving: Outcome
) -> Result:
    """Cut a run, resume it, perhaps cut it again, and compare."""
    how = options["cut"]
    said: list[str] = []
    if how == "file":
        place, (path, before) = chosen.choice(sorted(saving.cutter.saved.items(), key=str))
    elif how in ("error", "stop"):
        place = chosen.choice(uncut.cutter.slots)
        first = run(options, folder, cut=(how, place))
        path, before = first.cutter.saved[place]
    else:
        place, first = _broken_off(options, folder, chosen, uncut)
        said = first.warned
        if not first.is_cut:
            return Result("differs", [f"{how} at {place}: it did not end the run"])
        if how == "hook":
            path, before = first.cutter.saved[place][0], None
        else:
            (path,), before = (folder / "left").glob("preempted*.ckpt"), None
    resumed = run(options, folder, resume_from=path, seed=77)
    warned = said + resumed.warned
    wrong = compared(uncut, resumed, before)
    if not wrong and options["second_cut"] and resumed.cutter.slots:
        again = chosen.choice(resumed.cutter.slots)
        second = run(options, folder, resume_from=path, cut=("error", again), seed=78)
        third = run(options, folder, resume_from=second.cutter.saved[again][0], seed=79)
        warned += third.warned
        wrong = compared(uncut, third, None)
        place = [place, again]
    if wrong and any(word in text for text in warned for word in INEXACT):
        return Result("warned", warned)
    return Result("differs", [f"cut by {how} at {place}", *wrong]) if wrong else Result("same")


def _broken_off(
    options: Options, folder: Path, chosen: random.Random, uncut: Outcome
) -> tuple[Any, Outcome]:
    """Run until a hook of the kind that is drawn, and break off there."""
    how = options["cut"]
    hooks = {"signal": IN_TRAINING, "signal in validation": IN_VALIDATION, "hook": OTHER_HOOKS}[how]
    counts = uncut.cutter.counts
    fired = [hook for hook in hooks if counts.get(hook)]  # none if no validation was due
    hook = chosen.choice(fired or [hook for hook in IN_TRAINING if counts.get(hook)])
    place = hook, chosen.randint(1, counts[hook])
    # lazy weights cannot be saved before their first batch
    if how == "hook" and options["layers"] == "lazy" and place == ("on_train_epoch_start", 1):
        place = "on_train_batch_end", 1
    return place, run(options, folder, cut=(how, place))
