"""ModelPruning: set the least important weights of a module to zero while it trains."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import prune

from trainer_hooks._options import FLAG, check_option, one_of, option_rules
from trainer_hooks.callbacks.base import WeightOwner
from trainer_hooks.callbacks.compression.pruning import (
    AMOUNT,
    PrunedParameter,
    add_unit_masks,
    check_parameters,
    chosen_parameters,
    log_sparsity,
    pruning_method,
    resolve_masks,
)
from trainer_hooks.callbacks.option_checks import check_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

    Parameters = Sequence[tuple[nn.Module, str]]

__all__ = ["ModelPruning"]

_WHERE = "ModelPruning"
_FLAG_OR_FUNCTION = replace(FLAG, accepts=lambda value: callable(value) or FLAG.accepts(value))


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
        parameters_to_prune: pairs of a layer and the name of its parameter; unless given, all
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
        amount=replace(AMOUNT, accepts=lambda amount: callable(amount) or AMOUNT.accepts(amount)),
        apply_pruning=_FLAG_OR_FUNCTION,
        use_lottery_ticket_hypothesis=_FLAG_OR_FUNCTION,
        verbose=one_of(0, 1, 2),
    )
    def __init__(
        self,
        pruning_fn: str | type[prune.BasePruningMethod],
        parameters_to_prune: Parameters = (),
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
            pruning_fn, use_global_unstructured, pruning_dim, pruning_norm, _WHERE
        )
        self._given = check_parameters(parameters_to_prune, _WHERE)
        self._parameter_names = tuple(names if parameter_names is None else parameter_names)
        for name in self._parameter_names:
            check_choice("parameter_names", name, _WHERE, names)
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
        return sum(zeros for zeros, _ in counts) / max(1, sum(total for _, total in counts))

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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the first values; `on_load_checkpoint` has restored the masks."""
        if self._owner is None:
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
        if trainer.state.fn != "fit" or self._owner is module:
            return
        is_structured = "dim" in self._method.options
        parameters = chosen_parameters(
            module, self._given, self._parameter_names, _WHERE, is_structured=is_structured
        )
        paths = {part: path for path, part in module.named_modules()}
        self._pruned = [
            PrunedParameter(part, name, f"{paths[part]}.{name}".lstrip("."))
            for part, name in self.filter_parameters_to_prune(parameters)
        ]
        self._owner = module
        if self._uses_lottery is not False:
            self._first = {p.path: p.values().detach().clone() for p in self._pruned}
            if self._resamples:
                self._fresh_layers = {p.module: deepcopy(p.module) for p in self._pruned}

    def on_load_checkpoint(
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
        if self._is_permanent and not trainer.is_leaving:
            self.make_pruning_permanent(module)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Resolve the masks in the checkpoint if pruning is permanent; the module keeps them."""
        if self._is_permanent and module is self._owner:
            checkpoint["state_dict"] = resolve_masks(None, checkpoint["state_dict"], self._paths())

    def apply_pruning(self, amount: int | float) -> None:
        """Prune the parameters by an amount."""
        before = [pruned.counts() for pruned in self._pruned]
        with torch.no_grad():
            for pruned in self._pruned:
                pruned.recompute()  # torch ranks by the product, which is older than the last step
            self._method.apply(self._pruned, amount)
        if self._verbose:
            has_details = self._verbose == 2
            log_sparsity(
                _WHERE, self._method.name, self._pruned, before, amount, has_details=has_details
            )

    def apply_lottery_ticket_hypothesis(self) -> None:
        """Reset the pruned parameters to their first values, or to new ones if resampled."""
        resampled: set[nn.Module] = set()
        for pruned in self._pruned:
            values = self._first[pruned.path]
            layer = self._fresh_layers.get(pruned.module)
            if layer is not None and callable(reset := getattr(layer, "reset_parameters", None)):
                if layer not in resampled:  # once for weight and bias together
                    reset()
                    resampled.add(layer)
                values = getattr(layer, pruned.name)
            with torch.no_grad():
                pruned.values().copy_(values)

    def make_pruning_permanent(self, module: nn.Module) -> None:
        """Replace all masked parameters of a module by their products."""
        for part in module.modules():
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
        if _is_switched_on(self._uses_lottery, epoch):
            self.apply_lottery_ticket_hypothesis()

    def _paths(self) -> set[str]:
        return {pruned.path for pruned in self._pruned}


def _is_switched_on(switch: bool | Callable[[int], bool], epoch: int) -> bool:
    return bool(switch(epoch)) if callable(switch) else switch
