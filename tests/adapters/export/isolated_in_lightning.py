"""The built-in callbacks in Lightning's Trainer: each has the effect that it has here."""

from __future__ import annotations

import pytest
from every_host import (  # noqa: F401
    events,
    host,
    pytest_generate_tests,
    test_hooks_come_in_the_order_of_our_trainer,
    test_it_goes_on_after_a_resume,
    test_it_has_the_same_effect,
    test_it_is_refused_as_it_is_converted,
    test_it_runs_beside_the_defaults_or_is_refused,
)
from host_fits import InLightning

from trainer_hooks import Callback
from trainer_hooks.adapters import to_lightning
from trainer_hooks.adapters.export.lightning import LIGHTNING_EVENTS
from trainer_hooks.errors import CallbackError

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("pytorch_lightning",)

HOST, EVENTS = InLightning, LIGHTNING_EVENTS


@pytest.mark.parametrize("hook", ["on_log", "on_checkpoint_saved"])
def test_a_hook_that_lightning_never_calls_is_refused(hook):
    """A callback that has no other would do nothing."""
    callback = type("Listens", (Callback,), {hook: lambda *_: None})()
    with pytest.raises(CallbackError, match=f"none of its hooks '{hook}' is called in Lightning"):
        to_lightning(callback)
