"""Throughput: batches, samples and floating point operations per second, and the device's peak."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils.flop_counter import FlopCounterMode

from trainer_hooks._options import (
    Rule,
    answers_keywords,
    finite_number,
    is_int,
    is_text,
    option_rules,
    whole_number,
)
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import evaluation_stage, is_logged
from trainer_hooks.clock.pausable_timer import PausableTimer
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import CallbackError, MetricError
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_RATES = "Throughput"  # for messages
_MONITOR = "ThroughputMonitor"
_STAGES = ("train", "validate", "test", "predict")
_BATCH_FUNCTION = Rule(
    "a function of the batch", callable, "Pass one such as lambda batch: len(batch[0])."
)


@dataclass(frozen=True, slots=True)
class _Update:
    """The totals at a moment since the start; `flops` are those since the last update."""

    time: float
    batches: int
    samples: int
    lengths: int | None
    flops: float | None


class Throughput:
    """Compute rates over a window of the latest updates.

    ::

        throughput = Throughput(window_size=50)
        throughput.update(time=1.5, batches=1, samples=32)
        throughput.update(time=2.0, batches=2, samples=64)
        throughput.compute()  # {..., "device/batches_per_sec": 2.0, "device/samples_per_sec": 64.0}

    Args:
        available_flops: the device's peak in floating point operations a second, for `device/mfu`.
        world_size: the number of devices, all of which do the same.
        window_size: the number of updates in the window.
        separator: the text between the parts of a metric's name.

    Raises:
        OptionError: an argument is outside its rule.
    """

    @option_rules(
        available_flops=(
            finite_number().unless(None),
            Rule(
                "over 0",
                lambda flops: flops is None or flops > 0,
                "Pass the device's operations a second, or None where they are not known.",
            ),
        ),
        world_size=whole_number(1),
        window_size=whole_number(2),
        separator=Rule("a text", is_text, "Pass one such as '/'."),
    )
    def __init__(
        self,
        available_flops: float | None = None,
        world_size: int = 1,
        window_size: int = 100,
        separator: str = "/",
    ) -> None:
        self.available_flops = available_flops
        self.world_size = world_size
        self.window_size = window_size
        self.separator = separator
        self._updates: deque[_Update] = deque(maxlen=window_size)

    def update(
        self,
        *,
        time: float,
        batches: int,
        samples: int,
        lengths: int | None = None,
        flops: float | None = None,
    ) -> None:
        """Add the totals of a moment.

        Args:
            time: seconds since the start.
            batches: batches since the start.
            samples: samples since the start, on this device.
            lengths: items since the start, such as tokens, on this device.
            flops: floating point operations of this device since the last update.

        Raises:
            MetricError: a count went backwards.
        """
        update = _Update(time, batches, samples, lengths, flops)
        if self._updates:
            last = self._updates[-1]
            for name in ("time", "batches", "samples", "lengths"):
                before, now = getattr(last, name), getattr(update, name)
                if before is not None and now is not None and now < before:
                    raise MetricError(
                        f"{name} {now!r} given to {_RATES}.update: it was {before!r} before, and "
                        "must not fall. Pass what it is since the start."
                    )
        self._updates.append(update)

    def compute(self) -> dict[str, float]:
        """Return the counts, and the rates once there are two updates to compare."""
        if not self._updates:
            return {}
        first, last = self._updates[0], self._updates[-1]
        metrics: dict[str, float] = {
            "time": last.time, "batches": last.batches, "samples": last.samples
        }  # fmt: skip
        if last.lengths is not None:
            metrics["lengths"] = last.lengths
        seconds = last.time - first.time
        if seconds <= 0:  # one update, or a timer that stood still
            return metrics
        rates = {
            "batches_per_sec": (last.batches - first.batches) / seconds,
            "samples_per_sec": (last.samples - first.samples) / seconds,
        }
        if first.lengths is not None and last.lengths is not None:
            rates["items_per_sec"] = (last.lengths - first.lengths) / seconds
        counted = [update.flops for update in self._updates if update.flops is not None]
        if len(counted) == len(self._updates):
            # the first update's operations were done before the window
            rates["flops_per_sec"] = sum(counted[1:]) / seconds
        for name, rate in rates.items():
            # other ranks are taken to be as fast as this one: nothing is sent between them
            if self.world_size > 1:
                metrics[name] = rate * self.world_size
            metrics[f"device{self.separator}{name}"] = rate
        if self.available_flops is not None and "flops_per_sec" in rates:
            metrics[f"device{self.separator}mfu"] = rates["flops_per_sec"] / self.available_flops
        return metrics

    def reset(self) -> None:
        """Remove all updates."""
        self._updates.clear()


DTYPES: dict[str, torch.dtype] = {
    "64-true": torch.float64,
    "32-true": torch.float32,
    "16-mixed": torch.float16,
    "16-true": torch.float16,
    "bf16-mixed": torch.bfloat16,
    "bf16-true": torch.bfloat16,
}
"""The type in which matrices are multiplied, by `trainer.precision`."""

# by device: float64 and float32 outside of the matrix units, then TensorFloat-32, bfloat16 and
# float16 inside; in 1e12 operations a second, without sparsity, from the makers' data sheets. 0
# where the device has no such units
_PEAKS: dict[str, tuple[float, float, float, float, float]] = {
    "b200": (37, 75, 1125, 2250, 2250),
    "gh200": (34, 67, 494.7, 989.4, 989.4),
    "h200 nvl": (30, 60, 417.5, 835.5, 835.5),
    "h200": (34, 67, 494.7, 989.4, 989.4),
    "h100 nvl": (30, 60, 417.5, 835.5, 835.5),
    "h100 pcie": (26, 51, 378, 756, 756),
    "h100": (34, 67, 494.7, 989.4, 989.4),
    "mi300x": (81.7, 163.4, 653.7, 1307.4, 1307.4),
    "a100": (9.7, 19.5, 156, 312, 312),
    "a30": (5.2, 10.3, 82, 165, 165),
    "a10g": (0, 31.5, 35, 70, 70),
    "a10": (0, 31.2, 62.5, 125, 125),
    "a40": (0, 37.4, 74.8, 149.7, 149.7),
    "l4": (0, 30.3, 60, 121, 121),
    "l40s": (0, 91.6, 183, 362, 362),
    "l40": (0, 90.5, 90.5, 181, 181),
    "v100s": (8.2, 16.4, 0, 0, 130),
    "v100 pcie": (7, 14, 0, 0, 112),
    "v100": (7.8, 15.7, 0, 0, 125),
    "t4": (0, 8.1, 0, 0, 65),
    "rtx 6000 ada": (0, 91.1, 182.1, 364.2, 364.2),
    "rtx a6000": (0, 38.7, 77.4, 154.8, 154.8),
    "rtx 5090": (0, 104.8, 104.8, 209.5, 209.5),
    "rtx 4090": (0, 82.6, 82.6, 165.2, 165.2),
    "rtx 4080 super": (0, 52.2, 52.2, 104.4, 104.4),
    "rtx 4080": (0, 48.7, 48.7, 97.5, 97.5),
    "rtx 3090 ti": (0, 40, 40, 80, 80),
    "rtx 3090": (0, 35.6, 35.6, 71, 71),
    "rtx 3080 ti": (0, 34.1, 34.1, 68.2, 68.2),
    "rtx 3080": (0, 29.8, 29.8, 59.5, 59.5),
}


def available_flops(device: torch.device, dtype: torch.dtype) -> float | None:
    """Return a device's peak in floating point operations a second, without sparsity.

    For float32 it is the peak of TensorFloat-32 where torch may use that.

    Returns:
        The number, or None for a device that is not in the table, such as the CPU.
    """
    if device.type != "cuda":
        return None
    # any other setting lets products of float32 use TF32 or less
    uses_tf32 = torch.get_float32_matmul_precision() != "highest"
    return peak_flops_of(torch.cuda.get_device_name(device), dtype, uses_tf32=uses_tf32)


def peak_flops_of(name: str, dtype: torch.dtype, *, uses_tf32: bool = False) -> float | None:
    """Return the peak of a device by its name, or None if it is unknown."""
    words = set(re.findall(r"[a-z0-9]+", name.lower()))
    models = [model for model in _PEAKS if words.issuperset(model.split())]
    if not models:
        return None
    # the longest match: "h100 pcie" is slower than "h100"
    float64, float32, tf32, bfloat16, float16 = _PEAKS[max(models, key=len)]
    peaks = {
        torch.float64: float64,
        torch.float32: (tf32 or float32) if uses_tf32 else float32,
        torch.bfloat16: bfloat16,
        torch.float16: float16,
    }
    return peaks.get(dtype, 0.0) * 1e12 or None


@answers_keywords
def measure_flops(
    model: nn.Module,
    forward_fn: Callable[[], Tensor],
    loss_fn: Callable[[Tensor], Tensor] | None = None,
) -> int:
    """Count the floating point operations of one forward, or of one forward and backward.

    torch counts the operations of matrix products, convolutions and attention. To measure a model
    that is too big for this machine, make it and its input on the device `"meta"`.

    Args:
        model: the model; its mode and gradients stay as they are, but not the buffers that its
            forward writes to.
        forward_fn: runs the forward, as `lambda: model(x)`.
        loss_fn: computes a loss of its outputs; if given, the backward is counted too.
    """
    # the backward would add to gradients of the training
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    counter = FlopCounterMode(display=False)
    try:
        with rng.isolated(), counter:
            if loss_fn is None:
                with torch.no_grad():
                    forward_fn()
            else:
                loss_fn(forward_fn()).backward()  # type: ignore[no-untyped-call]
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
    return int(counter.get_total_flops())


def batch_flops(module: nn.Module, batch: Any, where: str) -> float | None:
    """Return the operations of a batch by the module's `flops_per_batch`; None without it.

    Args:
        module: the module.
        batch: the batch, for which a function is called.
        where: the callback that reads it, for the message.

    Raises:
        CallbackError: it is not a number.
    """
    flops = getattr(module, "flops_per_batch", None)
    if callable(flops):
        flops = flops(batch)
    if flops is None:
        return None
    if isinstance(flops, bool) or not isinstance(flops, int | float):
        raise CallbackError(
            f"flops_per_batch {flops!r} of {type(module).__qualname__}, read by {where}: it must "
            "be a number, or a function of the batch that returns one. Use measure_flops to find "
            "it."
        )
    return flops


@dataclass(slots=True)
class _StageCounts:
    """The totals of one stage: seconds, batches, samples and items."""

    timer: PausableTimer = field(default_factory=PausableTimer)
    batches: int = 0
    samples: int = 0
    lengths: int = 0


class ThroughputMonitor(Callback):
    """Log the batches, samples and floating point operations per second.

    The metrics go to the loggers each `log_every_n_steps` steps of training, and as often in
    batches of validation, test and prediction. Their names begin with the stage: `train/time`,
    `train/batches`, `train/samples`, `train/device/batches_per_sec`,
    `train/device/samples_per_sec`; with `length_fn` also `train/lengths` and
    `train/device/items_per_sec`.

    Where the module has an attribute `flops_per_batch`, a number or a function of the batch, it
    logs `train/device/flops_per_sec` too, and on a device whose peak is known `train/device/mfu`,
    the share of the peak that was reached. `measure_flops` counts the operations.

    The time of validations inside a fit does not count as training. Counts go on after a resume;
    the window of the rates begins anew. The host waits for the device only where metrics are due.

    Args:
        batch_size_fn: returns the number of samples in a batch.
        length_fn: returns the number of items in a batch, such as tokens.
        available_flops: the device's peak in operations a second; from a table unless given.
        window_size: the number of batches over which rates are computed.
        separator: the text between the parts of a name.

    Attributes:
        available_flops: the device's peak, from `setup` on; None where it is unknown.

    State: batches, samples, items and seconds of each stage.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, a function did not return a whole number.
        CallbackError: `flops_per_batch` is not a number.

    Example::

        monitor = ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]))
        logger = CSVLogger("logs")
        trainer = Trainer(max_epochs=2, logger=logger, log_every_n_steps=2, callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"time"})

    @option_rules(batch_size_fn=_BATCH_FUNCTION, length_fn=_BATCH_FUNCTION.unless(None))
    def __init__(
        self,
        batch_size_fn: Callable[[Any], int],
        length_fn: Callable[[Any], int] | None = None,
        *,
        available_flops: float | None = None,
        window_size: int = 100,
        separator: str = "/",
    ) -> None:
        self.batch_size_fn = batch_size_fn
        self.length_fn = length_fn
        self.available_flops = available_flops
        self._is_peak_given = available_flops is not None
        self.separator = separator
        self._stages = {stage: _StageCounts() for stage in _STAGES}
        self._throughputs = {
            stage: Throughput(available_flops, 1, window_size, separator) for stage in _STAGES
        }

    @property
    def state_key(self) -> str:
        """`ThroughputMonitor{'separator': ...}`."""
        return self._generate_state_key(separator=self.separator)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and the seconds of each stage."""
        return {
            **{
                name: {stage: getattr(self._stages[stage], name) for stage in _STAGES}
                for name in ("batches", "samples", "lengths")
            },
            "time": {stage: self._stages[stage].timer.elapsed for stage in _STAGES},
        }

    @checks_state(
        {
            "time": dict.fromkeys(_STAGES, float),
            "batches": dict.fromkeys(_STAGES, int),
            "samples": dict.fromkeys(_STAGES, float),
            "lengths": dict.fromkeys(_STAGES, float),
        }
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the counts."""
        counts = ("batches", "samples", "lengths")
        for stage in _STAGES:
            self._stages[stage] = _StageCounts(
                PausableTimer(state_dict["time"][stage]),
                *(state_dict[name][stage] for name in counts),
            )

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Look up the device's peak, and reset the rates."""
        if not self._is_peak_given:
            dtype = DTYPES.get(trainer.precision, torch.float32)
            self.available_flops = available_flops(trainer.device, dtype)
        for throughput in self._throughputs.values():
            throughput.available_flops = self.available_flops
            throughput.world_size = trainer.world_size
            throughput.reset()

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the counts if a new training begins."""
        if trainer.progress.is_new_training:
            # tests and predictions are no part of a training: their counts go on
            for stage in ("train", "validate"):
                self._stages[stage] = _StageCounts()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the timer of training."""
        self._stages["train"].timer.start()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and log the rates if they are due."""
        step = trainer.progress.batches_stepped - 1
        self._count(trainer, module, "train", batch, step, is_logged(trainer))

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the timer of training."""
        self._stages["train"].timer.stop()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Start the evaluation's timer with an empty window; stop that of training meanwhile."""
        if not trainer.sanity_checking:
            self._stages["train"].timer.stop()
            stage = evaluation_stage(trainer)
            self._throughputs[stage].reset()
            self._stages[stage].timer.start()

    on_test_start = on_predict_start = on_validation_start

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and log the rates if they are due."""
        if not trainer.sanity_checking:
            stage = evaluation_stage(trainer)
            batches = self._stages[stage].batches + 1
            is_due = batches % trainer.log_every_n_steps == 0
            self._count(trainer, module, stage, batch, batches, is_due)

    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the timer of validation, and start that of training again."""
        if not trainer.sanity_checking:
            self._stages["validate"].timer.stop()
            if trainer.state.fn == "fit":
                self._stages["train"].timer.start()

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop all timers."""
        for stage_counts in self._stages.values():
            stage_counts.timer.stop()

    def _count(
        self, trainer: Trainer, module: Module, stage: str, batch: Any, step: int, is_due: bool
    ) -> None:
        """Count a batch of a stage, and log the metrics if they are due."""
        counts, throughput = self._stages[stage], self._throughputs[stage]
        # without it the host would measure how fast it queues kernels
        if is_due and trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        counts.batches += 1
        counts.samples += _check_count_returned(self.batch_size_fn(batch), "batch_size_fn")
        if self.length_fn is not None:
            counts.lengths += _check_count_returned(self.length_fn(batch), "length_fn")
        throughput.update(
            time=counts.timer.elapsed,
            batches=counts.batches,
            samples=counts.samples,
            lengths=None if self.length_fn is None else counts.lengths,
            flops=batch_flops(module, batch, _MONITOR),
        )
        if is_due:
            metrics = throughput.compute()
            separator = self.separator
            named = {f"{stage}{separator}{k}": v for k, v in metrics.items()}
            epoch = trainer.current_epoch if stage == "train" else None
            trainer.log_metrics(named, step, epoch=epoch)


def _check_count_returned(value: Any, function: str) -> int:
    """Return a count that the user's function returned for a batch.

    Raises:
        MetricError: it is not a whole number of at least 0.
    """
    if not is_int(value, 0):
        raise MetricError(
            f"{value!r} returned by {function} of {_MONITOR}: it must be a whole number of at "
            "least 0. Return one such as len(batch[0])."
        )
    return int(value)
