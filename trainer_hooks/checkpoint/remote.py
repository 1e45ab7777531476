"""Checkpoints in remote stores, through fsspec: `s3://`, `gs://`, `memory://` and so on."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any

from trainer_hooks._log import log
from trainer_hooks.checkpoint.atomic_write import PART_SUFFIX
from trainer_hooks.checkpoint.seal import checksum
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError, is_interruption

if TYPE_CHECKING:
    from collections.abc import Iterator

# stores without folders, in which a rename is a copy and a deletion
_FLAT = frozenset({"abfs", "abfss", "az", "gcs", "gs", "memory", "oci", "s3", "s3a"})


def unusable_reason(address: str) -> str:
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
    """Upload a local file to an address, whole or not at all.

    It is sent under another name, read back and compared, and only then renamed.

    Args:
        source: the file.
        address: the target.
        what: the name of the file's role in messages, such as "checkpoint".

    Raises:
        CheckpointError: the store does not answer, or returns other bytes; the file that was at
            the address before is untouched.
    """
    folder, _, name = address.rpartition("/")
    # hidden, so that `files_in` of another process does not take it for a checkpoint
    part = f"{folder}/.{name}.{token_hex(4)}{PART_SUFFIX}"
    rule = "could not be written: what was there before is untouched"
    with _reported(address, rule, what):
        store, unfinished = _opened(part)
        final = _opened(address)[1]
        try:
            if not _is_flat(address):  # in S3, a "folder" may be a bucket
                store.makedirs(_opened(folder)[1], exist_ok=True)
            store.put_file(str(source), unfinished)
            # read back, since not every store verifies a checksum of an upload
            with source.open("rb") as sent, store.open(unfinished, "rb") as stored:
                if checksum(sent) != checksum(stored):
                    raise OSError("what was read back differs from what was sent")
            if _is_flat(address):  # copied, as a copy appears there whole or not at all
                store.cp_file(unfinished, final)
                store.rm_file(unfinished)
            else:
                store.mv(unfinished, final)
        except BaseException:
            _discard(store, unfinished)
            raise
        # fsspec caches listings, which would still show the file that was there before
        store.invalidate_cache()
        if store.size(final) != source.stat().st_size:
            raise OSError("it has another size after it was given its name")


@contextmanager
def open_upload(address: str, what: str = "checkpoint") -> Iterator[IO[bytes]]:
    """Open a new file that is uploaded once the `with` block ends without an error."""
    # to a local file first: sealing seeks in the file, and an upload must be all or nothing
    with TemporaryDirectory(prefix="trainer_hooks-") as folder:
        local = Path(folder, "unsent")
        with local.open("w+b") as file:
            yield file
        upload(local, address, what)


@contextmanager
def downloaded(address: str) -> Iterator[Path]:
    """Download a remote file to a temporary folder for as long as the context is open.

    Raises:
        CheckpointNotFoundError: there is no such file.
        CheckpointError: the store does not answer.
    """
    with TemporaryDirectory(prefix="trainer_hooks-") as folder:
        local = Path(folder, "downloaded")
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
        # a request for a range: the file itself may have gigabytes
        size = store.size(path)
        content: bytes = store.cat_file(path, start=max(0, size - count), end=size)
        return content


def modified_at(address: str) -> int:
    """Return when a remote file was written, in nanoseconds since 1970; 0 if that is not known."""
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
        store.invalidate_cache()  # another process may have written it since the last listing
        return bool(store.exists(path))


def copy(source: str, address: str) -> None:
    """Copy a file inside one store."""
    with _reported(address, "could not be written"):
        store, path = _opened(source)
        store.cp_file(path, _opened(address)[1])


def remove(address: str) -> None:
    """Delete a remote file, if it is there."""
    with _reported(address, "could not be removed"):
        store, path = _opened(address)
        if store.exists(path):
            store.rm_file(path)


def files_in(folder: str, extension: str, depth: int = 0) -> list[str]:
    """Return the addresses of files with an extension in a folder and `depth` levels below it."""
    with _reported(folder, "could not be listed"):
        store, path = _opened(folder)
        store.invalidate_cache()
        if not store.exists(path):
            return []
        # find() gives names without the protocol, so the folder's own address goes before them
        start = len(path.rstrip("/")) + 1
        return [
            f"{folder.rstrip('/')}/{name[start:]}"
            for name in store.find(path, maxdepth=depth + 1)
            if name.endswith(extension) and not name.rpartition("/")[2].startswith(".")
        ]


def _is_flat(address: str) -> bool:
    """Return whether a store has no folders, only names."""
    return address.partition("://")[0] in _FLAT


def _opened(address: str) -> tuple[Any, str]:
    """Return the file system of an address and the path inside it."""
    # an optional package, so not imported with the module
    from fsspec.core import url_to_fs  # type: ignore[import-untyped]

    store, path = url_to_fs(address)
    return store, path


def _discard(store: Any, path: str) -> None:
    """Delete the leftover of a failed upload, without hiding the upload's error."""
    try:
        if store.exists(path):
            store.rm_file(path)
    except Exception:  # noqa: BLE001 - the upload's own error is being raised
        log.debug("the leftover of a failed upload at %s was not removed", path, exc_info=True)


@contextmanager
def _reported(address: str, rule: str, what: str = "checkpoint") -> Iterator[None]:
    """Turn any error of a store into a `CheckpointError`."""
    try:
        yield
    except (CheckpointError, MemoryError):
        raise
    # each store's package raises errors of its own, often not even OSError
    except Exception as error:
        if is_interruption(error):
            raise
        raise CheckpointError(
            f"{what} {address!r} {rule} ({type(error).__name__}: {error}). Check the address, "
            "the credentials and the network."
        ) from error
