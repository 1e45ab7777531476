"""Which methods of a trainer a subclass overrides, as in pytorch-accelerated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trainer_hooks.hooks import HOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import Trainer

__all__ = ["overridden_losses", "overridden_moments"]


def overridden_moments(trainer: Trainer, base: type[Trainer]) -> SimpleNamespace | None:
    """Return the methods that a subclass of `base` overrides as an implementer of hooks, or None.

    `train_epoch_end` is what runs just before every callback's `on_train_epoch_end` of that name.
    """
    found: dict[str, Callable[..., None]] = {}
    for spec in HOOKS.values():
        name = spec.accelerated.removeprefix("on_")
        plain = getattr(base, name, None)
        if plain is not None and getattr(type(trainer), name) is not plain:
            found[spec.name] = _moment(trainer, getattr(trainer, name), name.startswith("eval_"))
    return SimpleNamespace(**found) if found else None


def _moment(trainer: Trainer, method: Callable[[], None], evaluates: bool) -> Any:
    def call(*_: Any) -> None:
        if not (evaluates and trainer.sanity_checking):
            method()

    return call


def overridden_losses(trainer: Trainer, base: type[Trainer]) -> dict[str, Callable[[Any], Any]]:
    """Return the methods that run a step in the module's place, as far as they are overridden."""
    names = {"train": "calculate_train_batch_loss", "eval": "calculate_eval_batch_loss"}
    return {
        stage: getattr(trainer, name)
        for stage, name in names.items()
        if getattr(type(trainer), name) is not getattr(base, name)
    }
