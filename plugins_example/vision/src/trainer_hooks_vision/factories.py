"""What the entry point refers to."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    from trainer_hooks_vision.image_logger import ImageLogger

__all__ = ["make_image_logger"]

_EVERY = "TRAINER_HOOKS_IMAGES_EVERY_N_STEPS"


def make_image_logger() -> list[ImageLogger]:
    """Return an image logger where `TRAINER_HOOKS_IMAGES_EVERY_N_STEPS` is set, else nothing.

    Raises:
        OptionError: the variable is no whole number of at least 1.
    """
    text = os.environ.get(_EVERY, "").strip()
    if not text:
        return []
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise OptionError(
            f"{_EVERY}={text!r} in the environment: it must be a whole number of at least 1. Set "
            "it to the batches between two pictures, such as 100, or unset it to log none."
        )
    from trainer_hooks_vision.image_logger import ImageLogger

    return [ImageLogger(every_n_steps=int(text))]
