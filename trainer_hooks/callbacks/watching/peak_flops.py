"""How many floating point operations a device can do at most, and how many a model takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainer_hooks.errors import CallbackError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

__all__ = ["DTYPES", "available_flops", "flops_of", "measure_flops"]

DTYPES: dict[str, torch.dtype] = {
    "64-true": torch.float64,
    "32-true": torch.float32,
    "16-mixed": torch.float16,
    "16-true": torch.float16,
    "bf16-mixed": torch.bfloat16,
    "bf16-true": torch.bfloat16,
}
"""What matrices are multiplied in, by `trainer.precision`."""

# float64 and float32 outside of the matrix units, then TensorFloat-32, bfloat16 and float16 in
# them; in 1e12 a second, without sparsity, from the makers' data sheets. 0 is: it has none.
_PEAKS: dict[str, tuple[float, float, float, float, float]] = {
    "b200": (37, 75, 1125, 2250, 2250),
    "gh200": (34, 67, 494.7, 989.4, 989.4),
    "h200 nvl": (30, 60, 417.5, 835.5, 835.5),
    "h200": (34, 67, 494.7, 989.4, 989.4),
    "h100 nvl": (30, 60, 417.5, 835.5, 835.5),
    "h100 pcie": (26, 51, 378, 756, 756),
    "h100": (34, 67, 494.7, 989.4, 989.4),
    "mi300x": (81.7, 163.4, 653.7, 1307.4, 1307.4),
    "a100": (9.7, 19.5, 156, 312, 312),
    "a30": (5.2, 10.3, 82, 165, 165),
    "a10g": (0, 31.5, 35, 70, 70),
    "a10": (0, 31.2, 62.5, 125, 125),
    "a40": (0, 37.4, 74.8, 149.7, 149.7),
    "l4": (0, 30.3, 60, 121, 121),
    "l40s": (0, 91.6, 183, 362, 362),
    "l40": (0, 90.5, 90.5, 181, 181),
    "v100s": (8.2, 16.4, 0, 0, 130),
    "v100 pcie": (7, 14, 0, 0, 112),
    "v100": (7.8, 15.7, 0, 0, 125),
    "t4": (0, 8.1, 0, 0, 65),
    "rtx 6000 ada": (0, 91.1, 182.1, 364.2, 364.2),
    "rtx a6000": (0, 38.7, 77.4, 154.8, 154.8),
    "rtx 5090": (0, 104.8, 104.8, 209.5, 209.5),
    "rtx 4090": (0, 82.6, 82.6, 165.2, 165.2),
    "rtx 4080 super": (0, 52.2, 52.2, 104.4, 104.4),
    "rtx 4080": (0, 48.7, 48.7, 97.5, 97.5),
    "rtx 3090 ti": (0, 40, 40, 80, 80),
    "rtx 3090": (0, 35.6, 35.6, 71, 71),
    "rtx 3080 ti": (0, 34.1, 34.1, 68.2, 68.2),
    "rtx 3080": (0, 29.8, 29.8, 59.5, 59.5),
}


def available_flops(device: torch.device, dtype: torch.dtype) -> float | None:
    """Return the floating point operations a second that a device can do at most.

    Without sparsity. In float32, TensorFloat-32 counts where torch may use it.

    Returns:
        The number, or None for a device that is not in the table, a processor among them.
    """
    if device.type != "cuda":
        return None
    uses_tf32 = torch.get_float32_matmul_precision() != "highest"
    return peak_of(torch.cuda.get_device_name(device), dtype, uses_tf32=uses_tf32)


def peak_of(name: str, dtype: torch.dtype, *, uses_tf32: bool = False) -> float | None:
    """Return the peak of a device of that name, or None if it is not known."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    kinds = [kind for kind in _PEAKS if words.issuperset(kind.split())]
    if not kinds:
        return None
    float64, float32, tf32, bfloat16, float16 = _PEAKS[max(kinds, key=len)]
    peaks = {
        torch.float64: float64,
        torch.float32: (tf32 or float32) if uses_tf32 else float32,
        torch.bfloat16: bfloat16,
        torch.float16: float16,
    }
    return peaks.get(dtype, 0.0) * 1e12 or None


def measure_flops(
    model: nn.Module,
    forward_fn: Callable[[], Tensor],
    loss_fn: Callable[[Tensor], Tensor] | None = None,
) -> int:
    """Return the floating point operations of one forward, or of one forward and backward.

    Operations that torch counts are those of matrices, convolutions and attention. To measure a
    model that is too big for this machine, make it and its input on the device `"meta"`.

    Args:
        model: the model; its mode stays as it is, and so do its gradients, buffers that the
            forward writes to do not.
        forward_fn: runs the forward, as `lambda: model(x)`.
        loss_fn: makes a loss of what it returns; then the backward is counted too.
    """
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    counter = FlopCounterMode(display=False)
    try:
        with rng.isolated(), counter:
            if loss_fn is None:
                with torch.no_grad():
                    forward_fn()
            else:
                loss_fn(forward_fn()).backward()  # type: ignore[no-untyped-call]
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
    return int(counter.get_total_flops())


def flops_of(module: nn.Module, batch: Any, where: str) -> float | None:
    """Return the operations of a batch, if the module says how many there are.

    Raises:
        CallbackError: it says something else than a number.
    """
    flops = getattr(module, "flops_per_batch", None)
    if callable(flops):
        flops = flops(batch)
    if flops is None:
        return None
    if isinstance(flops, bool) or not isinstance(flops, int | float):
        raise CallbackError(
            f"flops_per_batch {flops!r} of {type(module).__qualname__}, read by {where}: it must "
            "be a number, or a function of the batch that returns one. Use measure_flops to find "
            "it."
        )
    return flops
