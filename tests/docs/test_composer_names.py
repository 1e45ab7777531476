from __future__ import annotations

import pytest


@pytest.fixture
def page(generator):
    """The module that makes the tables of Composer's names."""
    import composer_page

    return composer_page


def test_a_name_that_is_neither_offered_nor_replaced_stops_the_page(page, monkeypatch) -> None:
    """A name of Composer without a counterpart needs a replacement."""
    replacements = dict(page.not_offered.STATE)
    del replacements["tp_config"]
    monkeypatch.setattr(page.not_offered, "STATE", replacements)
    with pytest.raises(ValueError, match="State: tp_config: not here"):
        page.offered_rows()


def test_an_offered_name_has_no_replacement(page, monkeypatch) -> None:
    """A name that was added since is no longer listed as missing."""
    replacements = {**page.not_offered.STATE, "batch": "not here"}
    monkeypatch.setattr(page.not_offered, "STATE", replacements)
    with pytest.raises(ValueError, match="State: batch: here by now"):
        page.offered_rows()
