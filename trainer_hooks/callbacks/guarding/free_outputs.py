"""FreeOutputs: let go of what a training step returned beside its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["FreeOutputs"]


class FreeOutputs(Callback):
    """Let go of what a training step returned beside its loss.

    A step that returns `{"loss": loss, "scores": scores}` keeps the scores alive until the next
    batch. With this callback, `on_train_batch_end` of the callbacks after it and of the module is
    given the loss alone, and the rest is freed as soon as the batch is done: before a validation,
    before a checkpoint is written, before the next forward. A step that returns the loss alone, and
    the default one made of `forward` and `loss`, hold nothing to begin with.

    What the graph of the backward needs stays until the backward in any case.

    State: none.

    Example::

        trainer = Trainer(max_epochs=2, callbacks=[FreeOutputs()])
        trainer.fit(module, train_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Keep the loss alone."""
        for name in [name for name in outputs if name != "loss"]:
            del outputs[name]
