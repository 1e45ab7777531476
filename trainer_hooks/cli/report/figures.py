"""The figures of the page, and what its script draws into them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.cli.report.wording import moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_hooks.cli.report.charts import Chart
    from trainer_hooks.cli.report.costs import Costs
    from trainer_hooks.cli.report.run import Run

__all__ = ["Figure", "Figures"]

_KEYS = "Arrow keys move, + and - zoom, 0 shows all."


@dataclass(frozen=True, slots=True)
class Figure:
    """A place for a chart.

    Attributes:
        number: which of the page's charts is drawn here.
        title: its heading.
        said: what it is, for who cannot see it.
        note: a line below it, or an empty string.
        is_wide: whether it is as wide as the page.
    """

    number: int
    title: str
    said: str
    note: str = ""
    is_wide: bool = False


class Figures:
    """Gives the figures of a page their numbers.

    Attributes:
        charts: what the script draws, plain data by number.
    """

    def __init__(self) -> None:
        self.charts: list[dict[str, Any]] = []

    def curves(self, charts: Sequence[Chart]) -> list[Figure]:
        """Return a figure for each chart."""
        return [self._curve(chart) for chart in charts]

    def timeline(self, runs: Sequence[Run]) -> Figure | None:
        """Return when the runs ran, or None where that is not known."""
        spans = [
            {
                "row": run.label if len(runs) > 1 else session.stage,
                "began": session.began,
                "ended": max(session.last_seen, session.began),
                "outcome": str(session.outcome),
                "text": f"{session.stage}, {session.outcome}: {moment(session.began)} to "
                f"{moment(session.last_seen)}",
            }
            for run in runs
            for session in run.sessions
        ]
        return self._wide({"draws": "timeline", "spans": spans}, "When it ran") if spans else None

    def costs(self, costs: Costs) -> Figure:
        """Return what the callbacks of a run took."""
        totals = Counter[str]()
        for item in costs.spent:
            totals[item.callback] += item.total  # type: ignore[assignment]
        bars = [
            {"callback": item.callback, "hook": item.hook, "total": item.total}
            for item in sorted(costs.spent, key=lambda item: -totals[item.callback])
        ]
        return self._wide({"draws": "costs", "bars": bars}, "Time by callback")

    def _curve(self, chart: Chart) -> Figure:
        traces = [trace.as_data() for trace in chart.traces]
        number = self._add({"draws": "curves", "title": chart.title, "traces": traces})
        thinned = [trace for trace in chart.traces if trace.count > len(trace.values)]
        note = ""
        if thinned:
            most = max(thinned, key=lambda trace: trace.count)
            note = (
                f"{most.count:,} values, of which {len(most.values):,} are drawn: of each "
                "stretch the first, the last, the lowest and the highest."
            )
        said = f"{chart.title}: {len(traces)} curves. {_KEYS}"
        return Figure(number, chart.title, said, note)

    def _wide(self, data: dict[str, Any], title: str) -> Figure:
        return Figure(self._add(data), title, title, is_wide=True)

    def _add(self, data: dict[str, Any]) -> int:
        self.charts.append(data)
        return len(self.charts) - 1
