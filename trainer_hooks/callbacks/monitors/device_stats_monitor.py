"""DeviceStatsMonitor: log the use of the device, and of the processor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._names import ours
from trainer_hooks._options import one_of, option_rules
from trainer_hooks.callbacks.base import (
    is_evaluation_logged,
    is_logged,
    require_logger,
    will_be_logged,
)
from trainer_hooks.callbacks.device_statistics import StatisticsReader, cpu_stats

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "DeviceStatsMonitor"


class DeviceStatsMonitor(StatisticsReader):
    """Log the use of the device before and after batches.

    In training it logs at the batches whose metrics are logged (`log_every_n_steps`), in a
    validation or test at each `log_every_n_steps`-th batch, at the step of its metrics. The names
    are Lightning's, such as `DeviceStatsMonitor.on_train_batch_start/cpu_percent`.

    On a CUDA device it logs all counters of `torch.cuda.memory_stats`, and, where the package
    nvidia-ml-py is installed, values of the driver: `nvml.utilization_percent`,
    `nvml.memory_used_bytes`, `nvml.temperature_celsius`, `nvml.power_watts`. On the CPU it logs
    `cpu_percent`, `cpu_vm_percent` and `cpu_swap_percent`.

    Args:
        cpu_stats: whether to log the processor's statistics: None only where the run is on the CPU,
            True beside those of another device too, False never.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        UsageError: there is no logger, or psutil, which reads the processor's statistics, is not
            installed.

    Example::

        monitor = DeviceStatsMonitor()
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({f"{_WHERE}.*"})

    @option_rules(cpu_stats=one_of(None, True, False))
    def __init__(self, cpu_stats: bool | None = None) -> None:
        self._cpu_stats = cpu_stats
        self._is_on = False

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that there is a logger, and open the sources of the statistics."""
        self._is_on = bool(trainer.loggers)
        if not self._is_on:
            if stage == "fit":
                require_logger(trainer, _WHERE)
            return
        on_cpu = trainer.device.type == "cpu"
        ours(self).open_sources(
            trainer, _WHERE, reads_host=on_cpu if self._cpu_stats is None else self._cpu_stats
        )

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Close the connection to the driver."""
        super().teardown(trainer, module, stage)
        self._is_on = False

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log if the metrics of this batch are logged."""
        if self._is_on and _closes_logged_window(trainer):
            self._log(trainer, "on_train_batch_start", trainer.progress.batches_stepped)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log if the metrics of this batch are logged."""
        if self._is_on and is_logged(trainer):
            # the counter has this batch's step by now
            self._log(trainer, "on_train_batch_end", trainer.progress.batches_stepped - 1)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log at each `log_every_n_steps`-th batch."""
        self._log_evaluation(trainer, "batch_start", batch_idx)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log at each `log_every_n_steps`-th batch."""
        self._log_evaluation(trainer, "batch_end", batch_idx)

    on_test_batch_start, on_test_batch_end = on_validation_batch_start, on_validation_batch_end

    def _log_evaluation(self, trainer: Trainer, moment: str, batch_idx: int) -> None:
        if self._is_on and is_evaluation_logged(trainer, batch_idx):
            stage = "test" if trainer.state.fn == "test" else "validation"
            self._log(trainer, f"on_{stage}_{moment}", None)

    def _log(self, trainer: Trainer, hook: str, step: int | None) -> None:
        """Log the current statistics under the name of a hook; None is the metrics' step."""
        stats: dict[str, float] = {}
        if trainer.device.type == "cuda":
            counters = torch.cuda.memory_stats(trainer.device)
            stats.update({name: float(value) for name, value in counters.items()})
        if self._nvml is not None:
            stats.update(self._nvml.read())
        if self._psutil is not None:
            stats.update(cpu_stats(self._psutil))
        if stats:
            prefix = f"{type(self).__qualname__}.{hook}"
            named = {f"{prefix}/{name}": value for name, value in stats.items()}
            trainer.log_metrics(named, step)


def _closes_logged_window(trainer: Trainer) -> bool:
    """Return whether the batch that starts ends an accumulation window that is logged."""
    is_last = trainer.progress.batches_in_window + 1 >= trainer.accumulate_grad_batches
    return will_be_logged(trainer) and (trainer.is_last_batch or is_last)
