"""WeightOwner: a callback that replaces a module's weights or layers, beside which no other can."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer

__all__ = ["WeightOwner", "require_no_owner"]


class WeightOwner(Callback):
    """Base of callbacks that average, prune or quantize a module: one of them at a time."""

    band: ClassVar[Band] = Band.TRANSFORM

    def require_alone(self, trainer: Trainer, beside: type[WeightOwner] | None = None) -> None:
        """Make sure that no other callback replaces the module's weights or layers.

        Args:
            trainer: whose callbacks.
            beside: a class whose instances do no harm.

        Raises:
            CallbackError: one does; it is named.
        """
        require_no_owner(trainer, self, beside)


def require_no_owner(
    trainer: Trainer, user: Callback, beside: type[WeightOwner] | None = None
) -> None:
    """Make sure that no other callback replaces the module's weights or layers.

    Args:
        trainer: whose callbacks.
        user: the callback to which one would do harm.
        beside: a class whose instances do no harm.

    Raises:
        CallbackError: one does; it is named.
    """
    for other in trainer.callbacks:
        if other is user or not isinstance(other, WeightOwner):
            continue
        if beside is None or not isinstance(other, beside):
            raise CallbackError(
                f"{type(user).__name__} beside {type(other).__name__}: only one callback can "
                "average, prune or quantize a module's weights, as each would undo what "
                "another did. Take one of them out."
            )
