"""Signatures and annotations of users' functions and classes.

From Python 3.14 on annotations are evaluated when they are read. Their names may be imported for
type checkers alone, so that reading them as usual raises a NameError.
"""

from __future__ import annotations

import inspect
import sys

if sys.version_info >= (3, 14):
    import functools

    from annotationlib import Format, get_annotations

    signature_of = functools.partial(inspect.signature, annotation_format=Format.FORWARDREF)
    own_annotations = functools.partial(get_annotations, format=Format.FORWARDREF)
else:
    signature_of = inspect.signature
    own_annotations = inspect.get_annotations

__all__ = ["own_annotations", "signature_of"]
