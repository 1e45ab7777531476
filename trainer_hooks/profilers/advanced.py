"""AdvancedProfiler: which functions each action spends its time in."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.profilers.profiler import Profiler

if TYPE_CHECKING:
    import os

__all__ = ["AdvancedProfiler"]


class AdvancedProfiler(Profiler):
    """Let Python's own profiler count the function calls of each action. It slows a run down.

    A call counts for the innermost action that it is in.

    Args:
        dirpath: the folder for files; the log folder unless given.
        filename: what the summary's file is called; without one the summary is logged.
        line_count_restriction: how much of each action's table is shown: a number of lines (int) or
            a share of them (float).
        dump_stats: whether a file `fit-ACTION.prof` of each action is written, for `pstats`.

    Raises:
        OptionError: an argument breaks its rule.

    Example::

        trainer = Trainer(max_epochs=1, profiler=AdvancedProfiler(line_count_restriction=10))
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        line_count_restriction: float = 1.0,
        dump_stats: bool = False,
    ) -> None:
        super().__init__(dirpath, filename)
        given = line_count_restriction
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or given <= 0 or (isinstance(given, float) and given > 1):
            raise OptionError(
                f"line_count_restriction {given!r} of AdvancedProfiler: it must be a number of "
                "lines from 1 on, or a share over 0.0 and up to 1.0. Pass one."
            )
        self.line_count_restriction = given
        self.dump_stats = dump_stats
        self._profiles: dict[str, cProfile.Profile] = {}
        self._open: list[str] = []

    def start(self, action_name: str) -> None:
        """Count calls for this action from here on."""
        if self._open:
            self._profiles[self._open[-1]].disable()
        self._open.append(action_name)
        self._profiles.setdefault(action_name, cProfile.Profile()).enable()

    def stop(self, action_name: str) -> None:
        """Count calls for the action around this one again.

        Raises:
            UsageError: it was not started.
        """
        if action_name not in self._open:
            raise UsageError(
                f"AdvancedProfiler.stop({action_name!r}): this action was never started. Call "
                "start first, or use profile() as a context manager."
            )
        self._profiles[self._open[-1]].disable()
        # the last one of that name
        del self._open[len(self._open) - 1 - self._open[::-1].index(action_name)]
        if self._open:
            self._profiles[self._open[-1]].enable()

    def summary(self) -> str:
        """Return a table of calls for each action."""
        texts = [f"{self._stage.upper()} profile".strip()]
        for name, profile in self._profiles.items():
            text = io.StringIO()
            stats = pstats.Stats(profile, stream=text).strip_dirs().sort_stats("cumulative")
            stats.print_stats(self.line_count_restriction)
            texts.append(f"{name}\n{text.getvalue().strip()}")
        return "\n\n".join(texts)

    def describe(self) -> None:
        """Write the summary, and the files of the actions if they are wanted."""
        super().describe()
        if self.dump_stats:
            for name, profile in self._profiles.items():
                profile.dump_stats(self._path(f"{re.sub(r'[^A-Za-z0-9_-]+', '_', name)}.prof"))

    def __getstate__(self) -> dict[str, Any]:
        """Leave the counts, which nothing can copy, out of copies and pickles."""
        return {**self.__dict__, "_profiles": {}, "_open": []}
