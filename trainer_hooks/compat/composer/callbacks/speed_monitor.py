"""SpeedMonitor: log how fast the training is, under Composer's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_choice, check_count
from trainer_hooks.callbacks.watching.due import closes_window, is_logged
from trainer_hooks.callbacks.watching.peak_flops import DTYPES, available_flops, flops_of
from trainer_hooks.callbacks.watching.runtime_estimator import SECONDS
from trainer_hooks.callbacks.watching.throughput import Throughput

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SpeedMonitor"]

_WHERE = "SpeedMonitor"


class SpeedMonitor(Callback):
    """Log how fast the training is, under Composer's names.

    Of the last `window_size` optimizer steps, once there are so many, the loggers are given
    `throughput/batches_per_sec` and `throughput/samples_per_sec`, each with
    `throughput/device/...` for one device of several. Where the module counts tokens,
    `throughput/tokens_per_sec` comes with them; where it has `flops_per_batch`, a number or a
    function of the batch, `throughput/flops_per_sec`, and on a device whose peak is known,
    `throughput/device/mfu`, the share of it that was reached. Batches are optimizer steps here, as
    in Composer; samples and tokens are counted by the module's `num_samples` and `num_tokens`.

    From the first step on there are `time/train`, `time/val` and `time/total`: wall times of
    `trainer.clock`, which go on after a resume. The time of validations does not slow the rates.
    All of it is logged each `log_every_n_steps` steps, and the host never waits for the device.

    Args:
        window_size: how many steps the rates are of.
        gpu_flops_available: the device's peak in operations a second; from a table unless given.
        time_unit: what the times are counted in: `"hours"`, `"minutes"`, `"seconds"` or `"days"`.

    State: none; the window of the rates begins anew after a resume.

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
        self.window_size = check_count("window_size", window_size, _WHERE, least=1)
        self.gpu_flops_available = gpu_flops_available
        self.time_unit: str = check_choice("time_unit", time_unit, _WHERE, tuple(SECONDS))
        # so many steps lie between the first and the last of one more
        self._throughput = Throughput(gpu_flops_available, 1, window_size + 1)
        self._updates = 0
        self._flops: float | None = None

    @property
    def state_key(self) -> str:
        """The class with what tells apart what two of them log."""
        return self._generate_state_key(window_size=self.window_size, time_unit=self.time_unit)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Begin the window."""
        self._throughput.reset()
        self._updates, self._flops = 0, None
        if self.gpu_flops_available is None:
            dtype = DTYPES.get(trainer.precision, torch.float32)
            self._throughput.available_flops = available_flops(trainer.device, dtype)

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and log if it is due."""
        flops = flops_of(module, batch, _WHERE)
        if flops is not None:
            self._flops = flops + (self._flops or 0)
        if not closes_window(trainer):
            return
        clock = trainer.clock
        self._throughput.update(
            time=clock.train_seconds,
            batches=trainer.progress.batches_stepped,
            samples=clock.samples,
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
        found = {}
        for name, rate in self._throughput.compute().items():
            if name.startswith("device/"):
                short = name.removeprefix("device/").replace("items_per_sec", "tokens_per_sec")
                found[f"throughput/device/{short}"] = rate
                if short != "mfu":
                    found[f"throughput/{short}"] = rate * world_size
        return found
