"""SimpleProfiler: the time that each action of a run takes."""

from __future__ import annotations

import io
import time
from array import array
from typing import TYPE_CHECKING

from trainer_hooks._text import show_table
from trainer_hooks.errors import UsageError
from trainer_hooks.profilers.profiler import Profiler

if TYPE_CHECKING:
    import os

__all__ = ["SimpleProfiler"]


class SimpleProfiler(Profiler):
    """Time each action on the host, and print a table of them, the longest first.

    Actions nest, and the time of an action includes those inside it. On a GPU an action that only
    queues work looks cheap, and one that waits for the device has the whole wait.

    Args:
        dirpath: the folder for the summary's file; the log folder by default.
        filename: the name of that file; without one the summary is logged.
        extended: whether the table also has the number of calls and the share of the time.

    Attributes:
        recorded_durations: the durations of each finished action by name, in seconds.
        current_actions: the start time of each open action by name.

    Raises:
        OptionError: `dirpath` is no path, or `filename` no plain file name.

    Example::

        trainer = Trainer(max_epochs=2, profiler=SimpleProfiler(filename="times"))
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        extended: bool = True,
    ) -> None:
        super().__init__(dirpath, filename)
        self.extended = extended
        self.recorded_durations: dict[str, array[float]] = {}
        self.current_actions: dict[str, float] = {}
        self._began: float | None = None

    def start(self, action_name: str) -> None:
        """Begin to time an action.

        Raises:
            UsageError: the action is being timed already.
        """
        if action_name in self.current_actions:
            raise UsageError(
                f"SimpleProfiler.start({action_name!r}): this action has started already. Stop it "
                "first, or give another one another name."
            )
        now = self.current_actions[action_name] = time.perf_counter()
        if self._began is None:
            self._began = now

    def stop(self, action_name: str) -> None:
        """Record the duration of an action.

        Raises:
            UsageError: the action was not started.
        """
        end = time.perf_counter()
        start = self.current_actions.pop(action_name, None)
        if start is None:
            raise UsageError(
                f"SimpleProfiler.stop({action_name!r}): this action was never started. Call "
                "start first, or use profile() as a context manager."
            )
        times = self.recorded_durations.get(action_name)
        if times is None:
            # 8 bytes a value, a quarter of what a list of floats takes in a long run
            times = self.recorded_durations[action_name] = array("d")
        times.append(end - start)

    def summary(self) -> str:
        """Return the table of durations."""
        now = time.perf_counter()
        whole = now - (now if self._began is None else self._began)
        totals = [(name, len(t), sum(t)) for name, t in self.recorded_durations.items()]
        totals.sort(key=lambda one: -one[2])
        header: tuple[str, ...] = ("action", "mean (s)", "total (s)")
        rows: list[tuple[str, ...]] = [
            (name, f"{total / n:.5g}", f"{total:.5g}") for name, n, total in totals
        ]
        if self.extended:
            header = ("action", "mean (s)", "calls", "total (s)", "share")
            rows = [
                (name, f"{total / n:.5g}", str(n), f"{total:.5g}", f"{100 * total / whole:.3g}%")
                for name, n, total in totals
            ]
            calls = sum(n for _, n, _ in totals)
            rows.insert(0, ("total", "-", str(calls), f"{whole:.5g}", "100%"))
        text = io.StringIO()
        title = f"{self._stage.upper()} profile".strip()
        show_table(header, rows, title=title, right=range(1, len(header)), file=text)
        return text.getvalue().rstrip()
