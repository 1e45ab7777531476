"""What ModelPruning makes sure of: its arguments, the method that they name, and its parameters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.utils import prune

from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.errors import CallbackError, OptionError, nearest
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trainer_hooks.callbacks.compression.pruned import Pruned

__all__ = [
    "PruningMethod",
    "check_amount",
    "check_parameters",
    "check_switch",
    "chosen_parameters",
    "pruning_method",
]

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "l1_unstructured": prune.l1_unstructured,
    "ln_structured": prune.ln_structured,
    "random_structured": prune.random_structured,
    "random_unstructured": prune.random_unstructured,
}
_GLOBAL = {
    "l1_unstructured": prune.L1Unstructured,
    "random_unstructured": prune.RandomUnstructured,
}
_CONTAINERS = (Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class PruningMethod:
    """A way to prune.

    Attributes:
        name: what it is called.
        function: prunes one parameter; None where all are ranked together.
        kind: what ranks all together.
        options: the function's other arguments.
    """

    name: str
    function: Callable[..., Any] | None
    kind: type[prune.BasePruningMethod] | None
    options: Mapping[str, Any]

    def apply(self, parameters: Sequence[Pruned], amount: int | float) -> None:
        """Prune parameters by an amount; where it is a number, by no more than is left."""
        if self.function is None:
            pairs = [(pruned.module, pruned.name) for pruned in parameters]
            if amount := _at_most(amount, sum(pruned.left() for pruned in parameters)):
                prune.global_unstructured(pairs, pruning_method=self.kind, amount=amount)
            return
        for pruned in parameters:
            if share := _at_most(amount, pruned.left(self.options.get("dim"))):
                self.function(pruned.module, name=pruned.name, amount=share, **self.options)


def _at_most(amount: int | float, left: int) -> int | float:
    return min(amount, left) if isinstance(amount, int) else amount


def pruning_method(
    given: object, is_global: object, dim: object, norm: object, where: str
) -> PruningMethod:
    """Return the method that the arguments name.

    Raises:
        OptionError: there is none, it cannot rank all parameters together, or lacks an argument.
    """
    check_choice("use_global_unstructured", is_global, where, (True, False))
    if isinstance(given, type) and issubclass(given, prune.BasePruningMethod):
        _require_global(given, getattr(given, "PRUNING_TYPE", "unknown"), is_global, where)
        return PruningMethod(given.__name__, None, given, {})
    name = given.lower() if isinstance(given, str) else ""
    if name not in _FUNCTIONS:
        raise OptionError(
            f"pruning_fn {given!r} of {where}: it must be one of {', '.join(_FUNCTIONS)}, or a "
            f"class derived from torch.nn.utils.prune.BasePruningMethod."
            f"{nearest(name, _FUNCTIONS)} Pass one of them."
        )
    if name in _GLOBAL:
        for option, value in (("pruning_dim", dim), ("pruning_norm", norm)):
            if value is not None:
                raise OptionError(
                    f"{option} {value!r} of {where}: pruning_fn {name!r} prunes single numbers and "
                    "has no use for it. Leave it out, or choose a structured method."
                )
        kind = _GLOBAL[name] if is_global else None
        return PruningMethod(name, None if is_global else _FUNCTIONS[name], kind, {})
    _require_local(name, is_global, where)
    return PruningMethod(name, _FUNCTIONS[name], None, _structure(name, dim, norm, where))


def _structure(name: str, dim: object, norm: object, where: str) -> dict[str, Any]:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise OptionError(
            f"pruning_dim {dim!r} of {where}: pruning_fn {name!r} needs a dimension, as an int. "
            "Pass the one of what is pruned as a whole: 0 for the outputs of a linear layer."
        )
    if name == "random_structured":
        if norm is not None:
            raise OptionError(
                f"pruning_norm {norm!r} of {where}: pruning_fn {name!r} ranks by no norm. Leave "
                "it out."
            )
        return {"dim": dim}
    is_number = isinstance(norm, int | float) and not isinstance(norm, bool)
    if not (is_number or norm in ("fro", "nuc")) or (is_number and math.isnan(norm)):  # type: ignore[arg-type]
        raise OptionError(
            f"pruning_norm {norm!r} of {where}: pruning_fn {name!r} needs the order of a norm. "
            "Pass a number, such as 2."
        )
    return {"n": norm, "dim": dim}


def _require_global(given: object, kind: str, is_global: object, where: str) -> None:
    if not is_global:
        raise OptionError(
            f"use_global_unstructured {is_global!r} of {where}: a class as pruning_fn "
            f"({given!r}) prunes all parameters together. Leave it out."
        )
    if kind != "unstructured":
        raise OptionError(
            f"pruning_fn {given!r} of {where}: its PRUNING_TYPE is {kind!r}, and parameters can "
            "be ranked together by an unstructured method alone. Pass the name of a structured "
            "one with use_global_unstructured=False."
        )


def _require_local(name: str, is_global: object, where: str) -> None:
    if is_global:
        raise OptionError(
            f"use_global_unstructured {is_global!r} of {where}: pruning_fn {name!r} is structured, "
            "so each parameter is pruned on its own. Pass use_global_unstructured=False."
        )


def check_amount(amount: object, where: str) -> int | float:
    """Return `amount` if it is a share or a number of weights.

    Raises:
        OptionError: it is neither.
    """
    is_number = isinstance(amount, int) and not isinstance(amount, bool) and amount >= 0
    if is_number or (isinstance(amount, float) and 0.0 <= amount <= 1.0):
        return amount  # type: ignore[return-value]
    raise OptionError(
        f"amount {amount!r} of {where}: it must be a float from 0.0 to 1.0, an int of at least 0, "
        "or a function of the epoch that returns one. Pass the share or the number to prune."
    )


def check_switch(name: str, value: object, where: str) -> Any:
    """Return `value` if it is True, False or a function.

    Raises:
        OptionError: it is none of them.
    """
    return value if callable(value) else check_choice(name, value, where, (True, False))


def check_parameters(parameters: object, where: str) -> tuple[tuple[nn.Module, str], ...]:
    """Return the pairs of a module and a parameter's name in `parameters`.

    Raises:
        OptionError: there is something else in it.
    """
    pairs = tuple(parameters) if isinstance(parameters, list | tuple) else (parameters,)
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], nn.Module) or not isinstance(pair[1], str):
            raise OptionError(
                f"parameters_to_prune {parameters!r} of {where}: {pair!r} must be a pair of a "
                "module and the name of its parameter. Pass pairs such as (model.layer, 'weight')."
            )
    return tuple((module, name) for module, name in pairs)


def chosen_parameters(
    module: nn.Module,
    given: Sequence[tuple[nn.Module, str]],
    names: Sequence[str],
    where: str,
    *,
    is_structured: bool,
) -> list[tuple[nn.Module, str]]:
    """Return the parameters to prune: those given, or all with these names.

    Structured methods prune slices, so what has one dimension is not for them.

    Raises:
        CallbackError: one is none of the module's, or there is none.
    """
    parts = list(module.modules())
    if not given:
        chosen = [
            (part, name)
            for name in names
            for part in parts
            if not isinstance(part, _CONTAINERS)
            and isinstance(found := getattr(part, name, None), nn.Parameter)
            and not (is_structured and found.ndim < 2)
        ]
        if not chosen:
            raise CallbackError(
                f"{where}: {type(module).__qualname__} has no layer with a parameter named "
                f"{' or '.join(names)}. Name what to prune with parameters_to_prune."
            )
        return chosen
    for part, name in given:
        is_there = any(part is own for own in parts)
        if not is_there or not isinstance(getattr(part, name, None), nn.Parameter):
            lacking = f"it has no parameter {name!r}" if is_there else "it is no part of it"
            raise CallbackError(
                f"parameters_to_prune of {where}: {type(part).__name__} cannot be pruned in "
                f"{type(module).__qualname__}, as {lacking}. Name layers of the module that is "
                "trained."
            )
    return list(given)
