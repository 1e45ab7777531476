"""LoopModule: the module of a loop that the user writes, around their own model or models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from trainer_hooks.errors import ModuleError
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import uncompiled

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOLDERS = ("model", "models")


class LoopModule(Module):
    """Holds the models of a user's own loop, as the module that callbacks are handed.

    Attributes of a single model can be read from it, and so can several models by their names.
    Weights have the names that they have in a single model, or begin with the name of one of
    several.

    Args:
        models: one model, or several by name.
    """

    def __init__(self, models: nn.Module | Mapping[str, nn.Module]) -> None:
        super().__init__()
        if isinstance(models, nn.Module):
            self.model = models
            self.train(models.training)
        else:
            self.models = nn.ModuleDict(models)

    @classmethod
    def around(cls, models: nn.Module | Mapping[str, nn.Module]) -> LoopModule:
        """Return a module around models, whose class has the name of a single model's."""
        if not isinstance(models, nn.Module):
            return cls(models)
        name = type(models).__name__
        named: type[LoopModule] = type(name, (cls,), {"__qualname__": name})
        return named(models)

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The models by name; a single one has an empty name."""
        held = self._held
        return dict(held.items()) if isinstance(held, nn.ModuleDict) else {"": held}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run a single model; without arguments do nothing, as FSDP needs it before its layers."""
        if not args and not kwargs:
            return None
        if "" not in self.parts:
            raise ModuleError(
                f"there are {len(self.parts)} models, {', '.join(self.parts)}: call one of them."
            )
        return self.parts[""](*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # not by `self.parts`, which would come here again before `__init__` has run
            held = self.__dict__.get("_modules", {})
            models = held.get("models")
            if "model" in held and name not in _HOLDERS:
                return getattr(held["model"], name)
            if models is not None and name in models:
                return models[name]
            raise

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the weights under the names that they have in the models."""
        return self._held.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Load weights that have the names of `state_dict`, or those of a checkpoint."""
        from trainer_hooks.runtime.parameter_names import with_names_of

        return self._held.load_state_dict(
            with_names_of(self.state_dict(), state_dict), *args, **kwargs
        )

    @property
    def _held(self) -> nn.Module:
        held: nn.Module = getattr(self, "model" if "model" in self._modules else "models")
        return held


def named_models(given: Any) -> nn.Module | dict[str, nn.Module]:
    """Return the model or models that `Run(model=...)` was given, without compilers' wrappers.

    Raises:
        ModuleError: it is no model, or no list or dict of them.
    """
    if isinstance(given, dict):
        items = list(given.items())
    elif isinstance(given, list | tuple):
        items = [(str(index), model) for index, model in enumerate(given)]
    else:
        items = [("", given)]
    models = {name: uncompiled(model) for name, model in items}
    for name, model in models.items():
        if not isinstance(model, nn.Module) or not isinstance(name, str):
            hint = " It is a class: pass an instance." if isinstance(model, type) else ""
            raise ModuleError(
                f"Run(model=...) was given {str(model)[:60]!r} of type {type(model).__qualname__}"
                f"{f' as {name!r}' if name else ''}: it must be a torch.nn.Module, or a list or a "
                f"dict of them by name.{hint}"
            )
        if "." in name or (not name and len(items) > 1):
            raise ModuleError(
                f"Run(model={{{name!r}: ...}}): the name of a model becomes the beginning of its "
                "weights' names, and must have no dot. Give it another one."
            )
    if not models:
        raise ModuleError("Run(model=...) was given no model: pass the one that is trained.")
    single: nn.Module | None = models.get("")
    return models if single is None else single
