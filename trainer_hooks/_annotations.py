"""Signatures and annotations of users' functions and classes.

From Python 3.14 on annotations are evaluated when they are read. Their names may be imported for
type checkers alone, so that reading them as usual raises a NameError.
"""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

if sys.version_info >= (3, 14):
    import functools

    from annotationlib import Format, get_annotations

    signature_of = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
    own_annotations = functools.partial(get_annotations, format=Format.FORWARDREF)
else:
    signature_of = inspect.signature
    own_annotations = inspect.get_annotations

__all__ = ["own_annotations", "set_annotation", "signature_of"]


def set_annotation(function: Callable[..., object], name: str, kind: object) -> None:
    """Give an argument of a function a type in place of the text that its annotation is."""
    inspect.unwrap(function).__annotations__[name] = kind
