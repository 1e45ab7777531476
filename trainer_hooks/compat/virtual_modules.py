"""Modules without a file: a compatibility package's paths, from a table of their names.

Code for another framework imports from many small modules and their packages. Each is made when it
is imported, and loads a name when that is first used.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import ModuleFinder, lazy_module, loader_of
from trainer_hooks.compat.not_offered import (
    NotOfferedImportError,
    NotOfferedNameError,
    refusal,
    refused_rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    Rows = Iterable[tuple[str, str, str]]

__all__ = ["ModuleTable"]


class ModuleTable:
    """The modules of a compatibility package: names by path, and advice for those not offered.

    Args:
        package: the package's name.
        exports: rows of paths below the package, the module that defines the names, and the names,
            each list separated by spaces. The path `.` is the package itself; `Theirs=ours` gives a
            name of ours under theirs.
        file: a file of the package, beside which `not_offered.toml` has the advice for the names
            that it does not offer. That is read for the first name that is not found.
        files: the paths that are files of the package.

    """

    def __init__(self, package: str, exports: Rows, file: str, files: Iterable[str] = ()) -> None:
        self._package, self._file, self._files = package, file, {*files}
        self._exports: dict[str, dict[str, tuple[str, str]]] = {}
        for paths, source, names in exports:
            for path in _paths(paths):
                homes = self._exports.setdefault(path, {})
                for name in names.split():
                    theirs, _, ours = name.partition("=")
                    homes[theirs] = (source, ours or theirs)
        self._offered = _with_parents(self._exports) - self._files

    @cached_property
    def _refused(self) -> dict[str, dict[str, str]]:
        refused: dict[str, dict[str, str]] = {}
        for paths, names, advice in refused_rows(self._file):
            for path in _paths(paths):
                refused.setdefault(path, {}).update(dict.fromkeys(names.split(), advice))
        return refused

    @cached_property
    def paths(self) -> list[str]:
        """The paths of the modules that are no files, sorted, with those above them."""
        return sorted(_with_parents([*self._exports, *self._refused]) - self._files)

    def exports(self, path: str) -> dict[str, tuple[str, str]]:
        """Return the names of a module, each with the module and name that define it."""
        return self._exports.get(path, {})

    def refused(self, path: str) -> dict[str, str]:
        """Return the names that a module does not offer, each with the advice for it."""
        return self._refused.get(path, {})

    def submodules(self, path: str) -> list[str]:
        """Return the names of a module's submodules, sorted; `""` is the package itself."""
        return _below(path, [*self.paths, *self._files])

    def getattr_of(
        self, module: str, homes: Mapping[str, str] | None = None
    ) -> Callable[[str], Any]:
        """Return the `__getattr__` of a module.

        It loads the module's own names and its submodules, and refuses the names that are not
        offered. A submodule is loaded there, since Python makes one an attribute of its package
        only when it loads a file.

        Args:
            module: the module's `__name__`.
            homes: the places of further names, as for `loader_of`.
        """
        path = module.removeprefix(self._package).removeprefix(".")
        exports = {
            name: f":{source}:{attribute}"
            for name, (source, attribute) in self.exports(path).items()
        }
        offered = dict.fromkeys(_below(path, self._offered | self._files), "")
        loader = loader_of(module, {**offered, **exports, **(homes or {})})

        def load(name: str) -> Any:
            # a module is searched for submodules only if it has a path. Each has one, for an import
            # of a name that is refused to come to the finder, which raises the error with advice:
            # Python replaces an AttributeError of such an import by an error of its own
            if name == "__path__":
                return []
            try:
                return loader(name)
            except AttributeError as error:
                # Python itself asks modules for names such as __wrapped__, and expects this error
                if name.startswith("__"):
                    raise
                # a module that refuses all of its names
                if name in self.submodules(path):
                    return importlib.import_module(f"{module}.{name}")
                refused = self.refused(path)
                if name in refused or "*" in refused:
                    advice = refused.get(name) or refused["*"]
                    raise NotOfferedNameError(refusal(module, name, advice)) from None
                if homes_of_name := self._homes(name):
                    error.args = (f"{error}. It is in {homes_of_name}",)
                raise

        return load

    def register(self, alias: str = "") -> None:
        """Make the modules importable; call it while the package is imported.

        Args:
            alias: a further name below the package under which it and its modules are found.
        """

        def make(path: str) -> ModuleType | None:
            first, _, below = path.partition(".")
            if alias and first == alias:
                name = f"{self._package}.{below}".rstrip(".")
                return importlib.import_module(name) if not below or self._has(below) else None
            if self._is_file(path):
                return None
            if not self._has(path):
                self._refuse_import(path)
                return None
            name = f"{self._package}.{path}"
            public = sorted(name for name in self.exports(path) if name[0] != "_")
            return lazy_module(name, f"Names of `{path}`.", public, self.getattr_of(name))

        ModuleFinder(self._package, make).install()

    def _has(self, path: str) -> bool:
        """Return whether there is a module of a path that is no file."""
        # the second reads the table of refused names
        return path in self._offered or path in self.paths

    def _is_file(self, path: str) -> bool:
        """Return whether a path is a file of the package itself, which Python finds."""
        place = Path(self._file).parent.joinpath(*path.split("."))
        return place.with_suffix(".py").exists() or (place / "__init__.py").exists()

    def _refuse_import(self, path: str) -> None:
        """Raise the error for an import of a name that is not offered, by its path.

        Raises:
            NotOfferedError: the table has advice for the name.
        """
        parent, _, name = path.rpartition(".")
        refused = self.refused(parent)
        if name in self.exports(parent) or name.startswith("__"):
            return
        advice = refused.get(name) or refused.get("*")
        if advice is not None:
            module = f"{self._package}.{parent}".rstrip(".")
            raise NotOfferedImportError(refusal(module, name, advice))

    def _homes(self, name: str) -> str:
        """Return the modules that offer a name, separated by commas; the shortest path first."""
        homes = sorted(
            (path for path in self._exports if name in self._exports[path]),
            key=lambda path: (path.count("."), path),
        )
        return ", ".join(f"{self._package}.{path}".rstrip(".") for path in homes[:2])


def _with_parents(paths: Iterable[str]) -> set[str]:
    """Return paths with those above them, without the package itself."""
    every = {*paths} - {""}
    return every | {
        path.rsplit(".", depth)[0] for path in every for depth in range(1, path.count(".") + 1)
    }


def _below(parent: str, paths: Iterable[str]) -> list[str]:
    """Return the names of the modules directly below a path, sorted."""
    return sorted(path.rpartition(".")[2] for path in paths if path.rpartition(".")[0] == parent)


def _paths(paths: str) -> list[str]:
    return ["" if path == "." else path for path in paths.split()]
