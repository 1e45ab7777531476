from __future__ import annotations

import pytest


@pytest.fixture
def page(generator):
    """What makes the tables of Composer's names."""
    import composer_page

    return composer_page


def test_a_name_that_is_neither_here_nor_explained_stops_the_page(page, monkeypatch) -> None:
    """A name of Composer without a counterpart needs a word on what to do instead."""
    reasons = dict(page.absent.STATE)
    del reasons["tp_config"]
    monkeypatch.setattr(page.absent, "STATE", reasons)
    with pytest.raises(ValueError, match="State: tp_config: not here"):
        page.here_rows()


def test_a_name_that_is_here_has_no_reason(page, monkeypatch) -> None:
    """What was added since is no longer listed as missing."""
    monkeypatch.setattr(page.absent, "STATE", {**page.absent.STATE, "batch": "not here"})
    with pytest.raises(ValueError, match="State: batch: here by now"):
        page.here_rows()
