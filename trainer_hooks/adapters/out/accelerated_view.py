"""What hooks of ours are handed in pytorch-accelerated: its Trainer under our names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.out.shared import ProgressThere, TrainerThere, tensors_of
from trainer_hooks.adapters.views import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from trainer_hooks.callback import Callback

__all__ = ["AcceleratedTrainerView", "Watched"]


class Watched(View):
    """A loader whose last batch is known: events there bring none at the start of a step."""

    __slots__ = ("batch", "batch_idx")

    def __init__(self, target: Any) -> None:
        super().__init__(target)
        object.__setattr__(self, "batch", None)
        object.__setattr__(self, "batch_idx", 0)

    def __iter__(self) -> Iterator[Any]:
        for batch_idx, batch in enumerate(self.view_target):
            object.__setattr__(self, "batch", batch)
            object.__setattr__(self, "batch_idx", batch_idx)
            yield batch

    def __len__(self) -> int:
        return len(self.view_target)


class AcceleratedTrainerView(TrainerThere):
    """pytorch-accelerated's Trainer under the names of ours."""

    __slots__ = ("should_stop", "stop_reason")

    framework = "pytorch-accelerated"

    def __init__(self, target: Any, callback: Callback) -> None:
        super().__init__(target, callback)
        object.__setattr__(self, "should_stop", False)
        object.__setattr__(self, "stop_reason", "")

    def stop(self, reason: str = "") -> None:
        """End the run after the batch in work."""
        object.__setattr__(self, "should_stop", True)
        object.__setattr__(self, "stop_reason", reason)

    @property
    def module(self) -> Any:
        """The model."""
        return self.view_target.model

    @property
    def optimizers(self) -> list[Any]:
        """The optimizer, as a list."""
        return [] if self.view_target.optimizer is None else [self.view_target.optimizer]

    @property
    def current_epoch(self) -> int:
        """The epoch under way, from 0 on."""
        return int(self.view_target.run_history.current_epoch) - 1

    @property
    def max_epochs(self) -> int:
        """How many epochs there will be."""
        return int(self.view_target.run_config.num_epochs)

    @property
    def accumulate_grad_batches(self) -> int:
        """The batches of a window."""
        return int(self.view_target.run_config.gradient_accumulation_steps)

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest values of the run's history."""
        history = self.view_target.run_history
        return tensors_of(
            {name: history.get_latest_metric(name) for name in history.get_metric_names()}
        )

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first of all processes."""
        return bool(self.view_target._accelerator.is_main_process)  # noqa: SLF001 - as callbacks do there

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return int(self.view_target._accelerator.num_processes)  # noqa: SLF001 - likewise

    @property
    def train_dataloader(self) -> Any:
        """The loader of training batches."""
        return self.view_target._train_dataloader  # noqa: SLF001 - likewise

    @property
    def progress(self) -> ProgressThere:
        """How far the training has come: whole epochs."""
        epoch = self.current_epoch
        return ProgressThere(
            epoch, is_fresh=epoch == 0, framework=self.framework, callback=self._callback
        )

    @property
    def sanity_checking(self) -> bool:
        """Never: there is no such check."""
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return super().__getattr__(name)
