"""ModuleLogging: how a module logs values."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.errors import MetricError, TrainerHooksWarning
from trainer_hooks.module.module_steps import ModuleSteps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from trainer_hooks.metrics import MetricStore

__all__ = ["ModuleLogging"]


class ModuleLogging(ModuleSteps):
    """The two methods with which a module logs, and what they hand the values to."""

    _metrics: MetricStore | None = None

    def attach_metrics(self, metrics: MetricStore | None) -> None:
        """Tell the module where what it logs goes; the trainer calls this."""
        self.__dict__["_metrics"] = metrics

    def log(
        self,
        name: str,
        value: Any,
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        metric_attribute: str | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log a value: to the loggers, for callbacks, and for the progress bar if asked.

        Args:
            name: its name; with `on_step` and `on_epoch` both, `name_step` and `name_epoch`.
            value: a number, a tensor with one element, or a torchmetrics object.
            prog_bar: whether the progress bar shows it.
            logger: whether loggers are given it; they are unless this is False.
            on_step: whether single values are; in training steps and batch hooks unless said.
            on_epoch: whether the epoch's reduction is; everywhere else unless said.
            reduce_fx: `"mean"` (weighted by batch size), `"sum"`, `"min"`, `"max"`, or a function
                of the tensor of all values.
            enable_graph: keep the last value attached to the autograd graph.
            sync_dist: reduce over processes; without effect in one.
            sync_dist_group: which processes; without effect in one.
            add_dataloader_idx: add `/dataloader_idx_N` where there are several loaders.
            batch_size: the value's weight in a mean; the first dimension of the batch's first
                tensor unless given, and 1 where there is none.
            metric_attribute: where the module keeps the torchmetrics object, as a dotted name;
                found by itself unless given.
            rank_zero_only: without effect in one process.

        Raises:
            MetricError: it cannot be logged here, is no such value, or was logged otherwise before.
        """
        metrics = self._metrics
        if metrics is None:
            warn(_dropped(name), TrainerHooksWarning)
            return
        if metric_attribute is not None:
            self._require_metric(name, value, metric_attribute)
        metrics.log(
            name,
            value,
            (
                prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx,
                sync_dist, rank_zero_only, enable_graph,
            ),
            batch_size,
        )  # fmt: skip

    def log_dict(
        self,
        dictionary: Mapping[str, Any],
        prog_bar: bool = False,
        logger: bool | None = None,
        on_step: bool | None = None,
        on_epoch: bool | None = None,
        reduce_fx: str | Callable[[Tensor], Tensor] = "mean",
        enable_graph: bool = False,
        sync_dist: bool = False,
        sync_dist_group: Any = None,
        add_dataloader_idx: bool = True,
        batch_size: int | None = None,
        rank_zero_only: bool = False,
    ) -> None:
        """Log every item of a dict, or of a torchmetrics collection; the arguments are `log`'s."""
        metrics = self._metrics
        call = (
            prog_bar, logger, on_step, on_epoch, reduce_fx, add_dataloader_idx,
            sync_dist, rank_zero_only, enable_graph,
        )  # fmt: skip
        # a collection's items would copy the states that its metrics share
        is_collection = hasattr(dictionary, "compute_groups")
        items = dictionary.items(copy_state=False) if is_collection else dictionary.items()  # type: ignore[call-arg]
        for name, value in items:
            if metrics is None:
                warn(_dropped(name), TrainerHooksWarning)
            else:
                metrics.log(name, value, call, batch_size)

    def _require_metric(self, name: str, value: Any, attribute: str) -> None:
        """Make sure that an attribute is the metric object that is logged."""
        try:
            found = attrgetter(attribute)(self)
        except (AttributeError, TypeError):
            found = None
        if found is not value:
            raise MetricError(
                f"log({name!r}, metric_attribute={attribute!r}): {type(self).__qualname__} has no "
                "such metric object there. Name the attribute that is what you log, or leave "
                "metric_attribute out."
            )


def _dropped(name: str) -> str:
    return (
        f"log({name!r}) was called on a module that no trainer runs: the value is dropped. "
        "Call it within fit, validate or test."
    )
