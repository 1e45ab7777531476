"""RichProgressBarTheme: how a bar drawn with rich looks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from rich.style import Style

__all__ = ["RichProgressBarTheme"]

_TEXTS = ("metrics_text_delimiter", "metrics_format")


@dataclass(frozen=True, slots=True)
class RichProgressBarTheme:
    """How the parts of a RichProgressBar look; each is a rich style such as `"bold cyan"`.

    Attributes:
        description: what is counted.
        progress_bar: the part of the bar that is done.
        progress_bar_finished: the bar when all is done.
        progress_bar_pulse: the bar when the total is unknown.
        batch_progress: how many batches of how many.
        time: time spent and left.
        processing_speed: batches a second.
        metrics: the metrics.
        metrics_text_delimiter: what stands between two metrics.
        metrics_format: how a number with a fraction is written, as for `format`.

    Raises:
        CallbackError: the last two are no text, or numbers cannot be written so.
    """

    description: str | Style = ""
    progress_bar: str | Style = "#6206E0"
    progress_bar_finished: str | Style = "#6206E0"
    progress_bar_pulse: str | Style = "#6206E0"
    batch_progress: str | Style = ""
    time: str | Style = "dim"
    processing_speed: str | Style = "dim underline"
    metrics: str | Style = "italic"
    metrics_text_delimiter: str = " "
    metrics_format: str = ".3f"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            if not isinstance(getattr(self, name), str):
                raise CallbackError(
                    f"{name} {getattr(self, name)!r} of RichProgressBarTheme: must be a text. "
                    "Leave it out to have the usual one."
                )
        try:
            format(0.5, self.metrics_format)
        except ValueError as error:
            raise CallbackError(
                f"metrics_format {self.metrics_format!r} of RichProgressBarTheme: must be a format "
                f"for numbers ({error}). Write one such as '.3f'."
            ) from error

    def check_styles(self) -> None:
        """Make sure that rich knows the styles.

        Raises:
            CallbackError: it does not know one.
        """
        from rich.errors import StyleSyntaxError
        from rich.style import Style

        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _TEXTS or isinstance(value, Style):
                continue
            try:
                Style.parse(value)
            except (StyleSyntaxError, AttributeError, TypeError) as error:
                raise CallbackError(
                    f"{field.name} {value!r} of RichProgressBarTheme: must be a style of rich "
                    f"({error}). Write one such as 'bold cyan'."
                ) from error
