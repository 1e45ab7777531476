"""Let torch's exporters look at modules without what only a run can tell them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

__all__ = ["without_run"]


@contextmanager
def without_run(module: nn.Module, base: type[nn.Module]) -> Iterator[None]:
    """Let the modules below have nothing that only a run can tell them.

    torch asks them for every attribute, and there is no trainer here; nor does it understand what
    types these have.

    Args:
        module: what is exported.
        base: `Module`; what it annotates and its properties are hidden in all parts that are one.
    """
    own = {part: type(part) for part in module.modules() if isinstance(part, base)}
    properties = [name for name in dir(base) if isinstance(getattr(base, name), property)]
    try:
        for part, kind in own.items():
            of_user = kind.__mro__[: kind.__mro__.index(base)]
            types = [vars(each).get("__annotations__", {}) for each in reversed(of_user)]
            hidden: dict[str, Any] = dict.fromkeys(properties)
            # where there is none, torch takes the base's
            hidden["__annotations__"] = {
                "training": bool,
                **{name: found for each in types for name, found in each.items()},
            }
            part.__class__ = type(kind.__name__, (kind,), hidden)
        yield
    finally:
        for part, kind in own.items():
            part.__class__ = kind
