"""What a trainer can be asked to do, by name; and to which hooks a callback listens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks.hooks import Member

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback
    from trainer_hooks.module import Module
    from trainer_hooks.trainer import Trainer

__all__ = ["ENTRY_POINTS", "enter", "listens"]

ENTRY_POINTS = ("fit", "validate", "test", "predict")


def enter(trainer: Trainer, entry_point: str, module: Module) -> None:
    """Run one of the entry points with the module's own loaders; print nothing."""
    if entry_point == "fit":
        trainer.fit(module)
    elif entry_point == "validate":
        trainer.validate(module, verbose=False)
    elif entry_point == "test":
        trainer.test(module, verbose=False)
    else:
        trainer.predict(module)


def listens(callback: Callback, hook: str) -> bool:
    """Return whether a callback is called at a hook."""
    member = Member(callback, type(callback).__qualname__, routes_events=callback.routes_events)
    return member.listener(hook) is not None
