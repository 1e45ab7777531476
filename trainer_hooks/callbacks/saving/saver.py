"""Saver: the base of callbacks that keep a record of the checkpoints in one folder, and its parts.

The parts: the plan of a save, the ranking of the checkpoints, the reserved names of new files, and
the store that writes files and deletes those that they replace.
"""

from __future__ import annotations

import math
import os
import shutil
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from trainer_hooks._files import hidden_beside
from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks._system import move
from trainer_hooks.callbacks.monitored_metric import a_tensor_of_one_number, is_better
from trainer_hooks.callbacks.saving.checkpoint import Checkpoint
from trainer_hooks.callbacks.saving.file_names import fill_template, template_names
from trainer_hooks.callbacks.saving.saver_options import resolved_folder
from trainer_hooks.checkpoint.atomic_write import remove_stale_parts, reserve_name
from trainer_hooks.checkpoint.file import copy_checkpoint, summarize
from trainer_hooks.checkpoint.paths import (
    exists,
    files_in,
    is_inside,
    is_remote,
    join_path,
    remove,
)
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.loggers.run_folder import FolderLogger, run_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from trainer_hooks.checkpoint.atomic_write import NameReservation
    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

T = TypeVar("T")

_FOLDER = "checkpoints"
"""The name of a saver's default folder, in that of the run."""


@dataclass(frozen=True, slots=True)
class SavePlan:
    """The files that one save writes and deletes.

    Attributes:
        files: the paths to write, in this order.
        obsolete: paths to delete once the last of `files` is durable.
        link: a path that then becomes a link to the first of `files`.
        is_temporary: whether the file is temporary. It stands in its own `obsolete`, so that the
            checkpoint tells the run that resumes to delete it.
    """

    files: tuple[str, ...]
    obsolete: tuple[str, ...] = ()
    link: str | None = None
    is_temporary: bool = False

    @classmethod
    def temporary(cls, path: str, replaced: str = "", link: str | None = None) -> SavePlan:
        """Return the plan of a temporary file, which a resumed run deletes at its first save.

        Args:
            path: the file.
            replaced: a path that it replaces.
            link: a path that becomes a link to it.
        """
        return cls((path,), (path, replaced) if replaced else (path,), link, is_temporary=True)


@dataclass(slots=True)
class CheckpointRanking:
    """A saver's record of its best and last checkpoints.

    All paths are absolute; an empty path means that there is none yet.

    Attributes:
        mode: `"min"` or `"max"`: which scores are better.
        kth_value: the score of the worst of the best, once there are as many as are kept; until
            then an infinity that every score beats.
        best_model_path: the best checkpoint; without a monitor the newest.
        best_model_score: its score.
        best_k_models: the best checkpoints and their scores. NaN ranks below every number.
        kth_best_model_path: the worst of them, once there are as many as are kept.
        last_model_path: the newest checkpoint that was saved as the last one.
        current_score: the latest score, whether its checkpoint was saved or not.
        saved_step: the step count at the last save that counts for the saver's schedule, in the
            unit of that schedule.
        considered_at: the batches completed at the last decision about a save.
    """

    mode: str
    kth_value: Tensor
    best_model_path: str = ""
    best_model_score: Tensor | None = None
    best_k_models: dict[str, Tensor] = field(default_factory=dict)
    kth_best_model_path: str = ""
    last_model_path: str = ""
    current_score: Tensor | None = None
    saved_step: int = 0
    considered_at: int = 0

    @classmethod
    def empty(cls, mode: str) -> CheckpointRanking:
        """Return a ranking without checkpoints."""
        return cls(mode, kth_value=torch.tensor(math.inf if mode == "min" else -math.inf))

    def copy(self) -> CheckpointRanking:
        """Return a copy that can be changed independently."""
        return replace(self, best_k_models=dict(self.best_k_models))

    @property
    def ranked(self) -> list[str]:
        """The best checkpoints, the best first; of two equal ones the older first."""
        sign = 1.0 if self.mode == "min" else -1.0
        scores = {path: score.item() for path, score in self.best_k_models.items()}
        # a NaN in a sort key compares false with everything, which would scramble the order
        keys = {p: (True, 0.0) if math.isnan(s) else (False, sign * s) for p, s in scores.items()}
        return sorted(keys, key=keys.__getitem__)

    def admits(self, score: Tensor, k: int) -> bool:
        """Return whether `score` is among the best `k`; -1 keeps all."""
        if k == -1 or len(self.best_k_models) < k:
            return True
        worst = self.best_k_models[self.ranked[k - 1]]
        return is_better(score.item(), worst.item(), self.mode)

    def outranked(self, k: int) -> list[str]:
        """Return the checkpoints that one more among the best `k` would replace."""
        return [] if k == -1 else self.ranked[k - 1 :]

    def add(self, path: str, score: Tensor, k: int) -> None:
        """Add a checkpoint that `admits` has admitted, in place of those that it outranks."""
        for outranked in self.outranked(k):
            del self.best_k_models[outranked]
        self.best_k_models[path] = score
        ranked = self.ranked
        if k in (-1, len(ranked)):
            self.kth_best_model_path = ranked[-1]
            self.kth_value = self.best_k_models[ranked[-1]]
        best = self.best_k_models[ranked[0]]
        if not math.isnan(best.item()):  # a diverged model is never the best one
            self.best_model_path = ranked[0]
            self.best_model_score = best

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the ranking; a field that the state lacks stays as it is."""
        for item in fields(self):
            if item.name in state_dict and item.name != "mode":
                setattr(self, item.name, state_dict[item.name])
        # a dict of its own, which changes
        self.best_k_models = {str(path): score for path, score in self.best_k_models.items()}


_PATH = str | os.PathLike[str]


class ReservedNames:
    """Reserve the names of new files, so that two runs never choose the same name.

    A name is reserved from its choice until its file exists. The names of a killed process are free
    again. In remote stores nothing can be reserved.
    """

    def __init__(self) -> None:
        self._held: dict[str, NameReservation] = {}

    def take(self, path: str) -> bool:
        """Reserve a path; return whether it was free."""
        # a name in a store cannot be locked: a look must do
        if is_remote(path):
            return not exists(path)
        if exists(path):
            self.release(path)  # the file itself keeps the name from now on
            return False
        if path in self._held:
            return True
        reservation = reserve_name(Path(path))
        if reservation is None:
            return False
        self._held[path] = reservation
        if exists(path):  # another run wrote it between the first look and the reservation
            self.release(path)
            return False
        return True

    def release(self, *paths: str | None) -> None:
        """Give up the reservations of these paths."""
        for path in paths:
            reservation = self._held.pop(path or "", None)
            if reservation is not None:
                reservation.release()

    def release_all(self) -> None:
        """Give up all reservations."""
        self.release(*self._held)

    def __reduce__(self) -> tuple[type[ReservedNames], tuple[()]]:
        return type(self), ()  # locks cannot be copied: a copied saver reserves nothing


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A background save that is not durable yet, and the ranking before it."""

    save: BackgroundSave
    before: CheckpointRanking


class SaveStore:
    """Write a saver's files, keep its ranking, and delete replaced files once new ones are durable.

    The ranking includes files that are still being written: it is part of the state that they
    hold, and the next decision builds on it. `durable` is the ranking without them. If a
    background save fails, the ranking from before it returns.

    Args:
        saver: the saver, whose options are looked up at each save.

    Attributes:
        pending: the background save that was started last, until it is durable or has failed.
        reserved_names: the reserved names of files that do not exist yet.
        to_replace: the files that the loaded checkpoint was to replace; `finish_loaded_save`
            deletes those that are still there.
        saved_again: files of weights alone that a killed process of this run saved after the loaded
            checkpoint. The run saves them once more, in their places.
        left_by_error: files that errors left under the saver's own names. The run that goes on
            from one writes over them when it saves under their names, as a run without the error
            would have.
        around: returns the context in which the files of a plan are written; None for no context.
        is_to_save: whether the run saves, so that a change of the folder deserves a warning.

    State: the ranking, its folder, and the files that a save under way writes and replaces.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self.reserved_names = ReservedNames()
        self.is_to_save = True
        self.around: Callable[[SavePlan], AbstractContextManager[None]] | None = None
        self.reset()

    def reset(self) -> None:
        """Start an empty ranking for a new training. Files of an earlier one stay."""
        self.reserved_names.release_all()
        self._ranking = CheckpointRanking.empty(self._saver.mode)
        # plans by their last file, until that is durable
        self._plans: dict[str, SavePlan] = {}
        self.pending: PendingSave | None = None
        self.to_replace: tuple[str, ...] = ()
        self.saved_again: set[str] = set()
        self.left_by_error: set[str] = set()
        self._loaded_plan = SavePlan(())
        self._temporary: tuple[str, ...] = ()

    @property
    def ranking(self) -> CheckpointRanking:
        """The ranking with pending saves, and without failed ones."""
        if self.pending is not None:
            self._discard_failed_save(self.pending)
        return self._ranking

    @ranking.setter
    def ranking(self, ranking: CheckpointRanking) -> None:
        self._ranking = ranking

    @property
    def durable(self) -> CheckpointRanking:
        """The ranking of the durable files alone."""
        ranking, pending = self.ranking, self.pending
        return ranking if pending is None or pending.save.is_durable else pending.before

    def write(self, trainer: Trainer, plan: SavePlan, ranking: CheckpointRanking) -> None:
        """Write the files of a plan, or start to in the background, under a new ranking.

        `on_checkpoint_saved` then calls `complete`, for each durable file.

        Args:
            trainer: the trainer.
            plan: the files.
            ranking: the ranking with these files. If the save fails, the present one stays.

        Raises:
            CheckpointError: the files cannot be written, or a background save before them failed.
        """
        saver = self._saver
        is_in_background = saver.async_save and not plan.is_temporary
        with nullcontext() if self.around is None else self.around(plan):
            if is_in_background:
                # what the previous save replaces must be deleted before this one may reuse a name
                trainer.finish_saves()
            # the temporary file that the run was resumed from is replaced by this save, too
            plan = replace(plan, obsolete=(*plan.obsolete, *self._temporary))
            # before the files are written, because the ranking is part of the state in them
            before, self._ranking = self.ranking, ranking
            self._plans[plan.files[-1]] = plan
            weights_only = saver.save_weights_only and not plan.is_temporary
            try:
                if is_in_background:
                    save = trainer.save_in_background(*plan.files, weights_only=weights_only)
                    self.pending = PendingSave(save, before)
                else:
                    for path in plan.files:
                        trainer.save_checkpoint(path, weights_only)
            except BaseException:
                self._ranking = before
                self._plans.pop(plan.files[-1], None)
                self.reserved_names.release(*plan.files, plan.link)
                raise
            self._temporary = ()

    def write_for_error(self, trainer: Trainer, path: str, is_replaceable: bool) -> None:
        """Write the file of an error that ends the fit; the ranking does not contain it.

        Args:
            trainer: the trainer.
            path: the file.
            is_replaceable: whether the run that goes on from it may write over it.

        Raises:
            CheckpointError: the file cannot be written.
        """
        if is_replaceable:
            # before the file is written, because this set is part of the state in it
            self.left_by_error.add(path)
        try:
            trainer.save_checkpoint(path, self._saver.save_weights_only)
        except BaseException:
            self.left_by_error.discard(path)
            raise

    def complete(self, trainer: Trainer, path: str) -> None:
        """Finish the plan of a file that is durable now: make its link, delete replaced files."""
        saver, plan = self._saver, self._plans.pop(path, None)
        if plan is not None:
            if self.pending is not None:
                self._discard_failed_save(self.pending)
            self.pending = None
        # None for a file that is not its plan's last, and for those of other savers; and all ranks
        # share the files, so one of them links and deletes
        if plan is None or not trainer.is_global_zero:
            self.reserved_names.release(path)
            return
        if plan.link is not None:
            _link_to(plan.files[0], plan.link)
        self.reserved_names.release(path, plan.link)
        # only now: had the process been killed before, the old files would still be there
        for old in plan.obsolete:
            written = [*plan.files, *filter(None, [plan.link])]
            is_new = any(_is_same_name(old, new) for new in written)
            if not is_new and self._may_delete(old, trainer.named_ckpt_path):
                ours(saver).remove_checkpoint(trainer, old)

    def finish_loaded_save(self, trainer: Trainer) -> None:
        """Finish the save of the loaded checkpoint, if its process was killed before it had.

        The plan's other files become copies of the checkpoint, its link is made, and the files that
        it was to replace are deleted. A temporary checkpoint that the run resumes from is deleted
        at the next save.
        """
        saver = self._saver
        left, self.to_replace = self.to_replace, ()
        plan, self._loaded_plan = self._loaded_plan, SavePlan(())
        resumed_from, io = trainer.ckpt_path, trainer.custom_io
        if resumed_from is None or not trainer.is_global_zero or trainer.fast_dev_run:
            return
        is_own_save = any(_is_same_file(file, resumed_from) for file in plan.files)
        if is_own_save:
            for file in (*plan.files, *filter(None, [plan.link])):
                if not is_remote(file):
                    remove_stale_parts(Path(file).parent)
            # one that is newer is of a later save: the user chose an earlier checkpoint
            for file in plan.files:
                if _is_older(file, resumed_from, io):
                    copy_checkpoint(resumed_from, file, io)
            if plan.link is not None and _is_older(plan.link, resumed_from, io):
                _link_to(plan.files[0], plan.link)
        # no run goes on from weights alone: what a killed process had saved since comes once more
        if saver.save_weights_only and trainer.named_ckpt_path is None:
            self.saved_again = self._files_since(resumed_from, io)
        elif trainer.named_ckpt_path is not None and not is_own_save:
            # the checkpoint is of a saver before this one, whose turn comes once more
            self.saved_again = self._files_since(resumed_from, io, of_its_batch=True)
        # what is to be replaced although the plan writes it is temporary; a file of Lightning has
        # no plan
        written = plan.files or (resumed_from,)
        self._temporary = tuple(old for old in left if old in written)
        for old in left:
            may_delete = self._may_delete(old, resumed_from)
            # another training may have used the name since
            if exists(old) and may_delete and _is_older(old, resumed_from, io):
                ours(saver).remove_checkpoint(trainer, old)

    def remove_temporary(self, trainer: Trainer) -> None:
        """Delete the temporary checkpoint of a resume that had nothing more to save.

        It stays where no file of the saver holds as much of the training.
        """
        temporary, self._temporary = self._temporary, ()
        if not trainer.is_global_zero:
            return
        ranking = self.ranking
        ranked = {ranking.best_model_path, ranking.last_model_path, *ranking.best_k_models} - {""}
        for path in filter(exists, temporary):
            batches = summarize(path, trainer.custom_io).batches
            links = [file for file in ranked if file != path and _is_same_file(file, path)]
            others = [file for file in sorted(ranked.difference(links, [path])) if exists(file)]
            enough = [f for f in others if _holds(f, batches, trainer.custom_io)]
            if enough and self._may_delete(path, trainer.named_ckpt_path):
                for link in links:
                    _link_to(enough[0], link)
                ours(self._saver).remove_checkpoint(trainer, path)

    def _files_since(
        self, checkpoint: str, io: CustomIO | None, *, of_its_batch: bool = False
    ) -> set[str]:
        """Return the files in the saver's folder that its run saved after a checkpoint.

        Args:
            checkpoint: the checkpoint.
            io: reads the files, where the user's own object writes them.
            of_its_batch: whether only those count that were saved after the same batch.
        """
        files: set[str] = set()
        try:
            loaded = summarize(checkpoint, io)
        except CheckpointError:  # of another tool, too
            return files
        for file in ours(self._saver).own_files():
            try:
                summary = summarize(file, io)
            except CheckpointError:  # a file of another tool
                continue
            is_of_run = (summary.origin, summary.identity.run) == (
                loaded.origin,
                loaded.identity.run,
            )
            is_of_batch = not of_its_batch or summary.batches == loaded.batches
            if is_of_run and is_of_batch and summary.saved_at > loaded.saved_at:
                files.add(file)
        return files

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, its folder, and the files that a save under way writes and replaces.

        If the process is killed before the save is complete, a resume finishes it.
        """
        ranking = self.ranking
        state = {item.name: getattr(ranking, item.name) for item in fields(ranking)}
        del state["mode"]  # an option, which a resume may change
        obsolete = [
            old
            for plan in self._plans.values()
            for old in plan.obsolete
            # files and the link that the plan renews are not deleted
            if old != plan.link and (plan.is_temporary or old not in plan.files)
        ]
        # the save before this one is complete when a file is written, so there is one plan at most
        plan = next(reversed(self._plans.values()), SavePlan(()))
        return {
            "dirpath": self._saver.dirpath,
            "obsolete": obsolete,
            "files": list(plan.files),
            "link": plan.link,
            **state,
            "best_k_models": dict(ranking.best_k_models),
            # only where there are any: the state is else that of a run without errors
            **({"left_by_error": sorted(self.left_by_error)} if self.left_by_error else {}),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the ranking; of another folder's only the best path and the counts.

        The counts are `saved_step` and `considered_at`.
        """
        saver, ranking = self._saver, self.ranking
        folder = state_dict.get("dirpath", saver.dirpath)
        if saver.dirpath in (None, folder):
            ranking.load_state_dict(state_dict)
            self.to_replace = tuple(map(os.fspath, state_dict.get("obsolete", ())))
            self.left_by_error = set(map(os.fspath, state_dict.get("left_by_error", ())))
            # a file of Lightning has no plan
            files, link = state_dict.get("files", ()), state_dict.get("link")
            self._loaded_plan = SavePlan(
                tuple(map(os.fspath, files)), link=None if link is None else os.fspath(link)
            )
            return
        # the files of another folder are not this saver's to rank or delete
        names = ("best_model_path", "saved_step", "considered_at")
        ranking.load_state_dict({k: v for k, v in state_dict.items() if k in names})
        if not self.is_to_save:
            return
        warn(
            f"dirpath {saver.dirpath!r} of {type(saver).__name__}: the checkpoint's was "
            f"{folder!r}, so only best_model_path is taken over, and the files there are left "
            "alone. Pass that dirpath to go on with its best checkpoints.",
            TrainerHooksWarning,
        )

    def _may_delete(self, path: str, resumed_from: str | None) -> bool:
        """Return whether the saver may delete `path`: it does not keep it, and it is its own."""
        ranking, folder = self.ranking, self._saver.dirpath
        if path in (*ranking.best_k_models, ranking.best_model_path, ranking.last_model_path):
            return False
        # a checkpoint's state may name files of another folder, as after a move
        if folder is None or not is_inside(path, folder):
            return False
        if resumed_from is None or is_remote(path) or is_remote(resumed_from):
            return resumed_from != path
        return Path(resumed_from).resolve() != Path(path).resolve()

    def _discard_failed_save(self, pending: PendingSave) -> None:
        """Restore the ranking from before a background save, if that has failed."""
        if pending.save.has_failed:
            self.pending, self._ranking = None, pending.before
            self._plans.pop(pending.save.paths[-1], None)
            self.reserved_names.release_all()


class _RankingAttribute(Generic[T]):
    """An attribute that shows a value of a saver's ranking, and may be read-only."""

    def __init__(
        self,
        read: Callable[[SaveStore], T],
        doc: str,
        write: Callable[[SaveStore, T], None] | None = None,
    ) -> None:
        self._read, self._write = read, write
        self.__doc__ = doc

    @overload
    def __get__(self, saver: None, owner: type) -> _RankingAttribute[T]: ...

    @overload
    def __get__(self, saver: Saver, owner: type) -> T: ...

    def __get__(self, saver: Saver | None, owner: type) -> T | _RankingAttribute[T]:
        return self if saver is None else self._read(saver.store)

    def __set__(self, saver: Saver, value: T) -> None:
        if self._write is None:
            raise AttributeError(
                f"value {value!r} for the ranking of {type(saver).__name__}: the paths and scores "
                "of its checkpoints can only be read, but for best_model_path and "
                "last_model_path. Change its options instead."
            )
        self._write(saver.store, value)


def _set_path(store: SaveStore, name: str, path: str | os.PathLike[str]) -> None:
    """Set a path of the ranking, also in that of the durable files; no file is touched."""
    for ranking in (store.ranking, store.durable):
        setattr(ranking, name, os.fspath(path))


class Saver(Checkpoint):
    """Base of savers: it keeps a ranking of the checkpoints in one folder, and their files in step.

    A subclass decides when to save, under which name, and which files a new one replaces; it hands
    a `SavePlan` with the new ranking to `store`. The store looks up the options at each save:
    so an option that is changed later counts.

    Args:
        dirpath: the folder, absolute; None for the default, which `setup` resolves.
        filename: the template of the file names, or None for `{epoch}-{step}`.
        save_weights_only: leave out everything that only a resume needs.
        async_save: whether files are written in the background during the training.
        mode: `"min"` or `"max"`: which scores are better; those that are no metric's grow.
        auto_insert_metric_name: whether `{epoch}` becomes `epoch=3` or `3`.
        enable_version_counter: False to overwrite a file whose name is taken.

    State: the ranking, its folder, and the files that a save under way writes and replaces.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    best_model_path = _RankingAttribute(
        lambda store: store.durable.best_model_path,
        "The best checkpoint, without a monitor the newest; empty if there is none. May be set.",
        lambda store, path: _set_path(store, "best_model_path", path),
    )
    best_model_score = _RankingAttribute(
        lambda store: store.durable.best_model_score,
        "The monitored value of the best checkpoint.",
    )
    best_k_models = _RankingAttribute(
        lambda store: dict(store.durable.best_k_models),
        "The best checkpoints and their monitored values.",
    )
    kth_best_model_path = _RankingAttribute(
        lambda store: store.durable.kth_best_model_path,
        "The worst of the best checkpoints, once there are as many as are kept.",
    )
    kth_value = _RankingAttribute(
        lambda store: store.durable.kth_value,
        "The monitored value of the worst of the best; infinite until there are as many.",
    )
    last_model_path = _RankingAttribute(
        lambda store: store.durable.last_model_path,
        "The newest checkpoint that `save_last` wrote; empty if there is none. May be set.",
        lambda store, path: _set_path(store, "last_model_path", path),
    )
    current_score = _RankingAttribute(
        lambda store: store.ranking.current_score,
        "The latest monitored value, whether its checkpoint was saved or not.",
    )

    def __init__(
        self,
        dirpath: str | None,
        filename: str | None = None,
        save_weights_only: bool = False,
        async_save: bool = False,
        mode: str = "max",
        auto_insert_metric_name: bool = False,
        enable_version_counter: bool = False,
    ) -> None:
        self.mode = mode
        self.dirpath = dirpath
        self.filename = filename
        self.save_weights_only = save_weights_only
        self.auto_insert_metric_name = auto_insert_metric_name
        self.enable_version_counter = enable_version_counter
        self.async_save = async_save
        self.store = SaveStore(self)
        self._is_folder_given = dirpath is not None
        self._gaps_told: set[str] = set()

    @property
    def has_named_folder(self) -> bool:
        """Whether the user passed a folder."""
        return self._is_folder_given

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, its folder, and the files that a save under way affects."""
        return self.store.state_dict()

    @checks_state(
        {},
        {
            "dirpath": _PATH | None,
            "best_model_path": str,
            "best_model_score": (None, a_tensor_of_one_number),
            "best_k_models": dict[_PATH, a_tensor_of_one_number],  # type: ignore[valid-type]
            "kth_value": a_tensor_of_one_number,
            "kth_best_model_path": str,
            "last_model_path": str,
            "current_score": (None, a_tensor_of_one_number),
            "saved_step": int,
            "considered_at": int,
            "obsolete": list[_PATH],
            "left_by_error": list[_PATH],
            "files": list[_PATH],
            "link": _PATH | None,
        },
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; of another folder's ranking only the best path and the counts."""
        self.store.load_state_dict(state_dict)

    def forget(self) -> None:
        """Reset for a new training. Files of an earlier one stay."""
        self.store.reset()

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Set the default folder of a run, if the user passed none."""
        if not ours(self).has_named_folder:
            self.dirpath = _default_folder(trainer)
        self.store.is_to_save = stage == "fit"

    def folders(self) -> list[str]:
        """Return its folder, once it is resolved."""
        return [] if self.dirpath is None else [self.dirpath]

    def own_files(self) -> list[str]:
        """Return the checkpoints in its folder, once that is resolved."""
        return (
            [] if self.dirpath is None else files_in(self.dirpath, self.FILE_EXTENSION, self._depth)
        )

    @property
    def _depth(self) -> int:
        # a filename such as "{epoch}/{step}" leads into folders below
        return (self.filename or "").count("/")

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in a new default folder those of earlier runs."""
        if ours(self).has_named_folder and self.dirpath is not None:
            files: list[str] = ours(self).own_files()
            return files
        depth = self._depth
        logger = trainer.logger
        # asking a logger for the folder of a run would fix it, and its version, too early
        if not isinstance(logger, FolderLogger) or logger.run_folder.is_fixed:
            files = files_in(_default_folder(trainer), self.FILE_EXTENSION, depth)
            if files:
                return files
        folders = earlier_folders(trainer)
        return [path for each in folders for path in files_in(each, self.FILE_EXTENSION, depth)]

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset for a new training; in a resumed one finish the save that a kill has cut off."""
        if trainer.progress.is_new_training:  # a second fit of the same module goes on instead
            ours(self).forget()
        else:
            self.store.finish_loaded_save(trainer)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Delete the temporary checkpoint that the fit went on from, if another holds as much."""
        self.store.remove_temporary(trainer)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to the durable file, and delete the files that it replaces."""
        self.store.complete(trainer, str(path))

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known.

        Args:
            metrics: numbers or one-element tensors; a missing one shows as `nan`.
            filename: template to use instead of this callback's own.
            ver: a version to append, as in `-v1`.
        """
        template = filename or self.filename or f"{{epoch}}{self.CHECKPOINT_JOIN_CHAR}{{step}}"
        name = fill_template(
            template, metrics, self.CHECKPOINT_EQUALS_CHAR, self.auto_insert_metric_name
        )
        version = "" if ver is None else f"{self.CHECKPOINT_JOIN_CHAR}v{ver}"
        return join_path(self.dirpath or "", f"{name}{version}{self.FILE_EXTENSION}")

    def file_exists(self, filepath: str, trainer: Trainer) -> bool:
        """Return whether there is a file at a path or address."""
        return exists(filepath)

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Delete a file. Override it to move old checkpoints elsewhere instead."""
        try:
            if trainer.custom_io is None:
                remove(path)
            else:
                trainer.custom_io.remove(path)
        except (OSError, CheckpointError) as error:
            warn(
                f"checkpoint {path!r}: it is no longer among those to keep and cannot be removed "
                f"({error}). Remove it yourself.",
                TrainerHooksWarning,
            )

    def _free_path(
        self,
        metrics: Mapping[str, Any],
        filename: str | None = None,
        reusable: Collection[str] = (),
        *,
        is_versioned: bool = False,
    ) -> str:
        """Choose and reserve the path of a new file: an unused one, or one that may be overwritten.

        Args:
            metrics: numbers or one-element tensors, for the template.
            filename: template to use instead of this callback's own.
            reusable: paths that may be overwritten.
            is_versioned: whether a name that is taken gets a version, whatever the user chose.
        """
        template = filename or self.filename or ""
        gaps = sorted(set(template_names(template)) - set(metrics) - self._gaps_told)
        if gaps:
            self._gaps_told.update(gaps)
            warn(
                f"metrics {', '.join(gaps)} in filename {template!r} of "
                f"{type(self).__name__}: not logged when a checkpoint was saved, so they "
                "show as nan. Log them, or take them out of the filename.",
                TrainerHooksWarning,
            )
        if self.store.pending is not None:
            # until its file is there, the name that a pending save takes would look free
            self.store.pending.save.wait()

        path, version = self.format_checkpoint_name(metrics, filename, None), 0
        if self.enable_version_counter or is_versioned:
            reusable = {*reusable, *self.store.saved_again, *self.store.left_by_error}
            # a reservation and not a look at the disk: another run may choose at the same moment
            while path not in reusable and not self.store.reserved_names.take(path):
                path = self.format_checkpoint_name(
                    metrics, filename, self.STARTING_VERSION + version
                )
                version += 1
        # a later save of that name gets a version
        self.store.saved_again.discard(path)
        self.store.left_by_error.discard(path)
        return path


def _default_folder(trainer: Trainer) -> str:
    """Return the folder for checkpoints of a run if the user passed none; nothing is created."""
    logger, root = trainer.logger, trainer.default_root_dir
    folder = root if logger is None else run_dir(logger, root)
    return resolved_folder(join_path(folder, _FOLDER))


def earlier_folders(trainer: Trainer) -> list[str]:
    """Return the default folders of earlier runs.

    A logger gives each run a folder of its own, so those beside this run's belong to earlier runs.
    The logger is not asked for this run's folder: that would fix its version too early.
    """
    default = resolved_folder(trainer.default_root_dir)
    folders = [join_path(default, _FOLDER)]
    logger = trainer.logger
    if isinstance(logger, FolderLogger):
        runs = logger.run_folder.root.resolve()
    elif logger is not None:
        top = resolved_folder(logger.save_dir or default)
        folder = resolved_folder(run_dir(logger, default))
        # without a version it has no folder for each run; a store cannot be searched by a pattern
        if is_remote(folder) or folder == top or not is_inside(folder, top):
            return folders
        runs = Path(folder).parent
    else:
        return folders
    return [*folders, *map(str, runs.glob(f"*/{_FOLDER}"))]


def _holds(path: str, batches: int, io: CustomIO | None) -> bool:
    """Return whether a training can go on from a file after at least so many batches."""
    summary = summarize(path, io)
    return summary.is_resumable and summary.batches >= batches


def _is_same_file(path: str, other: str) -> bool:
    """Return whether two paths lead to the same file, perhaps by a link."""
    if path == other or is_remote(path) or is_remote(other):
        return path == other
    return Path(path).resolve() == Path(other).resolve()


def _is_same_name(path: str, other: str) -> bool:
    """Return whether two paths are one, also where the case of a name makes no difference."""
    if path == other or path.casefold() != other.casefold() or is_remote(path):
        return path == other
    try:
        return os.path.samestat(Path(path).lstat(), Path(other).lstat())
    except FileNotFoundError:
        return False


def _is_older(path: str, checkpoint: str, io: CustomIO | None) -> bool:
    """Return whether there is no whole checkpoint at `path`, or one saved before `checkpoint`."""
    try:
        return summarize(path, io).saved_at < summarize(checkpoint, io).saved_at
    except CheckpointError:  # a broken link, or half a file of another tool
        return True


def _link_to(target: str, link: str) -> None:
    """Make `link` point to `target` atomically; where links are not allowed, make it a copy."""
    if is_remote(link):
        from trainer_hooks.checkpoint import remote

        remote.copy(target, link)
        return
    path = Path(link)
    path.parent.mkdir(parents=True, exist_ok=True)
    # a new link that is renamed over the old one: at no moment is there none
    fresh = hidden_beside(path, ".new")
    fresh.unlink(missing_ok=True)
    try:
        # relative if it lies inside, so that both can be moved together
        source = Path(target)
        is_near = source.is_relative_to(path.parent)
        fresh.symlink_to(source.relative_to(path.parent) if is_near else source)
    except OSError:  # Windows lets only some users create links
        shutil.copy2(target, fresh)
    if (
        path.is_dir() and not path.is_symlink()
    ):  # a sharded folder, which replace() cannot overwrite
        remove(link)
    move(fresh, path)
