"""Display: which bars are open at which moment of a run, whatever they are drawn with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from trainer_hooks.callbacks.progress.bar_drawing import Phase
from trainer_hooks.callbacks.progress.open_bars import OpenBars
from trainer_hooks.callbacks.progress.pace import Pace
from trainer_hooks.callbacks.progress.run_length import RunTime, last_batch
from trainer_hooks.clock import EpochStage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.callbacks.progress.open_bars import Canvas
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["Display", "DrawnBar"]


class DrawnBar(Protocol):
    """A progress bar, as its display sees it."""

    display: Display

    @property
    def is_enabled(self) -> bool:
        """Whether it is shown."""

    @property
    def sanity_check_description(self) -> str:
        """What stands before the bar of the sanity check."""

    @property
    def train_description(self) -> str:
        """What stands before the bar of an epoch."""

    @property
    def validation_description(self) -> str:
        """What stands before the bar of a validation."""

    @property
    def test_description(self) -> str:
        """What stands before the bar of a test."""

    @property
    def predict_description(self) -> str:
        """What stands before the bar of a prediction."""

    @property
    def total_train_batches(self) -> int | float:
        """The training batches of an epoch."""

    def get_metrics(self, trainer: Trainer, module: Module) -> dict[str, int | str | float]:
        """Return what is shown beside the bar."""

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Return whether another loader is in use since this was asked last."""

    def reset_dataloader_idx_tracker(self) -> None:
        """Forget which loader was in use."""


class Display:
    """Open, draw and close a bar for each phase on a canvas.

    A batch at which nothing is drawn costs a fraction of a microsecond: metrics, which must be
    copied from the device, are read only when something is drawn. Drawing takes at most 5% of the
    time, however slow the terminal is. Where the output is no terminal, a line is written at the
    end of each epoch and every 10 s. What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch. Where the run ends inside
    an epoch, so does its bar; where it has more epochs, the time left of all of it is shown too.

    Args:
        bar: says what is shown, and whether.
        canvas: what to draw on.
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.

    Attributes:
        refresh_rate: as given.
    """

    def __init__(self, bar: DrawnBar, canvas: Canvas, refresh_rate: int, leave: bool) -> None:
        self._bar = bar
        self.refresh_rate, self._leave = refresh_rate, leave
        self._bars = OpenBars(canvas)
        self._train = Pace()
        self._evaluation = Pace()
        self._run = RunTime()
        self._phase = Phase.VALIDATION
        self._description = ""
        self._totals: Sequence[int | float] = ()

    def is_written(self, phase: Phase) -> bool:
        """Return whether lines are written in place of a bar that is open."""
        return self._bars.are_lines and phase in self._bars.paces

    def close_all(self) -> None:
        """Draw how far each bar that is open came, and close it."""
        self._bars.close_all()

    # --- Training

    def go_on_inside(self, trainer: Trainer) -> None:
        """Open the bar where a run is resumed inside an epoch, whose start is not told again."""
        self._run.start(trainer)
        if trainer.progress.stage in {EpochStage.BATCHES, EpochStage.CLOSING}:
            self.begin_epoch(trainer, is_resumed=True)

    def begin_epoch(self, trainer: Trainer, is_resumed: bool = False) -> None:
        """Open the bar of an epoch."""
        bar, done = self._bar, trainer.progress.batches_in_epoch
        if bar.is_enabled:
            self._bars.begin(
                Phase.TRAIN,
                self._train,
                bar.train_description,
                min(bar.total_train_batches, last_batch(trainer)),
                done,
                self.refresh_rate,
                is_resumed,
            )

    def count_trained(self, trainer: Trainer, module: Module, batch_idx: int) -> None:
        """Draw, if it is time."""
        if self._train.is_due(batch_idx + 1):
            self._draw_train(trainer, module)

    def end_batches(self, trainer: Trainer, module: Module) -> None:
        """Draw the last batch, if it could not be known that it would be the last."""
        self._train.pause()
        if not self._bars.are_lines and self._train.drawn != self._train.count:
            self._draw_train(trainer, module)

    def end_epoch(self, trainer: Trainer, module: Module) -> None:
        """Draw the metrics of the epoch, unless one on a terminal was drawn just now."""
        if self._bars.are_lines or self._leave or self._train.is_time:
            self._draw_train(trainer, module)

    def end_training(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        if Phase.TRAIN in self._bars.paces:
            if not self._bars.are_lines:
                self._draw_train(trainer, module)
            self._bars.close(Phase.TRAIN)

    # --- Evaluation

    def begin_validation(self, trainer: Trainer) -> None:
        """Open the bar of a validation, below that of the training if there is one."""
        if not trainer.sanity_checking:
            self._train.pause()
            description, totals = self._bar.validation_description, trainer.num_val_batches
            self.begin(Phase.VALIDATION, description, totals)

    def end_validation(self, trainer: Trainer, module: Module) -> None:
        """Close the bar of a validation."""
        if not trainer.sanity_checking:
            self.end(trainer, module, Phase.VALIDATION)
            if trainer.progress.stage is EpochStage.BATCHES:
                self._train.go_on()

    def begin(self, phase: Phase, description: str, totals: Sequence[int | float]) -> None:
        """Open the bar of an evaluation, of loaders that have so many batches."""
        self._phase, self._description, self._totals = phase, description, totals
        self._bar.reset_dataloader_idx_tracker()
        if totals:
            self._bar.has_dataloader_changed(0)
            self._begin_loader(0)

    def count(self, batch_idx: int, dataloader_idx: int) -> None:
        """Draw, if it is time."""
        if self._bar.has_dataloader_changed(dataloader_idx):
            self._begin_loader(dataloader_idx)
        if self._evaluation.is_due(batch_idx + 1):
            self._bars.draw(self._phase, None)

    def end(self, trainer: Trainer, module: Module, phase: Phase) -> None:
        """Draw the last state and close the bar; that of the sanity check leaves no trace."""
        if phase not in self._bars.paces:
            return
        if len(self._bars.paces) == 1 and phase is not Phase.SANITY:
            has_metrics = phase is not Phase.PREDICT
            self._bars.draw(phase, self._bar.get_metrics(trainer, module) if has_metrics else None)
        self._bars.close(phase)

    def _begin_loader(self, dataloader_idx: int) -> None:
        which = f" DataLoader {dataloader_idx}" if len(self._totals) > 1 else ""
        total = self._totals[dataloader_idx]
        if self._bar.is_enabled:
            self._bars.begin(
                self._phase,
                self._evaluation,
                self._description + which,
                total,
                every=self.refresh_rate,
            )

    def _draw_train(self, trainer: Trainer, module: Module) -> None:
        if Phase.TRAIN in self._bars.paces:
            if self._train.total is not None and self._train.count > self._train.total:
                # steps were left out, so that it takes more batches
                self._train.total = int(min(self._bar.total_train_batches, last_batch(trainer)))
            self._train.run_left = self._run.left(trainer)
            self._bars.draw(Phase.TRAIN, self._bar.get_metrics(trainer, module))
