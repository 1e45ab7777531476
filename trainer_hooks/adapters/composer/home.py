"""Home: what all guests of Composer in a trainer share: the state, the logger, the counters."""

from __future__ import annotations

import atexit
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from composer.core import Time, Timestamp

from trainer_hooks.adapters.composer.logging import GuestLogger
from trainer_hooks.adapters.composer.model import model_view
from trainer_hooks.adapters.composer.state import evaluators_of, length_of, make_state
from trainer_hooks.clock import EpochStage
from trainer_hooks.data import defines, measure
from trainer_hooks.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Home"]

_OPEN: WeakSet[Any] = WeakSet()
"""The homes that are to be closed when Python ends."""


class Home:
    """Keep Composer's state of a trainer; several guests may ask for the same, it is done once.

    Args:
        trainer: whose.
        module: what it runs first.

    Attributes:
        trainer: likewise.
        state: what guests are given.
        logger: likewise.
        duration: the `max_duration` that the trainer goes by.
        has_own_step: whether forward and loss are in a `training_step` of the module's own.
        closings: what closes each guest, and what comes after all are closed.
    """

    def __init__(self, trainer: Any, module: Any) -> None:
        self.closings: list[tuple[Callable[[], bool], Callable[[], object]]] = []
        self.trainer = trainer
        self.state = make_state(trainer, model_view(module))
        self.logger = GuestLogger(self.state, trainer)
        self.duration: Time | None = None
        self.has_own_step = False
        self._is_exhausted = False
        self._evaluated: list[tuple[int, Any, str, int]] = []
        self._ended: list[Timestamp] = []
        self._place = (-1, -1)
        self._before = Timestamp()
        self._since = 0.0
        self._counts = self._counts_before = (0, 0, 0)
        self._training: tuple[Any, Any, Any] = (None, None, -1)
        self.state.keep("catch_up", self.sync)
        _OPEN.add(self)

    # --- a run begins ---

    def enter(self, module: Any) -> None:
        """Take over what a run is of."""
        self.state.model = model_view(module)
        self.has_own_step = defines(module, "training_step", Module)

    def begin_fit(self) -> None:
        """Take over what a fit trains, on what, for how long, and how far it is."""
        trainer, state = self.trainer, self.state
        state.optimizers = list(trainer.optimizers)
        state.schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        state.scaler = trainer.scaler
        state.train_dataloader = trainer.train_dataloader
        state.device_train_microbatch_size = getattr(trainer.train_dataloader, "batch_size", None)
        state.evaluators = evaluators_of(trainer)
        windows = -1
        if trainer.num_training_batches != float("inf"):
            windows = -(-int(trainer.num_training_batches) // trainer.accumulate_grad_batches)
        state.set_dataloader(trainer.train_dataloader, "train", windows)
        self._training = state.dataloader, "train", windows
        self._is_exhausted = False
        self.limit()
        self.look()

    def limit(self) -> None:
        """Take over how long the trainer trains."""
        self.duration = length_of(self.trainer)
        self.state.max_duration = self.duration

    def look(self) -> None:
        """Take over how far the training is, after a restore or another trainer's fit."""
        progress, state = self.trainer.progress, self.state
        if progress.is_fresh and state.now.batch.value:
            state.now, state.before = Timestamp(), None
        elif progress.batches_stepped != state.now.batch.value:
            state.now, state.before = self._by_clock(), None
        self._counts = self._counts_before = (0, 0, 0)
        self.count()

    # --- counters ---

    def begin_epoch(self) -> None:
        """Open an epoch; what one before it that was broken off has counted is left out."""
        self._is_exhausted = False
        now = self.state.timestamp
        if now.batch_in_epoch.value:
            self.state.timestamp = now.copy(batch_in_epoch=0, sample_in_epoch=0, token_in_epoch=0)

    def count(self) -> None:
        """Note how much is done, so that a timestamp can be made of it."""
        progress = self.trainer.progress
        counts = progress.batches_stepped, progress.samples_completed, progress.tokens_completed
        if counts[0] != self._counts[0]:
            self._counts_before, self._counts = self._counts, counts

    def sync(self) -> None:
        """Bring the timestamps to what is done; those in between that nobody saw are left out."""
        self.count()  # in a window under way its samples do not count yet
        state = self.state
        due = self._counts[0] - state.now.batch.value
        if due <= 0:
            return
        seconds = self.trainer.clock.train_seconds
        if due > 1 and self._counts_before[0] > state.now.batch.value:
            state.now = _advanced(state.now, self._counts_before, seconds)
        state.before, state.now = state.now, _advanced(state.now, self._counts, seconds)

    def end_epoch(self) -> bool:
        """Count the epoch, unless it was broken off; return whether it was not."""
        now, is_whole = self.state.timestamp, self.trainer.is_last_batch
        if is_whole and now.batch_in_epoch.value:
            self.state.previous_timestamp = now
            self.state.timestamp = now.to_next_epoch()
        return bool(is_whole)

    def end_iteration(self) -> None:
        """Count a cycle of epochs."""
        now = self.state.timestamp
        if now.epoch_in_iteration.value:
            self.state.previous_timestamp = now
            self.state.timestamp = now.to_next_iteration()

    def note_end_of_data(self) -> None:
        """Note that the loader was asked for a batch, and had none."""
        self._is_exhausted = True

    @property
    def is_asked_once_more(self) -> bool:
        """Whether Composer would still ask the loader, which here is known to be at its end."""
        longest = self.state.max_duration
        is_enough = longest is not None and self.state.timestamp >= longest
        return not self._is_exhausted and not is_enough

    # --- evaluations ---

    def begin_evaluation(self) -> None:
        """Forget the last one."""
        self._evaluated, self._ended, self._place = [], [], (-1, -1)

    def begin_eval_batch(self, batch: Any, batch_idx: int, index: int) -> bool:
        """Put a batch on the state, and return whether it is its loader's first."""
        if (index, batch_idx) != self._place:
            self._place = index, batch_idx
            if batch_idx == 0:
                self._open_loader(index)
            self._before = self._ended[-1]
            self.state.keep("batch", batch)
        return batch_idx == 0

    def keep_eval_outputs(self, outputs: Any) -> None:
        """Put what a batch gave on the state, which does not count it yet."""
        self.state.keep("outputs", outputs)
        self.state.eval_timestamp = self._before

    def end_eval_batch(self, batch: Any, batch_idx: int) -> None:
        """Count a batch."""
        if self._before.batch.value == batch_idx and self._ended[-1] is self._before:
            spent, self._since = perf_counter() - self._since, perf_counter()
            self._ended[-1] = self._before.to_next_batch(*measure(batch), timedelta(seconds=spent))
        self.state.eval_timestamp = self._ended[-1]

    def ended_loaders(self, told: int, following: int | None = None) -> Iterator[int]:
        """Bring the state back to each loader that was evaluated, and then to where it is.

        Args:
            told: of how many a guest was told that they are over.
            following: the index of the loader that comes now; None where all are over.

        Yields:
            Of how many it has been told then.
        """
        state = self.state
        present = state.dataloader, state.dataloader_label, state.dataloader_len
        timestamp = state.eval_timestamp
        for place in range(told, len(self._evaluated)):
            index, *found = self._evaluated[place]
            if index == following:
                break
            state.set_dataloader(*found)
            state.eval_timestamp = self._ended[place]
            yield place + 1
        if following is not None:
            state.eval_timestamp = timestamp
        loader, label, length = self._training if following is None else present
        if loader is not None:
            state.set_dataloader(loader, label, -1 if length is None else int(length))

    def begin_prediction(self) -> None:
        """Count from nothing."""
        state, loader = self.state, self.trainer.predict_dataloaders
        state.predict_timestamp = Timestamp()
        if loader is not None:
            state.set_dataloader(loader, "predict")

    def end_predict_batch(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count a batch."""
        state = self.state
        state.keep("outputs", outputs)
        if state.predict_timestamp.batch.value == batch_idx:
            state.predict_timestamp = state.predict_timestamp.to_next_batch(*measure(batch))

    def _open_loader(self, index: int) -> None:
        trainer, state = self.trainer, self.state
        loaders = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
        lengths = trainer.num_test_batches if trainer.testing else trainer.num_val_batches
        several = isinstance(loaders, list | tuple)
        loader = loaders[index] if several and len(loaders) > index else loaders
        plain = f"eval_{index}" if several and len(loaders) > 1 else "eval"
        most = lengths[index] if index < len(lengths) else -1
        found = (loader, trainer.dataloader_label or plain, -1 if most == float("inf") else most)
        self._evaluated.append((index, *found))
        state.set_dataloader(*found)
        state.eval_timestamp = Timestamp()
        self._ended.append(state.eval_timestamp)
        self._since = perf_counter()

    # --- the end ---

    def close(self) -> None:
        """Close the guests that are not closed, and then those that it went well with."""
        done = [after for close, after in self.closings if close()]
        self.closings = []
        for after in done:
            after()

    def __del__(self) -> None:
        self.close()

    def _by_clock(self) -> Timestamp:
        clock, progress = self.trainer.clock, self.trainer.progress
        is_open = progress.stage is EpochStage.BATCHES
        stepped = -(-clock.batches_in_epoch // self.trainer.accumulate_grad_batches)
        return Timestamp(
            iteration=clock.iterations,
            epoch=clock.epochs,
            batch=progress.batches_stepped,
            sample=clock.samples,
            token=clock.tokens,
            epoch_in_iteration=clock.epochs_in_iteration,
            token_in_iteration=clock.tokens_in_iteration,
            batch_in_epoch=stepped if is_open else 0,
            sample_in_epoch=clock.samples_in_epoch if is_open else 0,
            token_in_epoch=clock.tokens_in_epoch if is_open else 0,
            total_wct=timedelta(seconds=clock.train_seconds),
            iteration_wct=timedelta(seconds=clock.train_seconds_in_iteration),
            epoch_wct=timedelta(seconds=clock.train_seconds_in_epoch if is_open else 0.0),
            batch_wct=timedelta(),
        )


def _advanced(now: Timestamp, counts: tuple[int, int, int], seconds: float) -> Timestamp:
    """Return a timestamp that has come to some batches, samples and tokens."""
    batches, samples, tokens = counts
    spent = max(timedelta(seconds=seconds) - now.total_wct, timedelta())
    following = now.to_next_batch(samples - now.sample.value, tokens - now.token.value, spent)
    more = batches - following.batch.value
    if more:
        epoch = following.batch_in_epoch + more
        following = following.copy(batch=following.batch + more, batch_in_epoch=epoch)
    return following


def _close_all() -> None:
    for home in list(_OPEN):
        home.close()


atexit.register(_close_all)
