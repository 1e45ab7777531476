"""The rules of options: what they accept, and what the one checker says of a value."""

from __future__ import annotations

import math

import pytest

from trainer_hooks._options import (
    BOOL,
    METRIC_NAME,
    STRING,
    Combination,
    Rule,
    check_combinations,
    check_option,
    check_options,
    finite_number,
    integer,
    one_of,
    whole_number,
)
from trainer_hooks.errors import OptionError


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (integer(-1), [-1, 0, 7], [-2, 1.0, "1", None, True]),
        (integer(0).or_none(), [None, 0], [-1, False]),
        (whole_number(1), [1], [0, True]),
        (finite_number(), [-1, 0.5], [math.nan, math.inf, "1", True]),
        (finite_number(0), [0, 0.5], [-0.1]),
        (one_of("min", 1), ["min", 1], [True, "max", None]),
        (BOOL, [True, False], [1, None]),
        (METRIC_NAME, ["loss"], ["", None, 3]),
    ],
)
def test_what_a_rule_accepts(rule: Rule, good: list, bad: list) -> None:
    """A bool is no number, and None is accepted only where the rule says so."""
    assert [value for value in good if not rule.accepts(value)] == []
    assert [value for value in bad if rule.accepts(value)] == []


def test_a_value_that_obeys_is_returned() -> None:
    """So a constructor can check and keep an argument in one line."""
    assert check_option("patience", 3, "EarlyStopping", whole_number()) == 3


def test_the_message_names_option_value_owner_rule_and_cure() -> None:
    """It reads as a sentence, for an argument of a callback and for a Trainer's option."""
    with pytest.raises(OptionError) as caught:
        check_option("patience", -1, "EarlyStopping", whole_number())
    assert str(caught.value) == (
        "patience -1 of EarlyStopping: it must be a whole number of at least 0. Pass such a number."
    )
    with pytest.raises(OptionError) as caught:
        check_option("max_epochs", -2, "Trainer", integer(-1).or_none(), is_call=True)
    assert str(caught.value) == "Trainer(max_epochs=-2): must be an int of at least -1, or None."
    with pytest.raises(OptionError, match=r'Write prefix="" to leave it out\.'):
        check_option("prefix", 3, "CSVLogger", STRING)


def test_a_misspelt_choice_suggests_the_nearest() -> None:
    """Only a text is compared with the texts that are allowed."""
    with pytest.raises(OptionError, match="Did you mean 'min'"):
        check_option("mode", "mni", "EarlyStopping", one_of("min", "max"))
    with pytest.raises(OptionError, match=r"one of 'min', 'max'\. Choose"):
        check_option("mode", 3, "EarlyStopping", one_of("min", "max"))


def test_the_first_wrong_option_is_reported() -> None:
    """Options are checked in the order in which they are passed."""
    rules = {"a": whole_number(), "b": whole_number(), "c": whole_number()}
    with pytest.raises(OptionError, match="b -1 of Owner"):
        check_options("Owner", rules, b=-1, a=-1)
    check_options("Owner", rules, a=1)


def test_options_that_do_not_go_together() -> None:
    """The message shows the options as in a call, with what the rule says."""
    rule = Combination(("low", "high"), lambda low, high: low <= high, "low is over high.")
    check_combinations("Owner", [rule], {"low": 1, "high": 1, "other": 0})
    with pytest.raises(OptionError) as caught:
        check_combinations("Owner", [rule], {"low": 2, "high": 1, "other": 0})
    assert str(caught.value) == "Owner(low=2, high=1): low is over high."
