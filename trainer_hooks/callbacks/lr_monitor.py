"""LearningRateMonitor: log what the optimizers' learning rates are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.errors import OptimizationError, TrainerHooksWarning, UsageError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["LearningRateMonitor"]

_WHERE = "LearningRateMonitor"
_NEVER = 1 << 62


class LearningRateMonitor(Callback):
    """Log the learning rates, as they are before the step or epoch that uses them.

    A rate is named after its optimizer's class, `lr-Adam`; the second of a class is `lr-Adam-1`; a
    scheduler's `name` takes its place. Where an optimizer has several parameter groups, each has a
    suffix: `/pg1`, `/pg2`, or the group's own `"name"`. With `-momentum` and `-weight_decay` behind
    it, the name is that of the other two values. All go to the loggers and to
    `trainer.callback_metrics`.

    Args:
        logging_interval: `"step"`: each `log_every_n_steps` steps; `"epoch"`: at the start of each
            epoch; None: as each scheduler steps, and without a scheduler at both.
        log_momentum: log the momentum too, of Adam and its kin the first beta.
        log_weight_decay: log the weight decay too.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, there is no logger.
        OptimizationError: two parameter groups of an optimizer have one name.

    State: none. `lrs` holds what was logged in this fit.

    Example::

        Trainer(logger=CSVLogger("logs"), callbacks=[LearningRateMonitor("step")])
    """

    def __init__(
        self,
        logging_interval: str | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        self.logging_interval: str | None = check_choice(
            "logging_interval", logging_interval, _WHERE, (None, "step", "epoch")
        )
        self.log_momentum: bool = check_choice("log_momentum", log_momentum, _WHERE, (True, False))
        self.log_weight_decay: bool = check_choice(
            "log_weight_decay", log_weight_decay, _WHERE, (True, False)
        )
        self.lrs: dict[str, list[float]] = {}
        self._due = _NEVER

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that there is a logger."""
        if stage == "fit" and not trainer.loggers and not trainer.fast_dev_run:
            raise UsageError(
                f"{_WHERE} in a fit without a logger: it writes to loggers only. Pass one, as in "
                f"Trainer(logger=CSVLogger('logs')), or leave {_WHERE} out."
            )

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Name the rates and find out when the next are due."""
        self.lrs = {}
        sources = _sources(trainer)
        if self.log_momentum and not all(_has_momentum(source[1]) for source in sources):
            warn(
                f"log_momentum=True of {_WHERE}: an optimizer has no momentum, so none is logged "
                "for it. Leave log_momentum out if that is intended.",
                TrainerHooksWarning,
            )
        is_by_step = self.logging_interval == "step" or (
            self.logging_interval is None and any(kind != "epoch" for _, _, kind in sources)
        )
        self._due = _next_due(trainer) if is_by_step else _NEVER

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log the rates that this batch is trained with, if they are due."""
        if trainer.progress.batches_stepped < self._due:
            return
        # the place on the x axis that the metrics of the step ahead will have, too
        step = trainer.progress.batches_stepped
        self._due = step + trainer.log_every_n_steps
        self._log(trainer, "step", step)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Log the rates that this epoch begins with."""
        if self.logging_interval != "step":
            self._log(trainer, "epoch", trainer.progress.batches_stepped)

    def _log(self, trainer: Trainer, interval: str, step: int) -> None:
        """Log every rate that belongs to `interval`."""
        values: dict[str, float] = {}
        for name, optimizer, kind in _sources(trainer):
            if self.logging_interval is not None or kind in (None, interval):
                values.update(self._values(name, optimizer))
        for name, value in values.items():
            self.lrs.setdefault(name, []).append(value)
            trainer.callback_metrics[name] = torch.tensor(value)
        if values and trainer.loggers:
            trainer.log_metrics(values, step)

    def _values(self, name: str, optimizer: Optimizer) -> dict[str, float]:
        """Return the rates of one optimizer, and what else is wanted, by name."""
        values = {}
        for group, suffix in zip(optimizer.param_groups, _suffixes(optimizer), strict=True):
            values[f"{name}{suffix}"] = float(group["lr"])
            momentum = _momentum(group)
            if self.log_momentum and momentum is not None:
                values[f"{name}{suffix}-momentum"] = momentum
            if self.log_weight_decay:
                values[f"{name}{suffix}-weight_decay"] = float(group.get("weight_decay", 0.0))
        return values


def _sources(trainer: Trainer) -> list[tuple[str, Optimizer, str | None]]:
    """Return each optimizer once, with its name and its scheduler's interval, or None."""
    by_schedulers = [
        (c.scheduler.optimizer, c.name, c.interval) for c in trainer.lr_scheduler_configs
    ]
    known = {id(optimizer) for optimizer, _, _ in by_schedulers}
    others = [(o, None, None) for o in trainer.optimizers if id(o) not in known]
    sources: list[tuple[str, Optimizer, str | None]] = []
    listed: set[int] = set()
    of_class: Counter[str] = Counter()
    for optimizer, given, interval in (*by_schedulers, *others):
        if id(optimizer) in listed:
            continue
        listed.add(id(optimizer))
        name = given
        if name is None:
            kind = type(optimizer).__name__
            name = f"lr-{kind}" + (f"-{of_class[kind]}" if of_class[kind] else "")
            of_class[kind] += 1
        sources.append((name, optimizer, interval))
    return sources


def _suffixes(optimizer: Optimizer) -> list[str]:
    """Return what tells an optimizer's parameter groups apart: their own names or their numbers.

    Raises:
        OptimizationError: two have one name.
    """
    groups = optimizer.param_groups
    if len(groups) == 1:
        own = groups[0].get("name")
        return [f"/{own}" if own is not None else ""]
    names = [str(group.get("name", f"pg{number}")) for number, group in enumerate(groups, start=1)]
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise OptimizationError(
            f"parameter group name {repeated[0]!r} of {type(optimizer).__name__}: each group needs "
            f"its own for {_WHERE}. Rename one, or leave the names out."
        )
    return [f"/{name}" for name in names]


def _momentum(group: dict[str, Any]) -> float | None:
    """Return a parameter group's momentum, or its first beta, or None."""
    if "betas" in group:
        return float(group["betas"][0])
    return float(group["momentum"]) if "momentum" in group else None


def _has_momentum(optimizer: Optimizer) -> bool:
    return all(_momentum(group) is not None for group in optimizer.param_groups)


def _next_due(trainer: Trainer) -> int:
    """Return the count of steps before the next step whose values are logged.

    Steps are logged that end a stretch of `log_every_n_steps`. In the middle of a window this was
    done at its first batch.
    """
    progress, every = trainer.progress, trainer.log_every_n_steps
    step = progress.batches_stepped + (1 if progress.batches_in_window else 0)
    return step + (every - 1 - step % every)
