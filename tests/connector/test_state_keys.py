"""State keys are shown short where people read them, and no two look the same."""

from __future__ import annotations

import pytest

from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint
from trainer_hooks.connector.callback_state import LoadReport
from trainer_hooks.connector.state_keys import short_state_key, short_state_keys


def key_of(**options) -> str:
    return ModelCheckpoint(**options).state_key


@pytest.mark.parametrize("key", ["Counter", "Counter{'unit': 'epochs'}", "x" * 200, "{" * 60, ""])
def test_a_short_key_and_one_of_another_form_stay(key) -> None:
    """Nothing is cut out of a text that is no class name with options."""
    assert short_state_key(key) == key
    assert short_state_keys([key]) == {key: key}


def test_the_only_key_of_a_class_is_its_name() -> None:
    """Nothing else is needed to tell it from the others."""
    keys = [key_of(monitor="val_loss"), EarlyStopping("val_loss").state_key, "Other"]
    assert list(short_state_keys(keys).values()) == ["ModelCheckpoint", "EarlyStopping", "Other"]


def test_keys_of_one_class_show_in_what_they_differ() -> None:
    """The first options that tell them apart, whatever stands in the others."""
    keys = [
        key_of(monitor="val_loss"),
        key_of(monitor="val_acc", mode="max"),
        key_of(monitor="val_loss", every_n_train_steps=100),
    ]
    assert list(short_state_keys(keys).values()) == [
        "ModelCheckpoint{'monitor': 'val_loss', 'every_n_train_steps': 0}",
        "ModelCheckpoint{'monitor': 'val_acc'}",
        "ModelCheckpoint{'monitor': 'val_loss', 'every_n_train_steps': 100}",
    ]


def test_a_key_that_has_all_options_of_another_stays_whole() -> None:
    """No two keys get one form."""
    more = "Averager{'decay': 0.9999, 'update_every_n_steps': 1000, 'swaps_weights': True}"
    keys = ["Averager{'decay': 0.9999, 'update_every_n_steps': 1000}", more]
    assert len(set(short_state_keys(keys).values())) == 2


def test_alone_a_key_loses_the_options_that_are_not_set() -> None:
    """As in a message that knows of one callback only."""
    assert short_state_key(key_of(monitor="val_loss")) == (
        "ModelCheckpoint{'monitor': 'val_loss', 'mode': 'min', 'every_n_epochs': 1}"
    )


def test_the_report_of_a_resume_names_short_keys() -> None:
    """Its data has the whole ones."""
    report = LoadReport(missing=(key_of(monitor="val_loss"),), unexpected=(key_of(),))
    assert report.summary == (
        "no state for \"ModelCheckpoint{'monitor': 'val_loss'}\"; "
        "state without a callback: \"ModelCheckpoint{'monitor': None}\""
    )
