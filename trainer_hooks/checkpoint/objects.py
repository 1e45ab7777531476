"""Hyperparameters that are objects: written as plain data, and made again from annotations.

A dataclass, an Enum and a Namespace are the usual forms of a configuration. A file holds their
plain values alone; of which class they are is said by the annotations of the arguments, so that
opening a file runs no code that it names.
"""

from __future__ import annotations

import inspect
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

__all__ = ["annotations_of", "plain_of", "rebuilt"]

_NAMESPACES = (Namespace, SimpleNamespace)


def plain_of(value: Any) -> Any:
    """Return a value with its dataclasses, Enums and Namespaces as plain data."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_of(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, _NAMESPACES):
        return {name: plain_of(item) for name, item in vars(value).items()}
    if isinstance(value, Enum):
        return value.name
    if type(value) is dict:
        return {key: plain_of(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_of, value))
    return value


def rebuilt(value: Any, annotation: Any) -> Any:
    """Return what `plain_of` made plain as an annotation says; as it is where that says nothing.

    Args:
        value: plain data.
        annotation: the type of an argument or a field, or None.

    Raises:
        TypeError: a class takes other arguments than it did.
        ValueError: it refuses one.
    """
    if get_origin(annotation) in (Union, UnionType):
        made = (rebuilt(value, kind) for kind in get_args(annotation))
        return next((one for one in made if one is not value), value)
    if get_origin(annotation) in (list, tuple) and type(value) is get_origin(annotation):
        kinds = [kind for kind in get_args(annotation) if kind is not Ellipsis]
        kinds = kinds * len(value) if len(kinds) == 1 else kinds
        items = (rebuilt(item, kind) for item, kind in zip(value, kinds, strict=False))
        return type(value)(items) if len(kinds) == len(value) else value
    if not isinstance(annotation, type):
        return value
    if isinstance(value, Mapping):
        if is_dataclass(annotation):
            kinds_of = _hints(annotation)
            return annotation(**{k: rebuilt(v, kinds_of.get(k)) for k, v in value.items()})
        if issubclass(annotation, _NAMESPACES):
            return annotation(**value)
    elif issubclass(annotation, Enum) and value in annotation.__members__:
        return annotation[value]
    return value


def annotations_of(kind: type[Any]) -> dict[str, Any]:
    """Return the annotations of the arguments that a class is made with, its base classes' too."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        made_by = vars(base).get("__init__")
        if inspect.isfunction(made_by):
            found.update(_hints(made_by))
    return found


def _hints(annotated: Any) -> dict[str, Any]:
    """Return annotations as types; those of names that are not to be found at run time are none."""
    try:
        return get_type_hints(annotated)
    except NameError:
        known = inspect.get_annotations(annotated)
        return {name: hint for name, hint in known.items() if not isinstance(hint, str)}
