"""Home: Lightning's own package, whose words and settings its guests go by."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["StateView", "home_of", "tell_rank", "told_stage", "word"]


def home_of(guest: object) -> str:
    """Return in which of its two packages Lightning is that a callback, say, derives from."""
    for kind in reversed(type(guest).__mro__):
        for package in ("lightning.pytorch", "pytorch_lightning"):
            if kind.__module__.startswith(f"{package}."):
                return package
    return "lightning.pytorch"


def tell_rank(rank: int) -> None:
    """Let Lightning's `rank_zero_only` know which process this is, as its strategies do."""
    utilities = sys.modules.get("lightning_utilities.core.rank_zero")
    if utilities is not None:
        utilities.rank_zero_only.rank = rank


def word(home: str, name: str, value: Any) -> Any:
    """Return a word of one of Lightning's enums; the text itself where that is not imported.

    Args:
        home: Lightning's package.
        name: the enum's.
        value: the text, or None.
    """
    words = sys.modules.get(f"{home}.trainer.states")
    return value if value is None or words is None else vars(words)[name](value)


class StateView:
    """`trainer.state`, in words of Lightning's own enums where the package is imported.

    Args:
        trainer: whose.
        home: Lightning's package.
    """

    def __init__(self, trainer: Any, home: str) -> None:
        self._state = trainer.state
        self._home = home

    @property
    def fn(self) -> Any:
        """What is run: `"fit"`, `"validate"`, `"test"` or `"predict"`, or None."""
        return self._word("TrainerFn", self._state.fn)

    @property
    def stage(self) -> Any:
        """What of it is under way, from the beginning of a run on; None outside of one."""
        fn, stage = self._state.fn, self._state.stage
        return self._word("RunningStage", stage or ("train" if fn == "fit" else fn))

    @property
    def status(self) -> Any:
        """How it stands."""
        return self._word("TrainerStatus", self._state.status)

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return bool(self._state.status == "finished")

    @property
    def stopped(self) -> bool:
        """Whether it is over or was interrupted."""
        return self._state.status in {"finished", "interrupted"}

    def _word(self, name: str, value: Any) -> Any:
        return word(self._home, name, value)


def told_stage(method: Callable[[Any], Any], guest: object) -> Callable[[str], Any]:
    """Return a function that tells a `setup` or `teardown` the stage in Lightning's own word.

    Args:
        method: the guest's.
        guest: whose it is.
    """
    home = home_of(guest)

    def call(stage: str) -> Any:
        return method(word(home, "TrainerFn", stage))

    return call
