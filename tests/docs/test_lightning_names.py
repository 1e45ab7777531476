from __future__ import annotations

import pytest


@pytest.fixture
def maker(generator, monkeypatch):
    """What makes the page of differences, with a list of reasons of its own."""
    import lightning_page

    reasons = {kind: dict(rows) for kind, rows in lightning_page.INSTEAD.items()}
    monkeypatch.setattr(lightning_page, "INSTEAD", reasons)
    return lightning_page.lightning_page, reasons


@pytest.mark.parametrize("kind", ["packages", "trainer", "module", "datamodule", "loggers"])
def test_each_name_of_lightning_that_is_not_here_has_a_reason(maker, kind) -> None:
    """A name that is neither here nor explained stops the page from being made, by name."""
    make, reasons = maker
    name, _ = reasons[kind].popitem()
    with pytest.raises(ValueError, match=f"{kind}: {name}:"):
        make()


def test_a_name_that_is_here_has_no_reason(maker) -> None:
    """What was added since is no longer listed as missing."""
    make, reasons = maker
    reasons["options"]["max_epochs"] = "not here"
    with pytest.raises(ValueError, match="options: max_epochs:"):
        make()
