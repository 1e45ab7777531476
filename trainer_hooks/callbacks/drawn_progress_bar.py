"""DrawnProgressBar: which bars are open at which hook, whatever they are drawn with."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.bar_drawing import Pace, Phase, PlainLines, whole_number
from trainer_hooks.callbacks.progress_bar import ProgressBar
from trainer_hooks.progress import EpochStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["DrawnProgressBar"]


class DrawnProgressBar(ProgressBar, ABC):
    """Open, draw and close a bar for each phase; a subclass says what that looks like.

    A batch at which nothing is drawn costs a fraction of a microsecond: metrics, which must be
    copied from the device, are read only when something is drawn. Where the output is no terminal,
    a line is written at the end of each epoch and every 10 s.

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
        self._open: list[Phase] = []
        self._lines: PlainLines | None = None
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
    def open_bar(self, phase: Phase, description: str, total: int | None, count: int) -> None:
        """Show a bar, or start the one that is there anew; `total` is None if unknown."""

    @abstractmethod
    def draw_bar(self, phase: Phase, count: int, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` those that were drawn last stay."""

    @abstractmethod
    def close_bar(self, phase: Phase) -> None:
        """Close a bar; one inside another and that of the sanity check leave no trace."""

    @abstractmethod
    def write(self, text: str) -> None:
        """Write text above the bars."""

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
        self._close_all()
        super().disable()

    def print(
        self,
        *args: object,
        sep: str = " ",
        end: str = "\n",
        file: TextIO | None = None,
        flush: bool = False,
    ) -> None:
        """Print as the builtin does, without tearing the bar."""
        if self._open and self._lines is None and file in {None, sys.stdout}:
            self.write(sep.join(map(str, args)) + end)
        else:
            super().print(*args, sep=sep, end=end, file=file, flush=flush)

    # --- Hooks

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close what a run left open that never came to its teardown."""
        self._close_all()
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
            self._begin_epoch(trainer)

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
        if self._lines is None and self._train.drawn != self._train.count:
            self._draw_train(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the metrics of the epoch, unless one on a terminal was drawn just now."""
        if self._lines is not None or self._leave or self._train.is_time:
            self._draw_train(trainer, module)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        if Phase.TRAIN in self._open:
            if self._lines is None:
                self._draw_train(trainer, module)
            self._close(Phase.TRAIN, self._train)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a validation, below that of the training if there is one."""
        if not trainer.sanity_checking:
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
        self._close_all()

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close what is open, whatever ended the run."""
        self._close_all()

    # --- The bars that are open

    @property
    def _canvas(self) -> DrawnProgressBar | PlainLines:
        return self if self._lines is None else self._lines

    def _begin_epoch(self, trainer: Trainer) -> None:
        done = trainer.progress.batches_in_epoch
        self._begin(
            Phase.TRAIN, self._train, self.train_description, self.total_train_batches, done
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
        self._begin(self._phase, self._evaluation, self._description + which, total, 0)

    def _begin(
        self, phase: Phase, pace: Pace, description: str, total: int | float, count: int
    ) -> None:
        if self.is_disabled:
            return
        if not self._open:  # what is written to may be another one than in the last run
            self._lines = None if self.is_terminal() else PlainLines()
        known = None if math.isinf(total) else int(total)
        self._canvas.open_bar(phase, description, known, count)
        if phase not in self._open:
            self._open.append(phase)
        pace.start(count, known, self._refresh_rate, is_terminal=self._lines is None)

    def _count_evaluated(self, batch_idx: int, dataloader_idx: int) -> None:
        if dataloader_idx != self._dataloader_idx:
            self._begin_loader(dataloader_idx)
        if self._evaluation.is_due(batch_idx + 1):
            self._draw(self._phase, self._evaluation, None)

    def _end_evaluation(self, trainer: Trainer, module: Module, phase: Phase) -> None:
        if phase not in self._open:
            return
        if self._open == [phase] and phase is not Phase.SANITY:
            has_metrics = phase is not Phase.PREDICT
            metrics = self.get_metrics(trainer, module) if has_metrics else None
            self._draw(phase, self._evaluation, metrics)
        self._close(phase, self._evaluation)

    def _draw_train(self, trainer: Trainer, module: Module) -> None:
        if Phase.TRAIN in self._open:
            self._draw(Phase.TRAIN, self._train, self.get_metrics(trainer, module))

    def _draw(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        self._canvas.draw_bar(phase, pace.count, metrics)
        pace.note_drawing()

    def _close(self, phase: Phase, pace: Pace) -> None:
        self._open.remove(phase)
        pace.stop()
        self._canvas.close_bar(phase)

    def _close_all(self) -> None:
        for phase in reversed(list(self._open)):
            pace = self._train if phase is Phase.TRAIN else self._evaluation
            try:
                self._draw(phase, pace, None)
            finally:
                self._close(phase, pace)
