"""The built-in callbacks in transformers's Trainer: each has the effect that it has here."""

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
from host_fits import InTransformers

from trainer_hooks.adapters.export.transformers import TRANSFORMERS_EVENTS

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("transformers.trainer",)

HOST, EVENTS = InTransformers, TRANSFORMERS_EVENTS
