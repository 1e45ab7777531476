"""TQDMProgressBar: progress drawn with tqdm."""

from __future__ import annotations

import sys
from functools import cache
from time import time
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.bar_drawing import Phase, format_metrics, whole_number
from trainer_hooks.callbacks.drawn_progress_bar import DrawnProgressBar
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tqdm import tqdm

__all__ = ["TQDMProgressBar"]


class TQDMProgressBar(DrawnProgressBar):
    """Show progress with tqdm: a bar for training, below it one for validation.

    To change how a bar looks, override the `init_*_tqdm` method that makes it.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        process_position: how many lines lower the bars start, for several runs on one screen.
        leave: whether the bar of each epoch stays on the screen.

    Raises:
        CallbackError: a number is no whole number from 0 on.

    Example::

        class Wide(TQDMProgressBar):
            def init_train_tqdm(self):
                bar = super().init_train_tqdm()
                bar.ncols = 120
                return bar

        trainer = Trainer(callbacks=[Wide(leave=True)])
    """

    def __init__(
        self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False
    ) -> None:
        super().__init__(refresh_rate, leave)
        self._process_position = whole_number("process_position", process_position, type(self))
        self._bars: dict[Phase, tqdm[Any]] = {}

    @property
    def process_position(self) -> int:
        """Return how many runs stand above this one on the screen."""
        return self._process_position

    def init_sanity_tqdm(self) -> tqdm[Any]:
        """Return the bar of the sanity check."""
        return self._new_bar(self.sanity_check_description, leave=False)

    def init_train_tqdm(self) -> tqdm[Any]:
        """Return the bar of an epoch."""
        return self._new_bar(self.train_description, leave=True)

    def init_validation_tqdm(self) -> tqdm[Any]:
        """Return the bar of a validation: below that of the epoch if there is one."""
        is_nested = Phase.TRAIN in self._bars
        return self._new_bar(self.validation_description, leave=not is_nested, below=is_nested)

    def init_test_tqdm(self) -> tqdm[Any]:
        """Return the bar of a test."""
        return self._new_bar(self.test_description, leave=True)

    def init_predict_tqdm(self) -> tqdm[Any]:
        """Return the bar of a prediction."""
        return self._new_bar(self.predict_description, leave=True)

    @property
    def train_progress_bar(self) -> tqdm[Any]:
        """Return the bar of the epoch under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.TRAIN)

    @property
    def val_progress_bar(self) -> tqdm[Any]:
        """Return the bar of the validation or sanity check under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.SANITY if Phase.SANITY in self._bars else Phase.VALIDATION)

    @property
    def test_progress_bar(self) -> tqdm[Any]:
        """Return the bar of the test under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.TEST)

    @property
    def predict_progress_bar(self) -> tqdm[Any]:
        """Return the bar of the prediction under way.

        Raises:
            UsageError: it is not open.
        """
        return self._opened(Phase.PREDICT)

    def is_terminal(self) -> bool:
        """Return whether the standard output is a terminal."""
        ask = getattr(sys.stdout, "isatty", None)  # what stands in for stdout may not have it
        return ask is not None and bool(ask())

    def open_bar(self, phase: Phase, description: str, total: int | None, count: int) -> None:
        """Show a bar, or start the one that is there anew."""
        if phase is Phase.TRAIN and self._leave and phase in self._bars:
            self.close_bar(phase)
        is_new = phase not in self._bars
        if is_new:
            self._bars[phase] = self._init_bar(phase)
        bar = self._bars[phase]
        bar.total = total
        bar.n = bar.initial = bar.last_print_n = count
        bar.start_t = bar.last_print_t = time()
        bar.set_description(description, refresh=False)
        if is_new:
            bar.refresh()

    def draw_bar(self, phase: Phase, count: int, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar."""
        bar = self._bars[phase]
        bar.n = count
        if metrics is not None:
            bar.set_postfix_str(format_metrics(metrics), refresh=False)
        bar.refresh()

    def close_bar(self, phase: Phase) -> None:
        """Close a bar."""
        self._bars.pop(phase).close()

    def write(self, text: str) -> None:
        """Write text above the bars."""
        _bar_class().write(text, file=sys.stdout, end="")

    def _init_bar(self, phase: Phase) -> tqdm[Any]:
        return {
            Phase.SANITY: self.init_sanity_tqdm,
            Phase.TRAIN: self.init_train_tqdm,
            Phase.VALIDATION: self.init_validation_tqdm,
            Phase.TEST: self.init_test_tqdm,
            Phase.PREDICT: self.init_predict_tqdm,
        }[phase]()

    def _new_bar(self, description: str, leave: bool, below: bool = False) -> tqdm[Any]:
        return _bar_class()(
            desc=description,
            position=2 * self._process_position + below,
            leave=leave,
            dynamic_ncols=True,
            file=sys.stdout,
        )

    def _opened(self, phase: Phase) -> tqdm[Any]:
        if phase not in self._bars:
            raise UsageError(
                f"{phase} bar of {type(self).__qualname__}: is open only while there is something "
                "to count on a terminal. Ask for it in a hook of that phase."
            )
        return self._bars[phase]


@cache
def _bar_class() -> type[tqdm[Any]]:
    """Return tqdm without its monitor: a thread would be in the way of workers that are forked."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    return Bar
