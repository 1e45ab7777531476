"""LatentDimInterpolator: walk through the latent space of a variational model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import Band, Callback
from trainer_hooks.errors import DataError, OptionError, UsageError
from trainer_hooks.runtime.rng import isolated
from trainer_hooks_vision.option_checks import check_count, check_flag, check_number
from trainer_hooks_vision.pictures import (
    as_images,
    check_callable,
    evaluating,
    grid,
    in_unit_range,
    log_images,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trainer_hooks import Module, Trainer

__all__ = ["LatentDimInterpolator"]

_WHERE = "LatentDimInterpolator"


class LatentDimInterpolator(Callback):
    """Log pictures that a variational model draws on a walk through its latent space.

    For each of `num_samples` random latent vectors, its first two numbers are set to `steps` values
    each, from `range_start` to `range_end`, and every pair is drawn: a grid of `steps` by `steps`
    pictures, `latent_space/0` and so on. The first number grows from left to right, the second from
    top to bottom. In a space that the model has put in order, one picture turns into the next.

    The random vectors are drawn from a generator of their own and are the same each time, so that
    the grids of two epochs can be compared. The model is run in eval mode, without gradients, and
    random numbers that it draws are not those of the training.

    The module needs the attribute `latent_dim`, how long a latent vector is, and returns pictures
    of shape (N, C, H, W) for latent vectors of shape (N, latent_dim): from `decode`, else from its
    `forward`. Or pass both.

    Args:
        interpolate_epoch_interval: epochs between two walks; the first is after as many.
        range_start: the first value.
        range_end: the last value.
        steps: how many values.
        num_samples: how many random vectors.
        normalize: stretch each picture to 0..1; else values are taken as from 0 to 1.
        latent_dim: how long a latent vector is; the module's `latent_dim` unless given.
        decode: makes pictures, as `decode(module, latents)`.
        img_dim: (C, H, W) of a picture, where they are returned flat; the module's `img_dim`, if it
            has one, unless given.
        seed: of the random vectors.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, the module does not have what is needed.
        DataError: in a fit, what it returns are no pictures.
    """

    band = Band.SINK

    def __init__(
        self,
        interpolate_epoch_interval: int = 20,
        range_start: float = -5,
        range_end: float = 5,
        steps: int = 11,
        num_samples: int = 2,
        normalize: bool = False,
        latent_dim: int | None = None,
        decode: Callable[[Any, Tensor], Tensor] | None = None,
        img_dim: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        self.interpolate_epoch_interval = check_count(
            "interpolate_epoch_interval", interpolate_epoch_interval, _WHERE, least=1
        )
        self.range_start = check_number("range_start", range_start, _WHERE)
        self.range_end = check_number("range_end", range_end, _WHERE)
        if range_end <= range_start:
            raise OptionError(
                f"range_end {range_end!r} of {_WHERE}: it must be more than range_start "
                f"{range_start!r}. Pass them the other way round."
            )
        self.steps = check_count("steps", steps, _WHERE, least=2)
        self.num_samples = check_count("num_samples", num_samples, _WHERE, least=1)
        self.normalize: bool = check_flag("normalize", normalize, _WHERE)
        self.latent_dim = latent_dim
        if latent_dim is not None:
            check_count("latent_dim", latent_dim, _WHERE, least=2)
        self.decode = check_callable("decode", decode, _WHERE, "module and latents")
        self.img_dim = img_dim
        self.seed = check_count("seed", seed, _WHERE)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Make sure that the module has what is needed."""
        self._length(module)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Log the grids if they are due."""
        is_due = (trainer.current_epoch + 1) % self.interpolate_epoch_interval == 0
        if is_due and trainer.loggers:
            for number, picture in enumerate(self.interpolate(module)):
                told = f"sample {number} after {trainer.current_epoch + 1} epochs"
                log_images(trainer, f"latent_space/{number}", [picture], [told])

    def interpolate(self, module: Module) -> list[Tensor]:
        """Return a grid of pictures, of shape (C, H, W), for each random vector."""
        generator = torch.Generator().manual_seed(self.seed)
        length = self._length(module)
        points = torch.linspace(self.range_start, self.range_end, self.steps)
        walk = torch.cartesian_prod(points, points).flip(1)  # the first number is the column's
        grids = []
        for _ in range(self.num_samples):
            latents = torch.randn(length, generator=generator).repeat(len(walk), 1)
            latents[:, :2] = walk
            images = self._draw(module, latents)
            shown = in_unit_range(images, None if self.normalize else (0.0, 1.0))
            grids.append(grid(shown, self.steps))
        return grids

    def _draw(self, module: Any, latents: Tensor) -> Tensor:
        """Return pictures of shape (N, C, H, W), on the host."""
        latents = latents.to(next((p.device for p in module.parameters()), latents.device))
        with isolated(), evaluating(module), torch.no_grad():
            if self.decode is not None:
                found = self.decode(module, latents)
            else:
                found = getattr(module, "decode", module)(latents)
        shape = self.img_dim if self.img_dim is not None else getattr(module, "img_dim", None)
        images = as_images(found, shape)
        if images is None or len(images) != len(latents):
            kind = f"shape {tuple(found.shape)}" if hasattr(found, "shape") else type(found)
            raise DataError(
                f"pictures of {kind}, made for {_WHERE} from latents of shape "
                f"{tuple(latents.shape)}: they must be of shape (N, C, H, W). Return such, or pass "
                "img_dim=(C, H, W) if they are flat."
            )
        return images

    def _length(self, module: Any) -> int:
        """Return how long a latent vector is.

        Raises:
            UsageError: nobody says so, or it is too short.
        """
        found = self.latent_dim if self.latent_dim is not None else _latent_dim(module)
        if isinstance(found, bool) or not isinstance(found, int) or found < 2:
            raise UsageError(
                f"latent_dim {found!r} of {type(module).__qualname__}, for {_WHERE}: it must be a "
                "whole number of at least 2, the length of a latent vector. Set the module's "
                f"latent_dim, or pass {_WHERE}(latent_dim=...)."
            )
        return found


def _latent_dim(module: Any) -> Any:
    found = getattr(module, "latent_dim", None)
    return getattr(getattr(module, "hparams", None), "latent_dim", None) if found is None else found
