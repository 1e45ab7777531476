"""Lazy loading of the public names of a package, at their first use."""

from __future__ import annotations

import importlib
import opcode
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from trainer_hooks._version import old_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType


def class_if_loaded(module: str, name: str) -> type | tuple[type, ...]:
    """Return a class for `isinstance`, or an empty tuple if its module was never imported.

    A class whose module was never imported has no instances, so that asking for them need not load
    it. The caller also imports the class under `TYPE_CHECKING`: a string alone would hide the
    import from the contracts on who may import whom (tests/architecture/test_layers.py).

    Args:
        module: the absolute name of the module.
        name: the class's name in the module.
    """
    loaded = sys.modules.get(module)
    kind: type | tuple[type, ...] = () if loaded is None else getattr(loaded, name)
    return kind


def attach_stub(
    package: str,
    make_getattr: Callable[[str, Mapping[str, str]], Callable[[str], Any]] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package whose stub declares its names.

    Args:
        package: the package's name.
        make_getattr: makes the first of the package's name and the module of each name; by default
            `loader_of`.
    """
    homes = _stub_homes(package)
    names = sorted(homes)
    return (make_getattr or loader_of)(package, homes), lambda: names, names


def _stub_homes(package: str) -> dict[str, str]:
    """Return the module of each name in the stub of a package, as for `loader_of`.

    The stub is the `__init__.pyi` beside the `__init__.py`: type checkers read it, and so each
    public name is written in one line.
    """
    file = sys.modules[package].__file__
    with open(f"{file}i", encoding="utf-8") as stub:  # noqa: PTH123 - `pathlib` takes 5 ms
        text = stub.read()
    homes = {}
    # each line is `from module import name as name`; one that is too long is wrapped
    lines = text.replace("import (\n    ", "import ").replace(",\n)", "").split("\n")
    for line in filter(None, lines):
        module, _, names = line.removeprefix("from ").partition(" import ")
        name, _, alias = names.partition(" as ")
        home = module[1:] if module[0] == "." else f":{module}"
        homes[alias] = home if name == alias else f"{home}:{name}"
    return homes


def loader_of(
    package: str, homes: Mapping[str, str], moved: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose public names are defined in other modules.

    Args:
        package: the package's name.
        homes: the module of each name, relative to the package; an empty string for names that are
            themselves modules of the package. After a colon the module's absolute name, and after
            another colon the name there, if it differs.
        moved: the present module of each name that was here formerly, for the error message:
            a `MovedError` where the name is imported, an AttributeError where it is looked up.

    The function raises an ImportError for each name if the installed torch is too old: what fails
    with it later says less.
    """

    def load(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            if moved is not None and name in moved:
                from trainer_hooks.errors import MovedError

                message = (
                    f"{name!r} is no longer in {package}: it must be imported from where it is "
                    f"now. Write `from {moved[name]} import {name}`."
                )
                # `from package import name` hides the message of an AttributeError, and `hasattr`
                # and `getattr` with a default pass on any other error
                caller = sys._getframe(1)  # noqa: SLF001 - `inspect` would be loaded for it
                raise MovedError(message) if _imports(caller) else AttributeError(message)
            raise _no_name(package, name, homes)
        if line := old_torch():
            raise ImportError(line, name="torch")
        if not home:
            return importlib.import_module(f"{package}.{name}")
        module, _, attribute = home.removeprefix(":").partition(":")
        module = module if home[0] == ":" else f"{package}.{module}"
        value = getattr(importlib.import_module(module), attribute or name)
        # the next access finds the attribute, and does not come here
        setattr(sys.modules[package], name, value)
        return value

    return load


def _imports(frame: FrameType) -> bool:
    """Whether a frame is in `from package import name`, or in the import system for it."""
    return _is_import(frame) or frame.f_globals.get("__name__") == "importlib._bootstrap"


def _is_import(frame: FrameType) -> bool:
    """Whether a frame is in `from package import name`."""
    return frame.f_code.co_code[frame.f_lasti] == opcode.opmap["IMPORT_FROM"]


def _no_name(package: str, name: str, homes: Mapping[str, str]) -> Exception:
    """Return the error for a name that a package lacks: an ImportError where it is imported."""
    module = sys.modules[package]
    caller = sys._getframe(2)  # noqa: SLF001 - `inspect` would be loaded for it
    # a module of the package that is being imported has not become its attribute yet
    if not _is_import(caller) or f"{package}.{name}" in sys.modules:
        return AttributeError(
            f"module {package!r} has no attribute {name!r}", name=name, obj=module
        )
    from trainer_hooks._words import advice
    from trainer_hooks.errors import suggest

    packages = ("trainer_hooks", "trainer_hooks.callbacks", "trainer_hooks.loggers")
    others = [each for each in packages if name in importlib.import_module(each).__all__]
    answer = advice(f"from {others[0]} import {name}") if others else suggest("names", name, homes)
    return ImportError(
        f"cannot import name {name!r} from {package!r} ({module.__file__}).{answer}",
        name=package,
        path=module.__file__,
    )


def lazy_module(
    name: str,
    summary: str,
    names: Sequence[str],
    load: Callable[[str], Any],
) -> ModuleType:
    """Return a module that has no file.

    Args:
        name: the module's full name.
        summary: its docstring.
        names: its `__all__`.
        load: its `__getattr__`, which returns the value of a name.
    """
    module = ModuleType(name, summary)
    vars(module).update(__all__=[*names], __getattr__=load, __dir__=lambda: [*names])
    return module


class ModuleFinder(MetaPathFinder, Loader):
    """Finds the modules below a package that have no file, and makes one when it is imported.

    Args:
        package: the package's name.
        make: makes a module from its path below the package; None if there is none of this path.
    """

    def __init__(self, package: str, make: Callable[[str], ModuleType | None]) -> None:
        self._prefix = f"{package}."
        self._make = make

    def install(self) -> None:
        """Let Python ask this finder, before it looks for files.

        A folder of stubs without an `__init__.py` would be found as a namespace package otherwise.
        """
        sys.meta_path.insert(0, self)

    def find_spec(
        self,
        fullname: str,
        path: object,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the spec of a module without a file."""
        if not fullname.startswith(self._prefix):
            return None
        module = self._make(fullname.removeprefix(self._prefix))
        if module is None:
            return None
        return ModuleSpec(fullname, self, loader_state=module, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Return the module that was found."""
        module: ModuleType = spec.loader_state
        # a module with two names is loaded by its first: Python would give it the second one's spec
        return module if module.__name__ == spec.name else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module under its second name, if it has one."""
        assert module.__spec__ is not None
        sys.modules[module.__spec__.name] = module.__spec__.loader_state
