"""What the callbacks share: images in batches, grids of images, and handing them to loggers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks.errors import DataError, OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks import Trainer

__all__ = [
    "as_images",
    "check_callable",
    "evaluating",
    "grid",
    "in_unit_range",
    "inputs_of",
    "log_images",
    "targets_of",
]


def check_callable(name: str, value: Any, where: str, told: str) -> Any:
    """Return `value` if it is None or can be called.

    Raises:
        OptionError: it is neither.
    """
    if value is not None and not callable(value):
        raise OptionError(
            f"{name} {value!r} of {where}: it must be a function of {told}. Pass one, or leave "
            "it out."
        )
    return value


def inputs_of(batch: Any, pick: Callable[[Any], Tensor] | None, where: str) -> Tensor:
    """Return the inputs of a batch: what `pick` finds in it, or its first tensor.

    Raises:
        DataError: there is none.
    """
    found = next(_tensors(batch), None) if pick is None else pick(batch)
    if not isinstance(found, Tensor) or found.ndim == 0:
        raise DataError(
            f"a batch of type {type(batch).__name__}, given to {where}: it must hold a tensor of "
            "several inputs. Pass get_inputs=..., a function of the batch that returns it."
        )
    return found


def targets_of(batch: Any, pick: Callable[[Any], Tensor] | None, where: str) -> Tensor:
    """Return the class of each sample of a batch: what `pick` finds, or its second tensor.

    Raises:
        DataError: there is none, or it is no tensor of whole numbers.
    """
    found = next(iter(list(_tensors(batch))[1:2]), None) if pick is None else pick(batch)
    if not isinstance(found, Tensor) or found.ndim != 1 or found.is_floating_point():
        raise DataError(
            f"a batch of type {type(batch).__name__}, given to {where}: it must hold the class of "
            "each sample, a tensor of whole numbers of shape (samples,). Pass get_targets=..., a "
            "function of the batch that returns it."
        )
    return found


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for item in batch.values():
            yield from _tensors(item)
    elif isinstance(batch, list | tuple):
        for item in batch:
            yield from _tensors(item)


def as_images(values: Any, shape: Sequence[int] | None = None) -> Tensor | None:
    """Return values as images of shape (N, C, H, W) on the host, or None if they are none.

    Args:
        values: a tensor of shape (N, C, H, W) with 1, 3 or 4 channels, or (N, H, W), or with
            `shape`, (N, ...) of as many numbers.
        shape: (C, H, W) of an image.
    """
    if not isinstance(values, Tensor) or values.ndim < 2 or values.is_complex():
        return None
    values = values.detach()
    if shape is not None:
        if values[0].numel() != torch.Size(shape).numel():
            return None
        values = values.reshape(-1, *shape)
    if values.ndim == 3:
        values = values.unsqueeze(1)
    if values.ndim != 4 or values.shape[1] not in (1, 3, 4):
        return None
    found: Tensor = values.float().cpu()
    return found


def in_unit_range(images: Tensor, value_range: tuple[float, float] | None = None) -> Tensor:
    """Return images of which each is stretched to 0..1, or all by the range that is given."""
    if value_range is not None:
        low, high = value_range
        return ((images - low) / (high - low)).clamp(0, 1)
    flat = images.flatten(1)
    low_each, high_each = flat.min(1).values, flat.max(1).values
    spread = (high_each - low_each).clamp_min(1e-12)
    shape = (-1, *[1] * (images.ndim - 1))
    return (images - low_each.reshape(shape)) / spread.reshape(shape)


def grid(images: Tensor, columns: int, padding: int = 1, background: float = 0.5) -> Tensor:
    """Return one picture of several, row by row.

    Args:
        images: of shape (N, C, H, W), from 0 to 1.
        columns: how many beside each other.
        padding: pixels between them and around them.
        background: the grey of those.

    Returns:
        A picture of shape (C, H', W').
    """
    count, channels, height, width = images.shape
    rows = -(-count // columns)
    size = (channels, rows * (height + padding) + padding, columns * (width + padding) + padding)
    picture = images.new_full(size, background)
    for number in range(count):
        top = padding + number // columns * (height + padding)
        left = padding + number % columns * (width + padding)
        picture[:, top : top + height, left : left + width] = images[number]
    return picture


def log_images(
    trainer: Trainer, key: str, images: Sequence[Tensor], captions: Sequence[str]
) -> None:
    """Give images to every logger, at the place on the x axis where its metrics of now are."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_image(
                key, list(images), trainer.progress.batches_stepped, captions=list(captions)
            )


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a module as in an evaluation: its parts in eval mode, and each as it was afterwards."""
    were_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in were_training:
            part.training = True
