"""Option rules: types and ranges of options as data, and the one checker for all of them.

A rule stands beside its option: in the declaration of a Trainer's option, or above the `__init__`
whose argument it is, as `@option_rules(patience=whole_number())`. General validators were
considered and not taken: those of attrs and pydantic report a failed test in their own words and
without a cure. A message here names the option, its value, the owner, the rule and what to do.
pydantic would also have to load with `import trainer_hooks`.
"""

from __future__ import annotations

import functools
import math
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from trainer_hooks._annotations import signature_of
from trainer_hooks.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for the values of one option.

    Attributes:
        text: the rule in words that complete "it must be ...".
        accepts: whether a value obeys it.
        cure: a sentence that says what to do, or an empty string; `{name}` stands for the option.
        names: the texts that are allowed, among which a misspelt value's nearest is suggested.
    """

    text: str
    accepts: Callable[[Any], bool]
    cure: str = ""
    names: tuple[str, ...] = ()

    def or_none(self) -> Rule:
        """Return this rule for an option that may be None, too."""
        return replace(self.unless(None), text=f"{self.text}, or None")

    def unless(self, exempt: Any) -> Rule:
        """Return this rule with one more allowed value, which the text leaves out."""
        accepts = self.accepts
        # the class first: an array would compare by element
        kind = type(exempt)
        return replace(
            self,
            accepts=lambda value: (isinstance(value, kind) and value == exempt) or accepts(value),
        )

    def or_function(self) -> Rule:
        """Return this rule for an option that may be a function, which the text leaves out."""
        accepts = self.accepts
        return replace(self, accepts=lambda value: callable(value) or accepts(value))


class Combination(NamedTuple):
    """A rule for several options together.

    Attributes:
        options: the names of the options.
        allows: whether their values, passed in that order, go together.
        text: the rule and the cure in words.
        subject: the template of the message's beginning, in which `{owner}` stands for the class
            and `{name}` for the value of the option `name`; empty to write the options as a call.
    """

    options: tuple[str, ...]
    allows: Callable[..., bool]
    text: str
    subject: str = ""


def check_option(
    name: str, value: Any, owner: str, rule: Rule | Sequence[Rule], *, is_call: bool = False
) -> Any:
    """Return the value of an option if it obeys its rule.

    Args:
        name: the option.
        value: its value.
        owner: the class or method that takes it, for the message.
        rule: its rule, or several that are checked one after the other.
        is_call: whether the message writes the option as in a call, `Trainer(max_epochs=-2)`.

    Raises:
        OptionError: it does not obey.
    """
    for each in (rule,) if isinstance(rule, Rule) else rule:
        if not each.accepts(value):
            subject = (
                f"{owner}({name}={value!r}):" if is_call else f"{name} {value!r} of {owner}: it"
            )
            raise _refusal(subject, name, value, each)
    return value


def check_attribute(attribute: str, value: Any, rule: Rule) -> Any:
    """Return a value that is assigned to an attribute if it obeys the attribute's rule.

    Args:
        attribute: the attribute as the user writes it, `trainer.max_epochs`.
        value: the value.
        rule: its rule.

    Raises:
        OptionError: it does not obey.
    """
    if rule.accepts(value):
        return value
    raise _refusal(f"{attribute} = {value!r}:", attribute, value, rule)


def _refusal(subject: str, name: str, value: Any, rule: Rule) -> OptionError:
    hint = did_you_mean(value, rule.names) if rule.names and isinstance(value, str) else ""
    cure = " " + rule.cure.replace("{name}", name) if rule.cure else ""
    return OptionError(f"{subject} must be {rule.text}.{hint}{cure}")


def option_rules(
    *combinations: Combination, **rules: Rule | Sequence[Rule]
) -> Callable[[Callable[_P, None]], Callable[_P, None]]:
    """Check the arguments of a class before its `__init__` runs; decorates that method.

    The messages name the class of the object that is made, so a subclass is named by its own name.
    Rules are checked in the order in which they are passed, combinations last.

    Args:
        *combinations: the rules for several options.
        **rules: the rule by option, or several rules that are checked one after the other.

    Raises:
        OptionError: when an object is made, and an argument does not obey; the message is about
            the first.
    """

    def decorate(init: Callable[_P, None]) -> Callable[_P, None]:
        signature = signature_of(init)

        @functools.wraps(init)
        def check_and_init(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                given = None
            if given is None:
                # any other misfit is left to the call below: Python's own error names the method
                refuse_unknown_keyword(init, args[:1], kwargs)
            else:
                given.apply_defaults()  # a combination compares options that were not passed, too
                owner = type(args[0]).__name__
                for name, rule in rules.items():
                    check_option(name, given.arguments[name], owner, rule)
                check_combinations(owner, combinations, given.arguments)
            init(*args, **kwargs)

        return check_and_init

    return decorate


def answers_keywords(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Answer a keyword that a method does not take with the one to write; a decorator.

    It does so for calls of this package's methods below it, too, as `self.log` in a step. Those
    have no wrapper: the keyword is looked at when their error has been raised.
    """

    @functools.wraps(function)
    def answer(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is not None:
                _add_hint(error)
                raise
            refused = error  # the call itself has failed
        # outside of `except`, so that one error is shown
        refuse_unknown_keyword(function, args[:1], kwargs)
        raise refused

    return answer


def answers_keywords_of_init(kind: type[_T]) -> type[_T]:
    """Do so for the `__init__` of a dataclass; a decorator of the class."""
    kind.__init__ = answers_keywords(kind.__init__)  # type: ignore[method-assign]
    return kind


def _add_hint(error: TypeError) -> None:
    """Add the advice to an error about a keyword of one of this package's methods."""
    # not compiled at the import, of which it would be a tenth
    match = re.fullmatch(r"(\w+)\.(\w+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if match is None:
        return
    owner, method, name = match.groups()
    for module_name, module in list(sys.modules.items()):
        kind = vars(module).get(owner) if module_name.startswith("trainer_hooks.") else None
        function = vars(kind).get(method) if isinstance(kind, type) else None
        if callable(function):
            error.args = (f"{match[0]}.{_keyword_hint(function, (), name, ...)}",)
            return


def refuse_unknown_keyword(
    function: Callable[..., object], owner: Sequence[object], given: Mapping[str, object]
) -> None:
    """Raise Python's error for a keyword that a function does not take, with advice.

    Args:
        function: the function; one that takes any keyword refuses none.
        owner: the object that it is a method of, or nothing.
        given: the keywords.
    """
    parameters = signature_of(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in given.keys() - parameters.keys():
        if hint := _keyword_hint(function, owner, name, given[name]):
            raise TypeError(
                f"{function.__qualname__}() got an unexpected keyword argument {name!r}.{hint}"
            )


def _keyword_hint(
    function: Callable[..., object], owner: Sequence[object], name: str, value: object
) -> str:
    """Return a sentence about a keyword that a function does not take, or an empty text."""
    from trainer_hooks._words import advice, instead_of

    qualname = function.__qualname__
    class_name, _, method = qualname.rpartition(".")
    answer = instead_of("fit", name) if method == "fit" else None
    kind = type(owner[0]) if owner else None
    for each in kind.__mro__ if kind is not None and answer is None else ():
        answer = answer or instead_of("arguments", name, owner=each.__name__)
    if answer is not None:
        return advice(answer, value)
    hint = did_you_mean(name, set(signature_of(function).parameters) - {"self"})
    if hint or method == "__init__" or kind is None or class_name != "Trainer":
        return hint
    # of trainer.fit: perhaps an option of the Trainer
    if name in signature_of(kind).parameters:
        return advice(f"{class_name}({name}={{value}})", value)
    answer = instead_of("options", name)
    return "" if answer is None else advice(answer, value, f"{class_name}({{}})")


def check_options(owner: str, rules: Mapping[str, Rule], **values: Any) -> None:
    """Check several options of one class, in the order in which they are passed.

    Args:
        owner: the class, for messages.
        rules: the rules by option; may hold more than are checked here.
        **values: the values by option.

    Raises:
        OptionError: a value does not obey its rule; the message is about the first.
    """
    for name, value in values.items():
        check_option(name, value, owner, rules[name])


def check_combinations(
    owner: str, combinations: Sequence[Combination], values: Mapping[str, Any]
) -> None:
    """Check the options that depend on each other.

    Args:
        owner: the class that takes them, for the message.
        combinations: the rules.
        values: the values of all options by name.

    Raises:
        OptionError: values do not go together.
    """
    for combination in combinations:
        chosen = {name: values[name] for name in combination.options}
        if not combination.allows(*chosen.values()):
            shown = ", ".join(f"{name}={value!r}" for name, value in chosen.items())
            subject = combination.subject.format(owner=owner, **chosen) or f"{owner}({shown})"
            raise OptionError(f"{subject}: {combination.text}")


def check_choices(
    name: str, value: object, owner: str, choices: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the chosen items of `choices`, in the order of `choices`; a single string is one item.

    Raises:
        OptionError: an item is not among `choices`, or no item is given.
    """
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple | set | frozenset) or not several:
        raise OptionError(
            f"{name} {value!r} of {owner}: it must be one or more of "
            f"{', '.join(map(repr, choices))}. Pass a list of them."
        )
    for item in several:
        check_option(name, item, owner, one_of(*choices))
    return tuple(item for item in choices if item in several)


def is_int(value: Any, least: float = -math.inf) -> bool:
    """Return whether a value is an int of at least `least`; True and False are none."""
    # a bool is an int in Python, and max_epochs=True is a mistake
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: Any, least: float = -math.inf) -> bool:
    """Return whether a value is a finite int or float of at least `least`; a bool is none."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value) and value >= least


def is_text(value: Any) -> bool:
    """Return whether a value is a string that is not empty."""
    return isinstance(value, str) and value != ""


def integer(least: int) -> Rule:
    """Return the rule for an int of at least `least`, as a Trainer's options word it."""
    return Rule(f"an int of at least {least}", lambda value: is_int(value, least))


def whole_number(least: int = 0) -> Rule:
    """Return the rule for a whole number of at least `least`, as callbacks word it."""
    return Rule(
        f"a whole number of at least {least}",
        lambda value: is_int(value, least),
        "Pass such a number.",
    )


def finite_number(least: float = -math.inf) -> Rule:
    """Return the rule for a finite number of at least `least`."""
    bound = "" if least == -math.inf else f" of at least {least}"
    return Rule(
        f"a finite number{bound}", lambda value: is_number(value, least), "Pass such a number."
    )


def one_of(*choices: Any) -> Rule:
    """Return the rule for one of several values; 1 and 0 do not count as True and False."""
    return Rule(
        f"one of {', '.join(map(repr, choices))}",
        lambda value: any(value == choice and type(value) is type(choice) for choice in choices),
        "Choose one of them.",
        tuple(choice for choice in choices if isinstance(choice, str)),
    )


CLIP_ALGORITHM = Rule("'norm' or 'value'", lambda value: value in (None, "norm", "value"))
FLAG = one_of(True, False)
BOOL = Rule("True or False", lambda value: isinstance(value, bool))
SWITCH = Rule("True, False or None", lambda value: value is None or isinstance(value, bool))
PATH = Rule("a path", lambda value: isinstance(value, str | os.PathLike))
FOLDER = replace(PATH, cure="Give a folder.")
STRING = Rule("a string", lambda value: isinstance(value, str), 'Write {name}="" to leave it out.')
TEXT = Rule("a non-empty text", lambda value: value is None or is_text(value), "Pass one, or None.")
METRIC_NAME = Rule(
    "the name of a metric",
    is_text,
    "Pass the name that the module gives to self.log(name, value), such as 'val_loss'.",
)
