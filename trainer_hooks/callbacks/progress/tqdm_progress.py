"""TQDMProgressBar: progress drawn with tqdm."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callbacks.progress import display_hooks
from trainer_hooks.callbacks.progress.bar_drawing import Phase, whole_number
from trainer_hooks.callbacks.progress.display import Display
from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.callbacks.progress.tqdm_canvas import TqdmCanvas
from trainer_hooks.callbacks.progress.tqdm_classes import bar_class
from trainer_hooks.errors import CallbackError, UsageError

if TYPE_CHECKING:
    from tqdm import tqdm

__all__ = ["TQDMProgressBar"]

_RATE_IN_COLAB = 20


class TQDMProgressBar(ProgressBar):
    """Show progress with tqdm: a bar for training, below it one for validation.

    To change how a bar looks, override the `init_*_tqdm` method that makes it, or `BAR_FORMAT`; to
    change the metrics beside it, override `get_metrics`. A description that an `init_*_tqdm` method
    gives its bar stays. In a notebook with ipywidgets the bars are widgets.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch. Where the run ends inside
    an epoch, so does its bar. Where more than the epoch is to come, `run<1:02:03` is the time left
    of all of it, validations included, at the pace so far.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
            The environment variable `TQDM_MINITERS` makes it larger; in Colab 1 stands for 20.
        process_position: how many lines lower the bars start, for several runs on one screen.
        leave: whether the bar of each epoch stays on the screen.

    Attributes:
        BAR_FORMAT: how bars are composed, as tqdm's `bar_format`.

    Raises:
        CallbackError: a number is no whole number from 0 on.

    Example::

        class Wide(TQDMProgressBar):
            def init_train_tqdm(self):
                bar = super().init_train_tqdm()
                bar.ncols = 120
                return bar

            def get_metrics(self, trainer, module):
                metrics = super().get_metrics(trainer, module)
                metrics.pop("v_num", None)
                return metrics

        trainer = Trainer(max_epochs=2, callbacks=[Wide(leave=True)])
        trainer.fit(module, train_loader, val_loader)
    """

    BAR_FORMAT: ClassVar[str] = (
        "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
    )

    on_sanity_check_start = display_hooks.on_sanity_check_start
    on_sanity_check_end = display_hooks.on_sanity_check_end
    on_train_start = display_hooks.on_train_start
    on_train_epoch_start = display_hooks.on_train_epoch_start
    on_train_batch_end = display_hooks.on_train_batch_end
    on_train_batches_end = display_hooks.on_train_batches_end
    on_train_epoch_end = display_hooks.on_train_epoch_end
    on_train_end = display_hooks.on_train_end
    on_validation_start = display_hooks.on_validation_start
    on_validation_end = display_hooks.on_validation_end
    on_test_start = display_hooks.on_test_start
    on_test_end = display_hooks.on_test_end
    on_predict_start = display_hooks.on_predict_start
    on_predict_end = display_hooks.on_predict_end
    on_exception = display_hooks.on_exception
    teardown = display_hooks.teardown

    def __init__(
        self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False
    ) -> None:
        super().__init__()
        kind = type(self)
        refresh_rate = _resolved(whole_number("refresh_rate", refresh_rate, kind), kind)
        self._process_position = whole_number("process_position", process_position, kind)
        self.canvas = TqdmCanvas(self, 2 * self._process_position, leave)
        self.display: Display = Display(self, self.canvas, refresh_rate, leave)

    @property
    def refresh_rate(self) -> int:
        """Return how many batches pass between two drawings, at least."""
        return self.display.refresh_rate

    @property
    def process_position(self) -> int:
        """Return how many runs stand above this one on the screen."""
        return self._process_position

    # --- What makes the bars

    def init_sanity_tqdm(self) -> tqdm[Any]:
        """Return the bar of the sanity check."""
        return self.canvas.new_bar(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> tqdm[Any]:
        """Return the bar of an epoch."""
        return self.canvas.new_bar(self.train_description, leave=True)

    def init_validation_tqdm(self) -> tqdm[Any]:
        """Return the bar of a validation: below that of the epoch if there is one."""
        is_nested = Phase.TRAIN in self.canvas.drawn
        return self.canvas.new_bar(
            self.validation_description, leave=not is_nested, below=is_nested
        )

    def init_test_tqdm(self) -> tqdm[Any]:
        """Return the bar of a test."""
        return self.canvas.new_bar(self.test_description, leave=True)

    def init_predict_tqdm(self) -> tqdm[Any]:
        """Return the bar of a prediction."""
        return self.canvas.new_bar(self.predict_description, leave=True)

    # --- The bars

    @property
    def train_progress_bar(self) -> tqdm[Any]:
        """The bar of the epoch under way, or the last one; one not shown, where no bars are.

        Raises:
            UsageError: there was none yet.
        """
        return self._opened(Phase.TRAIN)

    @train_progress_bar.setter
    def train_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.TRAIN] = bar

    @property
    def main_progress_bar(self) -> tqdm[Any]:
        """What `train_progress_bar` was called in Lightning 1."""
        return self.train_progress_bar

    @main_progress_bar.setter
    def main_progress_bar(self, bar: tqdm[Any]) -> None:
        self.train_progress_bar = bar

    @property
    def val_progress_bar(self) -> tqdm[Any]:
        """The bar of the validation or sanity check under way, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._opened(self._validated)

    @val_progress_bar.setter
    def val_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[self._validated] = bar

    @property
    def test_progress_bar(self) -> tqdm[Any]:
        """The bar of the test under way, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._opened(Phase.TEST)

    @test_progress_bar.setter
    def test_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.TEST] = bar

    @property
    def predict_progress_bar(self) -> tqdm[Any]:
        """The bar of the prediction under way, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._opened(Phase.PREDICT)

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.PREDICT] = bar

    @property
    def _validated(self) -> Phase:
        return Phase.SANITY if self.trainer.sanity_checking else Phase.VALIDATION

    def _opened(self, phase: Phase) -> tqdm[Any]:
        if phase in self.canvas.drawn:
            return self.canvas.drawn[phase]
        if self.is_disabled or self.display.is_written(phase):
            # so that what describes its bar in a hook can do so on every process, and in a log
            return bar_class()(disable=True)
        if phase in self.canvas.closed:
            return self.canvas.closed[phase]
        if self._trainer is not None and not self.canvas.is_terminal():
            return bar_class()(disable=True)  # lines were written
        raise UsageError(
            f"{phase} bar of {type(self).__qualname__}: there was none yet, as it opens when there "
            "is something to count. Ask for it in a hook of that phase, or later."
        )


def _resolved(refresh_rate: int, owner: type) -> int:
    """Return the refresh rate that the environment makes of the one that was given."""
    if refresh_rate == 1 and os.environ.get("COLAB_JUPYTER_IP"):
        return _RATE_IN_COLAB
    least = os.environ.get("TQDM_MINITERS")
    if least is None or refresh_rate == 0:
        return refresh_rate
    if not least.isdecimal():
        raise CallbackError(
            f"TQDM_MINITERS {least!r} in the environment of {owner.__qualname__}: must be a whole "
            "number from 0 on. Correct the variable or take it out."
        )
    return max(int(least), refresh_rate)
