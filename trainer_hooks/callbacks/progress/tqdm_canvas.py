"""TqdmCanvas: bars of tqdm."""

from __future__ import annotations

import sys
from time import time
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from trainer_hooks.callbacks.progress.bar_drawing import Phase, format_metrics, run_of
from trainer_hooks.callbacks.progress.notebook import is_notebook, shows_widgets
from trainer_hooks.callbacks.progress.streams import is_terminal
from trainer_hooks.callbacks.progress.tqdm_classes import bar_class

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from tqdm import tqdm

    from trainer_hooks.callbacks.progress.pace import Pace

__all__ = ["TqdmCanvas", "TqdmMaker"]


class TqdmMaker(Protocol):
    """What makes the bars: its methods may be overridden."""

    BAR_FORMAT: ClassVar[str]

    def init_sanity_tqdm(self) -> tqdm[Any]:
        """Return the bar of the sanity check."""

    def init_train_tqdm(self) -> tqdm[Any]:
        """Return the bar of an epoch."""

    def init_validation_tqdm(self) -> tqdm[Any]:
        """Return the bar of a validation."""

    def init_test_tqdm(self) -> tqdm[Any]:
        """Return the bar of a test."""

    def init_predict_tqdm(self) -> tqdm[Any]:
        """Return the bar of a prediction."""


class TqdmCanvas:
    """Draw bars with tqdm.

    Args:
        maker: makes them.
        position: how many lines lower they start.
        leave: whether the bar of each epoch stays on the screen.

    Attributes:
        drawn: the bars that are open.
        closed: those that were closed last, as they were then.
    """

    def __init__(self, maker: TqdmMaker, position: int, leave: bool) -> None:
        self._maker, self._position, self._leave = maker, position, leave
        self.drawn: dict[Phase, tqdm[Any]] = {}
        self.closed: dict[Phase, tqdm[Any]] = {}
        self._own: dict[Phase, str] = {}
        self._standard = ""
        self._file: TextIO | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the bars, which are a terminal's, out of copies and pickles."""
        return {**vars(self), "drawn": {}, "closed": {}, "_file": None}

    def new_bar(self, description: str, leave: bool, below: bool = False) -> tqdm[Any]:
        """Return a bar as it is unless a method that makes one is overridden."""
        self._standard = description
        return bar_class()(
            desc=description,
            position=self._position + below,
            leave=leave,
            dynamic_ncols=True,
            file=self._file or sys.stdout,
            bar_format=self._maker.BAR_FORMAT,
        )

    def is_terminal(self) -> bool:
        """Return whether the standard output is a terminal, or a notebook."""
        return is_notebook() or is_terminal(sys.stdout)

    def stream(self) -> TextIO | None:
        """Return the standard output, unless the bars are widgets."""
        self._file = sys.stdout
        return None if shows_widgets() else sys.stdout

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or start the one that is there anew."""
        if phase is Phase.TRAIN and self._leave and phase in self.drawn:
            self.close_bar(phase)
        is_new = phase not in self.drawn
        if is_new:
            self.drawn[phase] = self._init_bar(phase)
            self._own[phase] = self._own_description(self.drawn[phase], description)
        bar = self.drawn[phase]
        if not bar.disable and hasattr(bar, "container"):
            bar.reset(pace.total)  # a widget has to be told
        bar.total = pace.total
        if getattr(bar, "bar_format", None) in {self._maker.BAR_FORMAT, self._endless_format}:
            is_endless = pace.total is None
            bar.bar_format = self._endless_format if is_endless else self._maker.BAR_FORMAT
        bar.n = bar.last_print_n = pace.count
        own = self._own.get(phase)
        _, which, index = description.rpartition(" DataLoader ")
        bar.set_description(own + which + (which and index) if own else description, refresh=False)
        _set_clock(bar, pace)
        if is_new:
            bar.refresh()

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` those that were drawn last stay."""
        bar = self.drawn[phase]
        bar.n, bar.total = pace.count, pace.total
        _set_clock(bar, pace)
        if metrics is not None:
            shown = (run_of(pace), format_metrics(metrics))
            bar.set_postfix_str(", ".join(filter(None, shown)), refresh=False)
        bar.refresh()

    def close_bar(self, phase: Phase) -> None:
        """Close a bar."""
        self.closed[phase] = self.drawn.pop(phase)
        self.closed[phase].close()
        if not self.drawn:
            self._file = None  # the next run may have another

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""
        with bar_class().external_write_mode(file=sys.stdout):
            stream.write(text)
            stream.flush()

    def _own_description(self, bar: tqdm[Any], description: str) -> str:
        """Return the description that an overridden method gave its bar, if it is not ours."""
        given = str(getattr(bar, "desc", "")).removesuffix(": ")  # a disabled one has none
        ours = description.rpartition(" DataLoader ")[0] or description
        return "" if given in {self._standard, ours} else given

    def _init_bar(self, phase: Phase) -> tqdm[Any]:
        return {
            Phase.SANITY: self._maker.init_sanity_tqdm,
            Phase.TRAIN: self._maker.init_train_tqdm,
            Phase.VALIDATION: self._maker.init_validation_tqdm,
            Phase.TEST: self._maker.init_test_tqdm,
            Phase.PREDICT: self._maker.init_predict_tqdm,
        }[phase]()

    @property
    def _endless_format(self) -> str:
        """How a bar is composed where nobody knows the time left: tqdm would say that it is 0."""
        return self._maker.BAR_FORMAT.replace("<{remaining}", "")


def _set_clock(bar: tqdm[Any], pace: Pace) -> None:
    """Let tqdm compute the rate and the time left from the time that the batches took."""
    bar.initial = pace.first
    bar.last_print_t = time()  # tqdm takes one that was never drawn for one that is not there
    bar.start_t = bar.last_print_t - pace.seconds
