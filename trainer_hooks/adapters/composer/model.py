"""ModelView: a module for which `isinstance` says that it is a ComposerModel."""

from __future__ import annotations

import copy
import types
from typing import Any
from weakref import WeakKeyDictionary

from composer.models import ComposerModel

from trainer_hooks.adapters.views import View

__all__ = ["ModelView", "model_view"]

_KINDS: WeakKeyDictionary[type, type] = WeakKeyDictionary()
"""For each class of a module, one that is a ComposerModel's too."""


def model_view(module: Any) -> Any:
    """Return what guests are given as the model; one of Composer's is given as it is.

    Args:
        module: a module of ours, or of Lightning in our trainer.
    """
    own = getattr(module, "module_guest", module)
    return own if isinstance(own, ComposerModel) else ModelView(own)


class ModelView(View):
    """A module that passes for a ComposerModel, wrapped or not; all but that is passed on.

    Args:
        target: the module.
    """

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind = type(self.view_target)
        if kind not in _KINDS:
            _KINDS[kind] = types.new_class(kind.__name__, (kind, ComposerModel))
        return _KINDS[kind]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.view_target(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self.view_target is (other.view_target if type(other) is ModelView else other)

    def __hash__(self) -> int:
        return hash(self.view_target)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.view_target, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle the module."""
        return _itself, (self.view_target,)


def _itself(module: Any) -> Any:
    return module
