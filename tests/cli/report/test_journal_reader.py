"""The journal read back: how each start of a run went."""

from __future__ import annotations

import json
import os
import socket

import pytest

from trainer_hooks._system import process_start
from trainer_hooks.cli.report.logged_run import Outcome, read_journal, set_outcomes

HERE = {"host": socket.gethostname()}


def journal(folder, *records):
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (folder / "run.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return set_outcomes(read_journal(folder)[0])


def start(run="a", **more):
    told = {"event": "start", "run": run, "time": 10.0, "stage": "fit", "pid": 2**22 + 1}
    return {**told, "hardware": HERE, **more}


def end(run="a", **more):
    return {"event": "end", "run": run, "time": 20.0, "status": "finished", **more}


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (end(), Outcome.FINISHED),
        (end(status="failed"), Outcome.FAILED),
        (end(status="signal", signal="SIGTERM"), Outcome.SIGNAL),
    ],
)
def test_an_end_says_how_it_went(last, outcome, tmp_path) -> None:
    """What the run noted is taken over."""
    [session] = journal(tmp_path, start(), last)
    assert session.outcome is outcome
    assert (session.began, session.last_seen) == (10.0, 20.0)


def test_without_an_end_it_was_killed_if_its_process_is_gone(tmp_path) -> None:
    """On this machine it can be looked up."""
    [session] = journal(tmp_path, start())
    assert session.outcome is Outcome.KILLED


def test_without_an_end_it_runs_if_its_process_is_there(tmp_path) -> None:
    """This very process is there."""
    own = os.getpid()
    [session] = journal(tmp_path, start(pid=own, process=process_start(own)))
    assert session.outcome is Outcome.RUNNING
    [session] = journal(tmp_path, start(pid=own))
    assert session.outcome is Outcome.RUNNING


@pytest.mark.skipif(process_start(os.getpid()) is None, reason="needs /proc")
def test_another_process_with_its_number_is_not_taken_for_it(tmp_path) -> None:
    """Numbers of processes are given again; the moment of the start is not."""
    [session] = journal(tmp_path, start(pid=os.getpid(), process="1"))
    assert session.outcome is Outcome.KILLED


def test_on_another_machine_only_a_later_start_tells(tmp_path) -> None:
    """What runs elsewhere cannot be looked up, unless it was started again."""
    far = {"hardware": {"host": "elsewhere"}}
    first, second = journal(tmp_path, start("a", **far), start("b", **far))
    assert first.outcome is Outcome.KILLED
    assert second.outcome is Outcome.UNKNOWN


def test_the_last_place_is_the_furthest_that_was_noted(tmp_path) -> None:
    """A killed run came at least as far as its last sample or checkpoint."""
    [session] = journal(
        tmp_path,
        start(step=3),
        {"event": "sample", "run": "a", "time": 12.0, "step": 7},
        {"event": "saved", "run": "a", "time": 14.0, "step": 9, "path": "x.ckpt"},
    )
    assert session.last_count("step") == 9
    assert session.last_seen == 14.0


@pytest.mark.parametrize(
    "line", ["", "garbage", "[1]", "{}", '{"event": 3}', '{"event": "sample"}', "\0", "9" * 5000]
)
def test_lines_without_sense_are_left_out(line, tmp_path) -> None:
    """A damaged line takes nothing else with it."""
    [session] = journal(tmp_path, start(), line, end())
    assert session.outcome is Outcome.FINISHED


def test_lines_that_cannot_be_read_are_counted(tmp_path) -> None:
    """The reader is told how many."""
    journal(tmp_path, start(), "garbage", '{"event": "sam', end())
    assert read_journal(tmp_path)[1] == 2


def test_values_of_the_wrong_kind_are_nothing(tmp_path) -> None:
    """Whatever stands in a record, reading it fails nowhere."""
    odd = start(time="noon", stage=[1], pid="x", step={}, hardware=[], resumed_from=7)
    [session] = journal(tmp_path, odd)
    assert (session.began, session.stage, session.resumed_from) == (0.0, "fit", "")
    assert session.last_count("step") == 0


def test_without_a_journal_there_is_nothing(tmp_path) -> None:
    """A folder without one is no error."""
    assert read_journal(tmp_path) == ([], 0)
