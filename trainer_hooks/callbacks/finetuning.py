"""BaseFinetuning and BackboneFinetuning: freeze parts of a module and train them later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainer_hooks._log import log, warn
from trainer_hooks._options import (
    FLAG,
    Rule,
    check_option,
    finite_number,
    option_rules,
    whole_number,
)
from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, CheckpointError, TrainerHooksWarning
from trainer_hooks.hooks.band import Band

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from torch.nn import Parameter
    from torch.optim import Optimizer

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

    Modules = nn.Module | Iterable[Any]

_GROUPS = "internal_optimizer_metadata"
"""The key of the optimizers' groups in Lightning's checkpoints, which have no other key of ours."""
_STATE: tuple[dict[str, Any], dict[str, Any]] = (
    {_GROUPS: dict[int, list[dict[str, Any]]]},
    {"frozen": list[str], "without_statistics": list[str]},
)
"""The types of the items that a saved state must have, and of those that it may lack."""
_UNFREEZE = "unfreeze_and_add_param_group"
_WHERE = "BackboneFinetuning"
_DENOMINATOR = (
    finite_number(),
    Rule(
        "a number over 0", lambda value: value > 0, "Pass by how much the learning rate is divided."
    ),
)


class BaseFinetuning(Callback):
    """Base class of finetuning: freeze parts of a module, and train them from some epoch on.

    Override `freeze_before_training`, which is called once, when the module is complete and before
    its optimizers are made, and `finetune_function`, which is called at the start of each epoch
    with each optimizer. Make the optimizer of the parameters that are not frozen: `filter(lambda p:
    p.requires_grad, self.parameters())`; unfrozen parameters are added to it as a new group.

    A training that is resumed, or goes on in a second fit, is not frozen again: the frozen
    parameters and the groups of the optimizers are restored as they were. Two callbacks of one
    class in a trainer need two keys: override `state_key`.

    State: for each optimizer its groups, with their parameters by name; the names of the frozen
    parameters, and of the BatchNorm layers whose statistics are frozen.

    Raises:
        NotImplementedError: one of the two methods is not overridden.
        CheckpointError: a resumed module lacks a parameter that an optimizer had.

    Example::

        class LayerLater(BaseFinetuning):
            def freeze_before_training(self, pl_module):
                self.freeze(pl_module.net[0])

            def finetune_function(self, pl_module, epoch, optimizer):
                if epoch == 1:
                    self.unfreeze_and_add_param_group(pl_module.net[0], optimizer)

        module.configure_optimizers = lambda: torch.optim.Adam(
            [p for p in module.parameters() if p.requires_grad]
        )
        trainer = Trainer(max_epochs=2, callbacks=[LayerLater()])
        trainer.fit(module, train_loader, val_loader)
    """

    band: ClassVar[Band] = Band.TRANSFORM

    # on the class, as a subclass may define __init__ without calling one here
    _freeze_state: FreezeState | None = None
    """The frozen parameters and groups of the running or the last fit."""
    _loaded_state: dict[str, Any] | None = None
    """The state of a checkpoint that was loaded outside a fit."""

    # --- to override ---

    def freeze_before_training(self, pl_module: Module) -> None:
        """Freeze the parts that are not trained at first.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__qualname__}.freeze_before_training: define it.")

    def finetune_function(self, pl_module: Module, epoch: int, optimizer: Optimizer) -> None:
        """Unfreeze the parts to train from this epoch on; called with each optimizer.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__qualname__}.finetune_function: define it.")

    # --- to use ---

    @staticmethod
    def flatten_modules(modules: Modules) -> list[nn.Module]:
        """Return the modules without children, and those with parameters of their own, each once.

        Args:
            modules: a module, or an iterable of modules and iterables.
        """
        flattened: dict[nn.Module, None] = {}  # a dict as an ordered set
        if isinstance(modules, nn.Module):
            # a part with children may have parameters of its own, which its children do not list
            for part in modules.modules():
                is_leaf = next(part.children(), None) is None
                if is_leaf or next(part.parameters(recurse=False), None) is not None:
                    flattened[part] = None
        else:
            for item in modules:
                flattened.update(dict.fromkeys(BaseFinetuning.flatten_modules(item)))
        return list(flattened)

    @staticmethod
    def filter_params(
        modules: Modules, train_bn: bool = True, requires_grad: bool = True
    ) -> Iterator[Parameter]:
        """Yield parameters of modules.

        Args:
            modules: as for `flatten_modules`.
            train_bn: whether the parameters of BatchNorm layers are included.
            requires_grad: whether to yield the trained parameters or the frozen ones.
        """
        for part in BaseFinetuning.flatten_modules(modules):
            if train_bn or not isinstance(part, _BatchNorm):
                for parameter in part.parameters(recurse=False):
                    if parameter.requires_grad is requires_grad:
                        yield parameter

    @staticmethod
    def make_trainable(modules: Modules) -> None:
        """Make parameters require gradients, and let BatchNorm layers update their statistics."""
        for part in BaseFinetuning.flatten_modules(modules):
            _make_trainable(part)

    @staticmethod
    def freeze_module(module: nn.Module) -> None:
        """Freeze a module's own parameters, not its children's; BatchNorm's statistics too."""
        if isinstance(module, _BatchNorm):
            # in train mode BatchNorm then normalizes by the batch and leaves its running statistics
            # alone; in eval mode it normalizes by these still
            module.track_running_stats = False
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)

    @staticmethod
    def freeze(modules: Modules, train_bn: bool = True) -> None:
        """Freeze modules with all their submodules.

        Args:
            modules: as for `flatten_modules`.
            train_bn: whether BatchNorm layers are trained all the same.
        """
        for part in BaseFinetuning.flatten_modules(modules):
            if train_bn and isinstance(part, _BatchNorm):
                _make_trainable(part)
            else:
                BaseFinetuning.freeze_module(part)

    @staticmethod
    def filter_on_optimizer(optimizer: Optimizer, params: Iterable[Parameter]) -> list[Parameter]:
        """Return the parameters that an optimizer does not have yet; warn of the rest."""
        parameter_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        wanted = list(params)
        # by identity: `in` would compare the tensors' values, and two biases of zeros are equal
        new = [parameter for parameter in wanted if id(parameter) not in parameter_ids]
        if len(new) < len(wanted):
            warn(
                f"{len(wanted) - len(new)} of {len(wanted)} parameters to train from now on are in "
                f"a group of {type(optimizer).__name__} already, and stay there. Make the "
                "optimizer of filter(lambda p: p.requires_grad, self.parameters()).",
                TrainerHooksWarning,
            )
        return new

    @staticmethod
    def unfreeze_and_add_param_group(
        modules: Modules,
        optimizer: Optimizer,
        lr: float | None = None,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
    ) -> None:
        """Unfreeze modules and add their parameters to an optimizer as a new group.

        Args:
            modules: as for `flatten_modules`.
            optimizer: the optimizer that gets the group.
            lr: the group's learning rate.
            initial_denom_lr: without `lr`, the first group's learning rate is divided by this
                number.
            train_bn: whether the parameters of BatchNorm layers are added, too; if not, only their
                statistics are updated from now on.

        Raises:
            OptionError: a number is outside its rule.
        """
        check_option("lr", lr, _UNFREEZE, finite_number(0.0).unless(None))
        check_option("initial_denom_lr", initial_denom_lr, _UNFREEZE, _DENOMINATOR)
        parts = BaseFinetuning.flatten_modules(modules)
        # BatchNorm's parameters may have been trained from the start: they keep their group then
        parameter_ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
        already_trained = {
            p
            for part in parts
            for p in part.parameters()
            if p.requires_grad and id(p) in parameter_ids
        }
        for part in parts:
            _make_trainable(part)
        unfrozen = dict.fromkeys(BaseFinetuning.filter_params(parts, train_bn=train_bn))
        params = BaseFinetuning.filter_on_optimizer(
            optimizer, [p for p in unfrozen if p not in already_trained]
        )
        if params:
            rate = optimizer.param_groups[0]["lr"] / initial_denom_lr if lr is None else float(lr)
            optimizer.add_param_group({"params": params, "lr": rate})

    # --- hooks and state ---

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizers' groups and the names of frozen parameters."""
        if self._loaded_state is not None:
            return dict(self._loaded_state)
        freeze_state = self._freeze_state
        return FreezeState.empty_state() if freeze_state is None else freeze_state.state_dict()

    @checks_state(*_STATE)
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the state of a checkpoint that is not resumed in a fit.

        In a fit, `on_load_checkpoint` has used the state already.
        """
        if self._freeze_state is None:
            self._loaded_state = state_dict

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Reset the state when a new training begins."""
        if stage == "fit":
            self._loaded_state = None
            if trainer.progress.is_new_training:
                self._freeze_state = None

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Freeze the module's parts at the start of a new training."""
        # layers that `configure_model` made are there, and no optimizer has their parameters yet
        if trainer.state.fn == "fit" and trainer.progress.is_new_training:
            self.freeze_before_training(module)

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Regroup and freeze the parameters, before the optimizers' states are restored."""
        if trainer.state.fn == "fit":
            self._freeze_state = FreezeState(module, trainer.optimizers)
            state = checkpoint.get("callbacks", {}).get(self.state_key)
            if state is not None:
                self._freeze_state.restore(state)

    def on_after_load(self, trainer: Trainer, module: Module, checkpoint: Any) -> None:
        """Refer to the module and the optimizers, from which the state is read."""
        if trainer.state.fn == "fit":
            self._freeze_state = FreezeState(module, trainer.optimizers)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Unfreeze the parts that are due."""
        for optimizer in trainer.optimizers:
            self.finetune_function(module, trainer.current_epoch, optimizer)


def multiplicative(epoch: int) -> float:  # noqa: ARG001 - the same for each epoch
    """Return 2.0 for each epoch: the learning rate doubles every epoch."""
    return 2.0


class BackboneFinetuning(BaseFinetuning):
    """Train a module's `backbone` from some epoch on, at a learning rate that rises to the head's.

    The module has an attribute `backbone`, and makes its optimizer of the parameters that require
    gradients. Before training the backbone is frozen. At `unfreeze_backbone_at_epoch` it becomes
    the optimizer's last group. In each epoch after that its learning rate is multiplied by
    `lambda_func(epoch + 1)`; with `should_align` it stays at the first group's learning rate once
    it has reached that.

    Args:
        unfreeze_backbone_at_epoch: the index of the first epoch that trains the backbone.
        lambda_func: `epoch -> factor`; the rate doubles unless given.
        backbone_initial_ratio_lr: the backbone's first learning rate, as a share of the first
            group's.
        backbone_initial_lr: that learning rate itself, instead.
        should_align: whether the backbone's learning rate is capped at the first group's.
        initial_denom_lr: as in `unfreeze_and_add_param_group`; without effect here, where a
            learning rate is always passed.
        train_bn: whether BatchNorm layers of the backbone are trained, from the start; if not,
            their parameters never are, and their statistics are frozen until the backbone is
            trained.
        verbose: whether the learning rates are logged at level INFO.
        rounding: the number of decimals of the logged learning rates.

    Attributes:
        previous_backbone_lr: the backbone's learning rate in the last epoch, or None before.

    State: as `BaseFinetuning`, and the backbone's last learning rate.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: in a fit, the module has no `backbone`.

    Example::

        module.backbone = module.net[0]
        module.configure_optimizers = lambda: torch.optim.Adam(
            [p for p in module.parameters() if p.requires_grad]
        )
        finetuning = BackboneFinetuning(unfreeze_backbone_at_epoch=1)
        trainer = Trainer(max_epochs=2, callbacks=[finetuning])
        trainer.fit(module, train_loader, val_loader)
    """

    @option_rules(
        unfreeze_backbone_at_epoch=whole_number(),
        backbone_initial_ratio_lr=finite_number(0.0),
        rounding=whole_number(),
        lambda_func=Rule(
            "a function of the epoch",
            callable,
            "Pass one that returns a factor, such as lambda epoch: 1.5.",
        ),
        backbone_initial_lr=finite_number(0.0).unless(None),
        initial_denom_lr=_DENOMINATOR,
        should_align=FLAG,
        train_bn=FLAG,
        verbose=FLAG,
    )
    def __init__(
        self,
        unfreeze_backbone_at_epoch: int = 10,
        lambda_func: Callable[[int], float] = multiplicative,
        backbone_initial_ratio_lr: float = 10e-2,
        backbone_initial_lr: float | None = None,
        should_align: bool = True,
        initial_denom_lr: float = 10.0,
        train_bn: bool = True,
        verbose: bool = False,
        rounding: int = 12,
    ) -> None:
        self.unfreeze_backbone_at_epoch = unfreeze_backbone_at_epoch
        self.lambda_func = lambda_func
        self.backbone_initial_ratio_lr = backbone_initial_ratio_lr
        self.backbone_initial_lr = backbone_initial_lr
        self.should_align = should_align
        self.initial_denom_lr = initial_denom_lr
        self.train_bn = train_bn
        self.verbose = verbose
        self.rounding = rounding
        self.previous_backbone_lr: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the groups, the frozen parameters, and the backbone's last learning rate."""
        return {**super().state_dict(), "previous_backbone_lr": self.previous_backbone_lr}

    @checks_state({**_STATE[0], "previous_backbone_lr": float | None}, _STATE[1])
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the backbone's last learning rate."""
        super().load_state_dict(state_dict)
        self.previous_backbone_lr = state_dict["previous_backbone_lr"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Reset the state when a new training begins."""
        super().setup(trainer, module, stage)
        if stage == "fit" and trainer.progress.is_new_training:
            self.previous_backbone_lr = None

    def freeze_before_training(self, pl_module: Module) -> None:
        """Freeze the backbone.

        Raises:
            CallbackError: the module has none.
        """
        backbone = getattr(pl_module, "backbone", None)
        if not isinstance(backbone, nn.Module):
            raise CallbackError(
                f"backbone {backbone!r} of {type(pl_module).__qualname__}: {_WHERE} needs a module "
                "there. Keep the part to train later as self.backbone."
            )
        self.freeze(backbone, train_bn=self.train_bn)

    def finetune_function(self, pl_module: Module, epoch: int, optimizer: Optimizer) -> None:
        """Unfreeze the backbone when it is due, and raise its learning rate afterwards."""
        if epoch < self.unfreeze_backbone_at_epoch:
            return
        backbone: nn.Module = pl_module.backbone  # type: ignore[assignment]
        current, previous = optimizer.param_groups[0]["lr"], self.previous_backbone_lr
        group = _group_of(optimizer, backbone)
        # None: this fit began after that epoch, and the backbone is still frozen
        if previous is None or epoch == self.unfreeze_backbone_at_epoch:
            rate = self.backbone_initial_lr
            rate = current * self.backbone_initial_ratio_lr if rate is None else rate
            self.unfreeze_and_add_param_group(
                backbone, optimizer, rate, self.initial_denom_lr, self.train_bn
            )
        else:
            # with the number of the next epoch, as Lightning calls it
            factor = self.lambda_func(epoch + 1)
            where = f"{_WHERE}'s lambda_func"
            rate = check_option("factor", factor, where, finite_number(0.0)) * previous
            if self.should_align and rate > current:
                rate = current
            # an optimizer that trains nothing of the backbone has no such group
            if group is not None:
                group["lr"] = rate
        self.previous_backbone_lr = rate
        if self.verbose:
            shown = round(current, self.rounding), round(rate, self.rounding)
            log.info("%s: learning rate %s, of the backbone %s", _WHERE, *shown)


def _group_of(optimizer: Optimizer, backbone: nn.Module) -> dict[str, Any] | None:
    """Return the last group that holds parameters of the backbone alone, or None."""
    backbone_ids = {id(parameter) for parameter in backbone.parameters()}
    for group in reversed(optimizer.param_groups):
        if group["params"] and all(id(parameter) in backbone_ids for parameter in group["params"]):
            return group  # type: ignore[no-any-return]
    return None


def _make_trainable(part: nn.Module) -> None:
    if isinstance(part, _BatchNorm):
        part.track_running_stats = True
    for parameter in part.parameters(recurse=False):
        parameter.requires_grad_(True)


class FreezeState:
    """The frozen parameters of a module and the parameter groups of its optimizers, by name.

    Args:
        module: the module.
        optimizers: its optimizers.
    """

    def __init__(self, module: nn.Module, optimizers: Sequence[Optimizer]) -> None:
        self._module = module
        self._optimizers = optimizers

    @staticmethod
    def empty_state() -> dict[str, Any]:
        """Return the state before any training."""
        return {_GROUPS: {}, "frozen": [], "without_statistics": []}

    def state_dict(self) -> dict[str, Any]:
        """Return the groups with their parameters' names, and the names of frozen parameters."""
        # as keys, parameters are told apart by identity
        names = {parameter: name for name, parameter in self._module.named_parameters()}
        groups = {
            number: [
                # a parameter of an optimizer may be none of the module's
                {**group, "params": [names.get(p, "") for p in group["params"]]}
                for group in optimizer.param_groups
            ]
            for number, optimizer in enumerate(self._optimizers)
        }
        return {
            _GROUPS: groups,
            "frozen": [name for p, name in names.items() if not p.requires_grad],
            "without_statistics": [
                name
                for name, part in self._module.named_modules()
                if isinstance(part, _BatchNorm) and not part.track_running_stats
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Regroup and freeze the parameters as the saved state says.

        Raises:
            CheckpointError: the module lacks a parameter.
        """
        groups: Mapping[int, list[dict[str, Any]]] = state[_GROUPS]
        parameters = dict(self._module.named_parameters())
        for number, optimizer in enumerate(self._optimizers):
            before = groups.get(number, [])
            if before:
                # a second fit may go back to a checkpoint from before some parts were unfrozen
                del optimizer.param_groups[len(before) :]
            for saved in before[len(optimizer.param_groups) :]:
                group = [_parameter_named(parameters, name) for name in saved["params"]]
                for parameter in group:
                    # Lightning's checkpoints do not list the frozen parameters
                    parameter.requires_grad_(True)
                optimizer.add_param_group({**saved, "params": group})
        if "frozen" in state:
            frozen, without = set(state["frozen"]), set(state["without_statistics"])
            for name, parameter in parameters.items():
                if parameter.requires_grad is (name in frozen):
                    parameter.requires_grad_(name not in frozen)
            for name, part in self._module.named_modules():
                # a layer that was made without statistics has none to keep
                if isinstance(part, _BatchNorm) and part.running_mean is not None:
                    part.track_running_stats = name not in without


def _parameter_named(parameters: Mapping[str, nn.Parameter], name: str) -> nn.Parameter:
    if name not in parameters:
        raise CheckpointError(
            f"parameter {name!r} of the checkpoint's optimizer: the module has none of that name, "
            "so the groups that finetuning added cannot be made again. Build the module as it was "
            "when the checkpoint was saved."
        )
    return parameters[name]
