"""HostTrainer: another framework's trainer under the names of ours, as our callbacks see it.

A host (Lightning, transformers, ...) derives from it and says where its trainer has the facts: the
optimizers, the lengths of loaders, the limits. The counters, the clock, the history and the metrics
are kept here, by the same classes as in a `Trainer`; the driver of the host moves them on.
"""

from __future__ import annotations

import os
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import distributed

from trainer_hooks._output import losing_output_to
from trainer_hooks.adapters.proxy import ModuleProxy, Proxy
from trainer_hooks.callbacks import Checkpoint
from trainer_hooks.clock.clock import Timekeeper
from trainer_hooks.clock.progress import Progress
from trainer_hooks.clock.timing import TimeUnit
from trainer_hooks.connector.error_policy import CallbackReport
from trainer_hooks.context.run_state import RunState, present_step
from trainer_hooks.loggers.base import Logger
from trainer_hooks.metrics.history import History
from trainer_hooks.module.optimization import LRSchedulerConfig
from trainer_hooks.runtime.processes import Processes
from trainer_hooks.runtime.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torch import Tensor, nn

    from trainer_hooks.callback import Callback
    from trainer_hooks.clock.clock import Clock

LOG_EVERY_N_STEPS = 50
"""Steps between two logged ones in a host that has no such option; the default of our Trainer."""


LOADS_OUR_FILES = (
    "At the end of a fit it loads the best file, which is in this trainer's form and not in ours: "
    "pass load_saved_checkpoint=False."
)
"""Why hosts whose checkpoints are not in our form refuse a callback that loads its own file."""


def missing_host_attribute(name: str, framework: str, callback: Callback) -> AttributeError:
    """Return the error for an attribute of our Trainer that the host's trainer does not have.

    Args:
        name: the attribute.
        framework: the host framework.
        callback: the callback that read it.
    """
    return AttributeError(
        f"{name!r} of trainer_hooks' Trainer, which {type(callback).__qualname__} looked for, has "
        f"no counterpart in {framework}'s. Run the callback in trainer_hooks.Trainer.",
        name=name,
    )


class HostTrainer:
    """A trainer of another framework under the names of ours, for one callback.

    Args:
        callback: the callback that it is handed to.

    Attributes:
        proxy_target: the host's trainer, or what it hands to callbacks; None before a run.
        module: the model; None before a run.
        progress: the counters of the training.
        timekeeper: the maker of clock readings.
        history: the logged values.
        state: the method, stage and status of the run.
        callback_metrics: the latest value of every logged metric.
        should_stop: whether the end of the training was requested.
        stop_reason: the reason of that request.
        sanity_checking: whether a sanity check runs.
        is_last_batch: whether the current batch is the last of its epoch.
        skips_batch: whether `skip_batch` was called for the current batch.
        ckpt_path: the checkpoint that the fit is resumed from, where the host tells it.
        disabled: what became of the callback, if its error policy took it out of the run.
    """

    framework: ClassVar[str] = ""
    """The host framework, for messages."""

    lacks: ClassVar[Mapping[str, str]] = {}
    """Names of our Trainer that this host cannot have, and the reason of each."""

    refuses: ClassVar[Mapping[str, str]] = {}
    """Built-in callbacks that this host cannot run for another reason, which is given."""

    host_names: ClassVar[Mapping[str, str]] = {}
    """Names of our Trainer whose value is the host's as it is, and where its trainer has it."""

    def __init_subclass__(cls) -> None:
        for name, place in vars(cls).get("host_names", {}).items():
            setattr(cls, name, property(attrgetter(f"proxy_target.{place}")))

    # options and attributes of our Trainer that hosts lack, with the values by which they behave
    calls_steps = True
    fast_dev_run = 0
    min_epochs = 0
    min_steps = -1
    max_duration = None
    dataloader_label = ""
    check_val_every_n_epoch: int | None = 1
    val_check_interval: int | float = 1.0
    num_sanity_val_batches: tuple[int | float, ...] = ()
    num_test_batches: tuple[int | float, ...] = ()
    num_predict_batches: tuple[int | float, ...] = ()
    val_evaluators = ()
    plugins = ()
    datamodule: Any = None
    named_ckpt_path: str | None = None
    custom_io = None
    is_leaving = False
    received_sigterm = False
    precision_plugin: Any = None
    log_every_n_steps: int = LOG_EVERY_N_STEPS
    epoch_scheduler: EpochScheduler | None = None
    host_scheduler: Any = None

    def __init__(self, callback: Callback) -> None:
        self._callback = callback
        self.proxy_target: Any = None
        self.module: Any = None
        self.progress = Progress()
        self.timekeeper = Timekeeper()
        self.history = History(self.progress, self._show_metric)
        self.state = RunState()
        self.callback_metrics: dict[str, Tensor] = {}
        self.should_stop = False
        self.stop_reason = ""
        self.sanity_checking = False
        self.is_last_batch = False
        self.skips_batch = False
        self.ckpt_path: str | None = None
        self.disabled: CallbackReport | None = None
        self.on_checkpoint_saved: Callable[[str], None] = lambda _: None
        self._processes: Processes | None = None

    def offers(self, name: str) -> bool:
        """Return whether an attribute of our Trainer is there."""
        return name in vars(self) or hasattr(type(self), name)

    def begin_run(self, fn: str) -> None:
        """Reset the requests, the stage and the status, which hold for one run."""
        self.state.begin(fn)
        self.should_stop, self.stop_reason = False, ""
        self.skips_batch = False
        self._processes = None

    def forget(self) -> None:
        """Count from 0 again: a new training begins."""
        # in place: the history refers to them
        self.progress.load_state_dict(Progress().state_dict())
        self.progress.is_restored = False
        self.timekeeper = Timekeeper()
        self.history.reset()
        self.callback_metrics.clear()

    # --- counters and limits ---

    @property
    def current_epoch(self) -> int:
        """The index of the current epoch."""
        return self.progress.epochs_completed

    @property
    def global_step(self) -> int:
        """The number of optimizer steps."""
        return self.progress.steps_completed

    @property
    def clock(self) -> Clock:
        """A reading of the counters and of the wall time."""
        ends = [(TimeUnit.EPOCH, self.max_epochs), (TimeUnit.STEP, self.max_steps)]
        return self.timekeeper.read(
            self.progress,
            iteration_length=None,
            batches_per_epoch=self.num_training_batches,
            ends=tuple((unit, end) for unit, end in ends if end is not None and end >= 0),
        )

    max_epochs: int = -1
    """The number of epochs to train; -1 for no such limit."""
    max_steps: int = -1
    """The number of optimizer steps to train; -1 for no such limit."""
    accumulate_grad_batches: int = 1
    """Batches of an accumulation window."""

    @property
    def num_training_batches(self) -> int | float:
        """The number of batches of an epoch; infinity if unknown."""
        return number_of_batches(self.train_dataloader)

    @property
    def num_val_batches(self) -> list[int | float]:
        """The number of batches of each validation loader; infinity where unknown."""
        return [number_of_batches(loader) for loader in self.val_dataloaders]

    train_dataloader: Any = None
    """The loader of training batches."""
    val_dataloaders: Any = ()
    """The loaders of validation batches."""

    # --- the run ---

    @property
    def training(self) -> bool:
        """Whether batches are trained."""
        return self.state.fn == "fit" and self.state.stage == "train"

    @property
    def validating(self) -> bool:
        """Whether batches are validated."""
        return self.state.stage == "validate"

    @property
    def interrupted(self) -> bool:
        """Whether the last run ended with an exception."""
        return self.state.interrupted

    host_callbacks: Any = ()
    """The callbacks of the host's trainer, as it lists them."""

    @property
    def callbacks(self) -> list[Any]:
        """Our callbacks that the host's trainer runs."""
        # by the class: one framework's callbacks answer an unknown attribute with another error
        kinds = map(type, self.host_callbacks)
        drivers = [getattr(kind, "trainer_hooks_driver", None) for kind in kinds]
        listed = [driver.callback for driver in drivers if driver is not None]
        return listed or [self._callback]

    @property
    def checkpoint_callbacks(self) -> list[Any]:
        """Our savers among them."""
        return [callback for callback in self.callbacks if isinstance(callback, Checkpoint)]

    @property
    def callback_report(self) -> tuple[CallbackReport, ...]:
        """The status of each callback."""
        return tuple(
            self.disabled
            if self.disabled is not None and callback is self._callback
            else report_of(callback)
            for callback in self.callbacks
        )

    # --- device, optimizers and processes ---

    @property
    def optimizers(self) -> list[Any]:
        """The optimizers; empty before they are made."""
        return []

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The schedulers."""
        return []

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        first = next(iter(self.module.parameters()), None)
        return torch.device("cpu") if first is None else first.device

    precision: str = "32-true"
    """The precision, by our name."""

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return distributed.get_world_size() if distributed.is_initialized() else 1

    @property
    def global_rank(self) -> int:
        """The rank of this process."""
        return distributed.get_rank() if distributed.is_initialized() else 0

    @property
    def local_rank(self) -> int:
        """The rank of this process on its machine."""
        return int(os.environ.get("LOCAL_RANK", "0"))

    @property
    def is_global_zero(self) -> bool:
        """Whether this is rank 0."""
        return self.global_rank == 0

    @property
    def strategy(self) -> Processes:
        """The collectives of the ranks."""
        if self._processes is None:
            several = self.world_size > 1
            self._processes = (HostProcesses if several else Processes)(self.device)
        return self._processes

    # --- logging ---

    default_root_dir: str = os.curdir
    """The folder that files go to."""

    @property
    def loggers(self) -> list[Any]:
        """The host's loggers, as ours are called."""
        return []

    @property
    def logger(self) -> Any:
        """The first logger, or None."""
        return next(iter(self.loggers), None)

    @property
    def log_dir(self) -> str | None:
        """The first logger's folder, or `default_root_dir` without a logger."""
        logger = self.logger
        folder: str | None = None if logger is None else logger.log_dir
        return self.default_root_dir if logger is None else folder

    @property
    def progress_bar_metrics(self) -> dict[str, float]:
        """The numbers among the latest metrics."""
        return {name: float(value) for name, value in self.callback_metrics.items()}

    logged_metrics = property(lambda self: self.callback_metrics)
    """The latest value of every logged metric."""

    def log_metrics(
        self, metrics: Mapping[str, float], step: int | None = None, *, epoch: int | None = None
    ) -> None:
        """Pass metrics to the host's loggers and the history, as `Trainer.log_metrics` does."""
        values = dict(metrics)
        logged_step = values.pop("step", None) if step is None else None
        if logged_step is not None:
            step = int(logged_step)
        elif epoch is not None:
            values.setdefault("epoch", epoch)
        if step is None:
            step = present_step(self.state.fn, self.progress)
        self.record(values, step)
        if self.is_global_zero:
            for logger in self.loggers:
                logger.log_metrics(values, step)

    def record(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Make logged values known to callbacks: in the metrics and in the history."""
        numbers = numbers_as_tensors(metrics)
        self.callback_metrics.update(numbers)
        if numbers:
            self.history.record({name: float(value) for name, value in numbers.items()}, step)

    def _show_metric(self, name: str, value: Tensor | float) -> None:
        self.callback_metrics[name] = torch.as_tensor(value)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on rank 0."""
        if self.is_global_zero:
            with losing_output_to(kwargs.get("file")):
                print(*args, **kwargs)

    # --- verbs ---

    def stop(self, reason: str = "") -> None:
        """End the training after the current batch."""
        self.should_stop, self.stop_reason = True, reason

    def skip_batch(self) -> None:
        """Leave the gradients of the current batch out of the step.

        In `on_train_batch_start`, too, the host runs the batch's forward.
        """
        self.skips_batch = True

    def finish_saves(self) -> None:
        """Do nothing: hosts save in the foreground."""

    def replay_training_data(self) -> int:
        """Run the forward on an epoch of training batches without learning; return their number.

        The model stays in its mode, so that only statistics, such as those of BatchNorm, change.
        """
        count = 0
        with torch.no_grad():
            for batch in self.train_dataloader:
                self._replay_batch(batch, count)
                count += 1
        return count

    def _replay_batch(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002 - for hosts
        """Run the model's forward on a batch, as in training."""
        if isinstance(batch, dict):
            self.module(**batch)
        else:
            self.module(batch[0] if isinstance(batch, list | tuple) else batch)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # such as `__deepcopy__`, which Python itself looks for
            raise AttributeError(name)
        raise missing_host_attribute(name, self.framework, self._callback)


class HostModule(ModuleProxy):
    """The host's model with the members of a `Module` that our callbacks use: `log` and others.

    Args:
        module: the model.
        record: takes the logged values by name.
        automatic_optimization: whether the host makes the steps.
    """

    __slots__ = ("automatic_optimization", "record")

    # no class of its own for each model: callbacks of ours ask for nothing of the model's class
    def __init__(
        self,
        module: nn.Module,
        record: Callable[[Mapping[str, Any]], None],
        *,
        automatic_optimization: bool = True,
    ) -> None:
        super().__init__(module)
        object.__setattr__(self, "record", record)
        object.__setattr__(self, "automatic_optimization", automatic_optimization)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The model's own class, for `isinstance`."""
        return type(self.proxy_target)

    # Python looks up such methods on the class; a Sequential and its like have them
    def __getitem__(self, index: Any) -> Any:
        """Return a layer."""
        return self.proxy_target[index]

    def __iter__(self) -> Any:
        """Iterate over the layers."""
        return iter(self.proxy_target)

    def __len__(self) -> int:
        """Return the number of layers."""
        return len(self.proxy_target)

    def __bool__(self) -> bool:
        """Return True, also for a model without a length."""
        return True

    def log(self, name: str, value: Any, *_: Any, **__: Any) -> None:
        """Record a value as it is now; the host decides how values are reduced."""
        self.record({name: value})

    def log_dict(self, dictionary: Mapping[str, Any], *_: Any, **__: Any) -> None:
        """Record several values."""
        self.record(dict(dictionary.items()))


class HostLogger(Logger):
    """The place in a host that logged numbers go to, as a logger.

    Args:
        write: takes the values and their step.
        folder: the folder of the run, or None.
        name: the run's name, or None.
    """

    def __init__(
        self,
        write: Callable[[Mapping[str, float], int | None], None],
        folder: str | None = None,
        name: str | None = None,
    ) -> None:
        self._write, self._folder, self._name = write, folder, name

    name = property(lambda self: self._name)
    """The run's name."""
    save_dir = log_dir = property(lambda self: self._folder)
    """The folder of the run."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Pass metrics on."""
        self._write(metrics, step)


class BatchScheduledHostTrainer(HostTrainer):
    """A host that has one scheduler, and steps it with the optimizer.

    A scheduler of ours that a callback puts in its place steps at the end of epochs. A host defines
    `host_scheduler` as a property that can be set.

    Attributes:
        epoch_scheduler: the one that a callback put in, or None.
    """

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self._configs: SchedulerList | None = None

    def begin_run(self, fn: str) -> None:
        """Reset the state of one run, and read the host's scheduler anew."""
        super().begin_run(fn)
        self._configs = None

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """The scheduler in a list; empty without one."""
        if self._configs is None:
            scheduler = self.host_scheduler
            configs = [
                LRSchedulerConfig(HostScheduler(scheduler), interval="step")
            ] if scheduler is not None else []  # fmt: skip
            self._configs = SchedulerList(configs, self._replace_scheduler)
        return self._configs

    def _replace_scheduler(self, configs: list[LRSchedulerConfig]) -> None:
        self.epoch_scheduler = EpochScheduler(configs[0].scheduler, self.host_scheduler)
        self.host_scheduler = self.epoch_scheduler


class PolledHostTrainer(BatchScheduledHostTrainer):
    """A host that says nothing of logged values: they are looked up when a callback asks."""

    def __init__(self, callback: Callback) -> None:
        self._metrics: dict[str, Tensor] = {}
        self._seen: dict[Any, Any] = {}
        super().__init__(callback)

    def metric_sources(self) -> Iterable[Mapping[str, Any]]:
        """Return the latest values of the host by name, in its several places."""
        raise NotImplementedError(f"{type(self).__qualname__}.metric_sources: define it.")

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The latest values of the host, and those that callbacks add."""
        if self.proxy_target is not None:
            for number, values in enumerate(self.metric_sources()):
                for name, value in values.items():
                    # a value that is logged again is another object, though perhaps as large
                    if self._seen.get((number, name)) is not value:
                        self._seen[number, name] = value
                        self._metrics.update(numbers_as_tensors({name: value}))
        return self._metrics

    @callback_metrics.setter
    def callback_metrics(self, metrics: dict[str, Tensor]) -> None:
        self._metrics = metrics


class HostScheduler(Proxy):
    """A host's scheduler, whose optimizer is the one without accelerate's wrapper."""

    __slots__ = ()

    @property
    def optimizer(self) -> Any:
        """The optimizer."""
        return unwrapped(self.proxy_target.optimizer)


def unwrapped(optimizer: Any) -> Any:
    """Return an optimizer without accelerate's wrapper, which is an optimizer as well."""
    return getattr(optimizer, "optimizer", optimizer)


class SchedulerList(list[LRSchedulerConfig]):
    """The schedulers of a host; one that a callback puts in takes part there.

    Args:
        configs: the host's schedulers.
        replace: takes the schedulers that a callback puts in.
    """

    def __init__(
        self, configs: list[LRSchedulerConfig], replace: Callable[[list[LRSchedulerConfig]], None]
    ) -> None:
        super().__init__(configs)
        self._replace = replace

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        self._replace(list(self))


class EpochScheduler:
    """A scheduler that steps at the end of epochs, in a host that steps its scheduler at batches.

    The host steps and saves it as its own, which does nothing: the state in its checkpoint stays
    that of the scheduler before, and the driver saves this one.

    Args:
        scheduler: the scheduler.
        before: the host's scheduler whose place it takes, or None.
    """

    def __init__(self, scheduler: Any, before: Any) -> None:
        self.scheduler = scheduler
        self.before = before
        self.optimizer = scheduler.optimizer

    def step(self, *_: Any) -> None:
        """Do nothing: the host steps at batches."""

    def get_last_lr(self) -> list[float]:
        """Return the learning rates."""
        rates: list[float] = self.scheduler.get_last_lr()
        return rates

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the host's own scheduler."""
        state: dict[str, Any] = {} if self.before is None else self.before.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the host's own scheduler."""
        if self.before is not None:
            self.before.load_state_dict(state)


class HostProcesses(Processes):
    """The collectives of a host's process group, which is torch's default group.

    Args:
        device: the device of this process.
    """

    def __init__(self, device: torch.device) -> None:
        topology = Topology(distributed.get_world_size(), distributed.get_rank())
        super().__init__(device, topology)

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """Return the object of rank `src`."""
        objects = [obj]
        distributed.broadcast_object_list(objects, src)
        return objects[0]

    def barrier(self, name: str | None = None) -> None:  # noqa: ARG002 - the interface
        """Wait until all ranks have called this."""
        distributed.barrier()

    def run_on_rank_zero(self, decide: Callable[[], Any]) -> Any:
        """Call a function on rank 0 alone; return its result, or raise its error, on all ranks."""
        # each error: no watchdog of ours ends the ranks that wait
        return self._agree_on(decide, Exception)

    def gather(self, obj: Any) -> list[Any]:
        """Return the objects of all ranks, by rank."""
        gathered: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(gathered, obj)
        return gathered

    def reduce(self, tensor: Any, group: Any = None, reduce_op: str | None = "mean") -> Tensor:
        """Return a number or tensor reduced over all ranks."""
        name = "sum" if reduce_op is None else reduce_op.lower()
        is_mean = name in ("mean", "avg")
        operation = getattr(distributed.ReduceOp, "SUM" if is_mean else name.upper())
        # a copy, as all_reduce works in place; on the device, which NCCL needs
        reduced = torch.as_tensor(tensor).detach().to(self.root_device, copy=True)
        distributed.all_reduce(reduced, operation, group=group)
        return reduced / distributed.get_world_size() if is_mean else reduced


def numbers_as_tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the numbers among some values as 0-dim tensors, as in `trainer.callback_metrics`."""
    numbers: dict[str, Tensor] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            if value.numel() == 1:
                numbers[name] = value.detach().reshape(())
        # a bool is an int to Python
        elif isinstance(value, int | float) and not isinstance(value, bool):
            numbers[name] = torch.as_tensor(value, dtype=torch.float32)
    return numbers


def number_of_batches(loader: Any) -> int | float:
    """Return the number of batches of a loader: 0 without one, infinity if unknown."""
    if loader is None:
        return 0
    try:
        return len(loader)
    except TypeError:  # an iterable data set has no length, or says so only when asked
        return float("inf")


def report_of(callback: Callback) -> CallbackReport:
    """Return the report of a callback that takes part."""
    return CallbackReport(
        name=type(callback).__qualname__,
        state_key=callback.state_key,
        supplier="",
        band=callback.band.name,
        on_error=callback.on_error,
    )
