"""The identity of a training: what tells it from others of its process, and of its command.

A process may train several modules one after the other, such as folds or seeds. Each training has a
number in its process, its seed, and a digest of its data, and each of its checkpoints holds them.
So a training finds its own checkpoints when the same command is started again.
"""

from __future__ import annotations

import os
import secrets
import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._names import ours
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.paths import absolute_path, is_inside, is_remote
from trainer_hooks.checkpoint.seal import RunIdentity
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import CheckpointError
from trainer_hooks.loggers.run_folder import FolderLogger
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.loop_module import LoopModule
from trainer_hooks.trainer.identity.data_digest import data_digest
from trainer_hooks.trainer.identity.run_origin import compute_run_origin, is_live_elsewhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.checkpoint.seal import CheckpointSummary
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.loggers.adapter import LoggerAdapter
    from trainer_hooks.loggers.base import Logger
    from trainer_hooks.loggers.comet import CometLogger
    from trainer_hooks.loggers.mlflow import MLflowLogger
    from trainer_hooks.loggers.wandb import WandbLogger
    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.options.config import TrainerConfig

_GREATEST_SEED = 2**32
"""Greater seeds are those that torch draws in a process without a seed."""
_DEFAULT_NAME = "trainer_logs"
_OTHER_DATA = "its loaders held other data"


@dataclass(frozen=True, slots=True)
class RunLabel:
    """The origin and the identity of a training, as its checkpoints hold them.

    Attributes:
        origin: see `compute_run_origin`.
        identity: the facts beside the origin; without a run for an evaluation, which may have any.
        runs: the names of this training's run, and of those that it went on from, in this process.
    """

    origin: str
    identity: RunIdentity = field(default_factory=RunIdentity)
    runs: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Training:
    """A module that this process has trained, by a weak reference, and its label."""

    module: weakref.ref[Any]
    label: RunLabel


@dataclass(slots=True)
class ProcessTrainings:
    """The trainings of this process, by their modules.

    Attributes:
        runs: the names of all their runs.
        broken: the names of those that an error or a signal has ended.
    """

    runs: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    _by_id: dict[int, _Training] = field(default_factory=dict)
    _in_place: Counter[tuple[str, ...]] = field(default_factory=Counter)
    _alike: Counter[tuple[tuple[str, ...], str, str, str]] = field(default_factory=Counter)

    def label_of(self, module: Any) -> RunLabel | None:
        """Return the label of the training of a module; None if it was not trained here."""
        # by identity: a user's module may define what is equal, or not be hashable
        training = self._by_id.get(id(module))
        return training.label if training is not None and training.module() is module else None

    def register(
        self, module: Any, place: tuple[str, ...], origin: str, seed: str, data: str
    ) -> RunLabel:
        """Return the label of a module's training, a new one at its first fit.

        Args:
            module: the module.
            place: the folders in which the training looks for its checkpoints.
            origin: its origin.
            seed: its seed; empty without one.
            data: the digest of its data.
        """
        label = self.label_of(module)
        if label is not None:
            return replace(label, origin=origin)
        position, ordinal = self._in_place[place], self._alike[place, origin, seed, data]
        self._in_place[place] += 1
        self._alike[place, origin, seed, data] += 1
        # not random: a fit changes no random state
        run = secrets.token_hex(8)
        identity = RunIdentity(run, seed, data, ordinal, position)
        return self._keep(module, RunLabel(origin, identity, frozenset({run})))

    def adopt(
        self,
        module: Any,
        label: RunLabel,
        path: str,
        *,
        is_named: bool,
        io: CustomIO | None = None,
    ) -> RunLabel:
        """Return the label of a training that goes on from a checkpoint, whose run it continues.

        Args:
            module: the module.
            label: its label so far.
            path: the checkpoint.
            is_named: whether the user gave the path: then the run has this process's seed and data.
            io: reads the checkpoint, where the user's own object writes them.
        """
        try:
            summary = summarize(path, io)
        except CheckpointError:
            return label  # the run reads it again, and raises
        saved = summary.identity
        if not saved.run:
            return label
        identity, is_others = label.identity, saved.run in self.runs - label.runs
        if not is_others:  # else a branch: the other training of this process goes on, too
            identity = replace(identity, run=saved.run)
        if summary.origin == label.origin or not is_named:
            identity = replace(identity, ordinal=saved.ordinal, position=saved.position)
        if not is_named:  # a file that was found by its folder may have another seed
            identity = replace(identity, seed=saved.seed, data=saved.data)
        runs = label.runs | {identity.run}
        return self._keep(module, RunLabel(label.origin, identity, runs))

    def _keep(self, module: Any, label: RunLabel) -> RunLabel:
        self.runs |= label.runs
        self._by_id[id(module)] = _Training(weakref.ref(module), label)
        return label


TRAININGS = ProcessTrainings()
"""The trainings of this process."""


def label_run(trainer: Trainer, config: TrainerConfig, module: Module, *sources: Any) -> RunLabel:
    """Return the label of the training that a fit begins or goes on with.

    Args:
        trainer: the trainer.
        config: its options, as the user gave them.
        module: the module, or the adapter of one.
        sources: the loaders and data modules as the user passed them; None for none.
    """
    origin = origin_of(trainer, config, module, *sources)
    seed = torch.initial_seed()
    return TRAININGS.register(
        trained_object(module),
        _place(trainer),
        origin,
        str(seed) if seed < _GREATEST_SEED else "",
        data_digest(*sources),
    )


def _place(trainer: Trainer) -> tuple[str, ...]:
    """Return the folders in which a trainer's savers look for checkpoints, as far as known."""
    savers = [ours(saver) for saver in trainer.checkpoint_callbacks]
    folders = [folder for saver in savers if saver.has_named_folder for folder in saver.folders()]
    if not savers or not all(saver.has_named_folder for saver in savers):
        folders.append(absolute_path(trainer.default_root_dir))
        for logger in trainer.loggers:
            folders += [absolute_path(logger.save_dir or ""), logger.name or ""]
            folders.append(_chosen_version(logger))
    return tuple(folders)


def _chosen_version(logger: Logger) -> str:
    """Return the version or id that the user chose; empty if the logger did, or may have."""
    if isinstance(logger, FolderLogger):
        return str(logger.version) if logger.run_folder.is_chosen else ""
    home = "trainer_hooks.loggers"
    for name, kind in (("comet", "CometLogger"), ("mlflow", "MLflowLogger"),
                       ("wandb", "WandbLogger"), ("adapter", "LoggerAdapter")):  # fmt: skip
        if isinstance(logger, class_if_loaded(f"{home}.{name}", kind)):
            service = cast("CometLogger | LoggerAdapter | MLflowLogger | WandbLogger", logger)
            return str(service.version) if service.is_version_chosen else ""
    return ""


def label_evaluation(
    trainer: Trainer, config: TrainerConfig, module: Module, *sources: Any
) -> RunLabel:
    """Return the label of an evaluation, by which it finds the checkpoints of its training."""
    trained = TRAININGS.label_of(trained_object(module))
    origin = origin_of(trainer, config, module, *sources)
    return RunLabel(origin, runs=frozenset() if trained is None else trained.runs)


def trained_object(module: Any) -> Any:
    """Return the module as the user knows it, of which the other is an adapter or a holder."""
    if isinstance(module, LoopModule):
        return next(iter(module.parts.values()))
    return vars(module).get("foreign_module", module)


def origin_of(trainer: Trainer, config: TrainerConfig, module: Module, *sources: Any) -> str:
    """Return the origin of a run: command, hyperparameters, and the folders that the user gave."""
    modules = [
        adapt_if_foreign(source, DataModule)
        for source in sources
        if callable(getattr(source, "prepare_data", None))
    ]
    data = [
        ours(datamodule).saved_hparams or {}
        for datamodule in modules
        if isinstance(datamodule, DataModule)
    ]
    return compute_run_origin(
        ours(module).saved_hparams, trainer.callbacks, data, _given_places(trainer, config)
    )


def _given_places(trainer: Trainer, config: TrainerConfig) -> list[str]:
    """Return the folders, names and versions that the user gave and that tell runs apart.

    Those that say where a run's checkpoints lie are left out: so all may be moved together.
    """
    places = []
    for logger in trainer.loggers:
        version, name = _chosen_version(logger), ""
        home: str | os.PathLike[str] | None = logger.save_dir
        if isinstance(logger, FolderLogger):
            home, name = logger.run_folder.root, logger.name or ""
        if version or name not in ("", _DEFAULT_NAME):
            places.append(f"name={name} version={version}")
        if home is not None and config.default_root_dir is not None:
            places += _root_beside(trainer.default_root_dir, home)
    return places


def _root_beside(root: str, home: str | os.PathLike[str]) -> list[str]:
    """Return where the root lies as seen from a logger's folder, if that is not inside it."""
    if is_remote(root) or is_remote(home):
        return [f"root={root}"]
    here, there = Path(root).resolve(), Path(home).resolve()
    if is_inside(str(there / "file"), str(here)):
        return []
    return [f"root={os.path.relpath(here, there)}"]


@dataclass(frozen=True, slots=True)
class RunMatcher:
    """Tell the checkpoints of a run from those of others, by the summaries of all that are there.

    In a default folder, where many runs may save, the origin, the seed, the data and the ordinal
    must be those of the run. All files in a folder that the user named belong to one run, with any
    command line, unless their seeds or data differ, or several trainings of a process saved there.

    Attributes:
        asked: `"last"`, `"best"` or `"auto"`.
        is_resume: whether a training is to go on; an evaluation may have any seed and data.
        label: the run's label.
        shared: the files in default folders.
    """

    asked: str
    is_resume: bool
    label: RunLabel
    shared: frozenset[str]

    def judge(self, summaries: Mapping[str, CheckpointSummary]) -> dict[str, FileVerdict]:
        """Return for each file whether it is this run's."""
        verdicts = {path: self._judge_alone(path, each) for path, each in summaries.items()}
        open_files = {p: summaries[p] for p, verdict in verdicts.items() if verdict is None}
        named = [each.identity for path, each in open_files.items() if path not in self.shared]
        trainings = {replace(each, run="") for each in named if each.run}
        positions = {each.position for each in named if each.run}
        folder = FolderContents(
            positions <= {self.label.identity.position}, is_of_one=len(trainings) == 1
        )
        judged = {
            path: verdict or self._compare(path, summaries[path], folder)
            for path, verdict in verdicts.items()
        }
        # a run that was found by one of its files has all of them
        exact = {
            summaries[path].identity.run for path, verdict in judged.items() if verdict.rank == 2
        }
        return {
            path: replace(verdict, rank=2)
            if verdict.rank == 1 and summaries[path].identity.run in exact - {""}
            else verdict
            for path, verdict in judged.items()
        }

    def _judge_alone(self, path: str, summary: CheckpointSummary) -> FileVerdict | None:
        """Return the verdict on a file where the others do not matter, else None."""
        run, is_named = summary.identity.run, path not in self.shared
        if run and run in self.label.runs:
            return FileVerdict(3)
        if run in TRAININGS.runs and (self.asked == "auto" or not is_named):
            # the next of several folds says nothing; who starts one again is told
            is_silent = run not in TRAININGS.broken
            reason = "another training of this process saved it"
            return FileVerdict(0, reason, is_silent, is_of_process=True)
        if is_named:
            return None
        if self.is_resume and is_live_elsewhere(summary.process):
            return FileVerdict(0, "its process is still going")
        return None if summary.origin in ("", self.label.origin) else FileVerdict(0)

    def _compare(
        self, path: str, summary: CheckpointSummary, folder: FolderContents
    ) -> FileVerdict:
        """Return the verdict on a file that may be this run's, by the others beside it."""
        saved, mine = summary.identity, self.label.identity
        is_named, has_origin = path not in self.shared, summary.origin == self.label.origin
        if not saved.run:  # of another tool: among the others by its time
            return FileVerdict(2)
        if not (self.is_resume and mine.run) or (is_named and self.asked != "auto"):
            return FileVerdict(1)
        is_of_one = is_named and folder.is_of_one and folder.is_of_this_position
        if saved.seed != mine.seed and not is_of_one:
            return FileVerdict(0, seed_difference(saved, mine))
        # without a seed a script may well draw other data at each start, or split them otherwise
        is_drawn = is_of_one and not saved.seed and not mine.seed
        if are_other_data(saved, mine) and not is_drawn:
            return FileVerdict(0, _OTHER_DATA)
        is_exact = saved.seed == mine.seed and saved.ordinal == mine.ordinal
        if is_exact and (has_origin or not is_named):
            return FileVerdict(2)
        if is_named and folder.is_of_this_position:
            return FileVerdict(1)
        return FileVerdict(
            0,
            f"it is of training number {saved.ordinal + 1} of its process with this command, seed "
            f"and data, and this is number {mine.ordinal + 1} of this process"
            if has_origin
            else "several trainings of a process saved in this folder",
        )


@dataclass(frozen=True, slots=True)
class FolderContents:
    """The facts about the files in named folders that decide how exactly one must match.

    Attributes:
        is_of_this_position: whether all are of trainings that came in their processes as this one.
        is_of_one: whether all are of one training.
    """

    is_of_this_position: bool
    is_of_one: bool


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """Whether a checkpoint is a run's.

    Attributes:
        rank: 0 if it is another run's; else the greater, the surer.
        reason: why it is another run's; empty where its content must be compared to say so.
        is_silent: whether a search for `"auto"` leaves it out without a word.
        is_of_process: whether another training of this process saved it.
    """

    rank: int
    reason: str = ""
    is_silent: bool = False
    is_of_process: bool = False


def are_other_data(saved: RunIdentity, mine: RunIdentity) -> bool:
    """Return whether two trainings had different data, as far as both are known."""
    return bool(saved.data and mine.data) and saved.data != mine.data


def differences(saved: RunIdentity, mine: RunIdentity) -> str:
    """Return in words how the seeds and data of two trainings differ; empty if they do not."""
    words = [] if saved.seed == mine.seed else [seed_difference(saved, mine)]
    return " and ".join([*words, *([_OTHER_DATA] if are_other_data(saved, mine) else [])])


def seed_difference(saved: RunIdentity, mine: RunIdentity) -> str:
    """Return in words how the seeds of two trainings differ."""
    before = f"seed was {saved.seed}" if saved.seed else "training had no seed"
    return f"its {before}, here {f'it is {mine.seed}' if mine.seed else 'there is none'}"
