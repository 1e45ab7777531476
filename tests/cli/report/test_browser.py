"""The report in a real browser: drawn right, quiet, usable by keyboard and in a narrow window."""

from __future__ import annotations

import json
import time

import pytest

from trainer_hooks.cli.main import main

pytest.importorskip("jinja2")

pytestmark = pytest.mark.exhaustive

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
    labels = plot(page, "lr-SGD").evaluate(
        "({chart: {axes}}) => axes[1].values(null, [1e-4, null])"
    )
    assert labels == ["0.0001", ""]
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


@pytest.mark.parametrize("name", ["one.html", "both.html", "sweep.html"])
def test_a_narrow_window_is_enough(name, swept, visit) -> None:
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


def make_sweep(root):
    """Write runs of two learning rates and two widths, two seeds each; one failed."""
    for number in range(8):
        lr, width, seed = (0.1, 0.01)[number // 4], (8, 16)[number // 2 % 2], number % 2
        folder = root / f"trial_{number}"
        folder.mkdir(parents=True)
        loss = 10 * lr + width / 8 + seed
        (folder / "metrics.csv").write_text(
            "step,epoch,val_loss,val_acc,nan\n"
            f"0,0,{loss + 5},0.1,nan\n1,0,{loss},{number / 10},nan\n2,1,{loss + 1},0.2,nan\n"
        )
        hparams = {"lr": lr, "width": width, "seed": seed, "depth": 3, EVIL: 1}
        (folder / "hparams.json").write_text(json.dumps(hparams))
        start = {"event": "start", "run": "a", "time": 1e9, "step": 0, "stage": "fit", "pid": 1}
        end = {"event": "end", "run": "a", "time": 1e9 + number, "global_step": 3}
        end |= (
            {"status": "failed", "error": {"type": "E", "message": EVIL}}
            if number == 7
            else {"status": "finished", "stop_reason": "patience"}
        )
        (folder / "run.jsonl").write_text(f"{json.dumps(start)}\n{json.dumps(end)}\n")
    return root


@pytest.fixture(scope="module")
def swept(written):
    """Write the page of a sweep; return the function that reads its table's column."""
    root = make_sweep(written / "sweep")
    assert main(["report", str(root / "trial_3")]) == 0
    assert main(["report", str(root), "-o", str(written / "sweep.html")]) == 0
    return written


def column(page, name, table="#runs-table"):
    """Return the texts of a column of a table, from the top."""
    head = page.locator(f"{table} thead th").all_inner_texts()
    rows = page.locator(f"{table} tbody tr").all()
    return [row.locator("th, td").nth(head.index(name)).inner_text().strip() for row in rows]


def test_the_table_of_runs_sorts_by_mouse_and_keyboard(swept, visit) -> None:
    """A heading sorts upwards, once more downwards; the order is told to screen readers."""
    page = visit("sweep.html")
    assert column(page, "run")[3] == "lr=0.1, width=16, seed 1"
    assert column(page, "val_loss best")[3] == "4"
    assert column(page, "val_loss last")[3] == "5"
    assert column(page, "lr") == ["0.1"] * 4 + ["0.01"] * 4
    page.get_by_role("button", name="val_loss best").click()
    values = [float(text) for text in column(page, "val_loss best")]
    assert values == sorted(values) == [1.1, 2, 2.1, 2.1, 3, 3, 3.1, 4]
    # the heading keeps the focus
    page.keyboard.press("Enter")
    assert [float(text) for text in column(page, "val_loss best")] == sorted(values, reverse=True)
    order = page.locator("#runs-table th[aria-sort=descending]").all_inner_texts()
    assert order == ["val_loss best"]
    page.get_by_role("button", name="run", exact=True).click()
    assert column(page, "run")[0] == "lr=0.01, width=8, seed 0"
    assert page.locator("#runs-table td.best").all_inner_texts().count("1.1") == 1


def test_the_table_of_runs_is_filtered(swept, visit) -> None:
    """By words and by comparisons; the number of rows is told, and markup stays text."""
    page = visit("sweep.html")
    for words, count in (
        ("lr>=0.1", 4), ("width=8 lr<0.1", 2), ("failed", 1), ("seed=1 finished", 3),
        ("VAL_LOSS<1.5", 0), ("val_loss<=2.1", 1), ("nothing", 0), ("", 8), (EVIL.split()[0], 1),
    ):  # fmt: skip
        page.get_by_label("filter").fill(words)
        assert page.locator("#runs-table tbody tr").count() == count, words
        assert page.locator("#runs-count").inner_text().startswith(f"{count}")
    assert page.evaluate("window.hacked") is None
    assert EVIL in column(page, "state")[0]


def test_a_row_leads_to_its_own_page_and_draws_its_curves(swept, visit) -> None:
    """The name is a link where there is a page; legends have the same names."""
    page = visit("sweep.html")
    links = page.locator("#runs-table a")
    assert links.evaluate_all("links => links.map(link => link.getAttribute('href'))") == [
        "./sweep/trial_3/report.html"
    ]
    name = "lr=0.01, width=8, seed 0"
    assert name in [trace["name"] for trace in traces(page, "val_loss")]
    page.get_by_role("checkbox", name=f"draw {name}").uncheck()
    assert name not in [trace["name"] for trace in traces(page, "val_loss")]
    assert len(traces(page, "val_loss")) == 7


def test_means_over_seeds(swept, visit) -> None:
    """The mean and the sample deviation of the runs with the same hyperparameters."""
    page = visit("sweep.html")
    groups = "#groups-table"
    assert column(page, "hyperparameters", groups) == [
        "lr=0.1, width=8", "lr=0.1, width=16", "lr=0.01, width=8", "lr=0.01, width=16",
    ]  # fmt: skip
    assert column(page, "runs", groups) == ["2 seeds"] * 4
    assert column(page, "val_loss best", groups)[0] == "2.5 \u00b1 0.7071"
    assert column(page, "val_loss last", groups)[2] == "2.6 \u00b1 0.7071"
    assert column(page, "nan best", groups)[0] == ""


def test_hyperparameters_are_drawn_against_the_metric(swept, visit) -> None:
    """A line and a dot for each run that the filter leaves; another metric is one choice away."""
    page = visit("sweep.html")
    lines = page.locator("#parallel polyline")
    assert lines.count() == 8
    assert page.locator("#parallel .axis-name").all_text_contents() == [
        "lrlr",
        "widthwidth",
        "val_lossval_loss",
    ]
    captions = page.locator("#scatters figcaption")
    assert captions.all_inner_texts() == ["lr and val_loss", "width and val_loss"]
    assert page.locator("#scatters circle").count() == 16
    # the lowest loss is at the bottom, with the lowest learning rate at the left
    places = (
        page.locator("#scatters svg")
        .first.locator("circle")
        .evaluate_all(
            "dots => dots.map(dot => [dot.textContent, ...['cx', 'cy'].map("
            "name => Number(dot.getAttribute(name)))])"
        )
    )
    lowest = max(places, key=lambda place: place[2])
    assert lowest[0] == "lr=0.01, width=8, seed 0: val_loss 1.1"
    assert lowest[1] == min(place[1] for place in places)
    page.get_by_label("filter").fill("width=8")
    assert lines.count() == 4
    page.get_by_label("filter").fill("")
    page.get_by_label("compare by").select_option(label="val_acc")
    assert page.get_by_label("better").input_value() == "max"
    assert captions.all_inner_texts() == ["lr and val_acc", "width and val_acc"]
    # a metric that was NaN throughout leaves nothing to draw, and breaks nothing
    page.get_by_label("compare by").select_option(label="nan")
    assert page.locator("#scatters circle").count() == 0


def test_the_difference_of_two_configs(swept, visit) -> None:
    """Of two runs it is shown at once; of more, two are chosen."""
    page = visit("both.html")
    assert page.locator("#difference-lines").inner_text().split("\n") == [
        "- shift: 0", "+ shift: 0.5", "",
    ]  # fmt: skip
    assert page.locator("#parallel svg").count() == 0
    page = visit("sweep.html")
    page.get_by_text("Difference of two configs").click()
    page.locator("#difference-from").select_option(label="lr=0.1, width=8, seed 0")
    page.locator("#difference-to").select_option(label="lr=0.01, width=8, seed 1")
    lines = page.locator("#difference-lines")
    expected = ["- lr: 0.1", "+ lr: 0.01", "- seed: 0", "+ seed: 1", ""]
    assert lines.inner_text().split("\n") == expected
    page.get_by_label("equal lines, too").check()
    assert "  depth: 3" in lines.inner_text()
    assert f"  {EVIL}: 1" in lines.inner_text()


def test_many_runs_are_shown_in_parts(browser, tmp_path) -> None:
    """Of a thousand runs 200 rows are drawn, the best first, and ten have curves at first."""
    for number in range(1000):
        folder = tmp_path / "runs" / f"v{number}"
        folder.mkdir(parents=True)
        metrics = [f"m{index}" for index in range(20)]
        rows = [f"{step},{','.join([str(number + step)] * 21)}" for step in range(2)]
        (folder / "metrics.csv").write_text(
            "\n".join([f"step,val_loss,{','.join(metrics)}", *rows, ""])
        )
        (folder / "hparams.json").write_text(json.dumps({"lr": number}))
    assert main(["report", str(tmp_path / "runs")]) == 0
    page = browser.new_page()
    page.goto((tmp_path / "runs" / "report.html").as_uri())
    rows = page.locator("#runs-table tbody tr")
    assert rows.count() == 200
    assert column(page, "run")[:2] == ["lr=0", "lr=1"]
    assert page.locator("#runs-table input:checked").count() == 10
    assert page.locator("#runs-table input:not([disabled])").count() == 100
    page.get_by_role("button", name="show more").click()
    assert rows.count() == 400
    page.get_by_label("filter").fill("lr=999")
    assert column(page, "val_loss last") == ["1000"]
    page.get_by_text("columns", exact=True).click()
    page.get_by_role("checkbox", name="m19").check()
    assert column(page, "m19 best") == ["999"]
    page.close()
