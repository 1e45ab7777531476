"""PrometheusExporter: a run's metrics where a Prometheus server fetches them."""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

from trainer_hooks import Band, Callback
from trainer_hooks.errors import OptionError
from trainer_hooks_monitoring.counts import samples_in
from trainer_hooks_monitoring.serving import Server

if TYPE_CHECKING:
    from trainer_hooks import Module, Trainer
    from trainer_hooks_monitoring.metrics import Metrics

__all__ = ["PrometheusExporter"]

_WINDOW = 32
"""Batches over which the throughput is taken."""


class PrometheusExporter(Callback):
    """Serve the metrics of a run at `http://address:port/metrics`.

    The server is started with the first run of the trainer, on the main process, goes on between
    its runs, and is stopped by `trainer.close()`, when the trainer is gone, or when Python ends.
    Nothing waits for a device on its account: the loss and what was logged are read when the
    loggers are given their values, every `log_every_n_steps` steps. Each exporter has a registry of
    its own, so that several trainers in one process do not mix.

    What it serves is in the table of the README. Counters count from the start of this process, as
    Prometheus expects it, `trainer_hooks_global_step` and `trainer_hooks_epoch` say where a run
    that was resumed is.

    An error in it, such as a port that is taken, is reported once and ends no run.

    Args:
        port: the port; 0 takes any that is free, see `url`.
        address: the address to listen at, that of this machine alone unless given. Who can reach it
            can read the metrics: there is no password.

    Attributes:
        registry: the `CollectorRegistry` with the metrics, to add others to.
        port: the port that is asked for.
        address: the address to listen at.

    State: none.

    Raises:
        OptionError: an argument is outside its rule.
    """

    band = Band.SINK
    on_error = "disable"
    volatile_state: ClassVar[frozenset[str]] = frozenset({"_metrics", "_samples"})

    def __init__(self, port: int = 0, address: str = "127.0.0.1") -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise OptionError(
                f"port {port!r} of PrometheusExporter: it must be a whole number from 0 to 65535. "
                "Pass one such as 9400, or 0 for any that is free."
            )
        if not isinstance(address, str) or not address:
            raise OptionError(
                f"address {address!r} of PrometheusExporter: it must be the address to listen at. "
                "Pass '127.0.0.1' for this machine alone, or '0.0.0.0' for all that reach it."
            )
        self.port = port
        self.address = address
        self._metrics: Metrics | None = None
        self._server: Server | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._clear()

    def _clear(self) -> None:
        self._began = math.nan
        self._steps = 0
        self._samples = 0
        self._window: deque[tuple[float, int]] = deque(maxlen=_WINDOW + 1)

    @property
    def metrics(self) -> Metrics:
        """The metrics, made when they are first asked for."""
        if self._metrics is None:
            from trainer_hooks_monitoring.metrics import Metrics

            self._metrics = Metrics()
        return self._metrics

    @property
    def registry(self) -> Any:
        """The registry with the metrics."""
        return self.metrics.registry

    @property
    def url(self) -> str | None:
        """Where the metrics are, or None while nothing is served."""
        return None if self._server is None else self._server.url

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Start the server if need be, and tell what begins."""
        if not trainer.is_global_zero:
            return
        self.metrics.begin(stage, type(module).__qualname__)
        if self._server is None:
            self._server = Server(self.port, self.address, self.registry)
            self._finalizer = weakref.finalize(self, self._server.stop)

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Begin to count: what a run that was resumed did before is not of this process."""
        self._clear()
        self._steps = trainer.global_step
        self._window.append((time.perf_counter(), 0))
        self.metrics.place(trainer.current_epoch, trainer.global_step)

    def on_train_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int
    ) -> None:
        """Note the time."""
        self._began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Count the batch, and read its loss where the loggers are due anyway."""
        now, metrics, samples = time.perf_counter(), self.metrics, samples_in(batch)
        self._samples += samples
        self._window.append((now, self._samples))
        since, before = self._window[0]
        step = trainer.global_step
        metrics.count_batch(now - self._began, samples, max(0, step - self._steps))
        self._steps = step
        if now > since:
            metrics.samples_per_second.set((self._samples - before) / (now - since))
        if "loss" in outputs and trainer.progress.batches_stepped % trainer.log_every_n_steps == 0:
            metrics.loss.set(float(outputs["loss"]))
        metrics.place(trainer.current_epoch, step)

    def on_log(
        self, trainer: Trainer, module: Module, metrics: dict[str, float], step: int
    ) -> None:
        """Take over what the loggers are given."""
        self.metrics.log(metrics)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Leave the time of a validation out of the throughput."""
        self._restart_window()

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Tell the epoch, and leave what is between epochs out of the throughput."""
        self.metrics.place(trainer.current_epoch, trainer.global_step)
        self._restart_window()

    def _restart_window(self) -> None:
        self._window.clear()
        self._window.append((time.perf_counter(), self._samples))

    def on_checkpoint_saved(self, trainer: Trainer, module: Module, path: str) -> None:
        """Note the time."""
        self.metrics.checkpoint.note()

    def on_exception(self, trainer: Trainer, module: Module, exception: BaseException) -> None:
        """Count it by its type."""
        self.metrics.fail(type(exception).__qualname__)

    def on_fit_end(self, trainer: Trainer, module: Module) -> None:
        """Tell where the run ended."""
        self.metrics.place(trainer.current_epoch, trainer.global_step)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Tell that the run is over, and go on serving."""
        self.metrics.end()

    def on_close(self, trainer: Trainer, module: Module) -> None:
        """Stop the server."""
        if self._finalizer is not None:
            self._finalizer()
        self._server = self._finalizer = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave the server and the metrics out of copies and pickles."""
        own = {"_metrics": None, "_server": None, "_finalizer": None}
        return {**super().__getstate__(), **own}
