"""Saver: a folder of checkpoints, written first, and only then tidied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.saving.book_keeper import BookKeeper, UnderWay
from trainer_hooks.callbacks.saving.filenames import fill_template, template_names
from trainer_hooks.callbacks.saving.ranking import Books
from trainer_hooks.callbacks.saving.saved_files import (
    Plan,
    default_folder,
    earlier_folders,
    free_path,
    is_removable,
    link_to,
)
from trainer_hooks.checkpoint import exists, files_in, joined, remove, summarize
from trainer_hooks.errors import CheckpointError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Saver"]


class Saver(BookKeeper):
    """Name and write checkpoints in one folder, and keep the books on them.

    Args:
        dirpath: the folder, absolute; None for the default, which `setup` resolves.
        filename: the template of their names, or None for `{epoch}-{step}`.
        save_weights_only: leave out what only a resume needs.
        mode: `"min"` or `"max"`: which scores are better.
        auto_insert_metric_name: whether names stand before values in file names.
        enable_version_counter: whether a name that is taken gets a version.
        async_save: whether files are written in the background, while the training goes on.

    State: the books, the folder that they belong to, and what a save that is under way replaces.
    """

    CHECKPOINT_JOIN_CHAR: str = "-"
    CHECKPOINT_EQUALS_CHAR: str = "="
    FILE_EXTENSION: str = ".ckpt"
    STARTING_VERSION: int = 1

    def __init__(
        self,
        dirpath: str | None,
        filename: str | None,
        save_weights_only: bool,
        mode: str,
        auto_insert_metric_name: bool,
        enable_version_counter: bool,
        async_save: bool = False,
    ) -> None:
        super().__init__(mode)
        self.dirpath = dirpath
        self.filename = filename
        self.save_weights_only = save_weights_only
        self.auto_insert_metric_name = auto_insert_metric_name
        self.enable_version_counter = enable_version_counter
        self.async_save = async_save
        self._is_dirpath_given = dirpath is not None
        self._left_over: tuple[str, ...] = ()
        self._for_now: tuple[str, ...] = ()
        self._gaps_told: set[str] = set()

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and what the save under way replaces.

        If the process is killed between the two, it is removed after the resume.
        """
        books = self._books.state_dict()
        obsolete = [
            old
            for plan in self._when_durable.values()
            for old in plan.obsolete
            if plan.is_for_now or old not in plan.files
        ]
        return {"dirpath": self.dirpath, "obsolete": obsolete, **books}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the books back; of another folder's only the best path."""
        folder = state_dict.get("dirpath", self.dirpath)
        if self.dirpath in (None, folder):
            self._books.load_state_dict(state_dict)
            self._left_over = tuple(state_dict.get("obsolete", ()))
            return
        counts = ("best_model_path", "saved_step", "considered_at")
        self._books.load_state_dict({k: v for k, v in state_dict.items() if k in counts})
        warn(
            f"dirpath {self.dirpath!r} of {type(self).__name__}: the checkpoint's was {folder!r}, "
            "so only best_model_path is taken over, and the files there are left alone. Pass that "
            "dirpath to go on with its best checkpoints.",
            TrainerHooksWarning,
        )

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Resolve the default folder."""
        if not self._is_dirpath_given:
            self.dirpath = default_folder(trainer)

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in one that is new, those of earlier runs."""
        # a filename may lead into folders below
        depth = (self.filename or "").count("/")
        if self._is_dirpath_given and self.dirpath is not None:
            return files_in(self.dirpath, self.FILE_EXTENSION, depth)
        found = files_in(default_folder(trainer), self.FILE_EXTENSION, depth)
        if found:
            return found
        earlier = earlier_folders(trainer)
        return [path for item in earlier for path in files_in(item, self.FILE_EXTENSION, depth)]

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Open new books for a new training; go on with an earlier one's where it was cut."""
        if trainer.progress.is_fresh:
            self.forget()
        else:
            self._tidy(trainer)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to what is now durable, and remove what it replaces."""
        plan = self._when_durable.pop(str(path), None)
        if plan is None:
            return
        self._undo_failed()
        self._under_way = None
        if not trainer.is_global_zero:
            return
        if plan.link is not None:
            link_to(plan.files[0], plan.link)
        for old in plan.obsolete:
            is_wanted = self._books.names(old) or old in plan.files or old == plan.link
            if not is_wanted and is_removable(old, self.dirpath, trainer.named_ckpt_path):
                self.remove_checkpoint(trainer, old)

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
        return joined(self.dirpath or "", f"{name}{version}{self.FILE_EXTENSION}")

    def free_path(
        self,
        metrics: Mapping[str, Any],
        filename: str | None = None,
        reusable: Collection[str] = (),
        *,
        is_versioned: bool = False,
    ) -> str:
        """Return a path for a new file: one that no file has, or that may be written over.

        Args:
            metrics: numbers or one-element tensors, for the template.
            filename: template to use instead of this callback's own.
            reusable: paths that may be written over.
            is_versioned: whether a name that is taken gets a version, whatever the user chose.
        """
        self._warn_of_gaps(metrics, filename or self.filename or "")
        if self._under_way is not None:
            self._under_way.save.wait()  # the name that it takes is not free any more

        def name(version: int | None) -> str:
            return self.format_checkpoint_name(metrics, filename, version)

        if not self.enable_version_counter and not is_versioned:
            return name(None)
        return free_path(name, self.STARTING_VERSION, reusable)

    def forget(self) -> None:
        """Forget an earlier training. Its files stay."""
        self._books, self._under_way = Books.opened(self.mode), None
        self._when_durable.clear()
        self._left_over = self._for_now = ()

    def write(self, trainer: Trainer, plan: Plan, books: Books) -> None:
        """Write the files of a plan under new books, or begin to; a failure leaves the old ones.

        The books come first, because they are part of what is saved.

        Raises:
            CheckpointError: they cannot be written, or those before, in the background, could not.
        """
        if self.async_save and not plan.is_for_now:
            trainer.finish_saves()  # what it replaces goes first: it may end with the same file
        plan = replace(plan, obsolete=(*plan.obsolete, *self._for_now))
        before, self._books = self._books, books
        self._when_durable[plan.files[-1]] = plan
        weights_only = self.save_weights_only and not plan.is_for_now
        try:
            if self.async_save and not plan.is_for_now:
                save = trainer.save_in_background(*plan.files, weights_only=weights_only)
                self._under_way = UnderWay(save, before)
            else:
                for path in plan.files:
                    trainer.save_checkpoint(path, weights_only)
        except BaseException:
            self._books = before
            self._when_durable.pop(plan.files[-1], None)
            raise
        self._for_now = ()

    def write_for_now(self, trainer: Trainer, path: str) -> None:
        """Write all that a resume needs to a file that the resumed run's first save replaces."""
        self.write(trainer, Plan((path,), (path,), is_for_now=True), self._books)

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file. Override it to move old checkpoints elsewhere instead."""
        try:
            remove(path)
        except (OSError, CheckpointError) as error:
            warn(
                f"checkpoint {path!r}: it is no longer among those to keep and cannot be removed "
                f"({error}). Remove it yourself.",
                TrainerHooksWarning,
            )

    def _tidy(self, trainer: Trainer) -> None:
        """Remove what the checkpoint that this fit was given had replaced, if a kill left it.

        A checkpoint that was saved for now, and named itself, goes with the next save.
        """
        left, self._left_over = self._left_over, ()
        resumed_from = trainer.ckpt_path
        if resumed_from is None or not trainer.is_global_zero:
            return
        self._for_now = tuple(old for old in left if old == resumed_from)
        for old in left:
            is_wanted = self._books.names(old) or not exists(old)
            if is_wanted or not is_removable(old, self.dirpath, resumed_from):
                continue
            # another training may have used the name since
            if summarize(old).saved_at < summarize(resumed_from).saved_at:
                self.remove_checkpoint(trainer, old)

    def _warn_of_gaps(self, metrics: Mapping[str, Any], template: str) -> None:
        """Say once which metrics of a filename were not logged."""
        gaps = sorted(set(template_names(template)) - set(metrics) - self._gaps_told)
        if gaps:
            self._gaps_told.update(gaps)
            warn(
                f"metrics {', '.join(gaps)} in filename {template!r} of {type(self).__name__}: not "
                "logged when a checkpoint was saved, so they show as nan. Log them, or take them "
                "out of the filename.",
                TrainerHooksWarning,
            )
