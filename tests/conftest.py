"""What every test stands on."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep callbacks of packages that happen to be installed here out of the tests' trainers."""
    monkeypatch.setenv("TRAINER_HOOKS_DISABLE_PLUGINS", "1")
