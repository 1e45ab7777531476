"""GradientAccumulationScheduler: change the length of the accumulation window by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_hooks._options import Rule, check_option, option_rules, whole_number
from trainer_hooks.callback import Callback
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.module.optimization import needs_closure

if TYPE_CHECKING:
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_WHERE = "GradientAccumulationScheduler"


class GradientAccumulationScheduler(Callback):
    """Change the number of batches that make one optimizer step, by epoch.

    Small windows give many steps early in the training, large ones average out the noise later. An
    epoch's number is set when the epoch begins; after the run the trainer's own is restored.

    Args:
        scheduling: the window's length in batches, by the epoch from which on it holds, counted
            from 0. Before the first of these epochs it is 1. The dict is copied.

    Attributes:
        scheduling: the lengths by epoch, from epoch 0 on, in order.
        epochs: those epochs.

    State: the last epoch for which a length was set.

    Raises:
        OptionError: the dict is empty, or holds other items than epochs from 0 and lengths from 1.
        UsageError: in a fit, the trainer has an `accumulate_grad_batches` of its own, the module
            optimizes manually, or its optimizer evaluates the loss itself.

    Example::

        scheduler = GradientAccumulationScheduler({0: 1, 1: 2})
        Trainer(max_epochs=2, callbacks=[scheduler]).fit(module, train_loader)
    """

    @option_rules(
        scheduling=Rule(
            "a dict of numbers of batches by epoch",
            lambda scheduling: isinstance(scheduling, Mapping) and bool(scheduling),
            "Pass one such as {0: 1, 4: 8}.",
        )
    )
    def __init__(self, scheduling: Mapping[int, int]) -> None:
        for epoch, batches in scheduling.items():
            check_option("epoch in scheduling", epoch, _WHERE, whole_number())
            name = f"number of batches from epoch {epoch} on in scheduling"
            check_option(name, batches, _WHERE, whole_number(1))
        # windows of one batch up to the first epoch that is named
        self.scheduling = dict(sorted({0: 1, **scheduling}.items()))
        self.epochs = list(self.scheduling)
        self._epoch = 0
        self._sets_window = False

    def get_accumulate_grad_batches(self, epoch: int) -> int:
        """Return the window's length in batches in an epoch, counted from 0."""
        return self.scheduling[max(start for start in self.epochs if start <= epoch)]

    def going_to_accumulate_grad_batches(self) -> bool:
        """Return whether any epoch has windows of more than one batch."""
        return any(batches > 1 for batches in self.scheduling.values())

    def state_dict(self) -> dict[str, Any]:
        """Return the last epoch for which a length was set."""
        return {"epoch": self._epoch}

    @checks_state({"epoch": int})
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the last epoch for which a length was set."""
        self._epoch = state_dict["epoch"]

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Check that the trainer's option and the module leave the window to this callback."""
        self._sets_window = False
        if stage != "fit":
            return
        batches = trainer.accumulate_grad_batches
        if batches != 1:
            raise UsageError(
                f"{_WHERE} with Trainer(accumulate_grad_batches={batches}): both say how many "
                f"batches make a step. Leave that option out, or write scheduling={{0: {batches}}}."
            )
        if not module.automatic_optimization:
            raise UsageError(
                f"{_WHERE} with {type(module).__qualname__}, which optimizes manually: it steps "
                f"by itself, whatever is scheduled. Leave {_WHERE} out, and step every n-th "
                "batch in training_step."
            )
        self._sets_window = True

    def on_before_restore(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Set the length of the checkpoint's epoch, before the options are compared."""
        if trainer.state.fn == "fit":
            # this schedule decides, which may be another than that of the run that was cut
            checkpoint.get("trainer_hooks", {}).pop("set_window", None)
            state = checkpoint.get("callbacks", {}).get(self.state_key, {})
            # a checkpoint of a run without this callback has only its own epoch
            self._set_window(trainer, state.get("epoch", checkpoint["epoch"]))

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Set the first epoch's length, from which the trainer estimates the number of steps."""
        # windows of one batch work with such an optimizer too
        if self.going_to_accumulate_grad_batches() and any(map(needs_closure, trainer.optimizers)):
            raise UsageError(
                f"{_WHERE} with an optimizer that evaluates the loss itself, such as LBFGS: it "
                "would need all batches of a window again at each evaluation. Use larger batches."
            )
        if trainer.progress.is_new_training:
            self._set_window(trainer, 0)

    def on_train_epoch_start(self, trainer: Trainer, module: Module) -> None:
        """Set the length of the epoch that begins."""
        self._set_window(trainer, trainer.current_epoch)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Restore the trainer's own window of one batch."""
        # only after a fit whose `setup` passed: otherwise the option is the user's
        if self._sets_window:
            self._sets_window = False
            trainer.accumulate_grad_batches = 1

    def _set_window(self, trainer: Trainer, epoch: int) -> None:
        self._epoch = epoch
        trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(epoch)
