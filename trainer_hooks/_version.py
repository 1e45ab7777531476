"""The version of the package, and the versions of Python and torch with which it is tested.

They stand nowhere else: `.ci/matrix` runs the pairs, `trainer-hooks doctor` names what is outside
of them, and tests compare pyproject.toml and docs/install.md with them.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder

__version__ = "0.1.0"

TESTED = (
    ("3.11", "2.8.0"),
    ("3.11", "2.13.0"),
    ("3.12", "2.15.0"),
    ("3.13", "2.15.0"),
)
"""Pairs of a Python and a torch: the oldest torch first, which is the oldest that is taken."""

OLDEST_TORCH = TESTED[0][1].removesuffix(".0")


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without its suffix: `2.13.0a0+git1f` is 2, 13, 0.

    A text that is no version has none.
    """
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def installed_torch() -> str:
    """Return the version of the torch that is imported or would be; empty if none can be found."""
    loaded = sys.modules.get("torch")
    if loaded is not None:
        return str(getattr(loaded, "__version__", ""))
    spec = PathFinder.find_spec("torch")
    if spec is None or not spec.origin:
        return ""
    # torch itself reads its version from this file; to import it takes a second
    file = os.path.join(os.path.dirname(spec.origin), "version.py")  # noqa: PTH118, PTH120
    try:
        with open(file, encoding="utf-8") as text:  # noqa: PTH123 - pathlib would be loaded for it
            lines = [line for line in text if line.startswith("__version__")]
    except (OSError, UnicodeDecodeError):
        return ""
    return lines[0].partition("=")[2].strip(" '\"\n") if lines else ""


def old_torch() -> str:
    """Return the line that says that the installed torch is too old; empty if it is not."""
    version = installed_torch()
    release = release_of(version)
    # a version that cannot be read may be a new one
    if not release or release >= release_of(OLDEST_TORCH):
        return ""
    return (
        f"trainer_hooks {__version__} needs torch {OLDEST_TORCH} or newer, and torch {version} is "
        f"installed: pip install 'torch>={OLDEST_TORCH}'"
    )
