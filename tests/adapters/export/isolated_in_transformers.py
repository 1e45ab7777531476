"""The built-in callbacks in transformers's Trainer: each has the effect that it has here."""

from __future__ import annotations

import pytest
from host_fits import InTransformers
from pairs import PAIRS, differences, order_differences, resumed_differences

from trainer_hooks.adapters.export.transformers import TRANSFORMERS_EVENTS

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", PAIRS)
def test_it_has_the_same_effect(name, tmp_path):
    assert differences(PAIRS[name], InTransformers(), tmp_path) == []


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if pair.resumes])
def test_it_goes_on_after_a_resume(name, tmp_path):
    assert resumed_differences(PAIRS[name], InTransformers(), tmp_path) == []


@pytest.mark.parametrize("accumulate", [1, 2])
def test_hooks_come_in_the_order_of_our_trainer(accumulate, tmp_path):
    events = TRANSFORMERS_EVENTS
    assert order_differences(InTransformers(), events, tmp_path, accumulate=accumulate) == ""
