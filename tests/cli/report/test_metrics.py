"""Metrics read from a run's CSV files: the right numbers, in bounded memory."""

from __future__ import annotations

import math

import pytest

from trainer_hooks.cli.report.metrics import Curve, EpochAxis, Metrics, MetricsFileError


def write(path, *lines, end="\n"):
    path.write_text("\n".join(lines) + end)
    return path


def read(path, most=100) -> Metrics:
    metrics = Metrics(most)
    metrics.read(path)
    return metrics


def points(metrics, name):
    return [tuple(point) for point in metrics.curves[name].points]


def test_all_values_are_read_with_their_steps(tmp_path) -> None:
    """Each metric has its own values; an empty cell is none."""
    path = write(tmp_path / "m.csv", "step,epoch,a,b", "0,0,1.5,", "3,0,,2", "7,1,-1e-3,4")
    metrics = read(path)
    assert list(metrics.curves) == ["a", "b"]
    assert points(metrics, "a") == [(0, 1.5), (7, -0.001)]
    assert points(metrics, "b") == [(3, 2.0), (7, 4.0)]
    assert (metrics.rows, metrics.skipped) == (3, 0)


def test_a_row_that_is_cut_off_is_left_out(tmp_path) -> None:
    """The last row without its end may have half a number in it."""
    metrics = read(write(tmp_path / "m.csv", "step,a", "0,1", "1,0.12", end=""))
    assert points(metrics, "a") == [(0, 1.0)]
    assert metrics.skipped == 1


@pytest.mark.parametrize("row", ["x,1", "1", "1,2,3", "1,one", "inf,1", "\0\0\0,1", '1,"'])
def test_a_row_without_sense_is_left_out_and_counted(row, tmp_path) -> None:
    """A damaged row does not stop the reading of those before it."""
    path = tmp_path / "m.csv"
    path.write_bytes(f"step,a\n0,1\n{row}\n".encode())
    metrics = read(path)
    assert points(metrics, "a") == [(0, 1.0)]
    assert metrics.skipped == 1


@pytest.mark.parametrize(
    "content", [b"", b"\x89PNG\r\n\x1a\n\0\0", b"time,loss\n1,2\n", b"\xff" * 300_000]
)
def test_a_file_that_is_no_metrics_is_refused(content, tmp_path) -> None:
    """What has no steps was not written by a CSVLogger, and the message says so."""
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(MetricsFileError, match="was not written by a CSVLogger"):
        read(path)


def test_nan_and_infinities_are_counted_and_not_drawn(tmp_path) -> None:
    """A curve has finite values alone, and says where the others began."""
    curve = read(write(tmp_path / "m.csv", "step,a", "0,1", "1,nan", "2,inf", "3,2")).curves["a"]
    assert [tuple(p) for p in curve.points] == [(0, 1.0), (3, 2.0)]
    assert (curve.gaps, curve.first_gap) == (2, 1)


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        (["0,1", "1,nan"], "nan"),
        (["0,1", "1,nan", "2,3"], "3.0"),
        (["0,1", "5,inf", "3,2"], "2.0"),
        (["nan,nan", "0,-inf"], "-inf"),
    ],
)
def test_the_last_value_may_be_no_number(rows, last, tmp_path) -> None:
    """The end of a run that diverged is not the last finite value; a resumed run replaces it."""
    curve = read(write(tmp_path / "m.csv", "step,a", *rows)).curves["a"]
    assert str(curve.last.value) == last
    curve.cut(0)
    assert curve.last is None


def test_what_a_resumed_run_trains_again_takes_the_place_of_what_was_lost(tmp_path) -> None:
    """Rows that go back in steps replace those from there on."""
    rows = ["0,1", "10,2", "20,3", "10,5", "15,6"]
    metrics = read(write(tmp_path / "m.csv", "step,a", *rows))
    assert points(metrics, "a") == [(0, 1.0), (10, 5.0), (15, 6.0)]
    assert metrics.curves["a"].replaced == 2


def test_all_points_are_kept_up_to_the_limit() -> None:
    """Nothing is thinned out that fits."""
    curve = Curve(40)
    for step in range(40):
        curve.add(step, float(step % 7))
    assert [tuple(p) for p in curve.points] == [(step, float(step % 7)) for step in range(40)]
    assert curve.count == 40


@pytest.mark.parametrize("count", [41, 100, 1000, 54_321])
def test_a_long_curve_keeps_its_peaks_its_ends_and_its_bound(count) -> None:
    """However many values there are: few points, all true, and the extremes among them."""
    values = [math.sin(step / 50) for step in range(count)]
    values[count // 3], values[count // 2] = 99.0, -99.0
    curve = Curve(40)
    for step, value in enumerate(values):
        curve.add(step, value)
    kept = [tuple(p) for p in curve.points]
    assert len(kept) <= 40
    assert curve.count == count
    assert all(values[step] == value for step, value in kept)
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    assert {(count // 3, 99.0), (count // 2, -99.0)} <= set(kept)
    assert (kept[0], kept[-1]) == ((0, values[0]), (count - 1, values[-1]))


def test_a_long_curve_can_be_cut() -> None:
    """A resume far back in a thinned curve leaves what was before it."""
    curve = Curve(40)
    for step in range(10_000):
        curve.add(step, 1.0)
    curve.add(5_000, 2.0)
    kept = [tuple(p) for p in curve.points]
    assert kept[-1] == (5_000, 2.0)
    assert all(value == 1.0 and step < 5_000 for step, value in kept[:-1])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path) -> None:
    """A file of many rows is never held: what is kept of it is bounded."""
    import tracemalloc

    path = tmp_path / "m.csv"
    with path.open("w") as file:
        file.write("step,epoch,a\n")
        file.writelines(f"{step},{step // 1000},{step % 97}\n" for step in range(60_000))
    assert path.stat().st_size > 600_000
    read(path)  # imports and caches
    tracemalloc.start()
    metrics = read(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert metrics.rows == 60_000
    assert most < 300_000


def test_epochs_are_an_axis() -> None:
    """The end of an epoch is a whole number, and between there are parts of it."""
    axis = EpochAxis()
    for step in range(20):
        axis.add(step, step // 10)
    assert axis.positions([9, 19]) == [1.0, 2.0]
    assert axis.positions([4]) == [0.5]
    axis.add(24, 2)  # under way: as long as the one before
    assert axis.positions([19, 24]) == [2.0, 2.5]


def test_the_axis_of_a_run_that_began_later() -> None:
    """A run that went on from another has no first epochs, and is not drawn as if it had."""
    axis = EpochAxis()
    for step in range(100, 120):
        axis.add(step, step // 10)
    assert axis.positions([109, 104, 119]) == [11.0, 10.5, 12.0]


def test_the_axis_of_one_step() -> None:
    """The least that there can be has a place."""
    axis = EpochAxis()
    assert not axis
    axis.add(0, 0)
    assert axis.positions([0]) == [1.0]
