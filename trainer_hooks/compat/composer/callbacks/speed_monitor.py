"""SpeedMonitor: log the throughput and wall times, under Composer's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._options import check_option, one_of, whole_number
from trainer_hooks.callbacks import Throughput
from trainer_hooks.callbacks.monitor_base import (
    DTYPES,
    SECONDS,
    available_flops,
    batch_flops,
    closes_window,
    is_logged,
)
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

__all__ = ["SpeedMonitor"]

_WHERE = "SpeedMonitor"


class SpeedMonitor(ComposerBuiltIn):
    """Log the throughput and wall times, under Composer's names.

    Over the last `window_size` optimizer steps, once there are so many, it logs
    `throughput/batches_per_sec` and `throughput/samples_per_sec`, each with
    `throughput/device/...` for one device of several. If the module counts tokens, it also logs
    `throughput/tokens_per_sec`. If the module has `flops_per_batch`, a number or a function of the
    batch, it logs `throughput/flops_per_sec`, and on a device with a known peak
    `throughput/device/mfu`, the share of the peak. Batches are optimizer steps here, as in
    Composer; the module's `num_samples` and `num_tokens` count samples and tokens.

    From the first step on it logs `time/train`, `time/val` and `time/total`: the wall times of
    `trainer.clock`, which continue after a resume. The time of validations does not count for the
    rates. It logs each `log_every_n_steps` steps, and the host never waits for the device.

    Args:
        window_size: the number of steps that the rates are averaged over.
        gpu_flops_available: the device's peak in operations a second; from a table unless given.
        time_unit: the unit of the times: `"hours"`, `"minutes"`, `"seconds"` or `"days"`.

    State: none; the window starts anew after a resume.

    Raises:
        OptionError: an argument is outside its rule.
        CallbackError: `flops_per_batch` is no number.

    Example::

        from trainer_hooks.compat.composer.callbacks import SpeedMonitor

        monitor = SpeedMonitor(window_size=5, time_unit="seconds")
        trainer = Trainer(
            max_epochs=2, logger=CSVLogger("logs"), log_every_n_steps=2, callbacks=[monitor]
        )
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"_updates", "_throughput"})

    def __init__(
        self,
        window_size: int = 100,
        gpu_flops_available: float | None = None,
        time_unit: str = "hours",
    ) -> None:
        self.window_size = check_option("window_size", window_size, _WHERE, whole_number(1))
        self.gpu_flops_available = gpu_flops_available
        self.time_unit: str = check_option("time_unit", time_unit, _WHERE, one_of(*SECONDS))
        # window_size steps lie between the first and the last of window_size + 1 updates
        self._throughput = Throughput(gpu_flops_available, 1, window_size + 1)
        self._updates = 0
        self._flops: float | None = None  # of the open window

    @property
    def state_key(self) -> str:
        """`SpeedMonitor{'window_size': ..., 'time_unit': ...}`."""
        return self._generate_state_key(window_size=self.window_size, time_unit=self.time_unit)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the window."""
        self._throughput.reset()
        self._updates, self._flops = 0, None
        if self.gpu_flops_available is None:
            dtype = DTYPES.get(trainer.precision, torch.float32)
            self._throughput.available_flops = available_flops(trainer.device, dtype)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and log the rates and times if that is due."""
        flops = batch_flops(module, batch, _WHERE)
        if flops is not None:
            self._flops = flops + (self._flops or 0)
        if not closes_window(trainer):
            return
        clock = trainer.clock
        self._throughput.update(
            time=clock.train_seconds,
            batches=trainer.progress.batches_stepped,
            samples=clock.samples,
            # 0 where the module counts none
            lengths=clock.tokens or None,
            flops=self._flops,
        )
        self._updates, self._flops = self._updates + 1, None
        if is_logged(trainer):
            unit = SECONDS[self.time_unit]
            times = {
                "time/train": clock.train_seconds / unit,
                "time/val": clock.eval_seconds / unit,
                "time/total": clock.total_seconds / unit,
            }
            metrics = {**self._rates(trainer.world_size), **times}
            trainer.log_metrics(metrics, trainer.progress.batches_stepped - 1)

    def _rates(self, world_size: int) -> dict[str, float]:
        """Return the rates under Composer's names, once the window is full."""
        if self._updates <= self.window_size:
            return {}
        rates = {}
        for name, rate in self._throughput.compute().items():
            if name.startswith("device/"):
                # items are tokens to Throughput, which was given their number as lengths
                short = name.removeprefix("device/").replace("items_per_sec", "tokens_per_sec")
                rates[f"throughput/device/{short}"] = rate
                if short != "mfu":  # a share, which several devices do not add up
                    rates[f"throughput/{short}"] = rate * world_size
        return rates
