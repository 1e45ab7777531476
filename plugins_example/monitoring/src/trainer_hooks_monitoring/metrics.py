"""Metrics: what is told of a run, under the names that Prometheus users expect."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info

from trainer_hooks import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Metrics"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STATES = ("idle", "fit", "validate", "test", "predict", "finished", "failed")
_STAGES = frozenset(("fit", "validate", "test", "predict"))


class _LastCheckpoint:
    """When the last checkpoint was written, or NaN."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.saved_at = math.nan
        timestamp = Gauge(
            "trainer_hooks_last_checkpoint_timestamp_seconds",
            "When the last checkpoint was durable, in seconds since 1970; NaN before the first.",
            registry=registry,
        )
        timestamp.set_function(lambda: self.saved_at)
        age = Gauge(
            "trainer_hooks_last_checkpoint_age_seconds",
            "Seconds since the last checkpoint was durable; NaN before the first.",
            registry=registry,
        )
        age.set_function(lambda: time.time() - self.saved_at)

    def note(self) -> None:
        """Take the present time."""
        self.saved_at = time.time()


class Metrics:
    """The metrics of one trainer, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def gauge(name: str, told: str, *labels: str) -> Gauge:
            return Gauge(f"trainer_hooks_{name}", told, labels, registry=registry)

        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"trainer_hooks_{name}", told, labels, registry=registry)

        self.steps = counter("steps_total", "Optimizer steps of this process.")
        self.batches = counter("batches_total", "Training batches of this process.")
        self.samples = counter("samples_total", "Training samples of this process.")
        self.exceptions = counter("exceptions_total", "Exceptions that ended a run.", "type")
        self.seconds = Histogram(
            "trainer_hooks_batch_duration_seconds",
            "Seconds on the host from the start of a training batch to its end.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.samples_per_second = gauge(
            "samples_per_second", "Training samples per second, over the last batches."
        )
        self.epoch = gauge("epoch", "The training epoch, counted from 0, resumed ones included.")
        self.global_step = gauge("global_step", "Optimizer steps, those before a resume included.")
        self.loss = gauge("loss", "The training loss of the batch at which loggers were due last.")
        self.loss.set(math.nan)
        self.values = gauge("metric", "What was logged last under each name.", "name")
        self.checkpoint = _LastCheckpoint(registry)
        self.state = Enum(
            "trainer_hooks_run_state",
            "What the trainer is doing.",
            states=list(_STATES),
            registry=registry,
        )
        self.run = Info("trainer_hooks_run", "What is run.", registry=registry)
        self._has_failed = False

    def begin(self, stage: str, module: str) -> None:
        """Tell that a run begins."""
        self.run.info({"version": __version__, "module": module})
        self.state.state(stage if stage in _STAGES else "idle")
        self._has_failed = False

    def fail(self, kind: str) -> None:
        """Count an exception, and tell that the run failed."""
        self.exceptions.labels(type=kind).inc()
        self.state.state("failed")
        self._has_failed = True

    def end(self) -> None:
        """Tell that a run is over; one that failed stays so until the next begins."""
        if not self._has_failed:
            self.state.state("finished")

    def place(self, epoch: int, step: int) -> None:
        """Tell where the training is."""
        self.epoch.set(epoch)
        self.global_step.set(step)

    def count_batch(self, seconds: float, samples: int, steps: int) -> None:
        """Count a training batch."""
        self.batches.inc()
        self.samples.inc(samples)
        self.steps.inc(steps)
        self.seconds.observe(seconds)

    def log(self, values: Mapping[str, float]) -> None:
        """Take logged values; what is no number is left out."""
        for name, value in values.items():
            if isinstance(value, int | float):
                self.values.labels(name=name).set(value)
