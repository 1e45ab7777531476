"""Look up the documented paths of a compatibility package, by attributes and by imports."""

from __future__ import annotations

import importlib


class NamedPaths:
    """The names of one package.

    Args:
        package: the package's name.
    """

    def __init__(self, package):
        self.package = package

    def by_attributes(self, path):
        """Return the value of a dotted path below the package."""
        value = importlib.import_module(self.package)
        for name in path.split("."):
            value = getattr(value, name)
        return value

    def by_import(self, module, name):
        """Return a name of a module below the package, or the module if the name is empty."""
        imported = importlib.import_module(f"{self.package}.{module}".rstrip("."))
        return getattr(imported, name) if name else imported

    def outcomes(self, paths):
        """Return the number of paths that are there, and the paths that are missing.

        One that is neither there nor refused with advice is missing, and so is one that attributes
        and imports do not find alike.

        Args:
            paths: pairs of a module and a name.
        """
        there, missing = 0, []
        for module, name in paths:
            path = f"{module}.{name}".strip(".")
            outcomes = {
                outcome(lambda path=path: self.by_attributes(path)),
                outcome(lambda module=module, name=name: self.by_import(module, name)),
            }
            if len(outcomes) > 1 or "missing" in outcomes:
                missing.append(path)
            else:
                there += outcomes == {"there"}
        return there, missing


def outcome(find):
    """Return whether a name is there, is refused with advice, or is not known."""
    try:
        find()
    except (AttributeError, ImportError) as error:
        return "told" if " is not in trainer_hooks: " in str(error) else "missing"
    return "there"
