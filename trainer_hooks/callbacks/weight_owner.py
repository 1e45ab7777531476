"""WeightOwner: a callback that replaces a module's weights or layers, beside which no other can."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["WeightOwner", "require_no_owner", "require_whole_weights"]


class WeightOwner(Callback):
    """Base of callbacks that average, prune or quantize a module: one of them at a time.

    What is to be forgotten before a new training, a subclass forgets in `_forget`.

    Raises:
        CallbackError: in a fit, another one does harm; it is named.
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that nobody else changes the module, and begin anew in a new training."""
        if stage == "fit":
            require_whole_weights(trainer, self)
            require_no_owner(trainer, self)
            if trainer.progress.is_fresh:
                self._forget()

    def goes_with(self, other: WeightOwner) -> bool:
        """Return whether another one does no harm beside this one."""
        return False

    def _forget(self) -> None:
        """Forget an earlier training."""


def require_whole_weights(trainer: Trainer, user: Callback) -> None:
    """Make sure that this process has all weights, as a callback that copies them needs.

    Raises:
        CallbackError: it has a shard of them.
    """
    if trainer.strategy.is_sharded:
        raise CallbackError(
            f"{type(user).__name__} with FSDP: it copies or changes the weights of the module, of "
            "which each process has a shard alone. Take it out, or use strategy='ddp'."
        )


def require_no_owner(trainer: Trainer, user: Callback) -> None:
    """Make sure that no other callback replaces the module's weights or layers.

    Args:
        trainer: whose callbacks.
        user: the callback to which one would do harm.

    Raises:
        CallbackError: one does; it is named.
    """
    for other in trainer.callbacks:
        if other is user or not isinstance(other, WeightOwner):
            continue
        if not isinstance(user, WeightOwner) or not user.goes_with(other):
            raise CallbackError(
                f"{type(user).__name__} beside {type(other).__name__}: only one callback can "
                "average, prune or quantize a module's weights, as each would undo what "
                "another did. Take one of them out."
            )
