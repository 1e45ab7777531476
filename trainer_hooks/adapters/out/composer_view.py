"""ComposerTrainerView: Composer's state under the names of our Trainer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from trainer_hooks.adapters.out.shared import ProgressThere, lacking_there, tensors_of

if TYPE_CHECKING:
    from trainer_hooks.callback import Callback

__all__ = ["ComposerTrainerView"]

_PRECISIONS = {"fp32": "32-true", "amp_fp16": "16-mixed", "amp_bf16": "bf16-mixed"}


class ComposerTrainerView:
    """What one of our callbacks is given as the trainer there.

    Args:
        state: Composer's.
        callback: who is given it.

    Attributes:
        view_target: the state.
        stage: `"fit"`, `"validate"` or `"predict"`; empty before.
        is_evaluating: whether an evaluation is under way.
        should_stop: whether the end was asked for here.
        stop_reason: why.
    """

    fast_dev_run = 0
    sanity_checking = False
    accumulate_grad_batches = 1
    check_val_every_n_epoch = 1
    val_check_interval = 1.0
    min_epochs = 0
    min_steps = 0

    def __init__(self, state: Any, callback: Callback) -> None:
        self.view_target = state
        self.stage = ""
        self.is_evaluating = False
        self.should_stop = False
        self.stop_reason = ""
        self._callback = callback
        self._noted: dict[str, float] = {}

    def stop(self, reason: str = "") -> None:
        """End the training after the batch in work."""
        self.should_stop, self.stop_reason = True, reason
        self.view_target.stop_training()

    def note(self, name: str, value: float) -> None:
        """Keep a value that the callback logged."""
        self._noted[name] = value

    @property
    def module(self) -> Any:
        """The model."""
        return self.view_target.model

    @property
    def state(self) -> Any:
        """What is run."""
        return SimpleNamespace(fn=self.stage, stage="validate" if self.is_evaluating else "train")

    @property
    def progress(self) -> Any:
        """How far the training is."""
        now = self.view_target.timestamp
        return ProgressThere(
            int(now.epoch),
            is_fresh=not int(now.batch),
            framework="Composer",
            callback=self._callback,
        )

    @property
    def current_epoch(self) -> int:
        """The index of the epoch under way; at the hooks that end one, of that one."""
        now = self.view_target.timestamp
        is_ended = int(now.batch_in_epoch) == 0 and self._is_at_end
        return int(now.epoch) - is_ended

    @property
    def _is_at_end(self) -> bool:
        before, now = self.view_target.previous_timestamp, self.view_target.timestamp
        return before is not None and before.epoch != now.epoch and before.batch == now.batch

    @property
    def global_step(self) -> int:
        """The steps that are done."""
        return int(self.view_target.timestamp.batch)

    @property
    def max_epochs(self) -> int:
        """How many epochs there will be, or -1 where their number is not what ends it."""
        longest = self.view_target.max_duration
        return int(longest.value) if longest is not None and longest.unit.value == "ep" else -1

    @property
    def max_steps(self) -> int:
        """How many steps there will be, likewise."""
        longest = self.view_target.max_duration
        return int(longest.value) if longest is not None and longest.unit.value == "ba" else -1

    @property
    def num_training_batches(self) -> int | float:
        """The batches of an epoch."""
        length = self.view_target.dataloader_len
        return float("inf") if length is None else int(length)

    @property
    def num_val_batches(self) -> list[int | float]:
        """The batches of each evaluation, infinity where unknown."""
        loaders = [one.dataloader.dataloader for one in self.view_target.evaluators]
        return [len(one) if hasattr(one, "__len__") else float("inf") for one in loaders]

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch in work is its epoch's last."""
        return int(self.view_target.timestamp.batch_in_epoch) >= self.num_training_batches

    @property
    def total_loss(self) -> torch.Tensor:
        """The loss of the whole batch."""
        return torch.tensor(float(self.view_target.total_loss_dict["loss/train/total"]))

    @property
    def callback_metrics(self) -> dict[str, torch.Tensor]:
        """The latest values of the model's metrics and losses, and what the callback logged."""
        state = self.view_target
        metrics = {
            name: float(value)
            for values in (state.train_metric_values, state.eval_metric_values)
            for name, value in values.items()
            if not isinstance(value, torch.Tensor) or value.numel() == 1
        }
        return tensors_of({**state.total_loss_dict, **metrics, **self._noted})

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers."""
        return list(self.view_target.optimizers)

    @property
    def train_dataloader(self) -> Any:
        """The loader of training batches."""
        return self.view_target.train_dataloader

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        first: torch.Tensor = next(self.view_target.model.parameters())
        return first.device

    @property
    def precision(self) -> str:
        """What the forward runs in, by our name."""
        name = str(self.view_target.precision.value)
        return _PRECISIONS.get(name, name)

    @property
    def training(self) -> bool:
        """Whether batches are trained just now."""
        return self.stage == "fit" and not self.is_evaluating

    @property
    def validating(self) -> bool:
        """Whether batches are evaluated just now."""
        return self.is_evaluating or self.stage == "validate"

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return distributed.get_world_size() if distributed.is_initialized() else 1

    @property
    def global_rank(self) -> int:
        """Which of them this is."""
        return distributed.get_rank() if distributed.is_initialized() else 0

    @property
    def is_global_zero(self) -> bool:
        """Whether it is the first."""
        return self.global_rank == 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise lacking_there(name, "Composer", self._callback)
