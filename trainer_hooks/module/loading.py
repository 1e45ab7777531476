"""Make a module from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import checkpoint as files
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os

__all__ = ["load_module"]


def load_module(
    kind: type[Any],
    path: str | os.PathLike[str],
    map_location: Any,
    hparams_file: str | os.PathLike[str] | None,
    strict: bool | None,
    replaced: dict[str, Any],
) -> Any:
    """Make a module of the class `kind` with a checkpoint's hyperparameters and weights.

    The arguments are those of `Module.load_from_checkpoint`.
    """
    from trainer_hooks.module.hyperparameters import arguments_from

    is_device = isinstance(map_location, str | torch.device)
    place = "cpu" if is_device or map_location is None else map_location
    checkpoint = files.load_checkpoint(path, place)
    if hparams_file is not None:
        from trainer_hooks.module.hparams_file import read_hparams

        checkpoint["hyper_parameters"] = read_hparams(hparams_file)
    saved = checkpoint.get("hyper_parameters", {})
    arguments = arguments_from(kind, saved, checkpoint.get("hparams_name"), replaced, str(path))
    with rng.isolated():
        module = kind(**arguments)
        module.configure_model()
    getattr(module, "on_load_checkpoint")(checkpoint)  # noqa: B009 - made from the catalogue
    is_strict = module.strict_loading if strict is None else strict
    files.load_weights(module, checkpoint["state_dict"], str(path), strict=is_strict)
    if is_device:
        module.to(map_location)
    return module
