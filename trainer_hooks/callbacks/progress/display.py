"""DrawnProgressBar: which bars are open at which hook, whatever they are drawn with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.progress.bar_drawing import Phase, whole_number
from trainer_hooks.callbacks.progress.open_bars import OpenBars
from trainer_hooks.callbacks.progress.pace import Pace
from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["DrawnProgressBar"]


class DrawnProgressBar(ProgressBar, ABC):
    """Open, draw and close a bar for each phase; a subclass says what that looks like.

    A batch at which nothing is drawn costs a fraction of a microsecond: metrics, which must be
    copied from the device, are read only when something is drawn. Drawing takes at most 5% of the
    time, however slow the terminal is. Where the output is no terminal, a line is written at the
    end of each epoch and every 10 s. What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.

    Raises:
        CallbackError: `refresh_rate` is no whole number from 0 on.
    """

    def __init__(self, refresh_rate: int, leave: bool) -> None:
        super().__init__()
        self._refresh_rate = whole_number("refresh_rate", refresh_rate, type(self))
        self._leave = leave
        self._bars = OpenBars(self)
        self._train = Pace()
        self._evaluation = Pace()
        self._phase = Phase.VALIDATION
        self._description = ""
        self._totals: Sequence[int | float] = ()

    # --- What a subclass defines

    @abstractmethod
    def is_terminal(self) -> bool:
        """Return whether what is written can be drawn over."""

    @abstractmethod
    def stream(self) -> TextIO | None:
        """Return the stream that is drawn on, or None where text and bars do not share one."""

    @abstractmethod
    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or start the one that is there anew."""

    @abstractmethod
    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` those that were drawn last stay."""

    @abstractmethod
    def close_bar(self, phase: Phase) -> None:
        """Close a bar; one inside another and that of the sanity check leave no trace."""

    @abstractmethod
    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""

    # --- What everybody may use

    @property
    def refresh_rate(self) -> int:
        """Return how many batches pass between two drawings, at least."""
        return self._refresh_rate

    @property
    def is_enabled(self) -> bool:
        """Return whether the bar is shown."""
        return self._is_enabled and self._refresh_rate > 0

    def disable(self) -> None:
        """Show nothing from now on."""
        self._bars.close_all()
        super().disable()

    # --- Hooks

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close what a run left open that never came to its teardown."""
        self._bars.close_all()
        super().setup(trainer, module, stage)

    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of the sanity check."""
        self._begin_evaluation(
            Phase.SANITY, self.sanity_check_description, trainer.num_sanity_val_batches
        )

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Close it without a trace."""
        self._end_evaluation(trainer, module, Phase.SANITY)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar where a run is resumed inside an epoch, whose start is not told again."""
        if trainer.progress.stage in {EpochStage.BATCHES, EpochStage.CLOSING}:
            self._begin_epoch(trainer, is_resumed=True)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of an epoch."""
        self._begin_epoch(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Draw, if it is time."""
        if self._train.is_due(batch_idx + 1):
            self._draw_train(trainer, module)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last batch, if it could not be known that it would be the last."""
        self._train.pause()
        if not self._bars.are_lines and self._train.drawn != self._train.count:
            self._draw_train(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the metrics of the epoch, unless one on a terminal was drawn just now."""
        if self._bars.are_lines or self._leave or self._train.is_time:
            self._draw_train(trainer, module)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        if Phase.TRAIN in self._bars.paces:
            if not self._bars.are_lines:
                self._draw_train(trainer, module)
            self._bars.close(Phase.TRAIN)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a validation, below that of the training if there is one."""
        if not trainer.sanity_checking:
            self._train.pause()
            self._begin_evaluation(
                Phase.VALIDATION, self.validation_description, trainer.num_val_batches
            )

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw, if it is time."""
        self._count_evaluated(batch_idx, dataloader_idx)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Close the bar of a validation."""
        if not trainer.sanity_checking:
            self._end_evaluation(trainer, module, Phase.VALIDATION)
            if trainer.progress.stage is EpochStage.BATCHES:
                self._train.go_on()

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a test."""
        self._begin_evaluation(Phase.TEST, self.test_description, trainer.num_test_batches)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw, if it is time."""
        self._count_evaluated(batch_idx, dataloader_idx)

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        self._end_evaluation(trainer, module, Phase.TEST)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a prediction."""
        self._begin_evaluation(Phase.PREDICT, self.predict_description, trainer.num_predict_batches)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw, if it is time."""
        self._count_evaluated(batch_idx, dataloader_idx)

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        self._end_evaluation(trainer, module, Phase.PREDICT)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Draw how far it came and close all bars, so that they do not stand in the traceback."""
        self._bars.close_all()

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close what is open, whatever ended the run."""
        self._bars.close_all()

    # --- The bars that are open

    def _begin_epoch(self, trainer: Trainer, is_resumed: bool = False) -> None:
        done = trainer.progress.batches_in_epoch
        if self.is_enabled:
            self._bars.begin(
                Phase.TRAIN,
                self._train,
                self.train_description,
                self.total_train_batches,
                done,
                self._refresh_rate,
                is_resumed,
            )

    def _begin_evaluation(
        self, phase: Phase, description: str, totals: Sequence[int | float]
    ) -> None:
        self._phase, self._description, self._totals = phase, description, totals
        self.reset_dataloader_idx_tracker()
        if totals:
            self._begin_loader(0)

    def _begin_loader(self, dataloader_idx: int) -> None:
        self.has_dataloader_changed(dataloader_idx)
        which = f" DataLoader {dataloader_idx}" if len(self._totals) > 1 else ""
        total = self._totals[dataloader_idx]
        if self.is_enabled:
            self._bars.begin(
                self._phase,
                self._evaluation,
                self._description + which,
                total,
                every=self._refresh_rate,
            )

    def _count_evaluated(self, batch_idx: int, dataloader_idx: int) -> None:
        if dataloader_idx != self._dataloader_idx:
            self._begin_loader(dataloader_idx)
        self._evaluated = batch_idx + 1
        if self._evaluation.is_due(batch_idx + 1):
            self._bars.draw(self._phase, None)

    def _end_evaluation(self, trainer: Trainer, module: Module, phase: Phase) -> None:
        if phase not in self._bars.paces:
            return
        if len(self._bars.paces) == 1 and phase is not Phase.SANITY:
            has_metrics = phase is not Phase.PREDICT
            self._bars.draw(phase, self.get_metrics(trainer, module) if has_metrics else None)
        self._bars.close(phase)

    def _draw_train(self, trainer: Trainer, module: Module) -> None:
        if Phase.TRAIN in self._bars.paces:
            self._bars.draw(Phase.TRAIN, self.get_metrics(trainer, module))
