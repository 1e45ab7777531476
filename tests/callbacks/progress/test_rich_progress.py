from __future__ import annotations

import dataclasses
import re
from dataclasses import FrozenInstanceError

import pytest
from rich.progress import MofNCompleteColumn, TextColumn
from rich.style import Style

from trainer_hooks.callbacks import RichProgressBar, RichProgressBarTheme
from trainer_hooks.errors import CallbackError, UsageError


@pytest.mark.parametrize("theme", ["dark", {"metrics": "red"}, RichProgressBarTheme])
def test_theme_that_is_none(theme):
    """Something that is no theme is refused at construction."""
    with pytest.raises(CallbackError, match=r"theme .* must be a RichProgressBarTheme"):
        RichProgressBar(theme=theme)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics_format": ".3q"}, r"metrics_format '.3q' of .*Theme: must be a format for numb"),
        ({"metrics_format": 3}, "metrics_format 3 of RichProgressBarTheme: must be a text"),
        ({"metrics_text_delimiter": None}, "metrics_text_delimiter None of .*: must be a text"),
    ],
)
def test_theme_that_breaks_a_rule(options, message):
    """A theme that cannot write numbers is refused at construction."""
    with pytest.raises(CallbackError, match=message):
        RichProgressBarTheme(**options)


@pytest.mark.parametrize("style", ["no such colour", 3])
def test_style_that_rich_does_not_know(terminal, run, style):
    """An unknown style is named when a run starts, and not drawn as something else."""
    theme = RichProgressBarTheme(progress_bar=style)
    with pytest.raises(
        CallbackError, match=f"progress_bar {style!r} of RichProgressBarTheme: must"
    ):
        run(RichProgressBar(theme=theme)).fit()


def test_theme_has_the_usual_fields(terminal, run):
    """The fields and defaults are Lightning's; a style may be an object of rich, too."""
    assert dataclasses.asdict(RichProgressBarTheme()) == {
        "description": "",
        "progress_bar": "#6206E0",
        "progress_bar_finished": "#6206E0",
        "progress_bar_pulse": "#6206E0",
        "batch_progress": "",
        "time": "dim",
        "processing_speed": "dim underline",
        "metrics": "italic",
        "metrics_text_delimiter": " ",
        "metrics_format": ".3f",
    }
    theme = RichProgressBarTheme(description=Style(color="red"))
    run(RichProgressBar(theme=theme), max_epochs=1).fit()
    assert terminal.buffer[0][0].fg == "red"


def test_theme_writes_the_metrics(terminal, run):
    """Delimiter and format of the theme are those of the metrics; texts and counts stay."""
    theme = RichProgressBarTheme(metrics_text_delimiter=" | ", metrics_format=".1e")
    fired = run(RichProgressBar(theme=theme), max_epochs=1)
    fired.trainer.metrics = {"loss": 0.000123, "best": 7, "nan": float("nan")}
    fired.fit()
    assert terminal.screen[0].endswith("loss=1.2e-04 | best=7 | nan=nan")


def test_columns_of_a_subclass(terminal, run):
    """configure_columns decides what a line consists of; the metrics come after it."""
    seen = []

    class Own(RichProgressBar):
        def configure_columns(self, trainer):
            seen.append(trainer)
            first, *_ = super().configure_columns(trainer)
            return [first, MofNCompleteColumn(), TextColumn("<{task.fields[times]}>")]

    fired = run(Own(), max_epochs=1)
    fired.fit()
    assert seen == [fired.trainer]
    assert re.fullmatch(r"Epoch 0/0 4/4 <00:00> loss=0.500", terminal.screen[0])


def test_tasks_of_rich(terminal, run):
    """While something is drawn its task can be had, as in Lightning; then there is none."""
    fired = run(RichProgressBar(), num_val_batches=[2], num_sanity_val_batches=[1], max_epochs=1)
    bar, seen = fired.bar, []

    def look(count):
        what = "val_sanity_check_bar" if fired.trainer.sanity_checking else "val_progress_bar"
        seen.append((what, getattr(bar, what).total))

    fired.at_val_batch = look
    fired.at_batch = lambda count: seen.append(("train", bar.train_progress_bar.total))
    fired.fit()
    assert seen == [
        ("val_sanity_check_bar", 1),
        *[("train", 4)] * 4,
        *[("val_progress_bar", 2)] * 2,
    ]
    fired.at_val_batch = lambda count: seen.append(bar.test_progress_bar.completed)
    fired.evaluate("test", [3])
    assert seen[-3:] == [1, 1, 3]
    assert bar.progress is None
    bar.refresh()
    with pytest.raises(UsageError, match="train bar of RichProgressBar: is drawn only on a termi"):
        bar.train_progress_bar  # noqa: B018


def test_console_argument_that_rich_does_not_know(terminal, run):
    """An unknown argument of the console is named, with rich's own words."""
    bar = RichProgressBar(console_kwargs={"colour": True})
    with pytest.raises(
        CallbackError, match=r"console_kwargs .*unexpected keyword argument 'colour"
    ):
        run(bar).fit()


def test_theme_styles_the_parts(terminal, run):
    """The styles of the theme reach the screen."""
    run(RichProgressBar(theme=RichProgressBarTheme(metrics="magenta")), max_epochs=1).fit()
    line = terminal.buffer[0]
    metrics = terminal.screen[0].index("loss=0.5")
    assert {line[column].fg for column in range(metrics, metrics + 8)} == {"magenta"}
    assert line[0].fg == "default"
    with pytest.raises(FrozenInstanceError):
        RichProgressBarTheme().metrics = "red"


def test_console_arguments_are_used(terminal, run):
    """The console is made with the caller's arguments: here, another width."""
    fired = run(RichProgressBar(console_kwargs={"width": 60}), max_epochs=1)
    fired.trainer.metrics = {f"metric_{index}": 0.5 for index in range(8)}
    fired.fit()
    assert max(map(len, terminal.screen)) <= 60


def test_forced_terminal(run, capsys):
    """force_terminal in the console's arguments decides, whatever the output is."""
    bar = RichProgressBar(console_kwargs={"force_terminal": True, "width": 100})
    run(bar, max_epochs=1).fit()
    assert "\x1b[" in capsys.readouterr().out


def test_console_that_is_forced_to_be_no_terminal(terminal, run, clock):
    """On a terminal too, force_terminal=False gives plain lines."""
    run(RichProgressBar(console_kwargs={"force_terminal": False}), max_epochs=1).fit()
    assert terminal.screen == ["Epoch 0/0: 4/4 [00:00, loss=0.5]"]


def test_narrow_screen_shows_all_metrics(terminal, run, monkeypatch):
    """Where the line is too short, metrics go on below and none is cut."""
    monkeypatch.setenv("COLUMNS", "80")
    fired = run(RichProgressBar(), max_epochs=1)
    fired.trainer.metrics = {"train_loss": 0.25, "val_loss": 0.5, "val_accuracy": 0.75}
    fired.fit()
    assert max(map(len, terminal.screen)) <= 80
    shown = " ".join(" ".join(terminal.screen).split())
    assert shown.endswith("train_loss=0.250 val_loss=0.500 val_accuracy=0.750")


def test_length_that_becomes_unknown(terminal, run):
    """A bar whose total is no longer known pulses: it stands at no fraction of an old total."""
    fired = run(RichProgressBar(), num_training_batches=4)
    fired.start()
    fired.epoch()
    fired.trainer.num_training_batches = float("inf")
    fired.epoch(batches=2)
    [task] = fired.bar.progress.tasks
    assert (task.total, task.completed) == (None, 2)
    fired.bar.teardown(*fired.args, "fit")


def test_plain_prints_do_not_tear_the_bar(terminal, run):
    """Even what the builtin prints while the bar is open stands above it."""
    fired = run(RichProgressBar(), max_epochs=1)
    fired.at_batch = lambda count: print("plain", count)
    fired.fit()
    *said, line = terminal.screen
    assert said == [f"plain {count}" for count in (1, 2, 3, 4)]
    assert "4/4" in line
