"""One training batch in several parts, each with a forward and a backward of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer_hooks._log import log
from trainer_hooks.data import samples_in
from trainer_hooks.errors import UsageError, add_note, message_of
from trainer_hooks.loops.train_step import TrainStep
from trainer_hooks.metrics import LoggedBefore, PartialValues
from trainer_hooks.runtime import rng

if TYPE_CHECKING:
    from trainer_hooks.context import RunContext

__all__ = ["FittingStep", "MicrobatchStep", "is_out_of_memory"]


class MicrobatchStep(TrainStep):
    """Automatic optimization of a batch in parts of at most `microbatch_size` samples.

    ::

        at the start of a window: clear the gradients
        for each part:
            loss = training_step(part, batch_idx)
            backward(loss * its share of the samples / batches of a window)
        at the end of a window: clip, step

    For a loss that is a mean over samples the gradients are those of the whole batch. So is what is
    logged: the values of the parts count by their samples. Hooks of the forward, the loss and the
    backward fire for each part, those of the batch once, with the whole of it. Where one of them
    leaves the batch out (`trainer.skip_batch()`), so are the parts before it, whose gradients are
    taken back, and those that follow it are not run.
    """

    returns_outputs = True

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.metrics = context.training.metrics
        self.device = context.trainer.device
        size = context.plan.microbatch_size
        self.size = size if isinstance(size, int) else 0
        self._window = context.plan.accumulate_grad_batches
        self._is_first = True

    def set_window(self, batches: int) -> None:
        """Let so many batches make one step."""
        self._window = batches

    def __call__(self, batch: Any, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Take one batch in; see `TrainStep`. The loss of the outputs is that of all parts."""
        outputs = self.run_parts(batch, batch_idx)
        if closes_window and self.progress.has_gradients:
            self.update()
        return outputs

    def run_parts(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Run the forward and backward of each part; return their outputs as those of one."""
        parts = self.module.split_batch(batch, self.size)
        sizes = [samples_in(part) for part in parts]
        total = sum(sizes)
        found: list[dict[str, Any]] = []
        values = PartialValues(self.metrics)
        self._is_first = True
        if self.progress.batches_in_window == 0:
            self.open_window(batch_idx)
        self._is_first = self.has_skipped = False
        before = self._before(len(parts))
        for part, size in zip(parts, sizes, strict=True):
            self.accumulate = self._window * total / size
            self.metrics.batch = part
            found.append(TrainStep.__call__(self, part, batch_idx, closes_window=False))
            values.take(size)
            if self.has_skipped:
                self._take_back(before, is_begun=len(found) > 1)
                found = [{}]
                break
        values.combine()
        self.metrics.batch = batch
        return _joined(found, sizes)

    def _before(self, parts: int) -> tuple[bool, list[Tensor | None]] | None:
        """Return the window's gradients so far if a hook may leave the batch out amid its parts.

        They are copied where somebody listens to the hook that is for it, and nowhere else.
        """
        if parts == 1 or "on_before_backward" not in self.hooks.listened:
            return None
        gradients = [None if p.grad is None else p.grad.clone() for p in self.module.parameters()]
        return self.progress.has_gradients, gradients

    def _take_back(
        self, before: tuple[bool, list[Tensor | None]] | None, *, is_begun: bool
    ) -> None:
        """Let the batch take no part in the step, if parts of it have gradients already.

        Raises:
            UsageError: nobody could know that it would be left out.
        """
        if not is_begun:
            return
        if before is None:
            raise UsageError(
                "trainer.skip_batch() was called for a later part of a batch (microbatch_size), "
                "and nobody listens to on_before_backward: the gradients of its first parts cannot "
                "be taken back. Call it in that hook, which may be the module's own."
            )
        self.progress.has_gradients, gradients = before
        for parameter, gradient in zip(self.module.parameters(), gradients, strict=True):
            parameter.grad = gradient

    def open_window(self, batch_idx: int) -> None:
        """Begin to accumulate, before the first part of a window."""
        if self._is_first:
            super().open_window(batch_idx)

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Leave one batch out; see `TrainStep`."""
        self._is_first = True
        return super().skip(batch_idx, closes_window)


class FittingStep(MicrobatchStep):
    """The same, with the largest parts that fit into memory: `microbatch_size="auto"`.

    A batch for which the memory is not enough is run again in parts of half the size, from where it
    began: gradients, buffers, random numbers and logged values are put back first.
    """

    def __init__(self, context: RunContext) -> None:
        super().__init__(context)
        self.size = self.progress.microbatch_size

    def run_parts(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        """Run the parts of the size that is known, and of smaller ones if need be."""
        samples = samples_in(batch)
        if self.progress.microbatch_size == 0:
            self.size = samples
        while True:
            before = _Before(self)
            try:
                return super().run_parts(batch, batch_idx)
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
            # outside the `except`: the error's frames hold the tensors that were too large
            before.put_back()
            self._halve(samples)

    def _halve(self, samples: int) -> None:
        tried = min(self.size, samples)
        self.size = self.progress.microbatch_size = (tried + 1) // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        log.warning(
            "microbatch_size='auto': %d samples do not fit into the memory: going on with %d at "
            "a time.",
            tried,
            self.size,
        )


class _Before:
    """What a batch changes on its way, as it was before."""

    def __init__(self, step: MicrobatchStep) -> None:
        self._step = step
        module, progress = step.module, step.progress
        self._rng = rng.capture()
        self._buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
        # at the start of a window gradients are cleared anyway
        is_open = progress.batches_in_window > 0
        self._gradients: dict[str, Tensor | None] | None = None
        if is_open:
            self._gradients = {
                name: None if p.grad is None else p.grad.clone()
                for name, p in module.named_parameters()
            }
        self._has_gradients = progress.has_gradients
        self._logged = LoggedBefore(step.metrics, module)

    def put_back(self) -> None:
        """Put it back."""
        module, progress = self._step.module, self._step.progress
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in self._buffers:
                    buffer.copy_(self._buffers[name])
            for name, parameter in module.named_parameters():
                parameter.grad = None if self._gradients is None else self._gradients[name]
        progress.has_gradients = self._has_gradients
        self._logged.put_back(self._step.device)
        rng.restore(self._rng)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is not enough memory, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = message_of(error)
    return isinstance(error, RuntimeError) and (
        "out of memory" in text
        or "can't allocate memory" in text
        or "not enough memory" in text
        or "CUBLAS_STATUS_ALLOC_FAILED" in text
    )


def _joined(found: list[dict[str, Any]], sizes: list[int]) -> dict[str, Any]:
    """Return the outputs of parts as those of one batch.

    The loss is the mean by samples. Tensors with one entry for each sample are put together; of
    anything else there is a list with the value of each part.
    """
    if not all(found):  # a part was left out: there is no loss of the whole
        return {}
    if len(found) == 1:
        return found[0]
    total = sum(sizes)
    shares = [size / total for size in sizes]
    losses = [outputs["loss"] * share for outputs, share in zip(found, shares, strict=True)]
    joined: dict[str, Any] = {"loss": torch.stack(losses).sum()}
    for name in found[0]:
        if name == "loss":
            continue
        values = [outputs.get(name) for outputs in found]
        is_each = all(
            isinstance(value, Tensor) and value.ndim and value.shape[0] == size
            for value, size in zip(values, sizes, strict=True)
        )
        joined[name] = torch.cat(values) if is_each else values  # type: ignore[arg-type]
    return joined
