"""HookDriver: call the hooks of one of our callbacks in the order of our fit, in a host's run.

A host derives from it. For each of its events it calls one or more of the methods here, which move
the counters and the clock of the view (`HostTrainer`) and call the callback's hooks.
"""

from __future__ import annotations

import math
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from trainer_hooks._log import log
from trainer_hooks._names import ours
from trainer_hooks.adapters.export.host_trainer import HostTrainer, report_of
from trainer_hooks.adapters.export.plugins import driver_of
from trainer_hooks.adapters.export.requirements import check_callback, check_requirements
from trainer_hooks.callbacks import ModelPruning
from trainer_hooks.checkpoint.encoding import Encoder, UnsavableValueError, decode
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.context.run_state import RunningStage, TrainerStatus
from trainer_hooks.data.batch_counts import count_samples, count_tokens
from trainer_hooks.errors import StopTraining, error_summary, is_interruption
from trainer_hooks.hooks.relay import RelayMember
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.module.optimization import fit_schedulers_to_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import FrameType

    from torch import Tensor, nn
    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback

RUN_STATE = "trainer_hooks.run"
"""The key beside a callback's own state in a host's checkpoint: the counters of the training, and
what the callback put into the checkpoint itself."""


_ITEM_COUNTS = ("clock", "progress.samples_completed", "progress.tokens_completed")
"""The attributes of a trainer that are made of the samples and tokens of batches."""


_BATCH_HOOKS = (
    "on_train_batch_start", "on_before_backward", "on_before_optimizer_step",
    "on_after_train_batch", "on_after_optimizer_step", "on_train_batch_end",
)  # fmt: skip


class HookDriver:
    """The hooks of one callback in a host's runs.

    Args:
        callback: one of our callbacks.
        function: the function that the user called, for messages.

    Raises:
        CallbackError: it is no callback of ours, or needs a hook or an attribute that the host does
            not have.

    Attributes:
        callback: the callback.
        calls: the hooks that it overrides, with the function to call for each.
        trainer: the view of the host's trainer.
        uses: the attributes of the trainer that the callback's hooks use.
    """

    view: ClassVar[type[HostTrainer]]
    """The class of the view."""

    events: ClassVar[Mapping[str, str]]
    """Our hooks that are called in this host, and the host's moment at which each is."""

    def __init__(self, callback: Callback, function: str, **options: Any) -> None:
        check_callback(callback, function)
        member = RelayMember(
            callback, type(callback).__qualname__, routes_events=ours(callback).routes_events
        )
        self.callback = callback
        self.calls = {hook: call for hook in HOOKS if (call := member.listener(hook)) is not None}
        self.trainer = self.view(callback, **options)
        self.uses = check_requirements(callback, self.calls, self.events, self.trainer, function)
        self._counts_items = not self.uses.isdisjoint(_ITEM_COUNTS)
        self._may_stop_at_batches = not self.calls.keys().isdisjoint(_BATCH_HOOKS)
        self._recorded: dict[str, Any] = {}
        self.trainer.on_checkpoint_saved = lambda path: self.fire("on_checkpoint_saved", path)
        self._loaded: dict[str, Any] | None = None
        self._has_called_load_hook = False
        self._own_state: dict[str, Any] | None = None
        self._loaded_scheduler: dict[str, Any] | None = None
        self._kept_gradients: list[tuple[nn.Parameter, Tensor | None]] | None = None
        self._handles: list[Any] = []
        self._steps_before = 0
        self._open_fn = ""

    @property
    def is_open(self) -> bool:
        """Whether a run is open: its `setup` was called, and its `teardown` was not."""
        return bool(self._open_fn)

    is_from_plugin = False
    """Whether an installed package brings the callback, and not the user."""

    def without_twin(self, callbacks: Sequence[Any]) -> list[Any] | None:
        """Return a host's callbacks without this one, if the user has passed it as well.

        As in our Trainer, a callback of the user replaces a package's of the same class and
        state_key. This one calls no hook any more.

        Args:
            callbacks: the host's callbacks.

        Returns:
            The others; None if this callback stays.
        """
        identity = type(self.callback), self.callback.state_key
        drivers = [driver_of(callback) for callback in callbacks]
        if not self.is_from_plugin or not any(
            driver is not None
            and not driver.is_from_plugin
            and (type(driver.callback), driver.callback.state_key) == identity
            for driver in drivers
        ):
            return None
        self.calls = {}
        pairs = zip(callbacks, drivers, strict=True)
        return [callback for callback, driver in pairs if driver is not self]

    # --- hooks ---

    def fire(self, hook: str, *arguments: Any) -> None:
        """Call a hook of the callback, if it overrides it."""
        call = self.calls.get(hook)
        if call is None:
            return
        trainer = self.trainer
        try:
            call(trainer, trainer.module, *arguments)
        except StopTraining as request:
            trainer.stop(str(request))
            self.note_stop(request)
        except BaseException as error:
            if ours(self.callback).on_error != "disable" or is_interruption(error):
                raise
            self._disable(hook, error)

    def note_stop(self, request: StopTraining) -> None:
        """Call `on_stop_training_error`; a host with such an event overrides it."""
        self.fire("on_stop_training_error", request)

    def _disable(self, hook: str, error: BaseException) -> None:
        """Take the callback out of the run, as its error policy says."""
        name = type(self.callback).__qualname__
        log.error("callback %s failed in %s and is disabled", name, hook, exc_info=error)
        self.trainer.disabled = replace(
            report_of(self.callback),
            is_active=False,
            hook=hook,
            error=error_summary(error),
            traceback="".join(traceback.format_exception(error)),
        )
        self.calls = {}

    # --- the run ---

    def begin_run(self, fn: str, module: Any, *, is_new: bool = False) -> None:
        """Begin a run: call `setup`, and in a fit the hooks up to the load of a checkpoint.

        Args:
            fn: `"fit"`, `"validate"`, `"test"` or `"predict"`.
            module: the model, as hooks receive it, which `self.log` of the callback goes to.
            is_new: whether the host counts from 0 again, whatever it has trained before.
        """
        trainer = self.trainer
        if is_new:
            trainer.forget()
        self._let_masks_go(module)
        trainer.begin_run(fn)
        trainer.module, self._open_fn = module, fn
        if ours(self.callback).runs_on == "rank_zero" and not trainer.is_global_zero:
            self.calls = {}
        ours(self.callback).attach_module(module)
        self.fire("setup", trainer.state.fn)
        if fn == "fit":
            self.fire("on_configure_model")
            trained = [p for p in module.parameters() if p.requires_grad]
            self.fire("on_after_configure_model")
            _leave_out(self.trainer.optimizers, {id(p) for p in trained if not p.requires_grad})
            self.fire("on_before_load", trainer.ckpt_path)

    def _let_masks_go(self, module: nn.Module) -> None:
        """Let the host load the weights of a pruned model into this one, which has no masks yet.

        The callback puts the masks back when it is restored.
        """
        if isinstance(self.callback, ModelPruning):
            register: Any = module.register_load_state_dict_pre_hook
            self._handles.append(register(_resolve_masks))

    def restore(self, state: Mapping[str, Any] | None, loaded: Mapping[str, Any]) -> None:
        """Restore counters and weights from a host's checkpoint, whose weights the model has.

        `load_into_optimizers` follows, with the callback's state; where the host loads its weights
        after the optimizers were made ready, `read` and `put_weights` are called apart.

        Args:
            state: what `exported_state` returned; None if the checkpoint has none of the callback.
            loaded: the host's checkpoint, with the weights as its `state_dict`.
        """
        self.read(state)
        self.put_weights(loaded)

    def read(self, state: Mapping[str, Any] | None) -> None:
        """Restore the counters of a saved state, and keep the rest until its owners are there."""
        trainer, own_state = self.trainer, dict(state or {})
        run = own_state.pop(RUN_STATE, {})
        if "encoded" in run:
            own_state = decode(run["encoded"], "of the host")
        if run:
            trainer.progress.load_state_dict(run["progress"])
            trainer.timekeeper.load_state_dict(run["starts"], trainer.progress)
            trainer.timekeeper.load_wall_times(run["times"])
        trainer.progress.is_restored = True
        self._own_state = None if state is None else own_state
        self._loaded_scheduler = run.get("scheduler")
        callbacks = {} if state is None else {self.callback.state_key: own_state}
        self._loaded = {**run.get("checkpoint", {}), "callbacks": callbacks}

    def put_weights(self, loaded: Mapping[str, Any]) -> None:
        """Call `on_before_restore`, and give the model the weights that the callback chose."""
        assert self._loaded is not None
        checkpoint = {**loaded, **self._loaded}
        self.fire("on_before_restore", checkpoint)
        # the host has loaded its own weights; those that the callback chose come in their place
        if checkpoint["state_dict"] is not loaded["state_dict"]:
            self.trainer.module.load_state_dict(checkpoint["state_dict"])
        self._loaded = checkpoint

    def load_into_optimizers(self) -> None:
        """Call `on_load_checkpoint`, in which a callback may regroup the optimizers' parameters."""
        if self._loaded is None or self._has_called_load_hook:
            return
        self._has_called_load_hook = True
        self.fire("on_load_checkpoint", self._loaded)
        self._fit_schedulers_to_groups()
        scheduler = self.trainer.epoch_scheduler
        if scheduler is not None and self._loaded_scheduler is not None:
            scheduler.scheduler.load_state_dict(self._loaded_scheduler)
        if self._own_state is not None and ours(self.callback).is_stateful:
            self.callback.load_state_dict(self._own_state)

    def begin_fit(self) -> None:
        """Call the hooks from the load of a checkpoint, if there was one, to `on_fit_start`."""
        self.load_into_optimizers()
        loaded, self._loaded, self._has_called_load_hook = self._loaded, None, False
        self.fire("on_after_load", loaded)
        self.fire("on_fit_start")

    def begin_training(self) -> None:
        """Call `on_train_start`, and start the clock."""
        self.trainer.timekeeper.stopwatch.start()
        self.fire("on_train_start")

    def end_training(self) -> None:
        """Call `on_train_end`, and stop the clock."""
        self.trainer.progress.stage = EpochStage.BETWEEN
        self.fire("on_train_end")
        self.trainer.timekeeper.stopwatch.stop()

    def end_fit(self) -> None:
        """Call `on_fit_end`."""
        self.fire("on_fit_end")

    def fail(self, error: BaseException) -> None:
        """Call the hooks of an exception that ends a run, and those of the run's end."""
        if not self._open_fn:
            return
        self.trainer.timekeeper.stopwatch.stop()
        self.trainer.state.status = TrainerStatus.INTERRUPTED
        if isinstance(error, KeyboardInterrupt):
            self.fire("on_keyboard_interrupt")
        self.fire("on_exception", error)
        self.end_run()

    def end_run(self) -> None:
        """Call `teardown`, if a run is open."""
        if not self._open_fn:
            return
        self._open_fn = ""
        self.remove_handles()
        scheduler = self.trainer.epoch_scheduler
        if scheduler is not None:
            self.trainer.host_scheduler, self.trainer.epoch_scheduler = scheduler.before, None
        if sys.exception() is None:
            self.trainer.state.status = TrainerStatus.FINISHED
        self.fire("teardown", self.trainer.state.fn)
        self.trainer.state.stage = None
        ours(self.callback).attach_module(None)

    # --- a training epoch ---

    def begin_epoch(self) -> None:
        """Begin an epoch."""
        trainer = self.trainer
        trainer.progress.begin_epoch()
        trainer.timekeeper.begin_epoch(trainer.progress)
        trainer.is_last_batch = False
        self.fire("on_epoch_start")
        self.fire("on_train_epoch_start")
        self._fit_schedulers_to_groups()

    def _fit_schedulers_to_groups(self) -> None:
        name = type(self.callback).__qualname__
        fit_schedulers_to_groups(self.trainer.lr_scheduler_configs, lambda: name)

    def resume_epoch(self, batches: int) -> None:
        """Go on inside an epoch, of which some batches were trained before."""
        progress = self.trainer.progress
        progress.stage, progress.batches_in_epoch = EpochStage.BATCHES, batches

    def begin_batch(self, batch: Any, batch_idx: int, *, is_last: bool) -> None:
        """Begin a batch."""
        trainer = self.trainer
        trainer.is_last_batch, trainer.skips_batch = is_last, False
        self._steps_before = trainer.progress.steps_completed
        self.fire("on_train_batch_start", batch, batch_idx)
        if not trainer.progress.batches_in_window:
            self.fire("on_before_train_batch")

    def before_backward(self, loss: Any) -> None:
        """Call `on_before_backward`; set the window's gradients aside if the batch is skipped."""
        self.fire("on_before_backward", loss)
        self.set_gradients_aside()

    def set_gradients_aside(self) -> None:
        """Keep the gradients of a window from the backward of a batch that is skipped."""
        if self.trainer.skips_batch:
            parameters = self.trainer.module.parameters()
            self._kept_gradients = [(p, p.grad) for p in parameters]
            for parameter, _ in self._kept_gradients:
                parameter.grad = None

    def after_backward(self) -> None:
        """Drop the gradients of a skipped batch, and call `on_after_backward`."""
        if self._kept_gradients is not None:
            for parameter, gradient in self._kept_gradients:
                parameter.grad = gradient
            self._kept_gradients = None
        self.fire("on_after_backward")

    def end_batch(
        self,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *,
        closes_window: bool,
        steps: int | None = None,
    ) -> None:
        """Count a batch and call the hooks of its end.

        Args:
            outputs: the loss and whatever else the step returned, as a dict.
            batch: the batch.
            batch_idx: its index in the epoch.
            closes_window: whether it closed its accumulation window.
            steps: the host's number of optimizer steps; a step for each window unless given.
        """
        trainer = self.trainer
        progress = trainer.progress
        # looking for the tensors of a batch takes as long as all the rest
        counts = _counts_of(trainer.module, batch) if self._counts_items else (0, 0)
        progress.count_batch(closes_window, *counts)
        progress.steps_completed = self._steps_before + closes_window if steps is None else steps
        self.fire("on_train_batch_end", outputs, batch, batch_idx)
        progress.is_batch_open = False
        if self._may_stop_at_batches:
            self._agree_on_stop()

    def _agree_on_stop(self) -> None:
        """Stop all ranks where one has requested it: hosts do not tell the others."""
        trainer = self.trainer
        if "stop" not in self.uses or trainer.world_size == 1:
            return
        requested = trainer.strategy.reduce(float(trainer.should_stop), reduce_op="max")
        if requested.item() and not trainer.should_stop:
            trainer.stop("another process requested the end")

    def end_batch_slot(self) -> None:
        """Call `on_batch_checkpoint`, and save a checkpoint that was requested."""
        self.fire("on_batch_checkpoint")
        if self.trainer.progress.is_checkpoint_requested:
            self.save_requested()

    def save_requested(self) -> None:
        """Save the checkpoint that `request_checkpoint` asked for."""
        trainer = self.trainer
        trainer.progress.is_checkpoint_requested = False
        name = f"requested-epoch={trainer.current_epoch}-step={trainer.global_step}.ckpt"
        folder = Path(trainer.log_dir or trainer.default_root_dir, "checkpoints")
        trainer.save_checkpoint(str(folder / name))

    def end_batches(self) -> None:
        """Call `on_train_batches_end`."""
        self.trainer.progress.stage = EpochStage.VALIDATING
        self.fire("on_train_batches_end")

    def end_epoch(self) -> None:
        """End an epoch, after its validation."""
        trainer = self.trainer
        trainer.progress.stage = EpochStage.CLOSING
        self.fire("on_train_epoch_end")
        self._agree_on_stop()
        trainer.progress.stage = EpochStage.ENDED
        self.record_metrics()
        self.fire("on_epoch_end")
        self.fire("on_epoch_checkpoint")
        if trainer.progress.is_checkpoint_requested:
            self.save_requested()
        trainer.progress.complete_epoch()
        scheduler = trainer.epoch_scheduler
        if scheduler is not None:
            scheduler.scheduler.step()

    def record_metrics(self) -> None:
        """Add the values that the host has logged since the last call to the history.

        It is for hosts that say nothing of a logged value, and for callbacks that read the history.
        """
        if "history" not in self.uses:
            return
        metrics = dict(self.trainer.callback_metrics)
        # by identity: a value that is logged again is another object, though perhaps as large
        new = {n: v for n, v in metrics.items() if v is not self._recorded.get(n)}
        self._recorded = metrics
        self.trainer.history.record({name: float(value) for name, value in new.items()})

    # --- an evaluation ---

    @property
    def is_validating_in_fit(self) -> bool:
        """Whether a validation of a fit runs or is about to, and no sanity check."""
        return self._open_fn == "fit" and not self.trainer.sanity_checking

    def begin_validation_run(self) -> None:
        """Call `on_validation_run_start` in a fit, and time the validation apart."""
        if self.is_validating_in_fit:
            self.trainer.timekeeper.stopwatch.start_evaluating()
            self.fire("on_validation_run_start")

    def begin_validation(self) -> None:
        """Call `on_validation_start`."""
        self.trainer.state.stage = RunningStage.VALIDATING
        self.fire("on_validation_start")

    def begin_validation_epoch(self) -> None:
        """Call `on_validation_epoch_start`, and the hook of any epoch's start."""
        self.fire("on_epoch_start")
        self.fire("on_validation_epoch_start")

    def end_validation_epoch(self) -> None:
        """Call `on_validation_epoch_end`, and the hook of any epoch's end."""
        self.fire("on_validation_epoch_end")
        self.fire("on_epoch_end")

    def end_validation(self) -> None:
        """Call `on_validation_end`."""
        progress = self.trainer.progress
        if self.is_validating_in_fit:
            progress.validated_at = progress.batches_completed
            progress.is_validation_requested = False
        self.record_metrics()
        self.fire("on_validation_end")
        if self.is_validating_in_fit:
            self._agree_on_stop()
        if self._open_fn == "fit":
            self.trainer.state.stage = RunningStage.TRAINING

    def end_validation_run(self) -> None:
        """Call `on_validation_run_end` in a fit."""
        if self.is_validating_in_fit:
            self.trainer.timekeeper.end_validation(self.trainer.progress)
            self.fire("on_validation_run_end")

    # --- moments around the optimizer ---

    def watch_optimizers(self) -> None:
        """Call `on_after_optimizer_step` after each step of the optimizers."""
        if "on_after_optimizer_step" in self.calls:
            for optimizer in self.trainer.optimizers:
                self._handles.append(optimizer.register_step_post_hook(self.after_step))

    def watch_clipping(self) -> None:
        """Call `on_after_train_batch` before each step, when the gradients are clipped.

        It is for hosts that make a step without a closure.
        """
        if "on_after_train_batch" in self.calls:
            first = self.trainer.optimizers[:1]
            for optimizer in first:
                self._handles.append(
                    optimizer.register_step_pre_hook(lambda *_: self.fire("on_after_train_batch"))
                )

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Count an optimizer's step and call `on_after_optimizer_step`."""
        self.trainer.progress.steps_completed += 1
        self.fire("on_after_optimizer_step", optimizer)

    def before_optimizer_step(self) -> None:
        """Call `on_before_optimizer_step` for each optimizer."""
        if "on_before_optimizer_step" in self.calls:
            for optimizer in self.trainer.optimizers:
                self.fire("on_before_optimizer_step", optimizer)

    def watch_forward(self, model: nn.Module) -> None:
        """Call `on_before_forward` and `on_after_forward` around a training forward."""

        def is_watched(module: nn.Module) -> bool:
            # a callback that copies the model copies these functions with it
            return module is model and model.training

        if "on_before_forward" in self.calls:
            self._handles.append(
                model.register_forward_pre_hook(
                    lambda m, _: self.fire("on_before_forward") if is_watched(m) else None
                )
            )
        if "on_after_forward" in self.calls:
            self._handles.append(
                model.register_forward_hook(
                    lambda m, _, outputs: (
                        self.fire("on_after_forward", outputs) if is_watched(m) else None
                    )
                )
            )

    def remove_handles(self) -> None:
        """Remove the hooks from optimizers and the model."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    # --- state ---

    def exported_state(self, weights: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the state to keep in a host's checkpoint, for `restore`.

        Args:
            weights: the model's weights, where the host's checkpoint cannot be changed by the
                callback: what it puts there is part of this state then.
        """
        trainer, callback = self.trainer, self.callback
        state = callback.state_dict() if ours(callback).is_stateful else {}
        run: dict[str, Any] = {
            "progress": trainer.progress.state_dict(),
            "starts": trainer.timekeeper.state_dict(),
            "times": trainer.timekeeper.wall_times(),
        }
        scheduler = trainer.epoch_scheduler
        if scheduler is not None:
            run["scheduler"] = scheduler.scheduler.state_dict()
        if weights is not None and "on_save_checkpoint" in self.calls:
            checkpoint = {"state_dict": weights, "callbacks": {callback.state_key: state}}
            before = dict(checkpoint)
            self.fire("on_save_checkpoint", checkpoint)
            run["checkpoint"] = {
                name: value for name, value in checkpoint.items() if value is not before.get(name)
            }
        try:
            encoded = Encoder(state).encode(state)
        except UnsavableValueError:
            encoded = state  # as the host saves it, which may be able to
        # hosts open files without running code, for which a deque or a date must be plain data
        if encoded is not state:
            run["encoded"], state = encoded, {}
        return {**state, RUN_STATE: run}


def call_after_backward(tensor: Tensor, function: Callable[[], None]) -> None:
    """Call a function when the backward through a tensor is over, with all its reductions.

    Args:
        tensor: the loss, or another tensor of the graph.
        function: the function.
    """
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - as DDP and FSDP do

    def begin(_: Tensor) -> None:
        # twice: DDP queues the end of its reduction during the backward, which has to come first
        engine.queue_callback(lambda: engine.queue_callback(function))

    tensor.register_hook(begin)  # type: ignore[no-untyped-call]


def _resolve_masks(module: Any, state_dict: dict[str, Any], *_: Any) -> None:
    """Put products in place of the masks that a module does not have, in weights to be loaded."""
    plain = ModelPruning.without_masks(module, state_dict)
    for name in [name for name in state_dict if name not in plain]:
        del state_dict[name]
    state_dict.update(plain)


def find_calling_trainer(package: str) -> Any:
    """Return the nearest caller's `self` that is another framework's Trainer; None without one.

    Some frameworks hand their callbacks no trainer, and it is what an error passes and what saves.

    Args:
        package: the framework's package.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - documented
    while frame is not None:
        owner = frame.f_locals.get("self")
        for kind in type(owner).__mro__:
            if kind.__name__ == "Trainer" and kind.__module__.partition(".")[0] == package:
                return owner
        frame = frame.f_back
    return None


def _leave_out(optimizers: Sequence[Optimizer], frozen: set[int]) -> None:
    """Take parameters that a callback has frozen out of optimizers that were made before.

    Our Trainer makes the optimizers after that, of what is trained; unfrozen ones are added then.
    """
    for optimizer in optimizers if frozen else ():
        for group in optimizer.param_groups:
            group["params"] = [p for p in group["params"] if id(p) not in frozen]


def _counts_of(module: Any, batch: Any) -> tuple[int, int]:
    """Return the numbers of samples and tokens of a batch, as the model counts them if it does."""
    count_as_model = [getattr(module, name, None) for name in ("num_samples", "num_tokens")]
    counts = [
        method if callable(method) else default
        for method, default in zip(count_as_model, (count_samples, count_tokens), strict=True)
    ]
    return int(counts[0](batch)), int(counts[1](batch))


def largest_limit(value: Any) -> int:
    """Return a limit as ours are told: -1 for none."""
    return -1 if value is None or value == math.inf or value < 0 else int(value)
