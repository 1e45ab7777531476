"""The journal: whole lines only, whatever happened to the writer."""

from __future__ import annotations

import json

from trainer_hooks.callbacks.reporting.journal import Journal


def test_each_record_is_a_line_in_a_folder_that_is_made(tmp_path) -> None:
    """Records can be read back in their order; the folder is made with the first."""
    journal = Journal(tmp_path / "new" / "run.jsonl")
    assert not journal.path.parent.exists()
    journal.append({"event": "start", "text": "two\nlines"})
    journal.append({"event": "end"})
    lines = journal.path.read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["start", "end"]


def test_a_line_that_was_cut_off_is_ended_first(tmp_path) -> None:
    """What a killed process left unfinished does not swallow the next record."""
    path = tmp_path / "run.jsonl"
    path.write_text('{"event": "start"}\n{"event": "sam')
    Journal(path).append({"event": "start"})
    assert path.read_text() == '{"event": "start"}\n{"event": "sam\n{"event": "start"}\n'


def test_what_json_has_no_form_for_is_its_text(tmp_path) -> None:
    """A record never fails for what is in it."""
    journal = Journal(tmp_path / "run.jsonl")
    journal.append({"path": tmp_path})
    assert json.loads(journal.path.read_text()) == {"path": str(tmp_path)}
