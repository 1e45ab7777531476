"""Saver: a folder of checkpoints, written first, and only then tidied."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.checkpoint import Checkpoint
from trainer_hooks.callbacks.filenames import fill_template, template_names
from trainer_hooks.callbacks.ranking import Books
from trainer_hooks.callbacks.saved_files import (
    Plan,
    free_path,
    is_removable,
    link_to,
    resolved_folder,
)
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor

    from trainer_hooks.checkpoint.background import BackgroundSave
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Saver", "may_save"]


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A save in the background, and the books before it."""

    save: BackgroundSave
    before: Books


def may_save(trainer: Trainer) -> bool:
    """Return whether this is a fit whose results count."""
    return trainer.state.fn == "fit" and not trainer.fast_dev_run


class Saver(Checkpoint):
    """Name and write checkpoints in one folder, and keep the books on them.

    Args:
        dirpath: the folder, absolute; None for the default, which `setup` resolves.
        filename: the template of their names, or None for `{epoch}-{step}`.
        save_weights_only: leave out what only a resume needs.
        mode: `"min"` or `"max"`: which scores are better.
        auto_insert_metric_name: whether names stand before values in file names.
        enable_version_counter: whether a name that is taken gets a version.
        async_save: whether files are written in the background, while the training goes on.

    What is still being written is part of what is saved, and of what the next save is decided on;
    `best_model_path` and its kin name it once it is durable. If it fails, the books go back.

    State: the books, and the folder that they belong to.
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
        self.dirpath = dirpath
        self.filename = filename
        self.save_weights_only = save_weights_only
        self.mode = mode
        self.auto_insert_metric_name = auto_insert_metric_name
        self.enable_version_counter = enable_version_counter
        self.async_save = async_save
        self._is_dirpath_given = dirpath is not None
        self._entries = Books.opened(mode)
        self._under_way: _UnderWay | None = None
        self._when_durable: dict[str, Plan] = {}
        self._gaps_told: set[str] = set()

    @property
    def _books(self) -> Books:
        """The books with what is under way, and without what failed."""
        under_way = self._under_way
        if under_way is not None and under_way.save.has_failed:
            self._under_way, self._entries = None, under_way.before
            self._when_durable.pop(under_way.save.paths[-1], None)
        return self._entries

    @_books.setter
    def _books(self, books: Books) -> None:
        self._entries = books

    @property
    def _durable(self) -> Books:
        """The books of what is durable."""
        books, under_way = self._books, self._under_way
        return books if under_way is None or under_way.save.is_durable else under_way.before

    @property
    def best_model_path(self) -> str:
        """The best checkpoint, without a monitor the newest; empty if there is none."""
        return self._durable.best_model_path

    @property
    def best_model_score(self) -> Tensor | None:
        """The monitored value of the best checkpoint."""
        return self._durable.best_model_score

    @property
    def best_k_models(self) -> dict[str, Tensor]:
        """The best checkpoints and their monitored values."""
        return dict(self._durable.best_k_models)

    @property
    def kth_best_model_path(self) -> str:
        """The worst of the best checkpoints, once there are as many as are kept."""
        return self._durable.kth_best_model_path

    @property
    def kth_value(self) -> Tensor:
        """The monitored value of the worst of the best; infinite until there are as many."""
        return self._durable.kth_value

    @property
    def last_model_path(self) -> str:
        """The newest checkpoint that `save_last` wrote; empty if there is none."""
        return self._durable.last_model_path

    @property
    def current_score(self) -> Tensor | None:
        """The monitored value that was looked at last, saved or not."""
        return self._books.current_score

    def state_dict(self) -> dict[str, Any]:
        """Return the books and the folder."""
        return {"dirpath": self.dirpath, **self._books.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the books back; of another folder's only the best path."""
        folder = state_dict.get("dirpath", self.dirpath)
        if self.dirpath in (None, folder):
            self._books.load_state_dict(state_dict)
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
            root = trainer.log_dir if trainer.logger is not None else None
            folder = Path(root or trainer.default_root_dir) / "checkpoints"
            self.dirpath = resolved_folder(folder)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Open new books for a new training."""
        if trainer.progress.is_fresh:
            self.forget()

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to what is now durable, and remove what it replaces."""
        plan = self._when_durable.pop(str(path), None)
        if plan is None:
            return
        self._under_way = None
        if not trainer.is_global_zero:
            return
        if plan.link is not None:
            link_to(plan.files[0], plan.link)
        for old in plan.obsolete:
            is_wanted = self._books.names(old) or old in plan.files or old == plan.link
            if not is_wanted and is_removable(old, self.dirpath, trainer.ckpt_path):
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
        return str(Path(self.dirpath or "", f"{name}{version}{self.FILE_EXTENSION}"))

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

    def write(self, trainer: Trainer, plan: Plan, books: Books) -> None:
        """Write the files of a plan under new books, or begin to; a failure leaves the old ones.

        The books come first, because they are part of what is saved.

        Raises:
            CheckpointError: they cannot be written, or those before, in the background, could not.
        """
        if self.async_save:
            trainer.finish_saves()  # what it replaces goes first: it may end with the same file
        before, self._books = self._books, books
        self._when_durable[plan.files[-1]] = plan
        try:
            if self.async_save:
                weights_only = self.save_weights_only
                save = trainer.save_in_background(*plan.files, weights_only=weights_only)
                self._under_way = _UnderWay(save, before)
            else:
                for path in plan.files:
                    trainer.save_checkpoint(path, self.save_weights_only)
        except BaseException:
            self._books = before
            self._when_durable.pop(plan.files[-1], None)
            raise

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file. Override it to move old checkpoints elsewhere instead."""
        try:
            Path(path).unlink(missing_ok=True)
        except OSError as error:
            warn(
                f"checkpoint {path!r}: it is no longer among those to keep and cannot be removed "
                f"({error}). Remove it yourself.",
                TrainerHooksWarning,
            )

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
