"""Rewrite the import lines of one file, and find the names that have no counterpart here."""

from __future__ import annotations

import ast
import importlib
import warnings
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata import MetadataWrapper, PositionProvider

from trainer_hooks.errors import TrainerHooksError, error_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


_TOO_DEEP = "it is nested too deeply"


class NotPythonError(TrainerHooksError):
    """Raised for a file that is not valid Python."""


@dataclass(frozen=True, slots=True, order=True)
class MissingName:
    """A name that has no counterpart here.

    Attributes:
        line: the line that uses it, from 1.
        name: its name in the framework.
        instead: what to write instead.
    """

    line: int
    name: str
    instead: str


@dataclass(slots=True)
class PortedFile:
    """A file with rewritten import lines.

    Attributes:
        text: the new content, in the file's own encoding.
        lines: the numbers of the changed lines, from 1.
        findings: the names without a counterpart.
    """

    text: bytes
    lines: list[int] = field(default_factory=list)
    findings: list[MissingName] = field(default_factory=list)


def port_imports(text: bytes, packages: Mapping[str, str]) -> PortedFile:
    """Rewrite the import lines of a file; nothing else changes.

    Args:
        text: the file's content.
        packages: the compatibility package of each package of a framework, longest names first.

    Raises:
        NotPythonError: the file is not valid Python.
    """
    _require_python(text)
    porter = _Porter(packages)
    try:
        # the copy would protect from nodes that stand in the tree twice: a parser makes none
        made = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True).visit(porter)
    except RecursionError:
        raise NotPythonError(_TOO_DEEP) from None
    except (cst.ParserSyntaxError, UnicodeDecodeError) as error:
        raise NotPythonError(str(error).partition("\n")[0]) from error
    return PortedFile(made.bytes, sorted(porter.lines), sorted(porter.findings))


def _require_python(text: bytes) -> None:
    """Raise unless Python itself can parse a file.

    Raises:
        NotPythonError: it cannot.
    """
    # first, because libcst's parser ends the process where brackets or operators nest too deep:
    # it grows its stack until there is none left, and Python's own parser has limits
    try:
        with warnings.catch_warnings(action="ignore"):  # of the file's own escapes
            ast.parse(text)
    except SyntaxError as error:
        line = "" if error.lineno is None else f", line {error.lineno}"
        raise NotPythonError(f"{error.msg}{line}") from error
    except ValueError as error:  # of null bytes, in some versions of Python
        raise NotPythonError(str(error)) from error
    except (MemoryError, RecursionError):
        raise NotPythonError(_TOO_DEEP) from None


class _Porter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, packages: Mapping[str, str]) -> None:
        super().__init__()
        self.lines: set[int] = set()
        self.findings: set[MissingName] = set()
        self._packages = packages
        self._imported: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        """By the name in this file, the object's name there, its module here, its name in that."""
        self._outer_scopes: list[dict[str, tuple[str, str, tuple[str, ...]]]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: ARG002, N802
        """Keep the names that are imported in a function to that function."""
        self._outer_scopes.append(dict(self._imported))

    def leave_FunctionDef(  # noqa: N802
        self,
        original_node: cst.FunctionDef,  # noqa: ARG002
        updated_node: cst.FunctionDef,
    ) -> cst.FunctionDef:
        """Return to the names outside of the function."""
        self._imported = self._outer_scopes.pop()
        return updated_node

    def leave_ImportFrom(  # noqa: N802 - libcst's name
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom:
        """Rewrite `from framework import name`."""
        module = None if original_node.relative else original_node.module
        name = get_full_name_for_node(module) if module is not None else None
        target = self._target(name)
        aliases = original_node.names
        if name is None or target is None:
            self._forget(() if isinstance(aliases, cst.ImportStar) else aliases)
            return updated_node
        if isinstance(aliases, cst.ImportStar):
            return self._from(original_node, updated_node, name, target, ())
        # here both are one package, in which there is no `pytorch`
        if name == "lightning" and any(_name(alias) == "pytorch" for alias in aliases):
            return self._package(original_node, updated_node, aliases)
        return self._from(original_node, updated_node, name, target, aliases)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:  # noqa: N802
        """Rewrite `import framework.module`, keeping the names that the file uses."""
        made = []
        for alias in updated_node.names:
            name = _name(alias)
            target = self._target(name)
            if target is None:
                self._forget([alias])
                made.append(alias)
                continue
            if instead := _missing_reason(target):
                self._find(original_node, name, instead)
                made.append(alias)
                continue
            called = _called(alias)
            if alias.asname is None:
                # `import a.b` binds `a` alone. With `as`, since the code below uses the old name;
                # its submodules are attributes of our package, whichever of them are imported
                name = called = name.partition(".")[0]
                package = self._target(name)
                assert package is not None
                target = package
            self._imported[called] = (name, target, ())
            as_name = alias.asname or cst.AsName(name=cst.Name(called))
            made.append(alias.with_changes(name=_dotted(target), asname=as_name))
            self._change(original_node)
        return updated_node.with_changes(names=made)

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        """Look up an attribute of an imported module."""
        name = get_full_name_for_node(node)
        root, *names = (name or "").split(".")
        if not names or root not in self._imported:
            return True
        there, here, owner = self._imported[root]
        if instead := _missing_reason(here, (*owner, *names)):
            self._find(node, ".".join((there, *names)), instead)
        # not further down: in `a.b.c`, `a.b` would be looked up once more
        return False

    def _from(
        self,
        node: cst.ImportFrom,
        updated: cst.ImportFrom,
        name: str,
        target: str,
        aliases: Sequence[cst.ImportAlias],
    ) -> cst.ImportFrom:
        if instead := _missing_reason(target):
            self._find(node, name, instead)
            return updated
        for alias in aliases:
            own = _name(alias)
            if instead := _missing_reason(target, (own,)):
                self._find(alias, f"{name}.{own}", instead)
            else:
                self._imported[_called(alias)] = (f"{name}.{own}", target, (own,))
        self._change(node)
        return updated.with_changes(module=_dotted(target))

    def _package(
        self, node: cst.ImportFrom, updated: cst.ImportFrom, aliases: Sequence[cst.ImportAlias]
    ) -> cst.ImportFrom:
        """Rewrite `from lightning import pytorch as pl`."""
        if len(aliases) > 1:
            self._find(node, "lightning.pytorch", "import it in a line of its own")
            return updated
        called = _called(aliases[0])
        target = self._target("lightning.pytorch")
        assert target is not None
        self._imported[called] = ("lightning.pytorch", target, ())
        self._change(node)
        package, _, own = target.rpartition(".")
        alias = cst.ImportAlias(name=cst.Name(own), asname=cst.AsName(name=cst.Name(called)))
        return updated.with_changes(module=_dotted(package), names=[alias])

    def _forget(self, aliases: Iterable[cst.ImportAlias]) -> None:
        """Forget the names that an import of another package takes."""
        for alias in aliases:
            self._imported.pop(_called(alias).partition(".")[0], None)

    def _target(self, name: str | None) -> str | None:
        """Return the counterpart of a module of a framework; None for any other module."""
        for package, target in self._packages.items():
            if name is not None and (name == package or name.startswith(f"{package}.")):
                return target + name.removeprefix(package)
        return None

    def _change(self, node: cst.CSTNode) -> None:
        self.lines.add(self._line(node))

    def _find(self, node: cst.CSTNode, name: str, instead: str) -> None:
        self.findings.add(MissingName(self._line(node), name, instead))

    def _line(self, node: cst.CSTNode) -> int:
        # metadata belongs to the nodes of the original tree, and to no updated one
        return int(self.get_metadata(PositionProvider, node).start.line)


def _missing_reason(module: str, names: tuple[str, ...] = ()) -> str:
    """Return why a module of a compatibility package, or a chain of attributes of it, is missing.

    Args:
        module: the module's name.
        names: attributes, each of the one before; attributes of a value that is no module are not
            looked up.

    Returns:
        What to write instead; empty if everything is there.
    """
    try:
        value: Any = importlib.import_module(module)
        for name in names:
            value = _attribute(value, name)
            # of a class or a value nothing is looked up: its attributes may be set in instances
            if not isinstance(value, ModuleType):
                break
    except TrainerHooksError as error:  # which says what to use
        told = error_message(error)
        return told.partition(" is not in trainer_hooks: ")[2].rstrip(".") or told
    except (ImportError, AttributeError):
        return "there is nothing of that name here"
    return ""


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        # a submodule is no attribute of its package before it is imported
        return importlib.import_module(f"{module.__name__}.{name}")


def _name(alias: cst.ImportAlias) -> str:
    return alias.evaluated_name


def _called(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name


def _dotted(name: str) -> cst.Attribute | cst.Name:
    first, *others = name.split(".")
    made: cst.Attribute | cst.Name = cst.Name(first)
    for one in others:
        made = cst.Attribute(value=made, attr=cst.Name(one))
    return made
