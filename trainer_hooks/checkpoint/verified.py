"""Load a file and verify it, at the cost of about one of the two."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, TypeVar

from trainer_hooks.checkpoint.sums import HEADER, SummedFile, fast_crc32

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.checkpoint.sums import Sums

__all__ = ["load_verified"]

_Loaded = TypeVar("_Loaded")


def load_verified(
    file: IO[bytes],
    verify: Callable[[Sums], object],
    load: Callable[[IO[bytes]], _Loaded],
) -> _Loaded:
    """Return what `load` returns, once `verify` has found nothing wrong.

    Nothing that was loaded is handed out before. What is wrong with the file goes before what
    `load` stumbled over because of it.

    With a checksum that is fast, the file is summed up while it is read, which is hardly slower
    than to read it. Else it is verified in another thread meanwhile.

    Args:
        file: the file, open.
        verify: compares the file with its seal; it is given what was summed up already.
        load: reads the file that it is given.
    """
    crc32 = fast_crc32()
    is_zip = file.read(len(HEADER)) == HEADER  # by which torch knows one, too
    file.seek(0)
    if crc32 is None or not is_zip:
        return _load_beside(lambda: verify({}), lambda: load(file))
    summed = SummedFile(file, crc32)
    try:
        loaded = load(summed)  # type: ignore[arg-type]  # a raw file, of which only reading is used
    except Exception:
        verify({})
        raise
    verify(summed.sums)
    return loaded


def _load_beside(verify: Callable[[], object], load: Callable[[], _Loaded]) -> _Loaded:
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint verifier") as pool:
        verified = pool.submit(verify)
        try:
            loaded = load()
        except Exception:
            verified.result()
            raise
        verified.result()
        return loaded
