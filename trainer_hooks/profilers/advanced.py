"""AdvancedProfiler: the functions that each action of a run spends its time in."""

from __future__ import annotations

import cProfile
import io
import pstats
import re
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import Rule, check_option, is_int
from trainer_hooks.errors import UsageError
from trainer_hooks.profilers.profiler import Profiler

if TYPE_CHECKING:
    import os

_LINES = Rule(
    "a number of lines from 1 on, or a share over 0.0 and up to 1.0",
    lambda value: is_int(value, 1) or (isinstance(value, float) and 0 < value <= 1),
    "Pass one.",
)


class AdvancedProfiler(Profiler):
    """Count the function calls of each action with Python's own `cProfile`, which slows a run down.

    A call counts for the innermost action that is open.

    Args:
        dirpath: the folder for the files; the log folder by default.
        filename: the name of the summary's file; without one the summary is logged.
        line_count_restriction: how much of each action's table is printed: a number of lines (int)
            or a share of them (float).
        dump_stats: whether to write a file `fit-ACTION.prof` for each action, to be read by
            `pstats`.

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
        check_option("line_count_restriction", line_count_restriction, "AdvancedProfiler", _LINES)
        self.line_count_restriction = line_count_restriction
        self.dump_stats = dump_stats
        self._profiles: dict[str, cProfile.Profile] = {}
        self._open: list[str] = []

    def start(self, action_name: str) -> None:
        """Count function calls for this action, and no longer for the action around it."""
        # cProfile counts for one profile at a time
        if self._open:
            self._profiles[self._open[-1]].disable()
        self._open.append(action_name)
        self._profiles.setdefault(action_name, cProfile.Profile()).enable()

    def stop(self, action_name: str) -> None:
        """End an action; function calls count for the action around it again.

        Raises:
            UsageError: the action was not started.
        """
        if action_name not in self._open:
            raise UsageError(
                f"AdvancedProfiler.stop({action_name!r}): this action was never started. Call "
                "start first, or use profile() as a context manager."
            )
        # the one that counts is the innermost of all, whichever action is ended
        self._profiles[self._open[-1]].disable()
        # the innermost one, as an action may be nested in itself
        del self._open[len(self._open) - 1 - self._open[::-1].index(action_name)]
        if self._open:
            self._profiles[self._open[-1]].enable()

    def summary(self) -> str:
        """Return a table of function calls for each action."""
        texts = [f"{self._stage.upper()} profile".strip()]
        for name, profile in self._profiles.items():
            text = io.StringIO()
            stats = pstats.Stats(profile, stream=text).strip_dirs().sort_stats("cumulative")
            stats.print_stats(self.line_count_restriction)
            texts.append(f"{name}\n{text.getvalue().strip()}")
        return "\n\n".join(texts)

    def describe(self) -> None:
        """Write the summary, and one file per action if `dump_stats` is set."""
        super().describe()
        if self.dump_stats:
            for name, profile in self._profiles.items():
                # an action's name may hold `.`, `[` and quotes, which a file's name had better not
                profile.dump_stats(self._path(f"{re.sub(r'[^A-Za-z0-9_-]+', '_', name)}.prof"))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the counts, which cannot be copied or pickled."""
        return {**self.__dict__, "_profiles": {}, "_open": []}
