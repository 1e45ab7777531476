"""What Lightning's callbacks look into of its Trainer: the loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainer_hooks.adapters.views import View, lacking
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import UsageError
from trainer_hooks.trainer.views.fit_loop import Counts, ProgressView

__all__ = ["EvaluationLoop", "FitLoop", "Lacks", "PredictionLoop", "Skipping", "batches_stepped"]


def batches_stepped(trainer: Any) -> int:
    """Return the windows that were done before the batch in work, as Lightning counts them.

    Lightning counts a window when its last batch and the validation after it are over.
    """
    progress = trainer.progress
    is_counted = progress.is_batch_open and progress.batches_in_window == 0
    is_validating = progress.stage is EpochStage.VALIDATING
    return int(progress.batches_stepped - bool(is_counted or is_validating))


class Lacks:
    """Raise an error that says what is lacking.

    Args:
        trainer: of whose part.
    """

    _name = ""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        raise lacking(f"Trainer.{self._name}", "Lightning", name)


class EvaluationLoop(Lacks):
    """`trainer.validate_loop`, and that of a fit's validations.

    Attributes:
        batches: how many batches of the evaluation under way were begun; `LightningGuest` counts
            them for those that hear of them.
        place: the indices of the last one's loader and of itself.
    """

    _name = "validate_loop"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self.batches = 0
        self.place = (-1, -1)

    @property
    def batch_progress(self) -> ProgressView:
        """The batches begun."""
        done = self.batches
        return ProgressView(Counts(done, done, done), Counts(done, done, done))

    @property
    def _has_run(self) -> bool:
        trainer = self._trainer
        return bool(trainer.validating or trainer.progress.stage is EpochStage.CLOSING)


class PredictionLoop(EvaluationLoop):
    """`trainer.predict_loop`; a writer of predictions notes what it is about, see `WriterGuest`."""

    _name = "predict_loop"

    def __init__(self, trainer: Any) -> None:
        super().__init__(trainer)
        self._noted: dict[int, list[tuple[Any, list[int]]]] = {}

    def open(self) -> None:
        """Forget the last prediction."""
        self._noted = {}

    def note(self, prediction: Any, dataloader_idx: int) -> None:
        """Keep what was predicted for a batch."""
        self._noted.setdefault(dataloader_idx, []).append((prediction, self.current_batch_indices))

    @property
    def predictions(self) -> list[Any]:
        """What was predicted: a list, or one for each of several loaders."""
        listed = [[one for one, _ in noted] for _, noted in sorted(self._noted.items())]
        return listed[0] if len(listed) == 1 else listed

    @property
    def epoch_batch_indices(self) -> list[list[list[int]]]:
        """Which samples the batches of each loader consisted of."""
        return [[indices for _, indices in noted] for _, noted in sorted(self._noted.items())]

    @property
    def current_batch_indices(self) -> list[int]:
        """Which samples the batch in work consists of."""
        return list(self._trainer.batch_indices or [])


class EpochLoop(View):
    """`trainer.fit_loop.epoch_loop`.

    Args:
        trainer: whose.
        val_loop: the loop of its validations.
    """

    __slots__ = ("_trainer", "val_loop")

    def __init__(self, trainer: Any, val_loop: EvaluationLoop) -> None:
        super().__init__(trainer.fit_loop.epoch_loop)
        object.__setattr__(self, "_trainer", trainer)
        object.__setattr__(self, "val_loop", val_loop)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise lacking("Trainer.fit_loop.epoch_loop", "Lightning", name) from None

    @property
    def _batches_that_stepped(self) -> int:
        return batches_stepped(self._trainer)

    def _should_check_val_epoch(self) -> bool:
        trainer = self._trainer
        every = trainer.check_val_every_n_epoch
        return sum(trainer.num_val_batches) > 0 and (
            every is None or (trainer.current_epoch + 1) % every == 0
        )


@dataclass(slots=True)
class Skipping:
    """Whether the batches of a fit go without a backward.

    Attributes:
        is_heeded: whether a guest sees to it.
        is_on: whether they do.
    """

    is_heeded: bool = False
    is_on: bool = False


class FitLoop(View):
    """`trainer.fit_loop`.

    Args:
        trainer: whose.
        val_loop: the loop of its validations.
        skipping: whether its batches go without a backward.
    """

    __slots__ = ("_skipping", "_trainer", "_val_loop")

    def __init__(self, trainer: Any, val_loop: EvaluationLoop, skipping: Skipping) -> None:
        super().__init__(trainer.fit_loop)
        object.__setattr__(self, "_trainer", trainer)
        object.__setattr__(self, "_val_loop", val_loop)
        object.__setattr__(self, "_skipping", skipping)

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self.view_target, name)
        except AttributeError:
            raise lacking("Trainer.fit_loop", "Lightning", name) from None

    @property
    def epoch_loop(self) -> EpochLoop:
        """The counters of the batches."""
        return EpochLoop(self._trainer, self._val_loop)

    @property
    def total_batch_idx(self) -> int:
        """The index of the batch in work over all epochs."""
        return int(self._trainer.fit_loop.epoch_loop.total_batch_idx)

    @property
    def batch_idx(self) -> int:
        """Its index in its epoch."""
        return int(self._trainer.fit_loop.epoch_loop.batch_idx)

    @property
    def current_epoch(self) -> int:
        """The index of the epoch; what is set is not heeded, as in Lightning's own loop."""
        return int(self._trainer.current_epoch)

    @current_epoch.setter
    def current_epoch(self, value: int) -> None:
        pass

    @property
    def max_batches(self) -> int | float:
        """The batches of an epoch; what is set is not heeded, as the loader decides it."""
        found: int | float = self._trainer.fit_loop.max_batches
        return found

    @max_batches.setter
    def max_batches(self, value: int | float) -> None:
        pass

    @property
    def _skip_backward(self) -> bool:
        return bool(self._skipping.is_on)

    @_skip_backward.setter
    def _skip_backward(self, value: bool) -> None:
        if value and not self._skipping.is_heeded:
            raise UsageError(
                "a callback of Lightning asked for batches without a backward "
                "(fit_loop._skip_backward): a fit here has such only for a callback that derives "
                "from Lightning's StochasticWeightAveraging. Derive yours from it, or call "
                "trainer.skip_batch() in on_before_backward."
            )
        self._skipping.is_on = value

    def _should_accumulate(self) -> bool:
        return bool(self._trainer.progress.batches_in_window)
