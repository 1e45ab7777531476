"""The order of callbacks: named bands."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_hooks.hooks.band import Band, in_order


@dataclass
class _Item:
    name: str
    band: Band


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
    items = [_Item(band.name, band) for band in reversed(Band)]
    assert [item.name for item in in_order(items)] == [band.name for band in Band]


def test_inside_a_band_the_given_order_holds() -> None:
    """Two callbacks of one band keep the order in which they were listed."""
    items = [
        _Item("c", Band.SAVE),
        _Item("b", Band.OBSERVE),
        _Item("a", Band.OBSERVE),
        _Item("z", Band.SAVE),
    ]
    assert [item.name for item in in_order(items)] == ["b", "a", "c", "z"]


def test_the_given_list_is_not_changed() -> None:
    """Ordering returns a tuple and leaves what it was given as it was."""
    items = [_Item("late", Band.SAVE), _Item("early", Band.TRANSFORM)]
    ordered = in_order(items)
    assert isinstance(ordered, tuple)
    assert [item.name for item in items] == ["late", "early"]
