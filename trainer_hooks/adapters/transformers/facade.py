"""Facade: the objects that events of Hugging Face's Trainer bring."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Facade"]

_HOME = "transformers.trainer_callback"
_REMEMBERED = ("best_metric", "best_global_step", "log_history")


class Facade:
    """The three objects that events bring: their arguments, state and control, kept up to date.

    All guests of a trainer share one, as there.

    Attributes:
        lasting: what else an event brings that lasts for an epoch: the model and the loaders.
    """

    def __init__(self, trainer: Any) -> None:
        package = importlib.import_module("transformers")
        callbacks = importlib.import_module(_HOME)
        self.state = callbacks.TrainerState(log_history=[])
        self.control = callbacks.TrainerControl()
        self.lasting: dict[str, Any] = {}
        root = str(trainer.default_root_dir)
        if trainer.is_global_zero and "://" not in root:
            Path(root).mkdir(parents=True, exist_ok=True)  # as their Trainer does
        steps = trainer.max_steps
        validates = trainer.check_val_every_n_epoch is not None
        self.args = package.TrainingArguments(
            output_dir=trainer.default_root_dir,
            num_train_epochs=max(trainer.max_epochs, 0) or 1,
            max_steps=steps,
            gradient_accumulation_steps=trainer.accumulate_grad_batches,
            logging_steps=trainer.log_every_n_steps,
            eval_strategy="epoch" if validates else "no",
            save_strategy="no",
            report_to=[],
            use_cpu=trainer.device.type == "cpu",
        )

    def refresh(self, trainer: Any, module: Any) -> None:
        """Bring the counters up to date, and at an epoch's start what lasts for it."""
        state, progress = self.state, trainer.progress
        if progress.batches_in_epoch <= 1 or not self.lasting or not trainer.training:
            self._refresh_run(trainer, module)
        state.global_step = progress.steps_completed
        batches = trainer.num_training_batches
        # there, both change when a window is done
        done = progress.batches_in_epoch - progress.batches_in_window
        is_known = batches not in (0, float("inf"))
        state.epoch = trainer.current_epoch + (done / batches if is_known else 0.0)
        self.control.should_training_stop = trainer.should_stop

    def _refresh_run(self, trainer: Any, module: Any) -> None:
        state = self.state
        loaders = trainer.val_dataloaders
        is_one = isinstance(loaders, list) and len(loaders) == 1
        self.lasting = {
            "model": getattr(module, "module_guest", module),
            "processing_class": None,
            "train_dataloader": trainer.train_dataloader,
            "eval_dataloader": loaders[0] if is_one else loaders,
        }
        state.num_train_epochs = trainer.max_epochs
        state.is_world_process_zero = trainer.is_global_zero
        state.is_local_process_zero = trainer.local_rank == 0
        state.logging_steps = trainer.log_every_n_steps
        if not state.max_steps and trainer.state.fn == "fit":
            batches = trainer.num_training_batches
            length = trainer.max_epochs * -(-batches // trainer.accumulate_grad_batches)
            has_end = trainer.max_epochs >= 0 and batches not in (0, float("inf"))
            state.max_steps = int(length) if has_end else trainer.max_steps
            if 0 <= trainer.max_steps < state.max_steps:
                state.max_steps = trainer.max_steps

    def judge(self, args: Any, metrics: Mapping[str, float]) -> None:
        """Keep the best value of the metric that arguments watch, as their Trainer does.

        Args:
            args: the arguments; None are the facade's own.
            metrics: those of a validation, under their names.
        """
        watched = (args or self.args).metric_for_best_model
        if watched is None:
            return
        value = metrics.get(watched if watched.startswith("eval_") else f"eval_{watched}")
        best, is_greater = self.state.best_metric, (args or self.args).greater_is_better
        if value is not None and (best is None or (value > best if is_greater else value < best)):
            self.state.best_metric = value
            self.state.best_global_step = self.state.global_step

    def note(self, entry: dict[str, Any]) -> None:
        """Add what was logged to the history, once."""
        if entry not in self.state.log_history[-1:]:
            self.state.log_history.append(entry)

    def state_dict(self) -> dict[str, Any]:
        """Return what the state holds that only time can tell."""
        return {name: getattr(self.state, name) for name in _REMEMBERED}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take it back."""
        for name in _REMEMBERED:
            setattr(self.state, name, state_dict[name])
