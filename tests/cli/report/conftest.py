from __future__ import annotations

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """A chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
