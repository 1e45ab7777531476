"""Gradients of several processes, averaged by torch's DistributedDataParallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from trainer_hooks.errors import OptimizationError, UsageError
from trainer_hooks.runtime.carried import CarriedBit
from trainer_hooks.runtime.comm_hook import is_plain_mean, register_hook
from trainer_hooks.runtime.unreached import require_gradients

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.runtime.process_group import ProcessGroup

__all__ = ["GradientSync"]


class _Step(nn.Module):
    """A training step as the forward of a module, which DistributedDataParallel can wrap."""

    def __init__(
        self, module: nn.Module, step: Callable[[Any, int], Any], bit: CarriedBit | None
    ) -> None:
        super().__init__()
        self.module = module
        self.bit = bit  # the last one, so that it has no bucket of its own
        self._run = step

    def forward(self, batch: Any, batch_idx: int, is_left_out: bool = False) -> Any:
        """Return what the step returns; of a batch that is left out, a zero with all gradients."""
        if is_left_out:
            return _zero_of(self.module)
        return self._run(batch, batch_idx)


class GradientSync:
    """Average the gradients of a window over all processes, in the backward of its last forward.

    The module is not changed: what is wrapped is the step. `begin` and `end` stand around each
    batch. Every process takes part in the communication of every window, whatever its own batches
    come to; so a batch that is left out here counts as one whose gradients are zero.

    Args:
        module: what is trained.
        step: runs a training batch.
        processes: all of them.
        is_manual: whether the step itself calls for the backward.

    Attributes:
        is_begun: whether a batch is begun, and not ended.
        has_wish: says whether this process has something to agree on with the others, which is
            told to them with the gradients.
    """

    def __init__(
        self,
        module: nn.Module,
        step: Callable[[Any, int], Any],
        processes: ProcessGroup,
        *,
        is_manual: bool = False,
    ) -> None:
        self._module = module
        self._own_step = step
        self._processes = processes
        self._alarm = processes.alarm
        self._is_manual = is_manual
        self._is_first = True
        self.is_begun = False
        self.has_wish: Callable[[], bool] = bool
        self._bit: CarriedBit | None = None
        self._is_wished = True
        self._is_due = False
        self._is_reduced = False
        self._windows = 0
        self._ended_in: Any = None
        self._parameters: list[nn.Parameter] = []
        self._ddp: DistributedDataParallel | None = None
        self.refresh(is_window_open=False)

    def step(self, batch: Any, batch_idx: int) -> Any:
        """Run the step, so that the backward of what it returns is averaged if it is to be."""
        if self._ddp is None:
            return self._own_step(batch, batch_idx)
        return self._ddp(batch, batch_idx)

    def is_wished(self) -> bool:
        """Return whether any process had a wish in the window; also where that is not known."""
        is_wished, self._is_wished = self._is_wished, self._bit is None
        return is_wished

    def refresh(self, *, is_window_open: bool) -> None:
        """Begin an epoch, or go on in one: look whether the module has the same parameters.

        Args:
            is_window_open: whether it is gone on with inside a window.
        """
        found = list(self._module.parameters())
        if len(found) != len(self._parameters) or any(
            one is not other for one, other in zip(found, self._parameters, strict=True)
        ):
            self._wrap()
        self._is_first = not is_window_open

    def begin(self, closes_window: bool) -> None:
        """Begin a forward; the gradients are averaged in its backward if it closes the window."""
        if self._is_first:
            flags = [parameter.requires_grad for parameter in self._parameters]
            if flags != self._flags:
                self._wrap()
        self.is_begun, self._is_due, self._is_reduced = True, closes_window, False
        if self._ddp is not None:
            # buffers are rank 0's at the first forward of a window, which all processes have
            self._set(closes_window and not self._is_manual, self._is_first)
        self._is_first = False
        if closes_window or self._is_manual:
            self._alarm.begin_meeting("the gradients")

    def backward(self, loss: Tensor) -> None:
        """Run the backward of a loss; with its gradients the others learn of a wish."""
        torch.autograd.backward(*self._roots(loss))

    def before_backward(self, loss: Tensor) -> None:
        """Tell the others of a wish before a backward that the module runs itself."""
        (_, *parameters), (_, *gradients) = self._roots(loss)
        if parameters:
            torch.autograd.backward(parameters, gradients)

    def note_backward(self) -> None:
        """Note that a backward is done.

        Raises:
            OptimizationError: a parameter got no gradient, for which the others wait.
        """
        if not self._is_due or self._ddp is None:
            return
        self._is_due, self._is_reduced = False, True
        self._alarm.end_meeting()
        if self._bit is not None:
            self._is_wished |= self._bit.receive()
        if self._processes.options.find_unused_parameters:
            return
        if any(p.grad is None and p.requires_grad for p in self._parameters):
            require_gradients(self._module, type(self._module).__qualname__, "DDPStrategy")

    def leave_out(self, closes_window: bool, batches: int) -> None:
        """Take part in a batch that is left out here, if the others' forward calls for it.

        Args:
            closes_window: whether the batch is its window's last.
            batches: how many were done before it.

        Raises:
            UsageError: the window is closed, and the others step.
        """
        if self._ended_in == batches:
            raise UsageError(
                f"StopTraining was raised in rank {self._processes.global_rank} between the "
                "gradients of a window and its end: the other processes make a step that this one "
                "would not. Call trainer.stop() there, or raise it in another hook."
            )
        if not self.is_begun:
            self.begin(closes_window)
            if self._ddp is not None:
                self._ddp(None, -1, is_left_out=True)

    def end(self, closes_window: bool, has_gradients: bool, batches: int) -> bool:
        """End a batch; return whether the window has gradients, of any process.

        Args:
            closes_window: whether the batch is its window's last.
            has_gradients: whether there are any of this process.
            batches: how many batches were done before it.
        """
        self.is_begun = False
        self._alarm.end_meeting()
        if not closes_window or self._is_manual:
            return has_gradients
        self._windows += 1
        self._is_first, self._ended_in = True, batches
        has_gradients = has_gradients or self._is_reduced
        if self._ddp is None:
            return has_gradients
        what = f"left_out/{self._windows}"
        if not has_gradients:
            self._alarm.count(what, 1)
        if not self._is_reduced:
            self._contribute_nothing()
        if has_gradients or self._alarm.count(what, 0) < self._processes.world_size:
            return True
        for parameter in self._parameters:
            parameter.grad = None
        return False

    def prepare(self, loss: Tensor) -> None:
        """Average the gradients in the backward of `loss`, which the step calls for itself."""
        if self._ddp is None:
            return
        self._ddp.require_backward_grad_sync = True
        self._prepare([loss])

    def finish_manual(self) -> None:
        """Note that a backward that the step called for is done."""
        if self._ddp is not None:
            self._ddp.require_backward_grad_sync = False
        self._is_first = True

    def mean(self, loss: Tensor) -> Tensor:
        """Return the mean of a loss over all processes, for what decides by it."""
        found: Tensor = self._processes.reduce(loss)
        return found

    def _wrap(self) -> None:
        self._parameters = list(self._module.parameters())
        self._flags = [parameter.requires_grad for parameter in self._parameters]
        self._ddp, self._bit, self._is_wished = None, None, True
        trained = [parameter for parameter in self._parameters if parameter.requires_grad]
        if trained:
            options, group = self._processes.options, self._processes.training_group
            if not self._is_manual and is_plain_mean(options):
                self._bit = CarriedBit(trained[-1])
            with self._alarm.waiting("DistributedDataParallel"):
                self._ddp = DistributedDataParallel(
                    _Step(self._module, self._own_step, self._bit),
                    process_group=group,
                    **options.arguments(),
                )
            register_hook(self._ddp, options, group)
        self._is_first = True

    def _contribute_nothing(self) -> None:
        """Take part in the communication of a window with gradients of zero."""
        assert self._ddp is not None
        options = self._processes.options
        if options.static_graph:
            raise OptimizationError(
                f"rank {self._processes.global_rank} left a batch out, but "
                "DDPStrategy(static_graph=True) says that all steps are alike: leave it out."
            )
        zero = _zero_of(self._module)
        self._ddp.require_backward_grad_sync = True
        self._prepare([zero])
        with self._alarm.waiting("the gradients"):
            torch.autograd.backward(*self._with_wish(zero))
        if self._bit is not None:
            self._is_wished |= self._bit.receive()

    def _roots(self, loss: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return what a batch's backward begins at, and the gradients there."""
        if not self._is_due:
            return [loss], [None]
        if self._bit is not None and self._processes.options.find_unused_parameters:
            self._prepare([loss])  # torch has searched for what is in use, without the bit
        return self._with_wish(loss)

    def _with_wish(self, loss: Tensor) -> tuple[list[Tensor], list[Tensor | None]]:
        """Return where a reduced backward begins: a loss and, if it tells of wishes, the bit."""
        if self._bit is None:
            return [loss], [None]
        parameter, gradient = self._bit.root(self.has_wish())
        return [loss, parameter], [None, gradient]

    def _set(self, is_reduced: bool, shares_buffers: bool) -> None:
        """Tell torch what the next forward and its backward are for, where it is anything new."""
        ddp = self._ddp
        assert ddp is not None
        if ddp.require_backward_grad_sync is not is_reduced:
            ddp.require_backward_grad_sync = is_reduced
        if ddp.require_forward_param_sync is not shares_buffers:
            ddp.require_forward_param_sync = shares_buffers

    def _prepare(self, outputs: list[Tensor]) -> None:
        """Tell torch that a backward follows which is to be averaged."""
        assert self._ddp is not None
        self._ddp.require_forward_param_sync = True
        reducer = self._ddp.reducer
        reducer._rebuild_buckets()  # noqa: SLF001 - as forward does, and Lightning
        if self._ddp.find_unused_parameters and not self._ddp.static_graph:
            bits = [] if self._bit is None else [self._bit.alias()]
            reducer.prepare_for_backward([*outputs, *bits])
        else:
            reducer.prepare_for_backward([])


def _zero_of(module: nn.Module) -> Tensor:
    """Return a zero on which all trained parameters have an influence of zero."""
    parts = [(p.sum() * 0).float() for p in module.parameters() if p.requires_grad]
    return torch.stack(parts).sum()
