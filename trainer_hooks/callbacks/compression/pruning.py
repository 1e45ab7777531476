"""Prune parameters with torch: their masks, their form in checkpoints, methods and options.

torch keeps a pruned parameter as its values, `weight_orig`, and a mask, `weight_mask`; their
product is the module's `weight`.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import prune

from trainer_hooks._log import log
from trainer_hooks._options import Rule, is_int
from trainer_hooks.errors import CallbackError, OptionError, did_you_mean
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from torch import Tensor

__all__ = [
    "AMOUNT",
    "PrunedParameter",
    "PruningMethod",
    "add_unit_masks",
    "check_parameters",
    "chosen_parameters",
    "log_sparsity",
    "pruning_method",
    "resolve_masks",
]


@dataclass(frozen=True, slots=True)
class PrunedParameter:
    """A parameter to prune.

    Attributes:
        module: the layer that has it.
        name: its name in the layer.
        path: its name in the whole module.
    """

    module: nn.Module
    name: str
    path: str

    @property
    def is_pruned(self) -> bool:
        """Whether it has a mask."""
        return hasattr(self.module, f"{self.name}_mask")

    def values(self) -> Tensor:
        """Return the parameter without its mask."""
        suffix = "_orig" if self.is_pruned else ""
        values: Tensor = getattr(self.module, self.name + suffix)
        return values

    def recompute(self) -> None:
        """Compute the product of values and mask again; torch does so in forwards only."""
        if self.is_pruned:
            values, mask = self.values(), getattr(self.module, f"{self.name}_mask")
            setattr(self.module, self.name, values * mask.to(values.dtype))

    def unpruned_count(self, dim: int | None = None) -> int:
        """Count the entries that are not pruned, or the slices along a dimension."""
        if not self.is_pruned:
            values = self.values()
            return values.numel() if dim is None else values.shape[dim]
        mask: Tensor = getattr(self.module, f"{self.name}_mask")
        if dim is None:
            return int(mask.count_nonzero())
        return int(mask.transpose(0, dim).flatten(1).any(dim=1).sum())

    def counts(self) -> tuple[int, int]:
        """Count the pruned entries, and all entries."""
        size = self.values().numel()
        if not self.is_pruned:
            return 0, size
        mask: Tensor = getattr(self.module, f"{self.name}_mask")
        return size - int(mask.count_nonzero()), size

    def state_dict(self) -> dict[str, Any]:
        """Return the parameter without its mask, and the mask."""
        return {
            "values": self.values().detach(),
            "mask": getattr(self.module, f"{self.name}_mask").detach(),
        }

    def restore_mask(self, saved: Mapping[str, Any] | None, weights: dict[str, Any]) -> None:
        """Add or remove the mask as saved, and put it into weights in which it was resolved.

        Args:
            saved: the result of `state_dict`, or None if the parameter was not pruned.
            weights: the saved weights; they stay as they are if they have the mask.
        """
        # the module and the weights must have the same names when the weights are loaded
        is_masked = saved is not None or f"{self.path}_mask" in weights
        if is_masked and not self.is_pruned:
            prune.identity(self.module, self.name)  # type: ignore[no-untyped-call]
        elif self.is_pruned and not is_masked:
            prune.remove(self.module, self.name)  # type: ignore[no-untyped-call]
        if saved is not None and f"{self.path}_mask" not in weights:
            weights.pop(self.path, None)
            weights[f"{self.path}_orig"] = saved["values"]
            weights[f"{self.path}_mask"] = saved["mask"]


def resolve_masks(
    module: nn.Module | None, weights: dict[str, Any], paths: Collection[str] | None = None
) -> dict[str, Any]:
    """Return weights with products in place of the masks that a module does not have.

    Args:
        module: the module that will load them; None for a module without masks.
        weights: saved weights; the names ending in `_orig` and `_mask` belong together.
        paths: the names of the parameters that may have masks; any unless given.
    """
    module_state = {} if module is None else module.state_dict()
    plain = copy(weights)
    for path in _masked_paths(weights):
        if f"{path}_mask" not in module_state and (paths is None or path in paths):
            values, mask = plain.pop(f"{path}_orig"), plain.pop(f"{path}_mask")
            plain[path] = values * mask.to(values.dtype)
    return plain


def add_unit_masks(module: nn.Module, weights: dict[str, Any]) -> dict[str, Any]:
    """Return weights with a mask of ones for each parameter that has a mask in the module alone."""
    masked = copy(weights)
    for path in _masked_paths(module.state_dict()):
        if path in masked:
            masked[f"{path}_orig"] = values = masked.pop(path)
            masked[f"{path}_mask"] = torch.ones_like(values)
    return masked


def _masked_paths(weights: dict[str, Any]) -> list[str]:
    """Return the names of the parameters that have a mask.

    A buffer called `..._mask` may be no mask of pruning; then there are no `..._orig` values.
    """
    names = [name.removesuffix("_mask") for name in weights if name.endswith("_mask")]
    return [name for name in names if f"{name}_orig" in weights]


def log_sparsity(
    where: str,
    method: str,
    pruned: Sequence[PrunedParameter],
    before: Sequence[tuple[int, int]],
    amount: int | float,
    *,
    has_details: bool,
) -> None:
    """Log the share of pruned entries before and after a pruning.

    Args:
        where: the name of the callback.
        method: the name of the pruning method.
        pruned: the parameters.
        before: their counts before, as `counts` returns them.
        amount: the amount by which they were pruned.
        has_details: whether to log each parameter's share, too.
    """
    after = [parameter.counts() for parameter in pruned]
    total = sum(count for _, count in after)
    shares = [
        f"{zeros}/{total} ({zeros / total:.2%})"
        for zeros in (sum(zeros for zeros, _ in counts) for counts in (before, after))
    ]
    log.info("%s: %s pruned %s -> %s", where, method, *shares)
    if not has_details:
        return
    for parameter, (old, size), (new, _) in zip(pruned, before, after, strict=True):
        log.info(
            "%s: %s by %s: %d (%.2f%%) -> %d (%.2f%%)",
            *(where, parameter.path, amount),
            *(old, 100 * old / size, new, 100 * new / size),
        )


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
AMOUNT = Rule(
    "a float from 0.0 to 1.0, an int of at least 0, or a function of the epoch that returns one",
    lambda amount: is_int(amount, 0) or (isinstance(amount, float) and 0.0 <= amount <= 1.0),
    "Pass the share or the number to prune.",
)
"""The rule for the amount of one pruning: a share or a number of entries."""
_CONTAINERS = (Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True, slots=True)
class PruningMethod:
    """A method of pruning.

    Attributes:
        name: its name.
        function: torch's function that prunes one parameter; None where all are ranked together.
        kind: torch's class that ranks all parameters together; None where each is ranked alone.
        options: the function's other arguments.
    """

    name: str
    function: Callable[..., Any] | None
    kind: type[prune.BasePruningMethod] | None
    options: Mapping[str, Any]

    def apply(self, parameters: Sequence[PrunedParameter], amount: int | float) -> None:
        """Prune parameters by an amount; a number is limited to the unpruned ones."""
        if self.function is None:
            pairs = [(pruned.module, pruned.name) for pruned in parameters]
            if amount := _limited(amount, sum(pruned.unpruned_count() for pruned in parameters)):
                prune.global_unstructured(pairs, pruning_method=self.kind, amount=amount)
            return
        for pruned in parameters:
            if share := _limited(amount, pruned.unpruned_count(self.options.get("dim"))):
                self.function(pruned.module, name=pruned.name, amount=share, **self.options)


def _limited(amount: int | float, unpruned: int) -> int | float:
    # torch refuses to prune more entries than there are left
    return min(amount, unpruned) if isinstance(amount, int) else amount


def pruning_method(
    pruning_fn: object, is_global: object, dim: object, norm: object, where: str
) -> PruningMethod:
    """Return the pruning method of ModelPruning's arguments.

    Raises:
        OptionError: there is no such method, it cannot rank all parameters together, or it lacks an
            argument.
    """
    if isinstance(pruning_fn, type) and issubclass(pruning_fn, prune.BasePruningMethod):
        _require_global(
            pruning_fn, getattr(pruning_fn, "PRUNING_TYPE", "unknown"), is_global, where
        )
        return PruningMethod(pruning_fn.__name__, None, pruning_fn, {})
    name = pruning_fn.lower() if isinstance(pruning_fn, str) else ""
    if name not in _FUNCTIONS:
        raise OptionError(
            f"pruning_fn {pruning_fn!r} of {where}: it must be one of {', '.join(_FUNCTIONS)}, or "
            f"a class derived from torch.nn.utils.prune.BasePruningMethod."
            f"{did_you_mean(name, _FUNCTIONS)} Pass one of them."
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
    return PruningMethod(name, _FUNCTIONS[name], None, _structured_options(name, dim, norm, where))


def _structured_options(name: str, dim: object, norm: object, where: str) -> dict[str, Any]:
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


def check_parameters(parameters: object, where: str) -> tuple[tuple[nn.Module, str], ...]:
    """Return `parameters_to_prune` as pairs of a module and a parameter's name.

    Raises:
        OptionError: an item is not such a pair.
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
    """Return the parameters to prune: those given, or all with certain names.

    Structured methods prune slices, so they skip parameters of one dimension.

    Args:
        module: the module that is trained.
        given: pairs of a layer and a parameter's name; empty for all with the names.
        names: the names of parameters, such as `"weight"`.
        where: the name of the callback, for messages.
        is_structured: whether the method prunes slices.

    Raises:
        CallbackError: a parameter does not belong to the module, or there is none with the names.
    """
    parts = list(module.modules())
    if not given:
        chosen = [
            (part, name)
            for name in names
            for part in parts
            if not isinstance(part, _CONTAINERS)
            and isinstance(parameter := getattr(part, name, None), nn.Parameter)
            and not (is_structured and parameter.ndim < 2)
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
