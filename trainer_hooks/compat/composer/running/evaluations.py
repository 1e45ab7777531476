"""EvaluationEvents: Composer's events of evaluations, a pair for each evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from trainer_hooks import callback
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.timestamp import Timestamp
from trainer_hooks.compat.composer.running.figures import compute
from trainer_hooks.data import measure

if TYPE_CHECKING:
    from trainer_hooks.compat.composer.running.links import Links
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["EvaluationEvents"]


class EvaluationEvents(callback.Callback):
    """Fire Composer's events of evaluations: one loader after another, each with its own pair.

    Args:
        links: what it shares with the model's carrier.
    """

    def __init__(self, links: Links) -> None:
        self.links = links
        self._index: int | None = None
        self._label = ""
        self._before: tuple[Any, Any, Any] = (None, None, None)
        self._count: tuple[int, int] = (0, 0)

    # --- in a fit, and alone ---

    def on_validation_run_start(self, trainer: Trainer, module: Module) -> None:
        """Fire `EVAL_BEFORE_ALL`, if any evaluator is due."""
        endings = self.links.endings
        endings.before_evaluations()
        if endings.wanted is None or endings.wanted:
            self.links.fire(Event.EVAL_BEFORE_ALL)

    def on_validation_run_end(self, trainer: Trainer, module: Module) -> None:
        """Fire `EVAL_AFTER_ALL`, likewise."""
        if self.links.endings.wanted is None or self.links.endings.wanted:
            self.links.fire(Event.EVAL_AFTER_ALL)

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Fire `EVAL_STANDALONE_START`."""
        self.links.endings.wanted = None
        self.links.fire(Event.EVAL_STANDALONE_START)

    def on_evaluation_run_end(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Fire `EVAL_STANDALONE_END`."""
        self.links.fire(Event.EVAL_STANDALONE_END)

    # --- an evaluation ---

    def on_validation_start(self, trainer: Trainer, module: Module) -> None:
        """Note what was under way before."""
        state = self.links.state
        self._index, self._label = None, ""
        self._before = (state.dataloader, state.dataloader_label, state.dataloader_len)

    def on_validation_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Open the loader, if this is its first batch, and fire `EVAL_BATCH_START`."""
        if not trainer.sanity_checking:
            self._start_batch(trainer, batch, dataloader_idx)

    def on_validation_before_forward(self, trainer: Trainer, module: Module) -> None:
        """Fire `EVAL_BEFORE_FORWARD`, of a module of trainer_hooks."""
        if self._label:
            self.links.fire(Event.EVAL_BEFORE_FORWARD)

    def on_validation_after_forward(self, trainer: Trainer, module: Module, outputs: Any) -> None:
        """Fire `EVAL_AFTER_FORWARD`, likewise."""
        if self._label:
            self.links.state.outputs = outputs
            self.links.fire(Event.EVAL_AFTER_FORWARD)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and fire `EVAL_BATCH_END`."""
        self._end_batch(outputs)

    def on_validation_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Close the last loader."""
        self._close_loader(trainer)

    def on_validation_end(self, trainer: Trainer, module: Module) -> None:
        """Go back to what was under way before."""
        loader, label, length = self._before
        self.links.evaluator = None
        self.links.state.set_dataloader(loader, label, -1 if length is None else length)

    def on_test_start(self, trainer: Trainer, module: Module) -> None:
        """Note what was under way before."""
        self.on_validation_start(trainer, module)

    def on_test_batch_start(
        self, trainer: Trainer, module: Module, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Open the loader, if this is its first batch, and fire `EVAL_BATCH_START`."""
        self._start_batch(trainer, batch, dataloader_idx)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        module: Module,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count the batch, and fire `EVAL_BATCH_END`."""
        self._end_batch(outputs)

    def on_test_epoch_end(self, trainer: Trainer, module: Module) -> None:
        """Close the last loader."""
        self._close_loader(trainer)

    def on_test_end(self, trainer: Trainer, module: Module) -> None:
        """Go back to what was under way before."""
        self.on_validation_end(trainer, module)

    # --- one loader ---

    def _start_batch(self, trainer: Trainer, batch: Any, index: int) -> None:
        if index != self._index:
            self._close_loader(trainer)
            self._open_loader(trainer, index)
        if not self._label:
            return
        evaluator = self.links.evaluator
        if evaluator is not None:
            spec = evaluator.dataloader
            batch = spec.batch_transforms(batch)
            self._count = spec.get_num_samples_in_batch(batch), spec.get_num_tokens_in_batch(batch)
        else:
            self._count = measure(batch)
        self.links.state.batch = batch
        self.links.fire(Event.EVAL_BATCH_START)

    def _end_batch(self, outputs: Any) -> None:
        if not self._label:
            return
        state = self.links.state
        if self.links.is_guest:
            state.outputs = outputs
        state.eval_timestamp = state.eval_timestamp.to_next_batch(*self._count)
        self.links.fire(Event.EVAL_BATCH_END)

    def _open_loader(self, trainer: Trainer, index: int) -> None:
        links, state = self.links, self.links.state
        self._index = index
        if links.is_guest:
            label, loader, most = _guest(trainer, index)
        else:
            evaluator = links.evaluators[index]
            if not links.endings.is_wanted(evaluator.label):
                links.evaluator = None
                return
            links.evaluator, label = evaluator, evaluator.label
            loader, most = evaluator.dataloader.dataloader, evaluator.subset_num_batches
            for metric in state.eval_metrics.get(label, {}).values():
                metric.reset()
                metric.to(state.device.torch_device)
        self._label = label
        state.set_dataloader(loader, label, -1 if most is None else most)
        state.eval_timestamp = Timestamp()
        links.fire(Event.EVAL_START)

    def _close_loader(self, trainer: Trainer) -> None:
        """Log the metrics of the loader that is done, and fire `EVAL_END`."""
        label, self._label, self._index = self._label, "", None
        if not label:
            return
        state, links = self.links.state, self.links
        values = compute(state, links.engine.logger, label, state.eval_metrics.get(label, {}))
        for name, value in values.items():
            known = torch.as_tensor(value)
            if known.numel() == 1:  # what stoppers and savers of trainer_hooks watch
                trainer.callback_metrics[f"{name}/{label}"] = known
                trainer.callback_metrics[f"metrics/{label}/{name}"] = known
        links.fire(Event.EVAL_END)


def _guest(trainer: Trainer, index: int) -> tuple[str, Any, int | None]:
    """Return label, loader and length of an evaluation of a module of trainer_hooks."""
    loaders = trainer.test_dataloaders if trainer.testing else trainer.val_dataloaders
    several = isinstance(loaders, list | tuple)
    loader = loaders[index] if several and len(loaders) > index else loaders
    plain = f"eval_{index}" if several and len(loaders) > 1 else "eval"
    return trainer.dataloader_label or plain, loader, None
