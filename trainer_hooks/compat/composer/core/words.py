"""Words: enums of texts that are found by name or value, whatever the case."""

from __future__ import annotations

from enum import Enum

from trainer_hooks.errors import OptionError, nearest

__all__ = ["Words"]


class Words(str, Enum):  # noqa: UP042 - a StrEnum is shown as its value, and these by their names
    """An enum of texts; a member equals its value, and is found by name or value in any case.

    Raises:
        OptionError: there is no such member.
    """

    value: str

    @classmethod
    def _missing_(cls, value: object) -> Words:
        if isinstance(value, str):
            for member in cls:
                if value.lower() in (member.name.lower(), member.value.lower()):
                    return member
        known = [member.value for member in cls]
        hint = nearest(value, known) if isinstance(value, str) else ""
        raise OptionError(
            f"{cls.__name__} {value!r}: it must be one of {', '.join(known)}.{hint} Choose one."
        )
