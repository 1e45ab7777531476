"""Write the names of Composer's documented API to a file, for the tables of its page.

    pip download --no-deps mosaicml && unzip mosaicml-*.whl
    python docs/composer_names.py FOLDER

It reads the source in that folder, and needs no dependency of Composer. Run it when Composer has a
new release; the test of the page then names those without a counterpart.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

FILE = Path(__file__).with_name("composer_names.json")

_PACKAGES = ("", "core", "loggers", "callbacks", "models", "optim")
_CLASSES = {
    "Callback": "core/callback.py",
    "Event": "core/event.py",
    "State": "core/state.py",
    "Engine": "core/engine.py",
    "Time": "core/time.py",
    "TimeUnit": "core/time.py",
    "Timestamp": "core/time.py",
    "Evaluator": "core/evaluator.py",
    "DataSpec": "core/data_spec.py",
    "Logger": "loggers/logger.py",
    "LoggerDestination": "loggers/logger_destination.py",
    "InMemoryLogger": "loggers/in_memory_logger.py",
    "ComposerModel": "models/base.py",
    "Trainer": "trainer/trainer.py",
}
_ARGUMENTS = {"Trainer(...)": "__init__", "Trainer.fit(...)": "fit", "Trainer.eval(...)": "eval"}


def main(folder: Path) -> None:
    """Write the file."""
    source = folder / "composer"
    version = next(folder.glob("mosaicml-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    names: dict[str, object] = {"version": version}
    for package in _PACKAGES:
        tree = ast.parse((source / package / "__init__.py").read_text(encoding="utf-8"))
        found = _listed(tree) or _listed_by_parts(source / package)
        names[f"composer.{package}".rstrip(".")] = sorted({*found} - {"__version__"})
    for name, path in _CLASSES.items():
        names[name] = sorted(_members(_class(source / path, name)))
    trainer = _class(source / _CLASSES["Trainer"], "Trainer")
    for label, function in _ARGUMENTS.items():
        names[label] = sorted(_arguments(trainer, function))
    names["paths"] = _paths(source)
    FILE.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


def _listed(tree: ast.Module) -> list[str]:
    """Return `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _listed_by_parts(folder: Path) -> list[str]:
    """Return the names of a package that hands out all that its files list."""
    files = sorted(folder.glob("*.py"))
    return [name for file in files for name in _listed(ast.parse(file.read_text("utf-8")))]


def _paths(source: Path) -> dict[str, list[str]]:
    """Return the public names of all modules, by their paths below the package."""
    paths = {}
    for file in sorted(source.rglob("*.py")):
        parts = [*file.relative_to(source).with_suffix("").parts]
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if any(part[0] == "_" for part in parts):
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        made = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        paths[".".join(parts)] = sorted({n for n in _listed(tree) or made if n[0] != "_"})
    return paths


def _class(path: Path, name: str) -> ast.ClassDef:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def _members(node: ast.ClassDef) -> set[str]:
    """Return methods, properties, members of an enum, and what `__init__` sets."""
    found = set()
    for part in node.body:
        if isinstance(part, ast.FunctionDef):
            found.add(part.name)
            if part.name == "__init__":
                found |= {
                    sub.attr
                    for sub in ast.walk(part)
                    if isinstance(sub, ast.Attribute)
                    and isinstance(sub.ctx, ast.Store)
                    and ast.unparse(sub.value) == "self"
                }
        elif isinstance(part, ast.Assign):
            found.add(ast.unparse(part.targets[0]))
    return {name for name in found if name[0] != "_"}


def _arguments(node: ast.ClassDef, function: str) -> list[str]:
    found = next(p for p in node.body if isinstance(p, ast.FunctionDef) and p.name == function)
    every = [*found.args.args, *found.args.kwonlyargs]
    return [one.arg for one in every if one.arg != "self"]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
