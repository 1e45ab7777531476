"""Proxies of Lightning's loops: `trainer.fit_loop`, `validate_loop` and `predict_loop`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from trainer_hooks.adapters.proxy import PartialProxy, Proxy
from trainer_hooks.callbacks.monitored_metric import has_validation, is_validation_epoch
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer.lightning_attributes import (
    ProgressCounts,
    ProgressView,
    completed_windows,
)


class EvaluationLoopProxy(PartialProxy):
    """Proxy of `trainer.validate_loop`, `trainer.test_loop` and a fit's `epoch_loop.val_loop`.

    Args:
        trainer: the Trainer that evaluates.

    Attributes:
        batches: number of batches of the running evaluation that were begun; `LightningAdapter`
            counts them for callbacks that override a batch hook.
        last_batch: index of the loader and index in that loader of the batch counted last, so that
            several callbacks count it once.
    """

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer.validate_loop"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.batches = 0
        self.last_batch = (-1, -1)

    @property
    def batch_progress(self) -> ProgressView:
        """The batches begun; total and current are the same."""
        # Lightning's ThroughputMonitor reads `total.ready`
        counts = ProgressCounts(self.batches, self.batches, self.batches)
        return ProgressView(counts, counts)

    @property
    def _has_run(self) -> bool:
        trainer = self._trainer
        # ModelCheckpoint only warns of a missing metric until this is True, and raises from then on
        return bool(trainer.validating or trainer.progress.stage is EpochStage.CLOSING)


class PredictionLoopProxy(EvaluationLoopProxy):
    """Proxy of `trainer.predict_loop`, filled by `PredictionWriterAdapter`.

    Args:
        trainer: the Trainer that predicts.
    """

    _foreign_name: ClassVar[str] = "Trainer.predict_loop"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self._recorded: dict[int, list[tuple[Any, list[int]]]] = {}

    def reset(self) -> None:
        """Drop the predictions of the previous run."""
        self._recorded = {}

    def record(self, prediction: Any, dataloader_idx: int) -> None:
        """Keep the prediction of a batch with the indices of its samples."""
        recorded = self._recorded.setdefault(dataloader_idx, [])
        recorded.append((prediction, self.current_batch_indices))

    @property
    def predictions(self) -> list[Any]:
        """Predictions in order: a list, or one list for each of several loaders.

        They are kept for a prediction writer, and if `predict` returns them.
        """
        if not self._recorded:
            returned: list[Any] = self._trainer.predictions
            return returned
        by_loader = [[item for item, _ in pairs] for _, pairs in sorted(self._recorded.items())]
        return by_loader[0] if len(by_loader) == 1 else by_loader

    @property
    def epoch_batch_indices(self) -> list[list[list[int]]]:
        """Sample indices of each batch of each loader."""
        # one list for each loader, also of one, as in Lightning; only `predictions` is flat then
        return [[indices for _, indices in pairs] for _, pairs in sorted(self._recorded.items())]

    current_batch_indices = property(lambda self: list(self._trainer.batch_indices or []))
    """Indices of the current batch's samples in the data set."""


class EpochLoopProxy(Proxy):
    """Proxy of `trainer.fit_loop.epoch_loop`.

    Args:
        trainer: the Trainer that fits.
        val_loop: the proxy of the loop that validates during the fit.
    """

    __slots__ = ("_trainer", "val_loop")

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer.fit_loop.epoch_loop"

    def __init__(self, trainer: Any, val_loop: EvaluationLoopProxy) -> None:
        super().__init__(trainer.fit_loop.epoch_loop)
        self._trainer = trainer
        self.val_loop = val_loop

    # the step at which LearningRateMonitor and DeviceStatsMonitor log
    _batches_that_stepped = property(lambda self: completed_windows(self._trainer.progress))

    # a progress bar of Lightning's has no validation batches to show unless this is True
    def _should_check_val_epoch(self) -> bool:
        trainer = self._trainer
        return has_validation(trainer) and is_validation_epoch(trainer)


@dataclass(slots=True)
class BackwardSkipping:
    """Whether the batches of a fit are run without a backward, as a callback may ask for.

    Attributes:
        is_supported: an adapter of the fit takes care of such batches
            (`StochasticWeightAveragingAdapter`).
        is_on: batches are run without a backward now.
    """

    is_supported: bool = False
    is_on: bool = False


class FitLoopProxy(Proxy):
    """Proxy of `trainer.fit_loop`.

    `current_epoch` and `max_batches` can be set without effect: callbacks for Lightning set them,
    but here the progress and the loader decide.

    Args:
        trainer: the Trainer that fits.
        val_loop: the proxy of the loop that validates during the fit.
        skipping: whether batches are run without a backward.
    """

    __slots__ = ("_skipping", "_trainer", "_val_loop")

    _framework: ClassVar[str] = "Lightning"
    _foreign_name: ClassVar[str] = "Trainer.fit_loop"

    def __init__(
        self, trainer: Any, val_loop: EvaluationLoopProxy, skipping: BackwardSkipping
    ) -> None:
        super().__init__(trainer.fit_loop)
        self._trainer = trainer
        self._val_loop = val_loop
        self._skipping = skipping

    @property
    def epoch_loop(self) -> EpochLoopProxy:
        """The proxy of the loop over an epoch's batches."""
        return EpochLoopProxy(self._trainer, self._val_loop)

    @property
    def current_epoch(self) -> int:
        """The index of the epoch; setting it has no effect, as in Lightning's own loop."""
        return int(self._trainer.current_epoch)

    @current_epoch.setter
    def current_epoch(self, value: int) -> None:
        pass

    @property
    def max_batches(self) -> int | float:
        """Batches of an epoch; setting it has no effect, as the loader decides."""
        batches: int | float = self._trainer.fit_loop.max_batches
        return batches

    # StochasticWeightAveraging adds a batch for its extra epoch, so that Lightning makes no step
    @max_batches.setter
    def max_batches(self, value: int | float) -> None:
        pass

    @property
    def _skip_backward(self) -> bool:
        return bool(self._skipping.is_on)

    @_skip_backward.setter
    def _skip_backward(self, value: bool) -> None:
        if value and not self._skipping.is_supported:
            raise UsageError(
                "a callback of Lightning asked for batches without a backward "
                "(fit_loop._skip_backward): a fit here has such only for a callback that derives "
                "from Lightning's StochasticWeightAveraging. Derive yours from it, or call "
                "trainer.skip_batch() in on_before_backward."
            )
        self._skipping.is_on = value

    # ThroughputMonitor asks at the end of a batch: inside a window there is no step to measure yet
    def _should_accumulate(self) -> bool:
        return bool(self._trainer.progress.batches_in_window)
