"""The programs of this folder say what Composer does: they run in Composer itself, too."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest
import warm_python

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
STAND_INS = ROOT / "tests/adapters/composer/stand_ins"
FILES = ("test_order.py", "test_programs.py", "test_optim.py", "test_pages.py")

ONLY_HERE = {
    "test_order.py": {
        "test_the_guard_against_two_trainers": "the error has its own words",
        "test_an_error_names_the_event_and_the_callback": "no error there says so",
    },
    "test_programs.py": {
        "test_autoresume_follows_the_newest": "the error has its own words",
        "test_composer_classifier": "the error has its own words",
        "test_fit_goes_on_for_a_duration": "the error has its own words",
        "test_a_saver_of_ones_own": "docs/coming-from-composer.md: the end is saved here",
        "test_callbacks_of_trainer_hooks_take_part": "they do here alone",
        "test_a_resume_has_the_data_of_an_uncut_run": "it has not there",
        "test_two_callbacks_with_a_state_need_a_key_each": "one overwrites the other's there",
    },
    "test_pages.py": {
        "test_the_name_of_the_run_in_a_filename": "a KeyError there, though its page has it",
    },
    "test_optim.py": {"test_what_makes_no_schedule": "the error has its own words"},
}
"""What is not Composer's, and why."""


@pytest.mark.exhaustive
@pytest.mark.skipif(
    not any(importlib.metadata.distributions(name="mosaicml")),
    reason="needs pip install --no-deps -r tests/adapters/composer/requirements.txt",
)
def test_the_programs_run_in_composer() -> None:
    """With Composer in the place of `trainer_hooks.compat.composer`, all but those named pass."""
    left_out = [
        f"--deselect={HERE.relative_to(ROOT) / file}::{name}"
        for file, names in ONLY_HERE.items()
        for name in names
    ]
    done = warm_python.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "as_composer", "-p", "no:cacheprovider",
            "-o", "addopts=--import-mode=importlib", "-o", "filterwarnings=ignore", *left_out,
            *(HERE / file for file in FILES),
        ],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE, STAND_INS)))},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " deselected" in done.stdout
