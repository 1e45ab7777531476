"""The search space of a sweep: the values that `--set KEY=VALUES` gives an argument."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RANGES = ("uniform", "loguniform", "int", "logint")
"""The names of ranges of numbers; both ends of each are part of it."""

_SET_BY_SWEEP = ("ckpt_path", "trainer.default_root_dir")
"""The arguments by which each trial trains in a folder of its own and resumes there."""

_RANGE = re.compile(rf"({'|'.join(RANGES)})\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SweptArgument:
    """An argument of the config and the values that trials try.

    Attributes:
        key: the argument, such as `optimizer.lr`.
        choices: the values as they would stand on a command line; empty for a range.
        range_name: one of `RANGES`; empty for choices.
        low: the lowest number of the range.
        high: the highest number of the range.
    """

    key: str
    choices: tuple[str, ...] = ()
    range_name: str = ""
    low: float = 0.0
    high: float = 0.0

    def inside(self) -> str:
        """Return a value of a range, for a check; one of `uniform` or `loguniform` is not whole."""
        if self.range_name.endswith("int"):
            return str(int(self.low))
        return str(self.low + (self.high - self.low) / math.pi)

    def suggest(self, trial: Any) -> str:
        """Return the value that an Optuna trial tries, as it would stand on a command line.

        A trial that has the value already returns the same one.
        """
        is_log = self.range_name.startswith("log")
        if self.choices:
            value = trial.suggest_categorical(self.key, self.choices)
        elif self.range_name.endswith("int"):
            value = trial.suggest_int(self.key, int(self.low), int(self.high), log=is_log)
        else:
            value = trial.suggest_float(self.key, self.low, self.high, log=is_log)
        return str(value)


def parse_arguments(texts: Sequence[str]) -> tuple[SweptArgument, ...]:
    """Return the arguments that the `--set` options of a command line give.

    Raises:
        OptionError: a text is none of the forms, or two give the same argument.
    """
    arguments: dict[str, SweptArgument] = {}
    for text in texts:
        argument = _parse(text)
        if argument.key in arguments:
            raise OptionError(f"--set {text}: {argument.key!r} is given twice. Give it once.")
        arguments[argument.key] = argument
    return tuple(arguments.values())


def combinations(arguments: Sequence[SweptArgument]) -> list[dict[str, str]]:
    """Return the grid of all choices: one dict of values by key for each combination.

    Raises:
        OptionError: an argument has a range.
    """
    for argument in arguments:
        if not argument.choices:
            raise OptionError(
                f"--set {argument.key}={argument.range_name}(...): a grid takes a list of values. "
                "List them, or choose another --sampler."
            )
    keys = [argument.key for argument in arguments]
    products = itertools.product(*(argument.choices for argument in arguments))
    return [dict(zip(keys, values, strict=True)) for values in products]


def _parse(text: str) -> SweptArgument:
    key, equals, values = (part.strip() for part in text.partition("="))
    key = key.removeprefix("--")
    if not equals or not key or not values:
        raise OptionError(
            f"--set {text}: it must be KEY=VALUE,VALUE,... or KEY=RANGE(LOW, HIGH), with the key "
            f"of an argument such as optimizer.lr, and a range of {', '.join(RANGES)}."
        )
    if key in _SET_BY_SWEEP:
        raise OptionError(
            f"--set {text}: a sweep sets {key} itself: each trial trains in a folder of its own, "
            "and resumes there. Leave it out."
        )
    if match := _RANGE.fullmatch(values):
        return _range(text, key, match[1], match[2])
    choices = tuple(_split(values))
    if "" in choices:
        raise OptionError(f"--set {text}: a value is empty. Write '' for an empty text.")
    if len(set(choices)) < len(choices):
        raise OptionError(f"--set {text}: a value is there twice.")
    return SweptArgument(key, choices)


def _range(text: str, key: str, name: str, inside: str) -> SweptArgument:
    number = int if name.endswith("int") else float
    try:
        low, high = (float(number(end)) for end in inside.split(","))
    except ValueError:
        kind = "whole numbers" if number is int else "numbers"
        raise OptionError(f"--set {text}: {name} takes two {kind}, LOW and HIGH.") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise OptionError(f"--set {text}: LOW must be less than HIGH, and both finite.")
    if name.startswith("log") and low <= 0:
        raise OptionError(f"--set {text}: {name} needs a LOW greater than 0.")
    return SweptArgument(key, (), name, low, high)


def _split(values: str) -> Iterator[str]:
    """Yield the values of a list, split at the commas outside of brackets and quotes."""
    part, depth, quote = "", 0, ""
    for character in values:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            yield part.strip()
            part = ""
            continue
        part += character
    yield part.strip()
