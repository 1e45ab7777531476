"""The rules of options: what they accept, and what the one checker says of a value."""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import traceback

import pytest
import torch

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
    option_rules,
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


_LOW_HIGH = Combination(
    ("low", "high"),
    lambda low, high: low <= high,
    "the first must not be over the second.",
    "low {low!r} and high {high!r} of {owner}",
)


class Range:
    """A class whose options have rules."""

    @option_rules(
        _LOW_HIGH,
        low=(finite_number(), Rule("above 0", lambda low: low > 0, "Pass one.")),
        high=finite_number().unless(math.inf),
        kind=one_of("open", "closed").unless(None),
    )
    def __init__(self, low: float, high: float = 9.0, *, kind: str | None = None) -> None:
        """Keep them."""
        self.bounds = low, high, kind


class Interval(Range):
    """A subclass with a signature of its own."""

    @option_rules(size=whole_number(1))
    def __init__(self, size: int) -> None:
        super().__init__(1, size)


def test_option_rules_check_what_is_passed_in_any_way() -> None:
    """By position or by name, and each of several rules."""
    assert Range(1, math.inf, kind="open").bounds == (1, math.inf, "open")
    with pytest.raises(OptionError, match=r"low 'a' of Range: it must be a finite number\."):
        Range("a")
    with pytest.raises(OptionError, match=r"low -1 of Range: it must be above 0\. Pass one\."):
        Range(high=3, low=-1)
    with pytest.raises(OptionError, match=r"high -inf of Range: it must be a finite number\."):
        Range(1, -math.inf)
    with pytest.raises(OptionError, match="Did you mean 'open'"):
        Range(1, kind="opne")


def test_options_of_a_combination_are_compared_with_their_defaults() -> None:
    """Its subject names them as the message of one option does."""
    with pytest.raises(OptionError) as caught:
        Range(10)
    assert str(caught.value) == (
        "low 10 and high 9.0 of Range: the first must not be over the second."
    )


def test_a_message_names_the_class_that_was_constructed() -> None:
    """Also for an option that only the base class has."""
    assert Interval(2).bounds == (1, 2, None)
    with pytest.raises(OptionError, match="size 0 of Interval: it must be a whole number"):
        Interval(0)
    with pytest.raises(OptionError, match="low 1 and high 0 of Plain"):
        type("Plain", (Range,), {})(1, 0)


def test_a_call_that_does_not_fit_raises_the_error_of_python() -> None:
    """It names the method, and no other error is shown above it."""
    with pytest.raises(TypeError, match=r"Range\.__init__\(\) missing 1 required pos") as caught:
        Range(kind=3)
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'width'$"):
        Range(1, width=2)


def test_a_misspelt_option_is_told_with_the_nearest() -> None:
    """In the error of Python, alone; a method that takes any keyword takes this one too."""
    with pytest.raises(TypeError) as caught:
        Range(1, hihg=2)
    assert str(caught.value) == (
        "Range.__init__() got an unexpected keyword argument 'hihg'. Did you mean 'high'?"
    )
    assert caught.value.__context__ is None

    @option_rules(low=finite_number())
    def take_any(self: object, low: float, **others: object) -> None:
        assert others == {"lowe": 1}

    take_any(object(), 1, lowe=1)
    with pytest.raises(TypeError, match=r"missing a required argument|missing 1 required"):
        take_any(object(), lowe=1)


def test_option_rules_leave_the_method_as_it_is() -> None:
    """Its signature, name and documentation, and what copies and pickles of objects need."""
    assert list(inspect.signature(Range).parameters) == ["low", "high", "kind"]
    assert inspect.signature(Range).parameters["high"].default == 9.0
    assert (Range.__init__.__name__, Range.__init__.__doc__) == ("__init__", "Keep them.")
    for made in (copy.deepcopy(Range(1)), pickle.loads(pickle.dumps(Range(1)))):
        assert made.bounds == (1, 9.0, None)


def test_the_traceback_ends_two_frames_below_the_call() -> None:
    """The line of the user is found at once."""
    with pytest.raises(OptionError) as caught:
        Range(-1)
    assert [frame.name for frame in traceback.extract_tb(caught.tb)][1:] == [
        "check_and_init",
        "check_option",
    ]


def test_what_a_rule_leaves_out_is_compared_with_its_class() -> None:
    """An object that compares by element is no error, and neither is a function where one fits."""
    rule = finite_number().unless(math.inf)
    assert rule.accepts(math.inf)
    assert not rule.accepts(torch.ones(2))
    assert rule.or_function().accepts(len)
