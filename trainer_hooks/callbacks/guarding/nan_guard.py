"""NaNGuard: find NaN and infinity in a training; raise, stop, skip the step, or roll back."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import torch
from torch import Tensor

from trainer_hooks._log import log
from trainer_hooks._options import (
    FLAG,
    Combination,
    check_choices,
    one_of,
    option_rules,
    whole_number,
)
from trainer_hooks._text import first_few
from trainer_hooks.callback import Callback
from trainer_hooks.callbacks.base import require_whole_weights, union_over_ranks
from trainer_hooks.connector.state_types import checks_state
from trainer_hooks.context.plan import NEVER
from trainer_hooks.errors import NonFiniteError, StopTraining
from trainer_hooks.hooks.band import Band
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.runtime.device import device_of_option, require_usable
from trainer_hooks.runtime.nested_tensors import map_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import nn
    from torch.optim import Optimizer

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

ACTIONS = ("raise", "stop", "skip", "rollback")
"""The actions of NaNGuard."""
CHECKS = ("loss", "gradients", "parameters")
"""The tensors that NaNGuard can check."""
_WHERE = "NaNGuard"
_MOST_EVENTS = 100
_EVERY = 50
"""Steps between two checks where no logger takes metrics."""


class NaNGuard(Callback):
    """Find NaN and infinity in a training, and raise, stop the run, skip the step, or roll back.

    Losses are checked in every batch, but the answer stays on the device. Every so many steps,
    before the optimizer steps, the gradients of the window, the trainable parameters and the
    buffers (for NaN alone, since masks hold infinity) are checked too, and all answers are copied
    to the host as one number: only for that the host waits for a GPU. A non-finite step in between
    is found then, for it leaves non-finite parameters. So a finding is at most
    `check_every_n_steps` steps late, and comes at the end of an epoch's batches at the latest,
    before the epoch is validated and saved. A checkpoint that is saved between two checks may hold
    non-finite values.

    The actions:

    - `"raise"`: a `NonFiniteError` names the non-finite tensors.
    - `"stop"`: the run ends in order, and `trainer.stop_reason` says why. A checkpoint of that
      moment ends a fit that resumes it as well: resume from an earlier one.
    - `"skip"`: the optimizer does not step with these gradients: they are removed. The check runs
      at each step, so each step waits for the device. The step counts, as a step of a scheduler
      too. Non-finite parameters cannot be mended so, and raise.
    - `"rollback"`: parameters, buffers and optimizer states are restored, bit for bit, from the
      last snapshot, which was taken when all was finite. The training goes on from there with the
      next batch; counters, data and learning rates stay where they are.

    More than `patience` findings in a row raise in each case. The metrics of a non-finite batch are
    logged, so the mean of that epoch may be NaN. Copies of the weights in other callbacks are not
    restored.

    In several processes all ranks act when any of them finds a non-finite value: a check costs one
    reduction of three numbers more.

    With `precision="16-mixed"` infinite gradients are how the loss scaler finds its scale, and the
    optimizer skips them by itself: gradients are not checked.

    Args:
        action: `"raise"`, `"stop"`, `"skip"` or `"rollback"`.
        check: one or more of `"loss"`, `"gradients"` and `"parameters"`.
        check_every_n_steps: the number of optimizer steps between two checks. Unless given, the
            trainer's `log_every_n_steps`, where the host waits for a GPU anyway; 1 with `"skip"`.
        snapshot_every_n_steps: the least number of steps between two snapshots for `"rollback"`.
            They are taken at a check that finds all finite, so as often as that at most.
        patience: the number of findings in a row that `"skip"` and `"rollback"` tolerate.
        snapshot_device: the device of the snapshot, such as `"cpu"`; the weights' own unless given.
        save_snapshot: whether the snapshot is part of checkpoints, which makes them about twice as
            large. Without it a resumed run takes its first snapshot of the resumed state, so that a
            rollback soon after differs from the rollback of an uninterrupted run.

    Attributes:
        events: the newest 100 findings, each a dict with `step`, `found` and `action`.
        skipped_steps: the number of skipped steps.
        rollbacks: the number of rollbacks.

    Raises:
        OptionError: an argument is outside its rule.
        NonFiniteError: in a run, non-finite values were found and the action does not tolerate
            them.

    State: the findings, loss answers that were not read yet, and the snapshot.

    Example::

        guard = NaNGuard("rollback", snapshot_every_n_steps=50)
        trainer = Trainer(max_epochs=2, callbacks=[guard])
        trainer.fit(module, train_loader, val_loader)
        print(guard.rollbacks, list(guard.events))
    """

    # after the module's own hooks, which may still change the gradients
    band: ClassVar[Band] = Band.CONTROL
    renews_stop: ClassVar[bool] = True

    @option_rules(
        Combination(
            ("action", "check_every_n_steps"),
            lambda action, steps: action != "skip" or steps in (None, 1),
            "each step must be looked at before it is made. Leave it out, or choose the action "
            "'rollback'.",
            "check_every_n_steps {check_every_n_steps!r} of {owner} with action 'skip'",
        ),
        action=one_of(*ACTIONS),
        check_every_n_steps=whole_number(1).unless(None),
        snapshot_every_n_steps=whole_number(1),
        patience=whole_number(),
        save_snapshot=FLAG,
    )
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
        self.action = action
        self.check = check_choices("check", check, _WHERE, CHECKS)
        self.check_every_n_steps = check_every_n_steps
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self.patience = patience
        self.snapshot_device = device_of_option(snapshot_device, "snapshot_device", _WHERE)
        self.save_snapshot = save_snapshot
        self._every = 1
        self._must_clear_gradients = False
        self._reset()

    def _reset(self) -> None:
        self.events: deque[dict[str, Any]] = deque(maxlen=_MOST_EVENTS)
        self.skipped_steps = self.rollbacks = self._in_a_row = 0
        self._is_loss_non_finite: Tensor | None = None
        self._has_unchecked_step = False
        self._snapshot: TrainingSnapshot | None = None

    @property
    def state_key(self) -> str:
        """The class name with the action and the checks."""
        return self._generate_state_key(action=self.action, check=self.check)

    def state_dict(self) -> dict[str, Any]:
        """Return the findings, the unread answers, and the snapshot."""
        snapshot = self._snapshot
        return {
            "events": [dict(event) for event in self.events],
            "skipped_steps": self.skipped_steps,
            "rollbacks": self.rollbacks,
            "in_a_row": self._in_a_row,
            "loss_is_broken": self._is_loss_non_finite,
            "is_unchecked": self._has_unchecked_step,
            "snapshot": snapshot.state_dict() if snapshot and self.save_snapshot else None,
        }

    @checks_state(
        {
            "events": list[dict[str, Any]],
            "skipped_steps": int,
            "rollbacks": int,
            "in_a_row": int,
            "loss_is_broken": Tensor | None,
            "is_unchecked": bool,
            "snapshot": (
                None,
                {
                    "step": int,
                    "tensors": dict[str, Tensor],
                    "optimizers": list[dict[int, dict[str, Any]]],
                },
            ),
        }
    )
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the findings, the unread answers, and the snapshot."""
        self.events = deque(state_dict["events"], _MOST_EVENTS)
        self.skipped_steps = state_dict["skipped_steps"]
        self.rollbacks = state_dict["rollbacks"]
        self._in_a_row = state_dict["in_a_row"]
        self._is_loss_non_finite = state_dict["loss_is_broken"]
        self._has_unchecked_step = state_dict["is_unchecked"]
        snapshot = state_dict["snapshot"]
        self._snapshot = None if snapshot is None else TrainingSnapshot(**snapshot)

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Reset the state when a new training begins, and determine how often to check."""
        if self.action == "rollback":
            require_whole_weights(trainer, self)
            require_usable(self.snapshot_device, "snapshot_device", _WHERE)
        if trainer.progress.is_new_training:
            self._reset()
        logged = trainer.log_every_n_steps
        # NEVER: no metrics are flushed, so no other moment makes the host wait for the device
        default = 1 if self.action == "skip" else logged if logged < NEVER else _EVERY
        self._every = self.check_every_n_steps or default

    def on_train_start(self, trainer: Trainer, module: Module) -> None:
        """Take the first snapshot; stop again if the resumed run had been stopped.

        Raises:
            NonFiniteError: the weights are non-finite already.
        """
        self._must_clear_gradients = False
        if self.action == "stop" and self.events:
            last = self.events[-1]
            stop_for_non_finite(trainer, last["found"], last.get("epoch", trainer.current_epoch))
        # a resume has none either, if the checkpoint was saved without the snapshot
        if self.action == "rollback" and self._snapshot is None:
            if read_flags({"parameters": non_finite_weights(module)}):
                raise NonFiniteError(
                    f"NaN or infinity in {describe_non_finite(module, ['parameters'])} before the "
                    f"first batch: {_WHERE}('rollback') has nothing to go back to. Begin with "
                    "other weights, or resume from an earlier checkpoint."
                )
            self._take_snapshot(trainer, module)

    def on_before_backward(self, trainer: Trainer, module: Module, loss: Tensor) -> None:
        """Check the loss, and leave the answer on its device."""
        if "loss" in self.check:
            is_non_finite = torch.isfinite(loss.detach()).logical_not()
            before = self._is_loss_non_finite
            self._is_loss_non_finite = (
                # the answers of all batches since the last check are combined on the device
                is_non_finite if before is None else is_non_finite | before.to(is_non_finite.device)
            )

    def on_before_optimizer_step(
        self, trainer: Trainer, module: Module, optimizer: Optimizer
    ) -> None:
        """Check gradients and parameters, if a check is due."""
        self._has_unchecked_step = True
        # by the trainer's counter, so that a resumed run checks at the same steps
        if (trainer.progress.batches_stepped + 1) % self._every:
            return
        # before clipping, which by value would turn infinity into a finite number
        flags = {"loss": self._is_loss_non_finite}
        if "gradients" in self.check and trainer.precision != "16-mixed":
            # with 16-mixed the loss scaler makes infinite gradients on purpose and skips those
            # steps itself
            flags["gradients"] = any_non_finite(gradients_of(optimizer))
        if self._read_and_act(trainer, module, flags, trainer.global_step + 1):
            self._must_clear_gradients = module.automatic_optimization
            # with automatic optimization clipping still follows, which needs the gradients: they
            # are removed in on_after_train_batch. A module that steps itself steps right after
            # this hook
            if not self._must_clear_gradients:
                clear_gradients(trainer.optimizers if self.action == "rollback" else [optimizer])

    def on_after_train_batch(self, trainer: Trainer, module: Module) -> None:
        """Remove the gradients of a bad step, after gradient clipping has used them."""
        if self._must_clear_gradients:
            self._must_clear_gradients = False
            clear_gradients(trainer.optimizers)

    def on_train_batches_end(self, trainer: Trainer, module: Module) -> None:
        """Check the last steps of the epoch, before it is validated and saved."""
        # the action "skip" has checked each step before it was made
        if self._has_unchecked_step and self.action != "skip":
            self._read_and_act(
                trainer, module, {"loss": self._is_loss_non_finite}, trainer.global_step
            )

    def teardown(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Drop an answer that was not read."""
        self._is_loss_non_finite = None

    def _read_and_act(
        self, trainer: Trainer, module: Module, flags: dict[str, Tensor | None], step: int
    ) -> bool:
        """Read the answers and act on them; return whether non-finite values were found.

        Args:
            trainer: the trainer.
            module: the module.
            flags: the answers.
            step: the optimizer step up to which they reach, the first being 1.
        """
        if "parameters" in self.check:
            flags["parameters"] = non_finite_weights(module)
        findings = union_over_ranks(trainer, read_flags(flags), CHECKS)
        self._is_loss_non_finite, self._has_unchecked_step = None, False
        if findings:
            self._act(trainer, module, findings, step)
            return True
        self._in_a_row = 0
        snapshot = self._snapshot
        # only rollback has a snapshot, taken when the training began
        if snapshot is not None:
            age = trainer.global_step - snapshot.step
            if age >= self.snapshot_every_n_steps:
                self._take_snapshot(trainer, module)
        return False

    def _act(self, trainer: Trainer, module: Module, findings: list[str], step: int) -> None:
        """Carry out the action for a finding.

        Raises:
            NonFiniteError: the action is to raise, or there were too many findings in a row.
        """
        if self.action == "stop":
            self.end_run(trainer, findings)
        self._in_a_row += 1
        names = describe_non_finite(module, findings)
        position = f"epoch {trainer.current_epoch}, up to optimizer step {step}"
        if self.action == "raise" or (self.action == "skip" and "parameters" in findings):
            raise NonFiniteError(
                f"NaN or infinity in {names} ({position}): a training cannot go on from there. "
                "Lower the learning rate, clip the gradients, look at the data of these steps, or "
                "use NaNGuard('rollback')."
            )
        if self._in_a_row > self.patience:
            raise NonFiniteError(
                f"NaN or infinity in {names} ({position}): found {self._in_a_row} times in a row, "
                f"and patience={self.patience} of NaNGuard is used up. Lower the learning rate, "
                "clip the gradients, or look at the data of these steps."
            )
        self.events.append({"step": trainer.global_step, "found": findings, "action": self.action})
        if self.action == "skip":
            self.skipped_steps += 1
            log.warning(
                "%s: NaN or infinity in %s (%s); the step is skipped", _WHERE, names, position
            )
            return
        assert self._snapshot is not None
        self._snapshot.restore(module, trainer.optimizers)
        self.rollbacks += 1
        message = "%s: NaN or infinity in %s (%s); went back to the weights of step %d"
        log.warning(message, _WHERE, names, position, self._snapshot.step)

    def end_run(self, trainer: Trainer, findings: list[str]) -> None:
        """Record a finding and stop the run, unless it is stopping for an earlier finding.

        Raises:
            StopTraining: the run is to stop.
        """
        if trainer.should_stop and self.events:
            return
        epoch = trainer.current_epoch
        self.events.append(
            {"step": trainer.global_step, "epoch": epoch, "found": findings, "action": "stop"}
        )
        stop_for_non_finite(trainer, findings, epoch)

    def _take_snapshot(self, trainer: Trainer, module: Module) -> None:
        self._snapshot = TrainingSnapshot.of(
            module, trainer.optimizers, trainer.global_step, self.snapshot_device
        )


def stop_for_non_finite(trainer: Trainer, findings: list[str], epoch: int) -> NoReturn:
    """Stop a run in order because of non-finite values.

    Args:
        trainer: the trainer of the run.
        findings: the items of `CHECKS` that are non-finite.
        epoch: the index of the epoch, for the reason.

    Raises:
        StopTraining: always.
    """
    name = "training loss" if findings[0] == "loss" else findings[0]
    verb = "is NaN or infinite" if name.endswith("loss") else "hold NaN or infinity"
    reason = f"the {name} {verb} (epoch {epoch})"
    trainer.stop(reason)
    raise StopTraining(reason)


@dataclass(frozen=True, slots=True)
class TrainingSnapshot:
    """Copies of the parameters, the buffers and the optimizers' states at one moment.

    The optimizers' options, such as learning rates, are not part of it: schedules go on.

    Attributes:
        step: the number of optimizer steps done at that moment.
        tensors: copies of the parameters and buffers, by name.
        optimizers: for each optimizer, copies of its state of each parameter, by the parameter's
            index.
    """

    step: int
    tensors: dict[str, Tensor]
    optimizers: list[dict[int, dict[str, Any]]]

    @classmethod
    def of(
        cls,
        module: torch.nn.Module,
        optimizers: Sequence[Optimizer],
        step: int,
        device: torch.device | None = None,
    ) -> TrainingSnapshot:
        """Return a snapshot of the present state.

        Args:
            module: the module.
            optimizers: its optimizers.
            step: the number of optimizer steps done.
            device: the device of the copies; each tensor's own unless given.
        """

        def copied(tensor: Tensor) -> Tensor:
            # without copy=True `to` returns the tensor itself if it is on that device already
            return tensor.detach().to(device or tensor.device, copy=True)

        return cls(
            step,
            {name: copied(tensor) for name, tensor in _named_tensors(module)},
            [
                {
                    # by number: parameters are no keys that a checkpoint could hold
                    number: map_tensors(dict(optimizer.state[parameter]), copied)
                    for number, parameter in enumerate(_parameters_of(optimizer))
                    # `in`, as reading an entry of this defaultdict would add it
                    if parameter in optimizer.state
                }
                for optimizer in optimizers
            ],
        )

    @torch.no_grad()
    def restore(self, module: torch.nn.Module, optimizers: Sequence[Optimizer]) -> None:
        """Copy the snapshot into the same parameters, buffers and optimizer states."""
        for name, tensor in _named_tensors(module):
            if name in self.tensors:
                copy = self.tensors[name]
                if tensor.shape != copy.shape:  # a buffer that grows
                    tensor.resize_(copy.shape)
                tensor.copy_(copy)
        for optimizer, states in zip(optimizers, self.optimizers, strict=True):
            for number, parameter in enumerate(_parameters_of(optimizer)):
                if number in states:
                    now = optimizer.state.get(parameter, {})
                    optimizer.state[parameter] = {
                        name: _restored_value(value, now.get(name), parameter)
                        for name, value in states[number].items()
                    }
                else:
                    # no state at the snapshot: the optimizer makes a new one at its next step
                    optimizer.state.pop(parameter, None)

    def state_dict(self) -> dict[str, Any]:
        """Return the snapshot as plain data and tensors."""
        return {"step": self.step, "tensors": self.tensors, "optimizers": self.optimizers}


def _restored_value(value: Any, now: Any, parameter: Tensor) -> Any:
    """Return a copy of an optimizer's value, in the present tensor or on its device."""
    if isinstance(value, Tensor):
        if isinstance(now, Tensor) and now.shape == value.shape and now.dtype == value.dtype:
            return now.copy_(value)
        if not value.ndim:  # a step counter, as Adam's: on the CPU beside CUDA parameters
            return value.clone()
    return map_tensors(value, lambda tensor: tensor.to(parameter.device, copy=True))


def _named_tensors(module: torch.nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _parameters_of(optimizer: Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])


_MOST_NAMES = 5


def any_non_finite(tensors: Iterable[Tensor], *, is_infinity_fine: bool = False) -> Tensor | None:
    """Return whether a tensor holds NaN or infinity, as a boolean tensor on the tensors' device.

    The host does not wait for the device. None if no tensor could hold any: there is none, or all
    are of integers.

    Args:
        tensors: the tensors to check.
        is_infinity_fine: whether only NaN counts.
    """
    entries = [
        tensor
        for tensor in map(_entries, tensors)
        # an empty tensor has no largest entry, and torch raises an error for it
        if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex())
    ]
    if not entries:
        return None
    # the infinity norm: a sum of squares could overflow, and NaN propagates through a maximum
    largest = torch.nn.utils.get_total_norm(entries, math.inf)
    return largest.isnan() if is_infinity_fine else largest.isfinite().logical_not()


def non_finite_weights(module: nn.Module) -> Tensor | None:
    """Return whether trainable parameters are non-finite or buffers hold NaN, as a tensor."""
    # frozen parameters cannot change, so they are not worth the reading
    learned = any_non_finite(p for p in module.parameters() if p.requires_grad)
    buffers = any_non_finite(module.buffers(), is_infinity_fine=True)
    if learned is None or buffers is None:
        return buffers if learned is None else learned
    # a module may be spread over several devices
    return learned | buffers.to(learned.device)


def read_flags(flags: Mapping[str, Tensor | None]) -> list[str]:
    """Return the names of the true flags; all flags are copied to the host as one number."""
    # one bit a flag: a single copy from the device, where `bool(flag)` for each would wait each
    # time
    raised = [(name, flag) for name, flag in flags.items() if flag is not None]
    if not raised:
        return []
    device = raised[0][1].device
    code = torch.stack(
        # shifted as int64: a flag is a bool, which has one bit alone
        [flag.to(device, torch.int64) << bit for bit, (_, flag) in enumerate(raised)]
    )
    bits = int(code.sum().item())
    return [name for bit, (name, _) in enumerate(raised) if bits >> bit & 1]


def describe_non_finite(module: nn.Module, kinds: Iterable[str]) -> str:
    """Return a text that names the non-finite gradients or weights; it waits for the device."""
    parts = []
    for kind in kinds:
        names = [name for name, flag in _flags_of(module, kind) if flag is not None and bool(flag)]
        parts.append(f"the {kind}" + (f" of {first_few(names, _MOST_NAMES)}" if names else ""))
    return ", ".join(parts)


def gradients_of(optimizer: Optimizer) -> list[Tensor]:
    """Return the gradients of an optimizer's parameters."""
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def clear_gradients(optimizers: Iterable[Optimizer]) -> None:
    """Set all gradients of the optimizers to None, so that a step changes no parameter."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                # None and not zero: momentum and weight decay would change a parameter also with
                # zeros
                parameter.grad = None


def _flags_of(module: nn.Module, kind: str) -> Iterator[tuple[str, Tensor | None]]:
    """Yield the name of each gradient or weight, and whether it is non-finite as a tensor."""
    for name, parameter in module.named_parameters():
        if kind == "gradients" and parameter.grad is not None:
            yield name, any_non_finite([parameter.grad])
        elif kind == "parameters" and parameter.requires_grad:
            yield name, any_non_finite([parameter])
    if kind == "parameters":
        for name, buffer in module.named_buffers():
            yield name, any_non_finite([buffer], is_infinity_fine=True)


def _entries(tensor: Tensor) -> Tensor:
    detached = tensor.detach()
    # the values of an uncoalesced tensor are summed when they are used, and may overflow then
    return detached.coalesce().values() if detached.is_sparse else detached
