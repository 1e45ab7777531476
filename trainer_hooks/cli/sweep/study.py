"""The Optuna study of a sweep: its definition, its trials and their folders.

The study lies in a journal file in the sweep's folder. The process of the sweep asks for the
trials, and the process of each trial reports its metric to the same file.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from trainer_hooks._annotations import signature_of
from trainer_hooks._system import shell_line
from trainer_hooks._text import printable
from trainer_hooks.cli.sweep.search_space import combinations, parse_arguments
from trainer_hooks.errors import OptionError, UsageError, did_you_mean, error_message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from optuna.trial import FrozenTrial

    from trainer_hooks.cli.sweep.search_space import SweptArgument

GRID = "grid"
"""The sampler that tries each combination of the choices once."""

DONE = (TrialState.COMPLETE, TrialState.PRUNED)
"""The states of trials that need no further run."""

_JOURNAL = "study.log"
_DEFINITION = "definition"
_FOLDER = "folder"
_RETRIED = "retried"
_NOT_BY_NAME = ("Base", "Nop", "Grid", "Threshold")
"""Beginnings of the classes that no `--sampler` and `--pruner` make: a threshold needs a number."""

_REHEARSED = 12
"""The number of trials that are tried without training.

Fewer drawn trials would not show an error: samplers draw the first ten at random.
"""

_UNSEEDED_BY_TRIAL = "QMCSampler"
"""Its sequence is one of the whole study, with one seed."""


@dataclass(frozen=True, slots=True)
class SweepDefinition:
    """The choices that all starts of a sweep share.

    Attributes:
        config: the absolute path of the config.
        config_text: its contents.
        settings: the texts of the `--set` options.
        monitor: the metric that is compared.
        mode: `"min"` or `"max"`: which values of it are better.
        sampler: `"grid"`, or an Optuna sampler by its short name.
        pruner: `"none"`, or an Optuna pruner by its short name.
        seed: the seed of the sampler.
    """

    config: str
    config_text: str
    settings: list[str]
    monitor: str
    mode: str
    sampler: str
    pruner: str
    seed: int

    @property
    def arguments(self) -> tuple[SweptArgument, ...]:
        """The arguments that differ between trials, and their values."""
        return parse_arguments(self.settings)


@dataclass(slots=True)
class SweepStudy:
    """The study of a sweep.

    Attributes:
        folder: the folder of the sweep.
        study: Optuna's study.
        definition: the choices that were made when it began.
    """

    folder: Path
    study: optuna.Study
    definition: SweepDefinition

    @property
    def arguments(self) -> tuple[SweptArgument, ...]:
        """The arguments that differ between trials, and their values."""
        return self.definition.arguments

    @classmethod
    def load(cls, folder: Path) -> SweepStudy:
        """Return the study of a folder in which a sweep began."""
        study = optuna.load_study(study_name=None, storage=_storage(folder))
        definition = SweepDefinition(**study.user_attrs[_DEFINITION])
        study.pruner = _pruner(definition.pruner)
        return cls(folder, study, definition)

    @classmethod
    def begin(cls, folder: Path, definition: SweepDefinition) -> SweepStudy:
        """Return the study of a folder, a new one if there is none.

        A sweep with other choices that has no result, as all its trials failed, is set aside.

        Raises:
            UsageError: the folder holds a sweep with other choices.
        """
        study = optuna.create_study(
            study_name="sweep",
            storage=_storage(folder),
            direction="minimize" if definition.mode == "min" else "maximize",
            load_if_exists=True,
            pruner=_pruner(definition.pruner),
        )
        saved = study.user_attrs.get(_DEFINITION)
        if saved is None:
            study.set_user_attr(_DEFINITION, asdict(definition))
        elif different := [n for n, value in asdict(definition).items() if saved.get(n) != value]:
            states = {trial.state for trial in study.get_trials(deepcopy=False)}
            if states <= {TrialState.FAIL, TrialState.WAITING}:
                _set_aside(folder)
                return cls.begin(folder, definition)
            earlier = ", ".join(_earlier_choice(name, saved.get(name)) for name in different)
            raise UsageError(
                f"{str(folder)!r} holds a sweep with other choices: {earlier}. Give it the same "
                "ones to go on with it, or another --output to begin a new sweep."
            )
        return cls(folder, study, definition)

    def count_planned(self, trials: int | None) -> int:
        """Return the number of trials that a sweep is to have at its end.

        Args:
            trials: the number that was asked for; None: all of the grid.
        """
        if self.definition.sampler != GRID:
            assert trials is not None  # `check_trials` refused it before
            return trials
        size = len(combinations(self.arguments))
        return size if trials is None else min(trials, size)

    def prepare(self) -> list[int]:
        """Enqueue the grid and the trials that failed; return the numbers of unfinished trials.

        Unfinished are the trials of a sweep that was killed or interrupted.
        """
        if self.definition.sampler == GRID:
            for values in combinations(self.arguments):
                self.study.enqueue_trial(values, skip_if_exists=True)
        trials = self.study.get_trials(deepcopy=False)
        retried = {trial.user_attrs.get(_RETRIED) for trial in trials}
        for trial in trials:
            if trial.state == TrialState.FAIL and trial.number not in retried:
                self.study.enqueue_trial(
                    trial.params, {_FOLDER: self._folder_name(trial), _RETRIED: trial.number}
                )
        return [trial.number for trial in trials if trial.state == TrialState.RUNNING]

    def ask(self) -> int:
        """Begin a trial, an enqueued one before others, and return its number."""
        if self.definition.sampler != GRID:
            # the same values come after an interruption: a sampler that began anew with the
            # sweep's seed would draw those of the first trials again
            number = len(self.study.get_trials(deepcopy=False))
            self.study.sampler = _sampler(self.definition.sampler, self.definition.seed, number)
        return self.study.ask().number

    def values_of(self, number: int) -> dict[str, str]:
        """Return the values of a trial by key, as they would stand on a command line."""
        trial = self.trial(number)
        return {argument.key: argument.suggest(trial) for argument in self.arguments}

    def trial(self, number: int) -> optuna.trial.Trial:
        """Return Optuna's trial of a number, to report to."""
        return optuna.trial.Trial(self.study, self.record(number)._trial_id)  # noqa: SLF001 - Optuna's own way to open a trial of another process

    def record(self, number: int) -> FrozenTrial:
        """Return the record of a trial: its state, values and times."""
        return self.study.get_trials(deepcopy=False)[number]

    def folder_of(self, number: int) -> Path:
        """Return the folder of a trial; one that is retried goes on in that of the failed one."""
        return self.folder / self._folder_name(self.record(number))

    def results(self) -> Iterator[FrozenTrial]:
        """Yield the trials, the best first, without those that were retried or have not begun."""
        trials = self.study.get_trials(deepcopy=False)
        retried = {trial.user_attrs.get(_RETRIED) for trial in trials}
        begun = [
            trial
            for trial in trials
            if trial.number not in retried and trial.state != TrialState.WAITING
        ]
        sign = 1.0 if self.definition.mode == "min" else -1.0

        def rank(trial: FrozenTrial) -> tuple[int, float, int]:
            order = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING, TrialState.FAIL)
            value = sign * trial.value if trial.value is not None else 0.0
            return order.index(trial.state), value, trial.number

        yield from sorted(begun, key=rank)

    def _folder_name(self, trial: FrozenTrial) -> str:
        name: str = trial.user_attrs.get(_FOLDER, f"trial_{trial.number}")
        return name


def _set_aside(folder: Path) -> None:
    """Move a sweep and its trials to a folder below its own, so that another can begin there."""
    names = (folder / f"earlier_{number}" for number in itertools.count())
    aside = next(path for path in names if not path.exists())
    aside.mkdir()
    for path in (folder / _JOURNAL, *folder.glob("trial_*")):
        path.rename(aside / path.name)
    text = f"the sweep with other choices in {folder} has no result; it is now in {aside}"
    print(printable(text), file=sys.stderr, flush=True)


def _earlier_choice(name: str, value: Any) -> str:
    """Return a choice as the command line that began the sweep had it."""
    if name == "config_text":
        return "another text of the config"
    if name == "settings":
        return " ".join(f"--set {shell_line([text])}" for text in value)
    return f"{'config' if name == 'config' else f'--{name}'} {shell_line([str(value)])}"


def check_trials(definition: SweepDefinition, trials: int | None) -> None:
    """Check a definition before its study begins.

    Raises:
        OptionError: the sampler or the pruner is unknown, or does not fit the values.
    """
    rehearsed = min(_REHEARSED, trials or _REHEARSED)
    if definition.sampler == GRID:
        combinations(definition.arguments)
    else:
        with _naming_option(f"--sampler {definition.sampler}"):
            _sampler(definition.sampler, definition.seed, 0)
        if trials is None:
            raise OptionError(
                f"--sampler {definition.sampler} needs --trials, the number of trials. A grid over "
                "lists of values ends by itself."
            )
        with _naming_option(f"--sampler {definition.sampler}"):
            _rehearse_sampler(definition, rehearsed)
    with _naming_option(f"--pruner {definition.pruner}"):
        _rehearse_pruner(definition, rehearsed)


def _rehearse_sampler(definition: SweepDefinition, trials: int) -> None:
    """Draw the values of trials that are not trained."""
    study = optuna.create_study()
    for number in range(trials):
        study.sampler = _sampler(definition.sampler, definition.seed, number)
        trial = study.ask()
        for argument in definition.arguments:
            argument.suggest(trial)
        # the process of a trial tells its result, and has no sampler
        study.sampler = optuna.samplers.RandomSampler()
        study.tell(trial, float(number))


def _rehearse_pruner(definition: SweepDefinition, trials: int) -> None:
    """Report values of trials that are not trained, and ask whether to prune them."""
    study = optuna.create_study(pruner=_pruner(definition.pruner))
    for number in range(trials):
        trial = study.ask()
        for step in range(2):
            trial.report(float(number + step), step)
            trial.should_prune()
        study.tell(trial, float(number))


@contextlib.contextmanager
def _naming_option(option: str) -> Iterator[None]:
    """Raise an error of Optuna as an OptionError about an option."""
    try:
        yield
    except OptionError:
        raise
    except ImportError as error:
        cause = error.__cause__ or error
        package = getattr(cause, "name", None)
        advice = f"Install it: pip install {package}." if package else "Install it."
        raise OptionError(
            f"{option} needs a package: {error_message(cause).rstrip('.')}. {advice}"
        ) from error
    except Exception as error:  # of any class of Optuna's, none of whose errors says which option
        raise OptionError(
            f"{option}: Optuna refuses it: {error_message(error).rstrip('.')}. Choose another, or "
            "other values."
        ) from error


def _storage(folder: Path) -> JournalStorage:
    # no database: a journal needs no heartbeats, as one process alone begins and ends the trials
    return JournalStorage(JournalFileBackend(str(folder / _JOURNAL)))


def _sampler(name: str, seed: int, number: int) -> optuna.samplers.BaseSampler:
    kind = _class_of(optuna.samplers, "Sampler", name, extra=(GRID,))
    if "seed" not in signature_of(kind).parameters:
        return _make_quietly(kind)  # type: ignore[no-any-return]
    own_seed = seed if kind.__name__ == _UNSEEDED_BY_TRIAL else seed + number
    return _make_quietly(kind, seed=own_seed)  # type: ignore[no-any-return]


def _pruner(name: str) -> optuna.pruners.BasePruner:
    if name == "none":
        return optuna.pruners.NopPruner()
    return _make_quietly(_class_of(optuna.pruners, "Pruner", name, extra=("none",)))  # type: ignore[no-any-return]


def _make_quietly(kind: Any, **arguments: Any) -> Any:
    with warnings.catch_warnings():
        # whoever names one of them on the command line wants it
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return kind(**arguments)


def _class_of(module: Any, suffix: str, name: str, extra: tuple[str, ...]) -> Any:
    """Return the class of a short name, such as `tpe` for `TPESampler`."""
    kinds = {
        kind.lower().removesuffix(suffix.lower()): getattr(module, kind)
        for kind in module.__all__
        if kind.endswith(suffix) and not kind.startswith(_NOT_BY_NAME)
    }
    # the others need an argument that no short name gives
    usable = {
        short: kind
        for short, kind in kinds.items()
        if all(
            parameter.default is not inspect.Parameter.empty
            for parameter in signature_of(kind).parameters.values()
        )
    }
    if name not in usable:
        names = [*extra, *sorted(usable)]
        raise OptionError(
            f"--{suffix.lower()} {name}: there is no such {suffix.lower()}."
            f"{did_you_mean(name, names)} Known are {', '.join(names)}."
        )
    return usable[name]
