"""How gradients are clipped, where Lightning has it."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["GradClipAlgorithmType"]


class GradClipAlgorithmType(StrEnum):
    """What `Trainer(gradient_clip_algorithm=...)` takes."""

    VALUE = "value"
    NORM = "norm"

    @staticmethod
    def supported_type(val: str) -> bool:
        """Return whether there is such a way to clip."""
        return val in list(GradClipAlgorithmType)

    @staticmethod
    def supported_types() -> list[str]:
        """Return all ways."""
        return [str(kind) for kind in GradClipAlgorithmType]
