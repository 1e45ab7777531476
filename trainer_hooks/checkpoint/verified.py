"""Load a file while it is verified: each takes about as long as the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["load_verified"]

_Loaded = TypeVar("_Loaded")


def load_verified(verify: Callable[[], object], load: Callable[[], _Loaded]) -> _Loaded:
    """Return what `load` returns, once `verify`, in another thread, has found nothing wrong.

    Nothing that was loaded is handed out before. What is wrong with the file goes before what
    `load` stumbled over because of it.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="checkpoint verifier") as pool:
        verified = pool.submit(verify)
        try:
            loaded = load()
        except Exception:
            verified.result()
            raise
        verified.result()
        return loaded
