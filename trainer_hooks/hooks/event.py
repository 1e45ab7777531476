"""Event: the hooks of the catalogue as an enum, under our names and Composer's."""

from __future__ import annotations

import re
from enum import EnumMeta, StrEnum
from typing import TYPE_CHECKING

from trainer_hooks.hooks.spec import ALIASES, HOOKS

__all__ = ["Event"]

_MARKS = (("_before_", "_after_"), ("_start", "_end"))
"""How the names of the two hooks around something differ."""


class _Members(EnumMeta):
    """Tell type checkers that the members come from the catalogue."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Event: ...


class Event(StrEnum, metaclass=_Members):
    """A hook, as `Callback.run_event` is told of it; each equals the hook's name.

    A member is named as the hook, `Event.ON_TRAIN_BATCH_END`, and where Composer has the same
    moment, as Composer names it: `Event.BATCH_END` is that member too. `Event("batch_end")` and
    `Event("on_train_batch_end")` find it by a text, whatever its case. Hooks that installed
    packages add are no members.
    """

    _ignore_ = ["hook", "spec"]  # noqa: RUF012 - the enum takes it out
    for hook in HOOKS:
        vars()[hook.upper()] = hook
    for spec in HOOKS.values():
        # Composer's eval events are those of validation and test: the first, validation's, counts
        if spec.composer and spec.composer.upper() not in vars():
            vars()[spec.composer.upper()] = spec.name

    @classmethod
    def _missing_(cls, value: object) -> Event | None:
        if not isinstance(value, str):
            return None
        name = value.lower()
        return cls.__members__.get(ALIASES.get(name, name).upper())

    @property
    def is_before_event(self) -> bool:
        """Whether it comes before something after which another comes."""
        return self._counterpart(0, 1) is not None

    @property
    def is_after_event(self) -> bool:
        """Whether it comes after something before which another comes."""
        return self._counterpart(1, 0) is not None

    @property
    def canonical_name(self) -> str:
        """What the two events around something share: their name without what tells them apart.

        It is from Composer's names where both have one, and from ours otherwise.
        """
        other = self._counterpart(0, 1) or self._counterpart(1, 0)
        if other is None:
            return self.value.removeprefix("on_")
        mine, its = HOOKS[self.value].composer, HOOKS[other].composer
        name = f"_{mine}" if mine and its else self.value.removeprefix("on")
        return re.sub(r"(?<=_)(?:before|after)_|_(?:start|end)$", "", name).strip("_")

    @property
    def is_eval(self) -> bool:
        """Whether it belongs to validation or test."""
        return self.value.startswith(("on_validation_", "on_test_", "on_evaluation_"))

    @property
    def is_predict(self) -> bool:
        """Whether it belongs to prediction."""
        return self.value.startswith("on_predict_")

    def _counterpart(self, mine: int, its: int) -> str | None:
        """Return the hook at the other side of what this one is at the `mine` side of."""
        for marks in _MARKS:
            other = self.value.replace(marks[mine], marks[its])
            if other != self.value and other in HOOKS:
                return other
        return None
