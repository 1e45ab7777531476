"""The order of callbacks: named bands."""

from __future__ import annotations

from trainer_hooks import Band, Callback
from trainer_hooks.connector.connector import CallbackConnector


class _Banded(Callback):
    def __init__(self, name: str, band: Band) -> None:
        self.name, self.band = name, band


def ordered(*callbacks: _Banded) -> list[str]:
    """Return the names of callbacks in the order of a run."""
    connector = CallbackConnector(callbacks, discover=False)
    return [callback.name for callback in connector.callbacks if isinstance(callback, _Banded)]


def test_bands_are_frozen() -> None:
    """Transform, observe, module, control, sink, save: that is the order of the bands."""
    assert [band.name for band in sorted(Band)] == [
        "TRANSFORM",
        "OBSERVE",
        "MODULE",
        "CONTROL",
        "SINK",
        "SAVE",
    ]


def test_bands_come_in_turn() -> None:
    """Whatever order they are given in, callbacks are arranged by band."""
    callbacks = [_Banded(band.name, band) for band in reversed(Band)]
    assert ordered(*callbacks) == [band.name for band in Band]


def test_inside_a_band_the_given_order_holds() -> None:
    """Two callbacks of one band keep the order in which they were listed."""
    names = ordered(
        _Banded("c", Band.SAVE),
        _Banded("b", Band.OBSERVE),
        _Banded("a", Band.OBSERVE),
        _Banded("z", Band.SAVE),
    )
    assert names == ["b", "a", "c", "z"]
