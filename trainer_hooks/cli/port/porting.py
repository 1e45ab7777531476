"""Rewrite the import lines of one file, and find the names that have no counterpart here.

Strings that Python imports are import lines too: the argument of `import_module`, a `_target_`.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import warnings
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import matchers
from libcst.helpers import get_full_name_for_node
from libcst.metadata import (
    Assignment,
    BaseAssignment,
    ImportAssignment,
    MetadataWrapper,
    PositionProvider,
    ScopeProvider,
)
from torch import nn

from trainer_hooks._names import advice_for_methods
from trainer_hooks.errors import TrainerHooksError, error_message
from trainer_hooks.module.datamodule import DataModule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_TOO_DEEP = "it is nested too deeply"


class NotPythonError(TrainerHooksError):
    """Raised for a file that is not valid Python."""


@dataclass(frozen=True, slots=True, order=True)
class NameNotOffered:
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
    findings: list[NameNotOffered] = field(default_factory=list)


def port_config(text: bytes, packages: Mapping[str, str]) -> PortedFile:
    """Rewrite the class paths of a YAML file; nothing else changes.

    Args:
        text: the file's content.
        packages: the compatibility package of each package of a framework, longest names first.
    """
    ported = PortedFile(b"")
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        decoded = line.decode("utf-8", "surrogateescape")

        def port(match: re.Match[str], number: int = number) -> str:
            target = _target(match["path"], packages)
            # other values may have such a form, and mean something else than a class
            is_class = match["key"] or match["path"].rpartition(".")[2][0].isupper()
            if target is None or not is_class:
                return match[0]
            if reason := _missing_reason(*_split(target)):
                if match["key"]:
                    ported.findings.append(NameNotOffered(number, match["path"], reason))
                return match[0]
            ported.lines.append(number)
            return f"{match['before']}{target}"

        commented = decoded.lstrip().startswith("#")
        made = decoded if commented else _CLASS_PATH.sub(port, decoded)
        lines.append(made.encode("utf-8", "surrogateescape"))
    ported.text = b"".join(lines)
    ported.lines = sorted({*ported.lines})
    return ported


_CLASS_PATH = re.compile(
    r"""(?P<before>(?:(?P<key>\b(?:_target_|class_path)["']?\s*:\s*)|[:\[,-]\s+)["']?)
    (?P<path>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?=["']?\s*(?:[,\]}\#]|$))""",
    re.VERBOSE,
)
"""A dotted path that is a whole value in a line of YAML."""


def port_imports(text: bytes, packages: Mapping[str, str]) -> PortedFile:
    """Rewrite the import lines of a file, and strings that are imported; nothing else changes.

    A name without a counterpart is imported from `trainer_hooks.compat.missing`, in a line with a
    comment, so that the file fails where it uses the name and not where it imports it.

    Args:
        text: the file's content.
        packages: the compatibility package of each package of a framework, longest names first.

    Raises:
        NotPythonError: the file is not valid Python.
    """
    _require_python(text)
    if not any(package.partition(".")[0].encode() in text for package in packages):
        return PortedFile(text)
    try:
        # the copy would protect from nodes that stand in the tree twice: a parser makes none
        tree = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        imports = _Imports(packages)
        tree.visit(imports)
        porter = _Porter(packages, imports)
        made = tree.visit(porter)
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


@dataclass(frozen=True, slots=True)
class _Binding:
    """The meaning of an imported name of a file.

    Attributes:
        there: its dotted name in the framework.
        module: the compatibility module.
        names: its name in that module; empty for the module itself.
    """

    there: str
    module: str
    names: tuple[str, ...] = ()


class _Imports(cst.CSTVisitor):
    """Finds the names that a file imports from frameworks, and those that have no counterpart."""

    def __init__(self, packages: Mapping[str, str]) -> None:
        super().__init__()
        self.bindings: dict[cst.CSTNode, dict[str, _Binding]] = {}
        """By import statement and name in this file."""
        self.missing: dict[cst.CSTNode, str] = {}
        """The reason of each import or imported name that has no counterpart."""
        self.stars: list[_Binding] = []
        self._packages = packages
        self._guards = 0

    def visit_Try_body(self, node: cst.Try) -> None:  # noqa: N802 - libcst's name
        self._guards += _catches_import_errors(node)

    def leave_Try_body(self, node: cst.Try) -> None:  # noqa: N802
        self._guards -= _catches_import_errors(node)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:  # noqa: N802
        if node.relative or node.module is None:
            return False
        name = get_full_name_for_node(node.module)
        target = _target(name, self._packages)
        if name is None or target is None:
            return False
        if isinstance(node.names, cst.ImportStar):
            if reason := _missing_reason(target):
                self._miss(node, reason)
            else:
                self.stars.append(_Binding(name, target))
            return False
        bound = self.bindings[node] = {}
        for alias in node.names:
            imported = _name(alias)
            if reason := _missing_reason(target, (imported,)):
                self._miss(alias, reason)
            # here both are one package, in which there is no `pytorch`
            elif (name, imported) == ("lightning", "pytorch"):
                bound[_called(alias)] = _Binding("lightning.pytorch", target)
            else:
                bound[_called(alias)] = _Binding(f"{name}.{imported}", target, (imported,))
        return False

    def visit_Import(self, node: cst.Import) -> bool:  # noqa: N802
        bound = {}
        for alias in node.names:
            name = _name(alias)
            target = _target(name, self._packages)
            if target is None:
                continue
            if reason := _missing_reason(target):
                self._miss(alias, reason)
            if alias.asname is None:
                # `import a.b` binds `a` alone; submodules are attributes of our package, whichever
                # of them are imported
                root = name.partition(".")[0]
                package = _target(root, self._packages)
                assert package is not None
                bound[root] = _Binding(root, package)
            elif not reason:
                bound[_called(alias)] = _Binding(name, target)
        if bound:
            self.bindings[node] = bound
        return False

    def _miss(self, node: cst.CSTNode, reason: str) -> None:
        # an import that may fail has something to fall back to
        if not self._guards:
            self.missing[node] = reason


class _Porter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider, ScopeProvider)

    def __init__(self, packages: Mapping[str, str], imports: _Imports) -> None:
        super().__init__()
        self.lines: set[int] = set()
        self.findings: set[NameNotOffered] = set()
        self._packages = packages
        self._imports = imports
        self._comments: dict[cst.CSTNode, str] = {}

    # --- import lines ---

    def leave_ImportFrom(  # noqa: N802 - libcst's name
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.FlattenSentinel[cst.BaseSmallStatement]:
        """Rewrite `from framework import name`."""
        module = None if original_node.relative else original_node.module
        name = get_full_name_for_node(module) if module is not None else None
        target = _target(name, self._packages)
        if name is None or target is None:
            return updated_node
        self._change(original_node)
        missing = self._imports.missing
        aliases = original_node.names
        if isinstance(aliases, cst.ImportStar):
            if reason := missing.get(original_node):
                self._find(original_node, name, reason)
                return self._missing_import(updated_node, target, aliases, name, reason)
            return updated_node.with_changes(module=_dotted(target))
        if len(aliases) == 1 and (name, _name(aliases[0])) == ("lightning", "pytorch"):
            package, _, imported = target.rpartition(".")
            as_name = cst.AsName(name=cst.Name(_called(aliases[0])))
            alias = cst.ImportAlias(name=cst.Name(imported), asname=as_name)
            return updated_node.with_changes(module=_dotted(package), names=[alias])
        lines: list[cst.ImportFrom] = []
        there = []
        assert not isinstance(updated_node.names, cst.ImportStar)
        for alias, updated_alias in zip(aliases, updated_node.names, strict=True):
            if reason := missing.get(alias):
                imported = f"{name}.{_name(alias)}"
                self._find(alias, imported, reason)
                alone = updated_alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)
                lines.append(self._missing_import(updated_node, target, [alone], imported, reason))
            else:
                there.append(updated_alias)
        if there:
            there[-1] = there[-1].with_changes(comma=updated_node.names[-1].comma)
            lines.insert(0, updated_node.with_changes(module=_dotted(target), names=there))
        return lines[0] if len(lines) == 1 else cst.FlattenSentinel(lines)

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:  # noqa: N802
        """Rewrite `import framework.module`, keeping the names that the file uses."""
        made = []
        comments = []
        for original, alias in zip(original_node.names, updated_node.names, strict=True):
            name = _name(alias)
            target = _target(name, self._packages)
            if target is None:
                made.append(alias)
                continue
            self._change(original_node)
            if reason := self._imports.missing.get(original):
                self._find(original_node, name, reason)
                comments.append(_comment(name, reason))
            called = _called(alias)
            if alias.asname is None:
                # with `as`, since the code below uses the old name
                called = name.partition(".")[0]
                package = _target(called, self._packages)
                assert package is not None
                target = package
            elif reason:
                target = _stand_in(target)
            as_name = alias.asname or cst.AsName(name=cst.Name(called))
            made.append(alias.with_changes(name=_dotted(target), asname=as_name))
        ported = updated_node.with_changes(names=made)
        if comments:
            self._comments[ported] = "  ".join(comments)
        return ported

    def leave_SimpleStatementLine(  # noqa: N802
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        """Give each import that was split off a line of its own, with its comment."""
        if len(original_node.body) > 1:
            return updated_node
        lines = []
        for index, statement in enumerate(updated_node.body):
            line = cst.SimpleStatementLine([statement])
            if index == 0:
                line = updated_node.with_changes(body=[statement])
            if comment := self._comments.get(statement):
                before = line.trailing_whitespace.comment
                text = comment if before is None else f"{before.value}  {comment}"
                trailing = line.trailing_whitespace.with_changes(
                    whitespace=cst.SimpleWhitespace("  "), comment=cst.Comment(text)
                )
                line = line.with_changes(trailing_whitespace=trailing)
            lines.append(line)
        return lines[0] if len(lines) == 1 else cst.FlattenSentinel(lines)

    def _missing_import(
        self,
        node: cst.ImportFrom,
        target: str,
        names: Sequence[cst.ImportAlias] | cst.ImportStar,
        there: str,
        reason: str,
    ) -> cst.ImportFrom:
        """Return the import of a stand-in."""
        made = node.with_changes(
            module=_dotted(_stand_in(target)), names=names, lpar=None, rpar=None
        )
        self._comments[made] = _comment(there, reason)
        return made

    # --- strings that are imported ---

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Rewrite the path that a call imports, and look up the name that `getattr` reads."""
        called = (get_full_name_for_node(original_node.func) or "").rpartition(".")[2]
        arguments = [argument.value for argument in original_node.args if argument.keyword is None]
        if called == "getattr" and len(arguments) == 2:
            owner, name = arguments
            path = get_full_name_for_node(owner) if isinstance(owner, _CHAIN) else None
            if path and (text := _text(name)):
                self._look_up(original_node, f"{path}.{text}")
        if not arguments or called not in {*_IMPORTERS, "getLogger"}:
            return updated_node
        first = original_node.args[0]
        if called == "getLogger":
            path = _text(first.value)
            if path is None or _target(path, self._packages) is None:
                return updated_node
            made: cst.BaseExpression = cst.SimpleString('"trainer_hooks"')
            self._change(original_node)
        else:
            made = self._path(first.value)
            if made is first.value:
                return updated_node
        changed = updated_node.args[0].with_changes(value=made)
        return updated_node.with_changes(args=[changed, *updated_node.args[1:]])

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """Rewrite the path of an argument `_target_` or `class_path`."""
        keyword = original_node.keyword
        if keyword is None or keyword.value not in _PATH_KEYS:
            return updated_node
        return updated_node.with_changes(value=self._path(original_node.value))

    def leave_DictElement(  # noqa: N802
        self, original_node: cst.DictElement, updated_node: cst.DictElement
    ) -> cst.DictElement:
        """Rewrite the path under a key `_target_` or `class_path`."""
        if _text(original_node.key) not in _PATH_KEYS:
            return updated_node
        return updated_node.with_changes(value=self._path(original_node.value))

    def leave_AnnAssign(  # noqa: N802
        self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign
    ) -> cst.AnnAssign:
        """Rewrite the path of a field `_target_` or `class_path`."""
        target = original_node.target
        if not isinstance(target, cst.Name) or target.value not in _PATH_KEYS:
            return updated_node
        if original_node.value is None:
            return updated_node
        return updated_node.with_changes(value=self._path(original_node.value))

    def _path(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Return the string of a dotted path with the path of its counterpart."""
        text = _text(node)
        if text is None and isinstance(node, cst.FormattedString) and node.parts:
            # its end is known in a run alone
            first = node.parts[0]
            if isinstance(first, cst.FormattedStringText):
                target = _target(first.value.rstrip("."), self._packages)
                if target is not None:
                    self._change(node)
                    dot = "." * first.value.endswith(".")
                    part = first.with_changes(value=f"{target}{dot}")
                    return node.with_changes(parts=[part, *node.parts[1:]])
        target = None if text is None else _target(text, self._packages)
        if target is None or not isinstance(node, cst.SimpleString):
            return node
        assert text is not None
        if reason := _missing_reason(*_split(target)):
            self._find(node, text, reason)
            return node
        self._change(node)
        return node.with_changes(value=f"{node.prefix}{node.quote}{target}{node.quote}")

    # --- names ---

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        """Look up an attribute of an imported module."""
        path = get_full_name_for_node(node) if isinstance(node, _CHAIN) else None
        # not further down if it was: in `a.b.c`, `a.b` would be looked up once more
        return path is None or not self._look_up(node, path)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802 - libcst's name
        """Look up the methods and private names of a class that derives from a framework's."""
        bases = [self._class_of(base.value) for base in node.bases]
        kinds = [pair for pair in bases if pair is not None]
        for kind, there in kinds:
            advice = advice_for_methods(kind)
            for method in node.body.body:
                if isinstance(method, cst.FunctionDef) and method.name.value in advice:
                    name = method.name.value
                    self._find(method, f"{there}.{name}", f"nothing calls it here: {advice[name]}")
        # with another base, or in a module, which registers parts by name, the name may be there
        if len(kinds) == 1 == len(bases) and not issubclass(kinds[0][0], nn.Module | DataModule):
            self._look_up_private(node, *kinds[0])

    def _look_up_private(self, node: cst.ClassDef, kind: type, there: str) -> None:
        """Report the private names of an object that neither its class sets nor the base here."""
        instance = matchers.Name("self")
        parent = matchers.Call(func=matchers.Name("super"))
        here = {
            name for base in kind.__mro__ for value in vars(base).values() for name in _names(value)
        }
        of_user = _names_set_in(node)
        for match in matchers.findall(node, matchers.Attribute(value=instance | parent)):
            attribute = cst.ensure_type(match, cst.Attribute)
            name = attribute.attr.value
            is_of_user = name in of_user and not matchers.matches(attribute.value, parent)
            is_private = name.startswith("_") and not name.endswith("__")
            if is_private and not (is_of_user or hasattr(kind, name) or name in here):
                self._find(
                    attribute,
                    f"{there}.{name}",
                    "it is a private name of the framework's class, which the class here lacks: "
                    "write what it is for by public names",
                )

    def _class_of(self, node: cst.BaseExpression) -> tuple[type, str] | None:
        """Return the class here of a base class of a framework's, with its name there, or None."""
        path = get_full_name_for_node(node) if isinstance(node, _CHAIN) else None
        root, *names = (path or "").split(".")
        binding = self._binding(node, root) if path else None
        if binding is None or _missing_reason(binding.module, (*binding.names, *names)):
            return None
        kind = _value(binding.module, (*binding.names, *names))
        return (kind, ".".join((binding.there, *names))) if isinstance(kind, type) else None

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
        """Look up a name that a `from framework import *` would have bound."""
        if not self._imports.stars or hasattr(builtins, node.value):
            return
        scope = self.get_metadata(ScopeProvider, node, None)
        if scope is None or node.value in scope:
            return
        for star in self._imports.stars:
            # others may be bound by the star of another package
            if reason := _refusal(star.module, (node.value,)):
                self._find(node, f"{star.there}.{node.value}", reason)

    def _look_up(self, node: cst.CSTNode, path: str) -> bool:
        """Report a dotted name that has no counterpart; return whether it is a framework's."""
        root, *names = path.split(".")
        binding = self._binding(node, root)
        if binding is None:
            return False
        if reason := _missing_reason(binding.module, (*binding.names, *names)):
            self._find(node, ".".join((binding.there, *names)), reason)
        return True

    def _binding(self, node: cst.CSTNode, name: str) -> _Binding | None:
        """Return the import of a framework that a name refers to at a place, if it is one."""
        scope = self.get_metadata(ScopeProvider, node, None)
        if scope is None:
            return None
        if name not in scope:
            stars = (
                star for star in self._imports.stars if not _missing_reason(star.module, (name,))
            )
            return next((_Binding(f"{s.there}.{name}", s.module, (name,)) for s in stars), None)
        assignments = [assignment for assignment in scope[name] if not self._is_none(assignment)]
        # the one that was made last before this place; in an inner scope, which runs later, of all
        before = [
            assignment
            for assignment in assignments
            if assignment.scope is not scope or self._position(assignment) <= self._start(node)
        ]
        last = max(before or assignments, key=self._position, default=None)
        if not isinstance(last, ImportAssignment):
            return None
        return self._imports.bindings.get(last.node, {}).get(name)

    def _is_none(self, assignment: BaseAssignment) -> bool:
        """Return whether a name stands for a package that is not installed."""
        if not isinstance(assignment, Assignment) or isinstance(assignment, ImportAssignment):
            return False
        parent = self._none_names
        return assignment.node in parent

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        """Note the names to which None is assigned."""
        self._none_names = {
            target.target
            for statement in matchers.findall(node, matchers.Assign(value=matchers.Name("None")))
            for target in cst.ensure_type(statement, cst.Assign).targets
        }

    def _position(self, assignment: BaseAssignment) -> tuple[int, int]:
        return self._start(assignment.node) if isinstance(assignment, Assignment) else (0, 0)

    def _start(self, node: cst.CSTNode) -> tuple[int, int]:
        # metadata belongs to the nodes of the original tree, and to no updated one
        start = self.get_metadata(PositionProvider, node).start
        return start.line, start.column

    def _change(self, node: cst.CSTNode) -> None:
        self.lines.add(self._start(node)[0])

    def _find(self, node: cst.CSTNode, name: str, instead: str) -> None:
        self.findings.add(NameNotOffered(self._start(node)[0], name, instead))


def _names_set_in(node: cst.ClassDef) -> set[str]:
    """Return the names of a class's methods, and of the attributes that it and they set."""
    names = {
        cst.ensure_type(method, cst.FunctionDef).name.value
        for method in matchers.findall(node, matchers.FunctionDef())
    }
    targets: list[cst.CSTNode] = [
        cst.ensure_type(target, cst.AssignTarget).target
        for target in matchers.findall(node, matchers.AssignTarget())
    ]
    for statement in matchers.findall(node, matchers.AnnAssign() | matchers.AugAssign()):
        if isinstance(statement, cst.AnnAssign | cst.AugAssign):
            targets.append(statement.target)
    for target in targets:
        if isinstance(target, cst.Name):
            names.add(target.value)
        # in a tuple of targets, too
        for part in matchers.findall(target, matchers.Attribute()):
            names.add(cst.ensure_type(part, cst.Attribute).attr.value)
    return names


def _names(member: Any) -> tuple[str, ...]:
    """Return the names of attributes that a member of a class uses or sets."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    # behind wrappers, such as those that check arguments
    code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    return getattr(code, "co_names", ())


_CHAIN = (cst.Attribute, cst.Name)
_PATH_KEYS = ("_target_", "class_path")
"""Keys of Hydra's and LightningCLI's configs, whose value is the path of a class."""
_IMPORTERS = ("import_module", "__import__", "importorskip", "find_spec", "patch")
"""Functions that import the module, or the name, that their first argument says."""
_STAND_INS = "trainer_hooks.compat.missing"
_CATCHING = {"ImportError", "Exception", "BaseException"}


def _catches_import_errors(node: cst.Try) -> bool:
    for handler in node.handlers:
        if handler.type is None:
            return True
        kinds = handler.type
        elements = kinds.elements if isinstance(kinds, cst.Tuple) else [cst.Element(kinds)]
        if any(get_full_name_for_node(element.value) in _CATCHING for element in elements):
            return True
    return False


def _target(name: str | None, packages: Mapping[str, str]) -> str | None:
    """Return the counterpart of a dotted path of a framework; None for any other path."""
    for package, target in packages.items():
        if name is not None and (name == package or name.startswith(f"{package}.")):
            return target + name.removeprefix(package)
    return None


def _stand_in(target: str) -> str:
    """Return the module of stand-ins for the names of a compatibility module."""
    return _STAND_INS + target.removeprefix("trainer_hooks.compat")


def _comment(name: str, reason: str) -> str:
    return f"# {name} is not in trainer_hooks: {reason}"


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the compatibility package of a path, and the names below it."""
    names = path.split(".")
    return ".".join(names[:3]), tuple(names[3:])


def _text(node: cst.BaseExpression) -> str | None:
    """Return the value of a literal string."""
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


@cache
def _missing_reason(module: str, names: tuple[str, ...] = ()) -> str:
    """Return why a module of a compatibility package, or a chain of attributes of it, is missing.

    Args:
        module: the module's name.
        names: attributes, each of the one before; attributes of a value that is no module are not
            looked up.

    Returns:
        What to write instead; empty if everything is there.
    """
    if advice := _refusal(module, names):
        return advice
    try:
        _value(module, names)
    except (ImportError, AttributeError) as error:
        if advice := error_message(error).partition(". It is in ")[2]:
            return f"import it from {advice}"
        if (*module.split("."), *names)[-1].startswith("_"):
            return "it is an internal part of the framework: copy it into your code"
        return "there is nothing of that name here: write it in your code, or leave it out"
    return ""


@cache
def _refusal(module: str, names: tuple[str, ...]) -> str:
    """Return the advice for a name that trainer_hooks refuses; empty for every other name."""
    try:
        _value(module, names)
    except TrainerHooksError as error:
        told = error_message(error)
        return told.partition(" is not in trainer_hooks: ")[2].rstrip(".") or told
    except (ImportError, AttributeError):
        pass
    return ""


def _value(module: str, names: tuple[str, ...]) -> Any:
    value: Any = importlib.import_module(module)
    for name in names:
        value = _attribute(value, name)
        # of a class or a value nothing is looked up: its attributes may be set in instances
        if not isinstance(value, ModuleType):
            break
    return value


def _attribute(module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        # a submodule is no attribute of its package before it is imported
        try:
            return importlib.import_module(f"{module.__name__}.{name}")
        except ModuleNotFoundError:
            pass
        raise


def _name(alias: cst.ImportAlias) -> str:
    return alias.evaluated_name


def _called(alias: cst.ImportAlias) -> str:
    return alias.evaluated_alias or alias.evaluated_name


def _dotted(name: str) -> cst.Attribute | cst.Name:
    first, *others = name.split(".")
    made: cst.Attribute | cst.Name = cst.Name(first)
    for attribute in others:
        made = cst.Attribute(value=made, attr=cst.Name(attribute))
    return made
