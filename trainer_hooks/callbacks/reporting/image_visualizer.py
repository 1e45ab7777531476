"""ImageVisualizer: log the images of training batches, and predicted segmentation masks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks._options import FLAG, Combination, one_of, option_rules, whole_number
from trainer_hooks.callbacks.base import ScheduledCallback
from trainer_hooks.callbacks.reporting.sample_images import (
    KEY,
    class_masks,
    color_mask,
    pick_part,
    side_by_side,
    to_image,
)
from trainer_hooks.clock.schedules import DueCondition, parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import DataError, ModuleError
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.nested_tensors import first_tensor

if TYPE_CHECKING:
    from trainer_hooks.callbacks.reporting.sample_images import Key
    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "ImageVisualizer"
_CHANNELS = (1, 3, 4)


class ImageVisualizer(ScheduledCallback):
    """Log the images of training batches, at an interval, under Composer's names.

    With a time as the interval, the first batch of a training is shown, and each batch that begins
    at a multiple of the time: `"100ba"` shows the batches 0, 100, 200 and so on. The loggers get
    them as `Images/Train`. The first batch of each validation, whatever the interval, is
    `Images/Eval`; with several loaders `Images/Eval/label`, the evaluator's label or
    `dataloader_idx_0`. The sanity check is left out.

    With `mode="segmentation"` each image stands beside two masks, the target's and the predicted
    one, with a colour for each class: class 0 is black, negative classes are grey. Masks have the
    shape (N, H, W), or (N, C, H, W) with a value for each class; of floats with one channel, those
    above 0 belong to the object, or above 0.5 if all are from 0 to 1. Predictions are the first
    tensor of the forward's outputs, or of the outputs of the module's own `training_step` and
    `validation_step`, in a dict beside the loss.

    Images have the shape (N, H, W) or (N, C, H, W) with 1, 3 or 4 channels. Colours beyond 0 to 1
    are rescaled to that range, for each image by itself, and the caption says so.

    Args:
        interval: how often training batches are shown: a time such as `"100ba"` or `"1ep"`, a
            number of epochs, a filter, or a function of the clock.
        mode: `"input"` for the images alone, or `"segmentation"`.
        num_images: the number of images of a batch, from the first on.
        channels_last: whether the channels of images and target masks are the last dimension.
        input_key: the location of the images in a batch: an index, a key, or a function of it.
        target_key: the location of the target masks, likewise.

    State: the clock's counts at the last check of the interval, and whether the first batch was
    shown.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, there are no images or masks at that location.
        ModuleError: in a run, the module's own step returns no masks.

    Example::

        visualizer = ImageVisualizer("1ep", input_key=lambda batch: batch[0].reshape(-1, 8, 8))
        logger = TensorBoardLogger("logs")
        trainer = Trainer(max_epochs=2, logger=logger, callbacks=[visualizer])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(
        Combination(
            ("target_key",),
            lambda key: key is not None,
            "it must say where the target masks lie. Pass an index, a key, or a function of the "
            "batch.",
            "target_key {target_key!r} of {owner}",
        ),
        mode=one_of("input", "segmentation"),
        num_images=whole_number(1),
        channels_last=FLAG,
        input_key=KEY,
        target_key=KEY,
    )
    def __init__(
        self,
        interval: int | When = "100ba",
        mode: str = "input",
        num_images: int = 8,
        channels_last: bool = False,
        input_key: Key = 0,
        target_key: Key = 1,
    ) -> None:
        self.interval = interval
        super().__init__(parse_when(interval, "interval", _WHERE, bare=TimeUnit.EPOCH))
        # a condition or a function decides by itself on the first batch
        self._shows_first_batch = not (isinstance(interval, DueCondition) or callable(interval))
        self.mode = mode
        self.num_images = num_images
        self.channels_last = channels_last
        self.input_key, self.target_key = input_key, target_key
        self._has_begun = False
        self._batch: Any = None
        self._step = 0

    @property
    def state_key(self) -> str:
        """The class name with the interval and the mode."""
        return self._generate_state_key(interval=str(self._schedule.when), mode=self.mode)

    def state_dict(self) -> dict[str, Any]:
        """Return the clock's counts at the last check, and whether a batch was shown."""
        return {**super().state_dict(), "has_begun": self._has_begun}

    @checks_state({"has_begun": bool})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the clock's counts, and whether a batch was shown."""
        super().load_state_dict(state_dict)
        self._has_begun = bool(state_dict["has_begun"])

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the state when a new training begins."""
        super().on_fit_start(trainer, module)
        if trainer.progress.is_new_training:
            self._has_begun = False

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Show the batch, if it is due; with masks wait for the predictions."""
        # asked even if no logger takes images: `is_due` records that this batch was considered
        is_first = self._shows_first_batch and not self._has_begun
        is_due = self._is_due(trainer) or is_first
        self._has_begun = True
        if not is_due or not trainer.loggers:
            return
        self._step = trainer.progress.batches_stepped
        if self.mode == "input":
            self._show(trainer, "Images/Train", self._step, batch)
        else:
            # until the forward, or the module's own step, returns the predictions
            self._batch = batch

    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Show the batch with the forward's masks; with microbatches those of the first."""
        if self._batch is not None:
            batch, self._batch = self._batch, None
            self._show(trainer, "Images/Train", self._step, batch, first_tensor(outputs))

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Show the batch with the masks that the module's own step returned."""
        if self._batch is None:
            return
        batch, self._batch = self._batch, None
        if outputs:  # empty if the batch was skipped
            masks = _masks_in(outputs, module, "training_step")
            self._show(trainer, "Images/Train", self._step, batch, masks)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Show the first batch of a validation."""
        if batch_idx or trainer.sanity_checking or not trainer.loggers:
            return
        name = "Images/Eval"
        if len(trainer.num_val_batches) > 1:
            name = f"{name}/{trainer.dataloader_label or f'dataloader_idx_{dataloader_idx}'}"
        is_input = self.mode == "input"
        masks = None if is_input else _masks_in(outputs, module, "validation_step")
        self._show(trainer, name, trainer.progress.batches_stepped, batch, masks)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Release a batch that was not completed."""
        self._batch = None

    def _show(
        self, trainer: Trainer, name: str, step: int, batch: Any, predicted: Any = None
    ) -> None:
        """Log the first images of a batch."""
        if not trainer.is_global_zero:
            return
        images, remarks = self._images_of(batch)
        captions = [f"image {number}" for number in range(len(images))]
        if self.mode == "segmentation":
            target = self._pick(batch, self.target_key, "target_key")
            if isinstance(target, Tensor) and target.ndim == 4 and self.channels_last:
                target = target.movedim(-1, 1)
            targets = class_masks(target, len(images), "target_key", _WHERE)
            masks = class_masks(predicted, len(images), "outputs", _WHERE)
            images = [
                side_by_side(pixels, color_mask(target_mask), color_mask(predicted_mask))
                for pixels, target_mask, predicted_mask in zip(images, targets, masks, strict=False)
            ]
            captions = [f"{caption}, target, prediction" for caption in captions[: len(images)]]
        captions = [
            f"{caption} ({remark})" if remark else caption
            for caption, remark in zip(captions, remarks, strict=False)
        ]
        for logger in trainer.loggers:
            logger.log_image(name, images, step, captions=captions)

    def _images_of(self, batch: Any) -> tuple[list[Tensor], list[str]]:
        """Return the first images of a batch, of shape (C, H, W), and a remark on each.

        Raises:
            DataError: there are no images at that location.
        """
        images = self._pick(batch, self.input_key, "input_key")
        if isinstance(images, Tensor) and images.ndim == 4 and self.channels_last:
            images = images.movedim(-1, 1)
        if (
            not isinstance(images, Tensor)
            or images.ndim not in (3, 4)
            or (images.ndim == 4 and images.shape[1] not in _CHANNELS)
        ):
            form = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise DataError(
                f"input_key of {_WHERE}: images must be a tensor of shape (N, H, W), or of "
                f"(N, C, H, W) with 1, 3 or 4 channels, not {form}. Say where they are with a key "
                "or a function, and pass channels_last=True if the channels come last."
            )
        pairs = [to_image(image, None, None) for image in images[: self.num_images]]
        return [pixels for pixels, _ in pairs], [remark for _, remark in pairs]

    def _pick(self, batch: Any, key: Key, option: str) -> Any:
        # a batch that is one tensor is the images: its items are the samples
        is_all = isinstance(batch, Tensor) and not callable(key)
        return batch if is_all else pick_part(batch, key, option, _WHERE)


def _masks_in(outputs: Any, module: Module, step: str) -> Tensor:
    """Return the masks in the outputs of a step.

    Raises:
        ModuleError: there are none.
    """
    masks = first_tensor(outputs)
    if masks is None:
        raise ModuleError(
            f"{type(module).__qualname__}.{step} returned no predictions, which {_WHERE} shows in "
            "the mode 'segmentation'. Return them beside the loss, as in {'loss': loss, 'outputs': "
            "predicted}, or define forward(batch) and loss(outputs, batch)."
        )
    return masks
