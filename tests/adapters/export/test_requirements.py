"""The errors of a conversion for a framework that is not there, or not wholly."""

from __future__ import annotations

import pytest

from trainer_hooks.adapters.export.requirements import import_host_framework
from trainer_hooks.errors import CallbackError


def test_a_framework_that_is_not_installed_is_told() -> None:
    """By its own name, with the command that installs it."""
    with pytest.raises(CallbackError, match=r"Frame is not installed. .* pip install their-f"):
        import_host_framework("no_such_frame.core", "Their Frame", "to_theirs", "their-frame")


def test_a_framework_that_lacks_a_package_is_told(tmp_path, monkeypatch) -> None:
    """The package that is missing is named: the framework itself is installed."""
    (tmp_path / "half_a_frame.py").write_text("import no_such_vision.ops\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    said = "cannot be imported, as it lacks 'no_such_vision'. Install it: pip install no_such_vis"
    with pytest.raises(CallbackError, match=said):
        import_host_framework("half_a_frame", "Half a Frame", "to_half", "half-a-frame")
