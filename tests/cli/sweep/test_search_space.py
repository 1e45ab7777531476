"""The values that `--set` gives an argument."""

from __future__ import annotations

import pytest

from trainer_hooks.cli.sweep.search_space import SweptArgument, combinations, parse_arguments
from trainer_hooks.errors import OptionError

WRONG = {
    "optimizer.lr": "it must be KEY=VALUE",
    "=1,2": "it must be KEY=VALUE",
    "optimizer.lr=": "it must be KEY=VALUE",
    "a=1,,2": "a value is empty",
    "a=1,2,": "a value is empty",
    "a=1,2,1": "a value is there twice",
    "a=uniform(1)": "takes two numbers",
    "a=uniform(1,2,3)": "takes two numbers",
    "a=uniform(low,high)": "takes two numbers",
    "a=int(0.5,2)": "takes two whole numbers",
    "a=uniform(2,1)": "LOW must be less than HIGH",
    "a=uniform(0,inf)": "both finite",
    "a=uniform(nan,1)": "LOW must be less than HIGH",
    "a=loguniform(0,1)": "needs a LOW greater than 0",
    "a=logint(-1,4)": "needs a LOW greater than 0",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_told_with_its_text(text: str) -> None:
    with pytest.raises(OptionError, match=WRONG[text]) as raised:
        parse_arguments([text])
    assert f"--set {text}" in str(raised.value)


def test_an_argument_that_is_given_twice_is_an_error() -> None:
    with pytest.raises(OptionError, match="'a' is given twice"):
        parse_arguments(["a=1,2", "a=3"])


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("a=1e-3,1e-2", ("1e-3", "1e-2")),
        ("a= 1 , 2 ", ("1", "2")),
        ("--a=1", ("1",)),
        ("a=[1,2],[3]", ("[1,2]", "[3]")),
        ("a={b: 1, c: 2},null", ("{b: 1, c: 2}", "null")),
        ("a='x,y',\"z,\"", ("'x,y'", '"z,"')),
        ("a=b=c,d", ("b=c", "d")),
        ("a=uniform", ("uniform",)),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotes(text, choices) -> None:
    assert parse_arguments([text]) == (SweptArgument("a", choices),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=uniform(0, 0.5)", SweptArgument("a", (), "uniform", 0, 0.5)),
        ("a=loguniform(1e-5,1e-1)", SweptArgument("a", (), "loguniform", 1e-5, 1e-1)),
        ("a=int(-3,4)", SweptArgument("a", (), "int", -3, 4)),
        ("a=logint(8,512)", SweptArgument("a", (), "logint", 8, 512)),
    ],
)
def test_a_range_has_two_ends(text, expected) -> None:
    assert parse_arguments([text]) == (expected,)


def test_a_grid_has_each_combination_once() -> None:
    grid = combinations(parse_arguments(["a=1,2", "b=x", "c=3,4"]))
    assert grid == [{"a": a, "b": "x", "c": c} for a in "12" for c in "34"]


def test_a_grid_of_a_range_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"--set a=uniform\(\.\.\.\): a grid takes a list"):
        combinations(parse_arguments(["a=uniform(0,1)", "b=1"]))
