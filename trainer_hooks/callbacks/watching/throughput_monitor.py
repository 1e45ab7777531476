"""ThroughputMonitor: log how many batches, samples and operations are done each second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.watching.due import is_logged
from trainer_hooks.callbacks.watching.peak_flops import DTYPES, available_flops, flops_of
from trainer_hooks.callbacks.watching.throughput import Stopwatch, Throughput
from trainer_hooks.errors import MetricError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["ThroughputMonitor"]

_WHERE = "ThroughputMonitor"
_STAGES = ("train", "validate", "test", "predict")


@dataclass(slots=True)
class _Stage:
    """How far one stage is."""

    watch: Stopwatch = field(default_factory=Stopwatch)
    batches: int = 0
    samples: int = 0
    lengths: int = 0


class ThroughputMonitor(Callback):
    """Log how many batches, samples and operations are done each second.

    The metrics go to the loggers each `log_every_n_steps` steps of training, and each so many
    batches of validation, test and prediction. Their names begin with the stage: `train/time`,
    `train/batches`, `train/samples`, `train/device/batches_per_sec`,
    `train/device/samples_per_sec`; with `length_fn` also `train/lengths` and
    `train/device/items_per_sec`.

    Where the module has an attribute `flops_per_batch`, a number, or a function of the batch,
    `train/device/flops_per_sec` comes with them, and on a device whose peak is known,
    `train/device/mfu`: the share of the peak that was reached. `measure_flops` finds the number.

    The time that validations take inside a fit does not count as training. Counts go on after a
    resume; the window of the rates begins anew. The host waits for the device only where metrics
    are due.

    Args:
        batch_size_fn: returns the number of samples in a batch.
        length_fn: returns the number of items in a batch, such as tokens.
        available_flops: the device's peak in operations a second; from a table unless given.
        window_size: how many batches the rates are of.
        separator: what stands between the parts of a name.

    Attributes:
        available_flops: the device's peak, from `setup` on; None where it is not known.

    State: batches, samples, items and seconds of each stage.

    Raises:
        OptionError: an argument is outside its rule.
        MetricError: in a run, a function returned no whole number.
        CallbackError: `flops_per_batch` is no number.

    Example::

        monitor = ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]))
        logger = CSVLogger("logs")
        trainer = Trainer(max_epochs=2, logger=logger, log_every_n_steps=2, callbacks=[monitor])
        trainer.fit(module, train_loader)
    """

    volatile_state: ClassVar[frozenset[str]] = frozenset({"time"})

    def __init__(
        self,
        batch_size_fn: Callable[[Any], int],
        length_fn: Callable[[Any], int] | None = None,
        *,
        available_flops: float | None = None,
        window_size: int = 100,
        separator: str = "/",
    ) -> None:
        for name, function in (("batch_size_fn", batch_size_fn), ("length_fn", length_fn)):
            if not callable(function) and not (name == "length_fn" and function is None):
                raise OptionError(
                    f"{name} {function!r} of {_WHERE}: it must be a function of the batch. Pass "
                    "one such as lambda batch: len(batch[0])."
                )
        self.batch_size_fn = batch_size_fn
        self.length_fn = length_fn
        self.available_flops = available_flops
        self._is_peak_given = available_flops is not None
        self.separator = separator
        self._stages = {stage: _Stage() for stage in _STAGES}
        self._throughputs = {
            stage: Throughput(available_flops, 1, window_size, separator) for stage in _STAGES
        }

    @property
    def state_key(self) -> str:
        """The class's name with the separator, which tells apart what two of them log."""
        return self._generate_state_key(separator=self.separator)

    def state_dict(self) -> dict[str, Any]:
        """Return the counts and the seconds of each stage."""
        return {
            **{
                name: {stage: getattr(self._stages[stage], name) for stage in _STAGES}
                for name in ("batches", "samples", "lengths")
            },
            "time": {stage: self._stages[stage].watch.elapsed for stage in _STAGES},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting from there."""
        counts = ("batches", "samples", "lengths")
        for stage in _STAGES:
            self._stages[stage] = _Stage(
                Stopwatch(state_dict["time"][stage]), *(state_dict[name][stage] for name in counts)
            )

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Look the device's peak up."""
        if not self._is_peak_given:
            dtype = DTYPES.get(trainer.precision, torch.float32)
            self.available_flops = available_flops(trainer.device, dtype)
        for throughput in self._throughputs.values():
            throughput.available_flops = self.available_flops
            throughput.world_size = trainer.world_size
            throughput.reset()

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Count from nothing when a new training begins."""
        if trainer.progress.is_fresh:
            for stage in ("train", "validate"):
                self._stages[stage] = _Stage()

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of training."""
        self._stages["train"].watch.start()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and log if it is due."""
        step = trainer.progress.batches_stepped - 1
        self._count(trainer, module, "train", batch, step, is_logged(trainer))

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of training."""
        self._stages["train"].watch.stop()

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of validation, and stop that of training meanwhile."""
        if not trainer.sanity_checking:
            self._stages["train"].watch.stop()
            self._begin("validate")

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and log if it is due."""
        if not trainer.sanity_checking:
            self._count_evaluation(trainer, module, "validate", batch)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Stop the clock of validation; that of training goes on."""
        if not trainer.sanity_checking:
            self._stages["validate"].watch.stop()
            if trainer.state.fn == "fit":
                self._stages["train"].watch.start()

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of testing."""
        self._begin("test")

    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and log if it is due."""
        self._count_evaluation(trainer, module, "test", batch)

    def on_predict_start(self, trainer: Trainer, module: Module) -> None:
        """Start the clock of prediction."""
        self._begin("predict")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and log if it is due."""
        self._count_evaluation(trainer, module, "predict", batch)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Stop every clock that still runs."""
        for each in self._stages.values():
            each.watch.stop()

    def _begin(self, stage: str) -> None:
        """Start the clock of an evaluation, whose rates are its own."""
        self._throughputs[stage].reset()
        self._stages[stage].watch.start()

    def _count_evaluation(self, trainer: Trainer, module: Module, stage: str, batch: Any) -> None:
        done = self._stages[stage].batches + 1
        is_due = done % trainer.log_every_n_steps == 0
        self._count(trainer, module, stage, batch, done, is_due)

    def _count(
        self, trainer: Trainer, module: Module, name: str, batch: Any, step: int, is_due: bool
    ) -> None:
        """Count a batch of a stage; hand the metrics to the loggers if they are due."""
        stage, throughput = self._stages[name], self._throughputs[name]
        if is_due and trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        stage.batches += 1
        stage.samples += _whole(self.batch_size_fn(batch), "batch_size_fn")
        if self.length_fn is not None:
            stage.lengths += _whole(self.length_fn(batch), "length_fn")
        throughput.update(
            time=stage.watch.elapsed,
            batches=stage.batches,
            samples=stage.samples,
            lengths=None if self.length_fn is None else stage.lengths,
            flops=flops_of(module, batch, _WHERE),
        )
        if is_due:
            metrics = throughput.compute()
            separator = self.separator
            named = {f"{name}{separator}{k}": v for k, v in metrics.items()}
            epoch = trainer.current_epoch if name == "train" else None
            trainer.log_metrics(named, step, epoch=epoch)


def _whole(value: object, function: str) -> int:
    """Return what a function counted in a batch.

    Raises:
        MetricError: it is no whole number of at least 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MetricError(
            f"{value!r} returned by {function} of {_WHERE}: it must be a whole number of at least "
            "0. Return one such as len(batch[0])."
        )
    return value
