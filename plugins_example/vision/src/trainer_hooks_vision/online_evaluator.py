"""SSLOnlineEvaluator: how much a self-supervised model's representations know of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer_hooks import Callback
from trainer_hooks.errors import DataError, OptionError
from trainer_hooks.runtime.rng import isolated
from trainer_hooks_vision.head import Head
from trainer_hooks_vision.option_checks import check_count, check_number
from trainer_hooks_vision.pictures import (
    check_callable,
    evaluating,
    inputs_of,
    targets_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from trainer_hooks import Module, Trainer

__all__ = ["SSLOnlineEvaluator"]

_WHERE = "SSLOnlineEvaluator"


class SSLOnlineEvaluator(Callback):
    """Train a small classifier beside a self-supervised model, on what that makes of its inputs.

    After each training batch the classifier is given the model's representations of it, and trained
    for a step to tell their classes, which the model itself does not see. How well it does tells
    how much of the classes is in the representations: `online_train_loss` and `online_train_acc`
    are logged for each step, `online_val_loss` and `online_val_acc` for each validation.

    The model is trained as it would be without: the representations are made in eval mode, without
    gradients, and with random numbers that are not those of the training; the classifier has its
    own optimizer (Adam), and its own random numbers. Where several processes train, each has one of
    its own, and a checkpoint has that of the main process.

    The representations are what the module's method `representations(inputs)` returns if it has
    one, else what the module returns, called with the inputs. Of a tuple the first is taken; they
    are flattened to `(samples, z_dim)`.

    Args:
        z_dim: how many numbers represent a sample.
        drop_p: the share of them that is left out in training.
        hidden_dim: the width of the hidden layer of an MLP; None for a linear classifier.
        num_classes: how many classes there are.
        lr: the learning rate.
        weight_decay: the weight decay.
        get_representations: returns them, as `get_representations(module, inputs)`.
        get_inputs: finds the inputs in a batch; its first tensor unless given.
        get_targets: finds the classes in a batch; its second tensor unless given.
        seed: of the weights at the start, and of what is left out.

    Attributes:
        head: the classifier.
        optimizer: its optimizer.

    State: the classifier, its optimizer and its random numbers, so that a resumed run is the same.

    Raises:
        OptionError: an argument is outside its rule.
        DataError: in a run, a batch or the representations are not of the shape that is needed.
    """

    def __init__(
        self,
        z_dim: int,
        drop_p: float = 0.2,
        hidden_dim: int | None = None,
        num_classes: int | None = None,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        get_representations: Callable[[Any, Tensor], Any] | None = None,
        get_inputs: Callable[[Any], Tensor] | None = None,
        get_targets: Callable[[Any], Tensor] | None = None,
        seed: int = 0,
    ) -> None:
        self.z_dim = check_count("z_dim", z_dim, _WHERE, least=1)
        self.drop_p = check_number("drop_p", drop_p, _WHERE, least=0)
        if drop_p >= 1:
            raise OptionError(
                f"drop_p {drop_p!r} of {_WHERE}: it must be less than 1. Pass the share that is "
                "left out, such as 0.2."
            )
        self.hidden_dim = hidden_dim
        if hidden_dim is not None:
            check_count("hidden_dim", hidden_dim, _WHERE, least=1)
        self.num_classes = check_count("num_classes", num_classes, _WHERE, least=2)
        self.lr = check_number("lr", lr, _WHERE, least=0)
        self.weight_decay = check_number("weight_decay", weight_decay, _WHERE, least=0)
        self.get_representations = check_callable(
            "get_representations", get_representations, _WHERE, "module and inputs"
        )
        self.get_inputs = check_callable("get_inputs", get_inputs, _WHERE, "the batch")
        self.get_targets = check_callable("get_targets", get_targets, _WHERE, "the batch")
        self.seed = check_count("seed", seed, _WHERE)
        self._build()

    def _build(self) -> None:
        """Make a classifier that has learned nothing."""
        self.head = Head(self.z_dim, self.hidden_dim, self.num_classes, self.drop_p, self.seed)
        self.optimizer = torch.optim.Adam(
            self.head.parameters(), lr=self.lr, weight_decay=self.weight_decay
        )

    @property
    def state_key(self) -> str:
        """The key: two classifiers of different widths can be compared in one run."""
        return self._generate_state_key(
            z_dim=self.z_dim, hidden_dim=self.hidden_dim, num_classes=self.num_classes
        )

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Begin anew with a new training, and go where the model is."""
        if trainer.progress.is_new_training:
            self._build()
        self._follow(trainer)

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Go where the model is."""
        self._follow(trainer)

    def _follow(self, trainer: Trainer) -> None:
        self.head.to(trainer.device)
        # takes its own state over to where the parameters are now
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def on_train_batch_end(
        self, trainer: Trainer, module: Module, outputs: dict[str, Any], batch: Any, batch_idx: int
    ) -> None:
        """Train the classifier for a step."""
        inputs, targets = self._samples(batch)
        codes = self._represent(module, inputs)
        with torch.enable_grad():
            self.head.train()
            scores = self.head(codes)
            loss = nn.functional.cross_entropy(scores, targets)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self._log("train", scores, targets, loss)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Put the classifier to the test."""
        if trainer.sanity_checking:
            return
        inputs, targets = self._samples(batch)
        self.head.eval()
        with torch.no_grad():
            scores = self.head(self._represent(module, inputs))
            loss = nn.functional.cross_entropy(scores, targets)
        self._log("val", scores, targets, loss)

    def _samples(self, batch: Any) -> tuple[Tensor, Tensor]:
        inputs = inputs_of(batch, self.get_inputs, _WHERE)
        return inputs, targets_of(batch, self.get_targets, _WHERE)

    def _represent(self, module: Any, inputs: Tensor) -> Tensor:
        """Return representations of shape (samples, z_dim), without a graph."""
        make = self.get_representations or _representations
        with isolated(), evaluating(module), torch.no_grad():
            found = make(module, inputs)
        codes = found[0] if isinstance(found, tuple) and found else found
        is_tensor = isinstance(codes, torch.Tensor) and codes.ndim > 1
        if not is_tensor or codes.flatten(1).shape[1] != self.z_dim:
            kind = f"shape {tuple(codes.shape)}" if hasattr(codes, "shape") else type(codes)
            raise DataError(
                f"representations of {kind}, made by {type(module).__qualname__} for {_WHERE}: "
                f"they must be {self.z_dim} numbers (z_dim) for each sample. Pass that z_dim, or "
                "get_representations=..., which returns them."
            )
        flat: Tensor = codes.detach().float().flatten(1)
        return flat

    def _log(self, stage: str, scores: Tensor, targets: Tensor, loss: Tensor) -> None:
        accuracy = (scores.argmax(1) == targets).float().mean()
        values = {f"online_{stage}_loss": loss.detach(), f"online_{stage}_acc": accuracy}
        self.log_dict(values, batch_size=len(targets), sync_dist=stage == "val")

    def state_dict(self) -> dict[str, Any]:
        """Return the classifier, its optimizer and its random numbers."""
        return {
            "head": {name: value.clone() for name, value in self.head.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "generator": self.head.generator.get_state(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take them back; the learning rate and the weight decay are the constructor's."""
        self.head.load_state_dict(state_dict["head"])
        self.optimizer.load_state_dict(state_dict["optimizer"])
        for group in self.optimizer.param_groups:
            group.update(lr=self.lr, weight_decay=self.weight_decay)
        self.head.generator.set_state(state_dict["generator"].cpu())


def _representations(module: Any, inputs: Tensor) -> Any:
    return getattr(module, "representations", module)(inputs)
