"""ModelPruning: set the least important weights of a module to zero while it trains."""

from __future__ import annotations

import math
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import prune

from trainer_hooks._annotations import signature_of
from trainer_hooks._log import log
from trainer_hooks._options import FLAG, Rule, check_option, is_int, one_of, option_rules
from trainer_hooks.callbacks.base import WeightOwner
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, OptionError, did_you_mean
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import uncompiled
from trainer_hooks.runtime.parameter_names import plain_name, with_plain_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from trainer_hooks.context.context import Trainer

    Parameters = Sequence[tuple[nn.Module, str]]


@dataclass(frozen=True, slots=True)
class PrunedParameter:
    """A parameter to prune.

    Attributes:
        module: the layer that has it.
        name: its name in the layer.
        path: its plain name in the whole module.
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
        # while there is a mask, torch keeps the same Parameter as `..._orig`: the optimizer's own
        suffix = "_orig" if self.is_pruned else ""
        values: Tensor = getattr(self.module, self.name + suffix)
        return values

    def recompute(self) -> None:
        """Compute the product of values and mask again; torch does so in forwards only."""
        if self.is_pruned:
            values, mask = self.values(), getattr(self.module, f"{self.name}_mask")
            # under the plain name torch keeps a mere tensor, of which the optimizer does not know
            setattr(self.module, self.name, values * mask.to(values.dtype))

    def unpruned_count(self, dim: int | None = None) -> int:
        """Count the entries that are not pruned, or the slices along a dimension."""
        if not self.is_pruned:
            values = self.values()
            return values.numel() if dim is None else values.shape[dim]
        mask: Tensor = getattr(self.module, f"{self.name}_mask")
        if dim is None:
            return int(mask.count_nonzero())
        # a slice counts as long as a single one of its entries is left
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
            # only a mask of ones: the saved one comes with the weights that are loaded next
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
    module_state = {} if module is None else with_plain_names(module.state_dict())
    # not dict(): a state dict carries the versions of its layers in the attribute `_metadata`
    plain = copy(weights)
    for path in _masked_paths(weights):
        if f"{path}_mask" not in module_state and (paths is None or path in paths):
            values, mask = plain.pop(f"{path}_orig"), plain.pop(f"{path}_mask")
            plain[path] = values * mask.to(values.dtype)
    return plain


def add_unit_masks(module: nn.Module, weights: dict[str, Any]) -> dict[str, Any]:
    """Return weights with a mask of ones for each parameter that has a mask in the module alone."""
    masked = copy(weights)
    for path in _masked_paths(with_plain_names(module.state_dict())):
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
    method: str,
    pruned: Sequence[PrunedParameter],
    before: Sequence[tuple[int, int]],
    amount: int | float,
    *,
    has_details: bool,
) -> None:
    """Log the share of pruned entries before and after a pruning.

    Args:
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
    log.info("%s: %s pruned %s -> %s", _WHERE, method, *shares)
    if not has_details:
        return
    for parameter, (old, size), (new, _) in zip(pruned, before, after, strict=True):
        log.info(
            "%s: %s by %s: %d (%.2f%%) -> %d (%.2f%%)",
            *(_WHERE, parameter.path, amount),
            *(old, 100 * old / size, new, 100 * new / size),
        )


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "l1_unstructured": prune.l1_unstructured,
    "ln_structured": prune.ln_structured,
    "random_structured": prune.random_structured,
    "random_unstructured": prune.random_unstructured,
}
_GLOBAL = {"l1_unstructured": prune.L1Unstructured, "random_unstructured": prune.RandomUnstructured}
AMOUNT = Rule(
    "a float from 0.0 to 1.0, an int of at least 0, or a function of the epoch that returns one",
    lambda amount: is_int(amount, 0) or (isinstance(amount, float) and 0.0 <= amount <= 1.0),
    "Pass the share or the number to prune.",
)
"""The rule for the amount of one pruning: a share or a number of entries."""
# the classes whose own parameters are not chosen, as in Lightning
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
            # an amount of 0 would still add masks, and so change the names in the state dict
            if amount := _limited(amount, sum(pruned.unpruned_count() for pruned in parameters)):
                kind: Any = self.kind
                # a class without the argument decides by itself, as in Lightning
                taken = signature_of(kind).parameters.values()
                is_taken = any(p.name == "amount" or p.kind is p.VAR_KEYWORD for p in taken)
                options = {"amount": amount} if is_taken else {}
                prune.global_unstructured(pairs, pruning_method=kind, **options)
            return
        for pruned in parameters:
            if share := _limited(amount, pruned.unpruned_count(self.options.get("dim"))):
                self.function(pruned.module, name=pruned.name, amount=share, **self.options)


def _limited(amount: int | float, unpruned: int) -> int | float:
    # torch refuses to prune more entries than there are left
    return min(amount, unpruned) if isinstance(amount, int) else amount


def pruning_method(
    pruning_fn: object, is_global: object, dim: object, norm: object
) -> PruningMethod:
    """Return the pruning method of ModelPruning's arguments.

    Raises:
        OptionError: there is no such method, it cannot rank all parameters together, or it lacks an
            argument.
    """
    if isinstance(pruning_fn, type) and issubclass(pruning_fn, prune.BasePruningMethod):
        _require_global(pruning_fn, getattr(pruning_fn, "PRUNING_TYPE", "unknown"), is_global)
        return PruningMethod(pruning_fn.__name__, None, pruning_fn, {})
    name = pruning_fn.lower() if isinstance(pruning_fn, str) else ""
    if name not in _FUNCTIONS:
        raise OptionError(
            f"pruning_fn {pruning_fn!r} of {_WHERE}: it must be one of {', '.join(_FUNCTIONS)}, "
            f"or a class derived from torch.nn.utils.prune.BasePruningMethod."
            f"{did_you_mean(name, _FUNCTIONS)} Pass one of them."
        )
    if name in _GLOBAL:
        for option, value in (("pruning_dim", dim), ("pruning_norm", norm)):
            if value is not None:
                raise OptionError(
                    f"{option} {value!r} of {_WHERE}: pruning_fn {name!r} prunes single numbers "
                    "and has no use for it. Leave it out, or choose a structured method."
                )
        kind = _GLOBAL[name] if is_global else None
        return PruningMethod(name, None if is_global else _FUNCTIONS[name], kind, {})
    if is_global:
        raise OptionError(
            f"use_global_unstructured {is_global!r} of {_WHERE}: pruning_fn {name!r} is "
            "structured, so each parameter is pruned on its own. Pass "
            "use_global_unstructured=False."
        )
    return PruningMethod(name, _FUNCTIONS[name], None, _structured_options(name, dim, norm))


def _structured_options(name: str, dim: object, norm: object) -> dict[str, Any]:
    if not is_int(dim):
        raise OptionError(
            f"pruning_dim {dim!r} of {_WHERE}: pruning_fn {name!r} needs a dimension, as an int. "
            "Pass the one of what is pruned as a whole: 0 for the outputs of a linear layer."
        )
    if name == "random_structured":
        if norm is not None:
            raise OptionError(
                f"pruning_norm {norm!r} of {_WHERE}: pruning_fn {name!r} ranks by no norm. Leave "
                "it out."
            )
        return {"dim": dim}
    is_number = isinstance(norm, int | float) and not isinstance(norm, bool)
    # NaN is a number, too, by which nothing can be ranked
    if not (is_number or norm in ("fro", "nuc")) or (is_number and math.isnan(norm)):  # type: ignore[arg-type]
        raise OptionError(
            f"pruning_norm {norm!r} of {_WHERE}: pruning_fn {name!r} needs the order of a norm. "
            "Pass a number, such as 2."
        )
    return {"n": norm, "dim": dim}


def _require_global(given: object, kind: str, is_global: object) -> None:
    if not is_global:
        raise OptionError(
            f"use_global_unstructured {is_global!r} of {_WHERE}: a class as pruning_fn "
            f"({given!r}) prunes all parameters together. Leave it out."
        )
    if kind != "unstructured":
        raise OptionError(
            f"pruning_fn {given!r} of {_WHERE}: its PRUNING_TYPE is {kind!r}, and parameters can "
            "be ranked together by an unstructured method alone. Pass the name of a structured "
            "one with use_global_unstructured=False."
        )


def check_parameters(parameters: object) -> tuple[tuple[nn.Module, str], ...]:
    """Return `parameters_to_prune` as pairs of a module and a parameter's name; None is none.

    Raises:
        OptionError: an item is not such a pair.
    """
    if parameters is None:
        return ()
    pairs = tuple(parameters) if isinstance(parameters, list | tuple) else (parameters,)
    for pair in pairs:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], nn.Module) or not isinstance(pair[1], str):
            raise OptionError(
                f"parameters_to_prune {parameters!r} of {_WHERE}: {pair!r} must be a pair of a "
                "module and the name of its parameter. Pass pairs such as (model.layer, 'weight')."
            )
    return tuple((module, name) for module, name in pairs)


def chosen_parameters(
    module: nn.Module,
    given: Sequence[tuple[nn.Module, str]],
    names: Sequence[str],
    *,
    is_structured: bool,
) -> list[tuple[nn.Module, str]]:
    """Return the parameters to prune: those given, or all with certain names.

    Structured methods prune slices, so they skip parameters of one dimension. Of a compiled layer
    the layer inside is returned, which has the parameters.

    Args:
        module: the module that is trained.
        given: pairs of a layer and a parameter's name; empty for all with the names.
        names: the names of parameters, such as `"weight"`.
        is_structured: whether the method prunes slices.

    Raises:
        CallbackError: a parameter does not belong to the module or has no size yet, or there is
            none with the names.
    """
    # the wrapper of a compiled layer shows the layer's attributes, and torch cannot replace them
    # there
    parts = [part for part in module.modules() if uncompiled(part) is part]
    given = [(uncompiled(part), name) for part, name in given]
    for part in parts if not given else [part for part, _ in given]:
        for name, parameter in part.named_parameters(recurse=False):
            is_chosen = (part, name) in given if given else name in names
            if is_chosen and is_lazy(parameter):
                raise CallbackError(
                    f"{_WHERE}: {name!r} of {type(part).__name__} in {type(module).__qualname__} "
                    "is lazy: it gets its size with the first batch, and the pruning begins before "
                    "it. Run a batch through the module in configure_model."
                )
    if not given:
        chosen = [
            (part, name)
            for name in names
            for part in parts
            if not isinstance(part, _CONTAINERS)
            and isinstance(parameter := getattr(part, name, None), nn.Parameter)
            # a slice of a vector would be one entry
            and not (is_structured and parameter.ndim < 2)
        ]
        if not chosen:
            raise CallbackError(
                f"{_WHERE}: {type(module).__qualname__} has no layer with a parameter named "
                f"{' or '.join(names)}. Name what to prune with parameters_to_prune."
            )
        return chosen
    for part, name in given:
        is_there = any(part is layer for layer in parts)
        if not is_there or not isinstance(getattr(part, name, None), nn.Parameter):
            lacking = f"it has no parameter {name!r}" if is_there else "it is no part of it"
            raise CallbackError(
                f"parameters_to_prune of {_WHERE}: {type(part).__name__} cannot be pruned in "
                f"{type(module).__qualname__}, as {lacking}. Name layers of the module that is "
                "trained."
            )
    return given


_WHERE = "ModelPruning"


class ModelPruning(WeightOwner):
    """Set the least important weights of a module to zero at the end of epochs.

    It uses `torch.nn.utils.prune`: a pruned parameter keeps its values beside a mask of zeros and
    ones, and the module computes with their product. When the training is over, and in
    checkpoints, the product replaces them, so that a checkpoint loads into a plain module
    (`make_pruning_permanent`). The masks are part of the callback's state, so a resumed training
    goes on with them.

    By the lottery ticket hypothesis, the weights that remain after a pruning are reset to their
    values from before the training. This is on by default. A checkpoint at the end of an epoch then
    holds the reset weights, but the metrics from before the pruning.

    Two of these callbacks with one method in a trainer need two keys: override `state_key`.

    Args:
        pruning_fn: `"l1_unstructured"`, `"random_unstructured"`, `"ln_structured"`,
            `"random_structured"`, or a class derived from `BasePruningMethod`.
        parameters_to_prune: pairs of a layer and the name of its parameter; None or empty for all
            parameters with the names in `parameter_names`.
        parameter_names: `"weight"`, `"bias"`, or both (the default).
        use_global_unstructured: whether to rank all parameters together, which unstructured
            methods can do and classes must, or each on its own.
        amount: the share (float) or number (int) of the unpruned weights to prune each time, or a
            function that returns it for an epoch's index. For a structured method an int is a
            number of slices along `pruning_dim`.
        apply_pruning: whether to prune, or a function that returns it for an epoch's index.
        make_pruning_permanent: whether to resolve the masks when the training ends, and in
            checkpoints.
        use_lottery_ticket_hypothesis: whether to reset the remaining weights to their first values,
            or a function that returns it for an epoch's index.
        resample_parameters: whether to reset them by `reset_parameters` to new values instead.
        pruning_dim: for structured methods, the dimension of the slices.
        pruning_norm: for `"ln_structured"`, the order of the norm that ranks the slices.
        verbose: 0 logs nothing, 1 the sparsity at level INFO, 2 that of each parameter too.
        prune_on_train_epoch_end: whether to prune at the end of training epochs, or at the end of
            the validations of fit.

    State: the values and masks of the pruned parameters, and the first values.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a fit, a parameter to prune does not belong to the module, or another
            callback averages or quantizes it.

    Example::

        pruning = ModelPruning("l1_unstructured", amount=0.25, use_lottery_ticket_hypothesis=False)
        trainer = Trainer(max_epochs=2, callbacks=[pruning])
        trainer.fit(module, train_loader, val_loader)
    """

    PARAMETER_NAMES = ("weight", "bias")

    @option_rules(
        use_global_unstructured=FLAG,
        make_pruning_permanent=FLAG,
        resample_parameters=FLAG,
        prune_on_train_epoch_end=FLAG,
        amount=AMOUNT.or_function(),
        apply_pruning=FLAG.or_function(),
        use_lottery_ticket_hypothesis=FLAG.or_function(),
        verbose=one_of(0, 1, 2),
    )
    def __init__(
        self,
        pruning_fn: str | type[prune.BasePruningMethod],
        parameters_to_prune: Parameters | None = (),
        parameter_names: list[str] | None = None,
        use_global_unstructured: bool = True,
        amount: int | float | Callable[[int], int | float] = 0.5,
        apply_pruning: bool | Callable[[int], bool] = True,
        make_pruning_permanent: bool = True,
        use_lottery_ticket_hypothesis: bool | Callable[[int], bool] = True,
        resample_parameters: bool = False,
        pruning_dim: int | None = None,
        pruning_norm: int | float | None = None,
        verbose: int = 0,
        prune_on_train_epoch_end: bool = True,
    ) -> None:
        names = self.PARAMETER_NAMES
        self._method = pruning_method(
            pruning_fn, use_global_unstructured, pruning_dim, pruning_norm
        )
        self._given = check_parameters(parameters_to_prune)
        self._parameter_names = tuple(names if parameter_names is None else parameter_names)
        for name in self._parameter_names:
            check_option("parameter_names", name, _WHERE, one_of(*names))
        self.amount = amount
        self._apply_pruning = apply_pruning
        self._is_permanent = make_pruning_permanent
        self._uses_lottery = use_lottery_ticket_hypothesis
        self._resamples = resample_parameters
        self._verbose = verbose
        self._prunes_at_epoch_end = prune_on_train_epoch_end
        self._reset()

    def _reset(self) -> None:
        self._owner: Module | None = None
        self._pruned: list[PrunedParameter] = []
        self._first: dict[str, torch.Tensor] = {}
        self._fresh_layers: dict[nn.Module, nn.Module] = {}
        self._restored: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """`ModelPruning{...}` with the method and the names of the parameters."""
        method, names = self._method.name, list(self._parameter_names)
        return self._generate_state_key(pruning_fn=method, parameter_names=names)

    @property
    def parameters_to_prune(self) -> list[tuple[nn.Module, str]]:
        """The layers and names of the parameters to prune; empty before the first fit."""
        return [(pruned.module, pruned.name) for pruned in self._pruned]

    @property
    def sparsity(self) -> float:
        """The share of those parameters' entries that is pruned."""
        counts = [pruned.counts() for pruned in self._pruned]
        # before the first fit there are no entries to divide by
        return sum(zeros for zeros, _ in counts) / max(1, sum(total for _, total in counts))

    @staticmethod
    def sanitize_parameters_to_prune(
        pl_module: Module,
        parameters_to_prune: Parameters | None = (),
        parameter_names: Sequence[str] = (),
    ) -> Parameters:
        """Return the parameters of a module that a fit would prune, by an unstructured method.

        Args:
            pl_module: the module.
            parameters_to_prune: pairs of a layer and a parameter's name; None or empty for all.
            parameter_names: names of parameters; unless given, `PARAMETER_NAMES`.

        Raises:
            OptionError: an item is not such a pair.
            CallbackError: a parameter does not belong to the module, or there is none.
        """
        given, names = check_parameters(parameters_to_prune), parameter_names
        names = names or ModelPruning.PARAMETER_NAMES
        return chosen_parameters(pl_module, given, names, is_structured=False)

    def filter_parameters_to_prune(self, parameters_to_prune: Parameters = ()) -> Parameters:
        """Return the parameters to prune; override it to choose some of them."""
        return parameters_to_prune

    def state_dict(self) -> dict[str, Any]:
        """Return the values and masks of the pruned parameters, and the first values."""
        if self._restored is not None:
            return dict(self._restored)
        return {
            "pruned": {p.path: p.state_dict() for p in self._pruned if p.is_pruned},
            "first_values": dict(self._first),
        }

    @checks_state({"pruned": dict[str, dict[str, Any]], "first_values": dict[str, Tensor]})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the first values; `on_before_restore` has restored the masks."""
        if self._owner is None:
            # no fit has chosen parameters yet: kept, so that a checkpoint saved now has it
            self._restored = state_dict
        else:
            self._first = dict(state_dict["first_values"])

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that no other callback changes the weights, and drop the state of earlier runs."""
        super().setup(trainer, module, stage)
        if stage == "fit":
            self._restored = None

    def goes_with(self, other: WeightOwner) -> bool:
        """Return whether the other callback prunes, too: several can, each its own parameters."""
        return isinstance(other, ModelPruning)

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Choose the parameters to prune, and copy their first values."""
        # a further fit of the module keeps the first values of its first fit
        if trainer.state.fn != "fit" or self._owner is module:
            return
        is_structured = "dim" in self._method.options
        parameters = chosen_parameters(
            module, self._given, self._parameter_names, is_structured=is_structured
        )
        paths = {part: path for path, part in module.named_modules()}
        self._pruned = [
            # the path of the module itself is empty
            PrunedParameter(part, name, plain_name(f"{paths[part]}.{name}".lstrip(".")))
            for part, name in self.filter_parameters_to_prune(parameters)
        ]
        self._owner = module
        # a function may say no in the first epochs and yes later, and asks for these values then
        if self._uses_lottery is not False:
            # cloned: the parameter changes in place from the first step on
            self._first = {p.path: p.values().detach().clone() for p in self._pruned}
            if self._resamples:
                # before there are masks: torch refuses to copy a layer whose weight is a product
                self._fresh_layers = {p.module: deepcopy(p.module) for p in self._pruned}

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Give the module and the weights in the checkpoint the same masks."""
        # load_state_dict takes only weights whose names the module has
        if trainer.state.fn == "fit" and module is self._owner:
            state = checkpoint.get("callbacks", {}).get(self.state_key)
            saved = {} if state is None else state["pruned"]
            for pruned in self._pruned:
                pruned.restore_mask(saved.get(pruned.path), checkpoint["state_dict"])
        weights = checkpoint["state_dict"]
        checkpoint["state_dict"] = add_unit_masks(module, resolve_masks(module, weights))

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Prune, if that is due at the end of training epochs."""
        if self._prunes_at_epoch_end:
            self._run_pruning(trainer.current_epoch)

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Prune, if that is due at the end of the validations of fit."""
        is_in_fit = trainer.state.fn == "fit" and not trainer.sanity_checking
        if is_in_fit and not self._prunes_at_epoch_end:
            self._run_pruning(trainer.current_epoch)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Resolve the masks if pruning is to be permanent."""
        # a run that is resumed trains on with the masks
        if self._is_permanent and not trainer.is_leaving:
            self.make_pruning_permanent(module)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Resolve the masks in the checkpoint if pruning is permanent; the module keeps them."""
        if self._is_permanent and module is self._owner:
            paths = {pruned.path for pruned in self._pruned}
            checkpoint["state_dict"] = resolve_masks(None, checkpoint["state_dict"], paths)

    def apply_pruning(self, amount: int | float) -> None:
        """Prune the parameters by an amount."""
        before = [pruned.counts() for pruned in self._pruned]
        with torch.no_grad():
            for pruned in self._pruned:
                pruned.recompute()  # torch ranks by the product, which is older than the last step
            self._method.apply(self._pruned, amount)
        if self._verbose:
            has_details = self._verbose == 2
            log_sparsity(self._method.name, self._pruned, before, amount, has_details=has_details)

    def apply_lottery_ticket_hypothesis(self) -> None:
        """Reset the pruned parameters to their first values, or to new ones if resampled."""
        resampled: set[nn.Module] = set()
        for pruned in self._pruned:
            values = self._first[pruned.path]
            layer = self._fresh_layers.get(pruned.module)
            # a layer that cannot draw new values goes back to its first ones
            if layer is not None and callable(reset := getattr(layer, "reset_parameters", None)):
                if layer not in resampled:  # once for weight and bias together
                    reset()
                    resampled.add(layer)
                values = getattr(layer, pruned.name)
            # in place: the optimizer holds this very parameter
            with torch.no_grad():
                pruned.values().copy_(values)

    @staticmethod
    def without_masks(module: nn.Module, weights: dict[str, Any]) -> dict[str, Any]:
        """Return saved weights with products in place of the masks that a module does not have.

        Args:
            module: the module that will load them.
            weights: the weights.
        """
        return resolve_masks(module, weights)

    def make_pruning_permanent(self, module: nn.Module) -> None:
        """Replace all masked parameters of a module by their products."""
        for part in module.modules():
            # a list, as prune.remove deletes buffers of the part
            for name in [n.removesuffix("_mask") for n, _ in part.named_buffers(recurse=False)]:
                if f"{name}_orig" in dict(part.named_parameters(recurse=False)):
                    prune.remove(part, name)  # type: ignore[no-untyped-call]

    def _run_pruning(self, epoch: int) -> None:
        if not _is_switched_on(self._apply_pruning, epoch):
            return
        amount = self.amount
        if callable(amount):
            amount = check_option("amount", amount(epoch), f"{_WHERE} in epoch {epoch}", AMOUNT)
        if not amount:
            return
        self.apply_pruning(amount)
        # after the pruning, which ranks the weights as they were trained
        if _is_switched_on(self._uses_lottery, epoch):
            self.apply_lottery_ticket_hypothesis()


def _is_switched_on(switch: bool | Callable[[int], bool], epoch: int) -> bool:
    return bool(switch(epoch)) if callable(switch) else switch
