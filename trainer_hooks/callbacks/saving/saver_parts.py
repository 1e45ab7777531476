"""The parts of a saver: folder, file names, ranking, and the tracker that writes and deletes."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NoReturn,
    Protocol,
    TypeVar,
    overload,
    runtime_checkable,
)

import torch
from torch import Tensor

from trainer_hooks._log import warn
from trainer_hooks.callbacks.monitored_metric import is_better
from trainer_hooks.callbacks.saving.checkpoint_folder import (
    default_folder,
    earlier_folders,
    has_own_folder,
    is_removable,
    link_to,
)
from trainer_hooks.callbacks.saving.file_names import ReservedNames, fill_template, template_names
from trainer_hooks.checkpoint.file import summarize
from trainer_hooks.checkpoint.paths import exists, files_in, join_path
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.context.context import Trainer

__all__ = [
    "CheckpointFolder",
    "CheckpointRanking",
    "FileNames",
    "PendingSave",
    "RankingAttributes",
    "SavePlan",
    "SaveTracker",
    "Saver",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavePlan:
    """The files that one save writes and deletes.

    Attributes:
        files: the paths to write, in this order.
        obsolete: paths to delete once the last of `files` is durable.
        link: a path that then becomes a link to the first of `files`.
        is_for_now: whether the file is temporary. It stands in its own `obsolete`, so that the
            checkpoint tells the resumed run to delete it.
    """

    files: tuple[str, ...]
    obsolete: tuple[str, ...] = ()
    link: str | None = None
    is_for_now: bool = False

    @classmethod
    def for_now(cls, path: str) -> SavePlan:
        """Return the plan of a temporary file, which a resumed run deletes at its first save."""
        return cls((path,), (path,), is_for_now=True)


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
        saved_step: the optimizer steps completed at the last save.
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

    def names(self, path: str) -> bool:
        """Return whether the ranking contains `path`."""
        return path in self.best_k_models or path in (self.best_model_path, self.last_model_path)

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking as plain data and tensors."""
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        del state["mode"]  # an option, which a resume may change
        return {**state, "best_k_models": dict(self.best_k_models)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the ranking; a field that the state lacks stays as it is."""
        for item in fields(self):
            if item.name in state_dict and item.name != "mode":
                setattr(self, item.name, state_dict[item.name])
        self.best_k_models = dict(self.best_k_models)


@runtime_checkable
class Saver(Protocol):
    """A callback that keeps a ranking of the checkpoints in one folder.

    This is a protocol, not a base class. A saver holds its parts, and a part looks up the saver's
    options at each save: so an option that is changed later counts, and a method that a subclass
    overrides is the one that is called.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    mode: str
    dirpath: str | None
    filename: str | None
    save_weights_only: bool
    auto_insert_metric_name: bool
    enable_version_counter: bool
    async_save: bool
    tracker: SaveTracker

    @property
    def best_model_path(self) -> str:
        """The best checkpoint, without a monitor the newest; empty if there is none."""

    def format_checkpoint_name(
        self, metrics: Mapping[str, Any], filename: str | None = None, ver: int | None = None
    ) -> str:
        """Return the path of a checkpoint with these metrics."""

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Delete a file."""


class CheckpointFolder:
    """Resolve the folder of a saver in each run, and list the checkpoints in it.

    Args:
        saver: the saver; if its `dirpath` is set now, the user passed it.

    Attributes:
        is_given: whether the user passed the folder.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self.is_given = saver.dirpath is not None

    def resolve(self, trainer: Trainer) -> None:
        """Set the default folder of a run, if the user passed none."""
        if not self.is_given:
            self._saver.dirpath = default_folder(trainer)

    def files(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in the folder; in a new default folder those of earlier runs."""
        saver = self._saver
        # a filename such as "{epoch}/{step}" leads into folders below
        depth = (saver.filename or "").count("/")
        if self.is_given and saver.dirpath is not None:
            return files_in(saver.dirpath, saver.FILE_EXTENSION, depth)
        if has_own_folder(trainer):
            files = files_in(default_folder(trainer), saver.FILE_EXTENSION, depth)
            if files:
                return files
        earlier = earlier_folders(trainer)
        return [path for item in earlier for path in files_in(item, saver.FILE_EXTENSION, depth)]


class FileNames:
    """Choose the paths of a saver's files from its template and folder.

    Args:
        saver: the saver.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._warned_of: set[str] = set()

    def path(self, metrics: Mapping[str, Any], filename: str | None, ver: int | None) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known.

        Args:
            metrics: numbers or one-element tensors; a missing one shows as `nan`.
            filename: template to use instead of the saver's own.
            ver: a version to append, as in `-v1`.
        """
        saver = self._saver
        template = filename or saver.filename or f"{{epoch}}{saver.CHECKPOINT_JOIN_CHAR}{{step}}"
        name = fill_template(
            template, metrics, saver.CHECKPOINT_EQUALS_CHAR, saver.auto_insert_metric_name
        )
        version = "" if ver is None else f"{saver.CHECKPOINT_JOIN_CHAR}v{ver}"
        return join_path(saver.dirpath or "", f"{name}{version}{saver.FILE_EXTENSION}")

    def free(
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
            filename: template to use instead of the saver's own.
            reusable: paths that may be overwritten.
            is_versioned: whether a name that is taken gets a version, whatever the user chose.
        """
        saver = self._saver
        template = filename or saver.filename or ""
        gaps = sorted(set(template_names(template)) - set(metrics) - self._warned_of)
        if gaps:
            self._warned_of.update(gaps)
            warn(
                f"metrics {', '.join(gaps)} in filename {template!r} of "
                f"{type(saver).__name__}: not logged when a checkpoint was saved, so they "
                "show as nan. Log them, or take them out of the filename.",
                TrainerHooksWarning,
            )
        if saver.tracker.pending is not None:
            # until its file is there, the name that a pending save takes would look free
            saver.tracker.pending.save.wait()

        path, version = saver.format_checkpoint_name(metrics, filename, None), 0
        if not saver.enable_version_counter and not is_versioned:
            return path
        # a reservation and not a look at the disk: another run may choose at the same moment
        while path not in reusable and not saver.tracker.reserved_names.take(path):
            path = saver.format_checkpoint_name(metrics, filename, saver.STARTING_VERSION + version)
            version += 1
        return path


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A background save that is not durable yet, and the ranking before it."""

    save: BackgroundSave
    before: CheckpointRanking


class SaveTracker:
    """Write a saver's files, keep its ranking, and delete replaced files once new ones are durable.

    The ranking includes files that are still being written: it is part of the state that they
    hold, and the next decision builds on it. `durable` is the ranking without them. If a
    background save fails, the ranking from before it returns.

    Args:
        saver: the saver, whose options are looked up at each save.

    Attributes:
        pending: the background save that was started last, until it is durable or has failed.
        reserved_names: the reserved names of files that do not exist yet.
        left_over: files that were replaced, but not deleted, when the resumed run was killed.
        around: returns the context in which the files of a plan are written; None for no context.
        is_to_save: whether the run saves, so that a change of the folder deserves a warning.

    State: the ranking, its folder, and the files that a pending save replaces.
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
        self._plans: dict[str, SavePlan] = {}
        self.pending: PendingSave | None = None
        self.left_over: tuple[str, ...] = ()
        self._for_now: tuple[str, ...] = ()

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

        Args:
            trainer: the trainer.
            plan: the files.
            ranking: the ranking with these files. If the save fails, the present one stays.

        Raises:
            CheckpointError: the files cannot be written, or a background save before them failed.
        """
        saver = self._saver
        is_in_background = saver.async_save and not plan.is_for_now
        with nullcontext() if self.around is None else self.around(plan):
            if is_in_background:
                # what the previous save replaces must be deleted before this one may reuse a name
                trainer.finish_saves()
            plan = replace(plan, obsolete=(*plan.obsolete, *self._for_now))
            # before the files are written, because the ranking is part of the state in them
            before, self._ranking = self.ranking, ranking
            self._plans[plan.files[-1]] = plan
            weights_only = saver.save_weights_only and not plan.is_for_now
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
            self._for_now = ()

    def complete(self, trainer: Trainer, path: str) -> None:
        """Finish the plan of a file that is durable now: make its link, delete replaced files."""
        saver, plan = self._saver, self._plans.pop(path, None)
        if plan is not None:
            if self.pending is not None:
                self._discard_failed_save(self.pending)
            self.pending = None
        # all ranks share the files: one of them links and deletes
        if plan is None or not trainer.is_global_zero:
            self.reserved_names.release(path)
            return
        if plan.link is not None:
            link_to(plan.files[0], plan.link)
        self.reserved_names.release(path, plan.link)
        # only now: had the process been killed before, the old files would still be there
        for old in plan.obsolete:
            is_kept = self.ranking.names(old) or old in plan.files or old == plan.link
            if not is_kept and is_removable(old, saver.dirpath, trainer.named_ckpt_path):
                saver.remove_checkpoint(trainer, old)

    def delete_left_over(self, trainer: Trainer) -> None:
        """Delete the files that the resumed checkpoint had replaced, if a kill prevented it.

        A temporary checkpoint that the run resumes from is deleted at the next save.
        """
        saver = self._saver
        left, self.left_over = self.left_over, ()
        resumed_from = trainer.ckpt_path
        if resumed_from is None or not trainer.is_global_zero:
            return
        self._for_now = tuple(old for old in left if old == resumed_from)
        for old in left:
            is_kept = self.ranking.names(old) or not exists(old)
            if is_kept or not is_removable(old, saver.dirpath, resumed_from):
                continue
            # another training may have used the name since
            if summarize(old).saved_at < summarize(resumed_from).saved_at:
                saver.remove_checkpoint(trainer, old)

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, its folder, and the files that a pending save replaces.

        If the process is killed before they are deleted, a resume deletes them.
        """
        ranking = self.ranking.state_dict()
        obsolete = [
            old
            for plan in self._plans.values()
            for old in plan.obsolete
            if plan.is_for_now or old not in plan.files
        ]
        return {"dirpath": self._saver.dirpath, "obsolete": obsolete, **ranking}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the ranking; if it is of another folder, only the path of the best checkpoint."""
        saver, ranking = self._saver, self.ranking
        folder = state_dict.get("dirpath", saver.dirpath)
        if saver.dirpath in (None, folder):
            ranking.load_state_dict(state_dict)
            self.left_over = tuple(state_dict.get("obsolete", ()))
            return
        # the files of another folder are not this saver's to rank or delete
        kept = ("best_model_path", "saved_step", "considered_at")
        ranking.load_state_dict({k: v for k, v in state_dict.items() if k in kept})
        if not self.is_to_save:
            return
        warn(
            f"dirpath {saver.dirpath!r} of {type(saver).__name__}: the checkpoint's was "
            f"{folder!r}, so only best_model_path is taken over, and the files there are left "
            "alone. Pass that dirpath to go on with its best checkpoints.",
            TrainerHooksWarning,
        )

    def _discard_failed_save(self, pending: PendingSave) -> None:
        """Restore the ranking from before a background save, if that has failed."""
        if pending.save.has_failed:
            self.pending, self._ranking = None, pending.before
            self._plans.pop(pending.save.paths[-1], None)
            self.reserved_names.release_all()


class _HasTracker(Protocol):
    tracker: SaveTracker


class _RankingAttribute(Generic[T]):
    """A read-only attribute that shows a value of a saver's ranking."""

    def __init__(self, read: Callable[[SaveTracker], T], doc: str) -> None:
        self._read = read
        self.__doc__ = doc

    @overload
    def __get__(self, saver: None, owner: type) -> _RankingAttribute[T]: ...

    @overload
    def __get__(self, saver: _HasTracker, owner: type) -> T: ...

    def __get__(self, saver: _HasTracker | None, owner: type) -> T | _RankingAttribute[T]:
        return self if saver is None else self._read(saver.tracker)

    def __set__(self, saver: _HasTracker, value: T) -> NoReturn:
        raise AttributeError(
            f"value {value!r} for the ranking of {type(saver).__name__}: the paths and scores of "
            "its checkpoints can only be read. Change its options instead."
        )


class RankingAttributes:
    """The attributes of a saver that show its ranking, under Lightning's names.

    A saver copies them into its own class: as a base class, this one would stand between every
    saver and `Checkpoint`.
    """

    best_model_path = _RankingAttribute(
        lambda tracker: tracker.durable.best_model_path,
        "The best checkpoint, without a monitor the newest; empty if there is none.",
    )
    best_model_score = _RankingAttribute(
        lambda tracker: tracker.durable.best_model_score,
        "The monitored value of the best checkpoint.",
    )
    best_k_models = _RankingAttribute(
        lambda tracker: dict(tracker.durable.best_k_models),
        "The best checkpoints and their monitored values.",
    )
    kth_best_model_path = _RankingAttribute(
        lambda tracker: tracker.durable.kth_best_model_path,
        "The worst of the best checkpoints, once there are as many as are kept.",
    )
    kth_value = _RankingAttribute(
        lambda tracker: tracker.durable.kth_value,
        "The monitored value of the worst of the best; infinite until there are as many.",
    )
    last_model_path = _RankingAttribute(
        lambda tracker: tracker.durable.last_model_path,
        "The newest checkpoint that `save_last` wrote; empty if there is none.",
    )
    current_score = _RankingAttribute(
        lambda tracker: tracker.ranking.current_score,
        "The latest monitored value, whether its checkpoint was saved or not.",
    )
