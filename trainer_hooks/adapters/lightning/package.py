"""Lightning's package: which one a foreign object comes from, its enums, and its rank."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LIGHTNING_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The two packages in which Lightning is published; one process may have imported both."""


def lightning_package_of(foreign: object) -> str:
    """Return the package of Lightning that an object's class derives from.

    Args:
        foreign: a callback, module, data module or logger of Lightning.
    """
    for kind in reversed(type(foreign).__mro__):  # from the base, so Lightning's classes come first
        for package in LIGHTNING_PACKAGES:
            if kind.__module__.startswith(f"{package}."):
                return package
    return LIGHTNING_PACKAGES[0]


def set_lightning_rank(rank: int) -> None:
    """Set the rank that Lightning's `rank_zero_only` goes by, as its strategies do."""
    utilities = sys.modules.get("lightning_utilities.core.rank_zero")
    if utilities is not None:
        # when imported, Lightning sets it from the environment, which need not know the rank yet
        utilities.rank_zero_only.rank = rank


def enum_member(package: str, enum: str, value: Any) -> Any:
    """Return the member of an enum in Lightning's `trainer.states`.

    The text itself is returned where that module is not imported: Lightning is never imported for
    it, and without the import no callback can compare with its members.

    Args:
        package: Lightning's package, as `lightning_package_of` returns it.
        enum: the enum's name, as `TrainerFn`.
        value: the member's text, or None.
    """
    states = sys.modules.get(f"{package}.trainer.states")
    return value if value is None or states is None else vars(states)[enum](value)


def with_stage_enum(method: Callable[[Any], Any], foreign: object) -> Callable[[str], Any]:
    """Return `setup` or `teardown` of a foreign object as a function of the stage's text.

    Args:
        method: the method, which takes a member of Lightning's `TrainerFn`.
        foreign: the object that it belongs to.
    """
    package = lightning_package_of(foreign)

    def call(stage: str) -> Any:
        return method(enum_member(package, "TrainerFn", stage))

    return call
