"""A file is loaded and verified at once, and nothing leaves before both are done."""

from __future__ import annotations

import io
import threading

import pytest

from trainer_hooks.checkpoint.seal import load_verified

NO_ZIP = io.BytesIO(b"anything")


def test_both_run_at_once() -> None:
    """Each waits for the other to have begun, so one after the other would never end."""
    verifying, loading = threading.Event(), threading.Event()

    def verify(_sums) -> None:
        verifying.set()
        assert loading.wait(30)

    def load(_file) -> str:
        loading.set()
        assert verifying.wait(30)
        return "loaded"

    assert load_verified(NO_ZIP, verify, load) == "loaded"


def fail(message: str):
    def fail(_) -> None:
        raise ValueError(message)

    return fail


@pytest.mark.parametrize("load", [lambda _: 1, fail("torch stumbled")], ids=["loads", "stumbles"])
def test_damage_goes_first(load) -> None:
    """A damaged file is refused as damaged, whether it could be loaded or not."""
    with pytest.raises(ValueError, match="damaged"):
        load_verified(NO_ZIP, fail("damaged"), load)


def test_what_cannot_be_loaded_is_refused_as_that() -> None:
    """A file that is whole, and holds something else, has the loader's error."""
    with pytest.raises(ValueError, match="stumbled"):
        load_verified(NO_ZIP, lambda _: None, fail("torch stumbled"))
