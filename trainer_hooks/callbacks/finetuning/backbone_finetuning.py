"""BackboneFinetuning: train a module's backbone from some epoch on, at a rising learning rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from trainer_hooks._log import log
from trainer_hooks.callbacks.finetuning.base_finetuning import BaseFinetuning, check_denominator
from trainer_hooks.callbacks.monitoring import check_choice, check_count, check_number
from trainer_hooks.errors import CallbackError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.optim import Optimizer

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["BackboneFinetuning", "multiplicative"]

_WHERE = "BackboneFinetuning"


def multiplicative(epoch: int) -> float:  # noqa: ARG001 - the same for each epoch
    """Return 2: the learning rate doubles each epoch."""
    return 2.0


class BackboneFinetuning(BaseFinetuning):
    """Train a module's `backbone` from some epoch on, at a learning rate that rises to the others'.

    The module keeps the part in an attribute `backbone`, and makes its optimizer of what requires
    gradients. Before training the backbone is frozen. At `unfreeze_backbone_at_epoch` it becomes
    the optimizer's last group. In each epoch after that its learning rate is multiplied by what
    `lambda_func(epoch + 1)` returns, and with `should_align` it stays at that of the first group
    once it has reached it.

    Args:
        unfreeze_backbone_at_epoch: the index of the first epoch that trains the backbone.
        lambda_func: `epoch -> factor`; the rate doubles unless given.
        backbone_initial_ratio_lr: the backbone's first learning rate, as a share of the first
            group's.
        backbone_initial_lr: that learning rate itself, instead.
        should_align: whether the backbone's learning rate is kept to the first group's.
        initial_denom_lr: as in `unfreeze_and_add_param_group`, which is always given a learning
            rate here.
        train_bn: whether BatchNorm layers of the backbone are trained, from the start; if not, they
            are frozen and stay so.
        verbose: whether the learning rates are logged at level INFO.
        rounding: to how many digits these are.

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
        check_count("unfreeze_backbone_at_epoch", unfreeze_backbone_at_epoch, _WHERE)
        if not callable(lambda_func):
            raise OptionError(
                f"lambda_func {lambda_func!r} of {_WHERE}: it must be a function of the epoch. "
                "Pass one that returns a factor, such as lambda epoch: 1.5."
            )
        check_number("backbone_initial_ratio_lr", backbone_initial_ratio_lr, _WHERE, least=0.0)
        if backbone_initial_lr is not None:
            check_number("backbone_initial_lr", backbone_initial_lr, _WHERE, least=0.0)
        check_denominator(initial_denom_lr, _WHERE)
        for name, value in (
            ("should_align", should_align),
            ("train_bn", train_bn),
            ("verbose", verbose),
        ):
            check_choice(name, value, _WHERE, (True, False))
        self.unfreeze_backbone_at_epoch = unfreeze_backbone_at_epoch
        self.lambda_func = lambda_func
        self.backbone_initial_ratio_lr = backbone_initial_ratio_lr
        self.backbone_initial_lr = backbone_initial_lr
        self.should_align = should_align
        self.initial_denom_lr = initial_denom_lr
        self.train_bn = train_bn
        self.verbose = verbose
        self.rounding = check_count("rounding", rounding, _WHERE)
        self.previous_backbone_lr: float | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the groups, what is frozen, and the last learning rate."""
        return {**super().state_dict(), "previous_backbone_lr": self.previous_backbone_lr}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the learning rate back."""
        super().load_state_dict(state_dict)
        self.previous_backbone_lr = state_dict["previous_backbone_lr"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Forget an earlier training when a new one begins."""
        super().setup(trainer, module, stage)
        if stage == "fit" and trainer.progress.is_fresh:
            self.previous_backbone_lr = None

    def freeze_before_training(self, pl_module: Module) -> None:
        """Freeze the backbone.

        Raises:
            CallbackError: there is none.
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
        if previous is None or epoch == self.unfreeze_backbone_at_epoch:
            rate = self.backbone_initial_lr
            rate = current * self.backbone_initial_ratio_lr if rate is None else rate
            self.unfreeze_and_add_param_group(
                backbone, optimizer, rate, self.initial_denom_lr, self.train_bn
            )
        else:
            factor = self.lambda_func(epoch + 1)
            rate = check_number("factor", factor, f"{_WHERE}'s lambda_func", least=0.0) * previous
            if self.should_align and rate > current:
                rate = current
            if group is not None:
                group["lr"] = rate
        self.previous_backbone_lr = rate
        if self.verbose:
            shown = round(current, self.rounding), round(rate, self.rounding)
            log.info("%s: learning rate %s, of the backbone %s", _WHERE, *shown)


def _group_of(optimizer: Optimizer, backbone: nn.Module) -> dict[str, Any] | None:
    """Return the last group that holds parameters of the backbone and no others."""
    own = {id(parameter) for parameter in backbone.parameters()}
    for group in reversed(optimizer.param_groups):
        if group["params"] and all(id(parameter) in own for parameter in group["params"]):
            return group  # type: ignore[no-any-return]
    return None
