"""TQDMProgressBar: a progress bar drawn with tqdm, also as a notebook widget."""

from __future__ import annotations

import importlib.util
import os
import sys
from functools import cache
from time import time
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks._options import answers_keywords
from trainer_hooks._output import is_terminal
from trainer_hooks.callbacks.progress.display import (
    DisplayedProgressBar,
    Phase,
    check_whole_number,
    format_metrics,
    run_of,
)
from trainer_hooks.errors import CallbackError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from tqdm import tqdm

    from trainer_hooks.callbacks.progress.display import Pace

# drawing more often can crash the page of Colab; Lightning has the same number
_RATE_IN_COLAB = 20


class TQDMProgressBar(DisplayedProgressBar):
    """Show progress with tqdm: a bar for training, below it one for validation.

    To change the looks of a bar, override the `init_*_tqdm` method that makes it, or `BAR_FORMAT`;
    to change the metrics beside it, override `get_metrics`. A description that an `init_*_tqdm`
    method gives its bar stays. In a notebook with ipywidgets the bars are widgets.

    A bar is drawn at most ten times a second, and less often where drawing takes more than 5% of
    the time. Without a terminal, plain lines are written: at the end of each epoch, and every 10 s.
    Text that is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor the batches that a resumed run skips first. Where the run ends inside
    an epoch, so does its bar. Where the run has more epochs, `run<1:02:03` is the time left of the
    whole run, validations included, at the pace so far.

    Args:
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
            The environment variable `TQDM_MINITERS` makes it larger; in Colab 1 stands for 20.
        process_position: the number of runs above this one, for several runs on one screen.
        leave: whether the bar of each epoch stays on the screen.

    Attributes:
        BAR_FORMAT: the format of the bars, as tqdm's `bar_format`.

    Raises:
        CallbackError: a number is no integer of at least 0.

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

    @answers_keywords
    def __init__(
        self, refresh_rate: int = 1, process_position: int = 0, leave: bool = False
    ) -> None:
        kind = type(self)
        check_whole_number("refresh_rate", refresh_rate, kind)
        check_whole_number("process_position", process_position, kind)
        self._process_position = process_position
        # before the base class: the canvas keeps this object and calls it when a bar is opened;
        # each run takes two lines, for training and for validation
        self.canvas = TqdmCanvas(self, 2 * process_position, leave)
        super().__init__(self.canvas, _adapted_refresh_rate(refresh_rate, kind), leave)

    @property
    def process_position(self) -> int:
        """Return the number of runs above this one on the screen."""
        return self._process_position

    # --- Methods that make the bars, to override

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
        """The bar of the running epoch, or of the last one; a disabled bar where no bars are drawn.

        Raises:
            UsageError: there was none yet.
        """
        return self._bar_of(Phase.TRAIN)

    @train_progress_bar.setter
    def train_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.TRAIN] = bar

    @property
    def main_progress_bar(self) -> tqdm[Any]:
        """The name of `train_progress_bar` in Lightning 1."""
        return self.train_progress_bar

    @main_progress_bar.setter
    def main_progress_bar(self, bar: tqdm[Any]) -> None:
        self.train_progress_bar = bar

    @property
    def val_progress_bar(self) -> tqdm[Any]:
        """The bar of the running validation or sanity check, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._bar_of(self._validation_phase)

    @val_progress_bar.setter
    def val_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[self._validation_phase] = bar

    @property
    def test_progress_bar(self) -> tqdm[Any]:
        """The bar of the running test, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._bar_of(Phase.TEST)

    @test_progress_bar.setter
    def test_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.TEST] = bar

    @property
    def predict_progress_bar(self) -> tqdm[Any]:
        """The bar of the running prediction, or of the last one.

        Raises:
            UsageError: there was none yet.
        """
        return self._bar_of(Phase.PREDICT)

    @predict_progress_bar.setter
    def predict_progress_bar(self, bar: tqdm[Any]) -> None:
        self.canvas.drawn[Phase.PREDICT] = bar

    @property
    def _validation_phase(self) -> Phase:
        return Phase.SANITY if self.trainer.sanity_checking else Phase.VALIDATION

    def _bar_of(self, phase: Phase) -> tqdm[Any]:
        if phase in self.canvas.drawn:
            return self.canvas.drawn[phase]
        if self.is_disabled or (self._bars.are_lines and phase in self._bars.paces):
            # a disabled bar, so that a hook that describes its bar works on every rank and in a log
            return bar_class()(disable=True)
        if phase in self.canvas.closed:
            return self.canvas.closed[phase]
        if self._trainer is not None and not self.canvas.is_terminal():
            return bar_class()(disable=True)  # lines were written
        raise UsageError(
            f"{phase} bar of {type(self).__qualname__}: there was none yet, as it opens when there "
            "is something to count. Ask for it in a hook of that phase, or later."
        )


def _adapted_refresh_rate(refresh_rate: int, owner: type) -> int:
    """Return the refresh rate, adapted to Colab and to `TQDM_MINITERS`."""
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


class TqdmCanvas:
    """A canvas that draws bars with tqdm.

    Args:
        bar: the callback, whose `init_*_tqdm` methods make the bars.
        position: the number of lines above the first bar.
        leave: whether the bar of each epoch stays on the screen.

    Attributes:
        drawn: the open bars.
        closed: the last closed bar of each phase, in its final state.
    """

    def __init__(self, bar: TQDMProgressBar, position: int, leave: bool) -> None:
        self._owner, self._position, self._leave = bar, position, leave
        self.drawn: dict[Phase, tqdm[Any]] = {}
        self.closed: dict[Phase, tqdm[Any]] = {}
        self._own_descriptions: dict[Phase, str] = {}
        self._default_description = ""
        self._file: TextIO | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the bars, which belong to a terminal, out of copies and pickles."""
        return {**vars(self), "drawn": {}, "closed": {}, "_file": None}

    def new_bar(self, description: str, leave: bool, below: bool = False) -> tqdm[Any]:
        """Return a default bar, for `init_*_tqdm` methods that are not overridden."""
        self._default_description = description
        return bar_class()(
            desc=description,
            position=self._position + below,
            leave=leave,
            dynamic_ncols=True,
            file=self._file or sys.stdout,
            bar_format=self._owner.BAR_FORMAT,
        )

    def is_terminal(self) -> bool:
        """Return whether bars can be drawn over: on a terminal, or as a notebook's widgets."""
        # a cell's text has no lines to go up to, as the bar below another one does
        return shows_widgets() if is_notebook() else is_terminal(sys.stdout)

    def stream(self) -> TextIO | None:
        """Return the standard output, or None for widgets."""
        self._file = sys.stdout
        return None if shows_widgets() else sys.stdout

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or restart the open bar of this phase."""
        # with `leave` each epoch gets a bar of its own
        if phase is Phase.TRAIN and self._leave and phase in self.drawn:
            self.close_bar(phase)
        is_new = phase not in self.drawn
        if is_new:
            make_bar = {
                Phase.SANITY: self._owner.init_sanity_tqdm,
                Phase.TRAIN: self._owner.init_train_tqdm,
                Phase.VALIDATION: self._owner.init_validation_tqdm,
                Phase.TEST: self._owner.init_test_tqdm,
                Phase.PREDICT: self._owner.init_predict_tqdm,
            }[phase]
            self.drawn[phase] = make_bar()
            self._own_descriptions[phase] = self._own_description(self.drawn[phase], description)
        bar = self.drawn[phase]
        if not bar.disable and hasattr(bar, "container"):
            bar.reset(pace.total)  # a widget takes a new total by `reset` alone
        bar.total = pace.total
        # a format that an overridden method chose stays
        if getattr(bar, "bar_format", None) in {self._owner.BAR_FORMAT, self._endless_format}:
            is_endless = pace.total is None
            bar.bar_format = self._endless_format if is_endless else self._owner.BAR_FORMAT
        bar.n = bar.last_print_n = pace.count
        overridden = self._own_descriptions.get(phase)
        _, separator, index = description.rpartition(" DataLoader ")
        # the description of an overridden method, with the loader's index if there is one
        if overridden:
            description = f"{overridden}{separator}{index}" if separator else overridden
        bar.set_description(description, refresh=False)
        _set_clock(bar, pace)
        if is_new:
            bar.refresh()

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` the metrics of the last drawing stay."""
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
            self._file = None  # the standard output may be another one in the next run

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""
        # tqdm erases its bars, lets the text through, and draws them again
        with bar_class().external_write_mode(file=sys.stdout):
            stream.write(text)
            stream.flush()

    def _own_description(self, bar: tqdm[Any], description: str) -> str:
        """Return the description that an overridden method gave its bar, or an empty text."""
        # a disabled tqdm bar has no `desc`
        actual = str(getattr(bar, "desc", "")).removesuffix(": ")
        ours = description.rpartition(" DataLoader ")[0] or description
        return "" if actual in {self._default_description, ours} else actual

    @property
    def _endless_format(self) -> str:
        """The format of bars without a total: tqdm would show 0 as the time left."""
        return self._owner.BAR_FORMAT.replace("<{remaining}", "")


def _set_clock(bar: tqdm[Any], pace: Pace) -> None:
    """Make tqdm compute the rate and the time left from the timing of the batches."""
    bar.initial = pace.first
    bar.last_print_t = time()  # tqdm ignores a bar that was never drawn
    bar.start_t = bar.last_print_t - pace.seconds


def bar_class() -> type[tqdm[Any]]:
    """Return the class of tqdm for a terminal or a notebook, without its monitor.

    The monitor is a thread, which could hold a lock when worker processes are forked.
    """
    return _bar_class_of("tqdm.notebook" if shows_widgets() else "tqdm")


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # a kernel has imported IPython already; importing it here would be slow
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in getattr(shell, "config", {})


def shows_widgets() -> bool:
    """Return whether this process is the kernel of a notebook that can show widgets."""
    return is_notebook() and importlib.util.find_spec("ipywidgets") is not None


@cache
def _bar_class_of(module: str) -> type[tqdm[Any]]:
    return type("Bar", (importlib.import_module(module).tqdm,), {"monitor_interval": 0})
