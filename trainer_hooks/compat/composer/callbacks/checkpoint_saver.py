"""CheckpointSaver: save at an interval, keep the newest, upload them, overwrite no other run's."""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import log
from trainer_hooks._options import check_option, whole_number
from trainer_hooks._system import path_end
from trainer_hooks._text import first_few
from trainer_hooks.callbacks.base import decide_on_rank_zero, is_real_fit
from trainer_hooks.callbacks.saver_base import (
    SavePlan,
    Saver,
    check_dirpath,
    check_filename,
    check_flags,
    check_kept,
    check_template,
    fill_template,
    read_template,
    require_usable_path,
    template_names,
    template_values,
)
from trainer_hooks.checkpoint.paths import exists, file_name, files_in, is_remote
from trainer_hooks.checkpoint.weights import IgnoreKeys, check_ignore_keys, remove_keys
from trainer_hooks.clock.schedules import DueCondition, DueTracker, When, parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn
from trainer_hooks.compat.composer.core.evaluator import create_interval_scheduler
from trainer_hooks.compat.composer.utils.helpers import format_name_with_dist
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CheckpointError, OptionError, did_you_mean
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from trainer_hooks.clock.clock import Clock
    from trainer_hooks.compat.composer.trainer_events import TrainerEventSource
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["CheckpointSaver"]

_WHERE = "CheckpointSaver"
_MOMENTS = {
    TimeUnit.EPOCH: ("epoch",),
    TimeUnit.ITERATION: ("iteration",),
    TimeUnit.SECOND: ("batch", "epoch"),
    TimeUnit.DURATION: ("batch", "epoch"),
}
"""The moments at which an interval in a unit is checked; after each batch in any other unit."""
_COUNTERS = ("epoch", "batch", "step")
"""The placeholders of a filename that grow during a training."""
_RUN_NAME = "{run_name}"
_SHOWN = 3
"""How many files an error names."""


class _IntervalFunction:
    """A function that says whether to save: of Composer's state and event, or of the clock.

    Args:
        function: the function.

    Attributes:
        source: the event source whose state it gets; None outside Composer's Trainer.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.source: TrainerEventSource | None = None
        # for the state_key
        self.__qualname__ = str(getattr(function, "__qualname__", type(function).__qualname__))

    def __call__(self, clock: Clock) -> bool:
        """Return whether to save."""
        if self.source is not None and self._takes(2):
            return bool(self._function(self.source.state, self.source.last_checkpoint_event))
        if not self._takes(1):
            raise OptionError(
                f"save_interval {self.__qualname__} of {_WHERE}: a function of the state and the "
                "event, which only the Trainer of trainer_hooks.compat.composer has. Here it must "
                "take trainer.clock alone."
            )
        return bool(self._function(clock))

    def _takes(self, count: int) -> bool:
        try:
            signature_of(self._function).bind(*[None] * count)
        except TypeError:
            return False
        except ValueError:  # a function without a signature, of C
            return count == 1
        return True


class CheckpointSaver(Saver, ComposerBuiltIn):  # type: ignore[misc] # run_event
    """Save at an interval and at the end of training; keep the newest checkpoints.

    It has Composer's arguments; `ModelCheckpoint` has Lightning's, and can rank by a metric. A new
    file is durable before an old one is removed.

    Args:
        folder: the folder of the checkpoints; in Composer's Trainer a template with `{run_name}`
            and `{rank}`, by default `{run_name}/checkpoints`; in a `trainer_hooks.Trainer` by
            default `checkpoints` in the logger's folder, or without a logger in `default_root_dir`.
        filename: template with `{epoch}` (epochs completed), `{batch}` and `{step}` (batches and
            steps completed, over all epochs), `{batch_in_epoch}`, `{rank}`, `{world_size}` and
            logged metrics; in Composer's Trainer also `{run_name}`.
        remote_file_name: template of the addresses, such as `"s3://bucket/a/ep{epoch}.pt"`, to
            which other threads upload each checkpoint during the training. Uploaded files are never
            removed; a local file is kept at least until its upload is done. A failed upload is an
            error at the next save or at the end of the run, which waits for all uploads.
        latest_filename: template of a link to the newest checkpoint; None for no link.
        latest_remote_file_name: template of an address that gets a copy of each checkpoint once its
            upload is done; None for no copy.
        save_interval: a time such as `"500ba"` (batches), `"1ep"` (epochs), `"200st"` (optimizer
            steps), `"1e6tok"` (tokens), `"30m"` or `"0.1dur"` (a tenth of the training); a number
            of epochs; a filter such as `every("1ep") | once("10ba")`; or a function that is called
            at the end of each batch, epoch and iteration, and returns whether to save: with the
            state and the event in Composer's Trainer, elsewhere with `trainer.clock`.
        num_checkpoints_to_keep: the number of newest checkpoints to keep; -1 for all.
        overwrite: whether files from before the training may be overwritten.
        weights_only: whether to leave out the state that only a resume needs.
        ignore_keys: patterns of keys that are not saved, such as `"state_dict/frozen.*"`, or a
            function that changes the checkpoint. `LoadCheckpoint` has the same argument.
        num_concurrent_uploads: the number of uploads at a time.
        upload_timeout_in_seconds: how long the end of the run waits for uploads.
        async_save: whether files are written in the background, as in `ModelCheckpoint`.

    Raises:
        OptionError: an argument is outside its rule; in a run, a template has a name that is
            neither a counter nor a logged metric.
        CheckpointError: in a run, a file is in the way, and `overwrite` is False.

    State: the paths of the checkpoints that it keeps, so that a resumed run removes them in turn;
    their addresses, so that it uploads those that are missing; and the counts when it last checked
    the interval. If the folder is not the checkpoint's, only `best_model_path`, the newest
    checkpoint, is restored.

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
        save_interval: When | int | Callable[..., Any] = "1ep",
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
        self._interval_function: _IntervalFunction | None = None
        if callable(save_interval) and not isinstance(save_interval, DueCondition):
            save_interval = self._interval_function = _IntervalFunction(save_interval)
        self.save_interval = parse_when(save_interval, "save_interval", _WHERE, bare=TimeUnit.EPOCH)
        self._moments = {
            moment for unit in self.save_interval.units for moment in _MOMENTS.get(unit, ("batch",))
        }
        self.num_checkpoints_to_keep = check_kept(num_checkpoints_to_keep, _WHERE)
        self.overwrite = overwrite
        self.ignore_keys = check_ignore_keys(ignore_keys, _WHERE)
        self._uploader = CheckpointUploader(
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
        self._pending_removals: list[str] = []
        self._is_saving = False
        # as given: a saver may be bound to several runs, one after another
        self._templates = (
            None if folder is None else str(folder), str(self.filename), self.latest_filename,
            remote_file_name, latest_remote_file_name,
        )  # fmt: skip
        self._due_tracker = DueTracker(self.save_interval)
        is_share = TimeUnit.DURATION in self.save_interval.units and not callable(save_interval)
        self._share = str(save_interval) if is_share else None

    @property
    def state_key(self) -> str:
        """`CheckpointSaver{'save_interval': ..., 'filename': ...}`."""
        interval = repr(self.save_interval)
        # not filled in, since a resume may have another run's name
        return self._generate_state_key(save_interval=interval, filename=self._templates[1])

    def bind_run(self, source: TrainerEventSource) -> None:
        """Fill in the name of a run of Composer's Trainer, which calls this when it is made.

        Args:
            source: the event source of the trainer.

        Raises:
            OptionError: the folder has another placeholder.
        """
        run_name = source.state.run_name
        folder, *others = self._templates
        try:
            filled = format_name_with_dist(folder or "{run_name}/checkpoints", run_name)
        except (KeyError, IndexError, ValueError) as error:
            raise OptionError(
                f"folder {folder!r} of {_WHERE}: its placeholders can be {{run_name}}, {{rank}}, "
                "{local_rank} and {world_size}. Take the others out."
            ) from error
        self.dirpath, self._is_folder_given = check_dirpath(filled, _WHERE), True
        names = [name and name.replace(_RUN_NAME, run_name) for name in others]
        self.filename, self.latest_filename, *addresses = names
        self._uploader.file_name, self._uploader.latest_name = addresses
        if self._share is not None:
            # Composer rounds a share of the training otherwise than trainer_hooks
            self._interval_function = _IntervalFunction(create_interval_scheduler(self._share))
            self._due_tracker.when = parse_when(self._interval_function, "save_interval", _WHERE)
        if self._interval_function is not None:
            self._interval_function.source = source

    def state_dict(self) -> dict[str, Any]:
        """Return the ranking, the folder, the addresses, and the counts of the last check."""
        state = super().state_dict()
        state["asked"] = self._due_tracker.state_dict()
        state["remote"] = self._uploader.state_dict()
        # if the process ends before their uploads do, the resumed run removes them
        state["obsolete"] = [*state["obsolete"], *self._pending_removals]
        return state

    @checks_state({}, {"asked": dict[str, float], "remote": dict[str, tuple[str, Any]]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; of another folder's ranking only the best path and the counts."""
        super().load_state_dict(state_dict)
        if "asked" in state_dict:
            self._due_tracker.load_state_dict(state_dict["asked"])
        self._uploader.load_state_dict(state_dict.get("remote", {}))

    def forget(self) -> None:
        """Reset the state for another training. The files of the earlier one stay."""
        super().forget()
        self._due_tracker.forget()
        self._uploader.forget_all()

    def candidates(self, trainer: Trainer) -> list[str]:
        """Return the checkpoints in its folder, also in the folders of earlier runs."""
        paths = super().candidates(trainer)
        return [path for path in paths if self._fields_of(path) is not None]

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Raise an error if a name has no run's name, or other files would be overwritten."""
        for template in (self.dirpath, self.filename, self.latest_filename):
            if template is not None and _RUN_NAME in template:
                raise OptionError(
                    f"{template!r} of {_WHERE}: only the Trainer of trainer_hooks.compat.composer "
                    "has a run's name. Write it out, or leave it out."
                )
        if trainer.ckpt_path is not None:
            # first, since on_fit_start removes the files that the interrupted run had replaced
            self._uploader.upload_missing(
                [*self.store.to_replace, *self.store.ranking.best_k_models]
            )
        super().on_fit_start(trainer, module)
        if not self.overwrite and is_real_fit(trainer):
            self._check_folder(trainer)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start to track the interval, or continue."""
        self._due_tracker.start(trainer.clock)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the interval is due after a batch; raise the error of a failed upload."""
        # asked first, as this comes after every batch
        if self._uploader.has_uploads:
            self._collect_uploads(trainer)
        self._save_if_due(trainer, "batch")

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the interval is due after an epoch."""
        self._save_if_due(trainer, "epoch")

    def on_iteration_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if the interval is due after an iteration."""
        self._save_if_due(trainer, "iteration")

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Save unless nothing was trained since the last save."""
        self._save(trainer)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save on `trainer.request_checkpoint()`; the interval is not affected."""
        self._save(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Remove the keys to ignore from its own checkpoints."""
        # other savers' files, and the user's, keep the keys
        if self._is_saving and self.ignore_keys is not None:
            remove_keys(checkpoint, self.ignore_keys)

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Link to the durable checkpoint, upload it, and remove the files that it replaces."""
        super().on_checkpoint_saved(trainer, module, path)
        self._uploader.upload(str(path))

    def remove_checkpoint(self, trainer: Trainer, path: str) -> None:
        """Remove a file once it is uploaded; keep a file whose upload failed."""
        if self._uploader.is_uploading(path):
            self._pending_removals.append(path)
        elif not self._uploader.has_failed(path):
            super().remove_checkpoint(trainer, path)
            self._uploader.forget(path)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Wait for the uploads, and remove the files that had to stay for them."""
        try:
            # an error here must not keep the files of the uploads that went well
            self._uploader.finish()
        finally:
            self._remove_uploaded(trainer)

    def _collect_uploads(self, trainer: Trainer) -> None:
        self._uploader.collect_finished()
        self._remove_uploaded(trainer)

    def _remove_uploaded(self, trainer: Trainer) -> None:
        # a removal whose upload is still running is put back by remove_checkpoint
        paths, self._pending_removals = self._pending_removals, []
        for path in paths:
            self.remove_checkpoint(trainer, path)

    def _save_if_due(self, trainer: Trainer, moment: str) -> None:
        if moment not in self._moments:
            return
        is_due = self._due_tracker.is_due(trainer.clock)
        # the ranks may count different numbers of samples and tokens
        if decide_on_rank_zero(trainer, lambda: is_due):
            self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        """Save, unless nothing was trained since the last save."""
        batches = trainer.progress.batches_completed
        if not is_real_fit(trainer) or batches == self.store.ranking.considered_at:
            return
        # before the next file is written, so that the error of an upload is not another save late
        self._collect_uploads(trainer)
        ranking, names = self.store.ranking.copy(), template_values(trainer)
        self._require_known_names(names)
        # all ranks must write one path, and a metric in its name may differ between them
        path = decide_on_rank_zero(trainer, lambda: self._free_path(names))
        if not self.overwrite and path not in ranking.best_k_models and exists(path):
            self._refuse([path])
        keep = self.num_checkpoints_to_keep
        ranking.best_k_models.pop(path, None)  # a filename without counters is overwritten
        replaced = ranking.outranked(keep)
        # ranked by the batches trained, so that the oldest gives way
        ranking.add(path, torch.tensor(batches), keep)
        ranking.considered_at, ranking.saved_step = batches, trainer.global_step
        link = None
        if self.latest_filename is not None:
            link = ranking.last_model_path = self.format_checkpoint_name(
                names, self.latest_filename
            )
        self._uploader.set_addresses(path, names)
        self._is_saving = True
        try:
            self.store.write(trainer, SavePlan((path,), tuple(replaced), link), ranking)
        finally:
            self._is_saving = False

    def _require_known_names(self, names: Mapping[str, Any]) -> None:
        """Check that each template can be filled.

        Args:
            names: the values of the placeholders.

        Raises:
            OptionError: one has a name that is neither a counter nor a logged metric.
        """
        uploader = self._uploader
        for template in (
            self.filename, self.latest_filename, uploader.file_name, uploader.latest_name,
        ):  # fmt: skip
            for name in template_names(template or ""):
                if name not in names:
                    raise OptionError(
                        f"{{{name}}} in {template!r} of {_WHERE}: it is no counter, and no metric "
                        f"of that name was logged; there are {', '.join(map(repr, names))}."
                        f"{did_you_mean(name, names)} Write one of these."
                    )

    # --- files that this training must not overwrite ---

    def _fields_of(self, path: str) -> dict[str, str] | None:
        """Return the values of the filename's placeholders in a path; None if it does not match."""
        template = self.filename or ""
        # a filename may have folders in it
        return read_template(template, path_end(path, 1 + template.count("/")))

    def _check_folder(self, trainer: Trainer) -> None:
        """Raise an error if the folder has files whose names this training will use later.

        Raises:
            CheckpointError: it has; the first ones are named.
        """
        now, template = template_values(trainer), self.filename or ""
        counters = [name for name in template_names(template) if name in _COUNTERS]
        self._refuse(
            [
                path
                for path in files_in(self.dirpath or "", "", template.count("/"))
                if (values := self._fields_of(path)) is not None
                and path not in self.store.ranking.best_k_models
                # a file with smaller counts is of the past, and its name does not come again
                and (not counters or any(int(values[name]) > now[name] for name in counters))
            ]
        )

    def _refuse(self, paths: list[str]) -> None:
        """Raise an error that names files of another training.

        Raises:
            CheckpointError: there are any.
        """
        if not paths:
            return
        names = [repr(file_name(path)) for path in sorted(paths)]
        raise CheckpointError(
            f"files {first_few(names, _SHOWN)} in {self.dirpath!r}, the folder of {_WHERE}: this "
            "training would write over them, and did not save them. Resume from the newest with "
            "fit(ckpt_path=...), choose another folder, or pass overwrite=True."
        )


# --- uploads ---

_ADDRESS_RULE = (
    "it must be an address such as 's3://bucket/run/ep{epoch}.pt'. Pass such a text, or None"
)


class CheckpointUploader:
    """Upload each checkpoint to an address of its own, and copy it to the address of the newest.

    Args:
        file_name: the template of the checkpoints' addresses; None to upload nothing.
        latest_name: the template of the newest checkpoint's address; None for no such copy.
        concurrent: the number of uploads at a time.
        timeout_s: how many seconds `finish` waits for all uploads.
        where: the class whose arguments these are, for errors.

    Raises:
        OptionError: an argument is outside its rule.
    """

    def __init__(
        self,
        file_name: str | None,
        latest_name: str | None,
        concurrent: int,
        timeout_s: float,
        where: str,
    ) -> None:
        self.file_name = _check_address("remote_file_name", file_name, where)
        self.latest_name = _check_address("latest_remote_file_name", latest_name, where)
        if self.latest_name is not None and self.file_name is None:
            raise OptionError(
                f"latest_remote_file_name {latest_name!r} of {where}: without remote_file_name "
                "nothing is sent that it could be the newest of. Pass that too."
            )
        workers = check_option("num_concurrent_uploads", concurrent, where, whole_number(1))
        is_number = isinstance(timeout_s, int | float) and not isinstance(timeout_s, bool)
        if not is_number or not timeout_s > 0:
            raise OptionError(
                f"upload_timeout_in_seconds {timeout_s!r} of {where}: it must be a number above 0."
            )
        self._timeout_s = float(timeout_s)
        # by the checkpoint's path: its address, and that of the newest
        self._addresses: dict[str, tuple[str, str]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._failed: set[str] = set()
        self._queue = _UploadQueue(workers)

    def set_addresses(self, path: str, names: Mapping[str, Any]) -> None:
        """Set the addresses of the checkpoint that will be written to a path.

        Args:
            path: the path of the checkpoint.
            names: the values of the templates' placeholders.
        """
        if self.file_name is not None:
            if path in self._uploads:
                # the file is about to be overwritten by another checkpoint
                self._uploads[path].join()
            self._addresses[path] = (
                fill_template(self.file_name, names, "=", insert=False),
                fill_template(self.latest_name or "", names, "=", insert=False),
            )

    def upload(self, path: str) -> None:
        """Start to upload a durable checkpoint, if it has an address."""
        if path in self._addresses:
            self._uploads[path] = _Upload(path, *self._addresses[path], self._queue)

    def upload_missing(self, paths: Iterable[str]) -> None:
        """Start to upload the checkpoints that an interrupted run had not uploaded."""
        for path in paths:
            if path in self._addresses and exists(path) and not exists(self._addresses[path][0]):
                self.upload(path)

    @property
    def has_uploads(self) -> bool:
        """Whether there are uploads that are not collected yet."""
        return bool(self._uploads)

    def is_uploading(self, path: str) -> bool:
        """Return whether a checkpoint is being uploaded, so that its file must stay."""
        return path in self._uploads and self._uploads[path].is_alive()

    def has_failed(self, path: str) -> bool:
        """Return whether the upload of a checkpoint failed, so that its file should stay."""
        upload = self._uploads.get(path)
        return path in self._failed or (upload is not None and upload.error is not None)

    def collect_finished(self) -> None:
        """Remove finished uploads from the list, and raise the first error of one.

        Raises:
            CheckpointError: an upload failed.
        """
        finished = [path for path, upload in self._uploads.items() if not upload.is_alive()]
        errors = {path: error for path in finished if (error := self._uploads.pop(path).error)}
        self._failed.update(errors)
        for error in errors.values():
            raise error

    def finish(self) -> None:
        """Wait for all uploads.

        Raises:
            CheckpointError: an upload failed, or was not done in time.
        """
        deadline = time.monotonic() + self._timeout_s
        if any(upload.is_alive() for upload in self._uploads.values()):
            log.info("waiting until %s is sent", ", ".join(map(repr, self._uploads)))
        for upload in self._uploads.values():
            seconds_left = max(0.0, deadline - time.monotonic())
            # join() takes no infinity
            upload.join(None if seconds_left == math.inf else seconds_left)
        late = [upload.address for upload in self._uploads.values() if upload.is_alive()]
        self.collect_finished()
        # a late upload is given up, so that the next run does not wait for it again
        self._uploads.clear()
        if late:
            raise CheckpointError(
                f"checkpoint {late[0]!r} was not sent within {self._timeout_s:g} s. It is here "
                "still. Check the network, or pass a larger upload_timeout_in_seconds."
            )

    def forget(self, path: str) -> None:
        """Drop the addresses of a checkpoint whose file is removed; its upload stays."""
        self._addresses.pop(path, None)

    def forget_all(self) -> None:
        """Reset the state for another training."""
        self._addresses.clear()
        self._failed.clear()

    def state_dict(self) -> dict[str, list[str]]:
        """Return the addresses of each checkpoint, by its path."""
        return {path: list(addresses) for path, addresses in self._addresses.items()}

    def load_state_dict(self, state_dict: Mapping[str, list[str]]) -> None:
        """Restore the addresses that `state_dict` returned."""
        self._addresses = {
            path: (address, latest) for path, (address, latest) in state_dict.items()
        }


class _UploadQueue:
    """The limit on concurrent uploads, and their order.

    Attributes:
        workers: the number of uploads at a time.
        started: how many uploads were started; the number of an upload is its place.
        copied: the number of the upload that was copied to the address of the newest.
    """

    def __init__(self, workers: int) -> None:
        self.__setstate__({"workers": workers, "started": 0, "copied": 0})

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the locks, which cannot be copied."""
        return {"workers": self.workers, "started": self.started, "copied": self.copied}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state with new locks."""
        self.workers: int = state["workers"]
        self.started: int = state["started"]
        self.copied: int = state["copied"]
        self.slots, self.copy_lock = BoundedSemaphore(self.workers), Lock()


class _Upload(Thread):
    """The upload of one checkpoint; a daemon, so that a hung one does not block Python's exit.

    Args:
        path: the path of the checkpoint.
        address: its address.
        latest_address: the address of the newest checkpoint, or an empty string.
        queue: the limit on concurrent uploads.

    Attributes:
        address: the address that it is uploaded to.
        error: the error of a failed upload.
    """

    def __init__(self, path: str, address: str, latest_address: str, queue: _UploadQueue) -> None:
        super().__init__(name=f"send {path}", daemon=True)
        self.address = address
        self.error: CheckpointError | None = None
        self._path, self._latest_address, self._queue = path, latest_address, queue
        # in the main thread, so that the numbers follow the order of the saves
        queue.started += 1
        self._number = queue.started
        # last: the thread reads the attributes above
        self.start()

    def run(self) -> None:
        """Upload the checkpoint, and copy it to the address of the newest."""
        # here, since it loads fsspec
        from trainer_hooks.checkpoint import remote

        try:
            # further threads wait here, so that the training does not have to
            with self._queue.slots:
                remote.upload(Path(self._path), self.address)
            with self._queue.copy_lock:
                # a smaller checkpoint that started later may have been done before this one
                if self._latest_address and self._number > self._queue.copied:
                    remote.copy(self.address, self._latest_address)
                    self._queue.copied = self._number
        except CheckpointError as error:
            # for collect_finished, in the main thread: an error that leaves a thread stops nothing
            self.error = error


def _check_address(name: str, value: object, where: str) -> str | None:
    """Return a template of addresses if it obeys the rule.

    Args:
        name: the argument.
        value: its value.
        where: the class whose argument it is.

    Raises:
        OptionError: it is no address, or its store cannot be reached from here.
    """
    if value is None:
        return None
    subject = f"{name} {value!r} of {where}"
    address = require_usable_path(value, subject, _ADDRESS_RULE)
    if not is_remote(address):
        raise OptionError(f"{subject}: {_ADDRESS_RULE}.")
    return check_template(address, where, name)
