"""Precision: what the forward runs in, by Composer's names."""

from __future__ import annotations

from trainer_hooks.compat.composer.core.words import Words
from trainer_hooks.errors import OptionError

__all__ = ["Precision", "native_precision"]


class Precision(Words):
    """What the forward runs in."""

    FP32 = "fp32"
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"
    AMP_FP8 = "amp_fp8"


_NATIVE = {"fp32": "32-true", "amp_fp16": "16-mixed", "amp_bf16": "bf16-mixed"}


def native_precision(precision: str) -> str:
    """Return what trainer_hooks calls a precision.

    Raises:
        OptionError: it is FP8, or none.
    """
    known = Precision(precision)
    if known is Precision.AMP_FP8:
        raise OptionError("Trainer(precision='amp_fp8'): FP8 is not available. Pass 'amp_bf16'.")
    return _NATIVE[known.value]
