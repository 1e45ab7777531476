"""The report in a real browser: drawn right, quiet, usable by keyboard and in a narrow window."""

from __future__ import annotations

import json
import shutil
import time

import pytest

from trainer_hooks.cli.main import main

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("jinja2")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed"),
]

EVIL = "<script>window.hacked = 1</script><b>acc</b> &amp; %{x}"
LOSSES = [2.0 - 0.01 * step + (0.2 if step % 2 else 0.0) for step in range(100)]


def make(folder, shift=0.0):
    """Write the folder of a run of ten epochs, which was killed once."""
    folder.mkdir()
    rows = [f"{s},{s // 10},{LOSSES[s] + shift},{s / 100},0.1" for s in range(100)]
    (folder / "metrics.csv").write_text(
        "\n".join([f'step,epoch,train_loss,"{EVIL}",lr-SGD', *rows, ""])
    )
    told = {"stage": "fit", "pid": 2**22 + 1, "callbacks": [{"name": EVIL}]}
    records = [
        {"event": "start", "run": "a", "time": 1e9, "step": 0, **told},
        {"event": "sample", "run": "a", "time": 1e9 + 9, "step": 60, "batches": 60, "seconds": 9.0},
        {"event": "start", "run": "b", "time": 1e9 + 60, "step": 50, "resumed_from": "x", **told},
        {"event": "end", "run": "b", "time": 1e9 + 90, "step": 100, "status": "finished"},
    ]
    (folder / "run.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "hparams.json").write_text(json.dumps({"name": EVIL, "shift": shift}))
    return folder


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write the page of one run, and that of two."""
    root = tmp_path_factory.mktemp("report")
    one, two = make(root / "one"), make(root / "two", 0.5)
    assert main(["report", str(one), "-o", str(root / "one.html")]) == 0
    assert main(["report", str(one), str(two), "-o", str(root / "both.html")]) == 0
    return root


@pytest.fixture
def visit(browser, written):
    """Open a page, scroll through it so that all is drawn, and see that nothing goes wrong."""
    faults, asked, contexts = [], [], []

    def visit(name="one.html", width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.set_default_timeout(120_000)  # a busy machine takes long to draw
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto((written / name).as_uri())
        for figure in page.locator("figure.chart").all():
            figure.scroll_into_view_if_needed()
            figure.locator(".uplot, .bars").first.wait_for()
        page.evaluate("scrollTo(0, 0)")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert faults == []
    assert {url.partition(":")[0] for url in asked} <= {"file", "data", "blob"}
    assert len([url for url in asked if url.startswith("file:")]) == len(contexts)


def plot(page, title):
    """Return the plot under a heading."""
    caption = page.locator("figcaption").get_by_text(title, exact=True)
    return page.locator("figure.chart", has=caption).locator(".plot")


def traces(page, title):
    return plot(page, title).evaluate(
        "plot => plot.curves.map(({name, x, y, opacity}) => ({name, x, y, opacity}))"
    )


def until(page, expression, argument=None):
    """Wait until an expression holds; the page's policy forbids playwright's own way."""
    deadline = time.monotonic() + 120
    while not page.evaluate(expression, argument):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def range_of(page, title):
    return plot(page, title).evaluate("({chart: {scales: {x}}}) => [x.min, x.max]")


def ink(page, title):
    """Return how many points of a chart's canvas are painted."""
    return plot(page, title).evaluate(
        """plot => {
            const canvas = plot.querySelector("canvas");
            const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
            copy.drawImage(canvas, 0, 0);
            const {data} = copy.getImageData(0, 0, canvas.width, canvas.height);
            return data.filter((value, index) => index % 4 === 3 && value > 0).length;
        }"""
    )


def test_the_curves_that_are_drawn_carry_the_right_numbers(visit) -> None:
    """What the plot holds after drawing is what metrics.csv said, and it is painted."""
    page = visit()
    [trace] = traces(page, "train_loss")
    assert trace["x"] == list(range(100))
    assert trace["y"] == pytest.approx(LOSSES)
    held = plot(page, "train_loss").evaluate("plot => plot.chart.data.map(row => [...row])")
    assert held == [trace["x"], trace["y"]]
    # a curve across the chart, beside the axes and their numbers
    drawn = ink(page, "train_loss")
    plot(page, "train_loss").evaluate("plot => plot.chart.setSeries(1, {show: false})")
    page.wait_for_timeout(50)
    assert drawn - ink(page, "train_loss") > 500
    [speed] = (
        traces(page, "batches per second") if plot(page, "batches per second").count() else [0]
    )
    assert speed == 0  # one sample makes no rate


def test_a_metrics_name_with_a_script_in_it_stays_text(visit) -> None:
    """In headings, tables and labels a name is seen as it was written, and does nothing."""
    page = visit("both.html")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main b").count() == 0
    seen = page.locator("figcaption").all_inner_texts()
    assert EVIL in seen
    assert page.locator("th").get_by_text(EVIL, exact=True).first.is_visible()
    target = plot(page, EVIL)
    target.scroll_into_view_if_needed()
    box = target.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    # the value under the mouse
    until(
        page,
        "plot => plot.querySelectorAll('.u-value')[1].textContent !== '-'",
        target.element_handle(),
    )
    assert target.locator("b, script").count() == 0


def test_a_name_in_a_legend_is_seen_as_it_was_written(browser, tmp_path) -> None:
    """Tags in names are shown."""
    folder = tmp_path / "run"
    folder.mkdir()
    head = "step,train_<b>x</b>,val_<b>x</b>\n"
    (folder / "metrics.csv").write_text(head + "0,1,2\n1,2,3\n")
    assert main(["report", str(folder)]) == 0
    page = browser.new_page()
    page.goto((folder / "report.html").as_uri())
    page.locator(".u-legend").first.wait_for()
    names = page.locator(".u-legend .u-label").all_text_contents()
    assert names == ["step", "train_<b>x</b>", "val_<b>x</b>"]
    page.close()


def test_smoothing_logarithm_and_epochs(visit) -> None:
    """The controls change what is drawn, and the raw values stay behind the smoothed ones."""
    page = visit()
    page.get_by_label("x axis").select_option("epoch")
    page.get_by_label("y axis").select_option("log")
    page.get_by_label("smoothing").fill("0.5")
    raw, smooth = traces(page, "train_loss")
    assert raw["y"] == pytest.approx(LOSSES)
    assert raw["opacity"] < 1
    mean, share, expected = 0.0, 1.0, []
    for value in LOSSES:
        mean, share = 0.5 * mean + 0.5 * value, share * 0.5
        expected.append(mean / (1 - share))
    assert smooth["y"] == pytest.approx(expected)
    assert smooth["x"][-1] == 10.0
    assert plot(page, "train_loss").evaluate("plot => plot.chart.scales.y.distr") == 3
    assert page.locator("#smoothing-shown").inner_text() == "0.50"


def test_a_chart_is_zoomed_and_moved_by_keyboard(visit) -> None:
    """Focus comes to each chart; keys zoom, move and show all again."""
    page = visit()
    target = plot(page, "train_loss")
    low, high = range_of(page, "train_loss")
    target.focus()
    page.keyboard.press("+")
    zoomed = range_of(page, "train_loss")
    assert zoomed[1] - zoomed[0] == pytest.approx(0.6 * (high - low))
    page.keyboard.press("ArrowRight")
    moved = range_of(page, "train_loss")
    assert moved[0] - zoomed[0] == pytest.approx(0.2 * (zoomed[1] - zoomed[0]))
    page.keyboard.press("0")
    assert range_of(page, "train_loss") == pytest.approx([low, high])


def test_the_tab_key_goes_through_the_page_in_its_order(visit) -> None:
    """First the way past the links, then the links, the controls, and the charts."""
    page = visit()
    seen = []
    for _ in range(24):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "(({tagName, id, className, hash}) => hash || id || className || tagName)"
                "(document.activeElement)"
            )
        )
    assert seen[0] == "#main"
    assert seen[1] == "#overview"
    order = ["#plugins", "x", "y", "smoothing", "filter", "reset"]
    places = [seen.index(name) for name in order]
    assert places == sorted(places)
    assert any("plot" in name for name in seen[places[-1] :])


def test_a_mouse_zooms_into_a_chart(visit) -> None:
    """A stretch that is drawn over a chart fills it."""
    page = visit()
    plot(page, "train_loss").scroll_into_view_if_needed()
    low, high = range_of(page, "train_loss")
    box = plot(page, "train_loss").locator(".u-over").bounding_box()
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.25 * box["width"], y)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], y, steps=5)
    page.mouse.move(box["x"] + 0.75 * box["width"], y, steps=5)
    page.mouse.up()
    zoomed = range_of(page, "train_loss")
    assert low < zoomed[0] < zoomed[1] < high
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], y)
    assert range_of(page, "train_loss") == pytest.approx([low, high])


@pytest.mark.parametrize("name", ["one.html", "both.html"])
def test_a_narrow_window_is_enough(name, visit) -> None:
    """At 360 pixels nothing makes the page scroll sideways, and charts fit."""
    page = visit(name, width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    for box in [item.bounding_box() for item in page.locator(".plot .uplot, .plot .bars").all()]:
        assert box["x"] + box["width"] <= 360


def test_charts_follow_the_window(visit) -> None:
    """A window that is made narrower redraws its charts."""
    page = visit()
    page.set_viewport_size({"width": 500, "height": 800})
    until(
        page,
        "[...document.querySelectorAll('.plot .uplot')].every(each => each.clientWidth <= 500)",
    )


def test_the_dark_is_dark(visit) -> None:
    """The page takes the colours that the system asks for."""
    light = visit(scheme="light").evaluate("getComputedStyle(document.body).backgroundColor")
    page = visit(scheme="dark")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, dark[4:-1].split(","))) < 150 < sum(map(int, light[4:-1].split(",")))
    colour = plot(page, "train_loss").evaluate("({chart}) => chart.axes[0].stroke()")
    assert colour == "#e4e9f0"


def test_runs_are_shown_and_hidden_and_charts_are_found(visit) -> None:
    """The box in a run's row takes it out of the charts; a word leaves the charts that have it."""
    page = visit("both.html")
    assert [trace["name"] for trace in traces(page, "train_loss")] == ["shift=0", "shift=0.5"]
    assert traces(page, "train_loss")[1]["y"] == pytest.approx([v + 0.5 for v in LOSSES])
    page.get_by_role("checkbox", name="draw shift=0.5").uncheck()
    assert [trace["name"] for trace in traces(page, "train_loss")] == ["shift=0"]
    page.get_by_label("find").fill("LOSS")
    shown = page.locator("#curves figure.chart:visible figcaption").all_inner_texts()
    assert shown == ["train_loss"]


def test_the_timeline_tells_of_the_kill_and_the_resume(visit) -> None:
    """Starts stand in the table with how they ended, and as bars."""
    page = visit()
    badges = page.locator("#timeline .badge").all_inner_texts()
    assert badges == ["killed", "finished"]
    table = page.locator("#timeline").inner_text()
    # the last record of a killed run is not its end
    assert "(at least 10 steps trained again)" in table
    assert "0 to at least 60" in table
    assert "50 to 100" in table
    assert page.locator("#timeline .bar").count() == 2
