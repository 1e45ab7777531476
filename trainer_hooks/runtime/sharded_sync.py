"""Gradients of processes that each have a shard of the weights, reduced by `fully_shard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import UsageError
from trainer_hooks.runtime.sharded_tensors import hold_gradients
from trainer_hooks.runtime.unreached import require_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks.runtime.process_group import ProcessGroup

__all__ = ["ShardedSync"]


class ShardedSync:
    """What `GradientSync` is for whole weights, for shards of them.

    Every forward and backward gathers weights from all processes, so that none can leave a batch
    out that others train with.

    Args:
        module: what is trained, sharded.
        step: runs a training batch.
        processes: all of them.
        is_manual: whether the step itself calls for the backward.

    Attributes:
        is_begun: whether a batch is begun, and not ended.
        has_wish: says whether this process has something to agree on with the others.
    """

    def __init__(
        self,
        module: Any,
        step: Callable[[Any, int], Any],
        processes: ProcessGroup,
        *,
        is_manual: bool = False,
    ) -> None:
        self.step = step
        self.is_begun = False
        self.has_wish: Callable[[], bool] = bool
        self._module = module
        self._processes = processes
        self._alarm = processes.alarm
        self._is_manual = is_manual
        self._is_first = True
        self._is_synced: bool | None = None
        self._has_run = self._is_reduced = False
        self._ended_in: Any = None

    def is_wished(self) -> bool:
        """Return whether any process had a wish in the window: that is not known."""
        return True

    def backward(self, loss: Tensor) -> None:
        """Run the backward of a loss."""
        loss.backward()  # type: ignore[no-untyped-call]

    def before_backward(self, loss: Tensor) -> None:
        """Do nothing: what fully_shard reduces carries no wish."""

    def refresh(self, *, is_window_open: bool) -> None:
        """Begin an epoch, or go on in one.

        Args:
            is_window_open: whether it is gone on with inside a window.
        """
        self._is_first = not is_window_open

    def begin(self, closes_window: bool) -> None:
        """Begin a forward; the gradients are reduced in its backward if it closes the window."""
        if self._is_first:
            hold_gradients(self._module, {})
            self._processes.share_buffers(self._module)
            self._is_first = False
        self._set_synced(closes_window or self._is_manual)
        self.is_begun, self._has_run, self._is_reduced = True, False, False
        self._alarm.begin_meeting("weights or gradients")

    def note_backward(self) -> None:
        """Note that a backward is done.

        Raises:
            OptimizationError: a parameter got no gradient.
        """
        self._alarm.end_meeting()
        self._has_run, self._is_reduced = True, bool(self._is_synced)
        if self._is_synced:
            require_gradients(self._module, "the module", "FSDPStrategy")

    def leave_out(self, closes_window: bool, batches: int) -> None:
        """Leave a batch out, which all processes must.

        Args:
            closes_window: whether the batch is its window's last.
            batches: how many were done before it.

        Raises:
            UsageError: it is begun, so that the others wait for what does not come.
        """
        if self.is_begun or self._ended_in == batches:
            raise UsageError(
                f"StopTraining was raised in rank {self._processes.global_rank} inside a training "
                "batch, whose weights and gradients the other processes have a part in. Call "
                "trainer.stop() there, or raise it before the batch in all of them."
            )
        self.begin(closes_window)

    def end(self, closes_window: bool, has_gradients: bool, batches: int) -> bool:
        """End a batch; return whether the window has gradients.

        Args:
            closes_window: whether the batch is its window's last.
            has_gradients: whether there are any.
            batches: how many batches were done before it.
        """
        self.is_begun = False
        self._alarm.end_meeting()
        if self._is_manual:
            return has_gradients
        if not self._has_run:
            # the others must come here, too; the watch ends a run in which they do not
            self._processes.barrier("a batch without a loss, which FSDP has all leave out or none")
        if not closes_window:
            return has_gradients
        self._is_first, self._ended_in = True, batches
        if has_gradients and not self._is_reduced:
            self._reduce_held()
        return has_gradients

    def prepare(self, loss: Tensor) -> None:
        """Do nothing: each backward that a step calls for is reduced."""

    def finish_manual(self) -> None:
        """Note that a backward that the step called for is done."""
        self._is_first = False

    def mean(self, loss: Tensor) -> Tensor:
        """Return the mean of a loss over all processes, for what decides by it."""
        found: Tensor = self._processes.reduce(loss)
        return found

    def _set_synced(self, is_synced: bool) -> None:
        if is_synced is not self._is_synced:
            self._module.set_requires_gradient_sync(is_synced)
            self._is_synced = is_synced

    def _reduce_held(self) -> None:
        """Reduce what a window holds whose last batch was left out."""
        with self._alarm.waiting("gradients"):
            self._module.unshard()
            # what torch calls at the end of a backward, for layers that had no part in it
            self._module._get_fsdp_state()._root_post_backward_final_callback()  # noqa: SLF001
