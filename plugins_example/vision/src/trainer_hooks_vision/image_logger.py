"""ImageLogger: what goes into a model and what comes out, as pictures in the loggers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import Band, Callback
from trainer_hooks.errors import OptionError
from trainer_hooks.runtime.rng import isolated
from trainer_hooks_vision.option_checks import check_count
from trainer_hooks_vision.pictures import (
    as_images,
    check_callable,
    evaluating,
    grid,
    in_unit_range,
    inputs_of,
    log_images,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trainer_hooks import Module, Trainer

__all__ = ["ImageLogger"]

_WHERE = "ImageLogger"


class ImageLogger(Callback):
    """Log what goes into any model and what comes out of it, as pictures, at intervals.

    The inputs of a batch are logged as `images/input`, one grid. If the model returns images, as an
    autoencoder does, they are logged below them in `images/output`; else the caption says which
    class each input is given, where the outputs are scores. With `sample`, what it returns is
    logged as `images/sample`: a generative model's own pictures.

    The model is run in eval mode without gradients, and with random numbers of its own, so that the
    training goes on as it would without. What is no picture is left out, so it does no harm to
    models of other things.

    Args:
        every_n_steps: training batches between two pictures.
        num_images: how many images of the batch.
        columns: how many beside each other in the grid.
        img_dim: (C, H, W) of an image, where the model takes and returns them flat.
        value_range: the values that are black and white; each image's own unless given.
        get_inputs: finds the inputs in a batch; its first tensor unless given.
        forward: returns the model's output for inputs, as `forward(module, inputs)`; the module
            called with the inputs unless given.
        sample: returns pictures of the model's own, as `sample(module)`.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, a batch holds no tensor.
    """

    band = Band.SINK
    on_error = "disable"

    def __init__(
        self,
        every_n_steps: int = 100,
        num_images: int = 16,
        columns: int = 8,
        img_dim: Sequence[int] | None = None,
        value_range: tuple[float, float] | None = None,
        get_inputs: Callable[[Any], Tensor] | None = None,
        forward: Callable[[Any, Tensor], Any] | None = None,
        sample: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self.every_n_steps = check_count("every_n_steps", every_n_steps, _WHERE, least=1)
        self.num_images = check_count("num_images", num_images, _WHERE, least=1)
        self.columns = check_count("columns", columns, _WHERE, least=1)
        self.img_dim = None if img_dim is None else tuple(img_dim)
        if self.img_dim is not None and (len(self.img_dim) != 3 or min(self.img_dim) < 1):
            raise OptionError(
                f"img_dim {img_dim!r} of {_WHERE}: it must be (channels, height, width). Pass such "
                "a shape, as (1, 28, 28)."
            )
        if value_range is not None and not value_range[0] < value_range[1]:
            raise OptionError(
                f"value_range {value_range!r} of {_WHERE}: it must be the values of black and of "
                "white, the lower one first. Pass such a pair, as (0, 1)."
            )
        self.value_range = value_range
        self.get_inputs = check_callable("get_inputs", get_inputs, _WHERE, "the batch")
        self.forward = check_callable("forward", forward, _WHERE, "module and inputs")
        self.sample = check_callable("sample", sample, _WHERE, "the module")

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log pictures if they are due."""
        if trainer.progress.batches_completed % self.every_n_steps or not trainer.loggers:
            return
        inputs = inputs_of(batch, self.get_inputs, _WHERE)[: self.num_images]
        images = as_images(inputs, self.img_dim)
        pictures: dict[str, tuple[Tensor, str]] = {}
        with isolated(), evaluating(module), torch.no_grad():
            if images is not None:
                found = self._run(module, inputs)
                made = as_images(found, self.img_dim)
                pictures["input"] = (images, _classes(found) if made is None else "")
                if made is not None:
                    pictures["output"] = (made, "")
            own = None if self.sample is None else as_images(self.sample(module), self.img_dim)
            if own is not None:
                pictures["sample"] = (own[: self.num_images], "")
        for name, (values, caption) in pictures.items():
            picture = grid(in_unit_range(values, self.value_range), self.columns)
            told = f"{name} after {trainer.progress.batches_completed} batches{caption}"
            log_images(trainer, f"images/{name}", [picture], [told])

    def _run(self, module: Module, inputs: Tensor) -> Any:
        found = module(inputs) if self.forward is None else self.forward(module, inputs)
        return found[0] if isinstance(found, tuple) and found else found


def _classes(scores: Any) -> str:
    """Return the class of each input, if `scores` are of shape (N, classes)."""
    is_scores = isinstance(scores, torch.Tensor) and scores.ndim == 2 and scores.shape[1] > 1
    if not is_scores:
        return ""
    return f": {', '.join(map(str, scores.argmax(1).tolist()))}"
