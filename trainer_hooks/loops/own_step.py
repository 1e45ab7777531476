"""The backward and the optimizer steps of a loop that the user writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from torch import Tensor
from torch.optim import Optimizer

from trainer_hooks.errors import ModuleError, UsageError
from trainer_hooks.loops.module_steps import check_loss
from trainer_hooks.loops.train_step import MissingLossCheck, TrainStep
from trainer_hooks.module.loop_module import LoopModule
from trainer_hooks.module.optimization import needs_closure

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_hooks.context.context import RunContext


class OwnStep(TrainStep):
    """The parts of a training step, which the user's loop calls one by one.

    With several optimizers each has its own steps in a batch, and the gradients that one has
    stepped with are cleared before the next backward.

    Args:
        context: the run context.

    Attributes:
        optimizers: the optimizers.
        reduces_windows: whether gradients are reduced as in automatic optimization, once a window;
            else in each backward of a window's last batch.
    """

    steps_several = True

    def __init__(self, context: RunContext) -> None:
        self._stepped: list[Optimizer] = []
        self._closes_window = True
        self._has_accumulated = False
        super().__init__(context)
        # FSDP's inner gradients of a window are apart from the parameters'. With several optimizers
        # there are no windows, and each backward leaves out the parameters of others.
        self.reduces_windows = context.processes.is_sharded and len(self.optimizers) <= 1

    @staticmethod
    def make_loss_check(context: RunContext) -> MissingLossCheck:
        """Return the check of batches without a backward."""
        return MissingBackwardCheck(context)

    def renew_training_step(self) -> None:
        """Set a step that refuses: the loop is the user's."""
        self.training_step = _no_step

    def refresh_optimizers(self) -> None:
        """Use the optimizers that the run has now."""
        self.optimizers = self.context.training.optimization.optimizers
        # of several the step is told each time which one is meant
        self.optimizer = self.optimizers[0] if len(self.optimizers) == 1 else None
        # not at each step: it looks at the signature
        self._evaluating = {
            id(optimizer) for optimizer in self.optimizers if needs_closure(optimizer)
        }
        self._clears_grads_directly = all(
            type(optimizer).zero_grad is Optimizer.zero_grad and "zero_grad" not in vars(optimizer)
            for optimizer in self.optimizers
        )

    def open_window(self, batch_idx: int) -> None:
        """Start an accumulation window: clear the gradients of the one before."""
        self._stepped, self._has_accumulated = [], False
        if len(self.optimizers) <= 1:
            super().open_window(batch_idx)
            return
        self.progress.has_gradients = False
        self.hooks.on_before_train_batch(self.trainer, self.module)
        for optimizer in self.optimizers:
            self.clear_gradients(optimizer, batch_idx)

    def begin(self, batch_idx: int, closes_window: bool) -> None:
        """Start a batch, before its forward."""
        self._closes_window = closes_window
        if self.sync is not None:
            self.sync.begin(closes_window)
            if self.progress.batches_in_window == 0 and not self.context.processes.is_sharded:
                # DistributedDataParallel does so in its forward, which is not called here
                self.context.processes.broadcast_module_buffers(self.module)
            self.gather_weights()
        if self.progress.batches_in_window == 0:
            self.open_window(batch_idx)

    def backward(self, loss: Tensor, batch_idx: int, **options: Any) -> Tensor | None:
        """Run the backward of a loss; return the loss for hooks, None if a hook skipped it.

        Raises:
            ModuleError: the loss is no tensor, or has several elements, or no gradient.
            UsageError: the gradients of the window's earlier batches were cleared.
        """
        if not isinstance(loss, Tensor):
            raise ModuleError(
                f"run.backward was given {loss!r} of type {type(loss).__qualname__}: it must be "
                "the tensor that the forward gave, without .item() or .numpy()."
            )
        if loss.ndim or not loss.requires_grad:
            check_loss(loss, "run.backward was given")
        if self._stepped:
            for optimizer in self._stepped:
                # as after a step in a plain loop: what it has stepped with must not be added to
                self.clear_gradients(optimizer, batch_idx)
            self._stepped = []
        if self._has_accumulated and not self._has_gradients():
            raise UsageError(
                f"the gradients were cleared inside an accumulation window of {self.accumulate} "
                f"batches, before {self.progress.describe_batch(batch_idx)}: those of the window's "
                "earlier batches are lost. Remove zero_grad() from the loop: a Run clears the "
                "gradients at the start of each window."
            )
        returned = self.differentiate(loss, **options)
        self._has_accumulated = not self._closes_window and self._has_gradients()
        return returned

    def _has_gradients(self) -> bool:
        """Return whether a parameter has a gradient, which the next backward adds to."""
        # of several optimizers each steps in every batch; FSDP keeps the gradients elsewhere
        if self.optimizer is None or self.reduces_windows:
            return False
        # one is enough: the user may drop those of some layers
        return any(
            parameter.grad is not None
            for group in self.optimizer.param_groups
            for parameter in group["params"]
        )

    def backward_synced(self, loss: Tensor, **options: Any) -> None:
        """Run the backward of one rank of several, and reduce its gradients in a window's last."""
        assert self.sync is not None
        if self.reduces_windows:
            self.module.backward(loss, **options)
            self.sync.finish_backward()
            return
        if self._closes_window:
            self.sync.prepare_manual_backward(loss)
        self.module.backward(loss, **options)
        if self._closes_window:
            self.sync.finish_manual_backward()

    def step(self, optimizer: Optimizer, closure: Callable[[], Any] | None) -> None:
        """Step an optimizer at the end of a window.

        Raises:
            UsageError: the optimizer evaluates the loss itself, and got no closure.
        """
        if closure is None and id(optimizer) in self._evaluating:
            kind = type(optimizer).__qualname__
            raise UsageError(
                f"run.step(): {kind} evaluates the loss itself. Write run.step(closure=closure), "
                "where closure() clears the gradients, calls run.backward(loss) and returns loss."
            )
        self._has_accumulated = False
        if closure is not None:
            self.step_with(optimizer, closure)
        else:
            self.step_optimizer(optimizer)
        self._stepped.append(optimizer)
        if self.sync is not None:
            self.gather_weights()

    def step_with(self, optimizer: Optimizer, closure: Callable[[], Any]) -> None:
        """Let an optimizer evaluate the loss itself, with the hooks before and after."""
        self.hooks.on_before_optimizer_step(self.trainer, self.module, optimizer)
        evaluates = id(optimizer) in self._evaluating

        def evaluate() -> Any:
            loss = closure()
            if loss is None and evaluates:
                raise UsageError(
                    f"run.step(closure=...): the closure returned None, and "
                    f"{type(optimizer).__qualname__} needs the loss. End it with `return loss`."
                )
            return loss

        optimizer.step(evaluate)
        self.progress.steps_completed += 1
        self.hooks.on_after_optimizer_step(self.trainer, self.module, optimizer)

    def end(self) -> None:
        """End a batch."""
        progress = self.progress
        self.precision.update_scale()
        if self.sync is not None:
            # with DDP the backwards have reduced all that there is
            closes_window = self._closes_window or not self.reduces_windows
            self.sync.end(closes_window, progress.has_gradients, progress.batches_completed)

    def has_stepped(self, optimizer: Optimizer) -> bool:
        """Return whether an optimizer has stepped since the last backward."""
        return optimizer in self._stepped

    def leave_out(self, batch_idx: int, closes_window: bool) -> None:
        """End a batch that the user's loop has left out, and step with the others of its window.

        Raises:
            ModuleError: no batch of an epoch without end was trained.
            UsageError: there are several ranks.
        """
        if self.sync is not None:
            self.refuse_to_skip()
        self.missing_losses.count(batch_idx)
        if closes_window and self.progress.has_gradients:
            self.update()

    def skip(self, batch_idx: int, closes_window: bool) -> dict[str, Any]:
        """Skip a batch.

        Raises:
            UsageError: there are several ranks: the others may wait for this one's gradients.
        """
        if self.sync is not None:
            self.refuse_to_skip()
        return super().skip(batch_idx, closes_window)

    def update(self) -> None:
        """Step with an accumulation window that the epoch's end leaves open."""
        super().update()
        self._stepped = list(self.optimizers)

    def refuse_to_skip(self) -> NoReturn:
        """Raise the error of a batch that one rank leaves out.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"rank {self.trainer.global_rank} left a batch out of its own loop: the other "
            "processes wait for its gradients. Train each batch, or leave out the same in all by "
            "their loader."
        )

    def gather_weights(self) -> None:
        """Let FSDP know that forwards follow, which the user's loop calls layer by layer."""
        # a Module of the user's own is called itself, as a whole
        if self.context.processes.is_sharded and isinstance(self.module, LoopModule):
            self.module()


class MissingBackwardCheck(MissingLossCheck):
    """Count the batches of an epoch for which the user's loop ran no backward."""

    cure = "Write run.backward(loss) and run.step()"
    cure_of_all = "Write run.backward(loss) and run.step() in the loop of run.batches(loader)"

    def _describe_event(self) -> str:
        return "the loop called no run.backward(loss)"


def _no_step(*_: Any) -> Any:
    raise UsageError("a Run has no training_step: the user's loop takes its place.")
