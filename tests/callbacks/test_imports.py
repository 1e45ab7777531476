from __future__ import annotations

import pytest

from trainer_hooks import callbacks
from trainer_hooks.errors import MovedError


def test_a_name_that_has_moved_is_told_where_it_is_now() -> None:
    """Its import is refused with the present place; `hasattr` and a default find nothing."""
    place = "from trainer_hooks.compat.composer.callbacks import SystemMetricsMonitor"
    with pytest.raises(MovedError, match=place):
        from trainer_hooks.callbacks import SystemMetricsMonitor  # noqa: F401
    assert not hasattr(callbacks, "SystemMetricsMonitor")
    assert getattr(callbacks, "ModelEmaCallback", None) is None
    with pytest.raises(AttributeError, match=place):
        _ = callbacks.SystemMetricsMonitor
