"""Precision: the precision of the forward, by Composer's names."""

from __future__ import annotations

from trainer_hooks.compat.composer.core.event import StringEnum
from trainer_hooks.compat.composer.modules import package_getattr
from trainer_hooks.errors import OptionError

__all__ = ["Precision", "native_precision"]

__getattr__ = package_getattr(__name__)


class Precision(StringEnum):
    """The precision of the forward."""

    FP32 = "fp32"
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"
    AMP_FP8 = "amp_fp8"


_NATIVE = {"fp32": "32-true", "amp_fp16": "16-mixed", "amp_bf16": "bf16-mixed"}


def native_precision(precision: str) -> str:
    """Return trainer_hooks' name of a precision.

    Raises:
        OptionError: the precision is FP8, or unknown.
    """
    known = Precision(precision)
    if known is Precision.AMP_FP8:
        raise OptionError("Trainer(precision='amp_fp8'): FP8 is not available. Pass 'amp_bf16'.")
    return _NATIVE[known.value]
