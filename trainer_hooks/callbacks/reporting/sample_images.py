"""Images and texts of samples and segmentation masks, for loggers and files."""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer_hooks._files import replacing
from trainer_hooks._options import Rule, is_int
from trainer_hooks.errors import DataError, UsageError
from trainer_hooks.runtime.nested_tensors import first_tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CHANNELS = (1, 3, 4)
# the rounding of a normalization may leave values a little outside of 0 to 1
_ROOM = 0.001
Key = str | int | Callable[[Any], Any] | None
"""The location of a part of a batch: a key, an index, a function, or None for the first tensor."""
KEY = Rule(
    "a key or an index of a batch, or a function of it",
    lambda key: isinstance(key, str) or is_int(key) or callable(key),
    "Pass one such as 0, 'image' or lambda batch: batch.pixels.",
).unless(None)
"""The rule for such a location."""
_COLOURS = 256
_GOLDEN = 0.618034
_NONE = 128
_WHITE = 255
_GAP = 1


def pick_part(batch: Any, key: Any, option: str, where: str) -> Any:
    """Return a part of a batch: the result of a function, an item, or the first tensor.

    Args:
        batch: the batch.
        key: the function, the item's index or key, or None for the first tensor.
        option: the option that holds the key, for messages.
        where: the callback that has the option, for messages.

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
            f"{option} {key!r} of {where}: a batch of type {type(batch).__name__} has "
            f"{length}. Pass one of these, or a function of the batch."
        ) from error


def is_image(sample: Tensor) -> bool:
    """Return whether a sample looks like an image of shape (C, H, W)."""
    return sample.ndim == 3 and sample.shape[0] in _CHANNELS and min(sample.shape[1:]) > 1


def to_image(
    sample: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None
) -> tuple[Tensor, str]:
    """Return a sample as bytes of shape (C, H, W), and a remark on their range.

    The normalization is undone. Values beyond 0 to 1 after that are rescaled to 0 to 1, and the
    remark says so; without `mean` and `std` that applies to most normalized samples.

    Args:
        sample: an image of shape (C, H, W) or (H, W).
        mean: the means that were subtracted, one for all channels or one for each; None for none.
        std: the deviations that were divided by, likewise.

    Raises:
        DataError: the number of means or deviations does not fit the channels.
    """
    pixels = sample.detach().cpu()
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    if pixels.dtype == torch.uint8:
        return pixels, ""
    if pixels.dtype == torch.bool or not pixels.is_floating_point():
        # integers may be bytes, or a mask of zeros and ones
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
        # a picture of one colour has no range
        pixels = (pixels - low) / max(high - low, 1e-12)
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8), remark


def write_png(pixels: Tensor, path: Path) -> None:
    """Write bytes of shape (C, H, W) as a PNG file, whole or not at all.

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
    # the report may read the folder at any time
    with replacing(path) as temporary:
        Image.frombytes(mode, size, data).save(temporary, format="PNG")


def describe_sample(sample: Any) -> str:
    """Return a text about a sample that is no image: its shape, type and range."""
    if not isinstance(sample, Tensor):
        return repr(sample)[:1000]
    if sample.numel() == 0:
        return f"shape {tuple(sample.shape)}, {sample.dtype}, empty"
    values = sample.detach().cpu().double()
    form = f"shape {tuple(sample.shape)}, {sample.dtype}"
    least, most, mean = (f"{float(x):.4g}" for x in (values.min(), values.max(), values.mean()))
    return f"{form}, from {least} to {most}, mean {mean}"


def class_masks(masks: Any, count: int, option: str, where: str) -> Tensor:
    """Return the class of each pixel of the first masks, of shape (N, H, W), on the CPU.

    With several channels the class is the channel with the largest value. With one channel, floats
    tell whether a pixel belongs to the object: as probabilities above 0.5 if all are from 0 to 1,
    or else as logits above 0.

    Args:
        masks: of shape (N, C, H, W) or (N, H, W).
        count: the largest number of masks to return.
        option: the masks' source, for messages.
        where: the callback, for messages.

    Raises:
        DataError: they have another shape.
    """
    if not isinstance(masks, Tensor) or masks.ndim not in (3, 4):
        form = tuple(masks.shape) if isinstance(masks, Tensor) else type(masks).__name__
        raise DataError(
            f"{option} of {where}: masks must be a tensor of shape (N, C, H, W) or (N, H, W), not "
            f"{form}. Say where they are with a key or a function, or return them so."
        )
    first: Tensor = masks[:count].detach()
    if first.ndim == 4 and first.shape[1] > 1:
        return first.argmax(dim=1).cpu()
    first = (first[:, 0] if first.ndim == 4 else first).cpu()
    if not first.is_floating_point():
        return first.long()
    # other floats are logits, whose border between the classes lies at 0
    are_probabilities = bool(((first >= 0) & (first <= 1)).all())
    return (first > (0.5 if are_probabilities else 0.0)).long()


def color_mask(classes: Tensor) -> Tensor:
    """Return one mask (H, W) as an image (3, H, W): class 0 black, negative classes grey."""
    table = _table()
    # classes from 256 on repeat the colours, except the black of class 0
    colours = table[torch.where(classes < _COLOURS, classes, (classes - 1) % (_COLOURS - 1) + 1)]
    colours[classes < 0] = _NONE
    return colours.permute(2, 0, 1)


def side_by_side(*pictures: Tensor) -> Tensor:
    """Return images side by side, in the size of the first and in RGB, with a line between."""
    size = pictures[0].shape[-2:]
    parts: list[Tensor] = []
    for picture in pictures:
        wide = picture[:3] if picture.shape[0] >= 3 else picture[:1].expand(3, -1, -1)
        if wide.shape[-2:] != size:
            wide = interpolate(wide[None].float(), size, mode="nearest")[0].to(torch.uint8)
        line = torch.full((3, size[0], _GAP), _WHITE, dtype=torch.uint8)
        parts += [line, wide] if parts else [wide]
    return torch.cat(parts, dim=2)


@cache
def _table() -> Tensor:
    """Return an RGB colour for each class; neighbouring classes differ in hue and brightness."""
    colours = [(0.0, 0.0, 0.0)] + [
        # multiples of the golden ratio spread the hues evenly, however many classes there are
        colorsys.hsv_to_rgb(number * _GOLDEN % 1, (0.9, 0.55)[number // 8 % 2], 1 - number % 3 / 5)
        for number in range(_COLOURS - 1)
    ]
    return (torch.tensor(colours) * 255).round().to(torch.uint8)
