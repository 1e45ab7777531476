"""MemoryMonitor: log the use of a CUDA device's memory, under Composer's names."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._options import Combination, Rule, is_text, option_rules
from trainer_hooks.callbacks.base import ScheduledCallback, closes_window
from trainer_hooks.callbacks.monitor_base import is_allocator_readable
from trainer_hooks.clock.schedules import parse_when
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn
from trainer_hooks.errors import OptionError, did_you_mean
from trainer_hooks.hooks.spec import keeps_optimizers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.clock.schedules import When
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["MemoryMonitor"]

_WHERE = "MemoryMonitor"
_TORCH_NAMES = {
    "allocated": "allocated_bytes",
    "active": "active_bytes",
    "inactive": "inactive_split_bytes",
    "reserved": "reserved_bytes",
}
_NAMES = {
    f"{torch_name}.all.{when}": f"{when}_{name}_mem"
    for when in ("current", "peak")
    for name, torch_name in _TORCH_NAMES.items()
} | {"num_alloc_retries": "alloc_retries"}
_KEYS_CURE = "Pass one such as {'allocated_bytes.all.current': 'allocated_mem'}."
_AGGREGATES = ("avg", "min", "max")


class MemoryMonitor(ScheduledCallback, ComposerBuiltIn):  # type: ignore[misc] # run_event
    """Log the use of a CUDA device's memory, under Composer's names.

    Each `log_every_n_steps` steps, right before the optimizer steps, these go to the loggers:
    `memory/current_allocated_mem`, the memory of tensors; `memory/current_active_mem`, that and
    memory that waits to be freed; `memory/current_inactive_mem`, memory that cannot be released;
    `memory/current_reserved_mem`, all memory that the process has reserved on the device; the same
    as `memory/peak_...`, the maximum since the process began; and `memory/alloc_retries`, the
    number of times that the cache had to be emptied. Memory is in gigabytes (1e9 bytes) with five
    significant digits. Where the run is not on a CUDA device it warns once and does nothing.

    Args:
        memory_keys: statistics of `torch.cuda.memory_stats()` and their names in the log, such as
            `{"num_ooms": "ooms"}`, instead of those above. Bytes become gigabytes.
        dist_aggregate_batch_interval: how often to log the mean, minimum and maximum over all
            processes, too, as `..._avg`, `..._min` and `..._max`: a number of optimizer steps, a
            time such as `"100ba"`, a filter, or a function of the clock; None for never. In one
            process the three are equal.

    State: the counters at the last check of that schedule.

    Raises:
        OptionError: an argument is outside its rule, or in a run, there is no such statistic.

    Example::

        from trainer_hooks.compat.composer.callbacks import MemoryMonitor

        monitor = MemoryMonitor()
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    @option_rules(
        Combination(
            ("memory_keys",),
            lambda keys: keys is None or len(set(keys.values())) == len(keys),
            f"no two may have the same name. {_KEYS_CURE}",
            "memory_keys {memory_keys!r} of {owner}",
        ),
        memory_keys=Rule(
            "a dict of the names of statistics and what they are to be called",
            lambda keys: (
                isinstance(keys, dict) and bool(keys) and all(map(is_text, chain(*keys.items())))
            ),
            _KEYS_CURE,
        ).unless(None),
    )
    def __init__(
        self,
        memory_keys: Mapping[str, str] | None = None,
        dist_aggregate_batch_interval: int | When | None = None,
    ) -> None:
        self.memory_keys = dict(_NAMES if memory_keys is None else memory_keys)
        self.dist_aggregate_batch_interval = dist_aggregate_batch_interval
        when = None
        if dist_aggregate_batch_interval is not None:
            name = "dist_aggregate_batch_interval"
            when = parse_when(dist_aggregate_batch_interval, name, _WHERE, bare=TimeUnit.STEP)
        super().__init__(when)
        self._is_on = self._is_warned = self._is_logged = False

    @property
    def state_key(self) -> str:
        """`MemoryMonitor{...}` with its options."""
        when = str(self._schedule.when) if self._has_schedule else None
        keys = self.memory_keys if self.memory_keys != _NAMES else None
        return self._generate_state_key(memory_keys=keys, dist_aggregate_batch_interval=when)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Check whether the run is on a CUDA device, and reset the schedule for a new training."""
        super().on_fit_start(trainer, module)
        self._is_logged = False
        self._is_on = is_allocator_readable(
            trainer.device, _WHERE, history=False, is_quiet=self._is_warned
        )
        self._is_warned = self._is_warned or not self._is_on

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Log before the optimizer steps, if it is due."""
        # an optimizer may compute the gradients of a step several times, and a module that steps by
        # itself may step several times in a batch
        if not self._is_logged:
            self._is_logged = True
            self._log(trainer, trainer.progress.batches_stepped)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log after a window in which nothing was stepped, if it is due."""
        if closes_window(trainer):
            if not self._is_logged:
                # the counter includes this window
                self._log(trainer, trainer.progress.batches_stepped - 1)
            self._is_logged = False

    def _log(self, trainer: Trainer, step: int) -> None:
        is_due = (step + 1) % trainer.log_every_n_steps == 0
        # asked at every step, since it keeps counts that a resume continues
        is_aggregated = self._is_due(trainer)
        if not self._is_on or not (is_due or is_aggregated):
            return
        values = self._named_statistics(torch.cuda.memory_stats(trainer.device))
        metrics = {f"memory/{name}": value for name, value in values.items()} if is_due else {}
        if is_aggregated:
            # in one process its values are the mean, the minimum and the maximum
            for name, value in values.items():
                metrics.update({f"memory/{name}_{kind}": value for kind in _AGGREGATES})
        trainer.log_metrics(metrics, step)

    def _named_statistics(self, stats: Mapping[str, Any]) -> dict[str, float]:
        """Return statistics by their names in the log, bytes as gigabytes with five digits.

        Raises:
            OptionError: there is no statistic of a name.
        """
        values = {}
        for name, log_name in self.memory_keys.items():
            if name not in stats:
                raise OptionError(
                    f"memory_keys {name!r} of {_WHERE}: it must be a statistic of "
                    f"torch.cuda.memory_stats().{did_you_mean(name, list(stats))} Pass a name that "
                    "it returns, such as 'allocated_bytes.all.current'."
                )
            value = stats[name]
            values[log_name] = float(f"{value / 1e9:.5g}") if "bytes" in name else value
        return values
