"""Tqdm: the bar that overridden `init_*_tqdm` methods make, under Lightning's name."""

from __future__ import annotations

from typing import Any

from tqdm.auto import tqdm

_WIDTH = 5
"""The characters that a number with a decimal point takes."""


class Tqdm(tqdm):  # type: ignore[type-arg]
    """A bar of tqdm that pads numbers, so that the text beside it does not jump."""

    @staticmethod
    def format_num(n: Any) -> str:
        """Return a number as text, filled with zeros; an integer and other text as they are.

        Args:
            n: a number, or the text of one.
        """
        text = n if isinstance(n, str) else str(tqdm.format_num(n))
        if isinstance(n, int) or "e" in text:
            return text
        try:
            float(text)
        except ValueError:
            return text
        point = "." if "." not in text and len(text) < _WIDTH else ""
        return (text + point).ljust(_WIDTH, "0")
