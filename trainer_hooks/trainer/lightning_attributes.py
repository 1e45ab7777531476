"""Objects behind `trainer.callbacks`, `fit_loop`, `strategy` and `accelerator`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex

import torch

from trainer_hooks._options import check_attribute, check_option, integer
from trainer_hooks.checkpoint.paths import absolute_path, remove
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import UsageError
from trainer_hooks.module.module import Module
from trainer_hooks.runtime.nested_tensors import move_to_device
from trainer_hooks.runtime.parameter_names import with_names_of
from trainer_hooks.runtime.strategy_options import DDPStrategy, FSDPStrategy
from trainer_hooks.trainer.options.config import NO_STORAGE_OPTIONS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping

    from torch.optim import Optimizer

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock.progress import Progress
    from trainer_hooks.module.optimization import LRSchedulerConfig
    from trainer_hooks.runtime.precision import Precision
    from trainer_hooks.trainer.core.trainer_core import TrainerCore


class ProgressCounts:
    """The number of epochs or batches that were begun, run and completed.

    Args:
        ready: the number begun.
        processed: the number run, including one whose end hooks are still to come.
        completed: the number completed.
        change: a function that sets `processed` and `completed`; None if they cannot be set.
    """

    def __init__(
        self,
        ready: int,
        processed: int,
        completed: int,
        change: Callable[[int], None] | None = None,
    ) -> None:
        self._ready, self._processed, self._completed = ready, processed, completed
        self._change = change

    @property
    def ready(self) -> int:
        """The number begun."""
        return self._ready

    started = ready

    @property
    def processed(self) -> int:
        """The number run, including one whose end hooks are still to come."""
        return self._processed

    @processed.setter
    def processed(self, value: int) -> None:
        self._set("processed", value)

    @property
    def completed(self) -> int:
        """The number completed."""
        return self._completed

    @completed.setter
    def completed(self, value: int) -> None:
        self._set("completed", value)

    def _set(self, name: str, value: int) -> None:
        if self._change is None:
            raise UsageError(
                f"trainer.fit_loop: the batches {name} cannot be set, as the loader would not be "
                "there. Set epoch_progress, or resume from a checkpoint."
            )
        self._change(value)

    def __repr__(self) -> str:
        return f"<ready {self._ready}, processed {self._processed}, completed {self._completed}>"


@dataclass
class ProgressView:
    """The counts of the present epoch or fit, and of the whole training.

    Attributes:
        current: the counts of the present epoch or fit.
        total: the counts of the whole training.
        is_last_batch: whether the current batch is the last of its epoch.
    """

    current: ProgressCounts
    total: ProgressCounts
    is_last_batch: bool = False


_LOADERS = "read trainer.train_dataloader and trainer.val_dataloaders"
_LOOP_PARTS = {
    "_combined_loader": _LOADERS,
    "_data_fetcher": f"{_LOADERS}; the hooks are given each batch",
    "_data_source": f"{_LOADERS}; trainer.datamodule is the data module",
    "_results": "read trainer.callback_metrics and trainer.logged_metrics",
    "automatic_optimization": "read trainer.global_step and trainer.optimizers",
    "load_state_dict": "resume with fit(ckpt_path=...), which restores the counts",
    "manual_optimization": "read trainer.global_step and trainer.optimizers",
    "run": "call trainer.fit, or trainer.request_validation() in a hook of it",
    "setup_data": "the Trainer makes its loaders; reload_dataloaders_every_n_epochs renews them",
    "state_dict": "trainer.save_checkpoint writes the counts, and trainer.progress has them",
    "val_loop": "read trainer.num_val_batches, trainer.val_dataloaders and trainer.progress",
}
"""Internal parts of Lightning's loops that programs read, and what to read in their place."""

_STRATEGY_PARTS = {
    "checkpoint_io": (
        "trainer.save_checkpoint and ModelCheckpoint write to a path or an fsspec address, and "
        "trainer.strategy.load_checkpoint reads one"
    ),
}
"""Internal parts of Lightning's strategies that programs use, and what to use in their place."""


def _internal_part(owner: str, name: str, instead: str) -> AttributeError:
    """Return the error for an internal part of Lightning's Trainer that is not there."""
    return AttributeError(
        f"trainer.{owner}.{name} is an internal part of Lightning's Trainer, and not there: "
        f"{instead}.",
        name=name,
    )


class _Loop:
    """The common attributes of both loops: the step limits, and parts that are not there.

    Args:
        core: the trainer's core, which holds its parts.
    """

    _name: ClassVar[str]
    """The loop's name as an attribute of the Trainer."""

    def __init__(self, core: TrainerCore) -> None:
        self._core = core

    if not TYPE_CHECKING:  # type checkers would take any attribute to be there

        def __getattr__(self, name: str) -> Any:
            if name in _LOOP_PARTS:
                raise _internal_part(self._name, name, _LOOP_PARTS[name])
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )

    @property
    def restarting(self) -> bool:
        """Whether the current epoch is one that an earlier run began and this one goes on with."""
        context = self._core.context
        return context is not None and context.continues_epoch

    @property
    def min_steps(self) -> int:
        """The optimizer steps that must be done before a request to stop takes effect."""
        return self._core.plan.min_steps

    @property
    def max_steps(self) -> int:
        """Optimizer steps to train, -1 for no end. May be set, as `trainer.max_steps`."""
        return self._core.plan.max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._core.change_plan("max_steps", value)


def completed_windows(progress: Progress) -> int:
    """Return the number of accumulation windows completed before the current batch.

    Lightning counts a window when its last batch and the validation after it are over, so a window
    that was stepped but whose batch or validation is still open is left out.

    Args:
        progress: the training's counts.
    """
    is_counted = progress.is_batch_open and progress.batches_in_window == 0
    is_validating = progress.stage is EpochStage.VALIDATING
    return int(progress.batches_stepped - bool(is_counted or is_validating))


class TrainerEpochLoop(_Loop):
    """`trainer.fit_loop.epoch_loop`: the counts of batches.

    Args:
        core: the trainer's core, which holds its parts.
    """

    _name = "fit_loop.epoch_loop"

    @property
    def _batches_that_stepped(self) -> int:
        """The step at which loggers are written to, which callbacks of Lightning's users read."""
        return completed_windows(self._core.training.progress)

    @property
    def batch_progress(self) -> ProgressView:
        """The batches of the current epoch (between two, of the last one), and of all epochs."""
        core, progress = self._core, self._core.training.progress
        context = core.context
        # a batch that is fetched but not counted yet is begun
        taken = int(context is not None and context.state.fn == "fit" and context.batch.is_taken)
        # a validation after a batch comes when its hooks are over
        is_open = int(progress.is_batch_open and core.state.stage != "validate")
        done, total = progress.batches_in_epoch, progress.batches_completed
        if progress.stage is EpochStage.BETWEEN:
            done = progress.batches_in_last_epoch
        is_last = 0 < done == core.training.num_batches if context is None else None
        return ProgressView(
            ProgressCounts(done + taken, done, done - min(is_open, done)),
            ProgressCounts(total + taken, total, total - is_open),
            is_last_batch=context.batch.is_last if context is not None else bool(is_last),
        )

    @property
    def batch_idx(self) -> int:
        """The index in its epoch of the current or last batch; -1 before the first."""
        return self.batch_progress.current.ready - 1

    @property
    def total_batch_idx(self) -> int:
        """The index over all epochs of the current or last batch; -1 before the first."""
        return self.batch_progress.total.ready - 1

    @property
    def global_step(self) -> int:
        """Optimizer steps so far, over all optimizers."""
        return self._core.training.progress.steps_completed


class TrainerFitLoop(_Loop):
    """`trainer.fit_loop`: the counts of epochs, and the limits of the training.

    Args:
        core: the trainer's core, which holds its parts.
    """

    _name = "fit_loop"

    @property
    def epoch_loop(self) -> TrainerEpochLoop:
        """The counts of batches."""
        return TrainerEpochLoop(self._core)

    @property
    def batch_idx(self) -> int:
        """The index of the current batch in its epoch, or of the last one; -1 before any."""
        return self.epoch_loop.batch_idx

    @property
    def total_batch_idx(self) -> int:
        """The index of the current batch over all epochs, or of the last one; -1 before any."""
        return self.epoch_loop.total_batch_idx

    @property
    def epoch_progress(self) -> ProgressView:
        """The epochs. `current.completed` may be set between two, as before a first fit."""
        progress = self._core.training.progress
        done = progress.epochs_completed
        is_open = int(progress.stage is not EpochStage.BETWEEN)
        is_run = int(progress.stage in (EpochStage.CLOSING, EpochStage.ENDED))
        counts = ProgressCounts(done + is_open, done + is_run, done, self._go_to)
        return ProgressView(counts, counts)

    @property
    def current_epoch(self) -> int:
        """The index of the current epoch; after fit, the number of epochs done."""
        return self._core.training.progress.epochs_completed

    @property
    def min_epochs(self) -> int:
        """The epochs that must be done before a request to stop takes effect. May be set."""
        return self._core.plan.min_epochs

    @min_epochs.setter
    def min_epochs(self, value: int) -> None:
        self._core.change_plan("min_epochs", value)

    @property
    def max_epochs(self) -> int:
        """Epochs to train, -1 for no end. May be set, as `trainer.max_epochs`."""
        return self._core.plan.max_epochs

    @max_epochs.setter
    def max_epochs(self, value: int) -> None:
        self._core.change_plan("max_epochs", value)

    @property
    def max_batches(self) -> int | float:
        """The number of training batches in an epoch; infinity if unknown."""
        context, training = self._core.context, self._core.training
        if context is None or context.data.stream is None:
            return training.length
        return context.data.stream.length

    @max_batches.setter
    def max_batches(self, value: int | float) -> None:
        """Set the number that is read between two runs; each run sets it by its loader."""
        if self._core.context is not None:
            raise UsageError(
                f"trainer.fit_loop.max_batches = {value!r} in a run: the loader has its length "
                "already. Call trainer.end_epoch() in the last batch, or pass limit_train_batches."
            )
        self._core.training.length = value

    @property
    def _can_stop_early(self) -> bool:
        """Whether the training has the length that a request to stop waits for."""
        plan, progress = self._core.plan, self._core.training.progress
        return (
            self.epoch_progress.current.processed >= plan.min_epochs
            and progress.steps_completed >= plan.min_steps
        )

    @property
    def done(self) -> bool:
        """Whether there is nothing left to train: the limits are reached, or a stop takes effect.

        `max_duration` is left out, which the loop itself asks.
        """
        plan, progress = self._core.plan, self._core.training.progress
        return (
            self.max_batches == 0
            or 0 <= plan.max_steps <= progress.steps_completed
            or 0 <= plan.max_epochs <= self.epoch_progress.current.processed
            or (self._is_stopping and self._can_stop_early)
        )

    @property
    def _is_stopping(self) -> bool:
        context = self._core.context
        return self._core.was_stopping if context is None else context.requests.is_stopping

    def _go_to(self, epoch: int) -> None:
        progress = self._core.training.progress
        check_attribute("trainer.fit_loop.epoch_progress", epoch, integer(0))
        if progress.stage is not EpochStage.BETWEEN:
            raise UsageError(
                "trainer.fit_loop.epoch_progress was set inside an epoch, which is one already: "
                "set it before fit, or in on_train_start."
            )
        progress.epochs_completed = epoch


class CallbackList(list["Callback"]):
    """The participating callbacks in order, as a list whose changes are the trainer's.

    A position in the list cannot be chosen: bands decide, and within one the order of registration.

    Args:
        callbacks: the participating callbacks.
        add: a function that registers a callback.
        remove: a function that removes a callback.
    """

    def __init__(
        self,
        callbacks: Iterable[Callback],
        add: Callable[[Callback], None],
        remove: Callable[[Callback], None],
    ) -> None:
        super().__init__(callbacks)
        self._add, self._remove = add, remove

    def append(self, callback: Callback) -> None:
        """Register a callback."""
        self._add(callback)
        super().append(callback)

    def extend(self, callbacks: Iterable[Callback]) -> None:
        """Register several callbacks."""
        for callback in callbacks:
            self.append(callback)

    def insert(self, index: SupportsIndex, callback: Callback) -> None:
        """Register a callback; its band decides its position."""
        self._add(callback)
        super().insert(index, callback)

    def remove(self, callback: Callback) -> None:
        """Remove a callback."""
        self._remove(callback)
        super().remove(callback)

    def pop(self, index: SupportsIndex = -1) -> Callback:
        """Remove and return a callback."""
        callback = self[index]
        self.remove(callback)
        return callback

    def clear(self) -> None:
        """Remove all callbacks."""
        for callback in tuple(self):
            self.remove(callback)

    def copy(self) -> list[Callback]:
        """Return the callbacks as a plain list, whose changes are nobody's."""
        return list(self)

    __copy__ = copy

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        # a copy with the functions of this trainer would register the callbacks again
        return list, (list(self),)

    def replace(self, callbacks: Iterable[Callback]) -> None:
        """Register and remove callbacks until exactly these take part."""
        wanted = tuple(callbacks)
        # removed first: a new callback may have the state_key of an old one
        for callback in tuple(self):
            # by identity: a callback may define `__eq__`
            if not any(callback is other for other in wanted):
                self.remove(callback)
        for callback in wanted:
            if not any(callback is other for other in self):
                self.append(callback)

    def __setitem__(self, index: Any, value: Any) -> None:
        changed = list(self)
        changed[index] = value
        self.replace(changed)

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        for callback in self[index] if isinstance(index, slice) else [self[index]]:
            self.remove(callback)

    def __iadd__(self, callbacks: Iterable[Callback]) -> Self:  # type: ignore[override, misc]
        self.extend(callbacks)
        return self


class TrainerAccelerator:
    """`trainer.accelerator`: the type of device that a trainer uses.

    Args:
        device: the device of this process.
    """

    def __init__(self, device: torch.device) -> None:
        self.root_device = device

    def name(self) -> str:
        """Return the type: `"cpu"`, `"cuda"` or `"mps"`."""
        return self.root_device.type

    def is_available(self) -> bool:
        """Return True: the trainer would not run without the device."""
        return True

    def auto_device_count(self) -> int:
        """Return the number of such devices on this machine; 1 for the CPU."""
        return torch.cuda.device_count() if self.root_device.type == "cuda" else 1

    def get_device_stats(self, device: str | torch.device | int) -> dict[str, Any]:
        """Return torch's memory statistics of a CUDA device; of other devices an empty dict."""
        target = torch.device(device)
        return torch.cuda.memory_stats(target) if target.type == "cuda" else {}

    def __repr__(self) -> str:
        return f"<accelerator {str(self.root_device)!r}>"


class TrainerStrategy:
    """`trainer.strategy`: the ranks of a trainer, and the objects that they train.

    Attributes that are not defined here are those of the ranks' `Processes`: `broadcast`,
    `barrier`, `reduce`, `all_gather`, `reduce_boolean_decision`, `root_device`, and the ranks.

    Args:
        core: the trainer's core, which holds its parts.
    """

    def __init__(self, core: TrainerCore) -> None:
        self._core = core

    def __getattr__(self, name: str) -> Any:
        if name == "checkpoint_io" and self._core.custom_io is not None:
            return self._core.custom_io.io
        if name in _STRATEGY_PARTS:
            raise _internal_part("strategy", name, _STRATEGY_PARTS[name])
        return getattr(self._core.processes, name)

    # isinstance asks the object for this where its type is another class
    @property  # type: ignore[misc] # it can be read alone
    def __class__(self) -> type[Any]:
        """The class of the strategy's options, so that `isinstance` knows DDP and FSDP."""
        core = self._core
        named = core.config.strategy
        if isinstance(named, DDPStrategy | FSDPStrategy):
            return type(named)
        if core.processes.is_sharded or named == "fsdp":
            return FSDPStrategy
        is_ddp = core.processes.is_distributed or named.startswith("ddp")
        return DDPStrategy if is_ddp else TrainerStrategy

    @property
    def accelerator(self) -> TrainerAccelerator:
        """The type of device."""
        return TrainerAccelerator(self._core.device)

    @property
    def precision_plugin(self) -> Precision:
        """The precision of forwards, with its loss scaler if it has one."""
        return self._core.precision

    @property
    def lightning_module(self) -> Module | None:
        """The module of the run, or of the last one."""
        return self._core.module

    @property
    def model(self) -> Any:
        """The module as it is called: the return value of `torch.compile` if that was given."""
        core = self._core
        return core.module if core.compiled is None else core.compiled

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers. May be set, as `trainer.optimizers`."""
        return self._core.training.optimization.optimizers

    @optimizers.setter
    def optimizers(self, optimizers: Iterable[Optimizer]) -> None:
        self._core.change_optimizers(optimizers)

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The schedulers and when they step."""
        return self._core.training.optimization.schedulers

    @property
    def num_processes(self) -> int:
        """The number of processes on this machine."""
        return self._core.processes.topology.local_world_size

    @property
    def num_nodes(self) -> int:
        """The number of machines."""
        return self._core.processes.topology.num_nodes

    def connect(self, model: Any) -> None:
        """Make a module the trainer's, as a run does, to save a checkpoint before any run.

        Args:
            model: the module, of this package or one that it can host.

        Raises:
            UsageError: a run is under way, or the model is no module.
        """
        if self._core.context is not None:
            raise UsageError(
                "trainer.strategy.connect() was called in a run, which has its module already. "
                "Call it before or after, or pass the module to fit."
            )
        module = adapt_if_foreign(model, Module)
        if not isinstance(module, Module):
            raise UsageError(
                f"trainer.strategy.connect() was given {type(model).__qualname__}: it must be an "
                "instance of trainer_hooks.Module."
            )
        self._core.module = module

    def batch_to_device(
        self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0
    ) -> Any:
        """Move a batch to a device through the module's transfer hooks.

        Args:
            batch: the batch.
            device: the module's device unless given; without a module, the root device.
            dataloader_idx: the index of the batch's loader, for the hooks.
        """
        module = self._core.module
        if module is None:
            return move_to_device(batch, device or self.root_device)
        device = device or module.device
        batch = module.on_before_batch_transfer(batch, dataloader_idx)
        batch = module.transfer_batch_to_device(batch, device, dataloader_idx)
        return module.on_after_batch_transfer(batch, dataloader_idx)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        """Load the optimizers' states of a checkpoint."""
        states = checkpoint["optimizer_states"]
        for optimizer, state in zip(self.optimizers, states, strict=True):
            optimizer.load_state_dict(state)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        """Load the weights of a checkpoint into the module.

        Args:
            checkpoint: the checkpoint's contents.
            strict: whether it must have exactly the module's weights.

        Raises:
            UsageError: there was no run yet, so there is no module.
        """
        module = self._core.module
        if module is None:
            raise UsageError(
                "trainer.strategy.load_model_state_dict() was called before any run, where the "
                "trainer has no module. Call it in a hook, or load the weights into the module."
            )
        weights = with_names_of(module.state_dict(), checkpoint["state_dict"])
        module.load_state_dict(weights, strict=strict)

    def load_checkpoint(
        self,
        checkpoint_path: str | os.PathLike[str],
        weights_only: bool | None = None,  # noqa: ARG002 - a file is never trusted here
    ) -> dict[str, Any]:
        """Return the contents of a checkpoint, its tensors on the CPU; nothing of it is run.

        Args:
            checkpoint_path: a path or an address.
            weights_only: ignored.

        Raises:
            CheckpointNotFoundError: there is no such file.
            CheckpointError: it is damaged, or no checkpoint.
        """
        from trainer_hooks.checkpoint.file import load_checkpoint

        return load_checkpoint(checkpoint_path, io=self._core.custom_io)

    def save_checkpoint(
        self,
        checkpoint: Mapping[str, Any],
        filepath: str | os.PathLike[str],
        storage_options: Any = None,
    ) -> None:
        """Write the value of `trainer.dump_checkpoint()`, whole or not at all; rank 0 writes.

        Args:
            checkpoint: the checkpoint, or another mapping of plain data and tensors.
            filepath: a path or an address; its folder is made.
            storage_options: passed to the `CheckpointIO` of `Trainer(plugins=...)`; without one it
                must be None, as the access to a store is configured in fsspec.

        Raises:
            CheckpointStateError: a value cannot be loaded back safely; the message names it.
            CheckpointError: it cannot be written.
            OptionError: `storage_options` is not None, without a `CheckpointIO`.
        """
        from trainer_hooks.checkpoint.encoding import require_plain
        from trainer_hooks.checkpoint.file import write_checkpoint

        io = self._core.custom_io
        if io is None:
            owner, rule = "trainer.strategy.save_checkpoint", NO_STORAGE_OPTIONS
            check_option("storage_options", storage_options, owner, rule, is_call=True)
        if self._core.processes.is_global_zero:
            # not encoded once more: `dump_checkpoint` has done that
            for key, value in checkpoint.items():
                require_plain(value, f"checkpoint[{key!r}]")
            write_checkpoint(dict(checkpoint), filepath, io=io, storage_options=storage_options)

    def remove_checkpoint(self, filepath: str | os.PathLike[str]) -> None:
        """Remove a checkpoint at a path or an address; rank 0 does. A missing one is no error."""
        if self._core.processes.is_global_zero:
            io, path = self._core.custom_io, absolute_path(filepath)
            remove(path) if io is None else io.remove(path)

    def __repr__(self) -> str:
        processes = self._core.processes
        return f"<strategy of rank {processes.global_rank} of {processes.world_size}>"
