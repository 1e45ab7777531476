"""ImageVisualizer: log images, and in Composer's Trainer as Composer logs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks import callbacks
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn, composer_logger
from trainer_hooks.compat.composer.modules import package_getattr

if TYPE_CHECKING:
    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer

__all__ = ["ImageVisualizer"]

__getattr__ = package_getattr(__name__)


class ImageVisualizer(callbacks.ImageVisualizer, ComposerBuiltIn):  # type: ignore[misc] # run_event
    """Log the images of training batches, at an interval, and of each evaluation's first batch.

    In Composer's Trainer the destinations get one array of the first images as they are in the
    batch, `Images/Train` or `Images/Eval`, and with `mode="segmentation"` the masks `prediction`
    and `ground_truth` beside it. A batch without images is left out. In a `trainer_hooks.Trainer`
    it does as `trainer_hooks.callbacks.ImageVisualizer`.

    Args:
        interval: how often training batches are shown: a number of batches, a time such as
            `"100ba"` or `"1ep"`, a filter, or a function of the clock.
        mode: `"input"` for the images alone, or `"segmentation"`.
        num_images: the number of images of a batch, from the first on.
        channels_last: whether the channels of images and target masks are the last dimension.
        input_key: the location of the images in a batch: an index, a key, or a function of it.
        target_key: the location of the target masks, likewise.

    Raises:
        OptionError: an argument is outside its rule.
    """

    guest_class = callbacks.ImageVisualizer

    def __init__(
        self,
        interval: int | When = "100ba",
        mode: str = "input",
        num_images: int = 8,
        channels_last: bool = False,
        input_key: Any = 0,
        target_key: Any = 1,
    ) -> None:
        is_number = isinstance(interval, int) and not isinstance(interval, bool)
        when = f"{interval}ba" if is_number else interval
        super().__init__(when, mode, num_images, channels_last, input_key, target_key)
        self.interval = interval

    def _show(
        self, trainer: Trainer, name: str, step: int, batch: Any, predicted: Any = None
    ) -> None:
        logger = composer_logger(trainer)
        if logger is None:
            super()._show(trainer, name, step, batch, predicted)
            return
        images = self._pick(batch, self.input_key, "input_key")
        if images.ndim not in (3, 4) or images.numel() == len(images):
            return
        masks = None
        count = self.num_images
        if isinstance(predicted, Tensor):
            target = self._pick(batch, self.target_key, "target_key")
            count = min(count, len(images), len(target), len(predicted))
            masks = self._masks(target[:count], predicted[:count])
        name = "/".join(name.split("/")[:2])  # Composer's has no label of the evaluator
        array = images[:count].detach().cpu().numpy()
        logger.log_images(array, name, self.channels_last, step, masks=masks)

    def _masks(self, target: Tensor, predicted: Tensor) -> dict[str, Any]:
        """Return the classes of a prediction and of its target, for each pixel."""
        axis = -1 if self.channels_last else 1
        classes = predicted.shape[axis]
        truth = target.argmax(axis) if target.shape == predicted.shape else target.clone()
        truth[truth < 0] = classes  # ignored pixels are a class of their own
        return {
            "prediction": predicted.detach().argmax(axis).cpu().numpy(),
            "ground_truth": truth.cpu().numpy(),
        }
