"""Call a module's step with the arguments that it takes, and say so where it takes others."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import ModuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.module import Module

__all__ = ["fitted"]

_GIVEN = ("batch", "batch_idx", "dataloader_idx")


def fitted(module: Module, name: str, num_loaders: int = 1) -> Callable[..., Any]:
    """Return a step of a module, to be called with the batch, its number, and the loader's.

    A step that takes the batch alone is given that alone, as in Lightning.

    Args:
        module: the module.
        name: the step's name.
        num_loaders: how many loaders there are; the loader's number is given where several are.

    Raises:
        ModuleError: it takes fewer arguments than it must, or more, or wants the loader.
    """
    step: Callable[..., Any] = getattr(module, name)
    try:
        parameters = inspect.signature(step).parameters.values()
    except (TypeError, ValueError):  # one that is written in C tells nothing
        return step
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return step
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(parameter.default is parameter.empty for parameter in positional)
    given = 3 if num_loaders > 1 else 2
    where = f"{type(module).__qualname__}.{name}"
    if given == 3 and len(positional) < given:
        raise ModuleError(
            f"{where}({', '.join(p.name for p in positional)}) with {num_loaders} loaders: it must "
            f"take dataloader_idx, too. Write def {name}(self, batch, batch_idx, dataloader_idx=0)."
        )
    if not positional or required > given:
        raise ModuleError(
            f"{where}({', '.join(p.name for p in positional)}): it is called with "
            f"({', '.join(_GIVEN[:given])}). Take these, and give what else it takes a default."
        )
    if positional[0].name == "dataloader_iter":
        raise ModuleError(
            f"{where}(dataloader_iter): a step takes no batches from the loader here, it is given "
            f"one after another. Write def {name}(self, batch, batch_idx)."
        )
    if len(positional) == 1:
        return lambda batch, *_: step(batch)
    return step
