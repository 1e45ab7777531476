"""DeviceStatsMonitor: log how much of the device is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice
from trainer_hooks.callbacks.watching.device_stats import (
    Nvml,
    cpu_stats,
    cuda_memory_stats,
    psutil_for,
)
from trainer_hooks.callbacks.watching.due import evaluation_step, is_logged, will_be_logged
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["DeviceStatsMonitor"]

_WHERE = "DeviceStatsMonitor"


class DeviceStatsMonitor(Callback):
    """Log how much of the device is in use, before and after batches.

    In training that is done on the batches whose metrics go to the loggers, each
    `log_every_n_steps`; in a validation or test, on each `log_every_n_steps`-th batch of it. The
    names are those of Lightning, such as `DeviceStatsMonitor.on_train_batch_start/cpu_percent`.

    On a CUDA device it is all that `torch.cuda.memory_stats` counts, and where the package
    nvidia-ml-py is installed, what the driver says: `nvml.utilization_percent`,
    `nvml.memory_used_bytes`, `nvml.temperature_celsius`, `nvml.power_watts`. On the CPU it is
    `cpu_percent`, `cpu_vm_percent` and `cpu_swap_percent`.

    Args:
        cpu_stats: None: the processor's statistics where training runs on it; True: beside those of
            another device too; False: never.

    State: none.

    Raises:
        OptionError: the argument is outside its rule.
        UsageError: there is no logger, or psutil, which reads the processor's, is not installed.

    Example::

        monitor = DeviceStatsMonitor()
        trainer = Trainer(max_epochs=2, logger=CSVLogger("logs"), callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({f"{_WHERE}.*"})

    def __init__(self, cpu_stats: bool | None = None) -> None:
        self._cpu_stats: bool | None = check_choice(
            "cpu_stats", cpu_stats, _WHERE, (None, True, False)
        )
        self._psutil: Any = None
        self._nvml: Nvml | None = None
        self._is_on = False

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that there is a logger, and find what to ask."""
        self._is_on = bool(trainer.loggers)
        if not self._is_on:
            if stage == "fit" and not trainer.fast_dev_run:
                raise UsageError(
                    f"{_WHERE} in a fit without a logger: it writes to loggers only. Pass one, as "
                    f"in Trainer(logger=CSVLogger('logs')), or leave {_WHERE} out."
                )
            return
        on_cpu = trainer.device.type == "cpu"
        if self._cpu_stats or (self._cpu_stats is None and on_cpu):
            self._psutil = psutil_for(_WHERE)
            self._psutil.cpu_percent()  # the share is that since the call before
        if trainer.device.type == "cuda":
            self._nvml = Nvml.of(trainer.device)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Let go of the driver."""
        if self._nvml is not None:
            self._nvml.close()
        self._nvml = self._psutil = None
        self._is_on = False

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Log, if the metrics of this batch are to be logged."""
        if self._is_on and _closes_logged_window(trainer):
            self._log(trainer, "on_train_batch_start", trainer.progress.batches_stepped)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Log, if the metrics of this batch are to be logged."""
        if self._is_on and is_logged(trainer):
            self._log(trainer, "on_train_batch_end", trainer.progress.batches_stepped - 1)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log now and then."""
        self._log_evaluation(trainer, "on_validation_batch_start", batch_idx)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log now and then."""
        self._log_evaluation(trainer, "on_validation_batch_end", batch_idx)

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Log now and then."""
        self._log_evaluation(trainer, "on_test_batch_start", batch_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Log now and then."""
        self._log_evaluation(trainer, "on_test_batch_end", batch_idx)

    def _log_evaluation(self, trainer: Trainer, hook: str, batch_idx: int) -> None:
        step = evaluation_step(trainer, batch_idx)
        if self._is_on and step is not None:
            self._log(trainer, hook, step)

    def _log(self, trainer: Trainer, hook: str, step: int) -> None:
        """Hand the statistics of this moment to the loggers."""
        stats: dict[str, float] = {}
        if trainer.device.type == "cuda":
            stats.update(cuda_memory_stats(trainer.device))
        if self._nvml is not None:
            stats.update(self._nvml.read())
        if self._psutil is not None:
            stats.update(cpu_stats(self._psutil))
        if stats:
            prefix = f"{type(self).__qualname__}.{hook}"
            named = {f"{prefix}/{name}": value for name, value in stats.items()}
            trainer.log_metrics(named, step)


def _closes_logged_window(trainer: Trainer) -> bool:
    """Return whether the batch that begins ends a window whose metrics are logged."""
    is_last = trainer.progress.batches_in_window + 1 >= trainer.accumulate_grad_batches
    return will_be_logged(trainer) and (trainer.is_last_batch or is_last)
