"""Make a module from a checkpoint."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import checkpoint as files
from trainer_hooks.errors import ModuleError
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    import os

__all__ = ["load_module"]


def load_module(
    kind: type[Any],
    path: str | os.PathLike[str],
    map_location: Any,
    strict: bool,
    replaced: dict[str, Any],
) -> Any:
    """Make a module of the class `kind` with a checkpoint's hyperparameters and weights.

    The arguments are those of `Module.load_from_checkpoint`.
    """
    is_device = isinstance(map_location, str | torch.device)
    place = "cpu" if is_device or map_location is None else map_location
    checkpoint = files.load_checkpoint(path, place)
    arguments = {**checkpoint.get("hyper_parameters", {}), **replaced}
    parameters = inspect.signature(kind.__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    lacking = [
        name
        for name, parameter in list(parameters.items())[1:]
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        and name not in arguments
    ]
    if lacking:
        given = ", ".join(f"{name}=..." for name in lacking)
        raise ModuleError(
            f"checkpoint {str(path)!r} holds no hyperparameter {', '.join(map(repr, lacking))}, "
            f"which {kind.__qualname__}.__init__ needs: save_hyperparameters() was not called, or "
            f"left it out. Pass it: {kind.__qualname__}.load_from_checkpoint(..., {given})."
        )
    with rng.isolated():
        module = kind(**arguments)
        module.configure_model()
    getattr(module, "on_load_checkpoint")(checkpoint)  # noqa: B009 - made from the catalogue
    files.load_weights(module, checkpoint["state_dict"], str(path), strict=strict)
    if is_device:
        module.to(map_location)
    return module
