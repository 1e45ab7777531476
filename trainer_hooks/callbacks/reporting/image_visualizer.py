"""ImageVisualizer: log the pictures that are trained on, and the masks that are predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.on_cue import OnCue
from trainer_hooks.callbacks.reporting.mask_views import as_classes, beside, coloured
from trainer_hooks.callbacks.reporting.sample_views import check_key, picked, picture
from trainer_hooks.clock import Filter, TimeUnit, parse_when
from trainer_hooks.errors import DataError, ModuleError, OptionError
from trainer_hooks.runtime import first_tensor

if TYPE_CHECKING:
    from trainer_hooks.callbacks.reporting.sample_views import Key
    from trainer_hooks.clock import When
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ImageVisualizer"]

_WHERE = "ImageVisualizer"
_MODES = ("input", "segmentation")
_CHANNELS = (1, 3, 4)


class ImageVisualizer(OnCue):
    """Log the pictures that are trained on, at an interval, under Composer's names.

    With a time as the interval, the first batch of a training is shown, and each that begins where
    a multiple of it was come to: `"100ba"` shows the batches 0, 100, 200 and so on. They go to the
    loggers as `Images/Train`. The first batch of each validation, whatever the interval, is
    `Images/Eval`; with several loaders `Images/Eval/label`, the evaluator's label or
    `dataloader_idx_0`. The sanity check is left out.

    With `mode="segmentation"` each picture stands beside two masks, the target's and the predicted
    one, with a colour for each class: class 0 is black, and grey what is below it. Masks have the
    shape (N, H, W), or (N, C, H, W) with a value for each class; of floats with one channel, those
    above 0 belong to the object, or above 0.5 if all are from 0 to 1. Predictions are the first
    tensor of what the module's forward returns, or of what its own `training_step` and
    `validation_step` return, in a dict beside the loss.

    Pictures have the shape (N, H, W) or (N, C, H, W) with 1, 3 or 4 channels. Colours beyond 0 to 1
    are stretched to that, of each picture by itself, and the caption says so.

    Args:
        interval: how often training batches are shown: a time such as `"100ba"` or `"1ep"`, a
            number of epochs, a filter, or a function of the clock.
        mode: `"input"` for the pictures alone, or `"segmentation"`.
        num_images: how many of a batch, the first ones.
        channels_last: whether the channels of pictures and target masks are the last dimension.
        input_key: where the pictures lie in a batch: an index, a key, or a function of the batch.
        target_key: where the target masks lie, likewise.

    State: the counts when it last looked whether it is due, and whether the first batch was shown.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, there are no pictures or masks at the place that was given.
        ModuleError: in a run, the module's own step returns no masks.

    Example::

        visualizer = ImageVisualizer("1ep", input_key=lambda batch: batch[0].reshape(-1, 8, 8))
        logger = TensorBoardLogger("logs")
        trainer = Trainer(max_epochs=2, logger=logger, callbacks=[visualizer])
        trainer.fit(module, train_loader, val_loader)
    """

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
        self._begins = not (isinstance(interval, Filter) or callable(interval))
        self.mode: str = check_choice("mode", mode, _WHERE, _MODES)
        self.num_images = check_count("num_images", num_images, _WHERE, least=1)
        self.channels_last: bool = check_choice(
            "channels_last", channels_last, _WHERE, (True, False)
        )
        self.input_key = check_key("input_key", input_key, _WHERE)
        self.target_key = check_key("target_key", target_key, _WHERE)
        if target_key is None:
            raise OptionError(
                f"target_key None of {_WHERE}: it must say where the target masks lie. Pass an "
                "index, a key, or a function of the batch."
            )
        self._has_begun = False
        self._batch: Any = None
        self._step = 0

    @property
    def state_key(self) -> str:
        """The class with what it shows and when."""
        return self._generate_state_key(interval=str(self._cue.when), mode=self.mode)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts when it last looked, and whether it has shown anything."""
        return {**super().state_dict(), "has_begun": self._has_begun}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        super().load_state_dict(state_dict)
        self._has_begun = bool(state_dict["has_begun"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew with a new training."""
        super().on_fit_start(trainer, module)
        if trainer.progress.is_fresh:
            self._has_begun = False

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Show the batch, if it is due; where masks are wanted, with what is to be predicted."""
        is_due = self._cue.is_due(trainer.clock) or (self._begins and not self._has_begun)
        self._has_begun = True
        if not is_due or not trainer.loggers:
            return
        self._step = trainer.progress.batches_stepped
        if self.mode == "input":
            self._show(trainer, "Images/Train", self._step, batch)
        else:
            self._batch = batch

    def on_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Show the batch with the masks that the forward returned; of parts of it the first."""
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
        if outputs:  # it was not skipped
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
        """Let go of a batch that was never done."""
        self._batch = None

    def _show(
        self, trainer: Trainer, name: str, step: int, batch: Any, predicted: Any = None
    ) -> None:
        """Give the first pictures of a batch to the loggers."""
        if not trainer.is_global_zero:
            return
        pictures, remarks = self._pictures(batch)
        captions = [f"image {number}" for number in range(len(pictures))]
        if self.mode == "segmentation":
            target = self._picked(batch, self.target_key, "target_key")
            if isinstance(target, Tensor) and target.ndim == 4 and self.channels_last:
                target = target.movedim(-1, 1)
            targets = as_classes(target, len(pictures), "target_key", _WHERE)
            masks = as_classes(predicted, len(pictures), "outputs", _WHERE)
            pictures = [
                beside(pixels, coloured(wanted), coloured(given))
                for pixels, wanted, given in zip(pictures, targets, masks, strict=False)
            ]
            captions = [f"{caption}, target, prediction" for caption in captions[: len(pictures)]]
        told = [
            f"{caption} ({remark})" if remark else caption
            for caption, remark in zip(captions, remarks, strict=False)
        ]
        for logger in trainer.loggers:
            logger.log_image(name, pictures, step, captions=told)

    def _pictures(self, batch: Any) -> tuple[list[Tensor], list[str]]:
        """Return the first pictures of a batch, of shape (C, H, W), and a remark on each.

        Raises:
            DataError: there are no pictures at that place.
        """
        images = self._picked(batch, self.input_key, "input_key")
        if isinstance(images, Tensor) and images.ndim == 4 and self.channels_last:
            images = images.movedim(-1, 1)
        if (
            not isinstance(images, Tensor)
            or images.ndim not in (3, 4)
            or (images.ndim == 4 and images.shape[1] not in _CHANNELS)
        ):
            found = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
            raise DataError(
                f"input_key of {_WHERE}: pictures must be a tensor of shape (N, H, W), or of "
                f"(N, C, H, W) with 1, 3 or 4 channels, not {found}. Say where they are with a key "
                "or a function, and pass channels_last=True if the channels come last."
            )
        pairs = [picture(image, None, None) for image in images[: self.num_images]]
        return [pixels for pixels, _ in pairs], [remark for _, remark in pairs]

    def _picked(self, batch: Any, key: Key, what: str) -> Any:
        # a batch that is one tensor has no items but its samples
        is_all = isinstance(batch, Tensor) and not callable(key)
        return batch if is_all else picked(batch, key, what, _WHERE)


def _masks_in(outputs: Any, module: Module, step: str) -> Tensor:
    """Return the masks in what a step returned.

    Raises:
        ModuleError: there are none.
    """
    found = first_tensor(outputs)
    if found is None:
        raise ModuleError(
            f"{type(module).__qualname__}.{step} returned no predictions, which {_WHERE} shows in "
            "the mode 'segmentation'. Return them beside the loss, as in {'loss': loss, 'outputs': "
            "predicted}, or define forward(batch) and loss(outputs, batch)."
        )
    return found
