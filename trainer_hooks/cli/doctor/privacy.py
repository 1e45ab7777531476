"""Takes private data out of texts of others, such as the error of a plugin."""

from __future__ import annotations

import getpass
import os
import re
import socket
from contextlib import suppress
from pathlib import Path

_HIDDEN = "***"

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/][^\\/\s'\":,;()<>]+)+[\\/]([^\\/\s'\":,;()<>]*)")
"""A path of at least two folders; its last part is kept, as it names the file of an error."""

_ADDRESS = re.compile(r"\w+://[^\s'\"<>]+|[\w.+-]+@[\w.-]+|\b\d{1,3}(?:\.\d{1,3}){3}\b")
"""A URL, which may hold a password, an e-mail address, or the address of a machine."""

_SHORTEST, _SHORTEST_WORD = 4, 8
"""Characters from which on a variable's value, and a word of it, are hidden: `1` is anywhere."""


def without_private_parts(text: str) -> str:
    """Return a text with names of users and machines, paths, addresses and secrets hidden.

    A value of an environment variable is hidden wherever it stands, so that a password is, too, and
    so are the entries of a list of paths, and the longer words of a value.
    """
    text = _PATH.sub(rf"{_HIDDEN}/\1", _ADDRESS.sub(_HIDDEN, text))
    for value in sorted(_private_values(), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _HIDDEN, text)
    return text


def _private_values() -> set[str]:
    """Return the texts that say who runs this, where, and with which settings."""
    names = {str(Path.home()), Path.home().name, socket.gethostname()}
    # a container may have no user of this number
    with suppress(KeyError, OSError):
        names.add(getpass.getuser())
    values: set[str] = set()
    for value in os.environ.values():
        values |= {value, *value.split(os.pathsep)}
        values |= {word for word in value.split() if len(word) >= _SHORTEST_WORD}
    return names - {""} | {value for value in values if len(value) >= _SHORTEST}
