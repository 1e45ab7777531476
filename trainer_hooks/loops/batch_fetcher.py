"""Fetch training batches one at a time, and measure whether the loader slows the training down."""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks._log import warn
from trainer_hooks.data.loaders import describe_loader, shortage_message
from trainer_hooks.data.workers import spawn_advice
from trainer_hooks.errors import DataError, StopTraining, TrainerHooksAdvice, add_note
from trainer_hooks.hooks.relay import call_and_note_errors
from trainer_hooks.runtime.device import usable_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.context.context import RunContext
    from trainer_hooks.loops.batch_end import BatchEnd
    from trainer_hooks.loops.duration import DurationLimit
    from trainer_hooks.loops.rank_consensus import RankConsensus
    from trainer_hooks.loops.scheduler_stepper import SchedulerStepper


END = object()
"""Returned in place of a batch: the epoch or the training is at its end."""


class BatchFetcher:
    """Fetch batches from the data stream, with the loader hooks around each.

    Args:
        context: the run context.
        batch_end: finishes the accumulation window if the loader ends early.
        schedulers: steps the learning rate schedulers.
        duration: the limit of `max_duration`.
        consensus: shares requests between ranks; None in a run of one rank.
    """

    def __init__(
        self,
        context: RunContext,
        batch_end: BatchEnd,
        schedulers: SchedulerStepper,
        duration: DurationLimit | RankConsensus,
        consensus: RankConsensus | None,
    ) -> None:
        self._context = context
        self._batch_end = batch_end
        self._schedulers = schedulers
        self._duration = duration
        self._consensus = consensus
        self._has_timed_loader = False
        self._stream = context.data.train_stream
        self._iterator: Iterator[Any] = iter(())

    def open(self) -> None:
        """Open the epoch's iterator, at the position where a resumed run left off."""
        context = self._context
        # a hook may have replaced the loaders since the last epoch, and the stream with them
        self._stream = context.data.train_stream
        loader = self._stream.loader
        self._iterator = context.data.batches(context.training.progress.epochs_completed)
        workers = getattr(loader, "num_workers", None)
        if self._has_timed_loader or workers is None:
            return
        self._has_timed_loader = True
        # one CPU is the main process's: where the workers have all others, more cannot help
        if workers + 1 < usable_cpus():
            self._iterator = time_first_batches(self._iterator, loader, context.trainer.device)

    def fetch(self) -> Any:
        """Return the next batch on its device, None if the loader yielded None, or `END`.

        Raises:
            UsageError: `StopTraining` came from the loader of one rank of several.
            DataError: the loader of one rank of several gave fewer batches than its length.
        """
        context, stream, requests = self._context, self._stream, self._context.requests
        trainer, module, hooks = context.trainer, context.module, context.hooks
        progress = context.training.progress
        if (
            # checked before the fetch: a batch that is not trained on must stay in the loader
            progress.batches_in_epoch >= stream.num_batches
            or 0 <= context.plan.max_steps <= progress.steps_completed
            or (requests.is_stopping and context.should_stop)
            or self._duration.is_over()
        ):
            return END
        if requests.pending_signal:
            requests.raise_pending_signal()
        # a skip that was asked for too late must not hit this batch, as no checkpoint holds it; the
        # one of a `StopTraining` stays, of which other ranks may not know yet
        requests.skips_batch &= requests.stop_requests > 0
        hooks.on_before_dataloader(trainer, module)
        context.batch.is_taken = True
        try:
            # only next() stands in the try. Around more code, a StopIteration that leaks out of a
            # hook or a step would silently end the epoch
            batch = next(self._iterator)
        except StopIteration:
            hooks.on_after_dataloader(trainer, module, None)
            self._accept_shortage()
            return END
        except StopTraining as request:
            hooks.on_after_dataloader(trainer, module, None)
            if self._consensus is not None:
                self._consensus.reject_lone_stop(request)
            context.stop_by(request)
            return END
        except BaseException as error:
            if isinstance(error, Exception):
                batch = progress.describe_batch(progress.batches_in_epoch + stream.is_ahead)
                add_note(error, f"in {batch}, while it was loaded")
                if advice := spawn_advice(error):
                    add_note(error, advice)
            # an error of the hook becomes a note on the loader's error, which is the cause
            call_and_note_errors(error, hooks.on_after_dataloader, trainer, module, None)
            raise
        # kept before the transfer: a resume compares it with the batch as the loader yields it
        # again
        stream.last.keep(batch)
        hooks.on_after_dataloader(trainer, module, batch)
        is_last = progress.batches_in_epoch + 1 >= stream.num_batches
        # ranks with unequal loaders all stop after the shortest, or the others would wait in the
        # reduction of a batch that this rank does not have
        if self._consensus is not None and self._consensus.is_last(is_last):
            is_last, stream.num_batches = True, progress.batches_in_epoch + 1
        context.batch.is_last = is_last
        # only now it is certain that the epoch goes on: after its last batch, whose number a wrong
        # length or a limit may hide, its validation comes first
        if self._schedulers.has_waiting_schedulers:
            self._schedulers.after_validation()
        if context.transfer.is_needed and batch is not None:
            batch = context.transfer(batch)
        return batch

    def close(self, *, is_complete: bool) -> None:
        """Close the epoch's iterator, which ends the loader's worker processes.

        Args:
            is_complete: whether all batches of the epoch are done, so that nothing ended it early.
        """
        # dropping the last reference to a DataLoader's iterator shuts its workers down
        self._iterator = iter(())
        self._stream.close(is_complete=is_complete)

    def release(self) -> None:
        """Drop the iterator of an epoch that an error ended, so that its workers end at once.

        The garbage collector finds an iterator together with the queues of its workers, and torch
        then waits 5 s for each worker.
        """
        self._iterator = iter(())

    def _accept_shortage(self) -> None:
        """Handle a loader that gave fewer batches than its length: step with the open window."""
        context, stream = self._context, self._stream
        done = context.training.progress.batches_in_epoch
        if self._consensus is not None:
            raise DataError(
                f"{shortage_message(stream.loader, 'training', done)} The other processes wait for "
                "this one."
            )
        stream.warn_of_shortage(done)
        stream.num_batches = done
        context.batch.is_last = True
        self._batch_end.step_open_window()


_SKIPPED = 3
"""First batches that are not timed: workers start and caches fill."""
_MEASURED = 20
"""Batches that are timed after those."""
_SLOW_FRACTION = 0.5
"""Fraction of the time spent waiting for the loader above which a warning is given."""
_MIN_SECONDS = 1.0
"""No warning is given if the timed batches took less than this in all."""


def time_first_batches(iterator: Iterator[Any], loader: Any, device: torch.device) -> Iterator[Any]:
    """Return an iterator over the same batches that times the first ones.

    It warns if training waits for the loader most of that time.

    Args:
        iterator: the batches of an epoch.
        loader: their DataLoader, with fewer workers than CPUs.
        device: where the batches are computed on.
    """
    # only the loader's text is kept: a reference would keep its workers alive in the frames of an
    # error
    return chain(
        _timed_batches(iterator, describe_loader(loader), loader.num_workers, device), iterator
    )


def _timed_batches(
    iterator: Iterator[Any], loader: str, workers: int, device: torch.device
) -> Iterator[Any]:
    """Yield an epoch's first batches, and warn if most of the time was spent waiting for them."""
    waited, began = 0.0, 0.0
    for number in range(_SKIPPED + _MEASURED):
        if number == _SKIPPED:
            waited, began = 0.0, time.perf_counter()
        before = time.perf_counter()
        try:
            batch = next(iterator)
        except StopIteration:
            return
        waited += time.perf_counter() - before
        yield batch
    # the GPU runs behind the host, so without this the elapsed time would leave out queued steps.
    # Once per run, so that no later step waits
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elapsed = time.perf_counter() - began
    if elapsed >= _MIN_SECONDS and waited > _SLOW_FRACTION * elapsed:
        max_workers = max(usable_cpus() - 1, 1)
        warn(
            f"the training waits for its loader {waited / elapsed:.0%} of the time, as measured "
            f"over {_MEASURED} batches: {loader} has num_workers={workers}. Try more, up to "
            f"{max_workers} on this machine, or load less for each sample.",
            TrainerHooksAdvice,
        )
