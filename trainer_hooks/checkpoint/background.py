"""Background saves: copy the state in memory, and write it to disk in another thread."""

from __future__ import annotations

import copy
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import log
from trainer_hooks.errors import CheckpointError, error_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# bytes of a buffer, and whether it is pinned
_Key = tuple[int, bool]

_UNCHANGING = frozenset((str, int, float, bool, bytes, complex, type(None)))


class HostCopier:
    """Copy plain data and tensors to host memory, and reuse the buffers of the previous copy.

    Tensors that share memory share it in the copy too. GPU tensors are copied to pinned memory
    asynchronously, with one synchronisation at the end.
    """

    def __init__(self) -> None:
        self._buffers: dict[_Key, list[torch.UntypedStorage]] = {}

    def copy(self, state: Any) -> Any:
        """Return a deep copy of `state` with all tensors on the CPU.

        It overwrites the previous copy, which must not be needed any more.
        """
        unused, self._buffers = self._buffers, {}
        storages: dict[tuple[torch.device, int], torch.UntypedStorage] = {}
        copied: dict[int, Any] = {}
        streams = {}
        for tensor in _tensors_in(state):
            if not _is_ordinary(tensor):
                copied[id(tensor)] = _like(tensor, tensor.detach().clone().cpu())
                continue
            if tensor.device.type == "cuda":
                streams[tensor.device] = torch.cuda.current_stream(tensor.device)
            source = tensor.untyped_storage()
            address = (tensor.device, source.data_ptr())
            # once for each storage: tied weights and views share it in the copy, too. Empty
            # storages may all have the address 0
            if not source.nbytes() or address not in storages:
                storages[address] = self._copy_of(source, unused)
            # the storage is untyped bytes: offset and strides count elements of the view's dtype
            view = torch.empty(0, dtype=tensor.dtype)
            view.set_(storages[address], tensor.storage_offset(), tensor.size(), tensor.stride())
            copied[id(tensor)] = _like(tensor, view)
        result = _copied(state, copied)
        # one wait for all copies, which were queued on the streams that compute the tensors
        for stream in streams.values():
            stream.synchronize()
        return result

    def release(self) -> None:
        """Free the buffers, once the copy is not needed any more."""
        self._buffers.clear()

    def _copy_of(
        self, source: torch.UntypedStorage, unused: dict[_Key, list[torch.UntypedStorage]]
    ) -> torch.UntypedStorage:
        """Return a copy of a storage, in a spare buffer if there is one of that size."""
        # only copies into pinned memory run beside the host, and pinning is slow: hence the buffers
        is_pinned = source.device.type == "cuda"
        key = (source.nbytes(), is_pinned)
        same_size = unused.get(key)
        if same_size:
            # first in, first out: each tensor gets the buffer that it had in the last copy
            buffer = same_size.pop(0)
        else:
            buffer = torch.empty(
                source.nbytes(), dtype=torch.uint8, pin_memory=is_pinned
            ).untyped_storage()
        buffer.copy_(source, non_blocking=is_pinned)
        self._buffers.setdefault(key, []).append(buffer)
        return buffer


def _tensors_in(state: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, in an order that is the same each time."""
    seen: set[int] = set()
    left = [state]
    while left:
        value = left.pop()
        if isinstance(value, dict | list | tuple | set | frozenset | deque):
            if id(value) not in seen:
                seen.add(id(value))
                left.extend(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, torch.Tensor) and id(value) not in seen:
            seen.add(id(value))
            yield value


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """Return a deep copy; plain containers, most of a state, are copied without `deepcopy`.

    Args:
        value: the value to copy.
        copies: the copies so far by the id of the original, those of all tensors among them.
    """
    kind = type(value)
    if kind in _UNCHANGING:
        return value
    if id(value) in copies:
        return copies[id(value)]
    if kind is dict:
        # known before its items are copied, which may refer back to it
        made = copies[id(value)] = {}
        for key, item in value.items():
            made[_copied(key, copies)] = _copied(item, copies)
        return made
    if kind is list:
        items = copies[id(value)] = []
        items.extend(_copied(item, copies) for item in value)
        return items
    # `copies` is its memo, too, so that tensors inside are not copied once more
    return copy.deepcopy(value, copies)


def _is_ordinary(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a plain strided view of one storage."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type != "meta"
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())
    )


def _like(tensor: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Return the tensor `made` as a parameter or with `requires_grad`, as `tensor` is."""
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


_PATIENCE_S = 5.0
"""Seconds to wait for a file before that is logged."""


class BackgroundSave:
    """One save that was passed to the writer thread.

    Attributes:
        paths: the files, in the order in which they are written.
        path: the file that is being written, or was written last.
        error: the error that ended the save, if there was one. The files after `path` are not
            written then.
    """

    def __init__(self, paths: tuple[str, ...]) -> None:
        self.paths = paths
        self.path = paths[0]
        self.error: BaseException | None = None
        self._ended = threading.Event()
        self._process = os.getpid()
        # taken by the writer or by `call_off`, whichever is first, and never given back
        self._is_taken = threading.Lock()

    @property
    def is_of_other_process(self) -> bool:
        """Whether this process is a fork of the one that saves, and has no thread that writes."""
        return self._process != os.getpid()

    @property
    def is_durable(self) -> bool:
        """Whether all files are written and synced to disk."""
        return self._ended.is_set() and self.error is None

    @property
    def has_failed(self) -> bool:
        """Whether one of the files could not be written."""
        return self._ended.is_set() and self.error is not None

    def call_off(self) -> bool:
        """Cancel the save; return False if the thread has begun to write already."""
        return self._is_taken.acquire(blocking=False)

    def run(self, write: Callable[[str], str], note: Callable[[str], None]) -> None:
        """Write the files in the writer thread, and note each file that is durable.

        Args:
            write: writes one file and returns its path.
            note: is called with the path of each durable file.
        """
        if not self._is_taken.acquire(blocking=False):  # cancelled before this thread ran
            return
        try:
            for path in self.paths:
                self.path = path
                note(write(path))
        except BaseException as error:  # noqa: BLE001 - raised in the main thread, at the next save
            self.error = error
            log.error("a save in the background failed: %s: %s", self.path, error_message(error))
        finally:
            # whatever happened: the main thread waits for this without a limit
            self._ended.set()

    def wait(self) -> None:
        """Block until the save has ended; log a warning if that takes more than five seconds."""
        if not self._ended.wait(_PATIENCE_S):
            log.warning("waiting until %s is written", ", ".join(map(repr, self.paths)))
            self._ended.wait()


class BackgroundSaves:
    """Write checkpoints in a background thread, one at a time.

    The caller is held while the state is copied, and until the previous save has ended: there is
    one copy of the state in memory, and never two writers. All methods are for the main thread.

    Args:
        notify: is called in the main thread with the path of each durable file, in order.

    Attributes:
        pending: the save whose end, or whose error, nobody has waited for yet; else None.
        has_news: whether there are durable files that `notify` was not called with yet.
    """

    def __init__(self, notify: Callable[[str], object]) -> None:
        self.has_news = False
        self._notify = notify
        self._copier = HostCopier()
        # appended to by the writer, emptied by the main thread: a deque needs no lock for that
        self._written: deque[str] = deque()
        self.pending: BackgroundSave | None = None

    def start(
        self,
        checkpoint: dict[str, Any],
        paths: tuple[str, ...],
        write: Callable[[dict[str, Any], str], str],
    ) -> BackgroundSave:
        """Copy a checkpoint in memory, start writing the copy, and return at once.

        Args:
            checkpoint: plain data and tensors, which may change as soon as this returns.
            paths: the files, which are written one after another.
            write: writes one file, whole or not at all, and returns its path.

        Raises:
            CheckpointError: the previous save failed, or no thread can be started.
        """
        self.finish()
        copied = self._copier.copy(checkpoint)
        save = BackgroundSave(paths)
        thread = threading.Thread(
            target=save.run,
            args=(lambda path: write(copied, path), self._note),
            name="checkpoint writer",
            daemon=False,  # the interpreter's exit waits for it, so that the file is whole
        )
        try:
            # before start(): an interrupt between the two lines must not lose a running thread
            self.pending = save
            thread.start()
        except BaseException as error:
            if save.call_off():
                self.pending = None
            if isinstance(error, RuntimeError):  # threading's error at the limit on threads
                raise CheckpointError(
                    f"the save of {save.path!r} in the background cannot begin: {error}. Raise the "
                    "limit on processes, or save without async_save and save_in_background."
                ) from error
            raise
        return save

    def notify_durable(self) -> None:
        """Call `notify` with each file that has become durable since the last call."""
        # before the loop: a file that becomes durable meanwhile sets it again
        self.has_news = False
        while self._written:
            self._notify(self._written.popleft())

    def catch_up(self) -> None:
        """Wait until no save is pending, and notify of all files; a save's error is not raised."""
        if self.pending is not None and self.pending.is_of_other_process:
            self._drop()
        while True:
            save = self.pending
            if save is not None:
                save.wait()
            self.notify_durable()
            if self.pending is save:  # else a callback of `notify` has started another save
                return

    def finish(self) -> None:
        """Wait until no save is pending, and notify of all files.

        Raises:
            CheckpointError: the save failed; the message names the file and the reason.
        """
        self.catch_up()
        # given up before its error is raised: each error is raised once
        save, self.pending = self.pending, None
        if save is not None and save.error is not None:
            raise CheckpointError(
                f"the save of {save.path!r} in the background failed: {error_message(save.error)}"
            ) from save.error

    def release(self) -> None:
        """Free the memory of the copy, unless a save still needs it."""
        if self.pending is None:
            self._copier.release()

    def _drop(self) -> None:
        """Forget the save of the process that this one was forked from, which also announces it."""
        # not its lock or event: the writer may have held them as the process was forked
        self.pending, self.has_news = None, False
        self._written.clear()

    def _note(self, path: str) -> None:
        # in the writer's thread, which calls no hooks: it only leaves the path for the main thread
        self._written.append(path)
        self.has_news = True
