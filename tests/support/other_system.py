"""The pieces of a stand-in for another operating system; see `as_windows.py` and `as_macos.py`.

A stand-in is a module with a function `begin`, which changes the process that calls it.
"""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re

PACKAGE = "trainer_hooks"

NAME = "TRAINER_HOOKS_STAND_IN"
"""The environment variable that names the stand-in which a new Python process begins."""

FOLDER = str(Path(__file__).parent / "stand_in")
"""The folder of the `sitecustomize` that does so."""


class Absent(AttributeError):
    """The package has used a name that the other system lacks."""


class Seen(ModuleType):
    """A module as the package sees it; other modules see all of it.

    Args:
        real: the module.
        absent: names that the package does not find.
        given: values that it finds in place of the module's own.
    """

    def __new__(cls, real: Any, *more: Any, **given: Any) -> Any:
        # `runpy` makes modules of the class of `sys`
        return ModuleType(real) if isinstance(real, str) else super().__new__(cls)

    def __init__(self, real: ModuleType, absent: frozenset[str], **given: Any) -> None:
        super().__init__(real.__name__)
        object.__setattr__(self, "_parts", (real, absent, given))

    def __getattribute__(self, name: str) -> Any:
        real, absent, given = object.__getattribute__(self, "_parts")
        if is_of_package(sys._getframe(1)):
            if name in absent:
                raise Absent(f"module {real.__name__!r} has no attribute {name!r} there")
            if name in given:
                return given[name]
        return getattr(real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_parts")[0], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(object.__getattribute__(self, "_parts")[0], name)


def is_of_package(frame: Any) -> bool:
    """Whether the code of a frame is the package's."""
    name = frame.f_globals.get("__name__") or ""
    return str(name).partition(".")[0] == PACKAGE


def begin_children(stand_in: str, **environ: str) -> None:
    """Let each Python process that this one starts begin a stand-in, with more variables."""
    given = {NAME: stand_in, **environ}
    os.environ |= given
    os.environ["PYTHONPATH"] = _with_folder(os.environ)
    before = subprocess.Popen.__init__

    def start(self: Any, *arguments: Any, **options: Any) -> None:
        if options.get("env") is not None:
            options["env"] = {**options["env"], **given, "PYTHONPATH": _with_folder(options["env"])}
        before(self, *arguments, **options)

    subprocess.Popen.__init__ = start  # type: ignore[method-assign]


def _with_folder(environ: Any) -> str:
    path = environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([FOLDER, *(part for part in path if part not in ("", FOLDER))])


class LeaveOut:
    """A plugin of pytest that leaves out tests which need themselves what the other system lacks.

    Args:
        names: what the text of such a test has.
        marker: the marker of others.
    """

    def __init__(self, names: re.Pattern[str], marker: str) -> None:
        self._names, self._marker = names, marker

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        out = [item for item in items if self._needs(item)]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]

    def _needs(self, item: Any) -> bool:
        if item.get_closest_marker(self._marker) or not hasattr(item, "function"):
            return True
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        plain = [value for value in parameters.values() if isinstance(value, int | str)]
        text = f"{inspect.getsource(item.function)} {plain}"
        return self._names.search(text) is not None
