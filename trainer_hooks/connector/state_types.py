"""Check the saved state of a callback against declared types, before anything of it is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from trainer_hooks._text import printable

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

_Load = TypeVar("_Load", bound=Callable[..., None])
Types = Mapping[str, Any]
"""The type of each item of a state.

A type is a class, a union, `list[...]` (a tuple fits, too), `tuple[...]` of a fixed length or
`dict[...]`; a dict with the types of its items; a list with the type of each element; a tuple of
alternatives; or a function that says whether a value fits, whose name says what it must be.
As in annotations, an int fits `float`; a bool is no number.
"""


def checks_state(required: Types, optional: Types | None = None) -> Callable[[_Load], _Load]:
    """Return a decorator for `load_state_dict` that checks a state before it is loaded.

    The object is unchanged if the state does not fit. Items that are not declared are not looked
    at, so that a subclass may add its own.

    Args:
        required: items that a state must have.
        optional: items that older states, or those of other frameworks, may lack.
    """

    def check(owner: object, state: Any) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"{_subject(owner)} is {_shown(state)}: it must be a dict.")
        for name in required:
            if name not in state:
                raise TypeError(f"{_subject(owner)} lacks {name!r}, which it must hold.")
        for name, type_ in {**required, **(optional or {})}.items():
            if name in state and not _fits(state[name], type_):
                raise TypeError(
                    f"{name!r} of {_subject(owner)} is {_shown(state[name])}: it must be "
                    f"{_named(type_)}."
                )

    def decorate(load: _Load) -> _Load:
        @functools.wraps(load)
        def checked_load(self: object, state_dict: Any) -> None:
            check(self, state_dict)
            load(self, state_dict)

        _CHECKS[checked_load] = check
        return checked_load  # type: ignore[return-value]

    return decorate


_CHECKS: dict[Callable[..., None], Callable[[object, Any], None]] = {}
"""The check of each decorated method."""


def check_state(callback: Callback, state: Any) -> None:
    """Check a saved state as its callback's `load_state_dict` will, if that declares its types.

    Hooks that precede `load_state_dict` may read the state from the checkpoint.

    Raises:
        TypeError: an item is missing, or of another type.
    """
    check = _CHECKS.get(type(callback).load_state_dict)
    if check is not None:
        check(callback, state)


def _fits(value: Any, type_: Any) -> bool:
    if isinstance(type_, Mapping):
        is_dict = isinstance(value, Mapping)
        return is_dict and all(n in value and _fits(value[n], item) for n, item in type_.items())
    if isinstance(type_, FunctionType):
        return bool(type_(value))
    if isinstance(type_, list):
        return _is_sequence(value) and all(_fits(item, type_[0]) for item in value)
    origin, arguments = get_origin(type_), get_args(type_)
    if isinstance(type_, tuple) or origin is UnionType:
        return any(_fits(value, alternative) for alternative in arguments or type_)
    if origin is list:
        return _is_sequence(value) and all(_fits(item, arguments[0]) for item in value)
    if origin is tuple:
        pairs = zip(value, arguments, strict=False) if _is_sequence(value) else ()
        return bool(pairs) and len(value) == len(arguments) and all(_fits(*pair) for pair in pairs)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            _fits(key, arguments[0]) and _fits(item, arguments[1]) for key, item in value.items()
        )
    if origin is not None:
        return isinstance(value, origin)
    if type_ in (int, float):
        return isinstance(value, (int, type_)) and not isinstance(value, bool)
    return type_ is Any or isinstance(value, NoneType if type_ is None else type_)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _subject(owner: object) -> str:
    key = getattr(owner, "state_key", None)  # parts of callbacks have none
    of_key = "" if key is None else f" (state_key {key!r})"
    return f"the state of {type(owner).__qualname__}{of_key}"


def _shown(value: Any) -> str:
    text = repr(value) if value is None or isinstance(value, str | int | float) else ""
    name = type(value).__qualname__
    return f"{printable(text)[:40]} of type {name}" if text else f"a {name}"


def _named(type_: Any) -> str:
    if isinstance(type_, Mapping):
        return f"a dict with {', '.join(f'{n!r}: {_named(item)}' for n, item in type_.items())}"
    if isinstance(type_, FunctionType):
        return type_.__name__.replace("_", " ")
    if isinstance(type_, list):
        return f"a list, each item {_named(type_[0])}"
    if isinstance(type_, tuple):
        return " or ".join(map(_named, type_))
    # of a generic, `__name__` is that of its origin
    return type_.__name__ if isinstance(type_, type) and not get_args(type_) else str(type_)
