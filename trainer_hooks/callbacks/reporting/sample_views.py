"""What a sample of a batch looks like: a picture, a text, or what can be said of its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks.errors import DataError, OptionError, UsageError
from trainer_hooks.runtime import first_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["check_key", "described", "is_picture", "picked", "picture", "write_png"]

_CHANNELS = (1, 3, 4)
_ROOM = 0.001


def check_key(name: str, key: Any, where: str) -> Key:
    """Return `key` if it can say where something lies in a batch.

    Raises:
        OptionError: it cannot.
    """
    is_place = isinstance(key, str | int) and not isinstance(key, bool)
    if key is None or is_place or callable(key):
        return key  # type: ignore[no-any-return]
    raise OptionError(
        f"{name} {key!r} of {where}: it must be a key or an index of a batch, or a function of "
        "it. Pass one such as 0, 'image' or lambda batch: batch.pixels."
    )


def picked(batch: Any, key: Any, what: str, where: str) -> Any:
    """Return a part of a batch: what a function makes of it, an item, or the first tensor.

    Args:
        batch: it.
        key: where the part lies.
        what: the argument that says so, for messages.
        where: whose argument it is.

    Raises:
        DataError: the batch has no such item.
    """
    if key is None:
        return first_tensor(batch)
    if callable(key):
        return key(batch)
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError) as error:
        has = f"the keys {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else "none"
        length = f"{len(batch)} items" if isinstance(batch, list | tuple) else has
        raise DataError(
            f"{what} {key!r} of {where}: a batch of type {type(batch).__name__} has "
            f"{length}. Pass one of these, or a function of the batch."
        ) from error


def is_picture(sample: Tensor) -> bool:
    """Return whether a sample looks like a picture of shape (C, H, W)."""
    return sample.ndim == 3 and sample.shape[0] in _CHANNELS and min(sample.shape[1:]) > 1


def picture(
    sample: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[Tensor, str]:
    """Return a sample as whole numbers from 0 to 255, of shape (C, H, W), and a remark.

    The normalization is undone. What is beyond 0 to 1 then is stretched to that, as the remark
    says; without `mean` and `std` that is most of what was normalized.
    """
    pixels = sample.detach().cpu()
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    if pixels.dtype == torch.uint8:
        return pixels, ""
    if pixels.dtype == torch.bool or not pixels.is_floating_point():
        is_bytes = pixels.dtype != torch.bool and int(pixels.max()) > 1
        pixels = pixels.double() / (255 if is_bytes else 1)
    pixels = pixels.double()
    if mean is not None and std is not None:
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, pixels.shape[0]):
                raise DataError(
                    f"{name} {values!r} of SampleInspector: a picture has {pixels.shape[0]} "
                    "channels. Pass as many numbers, or one for all."
                )
        shape = (-1, 1, 1)
        pixels = pixels * torch.tensor(std, dtype=torch.float64).reshape(shape)
        pixels = pixels + torch.tensor(mean, dtype=torch.float64).reshape(shape)
    remark = ""
    if not bool(pixels.isfinite().all()):
        remark, pixels = "NaN or infinity shown black", pixels.nan_to_num(0.0, 0.0, 0.0)
    low, high = float(pixels.min()), float(pixels.max())
    if low < -_ROOM or high > 1 + _ROOM:
        stretched = f"stretched from {low:.3g} to {high:.3g}"
        remark = f"{remark}, {stretched}" if remark else stretched
        pixels = (pixels - low) / max(high - low, 1e-12)
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8), remark


def write_png(pixels: Tensor, path: Path) -> None:
    """Write whole numbers of shape (C, H, W) as a PNG file, whole or not at all.

    Raises:
        UsageError: pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise UsageError(
            "SampleInspector writes pictures with pillow, which is not installed. Run: pip install "
            "'trainer-hooks[report]'"
        ) from None
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[pixels.shape[0]]
    channels_last = pixels.permute(1, 2, 0).contiguous()
    size = (pixels.shape[2], pixels.shape[1])
    data = bytes(channels_last.flatten().tolist())
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        Image.frombytes(mode, size, data).save(temporary, format="PNG")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def described(sample: Any) -> str:
    """Return what can be said of a sample that is no picture: its shape, type and range."""
    if not isinstance(sample, Tensor):
        return repr(sample)[:1000]
    if sample.numel() == 0:
        return f"shape {tuple(sample.shape)}, {sample.dtype}, empty"
    values = sample.detach().cpu().double()
    told = f"shape {tuple(sample.shape)}, {sample.dtype}"
    least, most, mean = (f"{float(x):.4g}" for x in (values.min(), values.max(), values.mean()))
    return f"{told}, from {least} to {most}, mean {mean}"


Key = str | int | Callable[[Any], Any] | None
"""Where something lies in a batch."""
