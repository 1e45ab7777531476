"""Events: the hooks as an enum under our names and Composer's, and the rules of `call_event`."""

from __future__ import annotations

import re
from enum import EnumMeta, StrEnum
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError, suggest
from trainer_hooks.hooks.spec import ALIASES, EVENT_NAMES, HOOKS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer_hooks.hooks.spec import HookSpec

_MARKS = (("_before_", "_after_"), ("_start", "_end"))
"""How the names of a pair of hooks differ: the one before something and the one after it."""


class _EventMeta(EnumMeta):
    """Let type checkers accept any member name: the members come from the catalogue."""

    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Event: ...


class Event(StrEnum, metaclass=_EventMeta):
    """A hook, as `Callback.run_event` receives it; each member equals the hook's name.

    A member is named as the hook, `Event.ON_TRAIN_BATCH_END`, and where Composer has the same
    moment, as Composer names it: `Event.BATCH_END` is that member too. `Event("batch_end")` and
    `Event("on_train_batch_end")` find a member by a string, whatever its case. Hooks that installed
    packages add are no members.
    """

    _ignore_ = ["hook", "moment", "alias"]  # noqa: RUF012 - the enum takes it out
    # `vars()` is the mapping in which the enum's metaclass collects the members of the body
    for hook in HOOKS:
        vars()[hook.upper()] = hook
    for moment, alias in EVENT_NAMES.items():
        # a second name with the value of a member is an alias of it, and no further member;
        # validation and test share the eval events, whose member is the first one's, validation's
        if alias.upper() not in vars():
            vars()[alias.upper()] = moment

    @classmethod
    def _missing_(cls, value: object) -> Event | None:
        # called for a value that no member has: another case, Composer's name, or an older one
        if not isinstance(value, str):
            return None
        name = value.lower()
        return cls.__members__.get(ALIASES.get(name, name).upper())

    @property
    def is_before_event(self) -> bool:
        """Whether the event is the first of a pair, such as `..._start` and `..._end`."""
        return self._matching_hook(0, 1) is not None

    @property
    def is_after_event(self) -> bool:
        """Whether the event is the second of a pair, such as `..._start` and `..._end`."""
        return self._matching_hook(1, 0) is not None

    @property
    def canonical_name(self) -> str:
        """The name that the two events of a pair share, without `before`, `after`, `start`, `end`.

        It is from Composer's names where both have one, and from ours otherwise.
        """
        other = self._matching_hook(0, 1) or self._matching_hook(1, 0)
        if other is None:
            return self.value.removeprefix("on_")
        has_event_names = self.value in EVENT_NAMES and other in EVENT_NAMES
        name = f"_{EVENT_NAMES[self.value]}" if has_event_names else self.value.removeprefix("on")
        return re.sub(r"(?<=_)(?:before|after)_|_(?:start|end)$", "", name).strip("_")

    @property
    def is_eval(self) -> bool:
        """Whether the event belongs to validation or test."""
        return self.value.startswith(("on_validation_", "on_test_", "on_evaluation_"))

    @property
    def is_predict(self) -> bool:
        """Whether the event belongs to prediction."""
        return self.value.startswith("on_predict_")

    def _matching_hook(self, own_side: int, other_side: int) -> str | None:
        """Return the other hook of the pair in which this one has the mark of `own_side`."""
        # only a hook that exists: `on_fit_start` has a matching end, `on_before_zero_grad` has none
        for marks in _MARKS:
            other = self.value.replace(marks[own_side], marks[other_side])
            if other != self.value and other in HOOKS:
                return other
        return None


def hook_named_as_event(event: str) -> str | None:
    """Return the hook that an event name of Composer's stands for, or None.

    Args:
        event: the name of the event's method, or of the enum's member, as `"Event.BATCH_END"`.
    """
    name = event.removeprefix("Event.").lower()
    return next((hook for hook, alias in EVENT_NAMES.items() if alias == name), None)


def check_event(event: str, hooks: Mapping[str, HookSpec], reserved: Collection[str]) -> None:
    """Make sure that the user may fire an event by name.

    Args:
        event: the event's name.
        hooks: all known hooks; those that plugins add may be fired by name.
        reserved: names that mean something else on every callback.

    Raises:
        UsageError: the event is a hook that trainer_hooks fires itself, has a reserved name, or
            looks like a hook and is none.
    """
    fault = ""
    if event in HOOKS or event in ALIASES:
        fault = "is a hook, which the trainer fires itself. Give an event of your own another name."
    elif event.startswith("_") or event in reserved:
        fault = "is no event but a part of every callback. Give an event of your own another name."
    elif event.startswith("on_") and event not in hooks:
        fault = (
            f"begins with 'on_' and is no hook.{suggest('hooks', event, hooks)} Give an event of "
            "your own a name that does not begin with 'on_', or add a hook: install a package that "
            "registers a subclass of Hooks in the entry-point group 'trainer_hooks.hooks'."
        )
    if fault:
        raise UsageError(f"event {event!r} of call_event: {fault}")


def positional_arguments(spec: HookSpec, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a hook's arguments after the trainer and the module, in the order it declares.

    Args:
        spec: a hook that a plugin adds.
        arguments: the arguments by name.

    Raises:
        UsageError: some are missing, or are not the hook's.
    """
    # without the trainer and the module, which `call_event` passes itself
    names = spec.arguments[2:]
    if set(names) != set(arguments):
        raise UsageError(
            f"event {spec.name!r} of call_event: was given {sorted(arguments) or 'no arguments'}, "
            f"and its hook, of {spec.supplier}, takes {list(names) or 'none'}. Give exactly those, "
            "by name."
        )
    return tuple(arguments[name] for name in names)
