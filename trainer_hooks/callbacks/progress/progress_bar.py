"""ProgressBar: the base class of all progress bars, without drawing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._output import losing_output_to
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitored_metric import is_validation_epoch
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from typing import TextIO

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_VERSION_SHOWN = 4


class ProgressBar(Callback):
    r"""Base class of every progress bar; a trainer has at most one.

    It draws nothing. Your own bar overrides the hooks at which it draws, and `print` if text
    between two drawings would break it. It is switched off on all ranks but rank 0.

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

    # how far a bar is drawn is no state of the training: the checks of a resume leave it out
    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"canvas", "*_batch_idx", "*_progress_bar"}
    )

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
        return self._is_enabled

    @property
    def is_disabled(self) -> bool:
        """Return whether the bar is not shown."""
        return not self.is_enabled

    def enable(self) -> None:
        """Show the bar, from the next epoch or evaluation on."""
        self._is_enabled = True

    def disable(self) -> None:
        """Show no bar from now on."""
        self._is_enabled = False

    def print(
        self,
        *args: object,
        sep: str = " ",
        end: str = "\n",
        file: TextIO | None = None,
        flush: bool = False,
    ) -> None:
        """Print as the builtin does, without breaking the bar."""
        # the standard output of this moment: bars replace it while they are drawn
        with losing_output_to(file):
            print(*args, sep=sep, end=end, file=file or sys.stdout, flush=flush)

    def get_metrics(self, trainer: Trainer, module: Module) -> dict[str, int | str | float]:
        """Return the metrics beside the bar; override it to add or leave out some.

        Of a logger's version that is a text, the last 4 characters are shown, as `v_num`; an empty
        one is left out.
        It copies from the device, so it is called only when the bar is about to be drawn.
        """
        version = None if trainer.logger is None else trainer.logger.version
        if isinstance(version, str):
            # a logger's run id would fill the line
            version = version[-_VERSION_SHOWN:]
        named: dict[str, int | str | float] = {} if version in {None, ""} else {"v_num": version}
        return {**named, **trainer.progress_bar_metrics}

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Store the trainer; switch the bar off on all ranks but rank 0."""
        self._trainer = trainer
        # all ranks may write to the same terminal
        if not trainer.is_global_zero:
            self.disable()

    @property
    def sanity_check_description(self) -> str:
        """Return the text before the bar of the sanity check."""
        return "Sanity Checking"

    @property
    def train_description(self) -> str:
        """Return the text before the bar of an epoch: its index and the last one's."""
        trainer = self.trainer
        last = f"/{trainer.max_epochs - 1}" if trainer.max_epochs > 0 else ""
        return f"Epoch {trainer.current_epoch}{last}"

    @property
    def validation_description(self) -> str:
        """Return the text before the bar of a validation."""
        return "Validation"

    @property
    def test_description(self) -> str:
        """Return the text before the bar of a test."""
        return "Testing"

    @property
    def predict_description(self) -> str:
        """Return the text before the bar of a prediction."""
        return "Predicting"

    @property
    def train_batch_idx(self) -> int:
        """Return the number of batches done in the current epoch."""
        return self.trainer.progress.batches_in_epoch

    @property
    def val_batch_idx(self) -> int:
        """Return the number of batches done of the current validation loader."""
        return self._evaluated

    # one counter, as only one evaluation runs at a time
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
        """Count the batch."""
        self._evaluated = batch_idx + 1

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    @property
    def total_train_batches(self) -> int | float:
        """Return the number of training batches in an epoch, `math.inf` if unknown."""
        return self.trainer.num_training_batches

    @property
    def total_val_batches(self) -> int | float:
        """Return the number of batches of all validation loaders, `math.inf` if unknown.

        It is 0 in an epoch of fit that `check_val_every_n_epoch` leaves without validation.
        """
        trainer = self.trainer
        is_in_epoch = trainer.state.fn == "fit" and not trainer.sanity_checking
        return 0 if is_in_epoch and not is_validation_epoch(trainer) else sum(self._val_batches)

    @property
    def total_val_batches_current_dataloader(self) -> int | float:
        """Return the number of batches of the current validation loader, `math.inf` if unknown."""
        return self._val_batches[self._dataloader_idx or 0]

    @property
    def total_test_batches(self) -> int | float:
        """Return the number of batches of all test loaders, `math.inf` if unknown."""
        return sum(self.trainer.num_test_batches)

    @property
    def total_test_batches_current_dataloader(self) -> int | float:
        """Return the number of batches of the current test loader, `math.inf` if unknown."""
        return self.trainer.num_test_batches[self._dataloader_idx or 0]

    @property
    def total_predict_batches(self) -> int | float:
        """Return the number of batches of all predict loaders, `math.inf` if unknown."""
        return sum(self.trainer.num_predict_batches)

    @property
    def total_predict_batches_current_dataloader(self) -> int | float:
        """Return the number of batches of the current predict loader, `math.inf` if unknown."""
        return self.trainer.num_predict_batches[self._dataloader_idx or 0]

    @property
    def _val_batches(self) -> list[int | float]:
        trainer = self.trainer
        return (
            trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches
        )

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Return whether the loader is another one than at the last call."""
        changed = dataloader_idx != self._dataloader_idx
        self._dataloader_idx = dataloader_idx
        return changed

    def reset_dataloader_idx_tracker(self) -> None:
        """Forget the loader of the last call."""
        self._dataloader_idx = None


# the name of the class in Lightning 1
