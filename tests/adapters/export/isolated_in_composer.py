"""The built-in callbacks in Composer's Trainer: each has the effect that it has here."""

from __future__ import annotations

import sys
from pathlib import Path

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
from host_fits import InComposer

from trainer_hooks.adapters.export.composer import COMPOSER_EVENTS

# Composer imports torchvision, which it needs for models of its own alone
sys.path.append(str(Path(__file__).parents[1] / "composer" / "stand_ins"))
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.exhaustive]

IMPORTS = ("tests/adapters/composer/stand_ins", "composer")

HOST, EVENTS = InComposer, COMPOSER_EVENTS
