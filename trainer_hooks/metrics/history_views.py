"""A history as a data frame and as a drawing, with libraries that are installed beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer_hooks.metrics.series import Point

__all__ = ["drawn", "frame_of"]


def frame_of(history: Mapping[str, Sequence[Point]]) -> Any:
    """Return a data frame: a row for each epoch and step, a column for each name.

    Of several values of one name at one place the last one stands.

    Raises:
        MetricError: pandas is not installed.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise MetricError(_missing("to_pandas", "pandas")) from error
    columns = {
        name: {(point.epoch, point.step): point.value for point in points}
        for name, points in history.items()
    }
    places = sorted({place for column in columns.values() for place in column})
    index = pd.MultiIndex.from_tuples(places, names=["epoch", "step"])
    data = {name: [column.get(p) for p in places] for name, column in columns.items()}
    return pd.DataFrame(data, index=index, dtype="float64")


def drawn(history: Mapping[str, Sequence[Point]], x: str, ax: Any) -> Any:
    """Draw names into axes, new ones where `ax` is None, and return them.

    Raises:
        MetricError: matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MetricError(_missing("plot", "matplotlib")) from error
    if ax is None:
        _, ax = plt.subplots()
    for name, points in history.items():
        marker = "o" if len(points) == 1 else ""
        places = [getattr(point, x) for point in points]
        ax.plot(places, [point.value for point in points], marker=marker, label=name)
    ax.set_xlabel(x)
    if history:
        ax.legend()
    return ax


def _missing(method: str, package: str) -> str:
    return (
        f"history.{method}() needs the package {package}, which is not installed. Install it with: "
        "pip install trainer-hooks[plots]."
    )
