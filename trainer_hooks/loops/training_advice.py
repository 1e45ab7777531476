"""Advise once in a fit that trains, but surely less or otherwise than its author meant."""

from __future__ import annotations

import math
import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

from trainer_hooks._log import warn
from trainer_hooks._text import count_with_noun, first_few
from trainer_hooks.errors import TrainerHooksAdvice
from trainer_hooks.hooks.spec import overrides
from trainer_hooks.module.module import Module

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

    from trainer_hooks.context.context import RunContext

_KEPT_GRADIENTS = 3
"""Steps in a row after whose batches no gradient was cleared, from which on none ever is."""
_MOST_LOOKS = 12
"""Batches after which a training step that accumulates is no longer looked at."""
_SHOWN_PARTS = 3
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_ACT_BY_MODE = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
    *_BATCH_NORMS,
)  # fmt: skip
"""Layers whose output in train mode is another one than in eval mode."""


class TrainingAdvice:
    """Find mistakes in the first epoch of a fit; each is told once, with the line that cures it.

    They are: layers with gradients that no optimizer has, manual optimization that never clears
    gradients, a schedule over all steps that is stepped by epochs, a `training_step` that leaves
    the module in eval mode, and a function in the place of `self.log`. Only what is certain is
    told, and nothing is looked at after the first epoch.

    Args:
        context: the run context, with its optimizers.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._outside: list[tuple[str, list[Parameter], int]] = []
        self._gradients: list[tuple[weakref.ref[Tensor], int]] = []
        self._kept_gradients = self._looks = 0
        self._steps_before = 0

    def start(self) -> None:
        """Look at optimizers and schedulers before the first batch."""
        context = self._context
        self._outside = self._layers_outside()
        self._steps_before = context.training.progress.steps_completed
        self._look_at_schedules()
        if not context.module.automatic_optimization:
            context.after_first_batches.append(self._look_at_gradients)

    def begin_batches(self) -> None:
        """Look at the module's mode, after the hooks that may have set it on purpose."""
        # the steps of a Run are lines of the user's, which may set any mode
        if self._context.module.training and self._context.trainer.calls_steps:
            self._context.after_first_batches.append(self._look_at_mode)

    def after_epoch(self) -> None:
        """Look at the first epoch as a whole."""
        self._look_at_outside()
        self._look_at_log()

    def _look_at_schedules(self) -> None:
        context = self._context
        epochs = context.plan.max_epochs
        if epochs <= 0 or context.data.train_stream.num_batches == math.inf:
            return
        for config in context.training.optimization.schedulers:
            scheduler: Any = config.scheduler
            planned = 0
            if isinstance(scheduler, OneCycleLR):
                planned = scheduler.total_steps
            elif isinstance(scheduler, CosineAnnealingLR):
                planned = scheduler.T_max
            if config.interval != "epoch" or planned <= epochs:
                continue
            if planned == context.trainer.estimated_stepping_batches:
                name = type(scheduler).__name__
                warn(
                    f"{name} of {self._name}.configure_optimizers is planned for {planned} steps, "
                    f"as many as this fit has, and is stepped after each epoch: {epochs} times in "
                    'all. Return it as {"scheduler": scheduler, "interval": "step"}.',
                    TrainerHooksAdvice,
                )

    def _look_at_gradients(self) -> bool:
        """Look whether the batch cleared no gradient; return whether to look at the next one."""
        progress = self._context.training.progress
        grads = [p.grad for p in stepped_parameters(self._context) if p.grad is not None]
        before = self._gradients
        # weakly: the memory of a gradient that is cleared must be free
        self._gradients = [(weakref.ref(grad), grad._version) for grad in grads]  # noqa: SLF001
        has_stepped = progress.steps_completed > self._steps_before
        self._steps_before = progress.steps_completed
        # clearing sets another tensor, or zeros in place, which is a second change beside that of
        # the backward. Other changes in place, such as clipping, hide it: then nothing is told
        self._looks += 1
        is_kept = has_stepped and bool(before) and len(before) == len(self._gradients)
        for (old, version), (new, changed) in zip(before, self._gradients, strict=False):
            is_kept = is_kept and old() is not None and old() is new() and changed == version + 1
        self._kept_gradients = self._kept_gradients + 1 if is_kept else 0
        if self._kept_gradients == _KEPT_GRADIENTS:
            self._gradients = []
            warn(
                f"{self._name}.training_step makes optimizer steps and clears no gradients: each "
                "step is by the sum over all batches so far. Call "
                "self.optimizers().zero_grad() before self.manual_backward(loss).",
                TrainerHooksAdvice,
            )
            return False
        # a step after which gradients are gone, or were cleared since the batch before, is right
        is_cleared = has_stepped and not is_kept and (bool(before) or not grads)
        return not is_cleared and self._looks < _MOST_LOOKS

    def _look_at_mode(self) -> bool:
        """Look whether the step has left the module in eval mode; never look at the next batch."""
        context = self._context
        module = context.module
        members = (module, *context.trainer.callbacks)
        acting = [
            type(part).__name__ for part in module.modules() if isinstance(part, _ACT_BY_MODE)
        ]
        # a hook may have set the mode on purpose
        is_by_hook = any(overrides(member, "on_train_batch_start") for member in members)
        if not module.training and acting and not is_by_hook:
            warn(
                f"{self._name}.training_step leaves the module in eval mode, in which its "
                f"{', '.join(dict.fromkeys(acting))} acts as in a validation, for the rest of the "
                "epoch. Call self.train() after what needs self.eval(); if all is to be trained in "
                "eval mode, set it in on_train_epoch_start.",
                TrainerHooksAdvice,
            )
        return False

    def _layers_outside(self) -> list[tuple[str, list[Parameter], int]]:
        """Return the layers of which no optimizer has a parameter: name, parameters, version."""
        stepped = self._stepped_parameters()
        layers = []
        for name, part in self._context.module.named_modules():
            parameters = list(part.parameters(recurse=False))
            # a layer in eval mode is meant to be frozen. Batch norms stay trainable in a backbone
            # that is frozen for the first epochs, to be added later
            if not parameters or not part.training or isinstance(part, _BATCH_NORMS):
                continue
            if all(
                parameter.requires_grad
                and id(parameter) not in stepped
                and not (is_lazy(parameter) or parameter.is_inference())
                for parameter in parameters
            ):
                layers.append((name or "the parameters", parameters, version_of(parameters)))
        return layers

    def _look_at_outside(self) -> None:
        stepped = self._stepped_parameters()
        left = {
            name: len(parameters)
            for name, parameters, version in self._outside
            if all(parameter.grad is not None for parameter in parameters)
            and version_of(parameters) == version
            and stepped.isdisjoint(map(id, parameters))
        }
        self._outside = []
        members = (self._context.module, *self._context.trainer.callbacks)
        if not left or any(map(_adds_groups, members)):
            return
        calls_steps = self._context.trainer.calls_steps
        where = f"{self._name}.configure_optimizers" if calls_steps else "Run(optimizer=...)"
        warn(
            f"{first_few(list(left), _SHOWN_PARTS)} of {self._name}: "
            f"{count_with_noun(sum(left.values()), 'parameter')} had gradients in the first epoch, "
            f"and no optimizer of {where} steps them: they stay as they were. Pass them to the "
            "optimizer, as with self.parameters(); or freeze them with requires_grad_(False), "
            "which saves their backward.",
            TrainerHooksAdvice,
        )

    def _look_at_log(self) -> None:
        assigned = vars(self._context.module).get("log")
        # a function may still pass the values on: then some have arrived
        if isinstance(assigned, FunctionType) and not self._context.trainer.callback_metrics:
            warn(
                f"{self._name} has a function of its own in the place of self.log, and logged "
                "nothing in the first epoch: no logger, saver or stopper gets a metric. Give the "
                "attribute another name than `log`.",
                TrainerHooksAdvice,
            )

    @property
    def _name(self) -> str:
        return type(self._context.module).__qualname__

    def _stepped_parameters(self) -> set[int]:
        return set(map(id, stepped_parameters(self._context)))


def parameter_groups(context: RunContext) -> list[dict[str, Any]]:
    """Return the parameter groups of all optimizers."""
    optimizers = context.training.optimization.optimizers
    return [group for optimizer in optimizers for group in optimizer.param_groups]


def stepped_parameters(context: RunContext) -> list[Parameter]:
    """Return the parameters in these groups."""
    return [parameter for group in parameter_groups(context) for parameter in group["params"]]


def advise_on_repeated_steps(context: RunContext) -> None:
    """Warn of a `OneCycleLR` that was planned before an epoch was left that begins again.

    It raises at a step beyond its last one, at the end of the training.
    """
    repeated = context.training.progress.windows_repeated
    for config in context.training.optimization.schedulers if repeated else ():
        scheduler, total = config.scheduler, context.trainer.estimated_stepping_batches
        has_each_step = config.interval == "step" and config.frequency == 1
        if not (has_each_step and isinstance(scheduler, OneCycleLR)):
            continue
        if scheduler.total_steps + repeated == total:
            warn(
                f"OneCycleLR of {type(context.module).__qualname__}.configure_optimizers is "
                f"planned for {scheduler.total_steps} steps, and raises after them: this training "
                f"makes {total}, as it was left inside an epoch that begins again. To go on inside "
                "the epoch, call save_checkpoint(path) first, and pass ckpt_path=path.",
                TrainerHooksAdvice,
            )


def version_of(parameters: list[Parameter]) -> int:
    """Return a number that grows with each change of a parameter in place."""
    # an inference tensor has no count, nor a lazy one before its first batch
    return sum(
        parameter._version  # noqa: SLF001 - torch's name
        for parameter in parameters
        if not is_lazy(parameter) and not parameter.is_inference()
    )


def _adds_groups(member: object) -> bool:
    """Return whether a method of an object names `add_param_group`: it may add parameters later."""
    owners = [vars(kind) for kind in type(member).__mro__ if kind not in (Module, nn.Module)]
    methods = [value for owner in (*owners, vars(member)) for value in owner.values()]
    return any(
        "add_param_group" in name
        for method in methods
        if isinstance(method, FunctionType)
        for name in method.__code__.co_names
    )
