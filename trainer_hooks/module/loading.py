"""Make a module from a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import checkpoint as files
from trainer_hooks.errors import ModuleError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    MethodOfClass = classmethod
else:

    class MethodOfClass(classmethod):
        """A classmethod that an object refuses, since it would stay as it is itself."""

        def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., Any]:
            """Return the method, of an object one that raises when it is called."""
            return super().__get__(instance, owner) if instance is None else _refusal(owner)


__all__ = ["MethodOfClass", "load_module"]


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


def _refusal(kind: type[Any]) -> Callable[..., Any]:
    def load_from_checkpoint(*_: Any, **__: Any) -> Any:
        raise ModuleError(
            f"load_from_checkpoint was called on an object of {kind.__qualname__}: it makes a new "
            f"object, and this one would stay as it is. Write loaded = {kind.__name__}."
            "load_from_checkpoint(...)."
        )

    return load_from_checkpoint
