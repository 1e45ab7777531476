"""The page of the report: one file, with its script, its style and its data."""

from __future__ import annotations

import time
from collections import Counter
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from trainer_hooks._version import __version__
from trainer_hooks.cli.report.charts import Chart, metric_charts, speed_charts
from trainer_hooks.cli.report.costs import costs_of
from trainer_hooks.cli.report.html import Html, as_json, element, joined, section
from trainer_hooks.cli.report.journal import number
from trainer_hooks.cli.report.origin import show_environment, show_plugins
from trainer_hooks.cli.report.samples import samples_of
from trainer_hooks.cli.report.sections import (
    chip,
    moment,
    show_checkpoints,
    show_costs,
    show_hparams,
    show_timeline,
    show_values,
    summary_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.cli.report.run import Run
    from trainer_hooks.cli.report.samples import Sample

__all__ = ["page_of"]

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)
_KEYS = "Arrow keys move, + and - zoom, 0 shows all."


def page_of(runs: Sequence[Run]) -> str:
    """Return the page for one run, or for several beside each other."""
    return _Page(runs).write()


class _Page:
    """A page that is being put together: its parts, and the charts that its script draws."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs
        self._is_several = len(runs) > 1
        self._charts: list[dict[str, Any]] = []
        self._parts: list[tuple[str, str, Html]] = []

    def write(self) -> str:
        """Return the page."""
        self._add_parts()
        title = ", ".join(run.label for run in self._runs)
        links = [
            element("li", element("a", heading, href=f"#{name}"))
            for name, heading, _ in self._parts
        ]
        told = (
            f"Made by trainer-hooks {__version__} on {moment(time.time())} from what "
            f"{'these runs' if self._is_several else 'the run'} left on disk."
        )
        header = element(
            "header",
            element("h1", title),
            element("p", told, class_="note"),
            element("nav", element("ul", *links), aria_label="parts of the report"),
        )
        main = element("main", *(section(*part) for part in self._parts), id="main", tabindex=-1)
        return "<!DOCTYPE html>\n" + element(
            "html",
            self._head(title),
            element(
                "body",
                element("a", "to the report", href="#main", class_="skip"),
                header,
                main,
                element("footer", "Nothing here is loaded from a network."),
                *self._scripts(),
            ),
            lang="en",
        )

    def _head(self, title: str) -> Html:
        policy = '<meta http-equiv="Content-Security-Policy" content="' + _POLICY + '">'
        view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
        return element(
            "head",
            Html('<meta charset="utf-8">' + policy + view + '<link rel="icon" href="data:,">'),
            element("title", f"{title} - run report"),
            element("style", _packaged("report.css")),
        )

    def _scripts(self) -> list[Html]:
        from plotly.offline import get_plotlyjs

        resumes = [
            [int(number(fit.start, "step")) for fit in run.fits if fit.resumed_from]
            for run in self._runs
        ]
        data = {
            "runs": [run.label for run in self._runs],
            "resumes": resumes,
            "charts": self._charts,
        }
        return [
            element("noscript", element("p", "The charts need JavaScript.")),
            element("script", as_json(data), type="application/json", id="data"),
            element("script", Html(get_plotlyjs())),
            element("script", _packaged("report.js")),
        ]

    def _add_parts(self) -> None:
        runs = self._runs
        cards = [summary_of(i, run, is_several=self._is_several) for i, run in enumerate(runs)]
        kind = "cards" if self._is_several else "cards only"
        self._add("overview", "Overview", element("div", *cards, class_=kind))
        metrics = metric_charts(runs)
        curves = self._curves([chart for chart in metrics if chart.kind == "metric"])
        tools = self._tools() if metrics else ""
        self._add("curves", "Curves", tools, curves or _nothing("Nothing was logged."))
        rates = self._curves([chart for chart in metrics if chart.kind == "rate"])
        self._add("rates", "Learning rates", rates or _nothing(_NO_RATES))
        self._add("speed", "Throughput", self._curves(speed_charts(runs)) or _nothing(_NO_SPEED))
        self._add("values", "Values", show_values(runs))
        self._add("timeline", "Timeline", self._timeline(), self._each(show_timeline))
        self._add("hooks", "Time by callback and hook", self._each(self._costs))
        self._add("checkpoints", "Checkpoints", self._each(show_checkpoints))
        if any((run.folder / "samples").is_dir() for run in runs):
            self._add("samples", "Samples", self._each(_show_samples))
        self._add("hyperparameters", "Hyperparameters", show_hparams(runs))
        self._add("environment", "Environment", self._each(show_environment))
        self._add("plugins", "Callbacks and plugins", self._each(show_plugins))
        self._add("notes", "Notes", self._each(_show_notes))

    def _add(self, name: str, title: str, *content: object) -> None:
        self._parts.append((name, title, joined(content)))

    def _each(self, show: Callable[[Run], Html]) -> Html:
        """Show something of every run, under its name where there are several."""
        if not self._is_several:
            return show(self._runs[0])
        return joined(
            element("div", element("h3", chip(index, run.label)), show(run), class_="runs")
            for index, run in enumerate(self._runs)
        )

    def _curves(self, charts: Sequence[Chart]) -> Html:
        figures = []
        for chart in charts:
            traces = [trace.as_data() for trace in chart.traces]
            said = f"{chart.title}: {len(traces)} curves. {_KEYS}"
            data = {"draws": "curves", "title": chart.title, "traces": traces}
            thinned = [trace for trace in chart.traces if trace.count > len(trace.values)]
            note = ""
            if thinned:
                most = max(thinned, key=lambda trace: trace.count)
                note = (
                    f"{most.count:,} values, of which {len(most.values):,} are drawn: of each "
                    "stretch the first, the last, the lowest and the highest."
                )
            figures.append(self._figure(data, chart.title, said, note))
        return element("div", *figures, class_="charts") if figures else Html("")

    def _figure(
        self, data: dict[str, Any], title: str, said: str, note: str = "", kind: str = "chart"
    ) -> Html:
        self._charts.append(data)
        plot = element("div", class_="plot", tabindex=0, role="group", aria_label=said)
        more = [element("p", note, class_="note")] if note else []
        number_ = len(self._charts) - 1
        return element(
            "figure", element("figcaption", title), plot, *more, class_=kind, data_chart=number_
        )

    def _timeline(self) -> Html:
        spans = [
            {
                "row": run.label if self._is_several else session.stage,
                "began": session.began,
                "ended": max(session.last_seen, session.began),
                "outcome": str(session.outcome),
                "text": f"{session.stage}, {session.outcome}: {moment(session.began)} to "
                f"{moment(session.last_seen)}",
            }
            for run in self._runs
            for session in run.sessions
        ]
        if not spans:
            return Html("")
        data = {"draws": "timeline", "spans": spans}
        figure = self._figure(data, "When it ran", "When it ran", kind="chart wide")
        return element("div", figure, class_="charts")

    def _costs(self, run: Run) -> Html:
        costs = costs_of(run.folder, run.notes)
        if costs is None:
            return _nothing("It was not profiled: Trainer(profile_hooks=True) does.")
        totals = Counter[str]()
        for item in costs.spent:
            totals[item.callback] += item.total  # type: ignore[assignment]
        bars = [
            {"callback": item.callback, "hook": item.hook, "total": item.total}
            for item in sorted(costs.spent, key=lambda item: -totals[item.callback])
        ]
        data = {"draws": "costs", "bars": bars}
        figure = self._figure(data, "Time by callback", "Time by callback", kind="chart wide")
        return joined([element("div", figure, class_="charts"), show_costs(costs)])

    def _tools(self) -> Html:
        """Return what the curves are steered with."""
        boxes = [
            element("label", _checkbox(index), chip(index, run.label))
            for index, run in enumerate(self._runs)
        ]
        shown = element("fieldset", *boxes, aria_label="runs shown") if self._is_several else ""
        smoothing = Html(
            '<input id="smoothing" type="range" min="0" max="0.99" step="0.01" value="0">'
        )
        return element(
            "div",
            element("label", "x axis", _choice("x", step="step", epoch="epochs")),
            element("label", "y axis", _choice("y", linear="linear", log="logarithmic")),
            element(
                "label", "smoothing", smoothing, element("output", "0.00", id="smoothing-shown")
            ),
            element("label", "find", Html('<input id="filter" type="search">')),
            element("button", "show all", type="button", id="reset"),
            shown,
            id="tools",
            class_="tools",
            role="group",
            aria_label="how the curves are drawn",
        )


_NO_RATES = "None were logged: a LearningRateMonitor does."
_NO_SPEED = "It is not known: the journal of the run tells it, once it has run for a second."


def _show_samples(run: Run) -> Html:
    samples = samples_of(run.folder, run.notes)
    figures = [element("figure", *_sample(s), element("figcaption", s.caption)) for s in samples]
    return element("div", *figures, class_="samples") if figures else _nothing("There are none.")


def _sample(sample: Sample) -> list[Html]:
    shown = []
    if sample.address:
        shown.append(Html(element("img", src=sample.address, alt=sample.caption)))
    if sample.text:
        shown.append(element("pre", sample.text))
    return shown


def _show_notes(run: Run) -> Html:
    if not run.notes:
        return _nothing("All that was found could be read.")
    return element("ul", *(element("li", note) for note in run.notes))


def _nothing(said: str) -> Html:
    return element("p", said, class_="note")


def _choice(name: str, **options: str) -> Html:
    listed = [element("option", label, value=value) for value, label in options.items()]
    return element("select", *listed, id=name)


def _checkbox(run: int) -> Html:
    return Html(f'<input type="checkbox" data-run="{run}" checked>')


def _packaged(name: str) -> Html:
    folder = files("trainer_hooks.cli.report") / "templates"
    return Html((folder / name).read_text(encoding="utf-8"))
