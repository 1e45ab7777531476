"""Stubs of the modules in `trainer_hooks.compat.lightning` that are no files, for type checkers."""

from __future__ import annotations

from pathlib import Path

from trainer_hooks.compat import lightning
from trainer_hooks.compat.lightning.modules import MODULES, exports_of

__all__ = ["FOLDER", "lightning_stubs"]

FOLDER = Path(__file__).parents[1] / "trainer_hooks" / "compat" / "lightning"
_HEADER = "# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit\n"


def lightning_stubs() -> dict[Path, str]:
    """Return the text of each stub by its path below the folder of the package."""
    stubs = {}
    for path in filter(_has_names, MODULES.paths):
        file = Path(*path.split("."))
        file = file / "__init__.pyi" if MODULES.submodules(path) else file.with_suffix(".pyi")
        exports = exports_of(path)
        # a submodule is an attribute of its package without an import of its own
        submodules = "".join(
            f"from . import {name} as {name}\n"
            for name in MODULES.submodules(path)
            if _has_names(f"{path}.{name}")
        )
        # "as" hands a name on that is not in __all__, as those with an underscore
        imports = sorted(
            f"from {module} import {attribute}"
            + (f" as {name}" * (name != attribute or name[0] == "_"))
            + "\n"
            for name, (module, attribute) in exports.items()
        )
        # without it type checkers take an imported name for one that the stub uses itself
        names = "".join(f'    "{name}",\n' for name in sorted(exports) if name[0] != "_")
        listed = "".join(imports) + f"\n__all__ = [\n{names}]\n" if exports else ""
        body = submodules + listed
        stubs[file] = _HEADER + ("\n" + body if body else "")
    # the package under its other name: all its attributes, and no files of its own
    stubs[Path("pytorch.pyi")] = (
        _HEADER + "\nfrom trainer_hooks.compat.lightning import *\n"
        "from trainer_hooks.compat.lightning import __version__ as __version__\n"
    )
    return stubs


def _has_names(path: str) -> bool:
    """Return whether a module or one below it offers a name, or the package lists it.

    Of others type checkers shall say that they are not there.
    """
    below = [module for module in MODULES.paths if f"{module}.".startswith(f"{path}.")]
    return path in lightning.__all__ or any(map(exports_of, below))
