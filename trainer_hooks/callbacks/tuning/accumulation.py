"""GradientAccumulationScheduler: let the number of batches that make a step follow the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.monitoring import check_count
from trainer_hooks.errors import OptionError, UsageError
from trainer_hooks.module import needs_closure

if TYPE_CHECKING:
    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["GradientAccumulationScheduler"]

_WHERE = "GradientAccumulationScheduler"


class GradientAccumulationScheduler(Callback):
    """Change the number of batches that make one optimizer step as the epochs go by.

    Small windows take many steps while the training is young, large ones average out the noise
    later. The number that belongs to an epoch is set when it begins; after the run the trainer's
    own is back.

    Args:
        scheduling: numbers of batches by the epoch from which on they hold, counted from 0. Before
            the first of these epochs it is 1. The dict is copied.

    Attributes:
        scheduling: the numbers by epoch, from epoch 0 on, in order.
        epochs: those epochs.

    State: the epoch that the number was set in last.

    Raises:
        OptionError: the dict is empty, or holds something else than epochs from 0 and numbers
            from 1.
        UsageError: in a fit, the trainer has an `accumulate_grad_batches` of its own, the module
            optimizes manually, or its optimizer evaluates the loss itself.

    Example::

        scheduler = GradientAccumulationScheduler({0: 1, 1: 2})
        Trainer(max_epochs=2, callbacks=[scheduler]).fit(module, train_loader)
    """

    def __init__(self, scheduling: Mapping[int, int]) -> None:
        self.scheduling = _checked(scheduling)
        self.epochs = list(self.scheduling)
        self._epoch = 0
        self._is_in_charge = False

    def get_accumulate_grad_batches(self, epoch: int) -> int:
        """Return the number of batches of a window in an epoch, counted from 0."""
        return self.scheduling[max(start for start in self.epochs if start <= epoch)]

    def going_to_accumulate_grad_batches(self) -> bool:
        """Return whether any epoch has windows of more than one batch."""
        return any(batches > 1 for batches in self.scheduling.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch that the number was set in last."""
        return {"epoch": self._epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self._epoch = state_dict["epoch"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Make sure that nobody else decides on the windows."""
        self._is_in_charge = False
        if stage != "fit":
            return
        given = trainer.accumulate_grad_batches
        if given != 1:
            raise UsageError(
                f"{_WHERE} with Trainer(accumulate_grad_batches={given}): both say how many "
                f"batches make a step. Leave that option out, or write scheduling={{0: {given}}}."
            )
        if not module.automatic_optimization:
            raise UsageError(
                f"{_WHERE} with {type(module).__qualname__}, which optimizes manually: it steps "
                f"when it likes, whatever is scheduled. Leave {_WHERE} out, and step every n-th "
                "batch in training_step."
            )
        self._is_in_charge = True

    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Set the number of the epoch that the checkpoint is from, before it is compared."""
        if trainer.state.fn == "fit":
            state = checkpoint.get("callbacks", {}).get(self.state_key, {})
            self._set(trainer, state.get("epoch", checkpoint["epoch"]))

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Set the number of the first epoch, for what is estimated before it begins."""
        if self.going_to_accumulate_grad_batches() and any(map(needs_closure, trainer.optimizers)):
            raise UsageError(
                f"{_WHERE} with an optimizer that evaluates the loss itself, such as LBFGS: it "
                "would need all batches of a window again at each evaluation. Use larger batches."
            )
        if trainer.progress.is_fresh:
            self._set(trainer, 0)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Set the number of the epoch that begins."""
        self._set(trainer, trainer.current_epoch)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Leave the trainer as it was."""
        if self._is_in_charge:
            self._is_in_charge = False
            trainer.accumulate_grad_batches = 1

    def _set(self, trainer: Trainer, epoch: int) -> None:
        self._epoch = epoch
        trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(epoch)


def _checked(scheduling: object) -> dict[int, int]:
    """Return the numbers in the order of their epochs, with one for epoch 0.

    Raises:
        OptionError: it is no such dict.
    """
    if not isinstance(scheduling, Mapping) or not scheduling:
        raise OptionError(
            f"scheduling {scheduling!r} of {_WHERE}: it must be a dict of numbers of batches by "
            "epoch. Pass one such as {0: 1, 4: 8}."
        )
    for epoch, batches in scheduling.items():
        check_count("epoch in scheduling", epoch, _WHERE)
        check_count(f"number of batches from epoch {epoch} on in scheduling", batches, _WHERE, 1)
    return dict(sorted({0: 1, **scheduling}.items()))
