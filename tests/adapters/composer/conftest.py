"""What the tests with Composer stand on."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
