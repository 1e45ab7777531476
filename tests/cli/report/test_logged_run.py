"""What is a run's folder, and which runs belong together."""

from __future__ import annotations

import json
import os

import pytest

from trainer_hooks.cli.report.logged_run import (
    RunFolderError,
    labels_of,
    newest_run,
    newest_runs,
    read_run,
    require_run,
)


def make(folder, *rows, head="step,epoch,loss", records=()):
    folder.mkdir(parents=True, exist_ok=True)
    if rows:
        (folder / "metrics.csv").write_text("".join(f"{line}\n" for line in (head, *rows)))
    if records:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "run.jsonl").write_text(lines)
    return folder


def start(run, step=0, resumed_from=None, time=10.0):
    return {
        "event": "start", "run": run, "time": time, "stage": "fit", "step": step, "pid": 2**22 + 1,
        "resumed_from": resumed_from,
    }  # fmt: skip


def points(run, name="loss"):
    return [tuple(point) for point in run.metrics.curves[name].points]


def test_a_missing_folder_is_told(tmp_path) -> None:
    """A misspelt path is an error, and not an empty page."""
    with pytest.raises(RunFolderError, match="is not there: give the folder of a run"):
        require_run(tmp_path / "none")


def test_a_file_is_no_folder(tmp_path) -> None:
    """The metrics file itself is not asked for."""
    (tmp_path / "metrics.csv").write_text("step\n")
    with pytest.raises(RunFolderError, match="is a file: give the folder of a run"):
        require_run(tmp_path / "metrics.csv")


def test_an_empty_folder_is_no_run(tmp_path) -> None:
    """The message says what is looked for."""
    with pytest.raises(
        RunFolderError, match=r"holds nothing of a run: neither metrics\.csv.*three levels"
    ):
        require_run(tmp_path)


@pytest.mark.parametrize("depth", ["", "trainer_logs"])
def test_of_a_folder_of_runs_the_newest_is_taken(depth, tmp_path, capsys) -> None:
    """One level or two too high, the run that was written to last is taken, and a line says so."""
    for number, age in ((2, 100), (9, 300), (10, 200)):
        folder = make(tmp_path / depth / f"version_{number}", "0,0,1")
        os.utime(folder / "metrics.csv", (age, age))
    newest = tmp_path / depth / "version_9"
    assert newest_runs([tmp_path, newest]) == [newest]
    told = capsys.readouterr().err
    assert told == (
        f"trainer-hooks plot: took {str(newest)!r}, the newest of 3 runs in {str(tmp_path)!r}\n"
    )


def test_of_runs_of_one_moment_the_highest_number_is_taken(tmp_path) -> None:
    """Where the clock cannot tell, 10 comes after 9."""
    for number in (9, 10, 2):
        folder = make(tmp_path / f"version_{number}", "0,0,1")
        os.utime(folder / "metrics.csv", (5, 5))
    assert newest_run(tmp_path) == (tmp_path / "version_10", 3)


def test_a_folder_of_checkpoints_beside_a_run_is_no_run(tmp_path) -> None:
    """`ModelCheckpoint(dirpath=...)` puts them there; alone they are what is left of a run."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a.ckpt").touch()
    assert newest_run(tmp_path) == (tmp_path / "weights", 1)
    run = make(tmp_path / "trainer_logs" / "version_0", "0,0,1")
    assert newest_run(tmp_path) == (run, 1)
    # a run one level down goes before those two levels down, whichever is newer
    nearer = make(tmp_path / "version_3", "0,0,1")
    os.utime(nearer / "metrics.csv", (5, 5))
    assert newest_run(tmp_path) == (nearer, 1)


@pytest.mark.parametrize(
    ("name", "logger"),
    [("events.out.tfevents.1.vm", "TensorBoard"), ("wandb", "wandb"), ("mlruns", "MLflow")],
)
def test_other_loggers_are_told(name, logger, tmp_path) -> None:
    """Who logged elsewhere learns from where metrics are read."""
    (tmp_path / name).write_text("x")
    with pytest.raises(RunFolderError, match=f"holds files of {logger} alone: metrics are read"):
        require_run(tmp_path)


def test_a_run_goes_on_from_the_one_whose_checkpoint_it_took(tmp_path) -> None:
    """Curves are joined where the resume was; what was lost is not drawn."""
    first = make(tmp_path / "v0", "0,0,9", "5,0,8", "9,0,7", records=[start("a")])
    path = str(first / "checkpoints" / "last.ckpt")
    second = make(tmp_path / "v1", "7,0,5", "9,0,4", records=[start("b", 6, path)])
    run = read_run(second, "v1", 100)
    assert points(run) == [(0, 9.0), (5, 8.0), (7, 5.0), (9, 4.0)]
    assert run.earlier == [first]
    assert [session.start["run"] for session in run.starts] == ["a", "b"]
    assert run.starts[0].outcome == "killed"


def test_metrics_of_a_run_that_is_shown_itself_are_left_to_it(tmp_path) -> None:
    """Beside its predecessor a run shows its own part alone."""
    first = make(tmp_path / "v0", "0,0,9", records=[start("a")])
    second = make(
        tmp_path / "v1", "7,0,5", records=[start("b", 6, str(first / "checkpoints" / "x.ckpt"))]
    )
    run = read_run(second, "v1", 100, beside=[first])
    assert points(run) == [(7, 5.0)]


def test_runs_that_were_moved_together_still_find_each_other(tmp_path) -> None:
    """The path in the journal is that of then; the folder beside has the same name."""
    make(tmp_path / "v0", "0,0,9", records=[start("a")])
    gone = "/not/there/any/more/v0/checkpoints/last.ckpt"
    second = make(tmp_path / "v1", "7,0,5", records=[start("b", 6, gone)])
    assert points(read_run(second, "v1", 100)) == [(0, 9.0), (7, 5.0)]


def test_checkpoints_elsewhere_are_found_by_who_saved_them(tmp_path) -> None:
    """With a folder of checkpoints of its own, the journals beside tell which run saved what."""
    path = str(tmp_path / "elsewhere" / "x.ckpt")
    saved = {"event": "saved", "run": "a", "time": 11.0, "path": path, "step": 6}
    make(tmp_path / "logs" / "v0", "0,0,9", records=[start("a"), saved])
    second = make(tmp_path / "logs" / "v1", "7,0,5", records=[start("b", 6, path, time=12.0)])
    assert points(read_run(second, "v1", 100)) == [(0, 9.0), (7, 5.0)]


def test_runs_that_lead_in_a_circle_end(tmp_path) -> None:
    """Journals that name each other are read once each."""
    make(tmp_path / "v0", "0,0,9", records=[start("a", 1, str(tmp_path / "v1/checkpoints/x"))])
    second = make(
        tmp_path / "v1", "7,0,5", records=[start("b", 6, str(tmp_path / "v0/checkpoints/x"))]
    )
    assert len(read_run(second, "v1", 100).starts) == 2


def test_what_is_missing_or_damaged_is_noted(tmp_path) -> None:
    """A reader is told what was left out, and why."""
    run = make(tmp_path / "v0", "0,0,nan", "1,0,1", "x,0,1")
    (run / "hparams.json").write_text("{")
    notes = "\n".join(read_run(run, "v0", 100).notes)
    assert "There is no run.jsonl" in notes
    assert "1 of 3 rows" in notes
    assert "loss: 1 values were NaN or infinite, the first at step 0" in notes
    assert "hparams.json could not be read" in notes


def test_secrets_among_the_hyperparameters_are_hidden(tmp_path) -> None:
    """A report is sent to others: a key that a module saved does not stand in it."""
    run = make(tmp_path / "v0", "0,0,1")
    saved = {"lr": 0.1, "api_key": "hunter2", "store": {"password": "hunter2"}}
    (run / "hparams.json").write_text(json.dumps(saved))
    hidden = {"lr": 0.1, "api_key": "***", "store": {"password": "***"}}
    assert read_run(run, "v0", 100).hparams == hidden


def test_labels_tell_all_apart(tmp_path) -> None:
    """A label has as many folders as it needs."""
    paths = [tmp_path / "a" / "v0", tmp_path / "b" / "v0"]
    assert labels_of(paths) == ["a/v0", "b/v0"]
    assert labels_of([tmp_path / "a" / "v0", tmp_path / "a" / "v1"]) == ["v0", "v1"]
    assert labels_of(paths[:1]) == ["v0"]
