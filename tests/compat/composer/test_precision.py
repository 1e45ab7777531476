"""`get_precision_context`: the autocast of a precision."""

from __future__ import annotations

import pytest
import torch

from trainer_hooks.compat.composer.core import Precision, get_precision_context
from trainer_hooks.errors import OptionError


@pytest.mark.parametrize("precision", ["fp32", Precision.AMP_FP16, "amp_bf16"])
def test_without_a_gpu_nothing_is_cast(precision, monkeypatch) -> None:
    """As in Composer, no CPU computes in 16 bits."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with get_precision_context(precision):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("precision", "dtype", "is_enabled"),
    [("amp_fp16", torch.float16, True), (Precision.AMP_BF16, torch.bfloat16, True),
     ("fp32", None, False)],
)  # fmt: skip
def test_a_gpu_casts(precision, dtype, is_enabled, monkeypatch) -> None:
    """FP32 ends an autocast that there is around it."""
    made = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "autocast", lambda device, **options: made.append((device, options)))
    get_precision_context(precision)
    assert made == [("cuda", {"dtype": dtype, "enabled": is_enabled})]


def test_fp8_is_refused() -> None:
    """It needs a library of its own."""
    with pytest.raises(OptionError, match="FP8 is not available"):
        get_precision_context("amp_fp8")
