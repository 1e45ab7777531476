"""TQDMProgressBar: progress drawn with tqdm."""

from __future__ import annotations

import os
import sys
from time import time
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callbacks.progress.bar_drawing import Phase, format_metrics, whole_number
from trainer_hooks.callbacks.progress.drawn_progress_bar import DrawnProgressBar
from trainer_hooks.callbacks.progress.notebook import is_notebook, shows_widgets
from trainer_hooks.callbacks.progress.streams import is_terminal
from trainer_hooks.callbacks.progress.tqdm_classes import bar_class
from trainer_hooks.errors import CallbackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from tqdm import tqdm

    from trainer_hooks.callbacks.progress.pace import Pace

__all__ = ["TQDMProgressBar"]

_RATE_IN_COLAB = 20


class TQDMProgressBar(DrawnProgressBar):
    """Show progress with tqdm: a bar for training, below it one for validation.

    To change how a bar looks, override the `init_*_tqdm` method that makes it, or `BAR_FORMAT`; to
    change the metrics beside it, override `get_metrics`. A description that an `init_*_tqdm` method
    gives its bar stays. In a notebook with ipywidgets the bars are widgets.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    What is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor what a resumed run skips before its first batch.

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

    def __init__(
        self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False
    ) -> None:
        super().__init__(refresh_rate, leave)
        self._refresh_rate = _resolved(self._refresh_rate, type(self))
        self._process_position = whole_number("process_position", process_position, type(self))
        self._drawn: dict[Phase, tqdm[Any]] = {}
        self._own: dict[Phase, str] = {}
        self._standard = ""
        self._file: TextIO | None = None

    @property
    def process_position(self) -> int:
        """Return how many runs stand above this one on the screen."""
        return self._process_position

    # --- What makes the bars

    def init_sanity_tqdm(self) -> tqdm[Any]:
        """Return the bar of the sanity check."""
        return self._new_bar(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> tqdm[Any]:
        """Return the bar of an epoch."""
        return self._new_bar(self.train_description, leave=True)

    def init_validation_tqdm(self) -> tqdm[Any]:
        """Return the bar of a validation: below that of the epoch if there is one."""
        is_nested = Phase.TRAIN in self._drawn
        return self._new_bar(self.validation_description, leave=not is_nested, below=is_nested)

    def init_test_tqdm(self) -> tqdm[Any]:
        """Return the bar of a test."""
        return self._new_bar(self.test_description, leave=True)

    def init_predict_tqdm(self) -> tqdm[Any]:
        """Return the bar of a prediction."""
        return self._new_bar(self.predict_description, leave=True)

    # --- The bars

    @property
    def train_progress_bar(self) -> tqdm[Any]:
        """The bar of the epoch under way; one that is not shown, where no bars are.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.TRAIN)

    @train_progress_bar.setter
    def train_progress_bar(self, bar: tqdm[Any]) -> None:
        self._drawn[Phase.TRAIN] = bar

    @property
    def main_progress_bar(self) -> tqdm[Any]:
        """What `train_progress_bar` was called in Lightning 1."""
        return self.train_progress_bar

    @main_progress_bar.setter
    def main_progress_bar(self, bar: tqdm[Any]) -> None:
        self.train_progress_bar = bar

    @property
    def val_progress_bar(self) -> tqdm[Any]:
        """The bar of the validation or sanity check under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(self._validated)

    @val_progress_bar.setter
    def val_progress_bar(self, bar: tqdm[Any]) -> None:
        self._drawn[self._validated] = bar

    @property
    def test_progress_bar(self) -> tqdm[Any]:
        """The bar of the test under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.TEST)

    @test_progress_bar.setter
    def test_progress_bar(self, bar: tqdm[Any]) -> None:
        self._drawn[Phase.TEST] = bar

    @property
    def predict_progress_bar(self) -> tqdm[Any]:
        """The bar of the prediction under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.PREDICT)

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: tqdm[Any]) -> None:
        self._drawn[Phase.PREDICT] = bar

    # --- What is drawn

    def is_terminal(self) -> bool:
        """Return whether the standard output is a terminal, or a notebook."""
        return is_notebook() or is_terminal(sys.stdout)

    def stream(self) -> TextIO | None:
        """Return the standard output, unless the bars are widgets."""
        self._file = sys.stdout
        return None if shows_widgets() else sys.stdout

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or start the one that is there anew."""
        if phase is Phase.TRAIN and self._leave and phase in self._drawn:
            self.close_bar(phase)
        is_new = phase not in self._drawn
        if is_new:
            self._drawn[phase] = self._init_bar(phase)
            self._own[phase] = self._own_description(self._drawn[phase])
        bar = self._drawn[phase]
        if not bar.disable and hasattr(bar, "container"):
            bar.reset(pace.total)  # a widget has to be told
        bar.total = pace.total
        if getattr(bar, "bar_format", None) in {self.BAR_FORMAT, self._endless_format}:
            is_endless = pace.total is None
            bar.bar_format = self._endless_format if is_endless else self.BAR_FORMAT
        bar.n = bar.last_print_n = pace.count
        own = self._own.get(phase)
        _, which, index = description.rpartition(" DataLoader ")
        bar.set_description(own + which + (which and index) if own else description, refresh=False)
        self._set_clock(bar, pace)
        if is_new:
            bar.refresh()

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar."""
        bar = self._drawn[phase]
        bar.n = pace.count
        self._set_clock(bar, pace)
        if metrics is not None:
            bar.set_postfix_str(format_metrics(metrics), refresh=False)
        bar.refresh()

    def close_bar(self, phase: Phase) -> None:
        """Close a bar."""
        self._drawn.pop(phase).close()
        if not self._drawn:
            self._file = None  # the next run may have another

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""
        with bar_class().external_write_mode(file=sys.stdout):
            stream.write(text)
            stream.flush()

    @staticmethod
    def _set_clock(bar: tqdm[Any], pace: Pace) -> None:
        """Let tqdm compute the rate and the time left from the time that the batches took."""
        bar.initial = pace.first
        bar.last_print_t = time()  # tqdm takes one that was never drawn for one that is not there
        bar.start_t = bar.last_print_t - pace.seconds

    def _own_description(self, bar: tqdm[Any]) -> str:
        """Return the description that an overridden method gave its bar."""
        given = str(getattr(bar, "desc", "")).removesuffix(": ")  # a disabled one has none
        return "" if given == self._standard else given

    def _init_bar(self, phase: Phase) -> tqdm[Any]:
        return {
            Phase.SANITY: self.init_sanity_tqdm,
            Phase.TRAIN: self.init_train_tqdm,
            Phase.VALIDATION: self.init_validation_tqdm,
            Phase.TEST: self.init_test_tqdm,
            Phase.PREDICT: self.init_predict_tqdm,
        }[phase]()

    def _new_bar(self, description: str, leave: bool, below: bool = False) -> tqdm[Any]:
        self._standard = description
        return bar_class()(
            desc=description,
            position=2 * self._process_position + below,
            leave=leave,
            dynamic_ncols=True,
            file=self._file or sys.stdout,
            bar_format=self.BAR_FORMAT,
        )

    @property
    def _endless_format(self) -> str:
        """How a bar is composed where nobody knows the time left: tqdm would say that it is 0."""
        return self.BAR_FORMAT.replace("<{remaining}", "")

    @property
    def _validated(self) -> Phase:
        return Phase.SANITY if self.trainer.sanity_checking else Phase.VALIDATION

    def _opened(self, phase: Phase) -> tqdm[Any]:
        if phase in self._drawn:
            return self._drawn[phase]
        if self.is_disabled or (self._bars.are_lines and phase in self._bars.paces):
            # so that what describes its bar in a hook can do so on every process, and in a log
            return bar_class()(disable=True)
        raise UsageError(
            f"{phase} bar of {type(self).__qualname__}: is open only while there is something to "
            "count. Ask for it in a hook of that phase."
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
