"""ProgressBar: what every bar is and knows, drawing left open."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from typing import TextIO

    from trainer_hooks.callbacks.progress.display import Display
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ProgressBar", "ProgressBarBase"]

_VERSION_SHOWN = 4


class ProgressBar(Callback):
    r"""Base of every progress bar; a trainer has at most one.

    Lightning 1 called it `ProgressBarBase`, which is another name of it here.

    It draws nothing. A bar of your own overrides the hooks at which it draws, and `print` if text
    between two drawings would tear it. It is switched off on all processes but the main one.

    Example::

        class Percent(ProgressBar):
            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
                if self.is_enabled:
                    percent = 100 * (batch_idx + 1) / self.total_train_batches
                    print(f"{percent:.0f}%", end="\r")

        trainer = Trainer(max_epochs=2, callbacks=[Percent()])
        trainer.fit(module, train_loader)
    """

    band: ClassVar[Band] = Band.SINK

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"display", "canvas", "*_batch_idx", "*_progress_bar"}
    )

    display: Display | None = None  # what draws, where the bar does not do it itself

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._is_enabled = True
        self._dataloader_idx: int | None = None
        self._evaluated = 0

    @property
    def trainer(self) -> Trainer:
        """Return the trainer whose progress is shown.

        Raises:
            UsageError: no run has started yet.
        """
        if self._trainer is None:
            raise UsageError(
                f"trainer of {type(self).__qualname__}: is known from the hook `setup` on. "
                "Call super().setup(trainer, module, stage) if you override it."
            )
        return self._trainer

    @property
    def is_enabled(self) -> bool:
        """Return whether the bar is shown."""
        return self._is_enabled and (self.display is None or self.display.refresh_rate > 0)

    @property
    def is_disabled(self) -> bool:
        """Return whether the bar is not shown."""
        return not self.is_enabled

    def enable(self) -> None:
        """Show the bar, from the next epoch or evaluation on."""
        self._is_enabled = True

    def disable(self) -> None:
        """Show nothing from now on."""
        if self.display is not None:
            self.display.close_all()
        self._is_enabled = False

    def print(
        self,
        *args: object,
        sep: str = " ",
        end: str = "\n",
        file: TextIO | None = None,
        flush: bool = False,
    ) -> None:
        """Print as the builtin does, without tearing the bar."""
        print(*args, sep=sep, end=end, file=file or sys.stdout, flush=flush)

    def get_metrics(self, trainer: Trainer, module: Module) -> dict[str, int | str | float]:
        """Return what is shown beside the bar; override it to add or leave out something.

        Of a logger's version that is a text, the last 4 characters are shown, as `v_num`.
        It copies from the device, so it is called only when something is about to be drawn.
        """
        version = None if trainer.logger is None else trainer.logger.version
        if isinstance(version, str):
            version = version[-_VERSION_SHOWN:]
        named: dict[str, int | str | float] = {} if version is None else {"v_num": version}
        return {**named, **trainer.progress_bar_metrics}

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Learn whose progress is shown; close what a run left open that never came to its end."""
        if self.display is not None:
            self.display.close_all()
        self._trainer = trainer
        if not trainer.is_global_zero:
            self.disable()

    @property
    def sanity_check_description(self) -> str:
        """Return what stands before the bar of the sanity check."""
        return "Sanity Checking"

    @property
    def train_description(self) -> str:
        """Return what stands before the bar of an epoch: its index and the last one's."""
        trainer = self.trainer
        last = f"/{trainer.max_epochs - 1}" if trainer.max_epochs > 0 else ""
        return f"Epoch {trainer.current_epoch}{last}"

    @property
    def validation_description(self) -> str:
        """Return what stands before the bar of a validation."""
        return "Validation"

    @property
    def test_description(self) -> str:
        """Return what stands before the bar of a test."""
        return "Testing"

    @property
    def predict_description(self) -> str:
        """Return what stands before the bar of a prediction."""
        return "Predicting"

    @property
    def train_batch_idx(self) -> int:
        """Return how many batches of the epoch under way are done."""
        return self.trainer.progress.batches_in_epoch

    @property
    def val_batch_idx(self) -> int:
        """Return how many batches of the validation loader in use are done."""
        return self._evaluated

    test_batch_idx = predict_batch_idx = val_batch_idx

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and draw if it is time."""
        self._evaluated = batch_idx + 1
        if self.display is not None:
            self.display.count(batch_idx, dataloader_idx)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    @property
    def total_train_batches(self) -> int | float:
        """Return the training batches of an epoch, `math.inf` if unknown."""
        return self.trainer.num_training_batches

    @property
    def total_val_batches(self) -> int | float:
        """Return the batches of all validation loaders, `math.inf` if unknown."""
        return sum(self._val_batches)

    @property
    def total_val_batches_current_dataloader(self) -> int | float:
        """Return the batches of the validation loader in use, `math.inf` if unknown."""
        return self._val_batches[self._dataloader_idx or 0]

    @property
    def total_test_batches(self) -> int | float:
        """Return the batches of all test loaders, `math.inf` if unknown."""
        return sum(self.trainer.num_test_batches)

    @property
    def total_test_batches_current_dataloader(self) -> int | float:
        """Return the batches of the test loader in use, `math.inf` if unknown."""
        return self.trainer.num_test_batches[self._dataloader_idx or 0]

    @property
    def total_predict_batches(self) -> int | float:
        """Return the batches of all predict loaders, `math.inf` if unknown."""
        return sum(self.trainer.num_predict_batches)

    @property
    def total_predict_batches_current_dataloader(self) -> int | float:
        """Return the batches of the predict loader in use, `math.inf` if unknown."""
        return self.trainer.num_predict_batches[self._dataloader_idx or 0]

    @property
    def _val_batches(self) -> list[int | float]:
        trainer = self.trainer
        return (
            trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        )

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Return whether another loader is in use since this was asked last."""
        changed = dataloader_idx != self._dataloader_idx
        self._dataloader_idx = dataloader_idx
        return changed

    def reset_dataloader_idx_tracker(self) -> None:
        """Forget which loader was in use."""
        self._dataloader_idx = None


ProgressBarBase = ProgressBar
