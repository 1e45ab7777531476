"""CheckpointSaver: save at an interval, keep the newest, and write over no other run's files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.callbacks.monitoring import decided_by_first, is_training
from trainer_hooks.callbacks.saving.saved_files import Plan
from trainer_hooks.callbacks.saving.saver_options import (
    check_dirpath,
    check_filename,
    check_flags,
    check_kept,
)
from trainer_hooks.callbacks.saving.templates import check_template, names_of
from trainer_hooks.callbacks.saving.unranked_saver import UnrankedSaver
from trainer_hooks.checkpoint import IgnoreKeys, check_ignore_keys, is_remote, leave_out
from trainer_hooks.clock import Cue, TimeUnit, When, parse_when
from trainer_hooks.compat.composer.callbacks.others_files import OthersFiles
from trainer_hooks.compat.composer.callbacks.remote_copies import RemoteCopies
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["CheckpointSaver"]

_WHERE = "CheckpointSaver"
_SLOTS = {
    TimeUnit.EPOCH: ("epoch",),
    TimeUnit.ITERATION: ("iteration",),
    TimeUnit.SECOND: ("batch", "epoch"),
    TimeUnit.DURATION: ("batch", "epoch"),
}
"""Where something may be due; counts of what a batch has after each batch."""


class CheckpointSaver(UnrankedSaver):
    """Save at an interval and at the end of training; keep the newest checkpoints.

    It is Composer's way of saving; `ModelCheckpoint` is Lightning's, which can rank by a metric. A
    new file is durable before an old one is removed.

    Args:
        folder: where; by default `checkpoints` in the logger's folder, or without a logger in
            `default_root_dir`.
        filename: template with `{epoch}` (epochs completed), `{batch}` and `{step}` (likewise, over
            all epochs), `{batch_in_epoch}`, `{rank}`, `{world_size}` and logged metrics.
        remote_file_name: template of the addresses, such as `"s3://bucket/a/ep{epoch}.pt"`, to
            which each checkpoint is sent by other threads while the training goes on. What was
            sent stays there; here a file stays at least until it is sent. What cannot be sent is an
            error at the next save or the end of the run, which waits.
        latest_filename: template of a link to the newest checkpoint; None for no link.
        latest_remote_file_name: template of an address that becomes the same as the newest
            checkpoint once that is there; None for none.
        save_interval: a time such as `"500ba"` (batches), `"1ep"` (epochs), `"200st"` (optimizer
            steps), `"1e6tok"` (tokens), `"30m"` or `"0.1dur"` (a tenth of the training); a number
            of epochs; a filter such as `every("1ep") | once("10ba")`; or a function that is called
            with `trainer.clock` at the end of each batch, epoch and iteration, and returns whether
            to save.
        num_checkpoints_to_keep: how many, the newest; -1 for all.
        overwrite: whether files that were there before the training may be written over.
        weights_only: leave out what only a resume needs.
        ignore_keys: what is not saved: patterns of keys such as `"state_dict/frozen.*"`, or a
            function that is given the checkpoint and changes it. `LoadCheckpoint` has the same.
        num_concurrent_uploads: how many checkpoints are sent at a time.
        upload_timeout_in_seconds: how long the end of the run waits for what is being sent.
        async_save: whether files are written in the background, as in `ModelCheckpoint`.

    Raises:
        OptionError: an argument is outside its rule.
        CheckpointError: in a run, a file is in the way, and `overwrite` is False.

    State: paths of the checkpoints that it keeps, so a resumed run removes them in their turn, and
    where they go, so that it sends what is not there yet; the counts when it last looked. Where the
    folder is another one than the checkpoint's, only `best_model_path`, the newest checkpoint, is
    taken over.

    Example::

        from trainer_hooks.compat.composer.callbacks import CheckpointSaver

        saver = CheckpointSaver("runs/a", save_interval="500ba", num_checkpoints_to_keep=3)
        trainer = Trainer(max_epochs=2, callbacks=[saver])
        trainer.fit(module, train_loader)
    """

    FILE_EXTENSION: str = ""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None = None,
        filename: str = "ep{epoch}-ba{batch}-rank{rank}.pt",
        remote_file_name: str | None = None,
        latest_filename: str | None = "latest-rank{rank}.pt",
        latest_remote_file_name: str | None = None,
        save_interval: When | int = "1ep",
        *,
        num_checkpoints_to_keep: int = -1,
        overwrite: bool = False,
        weights_only: bool = False,
        ignore_keys: IgnoreKeys | None = None,
        num_concurrent_uploads: int = 1,
        upload_timeout_in_seconds: float = 3600,
        async_save: bool = False,
    ) -> None:
        check_flags(_WHERE, overwrite=overwrite, weights_only=weights_only, async_save=async_save)
        super().__init__(
            check_dirpath(folder, _WHERE),
            check_filename(check_template(filename, _WHERE), _WHERE),
            weights_only,
            async_save,
        )
        self.latest_filename = check_filename(latest_filename, _WHERE)
        self.save_interval = parse_when(save_interval, "save_interval", _WHERE, bare=TimeUnit.EPOCH)
        self._slots = {slot for unit in self.save_interval.units for slot in _slots_of(unit)}
        self.num_checkpoints_to_keep = check_kept(num_checkpoints_to_keep, _WHERE)
        self.overwrite = overwrite
        self.ignore_keys = check_ignore_keys(ignore_keys, _WHERE)
        self._copies = RemoteCopies(
            remote_file_name,
            latest_remote_file_name,
            num_concurrent_uploads,
            upload_timeout_in_seconds,
            _WHERE,
        )
        if remote_file_name is not None and is_remote(self.dirpath or ""):
            raise OptionError(
                f"remote_file_name {remote_file_name!r} of {_WHERE}: folder {folder!r} is in "
                "another store already. Pass one of the two."
            )
        self._others = OthersFiles(self, _WHERE)
        self._put_off: list[str] = []
        self._is_writing = False
        self._cue = Cue(self.save_interval)

    @property
    def state_key(self) -> str:
        """The class with what tells two instances apart: the interval and the filename."""
        interval = repr(self.save_interval)
        return self._generate_state_key(save_interval=interval, filename=self.filename)

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and the counts when it last looked."""
        asked, remote = self._cue.state_dict(), self._copies.state_dict()
        state = {**super().state_dict(), "asked": asked, "remote": remote}
        state["obsolete"] = [*state["obsolete"], *self._put_off]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take back what `state_dict` returned; of another folder's books only the newest path."""
        super().load_state_dict(state_dict)
        if "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])
        self._copies.load_state_dict(state_dict.get("remote", {}))

    def forget(self) -> None:
        """Forget an earlier training. Its files stay."""
        super().forget()
        self._cue.forget()
        self._copies.forget_all()

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder; in one that is new, those of earlier runs."""
        found = super().candidates(trainer)
        return [path for path in found if self._others.fields_of(path) is not None]

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Refuse to train if what will be saved would be written over other files."""
        if trainer.ckpt_path is not None:
            # before what a cut run had replaced, but not yet sent, is removed
            self._copies.send_missing([*self._writer.left_over, *self.ledger.books.best_k_models])
        super().on_fit_start(trainer, module)
        if not self.overwrite and is_training(trainer):
            self._others.refuse_later(trainer)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start counting, or go on."""
        self._cue.start(trainer.clock)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if that is due by batches or steps."""
        if self._copies.is_busy:
            self._settle(trainer)
        self._save_if_due(trainer, "batch")

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if that is due by epochs."""
        self._save_if_due(trainer, "epoch")

    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if that is due by iterations."""
        self._save_if_due(trainer, "iteration")

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Save what was trained since the last save."""
        self._save(trainer)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save because `trainer.request_checkpoint()` was called; the schedule stays as it is."""
        self._save(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Leave out of its own checkpoints what is to be ignored."""
        if self._is_writing and self.ignore_keys is not None:
            leave_out(checkpoint, self.ignore_keys)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to what is now durable, send it, and remove what it replaces."""
        super().on_checkpoint_saved(trainer, module, path)
        self._copies.send(str(path))

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file, once it is sent."""
        if self._copies.is_under_way(path):
            self._put_off.append(path)
        elif not self._copies.has_failed(path):
            super().remove_checkpoint(trainer, path)
            self._copies.forget(path)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Wait until all is sent."""
        try:
            self._copies.finish()
        finally:
            self._remove_put_off(trainer)

    def _settle(self, trainer: Trainer) -> None:
        self._copies.settle()
        self._remove_put_off(trainer)

    def _remove_put_off(self, trainer: Trainer) -> None:
        waiting, self._put_off = self._put_off, []
        for path in waiting:
            self.remove_checkpoint(trainer, path)

    def _save_if_due(self, trainer: Trainer, slot: str) -> None:
        if slot not in self._slots:
            return
        is_due = self._cue.is_due(trainer.clock)
        if decided_by_first(trainer, lambda: is_due):  # each counts its own samples and tokens
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        """Save, unless this moment was saved already or nothing was trained."""
        done = trainer.progress.batches_completed
        if not is_training(trainer) or done == self.ledger.books.considered_at:
            return
        self._settle(trainer)
        books, names = self.ledger.books.copy(), names_of(trainer)
        path = decided_by_first(trainer, lambda: self._names.free(names))
        if not self.overwrite:
            self._others.refuse_at(path)
        keep = self.num_checkpoints_to_keep
        books.best_k_models.pop(path, None)  # a name without counters is written over
        replaced = books.outranked(keep)
        books.add(path, torch.tensor(done), keep)
        books.considered_at, books.saved_step = done, trainer.global_step
        link = None
        if self.latest_filename is not None:
            link = books.last_model_path = self.format_checkpoint_name(names, self.latest_filename)
        self._copies.expect(path, names)
        self._is_writing = True
        try:
            self._writer.write(trainer, Plan((path,), tuple(replaced), link), books)
        finally:
            self._is_writing = False


def _slots_of(unit: TimeUnit) -> tuple[str, ...]:
    return _SLOTS.get(unit, ("batch",))
