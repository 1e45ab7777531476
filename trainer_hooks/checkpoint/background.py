"""Checkpoints written in another thread, while the training goes on."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.checkpoint.copying import HostCopier
from trainer_hooks.errors import CheckpointError, message_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BackgroundSave", "BackgroundSaves"]

_PATIENCE_S = 5.0
"""How long to wait for a file without a word."""


class BackgroundSave:
    """A save that was handed to the other thread.

    Attributes:
        paths: the files, in the order in which they are written.
        path: the one that is being written, or was the last.
        error: why that could not be written; the ones after it are not.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        self.path = paths[0]
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self._is_taken = threading.Lock()

    @property
    def is_durable(self) -> bool:
        """Whether all files are written and synced to disk."""
        return self._ended.is_set() and self.error is None

    @property
    def has_failed(self) -> bool:
        """Whether one of the files could not be written."""
        return self._ended.is_set() and self.error is not None

    def call_off(self) -> bool:
        """Let nothing be written; return False if the other thread has begun to."""
        return self._is_taken.acquire(blocking=False)

    def run(self, write: Callable[[str], str], note: Callable[[str], None]) -> None:
        """Write the files and note each that is durable; for the other thread."""
        if not self._is_taken.acquire(blocking=False):  # called off before this thread had its turn
            return
        try:
            for path in self.paths:
                self.path = path
                note(write(path))
        except BaseException as error:  # noqa: BLE001 - raised in the main thread, at the next save
            self.error = error
            log.error("a save in the background failed: %s: %s", self.path, message_of(error))
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Return when it has ended; say so if that takes long."""
        if not self._ended.wait(_PATIENCE_S):
            log.warning("waiting until %s is written", ", ".join(map(repr, self.paths)))
            self._ended.wait()


class BackgroundSaves:
    """Writes one checkpoint after another in another thread; one at a time.

    The caller is held while the state is copied, and until the save before is done: there is one
    copy of the state, and never two writers. All methods are for the main thread. The thread is
    none that dies with the interpreter: an exit waits for it.

    Args:
        tell: is called with each file that is durable, in order, in the main thread.

    Attributes:
        has_news: whether there are files that `tell` was not yet called with.
    """

    def __init__(self, tell: Callable[[str], object]) -> None:
        self.has_news = False
        self._tell = tell
        self._copier = HostCopier()
        self._written: deque[str] = deque()
        self._save: BackgroundSave | None = None

    def start(
        self,
        checkpoint: dict[str, Any],
        paths: tuple[str, ...],
        write: Callable[[dict[str, Any], str], str],
    ) -> BackgroundSave:
        """Copy a checkpoint, and let it be written; return at once.

        Args:
            checkpoint: plain data and tensors, which may change as soon as this returns.
            paths: the files, which are written one after another.
            write: writes one, whole or not at all, and returns its path.

        Raises:
            CheckpointError: the save before this one failed, or no thread can be started.
        """
        self.finish()
        copied = self._copier.copy(checkpoint)
        save = BackgroundSave(paths)
        thread = threading.Thread(
            target=save.run,
            args=(lambda path: write(copied, path), self._note),
            name="checkpoint writer",
            daemon=False,
        )
        try:
            self._save = save  # first: a thread that runs is waited for, whatever happens here
            thread.start()
        except BaseException as error:
            if save.call_off():
                self._save = None
            if isinstance(error, RuntimeError):  # what threading makes of a limit on processes
                raise CheckpointError(
                    f"the save of {save.path!r} in the background cannot begin: {error}. Raise the "
                    "limit on processes, or save without async_save and save_in_background."
                ) from error
            raise
        return save

    def tell_news(self) -> None:
        """Call `tell` with what has become durable since the last time."""
        self.has_news = False
        while self._written:
            self._tell(self._written.popleft())

    def catch_up(self) -> None:
        """Wait until nothing is under way, and tell of it. A failure is kept for `finish`."""
        while True:
            save = self._save
            if save is not None:
                save.wait()
            self.tell_news()
            if self._save is save:  # else one who was told has saved again
                return

    def finish(self) -> None:
        """Wait until nothing is under way, and tell of it.

        Raises:
            CheckpointError: it could not be written; the message names the file and the reason.
        """
        self.catch_up()
        save, self._save = self._save, None
        if save is not None and save.error is not None:
            raise CheckpointError(
                f"the save of {save.path!r} in the background failed: {message_of(save.error)}"
            ) from save.error

    def release(self) -> None:
        """Let go of the memory of the copy, once nothing is under way."""
        if self._save is None:
            self._copier.release()

    def _note(self, path: str) -> None:
        self._written.append(path)
        self.has_news = True
