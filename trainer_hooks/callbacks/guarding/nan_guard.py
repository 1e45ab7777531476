"""NaNGuard: look for NaN and infinity, and raise, end the run, skip the step, or go back."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import log
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.guarding.finite import (
    any_broken,
    broken_weights,
    clear_gradients,
    described,
    gradients_of,
    read_flags,
)
from trainer_hooks.callbacks.guarding.good_state import GoodState
from trainer_hooks.callbacks.guarding.nan_options import (
    ACTIONS,
    CHECKS,
    check_device,
    found_by_any,
    give_up,
    stop,
)
from trainer_hooks.callbacks.monitoring import check_choice, check_count, check_several
from trainer_hooks.callbacks.weight_owner import require_whole_weights
from trainer_hooks.context import NEVER
from trainer_hooks.errors import NonFiniteError, OptionError
from trainer_hooks.hooks import Band

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor
    from torch.optim import Optimizer

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["NaNGuard"]

_WHERE = "NaNGuard"
_MOST_EVENTS = 100
_EVERY = 50
"""Steps between two looks where the loggers are given none."""


class NaNGuard(Callback):
    """Look for NaN and infinity in a training, and raise, end the run, skip the step, or go back.

    Losses are looked at in every batch, but the answer stays on the device. Every so many steps,
    before the optimizer steps, the gradients of the window, the trainable parameters and the
    buffers (for NaN alone, since masks hold infinity) are looked at too, and all answers are copied
    to the host as one number: that is what a GPU is waited for. What breaks in between is found
    then, for a broken step leaves broken parameters. So something is found at most
    `check_every_n_steps` steps late, and at the end of an epoch's batches at the latest, before the
    epoch is validated and saved. A checkpoint that is saved between two looks may hold what is
    broken.

    What is done about it:

    - `"raise"`: a `NonFiniteError` says what is broken, by name.
    - `"stop"`: the run ends in order, and `trainer.stop_reason` says why. A checkpoint of that
      moment ends a fit that resumes it as well: resume from an earlier one.
    - `"skip"`: the optimizer does not step with these gradients: it finds none. It is asked at each
      step, so this costs a wait at each. The step counts, as a step of a scheduler too. Broken
      parameters cannot be mended so, and raise.
    - `"rollback"`: parameters, buffers and what the optimizers remember are put back, bit for bit,
      as they were when they were last found whole and copied. The training goes on from there with
      the next batch; counters, data and learning rates stay where they are.

    More than `patience` such findings in a row, with nothing good in between, raise in each case.
    What was logged of a broken batch is logged, so the mean of that epoch may be NaN. Copies of the
    weights that other callbacks keep are not put back.

    In several processes all do what is to be done where any of them finds something: a look costs
    one reduction of three numbers more.

    With `precision="16-mixed"` infinite gradients are how the scale of the loss is found, and the
    optimizer skips them by itself: gradients are not looked at.

    Args:
        action: `"raise"`, `"stop"`, `"skip"` or `"rollback"`.
        check: what to look at: of `"loss"`, `"gradients"` and `"parameters"` one or more.
        check_every_n_steps: how many optimizer steps lie between two looks. Unless given, the
            trainer's `log_every_n_steps`, where a GPU is waited for anyway; 1 with `"skip"`.
        snapshot_every_n_steps: how many steps at least lie between two copies for `"rollback"`.
            They are made at a look that finds nothing, so as often as that at most.
        patience: how many findings in a row are borne by `"skip"` and `"rollback"`.
        snapshot_device: where the copy is kept, such as `"cpu"`; beside the weights unless given.
        save_snapshot: whether the copy is part of checkpoints, which makes them about twice as
            large. Without it a resumed run makes its first copy of what it resumes from, so that a
            rollback soon after is not the one of the run that was cut.

    Attributes:
        events: what was found, the newest 100, each a dict with `step`, `found` and `action`.
        skipped_steps: how many steps were skipped.
        rollbacks: how often it went back.

    Raises:
        OptionError: an argument is outside its rule.
        NonFiniteError: in a run, something was found and is not to be borne.

    State: what was found, answers that are still to be read, and the copy to go back to.

    Example::

        guard = NaNGuard("rollback", snapshot_every_n_steps=50)
        trainer = Trainer(max_epochs=2, callbacks=[guard])
        trainer.fit(module, train_loader, val_loader)
        print(guard.rollbacks, list(guard.events))
    """

    band: ClassVar[Band] = Band.CONTROL

    def __init__(
        self,
        action: str = "raise",
        check: str | Sequence[str] = CHECKS,
        check_every_n_steps: int | None = None,
        snapshot_every_n_steps: int = 100,
        patience: int = 10,
        snapshot_device: str | torch.device | None = None,
        save_snapshot: bool = True,
    ) -> None:
        self.action: str = check_choice("action", action, _WHERE, ACTIONS)
        self.check = check_several("check", check, _WHERE, CHECKS)
        if check_every_n_steps is not None:
            check_count("check_every_n_steps", check_every_n_steps, _WHERE, least=1)
            if action == "skip" and check_every_n_steps != 1:
                raise OptionError(
                    f"check_every_n_steps {check_every_n_steps!r} of {_WHERE} with action 'skip': "
                    "each step must be looked at before it is made. Leave it out, or choose the "
                    "action 'rollback'."
                )
        self.check_every_n_steps = check_every_n_steps
        self.snapshot_every_n_steps = check_count(
            "snapshot_every_n_steps", snapshot_every_n_steps, _WHERE, least=1
        )
        self.patience = check_count("patience", patience, _WHERE)
        self.snapshot_device = check_device(snapshot_device, _WHERE)
        self.save_snapshot: bool = check_choice(
            "save_snapshot", save_snapshot, _WHERE, (True, False)
        )
        self._every = 1
        self.events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self.skipped_steps = self.rollbacks = self._in_a_row = 0
        self._loss_is_broken: Tensor | None = None
        self._is_unchecked = self._is_to_clear = False
        self._good: GoodState | None = None

    @property
    def state_key(self) -> str:
        """The class with what it does, and about what."""
        return self._generate_state_key(action=self.action, check=self.check)

    def state_dict(self) -> dict[str, Any]:
        """Return what was found, what is still to be read, and the copy to go back to."""
        is_kept = self._good is not None and self.save_snapshot
        return {
            "events": [dict(event) for event in self.events],
            "skipped_steps": self.skipped_steps,
            "rollbacks": self.rollbacks,
            "in_a_row": self._in_a_row,
            "loss_is_broken": self._loss_is_broken,
            "is_unchecked": self._is_unchecked,
            "snapshot": self._good.state_dict() if self._good is not None and is_kept else None,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take it back."""
        self.events = deque(state_dict["events"], _MOST_EVENTS)
        self.skipped_steps = state_dict["skipped_steps"]
        self.rollbacks = state_dict["rollbacks"]
        self._in_a_row = state_dict["in_a_row"]
        self._loss_is_broken = state_dict["loss_is_broken"]
        self._is_unchecked = state_dict["is_unchecked"]
        good = state_dict["snapshot"]
        self._good = None if good is None else GoodState.from_state(good)

    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Forget an earlier training when a new one begins, and see how often to look."""
        if self.action == "rollback":
            require_whole_weights(trainer, self)
        if trainer.progress.is_fresh:
            self._forget()
        logged = trainer.log_every_n_steps
        default = 1 if self.action == "skip" else logged if logged < NEVER else _EVERY
        self._every = self.check_every_n_steps or default

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Make the first copy.

        Raises:
            NonFiniteError: the weights are broken already.
        """
        self._is_to_clear = False
        if self.action == "stop" and self.events:
            last = self.events[-1]
            stop(trainer, last["found"], last.get("epoch", trainer.current_epoch))
        if self.action == "rollback" and self._good is None:
            if read_flags({"parameters": broken_weights(module)}):
                raise NonFiniteError(
                    f"NaN or infinity in {described(module, ['parameters'])} before the first "
                    f"batch: {_WHERE}('rollback') has nothing to go back to. Begin with other "
                    "weights, or resume from an earlier checkpoint."
                )
            self._copy(trainer, module)

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Note whether the loss is whole, where it is."""
        if "loss" in self.check:
            is_broken = torch.isfinite(loss.detach()).logical_not()
            before = self._loss_is_broken
            self._loss_is_broken = (
                is_broken if before is None else is_broken | before.to(is_broken.device)
            )

    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Look, if it is time."""
        self._is_unchecked = True
        if (trainer.progress.batches_stepped + 1) % self._every:
            return
        flags = {"loss": self._loss_is_broken}
        if "gradients" in self.check and trainer.precision != "16-mixed":
            flags["gradients"] = any_broken(gradients_of(optimizer))
        if self._look(trainer, module, flags, trainer.global_step + 1):
            self._is_to_clear = module.automatic_optimization
            if not self._is_to_clear:
                clear_gradients(trainer.optimizers if self.action == "rollback" else [optimizer])

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Leave the optimizer nothing to step with, once what clips has had its gradients."""
        if self._is_to_clear:
            self._is_to_clear = False
            clear_gradients(trainer.optimizers)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Look at what the last steps of the epoch left, before it is validated and saved."""
        if self._is_unchecked and self.action != "skip":
            self._look(trainer, module, {"loss": self._loss_is_broken}, trainer.global_step)

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Forget answers that nobody will ask for."""
        self._loss_is_broken = None

    def _look(
        self, trainer: Trainer, module: Module, flags: dict[str, Tensor | None], step: int
    ) -> bool:
        """Read the answers; return whether something is broken, which has then been dealt with.

        Args:
            trainer: the trainer.
            module: the module.
            flags: the answers.
            step: the optimizer step up to which they reach, the first being 1.
        """
        if "parameters" in self.check:
            flags["parameters"] = broken_weights(module)
        found = found_by_any(trainer, read_flags(flags))
        self._loss_is_broken, self._is_unchecked = None, False
        if found:
            self._act(trainer, module, found, step)
            return True
        self._in_a_row = 0
        good = self._good
        if good is not None and trainer.global_step - good.step >= self.snapshot_every_n_steps:
            self._copy(trainer, module)
        return False

    def _act(self, trainer: Trainer, module: Module, found: list[str], step: int) -> None:
        """Do what is to be done.

        Raises:
            NonFiniteError: that is to raise, or it was done too often in a row.
        """
        if self.action == "stop":
            self.end_run(trainer, found)
        self._in_a_row += 1
        what = described(module, found)
        where = f"epoch {trainer.current_epoch}, up to optimizer step {step}"
        if self.action == "raise" or (self.action == "skip" and "parameters" in found):
            give_up(f"{what} ({where})")
        if self._in_a_row > self.patience:
            give_up(f"{what} ({where})", self._in_a_row, self.patience)
        self.events.append({"step": trainer.global_step, "found": found, "action": self.action})
        if self.action == "skip":
            self.skipped_steps += 1
            log.warning("%s: NaN or infinity in %s (%s); the step is skipped", _WHERE, what, where)
            return
        assert self._good is not None
        self._good.put_back(module, trainer.optimizers)
        self.rollbacks += 1
        log.warning(
            "%s: NaN or infinity in %s (%s); went back to the weights of step %d",
            _WHERE,
            what,
            where,
            self._good.step,
        )

    def end_run(self, trainer: Trainer, found: list[str]) -> None:
        """End the run because of what was found; once it is to end, for the first reason.

        Raises:
            StopTraining: it is to end.
        """
        if trainer.should_stop and self.events:
            return
        epoch = trainer.current_epoch
        self.events.append(
            {"step": trainer.global_step, "epoch": epoch, "found": found, "action": "stop"}
        )
        stop(trainer, found, epoch)

    def _copy(self, trainer: Trainer, module: Module) -> None:
        self._good = GoodState.of(
            module, trainer.optimizers, trainer.global_step, self.snapshot_device
        )

    def _forget(self) -> None:
        self.events.clear()
        self.skipped_steps = self.rollbacks = self._in_a_row = 0
        self._loss_is_broken = self._good = None
        self._is_unchecked = False
