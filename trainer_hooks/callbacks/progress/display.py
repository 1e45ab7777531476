"""DisplayedProgressBar: when the bars of a run are opened, drawn and closed, and their timing.

A canvas draws the bars: `tqdm_progress` and `rich_progress` have one each, and `PlainLines`
writes lines where there is no terminal.
"""

from __future__ import annotations

import logging
import math
import re
import sys
from enum import StrEnum
from threading import RLock
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TextIO, cast

from trainer_hooks._options import is_int
from trainer_hooks._output import is_terminal, losing_output
from trainer_hooks._text import printable
from trainer_hooks.callbacks.progress.progress_bar import ProgressBar
from trainer_hooks.clock.pausable_timer import PausableTimer
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.errors import CallbackError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TextIO

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module


class Phase(StrEnum):
    """The phase of a run whose batches a bar counts."""

    SANITY = "sanity"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    PREDICT = "predict"


class DisplayedProgressBar(ProgressBar):
    """Base class of progress bars that a canvas draws: one bar for each phase of a run.

    A batch at which no bar is drawn costs a fraction of a microsecond: metrics, which must be
    copied from the device, are read only for a drawing. Drawing takes at most 5% of the time,
    however slow the terminal is. Where the output is no terminal, a line is written at the end of
    each epoch and every 10 s. Text that is printed or logged meanwhile goes above the bars.

    The rate and the times of an epoch are those of its training batches in this run: validations
    are not in them, nor the batches that a resumed run skips first. Where the run ends inside
    an epoch, so does its bar; where it has more epochs, the time left of the whole run is shown.

    Args:
        canvas: the object that draws the bars.
        refresh_rate: draw at every such batch, but not more often than every 0.1 s; 0 for no bar.
        leave: whether the bar of each epoch stays on the screen.
    """

    volatile_state: ClassVar[frozenset[str]] = ProgressBar.volatile_state | {
        "_bars", "_train_pace", "_evaluation_pace", "_run_time", "_phase", "_description",
        "_totals",
    }  # fmt: skip

    def __init__(self, canvas: Canvas, refresh_rate: int, leave: bool) -> None:
        super().__init__()
        self._refresh_rate, self._leave = refresh_rate, leave
        self._bars = OpenBars(canvas)
        self._train_pace = Pace()
        self._evaluation_pace = Pace()
        self._run_time = RunTimeEstimate()
        self._phase = Phase.VALIDATION
        self._description = ""
        self._totals: Sequence[int | float] = ()

    @property
    def is_enabled(self) -> bool:
        """Return whether the bar is shown; a refresh rate of 0 switches it off too."""
        return self._is_enabled and self._refresh_rate > 0

    def disable(self) -> None:
        """Close all bars and show none from now on."""
        self._bars.close_all()
        super().disable()

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Store the trainer, and close bars of a run that never came to its end."""
        self._bars.close_all()
        super().setup(trainer, module, stage)

    @property
    def refresh_rate(self) -> int:
        """Return the number of batches between two drawings, at least."""
        return self._refresh_rate

    def on_sanity_check_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of the sanity check."""
        totals = trainer.num_sanity_val_batches
        self._begin(Phase.SANITY, self.sanity_check_description, totals)

    def on_sanity_check_end(self, trainer: Trainer, module: Module) -> None:
        """Erase the bar of the sanity check."""
        self._end(trainer, module, Phase.SANITY)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of an epoch in which a resumed run begins, without its start hook."""
        self._run_time.start(trainer)
        # CLOSING: only the epoch's end hooks are left, which draw this bar too
        if trainer.progress.stage in {EpochStage.BATCHES, EpochStage.CLOSING}:
            self._begin_epoch(trainer, is_resumed=True)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of an epoch."""
        self._begin_epoch(trainer)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Draw the bar, if a drawing is due."""
        if self._train_pace.is_due(batch_idx + 1):
            self._draw_train(trainer, module)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and draw the bar if a drawing is due."""
        self._evaluated = batch_idx + 1
        if self.has_dataloader_changed(dataloader_idx):
            self._begin_loader(dataloader_idx)
        if self._evaluation_pace.is_due(batch_idx + 1):
            self._bars.draw(self._phase, None)

    # bound again: the aliases of the base class refer to the base class's function
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last batch, unless it was drawn as such."""
        # the rate is one of batches: what follows them in the epoch does not count
        self._train_pace.pause()
        # on a terminal the bar must not stop short of the last batch; a log gets a line at the
        # epoch's end
        if not self._bars.are_lines and self._train_pace.drawn != self._train_pace.count:
            self._draw_train(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the metrics of the epoch, unless a terminal showed some just now."""
        if self._bars.are_lines or self._leave or self._train_pace.is_time:
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
            self._train_pace.pause()
            self._begin(Phase.VALIDATION, self.validation_description, trainer.num_val_batches)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Close the bar of a validation."""
        if not trainer.sanity_checking:
            self._end(trainer, module, Phase.VALIDATION)
            # no batch follows the validation at an epoch's end
            if trainer.progress.stage is EpochStage.BATCHES:
                self._train_pace.go_on()

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a test."""
        self._begin(Phase.TEST, self.test_description, trainer.num_test_batches)

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        self._end(trainer, module, Phase.TEST)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Open the bar of a prediction."""
        self._begin(Phase.PREDICT, self.predict_description, trainer.num_predict_batches)

    def on_predict_end(self, trainer: Trainer, module: Module) -> None:
        """Draw the last state and close the bar."""
        self._end(trainer, module, Phase.PREDICT)

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Draw and close all bars, so that they do not mix with the traceback."""
        self._bars.close_all()

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close bars that are still open, whatever ended the run."""
        self._bars.close_all()

    def _begin_epoch(self, trainer: Trainer, is_resumed: bool = False) -> None:
        """Open the bar of an epoch."""
        if self.is_enabled:
            self._bars.begin(
                Phase.TRAIN,
                self._train_pace,
                self.train_description,
                # a limit of the run may end the epoch before its loader does
                min(self.total_train_batches, last_batch_of_run(trainer)),
                trainer.progress.batches_in_epoch,
                self.refresh_rate,
                is_resumed,
            )

    def _begin(self, phase: Phase, description: str, totals: Sequence[int | float]) -> None:
        """Open the bar of an evaluation; `totals` are the batches of each loader."""
        self._phase, self._description, self._totals = phase, description, totals
        self.reset_dataloader_idx_tracker()
        if totals:
            # sets the tracker, so that the first batch does not count as a change
            self.has_dataloader_changed(0)
            self._begin_loader(0)

    def _begin_loader(self, dataloader_idx: int) -> None:
        suffix = f" DataLoader {dataloader_idx}" if len(self._totals) > 1 else ""
        description, total = self._description + suffix, self._totals[dataloader_idx]
        if self.is_enabled:
            self._bars.begin(
                self._phase, self._evaluation_pace, description, total, every=self.refresh_rate
            )

    def _end(self, trainer: Trainer, module: Module, phase: Phase) -> None:
        """Draw the last state and close the bar; that of the sanity check is erased."""
        if phase not in self._bars.paces:
            return
        # metrics of a validation inside an epoch are shown by the training's bar
        if len(self._bars.paces) == 1 and phase is not Phase.SANITY:
            has_metrics = phase is not Phase.PREDICT
            self._bars.draw(phase, self.get_metrics(trainer, module) if has_metrics else None)
        self._bars.close(phase)

    def _draw_train(self, trainer: Trainer, module: Module) -> None:
        pace = self._train_pace
        if Phase.TRAIN in self._bars.paces:
            if pace.total is not None and pace.count > pace.total:
                # skipped batches do not count as steps, so `max_steps` takes more batches
                pace.total = int(min(self.total_train_batches, last_batch_of_run(trainer)))
            pace.run_left = self._run_time.left(trainer)
            self._bars.draw(Phase.TRAIN, self.get_metrics(trainer, module))


class OpenBars:
    """The open bars of a run, drawn on a canvas or written as lines.

    Args:
        canvas: the object that draws them on a terminal.

    Attributes:
        paces: the timing of each open bar, in the order of opening.
    """

    def __init__(self, canvas: Canvas) -> None:
        self._canvas = canvas
        self._lines: PlainLines | None = None
        self._streams = StreamRedirection(canvas.write_above)
        self.paces: dict[Phase, Pace] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Leave open bars out of copies and pickles."""
        # a callback that is copied or sent to another process starts without open bars
        return {**vars(self), "_lines": None, "paces": {}}

    @property
    def are_lines(self) -> bool:
        """Whether lines are written in place of bars."""
        return self._lines is not None

    def begin(
        self,
        phase: Phase,
        pace: Pace,
        description: str,
        total: int | float,
        count: int = 0,
        every: int = 1,
        is_resumed: bool = False,
    ) -> None:
        """Open a bar, or restart the open bar of this phase.

        Args:
            phase: the phase.
            pace: the timing of the bar.
            description: the text before the bar.
            total: the number of batches, infinity if unknown.
            count: the number of batches done already.
            every: draw at multiples of this number of batches.
            is_resumed: whether a resumed run begins inside an epoch.
        """
        if not self.paces:  # the standard output may be another one than in the last run
            self._lines = None if self._canvas.is_terminal() else PlainLines()
            stream = self._canvas.stream()
            if self._lines is None and stream is not None:
                self._streams.start(stream)
        self.paces[phase] = pace
        known_total = None if math.isinf(total) else int(total)
        pace.start(
            count, known_total, every, is_terminal=self._lines is None, is_resumed=is_resumed
        )
        with losing_output():
            (self._lines or self._canvas).open_bar(phase, description, pace)

    def draw(self, phase: Phase, metrics: Mapping[str, object] | None) -> None:
        """Draw an open bar, and measure how long that takes."""
        # the time of a drawing decides how soon the next one is due
        pace, began = self.paces[phase], monotonic()
        with losing_output():
            (self._lines or self._canvas).draw_bar(phase, pace, metrics)
        pace.note_drawing(began)

    def close(self, phase: Phase) -> None:
        """Close an open bar; with the last one, restore the standard streams."""
        # first, so that the streams are restored even if the canvas raises
        self.paces.pop(phase).stop()
        try:
            with losing_output():
                (self._lines or self._canvas).close_bar(phase)
        finally:
            if not self.paces:
                self._streams.stop()

    def close_all(self) -> None:
        """Draw and close all open bars, the last opened first."""
        for phase in reversed(list(self.paces)):
            try:
                # a stream that cannot be written any more must not leave the bar open
                self.draw(phase, None)
            finally:
                self.close(phase)


class Canvas(Protocol):
    """The interface of an object that draws bars."""

    def is_terminal(self) -> bool:
        """Return whether a line that was written can be drawn over."""

    def stream(self) -> TextIO | None:
        """Return the stream of the bars, or None where text and bars do not share one."""

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Show a bar, or restart the open bar of this phase."""

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Draw a bar; without `metrics` the metrics of the last drawing stay."""

    def close_bar(self, phase: Phase) -> None:
        """Close a bar; a nested one and that of the sanity check are erased."""

    def write_above(self, text: str, stream: TextIO) -> None:
        """Write whole lines above the bars."""


class PlainLines:
    """Lines written now and then in place of bars, where a line cannot be drawn over."""

    def __init__(self) -> None:
        self._descriptions: dict[Phase, str] = {}

    def open_bar(self, phase: Phase, description: str, pace: Pace) -> None:
        """Store the description; no line is written."""
        self._descriptions[phase] = description

    def draw_bar(self, phase: Phase, pace: Pace, metrics: Mapping[str, object] | None) -> None:
        """Write a line."""
        total = "" if pace.total is None else f"/{pace.total}"
        shown = [times_of(pace), rate_of(pace), run_of(pace), format_metrics(metrics or {})]
        details = ", ".join(part for part in shown if part)
        print(f"{self._descriptions[phase]}: {pace.count}{total} [{details}]", flush=True)

    def close_bar(self, phase: Phase) -> None:
        """Drop the description; no line is written."""
        del self._descriptions[phase]


def format_metrics(metrics: Mapping[str, object], spec: str = ".4g", delimiter: str = ", ") -> str:
    """Return `"loss=0.123, v_num=2"`; `spec` is the format of floats.

    Control characters of names and values are escaped, those of the delimiter are the user's own.
    """
    return delimiter.join(
        printable(f"{name}={value:{spec}}" if isinstance(value, float) else f"{name}={value}")
        for name, value in metrics.items()
    )


def times_of(pace: Pace) -> str:
    """Return the elapsed time and, where it is known, the time left: `"00:12<01:23"`."""
    left = pace.seconds_left
    return _clock_time(pace.seconds) + ("" if left is None else f"<{_clock_time(left)}")


def rate_of(pace: Pace) -> str:
    """Return the rate, `"12.34it/s"`, or an empty text while it is unknown."""
    rate = pace.rate
    return "" if rate is None else f"{rate:.2f}it/s"


def run_of(pace: Pace) -> str:
    """Return the time left of the whole run, `"run<1:02:03"`, or an empty text."""
    return "" if pace.run_left is None else f"run<{_clock_time(pace.run_left)}"


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def check_whole_number(argument: str, value: object, owner: type) -> None:
    """Check that an argument is an integer of at least 0.

    Raises:
        CallbackError: it is not.
    """
    if not is_int(value, 0):
        raise CallbackError(
            f"{argument} {value!r} of {owner.__qualname__}: must be a whole number from 0 on. "
            "Leave it out to have the usual one."
        )


_CLEAR_LINE = "\r\x1b[K"
_DRAWING = re.compile(r"\r|\x1b\[\d*[A-HJKf]")
"""Control characters that move the cursor or erase."""


class StreamRedirection:
    """A redirection of the standard streams on a terminal on which bars are drawn.

    While it is started, `print`, warnings, tracebacks and the handlers of `logging` write whole
    lines above the bars. A stream that is no terminal, such as a file, is left alone.

    Args:
        write: writes text above the bars; called with the text and its original stream.
    """

    def __init__(self, write: Callable[[str, TextIO], None]) -> None:
        self._write = write
        self._wrappers: dict[str, _LinesAboveBars] = {}

    def start(self, output: TextIO) -> None:
        """Redirect text above the bars on `output`, if that is a standard stream."""
        # bars on another stream share no line with printed text
        if output is not sys.stdout and output is not sys.stderr:
            return
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            # a stream that goes to a file does not disturb the bars
            if stream is output or is_terminal(stream):
                above = self._wrappers[name] = _LinesAboveBars(stream, self._write)
                setattr(sys, name, above)
                _redirect_log_handlers(stream, above)

    def stop(self) -> None:
        """Restore the streams, and write out an incomplete line."""
        for name, above in self._wrappers.items():
            above.close_wrapper()
            # a stream that the user's code replaced meanwhile stays
            if getattr(sys, name) is above:
                setattr(sys, name, above.stream)
            _redirect_log_handlers(above, above.stream)
        self._wrappers.clear()


class _LinesAboveBars:
    """A stream that writes whole lines above the bars, and is in all else the stream it wraps."""

    def __init__(self, stream: TextIO, write: Callable[[str, TextIO], None]) -> None:
        self.stream = stream
        # tqdm unwraps streams by this attribute to see that two bars share a terminal
        self._wrapped = stream
        self._write_above: Callable[[str, TextIO], None] | None = write
        self._incomplete_line = ""
        # reentrant, as a signal handler may print in the middle of a write
        self._lock = RLock()

    def __eq__(self, other: object) -> bool:
        return self is other or self.stream == other

    def __hash__(self) -> int:
        return hash(self.stream)

    def write(self, text: str) -> int:
        with self._lock:
            if self._write_above is None:
                return self.stream.write(text)
            if "\n" not in text and _DRAWING.search(text):  # another library's bar
                self._pass_on()
                return self.stream.write(text)
            if text == "\n" and not self._incomplete_line:  # an empty line, or a move of the cursor
                self._incomplete_line = text
                return len(text)
            lines, end, self._incomplete_line = (self._incomplete_line + text).rpartition("\n")
            if end:
                with losing_output(self.stream):
                    self._write_above(lines + end, self.stream)
            return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        with self._lock:
            if self._incomplete_line == "\n":
                self._pass_on()
            elif self._incomplete_line and self._write_above is not None:
                # a prompt of input() must be visible before its line is complete
                self.stream.write(_CLEAR_LINE + self._incomplete_line)
            self.stream.flush()

    def close_wrapper(self) -> None:
        """Write out an incomplete line; from now on only pass text on."""
        with self._lock:
            self._write_above = None
            self._pass_on()

    def _pass_on(self) -> None:
        begun, self._incomplete_line = self._incomplete_line, ""
        if begun:
            with losing_output(self.stream):
                self.stream.write(begun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _redirect_log_handlers(
    before: TextIO | _LinesAboveBars, after: TextIO | _LinesAboveBars
) -> None:
    """Let the handlers of `logging` that write to one stream write to another."""
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        # the dict also holds placeholders of parent names, which have no handlers
        for handler in getattr(logger, "handlers", ()):
            # a handler keeps the stream object that it was made with, whatever sys.stderr is now
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(cast("TextIO", after))


_TERMINAL_SECONDS = 0.1
_LOG_SECONDS = 10.0
_PAUSE = 19
"""The pause after a drawing as a multiple of its duration, so that drawing takes at most 5%."""


class Pace:
    """A count of batches with their timing, which decides in well under 1 us when to draw.

    Attributes:
        count: the number of batches done.
        drawn: the number of batches done at the last drawing.
        first: the number of batches done when the timing began; they are not in the rate.
        total: the number of batches, None if unknown.
        run_left: seconds until the end of the whole run, None if unknown or the same.
    """

    __slots__ = (
        "_due",
        "_every",
        "_interval",
        "_is_timed",
        "_special_count",
        "_timer",
        "count",
        "drawn",
        "first",
        "run_left",
        "total",
    )

    def __init__(self) -> None:
        self.stop()

    def stop(self) -> None:
        """Reset the counts; no drawing is due any more."""
        self._due = math.inf
        self._every = 1
        self._interval = 0.0
        self._special_count = -1
        self._is_timed = True
        self._timer = PausableTimer()
        self.total: int | None = None
        self.run_left: float | None = None
        self.count = self.drawn = self.first = 0

    def start(
        self, count: int, total: int | None, every: int, is_terminal: bool, is_resumed: bool = False
    ) -> None:
        """Begin to count.

        On a terminal a drawing is due when 0.1 s have passed and `count` is a multiple of `every`,
        and at the last batch. In a log it is due when 10 s have passed.

        Args:
            count: the number of batches done already.
            total: the number of batches, None if unknown.
            every: draw at multiples of this number.
            is_terminal: whether bars are drawn on a terminal.
            is_resumed: whether to time from the first batch on: the time before it, in which the
                loader skips batches, is no training.
        """
        now = monotonic()
        # a restarted bar keeps its due time: short epochs would otherwise draw at every start
        if self._due == math.inf:
            self._due = now + (0.0 if is_terminal else _LOG_SECONDS)
        self._interval = _TERMINAL_SECONDS if is_terminal else _LOG_SECONDS
        self._every = every
        self.total = total
        self._timer = PausableTimer()
        self._timer.start()
        self._is_timed = not is_resumed
        self.count = self.drawn = self.first = count
        # the count at which `is_due` does not read the clock first: the last batch, or after a
        # resume the first one, which starts the timing
        self._special_count = count + 1 if is_resumed else self._end

    @property
    def _end(self) -> int:
        return -1 if self.total is None or self._interval != _TERMINAL_SECONDS else self.total

    def is_due(self, count: int) -> bool:
        """Set the number of batches done; return whether to draw."""
        self.count = count
        if count == self._special_count:
            return self._is_timed or self._begin_timing()
        # this runs at every batch: two comparisons, and a clock reading at multiples of `every`
        return not count % self._every and monotonic() >= self._due

    def _begin_timing(self) -> bool:
        """Start the timing with the batch just done; return whether to draw."""
        self._is_timed = True
        self._special_count = self._end
        self.first = self.count
        self._timer = PausableTimer()
        self._timer.start()
        return self.count == self._special_count or monotonic() >= self._due

    @property
    def is_time(self) -> bool:
        """Whether enough time has passed since the last drawing."""
        return monotonic() >= self._due

    def note_drawing(self, began: float) -> None:
        """Record that a drawing took from `began` until now."""
        now = monotonic()
        self.drawn = self.count
        self._due = now + max(self._interval, _PAUSE * (now - began))

    def pause(self) -> None:
        """Stop the clock, as for a validation inside an epoch."""
        self._timer.stop()

    def go_on(self) -> None:
        """Restart a stopped clock."""
        self._timer.start()

    @property
    def seconds(self) -> float:
        """The seconds that the batches took, without the pauses."""
        return self._timer.elapsed

    @property
    def rate(self) -> float | None:
        """The batches per second, None while unknown."""
        seconds = self.seconds
        return (
            # a chain: both the seconds and the batches are over 0
            (self.count - self.first) / seconds if seconds > 0 < self.count - self.first else None
        )

    @property
    def seconds_left(self) -> float | None:
        """The seconds that the remaining batches will take at this rate, None while unknown."""
        rate = self.rate
        if self.total is None or rate is None or self.count >= self.total:
            return None
        return (self.total - self.count) / rate


class RunTimeEstimate:
    """An estimate of the whole run's time left, from its pace so far, validations included."""

    def __init__(self) -> None:
        self._began = 0.0
        self._share = 0.0

    def start(self, trainer: Trainer) -> None:
        """Begin to time a run; progress of earlier runs is not in the pace."""
        self._began, self._share = monotonic(), trainer.clock.share_done

    def left(self, trainer: Trainer) -> float | None:
        """Return the seconds left, None while unknown or if only this epoch is left."""
        # a chain: a negative `max_epochs` is no limit
        is_last = trainer.current_epoch + 1 >= trainer.max_epochs >= 0
        if is_last or last_batch_of_run(trainer) <= trainer.num_training_batches:
            return None
        share = trainer.clock.share_done
        done = share - self._share
        return (1 - share) * (monotonic() - self._began) / done if done > 0 else None


def last_batch_of_run(trainer: Trainer) -> int | float:
    """Return the number of batches in the current epoch after which the run's limits end the epoch.

    Infinity where no limit ends it, or where that cannot be known, as with wall time.
    """
    progress, duration = trainer.progress, trainer.max_duration
    left = math.inf
    module = trainer.module
    # with manual optimization the number of steps in a batch is unknown
    if trainer.max_steps >= 0 and module is not None and module.automatic_optimization:
        windows = trainer.max_steps - progress.steps_completed
        left = windows * trainer.accumulate_grad_batches - progress.batches_in_window
    if duration is not None and duration.unit is TimeUnit.BATCH:
        left = min(left, int(duration) - progress.batches_completed)
    elif duration is not None and duration.unit is TimeUnit.SAMPLE:
        size = getattr(trainer.train_dataloader, "batch_size", None)
        # a loader may be any iterable, and one with a batch sampler has None here
        if isinstance(size, int):
            left = min(left, math.ceil((int(duration) - progress.samples_completed) / size))
    return progress.batches_in_epoch + max(left, 0)
