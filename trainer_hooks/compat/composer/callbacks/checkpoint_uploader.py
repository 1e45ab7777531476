"""CheckpointUploader: uploads checkpoints to another store while the training goes on."""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.callbacks.option_checks import check_count
from trainer_hooks.callbacks.saver_base import check_template, fill_template, require_usable_path
from trainer_hooks.checkpoint.paths import exists, is_remote
from trainer_hooks.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CheckpointUploader"]

_RULE = "it must be an address such as 's3://bucket/run/ep{epoch}.pt'. Pass such a text, or None"


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
        workers = check_count("num_concurrent_uploads", concurrent, where, least=1)
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
        self._addresses = {path: (one, latest) for path, (one, latest) in state_dict.items()}


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
        queue.started += 1
        self._number = queue.started
        self.start()

    def run(self) -> None:
        """Upload the checkpoint, and copy it to the address of the newest."""
        # here, since it loads fsspec
        from trainer_hooks.checkpoint import remote

        try:
            with self._queue.slots:
                remote.upload(Path(self._path), self.address)
            with self._queue.copy_lock:
                # a smaller checkpoint that started later may have been done before this one
                if self._latest_address and self._number > self._queue.copied:
                    remote.copy(self.address, self._latest_address)
                    self._queue.copied = self._number
        except CheckpointError as error:
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
    address = require_usable_path(value, subject, _RULE)
    if not is_remote(address):
        raise OptionError(f"{subject}: {_RULE}.")
    return check_template(address, where, name)
