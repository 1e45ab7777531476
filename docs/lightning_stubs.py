"""Stubs of the modules in `trainer_hooks.compat.lightning` that are no files, for type checkers."""

from __future__ import annotations

from pathlib import Path

from trainer_hooks.compat.lightning.modules import VIRTUAL_MODULES, exports_of

__all__ = ["FOLDER", "lightning_stubs"]

FOLDER = Path(__file__).parents[1] / "trainer_hooks" / "compat" / "lightning"
_HEADER = "# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit\n"


def lightning_stubs() -> dict[Path, str]:
    """Return the text of each stub by its path below the folder of the package."""
    packages = {path.rpartition(".")[0] for path in VIRTUAL_MODULES}
    stubs = {}
    for path in VIRTUAL_MODULES:
        file = Path(*path.split("."))
        file = file / "__init__.pyi" if path in packages else file.with_suffix(".pyi")
        exports = exports_of(path)
        # a submodule is an attribute of its package without an import of its own
        children = [name for name in VIRTUAL_MODULES if name.rpartition(".")[0] == path]
        submodules = "".join(
            f"from . import {name} as {name}\n" for name in (c.rpartition(".")[2] for c in children)
        )
        imports = sorted(
            f"from {module} import {attribute}" + (f" as {name}" * (name != attribute)) + "\n"
            for name, (module, attribute) in exports.items()
        )
        # without it type checkers take an imported name for one that the stub uses itself
        names = "".join(f'    "{name}",\n' for name in sorted(exports))
        listed = "".join(imports) + f"\n__all__ = [\n{names}]\n" if exports else ""
        body = submodules + listed
        stubs[file] = _HEADER + ("\n" + body if body else "")
    return stubs
