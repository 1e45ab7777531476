"""ModelPruning: set the least important weights of a module to zero while it trains."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.utils import prune

from trainer_hooks.callbacks.compression.pruned import (
    Pruned,
    log_sparsity,
    plain_state,
    pruned_state,
)
from trainer_hooks.callbacks.compression.pruning_options import (
    check_amount,
    check_parameters,
    check_switch,
    chosen_parameters,
    pruning_method,
)
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.weight_owner import WeightOwner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

    Parameters = Sequence[tuple[nn.Module, str]]

__all__ = ["ModelPruning"]

_WHERE = "ModelPruning"


class ModelPruning(WeightOwner):
    """Set the least important weights of a module to zero, at the end of epochs, for good.

    It is torch's `torch.nn.utils.prune`: a parameter that is pruned is kept as it was beside a mask
    of zeros and ones, and what the module computes with is their product. When the training is
    over, and in checkpoints, the product takes their place, so that a checkpoint loads into a plain
    module (`make_pruning_permanent`); the masks are part of the callback's state, so a resumed
    training goes on with them.

    By the lottery ticket hypothesis, what is left after pruning is put back to its values of before
    the training. That is on unless you switch it off, and it is what a checkpoint at the end of an
    epoch then holds: its metrics are those of before the pruning.

    Two of one class in a trainer need two keys: override `state_key` if they have one method.

    Args:
        pruning_fn: `"l1_unstructured"`, `"random_unstructured"`, `"ln_structured"`,
            `"random_structured"`, or a class derived from `BasePruningMethod`.
        parameters_to_prune: pairs of a module and the name of its parameter; all that are named in
            `parameter_names` unless given.
        parameter_names: `"weight"`, `"bias"`, or both, which they are unless given.
        use_global_unstructured: whether all parameters are ranked together, which unstructured
            methods can do, and classes must; otherwise each on its own.
        amount: the share (float) or number (int) of what is not pruned yet to prune at a time, or a
            function that returns it for an epoch's index. Of a structured method it is a number of
            slices along `pruning_dim`.
        apply_pruning: whether to prune, or a function that says so for an epoch's index.
        make_pruning_permanent: whether masks are resolved when the training ends, and in
            checkpoints.
        use_lottery_ticket_hypothesis: whether what is left is put back to its first values, or a
            function that says so for an epoch's index.
        resample_parameters: whether it is given new values by `reset_parameters` instead.
        pruning_dim: of structured methods, the dimension of what is pruned as a whole.
        pruning_norm: of `"ln_structured"`, the norm by which that is ranked.
        verbose: 0 logs nothing, 1 the sparsity at level INFO, 2 that of each parameter too.
        prune_on_train_epoch_end: whether it prunes at the end of training epochs; if not, at the
            end of the validations of fit.

    State: what is pruned, as it was and with its mask, and the first values.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a fit, a parameter to prune is none of the module's, or another callback
            averages or quantizes it.

    Example::

        pruning = ModelPruning("l1_unstructured", amount=0.25, use_lottery_ticket_hypothesis=False)
        trainer = Trainer(max_epochs=2, callbacks=[pruning])
        trainer.fit(module, train_loader, val_loader)
    """

    PARAMETER_NAMES = ("weight", "bias")

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
        for name, value in (
            ("make_pruning_permanent", make_pruning_permanent),
            ("resample_parameters", resample_parameters),
            ("prune_on_train_epoch_end", prune_on_train_epoch_end),
        ):
            check_choice(name, value, _WHERE, (True, False))
        self.amount = amount if callable(amount) else check_amount(amount, _WHERE)
        self._apply_pruning = check_switch("apply_pruning", apply_pruning, _WHERE)
        self._is_permanent = make_pruning_permanent
        name = "use_lottery_ticket_hypothesis"
        self._uses_lottery = check_switch(name, use_lottery_ticket_hypothesis, _WHERE)
        self._resamples = resample_parameters
        self._verbose = check_choice("verbose", verbose, _WHERE, (0, 1, 2))
        self._prunes_at_epoch_end = prune_on_train_epoch_end
        self._forget()

    def _forget(self) -> None:
        self._owner: Module | None = None
        self._pruned: list[Pruned] = []
        self._first: dict[str, torch.Tensor] = {}
        self._fresh_layers: dict[nn.Module, nn.Module] = {}
        self._restored: dict[str, Any] | None = None

    @property
    def state_key(self) -> str:
        """The class with its method and what it is told to prune."""
        method, names = self._method.name, list(self._parameter_names)
        return self._generate_state_key(pruning_fn=method, parameter_names=names)

    @property
    def parameters_to_prune(self) -> list[tuple[nn.Module, str]]:
        """The modules and names of the parameters that are pruned; empty before the first fit."""
        return [(pruned.module, pruned.name) for pruned in self._pruned]

    @property
    def sparsity(self) -> float:
        """The share of those parameters that is pruned now."""
        counts = [pruned.counts() for pruned in self._pruned]
        return sum(zeros for zeros, _ in counts) / max(1, sum(total for _, total in counts))

    def filter_parameters_to_prune(self, parameters_to_prune: Parameters = ()) -> Parameters:
        """Return which of the parameters to prune; override it to choose."""
        return parameters_to_prune

    def state_dict(self) -> dict[str, Any]:
        """Return what is pruned, with its mask, and the first values."""
        if self._restored is not None:
            return dict(self._restored)
        return {
            "pruned": {p.path: p.state_dict() for p in self._pruned if p.is_pruned},
            "first_values": dict(self._first),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the first values back; the masks were, before the weights."""
        if self._owner is None:
            self._restored = state_dict
        else:
            self._first = dict(state_dict["first_values"])

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that nobody else changes the module, and forget an earlier training."""
        super().setup(trainer, module, stage)
        if stage == "fit":
            self._restored = None

    def goes_with(self, other: WeightOwner) -> bool:
        """Return whether it prunes too: several can, each its own parameters."""
        return isinstance(other, ModelPruning)

    def on_before_load(self, trainer: Trainer, module: Module, path: str | None) -> None:
        """Find the parameters to prune, and keep their first values."""
        if trainer.state.fn != "fit" or self._owner is module:
            return
        is_structured = "dim" in self._method.options
        parameters = chosen_parameters(
            module, self._given, self._parameter_names, _WHERE, is_structured=is_structured
        )
        paths = {part: path for path, part in module.named_modules()}
        self._pruned = [
            Pruned(part, name, f"{paths[part]}.{name}".lstrip("."))
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
        """Let the module and the weights that are about to be restored be pruned alike."""
        if trainer.state.fn == "fit" and module is self._owner:
            state = checkpoint.get("callbacks", {}).get(self.state_key)
            masked = {} if state is None else state["pruned"]
            for pruned in self._pruned:
                pruned.follow(masked.get(pruned.path), checkpoint["state_dict"])
        weights = checkpoint["state_dict"]
        checkpoint["state_dict"] = pruned_state(module, plain_state(module, weights))

    def on_train_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Prune, if it does at the end of training epochs."""
        if self._prunes_at_epoch_end:
            self._run_pruning(trainer.current_epoch)

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Prune, if it does at the end of the validations of fit."""
        is_in_fit = trainer.state.fn == "fit" and not trainer.sanity_checking
        if is_in_fit and not self._prunes_at_epoch_end:
            self._run_pruning(trainer.current_epoch)

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Resolve the masks, if that is wanted."""
        if self._is_permanent and not trainer.is_leaving:
            self.make_pruning_permanent(module)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Resolve the masks in what is saved, if that is wanted; the module keeps them."""
        if self._is_permanent and module is self._owner:
            checkpoint["state_dict"] = plain_state(None, checkpoint["state_dict"], self._paths())

    def apply_pruning(self, amount: int | float) -> None:
        """Prune by an amount."""
        before = [pruned.counts() for pruned in self._pruned]
        with torch.no_grad():
            for pruned in self._pruned:
                pruned.recompute()  # torch ranks by the product, which is one step old
            self._method.apply(self._pruned, amount)
        if self._verbose:
            has_details = self._verbose == 2
            log_sparsity(
                _WHERE, self._method.name, self._pruned, before, amount, has_details=has_details
            )

    def apply_lottery_ticket_hypothesis(self) -> None:
        """Put what is pruned back to its first values, or to new ones if it is to be resampled."""
        fresh: dict[nn.Module, nn.Module] = {}
        for pruned in self._pruned:
            values = self._first[pruned.path]
            layer = self._fresh_layers.get(pruned.module)
            if layer is not None and callable(reset := getattr(layer, "reset_parameters", None)):
                if layer not in fresh:
                    reset()
                    fresh[layer] = layer
                values = getattr(layer, pruned.name)
            with torch.no_grad():
                pruned.values().copy_(values)

    def make_pruning_permanent(self, module: nn.Module) -> None:
        """Let products take the place of all masked parameters of a module."""
        for part in module.modules():
            for name in [n.removesuffix("_mask") for n, _ in part.named_buffers(recurse=False)]:
                if f"{name}_orig" in dict(part.named_parameters(recurse=False)):
                    prune.remove(part, name)  # type: ignore[no-untyped-call]

    def _run_pruning(self, epoch: int) -> None:
        if not _switched(self._apply_pruning, epoch):
            return
        amount = self.amount
        if callable(amount):
            amount = check_amount(amount(epoch), f"{_WHERE} in epoch {epoch}")
        if not amount:
            return
        self.apply_pruning(amount)
        if _switched(self._uses_lottery, epoch):
            self.apply_lottery_ticket_hypothesis()

    def _paths(self) -> set[str]:
        return {pruned.path for pruned in self._pruned}


def _switched(switch: bool | Callable[[int], bool], epoch: int) -> bool:
    return bool(switch(epoch)) if callable(switch) else switch
