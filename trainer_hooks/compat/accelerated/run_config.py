"""TrainerRunConfig: what a run of pytorch-accelerated's Trainer was started with."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

__all__ = ["TrainerRunConfig"]


@dataclass(frozen=True)
class TrainerRunConfig:
    """What a run was started with; its values are attributes, and items as in older releases.

    Attributes:
        num_epochs: epochs of the run.
        train_per_device_batch_size: samples of a training batch of one process.
        train_dl_kwargs: what the training loader was made with.
        eval_per_device_batch_size: samples of an evaluation batch of one process.
        eval_dl_kwargs: what the evaluation loader was made with.
        gradient_accumulation_steps: batches of a step.
        gradient_clip_value: the largest entry of a gradient, or None.
        train_total_batch_size: samples of a step, over all processes.
        eval_total_batch_size: samples of an evaluation batch, over all processes.
        num_update_steps_per_epoch: steps of an epoch, over all processes.
        num_local_update_steps_per_epoch: steps of an epoch of one process.
        max_num_train_steps: at most so many steps.
        is_local_process_zero: whether this is the first process of its machine.
        is_world_process_zero: whether this is the first of all processes.
        is_distributed: whether there are several processes.
        mixed_precision: `"no"`.
        num_processes: how many processes there are.
    """

    num_epochs: int
    train_per_device_batch_size: int
    train_dl_kwargs: dict[str, Any] | None
    eval_per_device_batch_size: int
    eval_dl_kwargs: dict[str, Any] | None
    gradient_accumulation_steps: int
    gradient_clip_value: float | None
    train_total_batch_size: int
    eval_total_batch_size: int
    num_update_steps_per_epoch: int
    num_local_update_steps_per_epoch: int
    max_num_train_steps: int | None
    is_local_process_zero: bool
    is_world_process_zero: bool
    is_distributed: bool
    mixed_precision: str
    num_processes: int

    def __getitem__(self, name: str) -> Any:
        """Return a value by name."""
        return self.to_dict()[name]

    def to_dict(self) -> dict[str, Any]:
        """Return all values by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
