"""Advise once in a fit that trains no weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksAdvice
from trainer_hooks.loops.train_step import ENDLESS_LOADER_LIMIT
from trainer_hooks.loops.training_advice import (
    TrainingAdvice,
    advise_on_repeated_steps,
    parameter_groups,
    stepped_parameters,
    version_of,
)

if TYPE_CHECKING:
    from torch.nn import Parameter

    from trainer_hooks.context.context import RunContext

_UNREACHED_BATCHES = 3
"""Batches without any gradient after which a loss is said not to depend on the weights."""


class LearningCheck:
    """Find a reason why a fit trains no weight, at its first step or after its first epoch.

    The reasons: no optimizer, no step in manual optimization, frozen parameters, a loss that does
    not depend on the weights, a learning rate of 0. The first one found is told. A fit that trains
    gets the `TrainingAdvice`.

    Args:
        context: the run context, with its optimizers.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._is_settled = False
        self._advice: TrainingAdvice | None = None
        self._batches = 0
        self._steps_before = 0
        self._version_before = 0
        self._had_rate = False

    def start(self) -> None:
        """Look at the optimizers before the first batch, and ask to be called after batches."""
        context = self._context
        optimization = context.training.optimization
        if not optimization.optimizers:
            self._is_settled = True
            module = context.module
            # a module without anything to train needs no optimizer
            if optimization.is_none and any(p.requires_grad for p in module.parameters()):
                self._advise(
                    f"{_name_of(context)}.configure_optimizers returned None: fit runs without an "
                    "optimizer, and trains nothing. Return the optimizer, or [] if none is meant."
                    if context.trainer.calls_steps
                    else "Run was given no optimizer, and trains nothing: pass Run(optimizer=...), "
                    "or [] if none is meant."
                )
            return
        ids_in_module = set(map(id, context.module.parameters()))
        if not any(id(parameter) in ids_in_module for parameter in self._parameters()):
            self._is_settled = True  # `warn_of_foreign_parameters` has told that
            return
        self._steps_before = context.training.progress.steps_completed
        self._version_before = version_of(self._parameters())
        context.after_first_batches.append(self.after_batch)
        # a fit that goes on was looked at when it began
        if not context.training.progress.batches_completed:
            self._advice = TrainingAdvice(context)
            self._advice.start()
        else:
            advise_on_repeated_steps(context)

    def begin_batches(self) -> None:
        """Note the modes as the batches of the first epoch begin."""
        if self._advice is not None and not self._batches:
            self._advice.begin_batches()

    def after_batch(self) -> bool:
        """Look at the batch that was just trained; return whether to look at the next."""
        context = self._context
        self._batches += 1
        if context.module.automatic_optimization:
            # FSDP puts gradients on the parameters at the end of an accumulation window only
            is_trained = context.training.progress.has_gradients and (
                self._has_stepped()
                or any(parameter.grad is not None for parameter in self._parameters())
            )
        else:
            is_trained = self._has_stepped()
            if not is_trained and version_of(self._parameters()) != self._version_before:
                self._is_settled = True  # steps that nobody counted, of the bare optimizer
            elif not is_trained and self._batches >= ENDLESS_LOADER_LIMIT:
                self._advise_on_missing_steps()
        if is_trained and self._is_unreached() and self._batches < _UNREACHED_BATCHES:
            return True  # a callback may have dropped the gradients, as those that are not finite
        if is_trained and not self._is_settled:
            self._look_at_step()
        return not (is_trained or self._is_settled)

    def after_epoch(self) -> None:
        """Look at the first epoch as a whole, after its schedulers."""
        self._look_at_epoch()
        if self._advice is not None and self._has_stepped():
            self._advice.after_epoch()
        self._advice = None

    def _look_at_epoch(self) -> None:
        if self._is_settled or not self._batches:
            return
        if not self._context.module.automatic_optimization and not self._has_stepped():
            self._advise_on_missing_steps()
        elif self._has_stepped() and self._is_unreached():  # an epoch of few batches
            self._look_at_step()
        elif self._has_no_rate() and not self._had_rate:  # a decay may end at 0
            self._advise(
                f"the learning rate of {self._names()} is still 0 after the first epoch, in which "
                "nothing was trained. Check the scheduler, or the callback, that sets it."
            )
        self._is_settled = True

    def _look_at_step(self) -> None:
        self._had_rate = not self._has_no_rate()
        parameters = self._parameters()
        if not any(parameter.requires_grad for parameter in parameters):
            self._advise(
                f"each parameter of {self._names()} is frozen: nothing is trained. Call "
                "requires_grad_(True) on the layers to train, and pass these to the optimizer."
            )
        elif self._is_unreached():
            self._advise(
                f"no parameter of {self._names()} has a gradient after the first batches: the "
                f"loss of {_name_of(self._context)} does not depend on them, and nothing is "
                "trained. Compute it from the output of the module's layers, without detach() or "
                "a new tensor in between."
            )
        elif not self._had_rate and not self._may_have_a_rate_later():
            self._advise(
                f"the learning rate of {self._names()} is 0, and no scheduler changes it: nothing "
                "is trained. Pass lr= to the optimizer."
            )

    def _is_unreached(self) -> bool:
        # also where a hook has dropped the gradients: then the weights have changed
        return all(p.grad is None for p in self._parameters()) and (
            version_of(self._parameters()) == self._version_before
        )

    def _has_stepped(self) -> bool:
        return self._context.training.progress.steps_completed > self._steps_before

    def _has_no_rate(self) -> bool:
        rates = [group.get("lr") for group in parameter_groups(self._context)]
        return bool(rates) and all(rate is not None and float(rate) == 0.0 for rate in rates)

    def _may_have_a_rate_later(self) -> bool:
        training = self._context.training
        made_with = [
            group.get("lr") for entry in training.setup["optimizers"] for group in entry["groups"]
        ]
        # each scheduler of torch sets `initial_lr`, also one that was not returned
        return (
            bool(training.optimization.schedulers)
            or any("initial_lr" in group for group in parameter_groups(self._context))
            or any(made_with)  # a hook has set it to 0, and may set it again
        )

    def _advise_on_missing_steps(self) -> None:
        if self._steps_before:  # it has stepped before the fit: a resume may begin between steps
            self._is_settled = True
            return
        self._advise(
            f"{_name_of(self._context)}.training_step has made no optimizer step in "
            f"{self._batches} batches: with manual optimization the trainer makes none, and "
            "nothing is trained. Call self.optimizers().step() after self.manual_backward(loss), "
            "or set self.automatic_optimization = True and return the loss."
        )

    def _advise(self, message: str) -> None:
        self._is_settled, self._advice = True, None
        warn(message, TrainerHooksAdvice)

    def _parameters(self) -> list[Parameter]:
        return stepped_parameters(self._context)

    def _names(self) -> str:
        optimizers = self._context.training.optimization.optimizers
        return ", ".join(dict.fromkeys(type(optimizer).__qualname__ for optimizer in optimizers))


def _name_of(context: RunContext) -> str:
    return type(context.module).__qualname__
