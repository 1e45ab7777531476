"""Warnings that point at the user's line."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from trainer_hooks._log import log, warn


def test_the_logger_is_left_to_the_application() -> None:
    """Importing the package attaches no handler and sets no level."""
    assert log.name == "trainer_hooks"
    assert log.handlers == []
    assert log.level == 0


def inside(name: str, code: str) -> ModuleType:
    """Return a module of that name made from `code`, with a file name of its own."""
    module = ModuleType(name)
    module.__dict__["warn"] = warn
    exec(compile(code, f"<{name}>", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("depth", [0, 1, 7])
def test_the_first_frame_outside_the_package_is_shown(depth: int) -> None:
    """However deep inside the package, the warning is placed on the line that called into it."""
    library = inside(
        "trainer_hooks.somewhere",
        "def down(n):\n    return warn('look', UserWarning) if n == 0 else down(n - 1)\n",
    )
    line = sys._getframe().f_lineno + 2
    with pytest.warns(UserWarning, match="look") as caught:
        library.down(depth)
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)


def test_a_package_with_a_like_name_is_outside() -> None:
    """`trainer_hooks_monitoring` is not `trainer_hooks`: its line is shown."""
    plugin = inside("trainer_hooks_monitoring", "def complain():\n    warn('look', UserWarning)\n")
    with pytest.warns(UserWarning, match="look") as caught:
        plugin.complain()
    assert caught[0].filename == "<trainer_hooks_monitoring>"
