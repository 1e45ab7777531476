"""Modules without a file: a compatibility package's paths, from a table of their names.

Code for another framework imports from many small modules and their packages. Each is made when it
is imported, and loads a name when that is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import ModuleFinder, lazy_module, loader_of
from trainer_hooks.compat.not_offered import NotOfferedImportError, refusal, refusing_getattr

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
        refused: rows of paths, names and the advice for them; the name `*` stands for every name of
            a module that it does not offer.
        files: the paths that are files of the package.

    Attributes:
        paths: the paths of the modules that are no files, sorted, with those above them.
    """

    def __init__(
        self, package: str, exports: Rows, refused: Rows, files: Iterable[str] = ()
    ) -> None:
        self._package = package
        self._exports: dict[str, dict[str, tuple[str, str]]] = {}
        self._refused: dict[str, dict[str, str]] = {}
        for paths, source, names in exports:
            for path in _paths(paths):
                homes = self._exports.setdefault(path, {})
                for name in names.split():
                    theirs, _, ours = name.partition("=")
                    homes[theirs] = (source, ours or theirs)
        for paths, names, advice in refused:
            for path in _paths(paths):
                self._refused.setdefault(path, {}).update(dict.fromkeys(names.split(), advice))
        # "" is the package itself
        every = {*self._exports, *self._refused} - {""}
        above = {
            path.rsplit(".", depth)[0] for path in every for depth in range(1, path.count(".") + 1)
        }
        files = {*files}
        self.paths = sorted((every | above) - files)
        self._children: dict[str, list[str]] = {}
        for path in sorted({*self.paths, *files}):
            parent, _, name = path.rpartition(".")
            self._children.setdefault(parent, []).append(name)

    def exports(self, path: str) -> dict[str, tuple[str, str]]:
        """Return the names of a module, each with the module and name that define it."""
        return self._exports.get(path, {})

    def refused(self, path: str) -> dict[str, str]:
        """Return the names that a module does not offer, each with the advice for it."""
        return self._refused.get(path, {})

    def submodules(self, path: str) -> list[str]:
        """Return the names of a module's submodules, sorted; `""` is the package itself."""
        return self._children.get(path, [])

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
        submodules = dict.fromkeys(self.submodules(path), "")
        loader = loader_of(module, {**submodules, **exports, **(homes or {})})

        def load(name: str) -> Any:
            # a module is searched for submodules only if it has a path. Each has one, for an import
            # of a name that is refused to come to the finder, which raises the error with advice:
            # Python replaces an AttributeError of such an import by an error of its own
            if name == "__path__":
                return []
            try:
                return loader(name)
            except AttributeError as error:
                if homes_of_name := self._homes(name):
                    error.args = (f"{error}. It is in {homes_of_name}",)
                raise

        # a module is there, and refuses its names
        refused = {
            name: advice for name, advice in self.refused(path).items() if name not in submodules
        }
        return refusing_getattr(module, refused, load)

    def register(self, alias: str = "") -> None:
        """Make the modules importable; call it while the package is imported.

        Args:
            alias: a further name below the package under which it and its modules are found.
        """
        modules = {*self.paths}

        def make(path: str) -> ModuleType | None:
            first, _, below = path.partition(".")
            if alias and first == alias:
                name = f"{self._package}.{below}".rstrip(".")
                return importlib.import_module(name) if not below or below in modules else None
            if path not in modules:
                self._refuse_import(path)
                return None
            name = f"{self._package}.{path}"
            public = sorted(name for name in self.exports(path) if name[0] != "_")
            return lazy_module(name, f"Names of `{path}`.", public, self.getattr_of(name))

        ModuleFinder(self._package, make).install()

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


def _paths(paths: str) -> list[str]:
    return ["" if path == "." else path for path in paths.split()]
