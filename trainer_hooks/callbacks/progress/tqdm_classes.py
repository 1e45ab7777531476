"""The classes of tqdm that bars are made of."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.notebook import shows_widgets

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["bar_class"]


def bar_class() -> type[tqdm[Any]]:
    """Return tqdm for what this process is shown on, without its monitor.

    The monitor is a thread, which would be in the way of workers that are forked.
    """
    return _widget() if shows_widgets() else _text()


@cache
def _text() -> type[tqdm[Any]]:
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    return Bar


@cache
def _widget() -> type[tqdm[Any]]:
    from tqdm.notebook import tqdm

    class WidgetBar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    return WidgetBar
