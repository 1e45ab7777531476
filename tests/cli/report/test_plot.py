"""`trainer-hooks plot`: curves as characters."""

from __future__ import annotations

import io
import os
import re
import sys

import pytest

from trainer_hooks.cli.main import main
from trainer_hooks.cli.report.terminal_plot import smoothed

pytest.importorskip("plotext")


@pytest.fixture
def plot(capsys):
    """Ask `trainer-hooks plot ...`; return the exit code, the output and the error."""

    def plot(*arguments):
        capsys.readouterr()
        code = main(["plot", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return plot


@pytest.fixture
def run(tmp_path):
    """Make the folder of a run with two metrics over ten epochs of ten steps."""

    def run(name="one", factor=1.0):
        folder = tmp_path / name
        folder.mkdir()
        rows = [f"{s},{s // 10},{factor * (100 - s)},{factor * s}" for s in range(100)]
        (folder / "metrics.csv").write_text("\n".join(["step,epoch,loss,acc", *rows, ""]))
        return folder

    return run


def test_a_stream_without_boxes_gets_a_plot_in_ascii(run, monkeypatch) -> None:
    """On a console of Windows a curve is drawn with stars, in a frame of ASCII."""
    shown = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(shown, "cp1252", write_through=True))
    assert main(["plot", str(run()), "loss"]) == 0
    lines = shown.getvalue().decode("ascii").splitlines()
    body = [line.replace("+", "|").partition("|")[2] for line in lines if line.endswith("|")]
    starts = [line.index("*") for line in body if "*" in line]
    assert starts == sorted(starts)
    assert starts[0] < 10 < 60 < starts[-1]
    assert [line.split("+")[0].strip() for line in lines if line[:3].strip().isdecimal()][:2] == [
        "100",
        "80",
    ]


@pytest.mark.posix  # the characters of its terminals
def test_a_curve_is_drawn_where_its_values_are(plot, run) -> None:
    """A falling line begins high on the left and ends low on the right; the axes say so."""
    code, out, err = plot(run(), "loss")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].strip() == "loss"
    body = [line.replace("┤", "│").split("│") for line in lines if line.endswith("│")]
    places = [re.search(r"\S", parts[1]) for parts in body]
    drawn = [match.start() for match in places if match]
    assert drawn == sorted(drawn)
    assert drawn[0] < 10 < 60 < drawn[-1]
    labels = [line.split("┤")[0].strip() for line in lines if "┤" in line]
    assert labels == ["100", "80", "60", "40", "20"]
    assert out.splitlines()[-2].strip() == "step"
    assert "\x1b" not in out


def test_several_curves_have_signs_of_their_own(plot, run) -> None:
    """Without colours, the legend tells them apart by their signs."""
    _, out, _ = plot(run(), "loss", "acc")
    assert "* loss" in out
    assert "+ acc" in out


def test_several_runs_are_drawn_over_each_other(plot, run) -> None:
    """Runs are told apart by their folders."""
    code, out, _ = plot(run("one"), run("two", 2.0), "loss")
    assert code == 0
    assert "* one" in out
    assert "+ two" in out


def test_the_axis_of_epochs(plot, run) -> None:
    """The x axis counts epochs when asked to."""
    _, out, _ = plot(run(), "loss", "--x", "epoch")
    assert out.splitlines()[-2].strip() == "epochs"
    assert out.splitlines()[-3].split() == ["2", "4", "6", "8", "10"]


def test_logarithms_leave_out_what_has_none(plot, run, tmp_path) -> None:
    """Values from 0 down are not drawn; without any other that is an error."""
    code, out, _ = plot(run(), "acc", "--log")
    assert code == 0
    assert "acc" in out
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "metrics.csv").write_text("step,a\n0,-1\n1,0\n")
    code, out, err = plot(tmp_path / "none", "a", "--log")
    assert (code, out) == (2, "")
    assert "none of the values of a is above 0" in err


def test_smoothing_is_a_mean_that_begins_where_the_values_do() -> None:
    """The first value stands, and none of the others outweighs its share."""
    assert smoothed([4.0, 4.0, 4.0], 0.9) == pytest.approx([4.0, 4.0, 4.0])
    assert smoothed([0.0, 1.0], 0.5) == pytest.approx([0.0, 2 / 3])
    assert smoothed([1.0, 5.0], 0.0) == [1.0, 5.0]


def test_an_unknown_metric_is_told_with_those_that_there_are(plot, run) -> None:
    """A misspelt name gets the nearest one and the list."""
    code, out, err = plot(run(), "los")
    assert (code, out) == (2, "")
    assert "metric 'los' is not in the run. Did you mean 'loss'? There are: loss, acc." in err


def test_without_a_name_the_metrics_are_listed(plot, run) -> None:
    """To see what there is, no name need be known."""
    code, _, err = plot(run())
    assert code == 2
    assert "There are: loss, acc." in err


def test_names_cannot_steer_the_terminal(plot, tmp_path) -> None:
    """What is in a file is written out, not obeyed."""
    (tmp_path / "metrics.csv").write_text("step,a\x1b[31m\n0,1\n1,2\n")
    _, _, err = plot(tmp_path, "b")
    assert "\x1b" not in err
    _, out, _ = plot(tmp_path, "a\x1b[31m")
    assert "\x1b" not in out
    assert r"a\x1b[31m" in out


@pytest.mark.parametrize("value", ["1", "-0.1", "lots", "nan"])
def test_a_smoothing_that_makes_no_sense_is_refused(value, plot, run, capsys) -> None:
    """The mean must keep less than all of what it was."""
    with pytest.raises(SystemExit) as exit_:
        plot(run(), "loss", "--smooth", value)
    assert exit_.value.code == 2
    assert "must be a number from 0 to under 1" in capsys.readouterr().err


def test_epochs_that_were_not_logged_are_told(plot, tmp_path) -> None:
    """Without an epoch column there is no such axis."""
    (tmp_path / "metrics.csv").write_text("step,a\n0,1\n")
    code, _, err = plot(tmp_path, "a", "--x", "epoch")
    assert code == 2
    assert "has logged no epochs" in err


def test_one_value_is_drawn(plot, tmp_path) -> None:
    """A run that has just begun can be looked at."""
    (tmp_path / "metrics.csv").write_text("step,epoch,a\n0,0,1\n")
    for more in ((), ("--log",), ("--x", "epoch")):
        assert plot(tmp_path, "a", *more)[0] == 0


def test_a_constant_is_drawn(plot, tmp_path) -> None:
    """A metric that does not change has a line."""
    (tmp_path / "metrics.csv").write_text("step,a\n0,0\n1,0\n2,0\n")
    assert plot(tmp_path, "a")[0] == 0


def test_it_says_what_to_install(plot, run, monkeypatch) -> None:
    """Without plotext, the extra that has it is named."""
    monkeypatch.setitem(sys.modules, "plotext", None)
    code, _, err = plot(run(), "loss")
    assert code == 2
    assert "pip install 'trainer-hooks[report]'" in err


def test_a_terminal_gets_colours_and_its_width(plot, run, monkeypatch) -> None:
    """On a terminal lines have colours, and the plot is as wide as the window."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(
        "shutil.get_terminal_size", lambda fallback=None: os.terminal_size((60, 20))
    )
    _, out, _ = plot(run(), "loss")
    assert "\x1b[" in out
    plain = re.sub(r"\x1b\[[\d;]*m", "", out)
    assert max(map(len, plain.splitlines())) == 60
