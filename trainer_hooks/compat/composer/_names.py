"""Names of the packages: where they are, and what to use instead of those that are not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import loader_of
from trainer_hooks.compat.composer.absent import LOGGERS, PACKAGE
from trainer_hooks.compat.refusing import refusing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["names"]

_ABSENT = {**LOGGERS, **PACKAGE}


def names(
    package: str, homes: Mapping[str, str], absent: tuple[str, ...] = ()
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package; a name of Composer that is not here says why.

    Args:
        package: the package's name.
        homes: the module of each name, below the package.
        absent: names that it has in Composer.
    """
    return refusing(package, {name: _ABSENT[name] for name in absent}, loader_of(package, homes))
