"""What the masks of a segmentation look like: each class in a colour of its own."""

from __future__ import annotations

import colorsys
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from trainer_hooks.errors import DataError

__all__ = ["as_classes", "beside", "coloured"]

_COLOURS = 256
_GOLDEN = 0.618034
_NONE = 128
_WHITE = 255
_GAP = 1


def as_classes(masks: Any, count: int, what: str, where: str) -> Tensor:
    """Return the class of each pixel of the first masks, of shape (N, H, W), on the CPU.

    Of several channels the class is the one with the largest value. Of one, floats are whether a
    pixel belongs to the object: as probabilities above 0.5 if all are from 0 to 1, or else as
    logits above 0.

    Args:
        masks: of shape (N, C, H, W) or (N, H, W).
        count: how many masks, at most.
        what: what they are, for messages.
        where: whose they are.

    Raises:
        DataError: they have another shape.
    """
    if not isinstance(masks, Tensor) or masks.ndim not in (3, 4):
        found = tuple(masks.shape) if isinstance(masks, Tensor) else type(masks).__name__
        raise DataError(
            f"{what} of {where}: masks must be a tensor of shape (N, C, H, W) or (N, H, W), not "
            f"{found}. Say where they are with a key or a function, or return them so."
        )
    given: Tensor = masks[:count].detach()
    if given.ndim == 4 and given.shape[1] > 1:
        return given.argmax(dim=1).cpu()
    given = (given[:, 0] if given.ndim == 4 else given).cpu()
    if not given.is_floating_point():
        return given.long()
    are_shares = bool(((given >= 0) & (given <= 1)).all())
    return (given > (0.5 if are_shares else 0.0)).long()


def coloured(classes: Tensor) -> Tensor:
    """Return one mask (H, W) as a picture (3, H, W): class 0 black, those below grey."""
    table = _table()
    colours = table[torch.where(classes < _COLOURS, classes, (classes - 1) % (_COLOURS - 1) + 1)]
    colours[classes < 0] = _NONE
    return colours.permute(2, 0, 1)


def beside(*pictures: Tensor) -> Tensor:
    """Return pictures side by side, in the size of the first and in colours, a line between."""
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
    """Return a colour for each class: neighbours far apart in hue, and not all as bright."""
    colours = [(0.0, 0.0, 0.0)] + [
        colorsys.hsv_to_rgb(number * _GOLDEN % 1, (0.9, 0.55)[number // 8 % 2], 1 - number % 3 / 5)
        for number in range(_COLOURS - 1)
    ]
    return (torch.tensor(colours) * 255).round().to(torch.uint8)
