"""Images and tables in the forms that loggers write."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["as_markdown", "as_pixels", "as_table", "require_package", "step_or_zero"]

_COLOURS = (1, 3, 4)


def require_package(package: str, extra: str, owner: str) -> None:
    """Make sure that a logger's library is installed; it is not imported.

    Raises:
        OptionError: it is not.
    """
    if find_spec(package) is None:
        raise OptionError(
            f"{owner} needs the package {package}, which is not installed: "
            f"pip install 'trainer-hooks[{extra}]'."
        )


def step_or_zero(step: int | None) -> int:
    """Return a place on the x axis."""
    return 0 if step is None else step


def as_pixels(image: Any, key: str, *, channels_last: bool = False) -> Any:
    """Return an image as an array of bytes, of shape `(H, W, C)`.

    Args:
        image: a tensor or array of shape `(H, W)`, `(C, H, W)`, or `(H, W, C)` with
            `channels_last`; whole numbers from 0 to 255, or others from 0 to 1. Or one of Pillow.
        key: its name, for messages.
        channels_last: whether colours are the last dimension.

    Raises:
        OptionError: it is none of those.
    """
    import numpy as np

    if hasattr(image, "getbands"):
        image, channels_last = np.asarray(image.convert("RGB")), True
    if hasattr(image, "detach"):
        image = image.detach().cpu()
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
    if pixels.dtype.kind not in "uibf":
        raise OptionError(
            f"image of type {pixels.dtype} logged as {key!r}: it must be of numbers. Convert it."
        )
    if pixels.dtype.kind in "fb":
        pixels = np.nan_to_num(pixels.astype(np.float32)) * 255 + 0.5
    return np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8))


def as_table(
    key: str,
    columns: Sequence[str] | None,
    data: Sequence[Sequence[Any]] | None,
    dataframe: Any,
) -> tuple[list[str], list[list[Any]]]:
    """Return the columns and rows of a table, however it was given.

    Raises:
        OptionError: it was given twice or not at all, or a row is not as long as the others.
    """
    if (dataframe is None) == (data is None):
        raise OptionError(
            f"table logged as {key!r}: must be given as columns and data, or as a dataframe. "
            "Give one of the two."
        )
    if dataframe is not None:
        columns = [str(name) for name in dataframe.columns]
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
    """Return a table in Markdown."""
    # pandas has to_markdown, which needs tabulate besides
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in line) + " |"
        for line in lines
    )
