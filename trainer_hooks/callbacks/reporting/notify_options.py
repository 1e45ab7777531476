"""The checks of Notify's arguments."""

from __future__ import annotations

import shlex
from typing import Any
from urllib.parse import urlsplit

from trainer_hooks.errors import OptionError

__all__ = ["check_command", "check_mapping", "check_url"]


def check_command(command: object) -> list[str] | None:
    """Return a command and its arguments.

    Raises:
        OptionError: it is none, or cannot be split.
    """
    if command is None:
        return None
    found: Any = command
    if isinstance(command, str):
        try:
            found = shlex.split(command)
        except ValueError:
            found = None
    is_list = isinstance(found, list | tuple) and bool(found)
    if is_list and all(isinstance(part, str) for part in found) and found[0]:
        return list(found)
    raise OptionError(
        f"command {command!r} of Notify: it must be a command with its arguments. Pass a list of "
        "texts such as ['notify-send', 'done']."
    )


def check_url(url: object) -> str | None:
    """Return a web address; an error does not show what may be secret of it."""
    if url is None:
        return None
    parts = None
    if isinstance(url, str):
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise OptionError(
            f"url of Notify, of type {type(url).__name__}: it must be an address that begins "
            "with http:// or https://. Pass the whole of it."
        )
    return str(url)


def check_mapping(name: str, value: object, of: type) -> dict[str, Any]:
    """Return a copy of a dict whose keys are texts and whose values are of a type."""
    if value is None:
        return {}
    if isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(item, of) for key, item in value.items()
    ):
        return dict(value)
    raise OptionError(f"{name} of Notify: it must be a dict of texts. Pass one, or leave it out.")
