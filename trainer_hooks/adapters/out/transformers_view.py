"""What hooks of ours are handed in transformers: what its events bring, under our names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks.adapters.out.shared import ProgressThere, lacking_there

if TYPE_CHECKING:
    from torch import Tensor

    from trainer_hooks.callback import Callback

__all__ = ["TransformersTrainerView"]


class TransformersTrainerView:
    """What events there bring, under the names of our Trainer."""

    def __init__(
        self, callback: Callback, args: Any, state: Any, control: Any, given: dict[str, Any]
    ) -> None:
        self._callback = callback
        self._control = control
        self.args, self.state = args, state
        self.module = given.get("model")
        self.optimizers = [] if given.get("optimizer") is None else [given["optimizer"]]
        self.train_dataloader = given.get("train_dataloader")
        self.val_dataloaders = given.get("eval_dataloader")
        self.global_step = int(state.global_step)
        self.current_epoch = int(state.epoch or 0)
        self.max_epochs = int(state.num_train_epochs or args.num_train_epochs)
        self.max_steps = int(state.max_steps or args.max_steps)
        self.default_root_dir = args.output_dir
        self.accumulate_grad_batches = args.gradient_accumulation_steps
        self.log_every_n_steps = args.logging_steps
        self.is_global_zero = state.is_world_process_zero
        self.sanity_checking = False
        self.callback_metrics: dict[str, Tensor] = {}

    @property
    def progress(self) -> ProgressThere:
        """How far the training has come."""
        return ProgressThere(
            self.current_epoch,
            is_fresh=self.global_step == 0,
            framework="transformers",
            callback=self._callback,
        )

    @property
    def should_stop(self) -> bool:
        """Whether the training ends after the step in work."""
        return bool(self._control.should_training_stop)

    @property
    def has_to_validate(self) -> bool:
        """Whether an evaluation follows."""
        return bool(self._control.should_evaluate)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.args.device)

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return int(self.args.world_size)

    def stop(self, reason: str = "") -> None:  # noqa: ARG002 - transformers keeps none
        """End the training after the step in work."""
        self._control.should_training_stop = True

    def end_epoch(self) -> None:
        """End the epoch after the batch in work."""
        self._control.should_epoch_stop = True

    def request_validation(self) -> None:
        """Ask for an evaluation after the step in work."""
        self._control.should_evaluate = True

    def request_checkpoint(self) -> None:
        """Ask for a checkpoint after it."""
        self._control.should_save = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise lacking_there(name, "transformers", self._callback)
