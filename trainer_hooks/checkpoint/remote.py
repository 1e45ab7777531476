"""Checkpoints in other stores, through fsspec: `s3://`, `gs://`, `memory://` and so on."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.checkpoint.parts import SUFFIX
from trainer_hooks.checkpoint.sums import summed
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "copy",
    "exists",
    "fetched",
    "files_in",
    "modified_at",
    "obstacle",
    "read_tail",
    "remove",
    "upload",
]

_FLAT = frozenset({"abfs", "abfss", "az", "gcs", "gs", "memory", "oci", "s3", "s3a"})


def obstacle(address: str) -> str:
    """Return why an address cannot be used here, or an empty string. Nothing is contacted."""
    protocol = address.partition("://")[0]
    try:
        from fsspec import get_filesystem_class  # type: ignore[import-untyped]

        get_filesystem_class(protocol)
    except ImportError as error:
        return (
            f"{protocol}:// needs a package that is not installed ({error}). Install "
            "trainer-hooks[remote], and for a store other than S3 the package named"
        )
    except ValueError:
        return f"there is no store called {protocol}://. Use one that fsspec knows, such as s3://"
    return ""


def upload(source: Path, address: str, what: str = "checkpoint") -> None:
    """Put a local file at an address, whole or not at all.

    It is sent under another name, read back and compared, and only then given its name.

    Args:
        source: the file.
        address: where.
        what: what an error calls it.

    Raises:
        CheckpointError: the store does not answer, or gives back something else; what was at the
            address before is still there.
    """
    folder, _, name = address.rpartition("/")
    part = f"{folder}/.{name}.{token_hex(4)}{SUFFIX}"
    rule = "could not be written: what was there before is untouched"
    with _reported(address, rule, what):
        store, unfinished = _opened(part)
        final = _opened(address)[1]
        try:
            if not _is_flat(address):
                store.makedirs(_opened(folder)[1], exist_ok=True)
            store.put_file(str(source), unfinished)
            with source.open("rb") as sent, store.open(unfinished, "rb") as stored:
                if summed(sent) != summed(stored):
                    raise OSError("what was read back differs from what was sent")
            _rename(store, unfinished, final, is_flat=_is_flat(address))
        except BaseException:
            _discard(store, unfinished)
            raise
        store.invalidate_cache()
        if store.size(final) != source.stat().st_size:
            raise OSError("it has another size after it was given its name")


@contextmanager
def fetched(address: str) -> Iterator[Path]:
    """Bring a remote file here for as long as the context is open.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: the store does not answer.
    """
    with TemporaryDirectory(prefix="trainer_hooks-") as folder:
        local = Path(folder, "fetched")
        if not exists(address):
            raise CheckpointNotFoundError(
                f"checkpoint {address!r} is not there. Check the address."
            )
        with _reported(address, "could not be fetched"):
            store, path = _opened(address)
            store.get_file(path, str(local))
        yield local


def read_tail(address: str, count: int) -> bytes:
    """Return the last `count` bytes of a remote file, or all of a shorter one."""
    with _reported(address, "could not be read"):
        store, path = _opened(address)
        size = store.size(path)
        content: bytes = store.cat_file(path, start=max(0, size - count), end=size)
        return content


def modified_at(address: str) -> int:
    """Return when a remote file was written, in nanoseconds since 1970; 0 if the store forgot."""
    with _reported(address, "could not be read"):
        store, path = _opened(address)
        try:
            return int(store.modified(path).timestamp() * 1e9)
        except NotImplementedError:
            return 0


def exists(address: str) -> bool:
    """Return whether there is a file at an address."""
    with _reported(address, "could not be looked up"):
        store, path = _opened(address)
        store.invalidate_cache()
        return bool(store.exists(path))


def copy(source: str, address: str) -> None:
    """Make the file at `address` the same as the one at `source`, of the same store."""
    with _reported(address, "could not be written"):
        store, path = _opened(source)
        store.cp_file(path, _opened(address)[1])


def remove(address: str) -> None:
    """Remove a remote file, if it is there."""
    with _reported(address, "could not be removed"):
        store, path = _opened(address)
        if store.exists(path):
            store.rm_file(path)


def files_in(folder: str, extension: str, depth: int = 0) -> list[str]:
    """Return the addresses of the files of an extension in a folder and `depth` levels below it."""
    with _reported(folder, "could not be listed"):
        store, path = _opened(folder)
        store.invalidate_cache()
        if not store.exists(path):
            return []
        start = len(path.rstrip("/")) + 1
        return [
            f"{folder.rstrip('/')}/{name[start:]}"
            for name in store.find(path, maxdepth=depth + 1)
            if name.endswith(extension) and not name.rpartition("/")[2].startswith(".")
        ]


def _is_flat(address: str) -> bool:
    """Return whether a store has no folders, only names; making one might make a bucket."""
    return address.partition("://")[0] in _FLAT


def _rename(store: Any, old: str, new: str, *, is_flat: bool) -> None:
    """Give a file its name; in a flat store a copy appears whole or not at all."""
    if is_flat:
        store.cp_file(old, new)
        store.rm_file(old)
    else:
        store.mv(old, new)


def _opened(address: str) -> tuple[Any, str]:
    """Return the store of an address and the path inside it."""
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    store, path = url_to_fs(address)
    return store, path


def _discard(store: Any, path: str) -> None:
    """Remove what an upload that failed left; the error on its way is what matters."""
    try:
        if store.exists(path):
            store.rm_file(path)
    except Exception:  # noqa: BLE001 - the store that just failed
        log.debug("what an upload that failed left at %s was not removed", path, exc_info=True)


@contextmanager
def _reported(address: str, rule: str, what: str = "checkpoint") -> Iterator[None]:
    """Turn whatever a store raises, each its own kind, into a `CheckpointError`."""
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    except Exception as error:
        raise CheckpointError(
            f"{what} {address!r} {rule} ({type(error).__name__}: {error}). Check the address, "
            "the credentials and the network."
        ) from error
