"""Proxies: which attributes are their own, which are the target's, and which are errors."""

from __future__ import annotations

from typing import ClassVar

import pytest

from trainer_hooks.adapters.proxy import PartialProxy, Proxy


class Target:
    """Has an attribute, a property, and a property that fails."""

    def __init__(self) -> None:
        self.number = 1

    @property
    def broken(self) -> int:
        return self.nothing_of_the_kind  # type: ignore[attr-defined]


class Named(Proxy):
    """Offers another framework's name for the number."""

    _framework: ClassVar[str] = "otherlib"
    _foreign_name: ClassVar[str] = "Trainer.part"

    @property
    def count(self) -> int:
        return self.proxy_target.number

    @count.setter
    def count(self, value: int) -> None:
        self.proxy_target.number = value


class Part(PartialProxy):
    """Offers nothing."""

    _framework: ClassVar[str] = "otherlib"
    _foreign_name: ClassVar[str] = "Trainer.other"


def test_attributes_are_passed_on_but_for_the_proxys_own() -> None:
    """What is read, set and deleted is the target's; a property of the proxy sets what it says."""
    target = Target()
    proxy = Named(target)
    assert (proxy.number, proxy.count) == (1, 1)
    proxy.count = 2
    proxy.label = "x"
    assert (target.number, target.label) == (2, "x")
    assert {"count", "number", "label"} <= set(dir(proxy))
    del proxy.label
    assert not hasattr(target, "label")
    assert repr(proxy) == repr(target)


def test_a_missing_name_is_an_error_of_the_framework() -> None:
    """It names the object and the framework; the proxy without a framework leaves Python's own."""
    with pytest.raises(AttributeError, match=r"'nothing' of otherlib's Trainer.part has no count"):
        Named(Target()).nothing  # noqa: B018
    with pytest.raises(AttributeError, match=r"'nothing' of otherlib's Trainer.other has no coun"):
        Part(Target()).nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'Target' object has no attribute 'nothing'"):
        Proxy(Target()).nothing  # noqa: B018


def test_an_error_inside_a_property_of_the_target_stays_its_own() -> None:
    """The name is there; what is missing is another one."""
    with pytest.raises(AttributeError, match="'Target' object has no attribute 'nothing_of_the_k"):
        Named(Target()).broken  # noqa: B018
