"""Hyperparameters in a file of their own, as loggers write them."""

from __future__ import annotations

import ast
import csv
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import ModuleError, described

if TYPE_CHECKING:
    import os

__all__ = ["read_hparams"]


def read_hparams(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the hyperparameters in a YAML file, or in a CSV file with `key` and `value`.

    Raises:
        ModuleError: it is of another kind, cannot be read, or would need code to be run.
    """
    file = Path(path)
    readers = {".yaml": _yaml, ".yml": _yaml, ".csv": _csv}
    if file.suffix.lower() not in readers:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}): must end in .yaml, .yml or .csv."
        )
    try:
        found = readers[file.suffix.lower()](file)
    except (OSError, ValueError) as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(path)!r}) cannot be read "
            f"({described(error)}): it must hold plain values by name. Pass the others as "
            "arguments."
        ) from error
    return found


def _yaml(file: Path) -> dict[str, Any]:
    try:
        yaml: Any = import_module("yaml")  # which tells no types without a package of its own
    except ImportError as error:
        raise ModuleError(
            f"load_from_checkpoint(hparams_file={str(file)!r}) needs PyYAML. Install it: "
            "pip install pyyaml."
        ) from error
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
    if not isinstance(found, dict | None):
        raise ValueError(f"it holds {type(found).__name__}")  # noqa: TRY004 - told as the others
    return {str(name): value for name, value in (found or {}).items()}


def _csv(file: Path) -> dict[str, Any]:
    with file.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    if rows and not {"key", "value"} <= set(rows[0]):
        raise ValueError("its columns must be key and value")
    return {row["key"]: _literal(row["value"]) for row in rows}


def _literal(text: str) -> Any:
    with suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    return text
