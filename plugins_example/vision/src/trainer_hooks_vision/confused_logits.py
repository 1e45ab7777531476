"""ConfusedLogitCallback: how an image would have to change to trick the classification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import Band, Callback
from trainer_hooks.errors import DataError
from trainer_hooks.runtime.rng import isolated
from trainer_hooks_vision.option_checks import check_count, check_number
from trainer_hooks_vision.pictures import (
    as_images,
    check_callable,
    evaluating,
    grid,
    inputs_of,
    log_images,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from trainer_hooks import Module, Trainer

__all__ = ["ConfusedLogitCallback"]

_WHERE = "ConfusedLogitCallback"


class ConfusedLogitCallback(Callback):
    """Log how an image would have to change for the model to take it for another class.

    Where the scores (logits) of two classes are both high and nearly equal, the model is confused
    between them. For such images the gradient of the second class's score less the first's, with
    respect to the image, is the change that tricks the classification, and its opposite is the one
    that settles it. `confused_logits` shows, for each: the image, the change that makes it the
    second class, the image with that change, and the image with the opposite.

    The model is run again, in eval mode, on the images of a batch; no parameter's gradient is
    touched, and random numbers that it draws are not those of the training.

    Args:
        top_k: how many confused images to show, those with the nearest scores first.
        min_logit_value: a score must be more than that to count.
        logging_batch_interval: training batches between two looks.
        max_logit_difference: two scores that differ by no more are nearly equal.
        step_size: how far the images are changed, in units of the largest change of a pixel, as a
            share of the image's range.
        img_dim: (C, H, W) of an image, where the model takes them flat.
        get_inputs: finds the images in a batch; its first tensor unless given.
        forward: returns the scores, as `forward(module, inputs)`; the module called with the inputs
            unless given.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, a batch holds no images, or the model returns no scores.
    """

    band = Band.SINK

    def __init__(
        self,
        top_k: int = 4,
        min_logit_value: float = 5.0,
        logging_batch_interval: int = 20,
        max_logit_difference: float = 0.1,
        step_size: float = 0.3,
        img_dim: Sequence[int] | None = None,
        get_inputs: Callable[[Any], Tensor] | None = None,
        forward: Callable[[Any, Tensor], Tensor] | None = None,
    ) -> None:
        self.top_k = check_count("top_k", top_k, _WHERE, least=1)
        self.min_logit_value = check_number("min_logit_value", min_logit_value, _WHERE)
        self.logging_batch_interval = check_count(
            "logging_batch_interval", logging_batch_interval, _WHERE, least=1
        )
        self.max_logit_difference = check_number(
            "max_logit_difference", max_logit_difference, _WHERE, least=0
        )
        self.step_size = check_number("step_size", step_size, _WHERE, least=0)
        self.img_dim = None if img_dim is None else tuple(img_dim)
        self.get_inputs = check_callable("get_inputs", get_inputs, _WHERE, "the batch")
        self.forward = check_callable("forward", forward, _WHERE, "module and inputs")

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log confused images if a look is due."""
        if trainer.progress.batches_completed % self.logging_batch_interval or not trainer.loggers:
            return
        inputs = inputs_of(batch, self.get_inputs, _WHERE)
        shown = self.confused(module, inputs)
        if shown is None:
            return
        rows, captions = shown
        log_images(trainer, "confused_logits", [grid(rows, 4)], ["; ".join(captions)])

    def confused(self, module: Module, inputs: Tensor) -> tuple[Tensor, list[str]] | None:
        """Find confused images, and how they would have to change.

        Args:
            module: the model.
            inputs: images as the model takes them.

        Returns:
            None if there are none. Else pictures of shape (4 * found, C, H, W), from 0 to 1, four
            for each image, and a text for each image.
        """
        with isolated(), evaluating(module), torch.inference_mode(False), torch.enable_grad():
            images = inputs.detach().clone().requires_grad_(True)
            scores = self._scores(module, images)
            values, classes = scores.detach().topk(2, dim=1)
            apart = values[:, 0] - values[:, 1]
            is_confused = (values[:, 1] > self.min_logit_value) & (
                apart <= self.max_logit_difference
            )
            found = is_confused.nonzero().flatten()
            found = found[apart[found].argsort(stable=True)][: self.top_k]
            if not len(found):
                return None
            first, second = (scores.gather(1, classes[:, place, None]) for place in (0, 1))
            [gradient] = torch.autograd.grad((second - first)[found].sum(), images)
        captions = [f"{a} or {b}" for a, b in classes[found].tolist()]
        return self._pictures(images.detach()[found], gradient[found]), captions

    def _scores(self, module: Module, images: Tensor) -> Tensor:
        scores = module(images) if self.forward is None else self.forward(module, images)
        if not isinstance(scores, torch.Tensor) or scores.ndim != 2 or scores.shape[1] < 2:
            kind = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores)
            raise DataError(
                f"output {kind} of {type(module).__qualname__}, given to {_WHERE}: it must be the "
                "scores of at least two classes, of shape (N, classes). Pass forward=..., which "
                "returns them."
            )
        return scores

    def _pictures(self, images: Tensor, change: Tensor) -> Tensor:
        """Return image, change, image with it, and image with the opposite, row by row."""
        shape = (-1, *[1] * (images.ndim - 1))
        low = images.flatten(1).amin(1).reshape(shape)
        spread = (images.flatten(1).amax(1).reshape(shape) - low).clamp_min(1e-12)
        images = (images - low) / spread
        step = change / change.flatten(1).abs().amax(1).reshape(shape).clamp_min(1e-12)
        views = [
            images,
            step / 2 + 0.5,  # grey is no change, white is brighter, black is darker
            (images + self.step_size * step).clamp(0, 1),
            (images - self.step_size * step).clamp(0, 1),
        ]
        rows = torch.stack(views, dim=1).flatten(0, 1)
        found = as_images(rows, self.img_dim)
        if found is None:
            raise DataError(
                f"inputs of shape {tuple(images.shape)}, given to {_WHERE}: they must be images of "
                "shape (N, C, H, W) with 1, 3 or 4 channels. Pass img_dim=(C, H, W) if they are "
                "flat."
            )
        return found
