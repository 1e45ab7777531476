"""InMemoryLogger: keep everything that is logged, unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.loggers.conversion import (
    ConvertingLogger,
    as_dict,
    detached_copy,
    plain_number,
)

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from torch import nn


class InMemoryLogger(ConvertingLogger):
    """Keep everything that is logged, for notebooks and tests.

    The metrics are part of each checkpoint, so that a resumed run has those from before, in a new
    process too. Images, tables and texts are not.

    Args:
        name: name of the experiment.

    Attributes:
        metrics: step and values of each call, in order.
        hparams: the hyperparameters.
        images: by name, a list of steps and images, as arrays of bytes of shape `(H, W, C)`.
        captions: by name, a list of the captions of each call, or None.
        tables: by name, a list of steps, columns and rows.
        texts: by name, a list of steps and texts.
        graphs: the models passed to `log_graph`.
        status: how the last run ended, `"success"` or `"failed"`; None before.

    Example::

        logger = InMemoryLogger()
        trainer = Trainer(max_epochs=2, logger=logger)
        trainer.fit(module, train_loader, val_loader)
        print(logger.history("val_loss"))
    """

    def __init__(self, name: str = "trainer_logs") -> None:
        self._name = name
        self.metrics: list[tuple[int, dict[str, float]]] = []
        self.hparams: dict[str, Any] = {}
        self.images: dict[str, list[tuple[int | None, list[Any]]]] = {}
        self.captions: dict[str, list[list[str] | None]] = {}
        self.tables: dict[str, list[tuple[int | None, list[str], list[list[Any]]]]] = {}
        self.texts: dict[str, list[tuple[int | None, str]]] = {}
        self.graphs: list[nn.Module] = []
        self.status: str | None = None

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self._name

    @property
    def experiment(self) -> InMemoryLogger:
        """Return the logger itself."""
        return self

    def history(self, metric: str) -> list[tuple[int, float]]:
        """Return the steps and values of one metric, in the order in which they were logged."""
        return [(step, row[metric]) for step, row in self.metrics if metric in row]

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Keep the metrics of one moment; calls without a `step` are numbered."""
        row = {key: plain_number(value) for key, value in metrics.items()}
        self.metrics.append((len(self.metrics) if step is None else step, row))

    def log_hyperparams(self, params: Mapping[str, Any] | Namespace) -> None:
        """Keep the hyperparameters; a later call adds to them."""
        self.hparams.update(as_dict(params))

    def log_graph(self, model: nn.Module, input_array: Any = None) -> None:  # noqa: ARG002
        """Keep the model."""
        if not any(model is graph for graph in self.graphs):
            self.graphs.append(model)

    def _write_images(
        self, key: str, pixels: list[Any], step: int | None, captions: Sequence[str] | None
    ) -> None:
        """Keep images."""
        self.images.setdefault(key, []).append((step, pixels))
        self.captions.setdefault(key, []).append(None if captions is None else list(captions))

    def _write_table(
        self, key: str, names: list[str], rows: list[list[Any]], step: int | None
    ) -> None:
        """Keep a table."""
        # the cells may be tensors that change later; pixels are copies already
        self.tables.setdefault(key, []).append((step, names, detached_copy(rows)[0]))

    def log_text(self, key: str, text: str, step: int | None = None) -> None:
        """Keep a text."""
        self.texts.setdefault(key, []).append((step, text))

    def finalize(self, status: str) -> None:
        """Record how the run ended."""
        self.status = status

    def run_state(self) -> dict[str, Any]:
        """Return the metrics so far."""
        return {"metrics": [[step, dict(row)] for step, row in self.metrics]}

    def resume_run(self, state: dict[str, Any]) -> None:
        """Replace the metrics by those of a checkpoint."""
        self.metrics = [(step, dict(row)) for step, row in state["metrics"]]
