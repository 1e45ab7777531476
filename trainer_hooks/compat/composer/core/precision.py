"""Precision: the precision of the forward, by Composer's names."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.compat.composer.core.event import StringEnum
from trainer_hooks.compat.composer.modules import package_getattr
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

__all__ = ["Precision", "get_precision_context", "native_precision"]

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
    checked = Precision(precision)
    if checked is Precision.AMP_FP8:
        raise OptionError("Trainer(precision='amp_fp8'): FP8 is not available. Pass 'amp_bf16'.")
    return _NATIVE[checked.value]


_AUTOCAST_TYPES = {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}


def get_precision_context(
    precision: str | Precision,
    precision_config: dict[str, Any] | None = None,  # noqa: ARG001 - Composer passes it
    fp8_autocast_enabled: bool = True,  # noqa: ARG001 - Composer passes it
) -> AbstractContextManager[Any]:
    """Return a context in which a callback or model computes in a precision.

    It casts on GPUs alone, as in Composer: elsewhere nothing is cast.

    Args:
        precision: such as `state.precision`.
        precision_config: of FP8, which is not available.
        fp8_autocast_enabled: of FP8, which is not available.

    Raises:
        OptionError: the precision is FP8.
    """
    dtype = _AUTOCAST_TYPES.get(native_precision(precision))
    if not torch.cuda.is_available():
        return nullcontext()
    return torch.autocast("cuda", dtype=dtype, enabled=dtype is not None)
