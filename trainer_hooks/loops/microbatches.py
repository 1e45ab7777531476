"""Train on one batch in microbatches, each with its own forward and backward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks.data.batch_splitting import samples_in
from trainer_hooks.errors import UsageError, add_note
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.metrics.microbatches import LogSnapshot, MicrobatchValues
from trainer_hooks.runtime import rng
from trainer_hooks.runtime.device import is_out_of_memory

if TYPE_CHECKING:
    from trainer_hooks.context.context import RunContext


class MicrobatchStep(TrainStep):
    """Automatic optimization of a batch in microbatches of at most `microbatch_size` samples.

    ::

        at the start of a window: clear the gradients
        for each microbatch:
            loss = training_step(microbatch, batch_idx)
            backward(loss * its fraction of the samples / batches of a window)
        at the end of a window: clip, step

    If the loss is a mean over samples, the gradients are those of the whole batch. So are logged
    values: those of the microbatches are weighted by their samples. Hooks of the forward, the loss
    and the backward are called for each microbatch, hooks of the batch once, with the whole batch.
    If one of them skips the batch (`trainer.skip_batch()`), the gradients of its earlier
    microbatches are removed and the later microbatches are not run.
    """

    # the joined outputs need the loss of each microbatch
    always_returns_outputs = True

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.metrics = context.training.metrics
        self.device = context.trainer.device
        size = context.plan.microbatch_size
        self.size = size if isinstance(size, int) else 0
        self._split = ours(self.module).split_batch
        self._opens_window = True

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Train on one batch; see `TrainStep`. The outputs hold the loss of the whole batch."""
        outputs = self.run_microbatches(batch, batch_idx, closes_window or self.closes_window_next)
        if self.sync is not None:
            self.end_synced_batch(closes_window)
        if closes_window and self.progress.has_gradients:
            self.update()
        return outputs

    def run_microbatches(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Run the forward and backward of each microbatch and return their joined outputs."""
        # changed for each microbatch below, and restored for a closure that runs the batch again
        closes_window_next = self.closes_window_next
        microbatches = self._split(batch, self.size)
        sizes = [samples_in(microbatch) for microbatch in microbatches]
        total = sum(sizes)
        outputs_of_parts: list[dict[str, Any]] = []
        values = MicrobatchValues(self.metrics)
        self._opens_window = True
        if self.progress.batches_in_window == 0:
            self.open_window(batch_idx)
        # `TrainStep.__call__` opens a window for each microbatch while the counter is at 0, which
        # would clear the gradients of the microbatches before: only the call above may.
        self._opens_window = self.has_skipped_loss = False
        state_before = self._gradients_if_skippable(len(microbatches))
        for microbatch, size in zip(microbatches, sizes, strict=True):
            # the step divides the loss by this, which weights each microbatch by its fraction of
            # the samples
            self.accumulate = self.context.batch.window * total / size
            self.metrics.batch = microbatch
            # gradients are reduced over the ranks once, in the backward of the last microbatch
            self.closes_window_next = closes_window and len(outputs_of_parts) + 1 == len(
                microbatches
            )
            # `closes_window=False`: the step is made once, after all microbatches.
            outputs_of_parts.append(
                TrainStep.__call__(self, microbatch, batch_idx, closes_window=False)
            )
            values.take(size)
            if self.has_skipped_loss:
                self._restore_gradients(state_before, has_other_gradients=len(outputs_of_parts) > 1)
                outputs_of_parts = [{}]
                break
        self.closes_window_next = closes_window_next
        values.combine()
        self.metrics.batch = batch
        return _join_outputs(outputs_of_parts, sizes)

    def _gradients_if_skippable(self, microbatches: int) -> tuple[bool, list[Tensor | None]] | None:
        """Return the window's gradients so far if a hook may skip the batch between microbatches.

        They are copied only if a callback overrides `on_before_backward`.
        """
        if microbatches == 1 or "on_before_backward" not in self.hooks.listened:
            return None
        return self.progress.has_gradients, _copied_gradients(self.module)

    def _restore_gradients(
        self, state_before: tuple[bool, list[Tensor | None]] | None, *, has_other_gradients: bool
    ) -> None:
        """Remove the batch from the step, if some of its microbatches have gradients already.

        Raises:
            UsageError: no hook announced that the batch may be skipped, so there is no copy.
        """
        if not has_other_gradients:
            return
        if state_before is None:
            raise UsageError(
                "trainer.skip_batch() was called for a later part of a batch (microbatch_size), "
                "and nobody listens to on_before_backward: the gradients of its first parts cannot "
                "be taken back. Call it in that hook, which may be the module's own."
            )
        self.progress.has_gradients, gradients = state_before
        for parameter, gradient in zip(self.module.parameters(), gradients, strict=True):
            parameter.grad = gradient

    def open_window(self, batch_idx: int) -> None:
        """Start an accumulation window, before its first microbatch."""
        if self._opens_window:
            super().open_window(batch_idx)

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Skip a batch; see `TrainStep`."""
        self._opens_window = True
        return super().skip(batch_idx, closes_window)


class AutoMicrobatchStep(MicrobatchStep):
    """The same with the largest microbatches that fit into memory: `microbatch_size="auto"`.

    A batch that runs out of memory is run again in microbatches of half the size, after gradients,
    buffers, random state and logged values were restored.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.size = self.progress.microbatch_size

    def run_microbatches(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Run microbatches of the known size, and of smaller sizes if memory runs out."""
        samples = samples_in(batch)
        # no size is known yet: begin with the whole batch
        if self.progress.microbatch_size == 0:
            self.size = samples
        while True:
            state_before = _StateBeforeBatch(self)
            try:
                return super().run_microbatches(batch, batch_idx, closes_window)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if min(self.size, samples) <= 1:
                    add_note(
                        error,
                        "Trainer(microbatch_size='auto'): not even a single sample fits into the "
                        "memory. Make the model or the sample smaller, or use a lower precision.",
                    )
                    raise
            # outside the `except`: the frames of the error refer to the tensors that were too
            # large
            state_before.restore()
            # the last batch of an epoch may be smaller than the size, which then says nothing
            tried_size = min(self.size, samples)
            # kept in the progress too, so that a resume does not begin with the whole batch again
            self.size = self.progress.microbatch_size = (tried_size + 1) // 2
            # the allocator's cache is split into blocks for the larger size
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            log.warning(
                "microbatch_size='auto': %d samples do not fit into the memory: going on with %d "
                "at a time.",
                tried_size,
                self.size,
            )


class _StateBeforeBatch:
    """A snapshot of all state that a batch changes before the optimizer's step."""

    def __init__(self, step: MicrobatchStep) -> None:
        self._step = step
        module, progress = step.module, step.progress
        self._rng = rng.capture()
        # buffers such as the statistics of BatchNorm change in the forward
        self._buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        # at the start of a window gradients are cleared anyway, so there is nothing to copy
        is_open = progress.batches_in_window > 0
        self._gradients = _copied_gradients(module) if is_open else None
        self._has_gradients = progress.has_gradients
        self._logged = LogSnapshot(step.metrics, module)

    def restore(self) -> None:
        """Restore the snapshot."""
        module, progress = self._step.module, self._step.progress
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in self._buffers:
                    buffer.copy_(self._buffers[name])
            for index, parameter in enumerate(module.parameters()):
                parameter.grad = None if self._gradients is None else self._gradients[index]
        progress.has_gradients = self._has_gradients
        self._logged.restore(self._step.device)
        rng.restore(self._rng)


def _copied_gradients(module: nn.Module) -> list[Tensor | None]:
    """Return copies of a module's gradients, in the order of its parameters."""
    # copies: the backward accumulates into `.grad` in place
    return [None if p.grad is None else p.grad.clone() for p in module.parameters()]


def _join_outputs(outputs_of_parts: list[dict[str, Any]], sizes: list[int]) -> dict[str, Any]:
    """Return the outputs of the microbatches as those of one batch.

    The loss is the mean over samples. Tensors with one entry per sample are concatenated; any other
    value becomes a list with one entry per microbatch.
    """
    # a microbatch was skipped, so the batch has no loss
    if not all(outputs_of_parts):
        return {}
    if len(outputs_of_parts) == 1:
        return outputs_of_parts[0]
    total = sum(sizes)
    weights = [size / total for size in sizes]
    losses = [
        outputs["loss"] * weight for outputs, weight in zip(outputs_of_parts, weights, strict=True)
    ]
    joined: dict[str, Any] = {"loss": torch.stack(losses).sum()}
    for name in outputs_of_parts[0]:
        if name == "loss":
            continue
        values = [outputs.get(name) for outputs in outputs_of_parts]
        is_per_sample = all(
            isinstance(value, Tensor) and value.ndim and value.shape[0] == size
            for value, size in zip(values, sizes, strict=True)
        )
        joined[name] = torch.cat(values) if is_per_sample else values  # type: ignore[arg-type]
    return joined
