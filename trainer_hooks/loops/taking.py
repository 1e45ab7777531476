"""The batches of an epoch of training, one at a time, until something says that it is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.data import shortage
from trainer_hooks.errors import DataError, StopTraining
from trainer_hooks.hooks import call_noting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer_hooks.context import RunContext
    from trainer_hooks.loops.agreement import Agreement
    from trainer_hooks.loops.batch_end import BatchEnd
    from trainer_hooks.loops.duration import Duration

__all__ = ["END", "Taking"]

END = object()
"""Stands for no batch: the epoch, or the training, is at its end."""


class Taking:
    """Take batches from the training stream, with the hooks around that.

    Args:
        context: the run.
        end: what follows a batch.
        duration: what `max_duration` is measured by, or None.
        agreement: what several processes agree with, or None.
    """

    def __init__(
        self,
        context: RunContext,
        end: BatchEnd,
        duration: Duration | Agreement | None,
        agreement: Agreement | None,
    ) -> None:
        self._context = context
        self._end = end
        self._duration = duration
        self._agreement = agreement
        self._is_timed = False
        self._stream = context.data.training
        self._iterator: Iterator[Any] = iter(())

    def open(self) -> None:
        """Open the epoch, or what a resume left of it."""
        self._stream = self._context.data.training
        self._iterator = self._opened()

    def take(self) -> Any:
        """Return the next batch, on its device, None if the loader gave that, or `END`.

        Raises:
            UsageError: the loader of one of several processes asked to stop.
            DataError: the loader of one of several processes gave fewer batches than it said.
        """
        context, stream, asked = self._context, self._stream, self._context.asked
        trainer, module, hooks = context.trainer, context.module, context.hooks
        progress = context.training.progress
        if (
            progress.batches_in_epoch >= stream.num_batches
            or 0 <= context.plan.max_steps <= progress.steps_completed
            or (asked.is_stopping and context.has_to_stop)
            or (self._duration is not None and self._duration.is_over())
        ):
            return END
        if asked.pending_signal:
            asked.heed_signal()
        hooks.on_before_dataloader(trainer, module)
        context.batch.is_taken = True
        try:
            batch = next(self._iterator)
        except StopIteration:
            hooks.on_after_dataloader(trainer, module, None)
            self._end_early()
            return END
        except StopTraining as request:
            hooks.on_after_dataloader(trainer, module, None)
            if self._agreement is not None:
                self._agreement.refuse_alone(request)
            context.stop_by(request)
            return END
        except BaseException as error:
            call_noting(error, hooks.on_after_dataloader, trainer, module, None)
            raise
        stream.last.keep(batch)
        hooks.on_after_dataloader(trainer, module, batch)
        is_last = progress.batches_in_epoch + 1 >= stream.num_batches
        if self._agreement is not None and self._agreement.is_last(is_last):
            is_last, stream.num_batches = True, progress.batches_in_epoch + 1
        context.batch.is_last = is_last
        if context.transfer.is_needed and batch is not None:
            batch = context.transfer(batch)
        return batch

    def close(self, *, is_complete: bool) -> None:
        """End the epoch's batches; a loader's workers are not kept for what comes next.

        Args:
            is_complete: whether all batches of the epoch were done; else something ended it.
        """
        self._iterator = iter(())
        self._stream.close(is_complete=is_complete)

    def _opened(self) -> Iterator[Any]:
        """Return the loader's batches; with few workers the first of a fit may be timed."""
        context, loader = self._context, self._stream.loader
        iterator = context.data.batches(context.training.progress.epochs_completed)
        workers = getattr(loader, "num_workers", None)
        if self._is_timed or workers is None:
            return iterator
        self._is_timed = True
        from trainer_hooks.loops.loading_watch import usable_cpus, watched

        if workers + 1 >= usable_cpus():
            return iterator
        return watched(iterator, loader, context.trainer.device)

    def _end_early(self) -> None:
        """Note that the loader gave fewer batches than it said, and step with what is open."""
        context, stream = self._context, self._stream
        done = context.training.progress.batches_in_epoch
        if self._agreement is not None:
            raise DataError(
                f"{shortage(stream.loader, 'training', done)} The other processes wait for this "
                "one."
            )
        stream.warn_of_shortage(done)
        stream.num_batches = done
        context.batch.is_last = True
        self._end.step_with_rest()
