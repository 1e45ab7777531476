"""Names that metrics have in pytorch-accelerated, and what modules log them as here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["name_of_metric"]

_STANDS_FOR = {
    "eval_loss_epoch": ("val_loss_epoch", "val_loss"),
    "train_loss_epoch": ("train_loss",),
}


def name_of_metric(watched: str, logged: Container[str]) -> str:
    """Return the name under which a watched metric was logged; the name itself if it is not known.

    `eval_loss_epoch` stands for `val_loss` where nothing of its own name was logged, and
    `train_loss_epoch` for `train_loss`; with a prefix, such as `ema_model_`, likewise.
    """
    names = [watched]
    for known, others in _STANDS_FOR.items():
        if watched.endswith(known):
            names += [watched.removesuffix(known) + other for other in others]
    return next((name for name in names if name in logged), watched)
