"""Hyperparameters in forms that loggers can write."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file

if TYPE_CHECKING:
    from argparse import Namespace
    from pathlib import Path

__all__ = ["as_dict", "flattened", "jsonable", "plain_number", "write_hparams"]

_FILE, _YAML = "hparams.json", "hparams.yaml"


def as_dict(params: Mapping[str, Any] | Namespace) -> dict[str, Any]:
    """Return hyperparameters by name."""
    return dict(params if isinstance(params, Mapping) else vars(params))


def jsonable(value: Any) -> Any:
    """Return `value` in a form that JSON has: itself, a container of such, or its repr."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return repr(value)


def flattened(params: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested hyperparameters as one level, their names joined by slashes."""
    # pandas' json_normalize makes a table of it, and need not be installed
    flat: dict[str, Any] = {}
    for key, value in params.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{name}/")
        else:
            flat[name] = value
    return flat


def write_hparams(folder: Path, params: Mapping[str, Any]) -> None:
    """Write `hparams.json`, and `hparams.yaml` for Lightning's tools, whole or not at all."""
    plain = jsonable(params)
    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    replace_file(folder / _FILE, lambda file: file.write(text))
    lines = [f"{json.dumps(name)}: {_yaml(value)}\n" for name, value in plain.items()] or ["{}\n"]
    replace_file(folder / _YAML, lambda file: file.writelines(lines))


def _yaml(value: Any) -> str:
    """Return plain data as YAML in one line: JSON, but for floats that it would take for texts."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {_yaml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, float):
        digits, mark, power = repr(value).partition("e")
        return digits + (".0" if mark and "." not in digits else "") + mark + power
    return json.dumps(value)


def plain_number(value: Any) -> float:
    """Return a tensor's or array's one value as it is now; anything else unchanged."""
    return value.item() if hasattr(value, "item") else value  # type: ignore[no-any-return]
