"""Conversion of hyperparameters, numbers, images and tables to the forms that loggers write."""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks.errors import OptionError
from trainer_hooks.loggers.base import Logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_COLOURS = (1, 3, 4)


def require_package(package: str, extra: str, owner: str) -> None:
    """Require the library of a logger to be installed, without importing it.

    Raises:
        OptionError: it is not installed.
    """
    # the library itself is imported at the first write, as that takes long for some
    try:
        is_installed = find_spec(package) is not None
    except ValueError:
        # a stand-in without a spec that a test has put into sys.modules
        is_installed = True
    if not is_installed:
        raise OptionError(
            f"{owner} needs the package {package}, which is not installed: "
            f"pip install 'trainer-hooks[{extra}]'."
        )


def step_or_zero(step: int | None) -> int:
    """Return a position on the x axis, 0 for None."""
    return 0 if step is None else step


def as_pixels(image: Any, key: str, *, channels_last: bool = False) -> Any:
    """Return an image as an array of bytes of shape `(H, W, C)`.

    Args:
        image: a tensor or array of shape `(H, W)`, `(C, H, W)`, or `(H, W, C)` with
            `channels_last`, of integers from 0 to 255 or floats from 0 to 1; or an image of Pillow.
        key: the image's name, for messages.
        channels_last: whether the last dimension is the colour.

    Raises:
        OptionError: the image has another shape or type.
    """
    import numpy as np

    # an image of Pillow, told by a method that needs no import. RGB, since the array of a palette
    # image holds indices
    if hasattr(image, "getbands"):
        image, channels_last = np.asarray(image.convert("RGB")), True
    if hasattr(image, "detach"):
        image = image.detach().cpu()
        # NumPy has no bfloat16
        image = (image.float() if image.is_floating_point() else image).numpy()
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    elif pixels.ndim == 3 and not channels_last:
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in _COLOURS or pixels.size == 0:
        raise OptionError(
            f"image of shape {np.shape(image)} logged as {key!r}: it must be (H, W), (C, H, W), or "
            "(H, W, C) with channels_last=True, where C is 1, 3 or 4. Log one image of that shape."
        )
    # NumPy's kinds of unsigned, signed, boolean and floating-point numbers
    if pixels.dtype.kind not in "uibf":
        raise OptionError(
            f"image of type {pixels.dtype} logged as {key!r}: it must be of numbers. Convert it."
        )
    if pixels.dtype.kind in "fb":
        # half a step is added, as the conversion to bytes below cuts the fraction off
        pixels = np.nan_to_num(pixels.astype(np.float32)) * 255 + 0.5
    # clipped first: a cast to bytes wraps around, so that 256 would become 0
    return np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8))


def as_table(
    key: str,
    columns: Sequence[str] | None,
    data: Sequence[Sequence[Any]] | None,
    dataframe: Any,
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of a table, from columns and data or from a dataframe.

    Raises:
        OptionError: both or neither of the two were given, or the rows differ in length.
    """
    if (dataframe is None) == (data is None):
        raise OptionError(
            f"table logged as {key!r}: must be given as columns and data, or as a dataframe. "
            "Give one of the two."
        )
    if dataframe is not None:
        columns = [str(name) for name in dataframe.columns]
        # as objects: else integers beside floats would become floats
        data = dataframe.to_numpy(dtype=object).tolist()
    rows = [list(row) for row in data or ()]
    width = len(columns) if columns is not None else len(rows[0]) if rows else 0
    names = list(columns) if columns is not None else [f"column {i}" for i in range(width)]
    for index, row in enumerate(rows):
        if len(row) != width:
            raise OptionError(
                f"row {index} of the table logged as {key!r}: has {len(row)} cells, and must have "
                f"{width}. Fill up what is missing with None."
            )
    return names, rows


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as Markdown."""
    # not pandas' to_markdown: pandas is optional, and the method needs tabulate, too
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )


_FILE, HPARAMS_YAML = "hparams.json", "hparams.yaml"


def as_dict(params: Mapping[str, Any] | Namespace) -> dict[str, Any]:
    """Return hyperparameters as a dict."""
    return dict(params if isinstance(params, Mapping) else vars(params))


def jsonable(value: Any) -> Any:
    """Return `value` in a form that JSON has: unchanged, a container of those, or its repr."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    # JSON has no NaN and no infinity
    if isinstance(value, float) and math.isfinite(value):
        return value
    return repr(value)


def flattened(params: Mapping[Any, Any], separator: str = "/", above: str = "") -> dict[str, Any]:
    """Return nested hyperparameters or settings as one level, with their names joined."""
    # not pandas' json_normalize: pandas is optional, and it returns a table
    flat: dict[str, Any] = {}
    for key, value in params.items():
        name = f"{above}{key}"
        # an empty dict is kept as a value, or its name would be lost
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, separator, f"{name}{separator}")
        else:
            flat[name] = value
    return flat


def write_hparams(folder: Path, params: Mapping[str, Any]) -> None:
    """Write `hparams.json`, and `hparams.yaml` for Lightning's tools, each whole or not at all."""
    plain = jsonable(params)
    text = json.dumps(plain, indent=2, allow_nan=False) + "\n"
    replace_file(folder / _FILE, lambda file: file.write(text))
    # JSON is YAML, too, so no library for it is needed; an empty file would be read as None
    lines = [f"{json.dumps(name)}: {_yaml(value)}\n" for name, value in plain.items()] or ["{}\n"]
    replace_file(folder / HPARAMS_YAML, lambda file: file.writelines(lines))


def _yaml(value: Any) -> str:
    """Return plain data as one line of YAML: JSON, but for floats that YAML would read as text."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k)}: {_yaml(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    if isinstance(value, float):
        # YAML 1.1 takes 1e-05 for a text, as it has no dot: it is written as 1.0e-05
        digits, mark, power = repr(value).partition("e")
        return digits + (".0" if mark and "." not in digits else "") + mark + power
    return json.dumps(value)


def plain_number(value: Any) -> float:
    """Return the single value of a tensor or array as a Python number; anything else unchanged."""
    return value.item() if hasattr(value, "item") else value  # type: ignore[no-any-return]


def detached_copy(value: Any) -> tuple[Any, int]:
    """Return a copy that later changes do not reach, and its size in bytes.

    An object of an unknown type is returned itself, with size 0.
    """
    if isinstance(value, Namespace):
        return detached_copy(vars(value))
    if isinstance(value, Mapping):
        items = {key: detached_copy(item) for key, item in value.items()}
        return {key: item for key, (item, _) in items.items()}, sum(s for _, s in items.values())
    # exact types: a namedtuple takes its fields one by one
    if type(value) in (list, tuple):
        copies = [detached_copy(item) for item in value]
        return type(value)(item for item, _ in copies), sum(size for _, size in copies)
    if isinstance(value, str | bytes):
        return value, len(value)
    if hasattr(value, "detach") and hasattr(value, "clone"):  # a tensor
        # clone: `cpu()` returns a tensor that is on the CPU itself
        copied = value.detach().cpu().clone()
        return copied, copied.nelement() * copied.element_size()
    if hasattr(value, "memory_usage"):  # a pandas frame
        return value.copy(), int(value.memory_usage().sum())
    if hasattr(value, "nbytes") and hasattr(value, "copy"):  # an array
        return value.copy(), int(value.nbytes)
    return value, 0


class ConvertingLogger(Logger):
    """Base class of the loggers that write images as arrays, and tables as columns and rows."""

    def log_image(
        self,
        key: str,
        images: Sequence[Any],
        step: int | None = None,
        *,
        captions: Sequence[str] | None = None,
        channels_last: bool = False,
    ) -> None:
        """Write images; see `Logger.log_image`."""
        # all are converted before any is written: a call that raises must have stored nothing
        pixels = [as_pixels(image, key, channels_last=channels_last) for image in images]
        self._write_images(key, pixels, step, captions)

    def log_table(
        self,
        key: str,
        columns: Sequence[str] | None = None,
        data: Sequence[Sequence[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Write a table; see `Logger.log_table`."""
        self._write_table(key, *as_table(key, columns, data, dataframe), step)

    @abstractmethod
    def _write_images(
        self, key: str, pixels: list[Any], step: int | None, captions: Sequence[str] | None
    ) -> None:
        """Write images, which are arrays of bytes of shape `(H, W, C)`."""

    @abstractmethod
    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Write a table, by the names of its columns and its rows."""
