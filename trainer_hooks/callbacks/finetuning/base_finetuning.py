"""BaseFinetuning: freeze parts of a module before training, and train them from some epoch on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.finetuning.freezing import Freezing
from trainer_hooks.callbacks.monitoring import check_number
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch.nn import Parameter
    from torch.optim import Optimizer

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

    Modules = nn.Module | Iterable[Any]

__all__ = ["BaseFinetuning", "check_denominator"]

_WHERE = "unfreeze_and_add_param_group"


class BaseFinetuning(Callback):
    """Freeze parts of a module before training, and train them from some epoch on.

    Override `freeze_before_training`, which is called once, when the module is whole and before its
    optimizers are made, and `finetune_function`, which is called at the start of each epoch with
    each optimizer. The optimizer should be made of what is not frozen: `filter(lambda p:
    p.requires_grad, self.parameters())`; what is unfrozen is added to it as a new group.

    A training that is resumed, or goes on in a second fit, is not frozen again: which parameters
    were frozen, and the groups of the optimizers with their parameters, are as they were. Two of
    one class in a trainer need two keys: override `state_key`.

    State: for each optimizer its groups, with their parameters by name; the names of the parameters
    that are frozen, and of the BatchNorm layers whose statistics are.

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

    _freezing: Freezing | None = None
    """What is frozen and grouped in the fit under way or the last one."""
    _restored: dict[str, Any] | None = None
    """What a checkpoint says of that, where no fit is made of it."""

    # --- to override ---

    def freeze_before_training(self, pl_module: Module) -> None:
        """Freeze what is not to be trained at first.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__qualname__}.freeze_before_training: define it.")

    def finetune_function(self, pl_module: Module, epoch: int, optimizer: Optimizer) -> None:
        """Unfreeze what is to be trained from this epoch on; called with each optimizer.

        Raises:
            NotImplementedError: it is not overridden.
        """
        raise NotImplementedError(f"{type(self).__qualname__}.finetune_function: define it.")

    # --- to use ---

    @staticmethod
    def flatten_modules(modules: Modules) -> list[nn.Module]:
        """Return the parts without children, and those with parameters of their own, each once.

        Args:
            modules: a module, or an iterable of modules and iterables.
        """
        found: dict[nn.Module, None] = {}
        if isinstance(modules, nn.Module):
            for part in modules.modules():
                is_leaf = next(part.children(), None) is None
                if is_leaf or next(part.parameters(recurse=False), None) is not None:
                    found[part] = None
        else:
            for item in modules:
                found.update(dict.fromkeys(BaseFinetuning.flatten_modules(item)))
        return list(found)

    @staticmethod
    def filter_params(
        modules: Modules, train_bn: bool = True, requires_grad: bool = True
    ) -> Iterator[Parameter]:
        """Yield parameters of modules.

        Args:
            modules: as for `flatten_modules`.
            train_bn: whether those of BatchNorm layers are among them.
            requires_grad: whether those that are trained are wanted, or those that are not.
        """
        for part in BaseFinetuning.flatten_modules(modules):
            if train_bn or not isinstance(part, _BatchNorm):
                for parameter in part.parameters(recurse=False):
                    if parameter.requires_grad is requires_grad:
                        yield parameter

    @staticmethod
    def make_trainable(modules: Modules) -> None:
        """Let parameters require gradients, and BatchNorm layers follow the statistics."""
        for part in BaseFinetuning.flatten_modules(modules):
            _train_own(part)

    @staticmethod
    def freeze_module(module: nn.Module) -> None:
        """Freeze a module's own parameters, not its children's; BatchNorm's statistics too."""
        if isinstance(module, _BatchNorm):
            module.track_running_stats = False
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)

    @staticmethod
    def freeze(modules: Modules, train_bn: bool = True) -> None:
        """Freeze modules with all that is in them.

        Args:
            modules: as for `flatten_modules`.
            train_bn: whether BatchNorm layers are trained all the same.
        """
        for part in BaseFinetuning.flatten_modules(modules):
            if train_bn and isinstance(part, _BatchNorm):
                _train_own(part)
            else:
                BaseFinetuning.freeze_module(part)

    @staticmethod
    def filter_on_optimizer(optimizer: Optimizer, params: Iterable[Parameter]) -> list[Parameter]:
        """Return those parameters that an optimizer does not have; warn of the others."""
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        wanted = list(params)
        new = [parameter for parameter in wanted if id(parameter) not in known]
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
        """Train modules from now on, in a group of their own.

        Args:
            modules: as for `flatten_modules`.
            optimizer: what the group is added to.
            lr: the group's learning rate.
            initial_denom_lr: without `lr`, that of the first group is divided by this.
            train_bn: whether BatchNorm layers are trained too; if not, they stay as they are.

        Raises:
            OptionError: a number is outside its rule.
        """
        if lr is not None:
            check_number("lr", lr, _WHERE, least=0.0)
        check_denominator(initial_denom_lr, _WHERE)
        parts = BaseFinetuning.flatten_modules(modules)
        if not train_bn:
            parts = [part for part in parts if not isinstance(part, _BatchNorm)]
        # BatchNorm's may have been trained all along, and are where they should be then
        known = {id(p) for group in optimizer.param_groups for p in group["params"]}
        kept = {
            p for part in parts for p in part.parameters() if p.requires_grad and id(p) in known
        }
        for part in parts:
            _train_own(part)
        found = dict.fromkeys(BaseFinetuning.filter_params(parts, train_bn=train_bn))
        params = BaseFinetuning.filter_on_optimizer(optimizer, [p for p in found if p not in kept])
        if params:
            rate = optimizer.param_groups[0]["lr"] / initial_denom_lr if lr is None else float(lr)
            optimizer.add_param_group({"params": params, "lr": rate})

    # --- hooks and state ---

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizers' groups and what is frozen, by name."""
        if self._restored is not None:
            return dict(self._restored)
        freezing = self._freezing
        return Freezing.nothing() if freezing is None else freezing.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what a checkpoint says where no fit was made of it: `on_load_checkpoint` does."""
        if self._freezing is None:
            self._restored = state_dict

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Forget an earlier training when a new one begins."""
        if stage == "fit":
            self._restored = None
            if trainer.progress.is_fresh:
                self._freezing = None

    def on_after_configure_model(self, trainer: Trainer, module: Module) -> None:
        """Freeze what a new training begins without."""
        if trainer.state.fn == "fit" and trainer.progress.is_fresh:
            self.freeze_before_training(module)

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Group and freeze the parameters as they were, before the optimizers are restored."""
        if trainer.state.fn == "fit":
            self._freezing = Freezing(module, trainer.optimizers)
            state = checkpoint.get("callbacks", {}).get(self.state_key)
            if state is not None:
                self._freezing.restore(state)

    def on_after_load(self, trainer: Trainer, module: Module, checkpoint: Any) -> None:
        """Note what the state is to be read from."""
        if trainer.state.fn == "fit":
            self._freezing = Freezing(module, trainer.optimizers)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Unfreeze what is due."""
        for optimizer in trainer.optimizers:
            self.finetune_function(module, trainer.current_epoch, optimizer)


def check_denominator(value: object, where: str) -> None:
    """Make sure that a learning rate can be divided by `value`.

    Raises:
        OptionError: it is no number over 0.
    """
    if check_number("initial_denom_lr", value, where) <= 0:
        raise OptionError(
            f"initial_denom_lr {value!r} of {where}: it must be a number over 0. Pass by how much "
            "the learning rate is divided."
        )


def _train_own(part: nn.Module) -> None:
    if isinstance(part, _BatchNorm):
        part.track_running_stats = True
    for parameter in part.parameters(recurse=False):
        parameter.requires_grad_(True)
