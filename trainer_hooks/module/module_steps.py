"""ModuleSteps: what a module defines, and what it may override of its training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from trainer_hooks.data import DataHooks, count_samples, count_tokens, split_batch
from trainer_hooks.errors import ModuleError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.optim import Optimizer

__all__ = ["ModuleSteps"]


class ModuleSteps(nn.Module, DataHooks):
    """The steps, the optimizers, and the moves of a training that a subclass may make its own."""

    # --- what a subclass defines ---

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the loss of a batch: a tensor, a dict with the key `loss`, or None to skip it."""
        raise ModuleError(f"{type(self).__qualname__} has no training_step.")

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a validation batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no validation_step.")

    def test_step(self, batch: Any, batch_idx: int) -> Any:
        """Evaluate a test batch; add `dataloader_idx` where there are several loaders."""
        raise ModuleError(f"{type(self).__qualname__} has no test_step.")

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        """Return the predictions for a batch: those of `forward` unless overridden."""
        raise ModuleError(f"{type(self).__qualname__} has no predict_step.")

    def configure_optimizers(self) -> Any:
        """Return optimizers and schedulers; see `trainer_hooks.module.optimization.parse`."""
        raise ModuleError(
            f"{type(self).__qualname__} has no configure_optimizers: define it, and return an "
            "optimizer such as torch.optim.Adam(self.parameters()), or None to train without one."
        )

    def configure_model(self) -> None:
        """Build layers late, once it is known where they go; called before optimizers exist."""

    def configure_callbacks(self) -> Any:
        """Return callbacks for this module's runs; they replace those of the same type and key."""
        return ()

    # --- what a subclass may override of the counting ---

    def num_samples(self, batch: Any) -> int:
        """Return the samples of a training batch, which `trainer.clock` adds up.

        Unless overridden: the first dimension of the first tensor in it, or 1 without a tensor.
        """
        return count_samples(batch)

    def num_tokens(self, batch: Any) -> int:
        """Return the tokens of a training batch, likewise.

        Unless overridden: the number of its `"input_ids"` if it is a mapping with those, or 0.
        """
        return count_tokens(batch)

    # --- what a subclass may override of the optimization ---

    def split_batch(self, batch: Any, microbatch_size: int) -> list[Any]:
        """Return a training batch in parts of at most so many samples, for `microbatch_size`.

        Raises:
            DataError: its tensors do not agree on how many samples there are.
        """
        return split_batch(batch, microbatch_size)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Compute the gradients of `loss`, which is scaled and divided for accumulation."""
        loss.backward(*args, **kwargs)  # type: ignore[no-untyped-call]

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Any,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """Step; `optimizer_closure` computes the gradients and must be called or handed on."""
        optimizer.step(closure=optimizer_closure)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear the gradients at the start of a window."""
        optimizer.zero_grad()

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clip the gradients of a window; they are complete and unscaled."""
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def clip_gradients(
        self,
        optimizer: Any,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Bound the gradients of an optimizer's parameters, by norm or by value.

        Raises:
            OptionError: the algorithm is neither.
        """
        if gradient_clip_algorithm not in (None, "norm", "value"):
            raise OptionError(
                f"clip_gradients(gradient_clip_algorithm={gradient_clip_algorithm!r}): must be "
                "'norm' or 'value'."
            )
        if gradient_clip_val is None:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if gradient_clip_algorithm == "value":
            nn.utils.clip_grad_value_(parameters, gradient_clip_val)
        else:
            nn.utils.clip_grad_norm_(parameters, gradient_clip_val)

    def lr_scheduler_step(self, scheduler: Any, metric: Any | None) -> None:
        """Step a scheduler; `metric` is its monitor's value where it has one."""
        if metric is None:
            scheduler.step()
        else:
            scheduler.step(metric)

    def on_validation_model_eval(self) -> None:
        """Set the mode that validation runs in."""
        self.eval()

    def on_validation_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before validation."""

    def on_test_model_eval(self) -> None:
        """Set the mode that testing runs in."""
        self.eval()

    def on_test_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before testing."""

    def on_predict_model_eval(self) -> None:
        """Set the mode that prediction runs in."""
        self.eval()

    def on_predict_model_train(self) -> None:
        """Called when every part of the module is back in the mode it had before prediction."""
