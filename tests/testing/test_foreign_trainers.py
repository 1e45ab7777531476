"""`check_callback(..., everywhere=True)`: a callback in the trainers of other frameworks."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from trainer_hooks.testing import TinyModule, examine_callback, foreign_trainers

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).with_name("foreign_callbacks.py")
STAND_INS = ROOT / "tests" / "adapters" / "composer" / "stand_ins"
CHECKS = {
    "in_lightning": ("Lightning", "pytorch_lightning"),
    "in_accelerated": ("pytorch-accelerated", "pytorch_accelerated"),
    "in_composer": ("Composer", "composer"),
    "in_transformers": ("transformers", "transformers"),
}


@pytest.fixture(scope="module")
def found(results_of) -> dict:
    """The results of each callback of `foreign_callbacks.py`, check by check."""
    in_composer, in_others = ["in_composer"], sorted(CHECKS.keys() - {"in_composer"})
    # Composer wants a torchvision, whose stand-in would mislead transformers
    found = results_of(CASES, words=in_others)
    for name, results in results_of(CASES, STAND_INS, words=in_composer).items():
        found[name] |= {check: results[check] for check in in_composer}
        found[name]["elsewhere"] += results["elsewhere"]
    return found


@pytest.mark.slow
def test_what_is_not_installed_is_said(monkeypatch) -> None:
    """A framework that is not there is no defect, and the report says that it was not run."""
    monkeypatch.setattr(foreign_trainers.importlib.util, "find_spec", lambda name: None)
    report = examine_callback(
        lambda: __import__("trainer_hooks").Callback(), module=TinyModule, everywhere=True
    )
    assert report.is_passed
    for name, (framework, _) in CHECKS.items():
        assert f"not run: {name}: {framework} is not installed" in str(report)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CHECKS)
class TestInEach:
    """In each framework that is installed."""

    @pytest.fixture(autouse=True)
    def _installed(self, name: str) -> None:
        if importlib.util.find_spec(CHECKS[name][1]) is None:
            pytest.skip(f"needs {CHECKS[name][1]}")

    def test_a_good_callback_passes(self, found, name: str) -> None:
        """It runs there, and its state comes back from a checkpoint of theirs."""
        assert (found["Good"][name], found["Good"]["elsewhere"]) == ("", "")

    def test_a_hook_of_ours_only_is_named(self, found, name: str) -> None:
        """What the framework lacks is said with its name and the hook's."""
        assert f"{CHECKS[name][0]} has no hook 'on_before_" in found["OursOnly"][name]

    def test_what_is_used_and_not_there_is_told(self, found, name: str) -> None:
        """An attribute of ours that is not there is a defect as the callback is converted."""
        assert f"{CHECKS[name][0]} has what the callback uses" in found["Asks"][name]
        assert "'trial_run', which Asks.on_train_start reads" in found["Asks"][name]

    def test_what_is_raised_is_told(self, found, name: str) -> None:
        """An error in a fit there is a defect, also one that would disable the callback."""
        for kind in ("Fails", "FailsQuietly"):
            assert f"in a fit of {CHECKS[name][0]}'s Trainer" in found[kind][name]
            assert "not here" in found[kind][name]

    def test_a_lost_state_is_found(self, found, name: str) -> None:
        """A state that is reset after it was loaded is lost; before, as in `setup`, it is not."""
        assert "the state comes back from" in found["Loses"][name]
        assert "the state comes back from" not in found["Resets"][name]
        assert found["Resets"]["elsewhere"] == ""
