"""RemoteCopies: copies of checkpoints in another store, sent while the training goes on."""

from __future__ import annotations

import math
import time
from pathlib import Path
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.callbacks.monitoring import check_count
from trainer_hooks.callbacks.saving.saver_options import reachable
from trainer_hooks.callbacks.saving.templates import check_template, fill_template
from trainer_hooks.checkpoint import exists, is_remote
from trainer_hooks.errors import CheckpointError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["RemoteCopies"]

_RULE = "it must be an address such as 's3://bucket/run/ep{epoch}.pt'. Pass such a text, or None"


class RemoteCopies:
    """Send each checkpoint to an address, and then make another address the same as the newest.

    Args:
        file_name: the template of the addresses, or None: nothing is sent.
        latest_name: the template of the address of the newest, or None for no such thing.
        concurrent: how many are sent at a time.
        timeout_s: how long to wait for all at the end.
        where: whose arguments these are.

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
        self.file_name = _address("remote_file_name", file_name, where)
        self.latest_name = _address("latest_remote_file_name", latest_name, where)
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
        self._addresses: dict[str, tuple[str, str]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._failed: set[str] = set()
        self._lanes = _Lanes(workers)

    def expect(self, path: str, names: Mapping[str, Any]) -> None:
        """Note where the checkpoint that will be at `path` is to go."""
        if self.file_name is not None:
            if path in self._uploads:
                self._uploads[path].join()  # the file is about to be another one
            self._addresses[path] = (
                fill_template(self.file_name, names, "=", insert=False),
                fill_template(self.latest_name or "", names, "=", insert=False),
            )

    def send(self, path: str) -> None:
        """Begin to send a checkpoint that is durable, if it is to be sent."""
        if path in self._addresses:
            self._uploads[path] = _Upload(path, *self._addresses[path], self._lanes)

    def send_missing(self, paths: Iterable[str]) -> None:
        """Send what a run that was cut did not get to send."""
        for path in paths:
            if path in self._addresses and exists(path) and not exists(self._addresses[path][0]):
                self.send(path)

    @property
    def is_busy(self) -> bool:
        """Whether there is something whose end was not seen yet."""
        return bool(self._uploads)

    def is_under_way(self, path: str) -> bool:
        """Return whether a checkpoint is still being sent, so that it must stay."""
        return path in self._uploads and self._uploads[path].is_alive()

    def has_failed(self, path: str) -> bool:
        """Return whether a checkpoint could not be sent, so that it had better stay."""
        upload = self._uploads.get(path)
        return path in self._failed or (upload is not None and upload.error is not None)

    def settle(self) -> None:
        """See what has ended.

        Raises:
            CheckpointError: one could not be sent.
        """
        ended = [path for path, upload in self._uploads.items() if not upload.is_alive()]
        errors = {path: error for path in ended if (error := self._uploads.pop(path).error)}
        self._failed.update(errors)
        for error in errors.values():
            raise error

    def finish(self) -> None:
        """Wait until all is sent.

        Raises:
            CheckpointError: one could not be sent, or not in time.
        """
        end = time.monotonic() + self._timeout_s
        if any(upload.is_alive() for upload in self._uploads.values()):
            log.info("waiting until %s is sent", ", ".join(map(repr, self._uploads)))
        for upload in self._uploads.values():
            left = max(0.0, end - time.monotonic())
            upload.join(None if left == math.inf else left)
        late = [upload.address for upload in self._uploads.values() if upload.is_alive()]
        self.settle()
        self._uploads.clear()
        if late:
            raise CheckpointError(
                f"checkpoint {late[0]!r} was not sent within {self._timeout_s:g} s. It is here "
                "still. Check the network, or pass a larger upload_timeout_in_seconds."
            )

    def forget(self, path: str) -> None:
        """Think of a checkpoint that is removed here no more; what was sent stays there."""
        self._addresses.pop(path, None)

    def forget_all(self) -> None:
        """Forget an earlier training."""
        self._addresses.clear()
        self._failed.clear()

    def state_dict(self) -> dict[str, list[str]]:
        """Return where the checkpoints go."""
        return {path: list(addresses) for path, addresses in self._addresses.items()}

    def load_state_dict(self, state_dict: Mapping[str, list[str]]) -> None:
        """Take back where they go."""
        self._addresses = {path: (one, latest) for path, (one, latest) in state_dict.items()}


class _Lanes:
    """Lets so many go at a time, and tells which was begun last."""

    def __init__(self, count: int) -> None:
        self.__setstate__({"count": count, "begun": 0, "linked": 0})

    def __getstate__(self) -> dict[str, Any]:
        """Return what can be copied."""
        return {"count": self.count, "begun": self.begun, "linked": self.linked}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Make the locks anew."""
        self.count: int = state["count"]
        self.begun: int = state["begun"]
        self.linked: int = state["linked"]
        self.lanes, self.lock = BoundedSemaphore(self.count), Lock()


class _Upload(Thread):
    """One checkpoint on its way; one that is given up does not hold the interpreter's exit.

    Attributes:
        address: where to.
        error: why it could not be sent.
    """

    def __init__(self, path: str, address: str, latest: str, lanes: _Lanes) -> None:
        super().__init__(name=f"send {path}", daemon=True)
        self.address = address
        self.error: CheckpointError | None = None
        self._path, self._latest, self._lanes = path, latest, lanes
        lanes.begun += 1
        self._number = lanes.begun
        self.start()

    def run(self) -> None:
        """Send it."""
        from trainer_hooks.checkpoint import remote

        try:
            with self._lanes.lanes:
                remote.upload(Path(self._path), self.address)
            with self._lanes.lock:
                # a smaller one that was begun later may have overtaken this one
                if self._latest and self._number > self._lanes.linked:
                    remote.copy(self.address, self._latest)
                    self._lanes.linked = self._number
        except CheckpointError as error:
            self.error = error


def _address(name: str, value: object, where: str) -> str | None:
    """Return a template of addresses, or None.

    Raises:
        OptionError: it is none, or of a store that cannot be reached from here.
    """
    if value is None:
        return None
    what = f"{name} {value!r} of {where}"
    text = reachable(value, what, _RULE)
    if not is_remote(text):
        raise OptionError(f"{what}: {_RULE}.")
    return check_template(text, where, name)
