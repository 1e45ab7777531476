"""LearningRateMonitor: log the learning rates of the optimizers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import warn
from trainer_hooks._options import FLAG, option_rules
from trainer_hooks.callbacks.base import ScheduledCallback, require_logger
from trainer_hooks.clock.schedules import DueCondition, parse_word_or_when
from trainer_hooks.errors import OptimizationError, TrainerHooksWarning

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "LearningRateMonitor"
_NEVER = 1 << 62


class LearningRateMonitor(ScheduledCallback):
    """Log the learning rates before the step or epoch that uses them.

    A rate is named after its optimizer's class, `lr-Adam`; the second optimizer of a class is
    `lr-Adam-1`; a scheduler's `name` replaces this name. Where an optimizer has several parameter
    groups, each has a suffix: `/pg1`, `/pg2`, or the group's own `"name"`. The momentum and the
    weight decay have the same name with `-momentum` or `-weight_decay` at its end. All go to the
    loggers and to `trainer.callback_metrics`. A group whose rate is None is left out, as Adafactor
    has it with relative steps.

    Args:
        logging_interval: `"step"`: each `log_every_n_steps` steps; `"epoch"`: at the start of each
            epoch; None: as each scheduler steps, and without a scheduler at both. Or when `"50ba"`,
            a `Time`, a filter such as `every("1ep")`, or a function of `trainer.clock` says: then
            after that batch, or after that epoch and its schedulers.
        log_momentum: whether to log the momentum too; for Adam and its variants the first beta.
        log_weight_decay: whether to log the weight decay too.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, there is no logger.
        OptimizationError: two parameter groups of an optimizer have one name.

    Attributes:
        lrs: the rates logged in this fit, by name, the oldest first.
        lr_sch_names: the names of the optimizers' rates, without the suffixes of groups.
        last_momentum_values: the momentum logged last, by name.
        last_weight_decay_values: the weight decay logged last, by name.

    State: the counters at the last check of the schedule, where `logging_interval` is a time,
        filter or function.

    Example::

        monitor = LearningRateMonitor("step")
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"lrs", "last_momentum_values", "last_weight_decay_values"}
    )

    @option_rules(log_momentum=FLAG, log_weight_decay=FLAG)
    def __init__(
        self,
        logging_interval: When | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        self.logging_interval: str | DueCondition | None = None
        if logging_interval is not None:
            self.logging_interval = parse_word_or_when(
                logging_interval, "logging_interval", _WHERE, ("step", "epoch")
            )
        when = self.logging_interval
        super().__init__(when if isinstance(when, DueCondition) else None)
        self.log_momentum = log_momentum
        self.log_weight_decay = log_weight_decay
        self._clear_logged()
        self._due = _NEVER

    def _clear_logged(self) -> None:
        self.lrs: dict[str, list[float]] = {}
        self.lr_sch_names: list[str] = []
        self.last_momentum_values: dict[str, float] = {}
        self.last_weight_decay_values: dict[str, float] = {}

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that there is a logger."""
        if stage == "fit":
            require_logger(trainer, _WHERE)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Name the rates and compute the step at which the next are due."""
        self._clear_logged()
        optimizers = _named_optimizers(trainer)
        self.lr_sch_names = [name for name, _, _ in optimizers]
        groups = [group for _, optimizer, _ in optimizers for group in optimizer.param_groups]
        if self.log_momentum and any(_momentum(group) is None for group in groups):
            warn(
                f"log_momentum=True of {_WHERE}: an optimizer has no momentum, so none is logged "
                "for it. Leave log_momentum out if that is intended.",
                TrainerHooksWarning,
            )
        is_by_step = self.logging_interval == "step" or (
            self.logging_interval is None
            and any(interval != "epoch" for _, _, interval in optimizers)
        )
        self._due = _next_due(trainer) if is_by_step else _NEVER
        super().on_train_start(trainer, module)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log the rates with which this batch is trained, if they are due."""
        if trainer.progress.batches_stepped < self._due:
            return
        # the same step on the x axis as the metrics of the coming optimizer step
        step = trainer.progress.batches_stepped
        self._due = step + trainer.log_every_n_steps
        self._log(trainer, "step", step)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Log the rates with which this epoch begins."""
        if self.logging_interval in (None, "epoch"):
            self._log(trainer, "epoch", trainer.progress.batches_stepped)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Log the rates after a batch, or after an epoch and its schedulers, if they are due."""
        if self._is_due(trainer):
            self._log(trainer, "step", trainer.progress.batches_stepped)

    on_epoch_checkpoint = on_batch_checkpoint

    def _log(self, trainer: Trainer, interval: str, step: int) -> None:
        """Log the rates whose schedulers step in this interval, `"step"` or `"epoch"`."""
        rates: dict[str, float] = {}
        extras: dict[str, float] = {}
        for name, optimizer, scheduler_interval in _named_optimizers(trainer):
            if self.logging_interval is not None or scheduler_interval in (None, interval):
                groups = [
                    (f"{name}{suffix}", group)
                    for suffix, group in zip(
                        _suffixes(optimizer), optimizer.param_groups, strict=True
                    )
                    # Adafactor computes its own rate in each step, and has None here
                    if group["lr"] is not None
                ]
                rates.update({group_name: float(group["lr"]) for group_name, group in groups})
                extras.update(self._momentum_and_decay(groups))
        for name in [name for name in self.lrs if f"{name}/pg1" in rates]:
            # a callback that unfreezes layers has added a second group
            self.lrs[f"{name}/pg1"] = self.lrs.pop(name)
        for name, rate in rates.items():
            self.lrs.setdefault(name, []).append(rate)
        values = {**rates, **extras}
        for name, value in values.items():
            trainer.callback_metrics[name] = torch.tensor(value)
        if values and trainer.loggers:
            trainer.log_metrics(values, step)

    def _momentum_and_decay(self, groups: list[tuple[str, dict[str, Any]]]) -> dict[str, float]:
        """Return the momentum and weight decay of one optimizer's groups, and keep them."""
        momenta, decays = {}, {}
        for name, group in groups:
            momentum = _momentum(group)
            if self.log_momentum and momentum is not None:
                momenta[f"{name}-momentum"] = momentum
            if self.log_weight_decay:
                decays[f"{name}-weight_decay"] = float(group.get("weight_decay", 0.0))
        self.last_momentum_values.update(momenta)
        self.last_weight_decay_values.update(decays)
        return {**momenta, **decays}


def _named_optimizers(trainer: Trainer) -> list[tuple[str, Optimizer, str | None]]:
    """Return each optimizer once, with its name and its scheduler's interval (or None)."""
    by_schedulers = [
        (c.scheduler.optimizer, c.name, c.interval) for c in trainer.lr_scheduler_configs
    ]
    scheduled = {id(optimizer) for optimizer, _, _ in by_schedulers}
    unscheduled = [(o, None, None) for o in trainer.optimizers if id(o) not in scheduled]
    named: list[tuple[str, Optimizer, str | None]] = []
    listed: set[int] = set()
    counts: Counter[str] = Counter()
    # a scheduler may have a name, and an optimizer with several gets that of the first
    for optimizer, scheduler_name, interval in (*by_schedulers, *unscheduled):
        if id(optimizer) in listed:
            continue
        listed.add(id(optimizer))
        name = scheduler_name
        if name is None:
            class_name = type(optimizer).__name__
            count = counts[class_name]
            name = f"lr-{class_name}" + (f"-{count}" if count else "")
            counts[class_name] += 1
        named.append((name, optimizer, interval))
    return named


def _suffixes(optimizer: Optimizer) -> list[str]:
    """Return the suffixes of an optimizer's parameter groups: their own names or their numbers.

    Raises:
        OptimizationError: two groups have one name.
    """
    groups = optimizer.param_groups
    if len(groups) == 1:
        name = groups[0].get("name")
        return [f"/{name}" if name is not None else ""]
    names = [str(group.get("name", f"pg{number}")) for number, group in enumerate(groups, start=1)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise OptimizationError(
            f"parameter group name {repeated[0]!r} of {type(optimizer).__name__}: each group needs "
            f"its own for {_WHERE}. Rename one, or leave the names out."
        )
    return [f"/{name}" for name in names]


def _momentum(group: dict[str, Any]) -> float | None:
    """Return a parameter group's first beta, or else its momentum, or else None."""
    if "betas" in group:
        return float(group["betas"][0])
    return float(group["momentum"]) if "momentum" in group else None


def _next_due(trainer: Trainer) -> int:
    """Return the number of steps before the next step whose values are logged.

    Every `log_every_n_steps`-th step is logged, at the first batch of its accumulation window. So
    in the middle of a window the current step was logged before.
    """
    progress, every = trainer.progress, trainer.log_every_n_steps
    step = progress.batches_stepped + (1 if progress.batches_in_window else 0)
    return step + (every - 1 - step % every)
