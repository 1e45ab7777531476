"""LearningRateMonitor: log what the optimizers' learning rates are."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import warn
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.clock import Cue, Filter, word_or_when
from trainer_hooks.errors import (
    OptimizationError,
    TrainerHooksWarning,
    UsageError,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from trainer_hooks.clock import When
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
            epoch; None: as each scheduler steps, and without a scheduler at both. Or when `"50ba"`,
            a `Time`, a filter such as `every("1ep")`, or a function of `trainer.clock` says: then
            after that batch, or after that epoch and its schedulers.
        log_momentum: log the momentum too, of Adam and its kin the first beta.
        log_weight_decay: log the weight decay too.

    Raises:
        OptionError: an argument is outside its rule.
        UsageError: in a fit, there is no logger.
        OptimizationError: two parameter groups of an optimizer have one name.

    Attributes:
        lrs: the rates that were logged in this fit, by name, the oldest first.
        lr_sch_names: the names of the optimizers' rates, without the suffixes of groups.
        last_momentum_values: the momentum that was logged last, by name.
        last_weight_decay_values: the weight decay that was logged last, by name.

    State: the counts when it last looked, where `logging_interval` is a time, filter or function.

    Example::

        monitor = LearningRateMonitor("step")
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset(
        {"lrs", "last_momentum_values", "last_weight_decay_values"}
    )

    def __init__(
        self,
        logging_interval: When | None = None,
        log_momentum: bool = False,
        log_weight_decay: bool = False,
    ) -> None:
        self.logging_interval: str | Filter | None = None
        if logging_interval is not None:
            self.logging_interval = word_or_when(
                logging_interval, "logging_interval", _WHERE, ("step", "epoch")
            )
        when = self.logging_interval
        self._cue = Cue(when) if isinstance(when, Filter) else None
        self.log_momentum: bool = check_choice("log_momentum", log_momentum, _WHERE, (True, False))
        self.log_weight_decay: bool = check_choice(
            "log_weight_decay", log_weight_decay, _WHERE, (True, False)
        )
        self._forget()
        self._due = _NEVER

    def state_dict(self) -> dict[str, Any]:
        """Return the counts when it last looked."""
        return {} if self._cue is None else {"asked": self._cue.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back."""
        if self._cue is not None and "asked" in state_dict:
            self._cue.load_state_dict(state_dict["asked"])

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew with a new training."""
        if self._cue is not None and trainer.progress.is_fresh:
            self._cue.forget()

    def _forget(self) -> None:
        self.lrs: dict[str, list[float]] = {}
        self.lr_sch_names: list[str] = []
        self.last_momentum_values: dict[str, float] = {}
        self.last_weight_decay_values: dict[str, float] = {}

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that there is a logger."""
        if stage == "fit" and not trainer.loggers and not trainer.fast_dev_run:
            raise UsageError(
                f"{_WHERE} in a fit without a logger: it writes to loggers only. Pass one, as in "
                f"Trainer(logger=CSVLogger('logs')), or leave {_WHERE} out."
            )

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Name the rates and find out when the next are due."""
        self._forget()
        sources = _sources(trainer)
        self.lr_sch_names = [name for name, _, _ in sources]
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
        if self._cue is not None:
            self._cue.start(trainer.clock)

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
        if self.logging_interval in (None, "epoch"):
            self._log(trainer, "epoch", trainer.progress.batches_stepped)

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Log the rates after a batch, if they are due now."""
        self._log_on_cue(trainer)

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Log the rates after an epoch and its schedulers, if they are due now."""
        self._log_on_cue(trainer)

    def _log_on_cue(self, trainer: Trainer) -> None:
        if self._cue is not None and self._cue.is_due(trainer.clock):
            self._log(trainer, "step", trainer.progress.batches_stepped)

    def _log(self, trainer: Trainer, interval: str, step: int) -> None:
        """Log every rate that belongs to `interval`."""
        rates: dict[str, float] = {}
        others: dict[str, float] = {}
        for name, optimizer, kind in _sources(trainer):
            if self.logging_interval is not None or kind in (None, interval):
                rates.update(_rates(name, optimizer))
                others.update(self._others(name, optimizer))
        for name in [name for name in self.lrs if f"{name}/pg1" in rates]:
            self.lrs[f"{name}/pg1"] = self.lrs.pop(name)  # it has more groups than one by now
        for name, rate in rates.items():
            self.lrs.setdefault(name, []).append(rate)
        values = {**rates, **others}
        for name, value in values.items():
            trainer.callback_metrics[name] = torch.tensor(value)
        if values and trainer.loggers:
            trainer.log_metrics(values, step)

    def _others(self, name: str, optimizer: Optimizer) -> dict[str, float]:
        """Return what is wanted of one optimizer beside its rates, by name; and keep it."""
        momenta: dict[str, float] = {}
        decays: dict[str, float] = {}
        for group, suffix in zip(optimizer.param_groups, _suffixes(optimizer), strict=True):
            momentum = _momentum(group)
            if self.log_momentum and momentum is not None:
                momenta[f"{name}{suffix}-momentum"] = momentum
            if self.log_weight_decay:
                decays[f"{name}{suffix}-weight_decay"] = float(group.get("weight_decay", 0.0))
        self.last_momentum_values.update(momenta)
        self.last_weight_decay_values.update(decays)
        return {**momenta, **decays}


def _rates(name: str, optimizer: Optimizer) -> dict[str, float]:
    """Return the rates of one optimizer's groups, by name."""
    groups = zip(optimizer.param_groups, _suffixes(optimizer), strict=True)
    return {f"{name}{suffix}": float(group["lr"]) for group, suffix in groups}


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
