"""Profiler: the base class of all profilers, one that measures nothing, and one of durations."""

from __future__ import annotations

import io
import os
import time
from abc import ABC, abstractmethod
from array import array
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._options import Rule, check_options
from trainer_hooks._text import show_table
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_RULES = {
    "dirpath": Rule(
        "a folder",
        lambda value: value is None or isinstance(value, str | os.PathLike),
        "Pass a path.",
    ),
    "filename": Rule(
        "a file's name without a folder",
        lambda value: (
            value is None or (isinstance(value, str) and value != "" and Path(value).name == value)
        ),
        "Pass the folder as dirpath.",
    ),
}


class Profiler(ABC):
    """Base class of a profiler: measures the actions of a run and reports them at its end.

    A run calls `start` and `stop` with the name of each action, one nested in another, and
    `describe` at its end. A module measures its own parts with `with
    self.trainer.profiler.profile("name")`.

    Args:
        dirpath: the folder for the profiler's files; the log folder by default.
        filename: the name of the summary's file. The stage is put before it and `.txt` after it:
            `fit-NAME.txt`. Without a name the summary is logged.

    Raises:
        OptionError: `dirpath` is no path, or `filename` no plain file name.
    """

    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None
    ) -> None:
        owner = type(self).__qualname__
        check_options(owner, _RULES, dirpath=dirpath, filename=filename)
        self.dirpath = None if dirpath is None else Path(dirpath)
        self.filename = filename
        self._stage = ""
        self._rank = 0
        self._log_dir: Path | None = None

    @abstractmethod
    def start(self, action_name: str) -> None:
        """Begin to measure an action."""

    @abstractmethod
    def stop(self, action_name: str) -> None:
        """End the measurement of an action that `start` began."""

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Measure the body of a `with` statement as an action, also if it raises."""
        self.start(action_name)
        # ended after an error too, or the same name could not be started again
        try:
            yield action_name
        finally:
            self.stop(action_name)

    def summary(self) -> str:
        """Return the measurements as text for people, or an empty string if there are none."""
        return ""

    def describe(self) -> None:
        """Write the summary to its file, or log it if there is no file name."""
        text = self.summary()
        if not text:
            return
        # each rank has a file of its own, but they share the terminal
        if self.filename is None:
            if self._rank == 0:
                log.info("%s", text)
            return
        path = self._path(f"{self.filename}.txt")
        replace_file(path, lambda file: file.write(text))
        log.info("%s: wrote %s", type(self).__qualname__, path)

    def setup(
        self,
        stage: str,
        local_rank: int | None = None,
        log_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Prepare for a run.

        Args:
            stage: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            local_rank: this process's rank on its machine.
            log_dir: the folder for files if there is no `dirpath`.
        """
        self._stage, self._rank = stage, local_rank or 0
        self._log_dir = None if log_dir is None else Path(log_dir)

    def teardown(self, stage: str | None) -> None:  # noqa: B027 - optional
        """Release everything that `setup` took, however the run ended."""

    def attach_module(self, module: nn.Module | None) -> None:  # noqa: B027 - optional
        """Receive the module of the run, or None when the run is over."""

    @property
    def local_rank(self) -> int:
        """This process's rank on its machine."""
        return self._rank

    def _path(self, name: str) -> Path:
        """Return the path of an output file, named after stage and rank, and make its folder."""
        folder = self.dirpath or self._log_dir or Path.cwd()
        folder.mkdir(parents=True, exist_ok=True)
        stem, dot, suffix = name.partition(".")
        parts = (self._stage, stem, str(self._rank or ""))
        return folder.absolute() / f"{'-'.join(part for part in parts if part)}{dot}{suffix}"


class PassThroughProfiler(Profiler):
    """A profiler that measures nothing: `trainer.profiler` where none was given.

    With it a module may always write `with self.trainer.profiler.profile("name")`.
    """

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""


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
        # first, so that the look-ups below are not part of the action
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
        totals.sort(key=lambda total: -total[2])
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
