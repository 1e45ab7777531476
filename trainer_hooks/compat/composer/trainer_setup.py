"""The parts of Composer's Trainer, made from its options."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler

from trainer_hooks._log import warn
from trainer_hooks._names import ours
from trainer_hooks.adapters.composer.loggers import DestinationLogger, counted_step
from trainer_hooks.checkpoint.file import load_checkpoint
from trainer_hooks.checkpoint.weights import load_weights
from trainer_hooks.compat.composer.callbacks import CheckpointSaver
from trainer_hooks.compat.composer.core.built_in import ComposerBuiltIn
from trainer_hooks.compat.composer.core.callback import Callback
from trainer_hooks.compat.composer.core.evaluator import Evaluator, ensure_evaluator
from trainer_hooks.compat.composer.core.event import Event
from trainer_hooks.compat.composer.core.precision import native_precision
from trainer_hooks.compat.composer.loggers.experiment_trackers import NativeLoggerDestination
from trainer_hooks.compat.composer.loggers.logger_destination import (
    ConsoleLogger,
    LoggerDestination,
)
from trainer_hooks.compat.composer.optim import DecoupledSGDW, compile_composer_scheduler
from trainer_hooks.compat.composer.trainer_events import EngineEvents
from trainer_hooks.compat.composer.utils import dist
from trainer_hooks.compat.composer.utils.helpers import ensure_tuple, format_name_with_dist
from trainer_hooks.data.evaluator import Evaluator as NativeEvaluator
from trainer_hooks.errors import OptionError, TrainerHooksWarning
from trainer_hooks.loggers.base import Logger
from trainer_hooks.trainer.trainer import Trainer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.optim import Optimizer

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.options import TrainerOptions
    from trainer_hooks.compat.composer.trainer_events import ComposerModule, TrainerEventSource

__all__ = [
    "describe_run",
    "list_hyperparameters",
    "load_start",
    "make_destinations",
    "make_evaluators",
    "make_native_evaluator",
    "make_native_trainer",
    "make_optimizer",
    "set_fit_schedulers",
    "set_schedulers",
]

# --- loggers ---

_NATIVE_NAMES = frozenset({"train_loss", "train_loss_epoch", "epoch"})
"""Values of trainer_hooks that Composer's Trainer logs by other names, or not at all."""


class _EngineLogger(DestinationLogger):
    """A logger of trainer_hooks that writes to Composer's destinations.

    Args:
        source: the event source whose engine has the destinations.

    Attributes:
        trainer: the trainer of trainer_hooks that it is a logger of, by a weak reference.
    """

    def __init__(self, source: TrainerEventSource) -> None:
        self._source = source
        self.trainer: Callable[[], Any] = lambda: None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log metrics at Composer's step, except those that its Trainer logs by other names."""
        logged = {name: value for name, value in metrics.items() if name not in _NATIVE_NAMES}
        if logged:
            step = counted_step(self.trainer(), step)
            self._source.engine.logger.log_metrics(logged, step)

    def call_destination(self, method: str, *arguments: Any) -> None:
        """Call a method of the logger that writes to all destinations."""
        getattr(self._source.engine.logger, method)(*arguments)


def make_destinations(options: TrainerOptions) -> list[LoggerDestination]:
    """Return the logger destinations that the options ask for.

    Raises:
        OptionError: a logger is neither a destination nor a logger of trainer_hooks.
    """
    destinations: list[LoggerDestination] = []
    for logger in ensure_tuple(options.loggers):
        if isinstance(logger, LoggerDestination):
            destinations.append(logger)
        elif isinstance(logger, Logger):
            # bound as a default: the closure would see the last logger of the loop
            destinations.append(NativeLoggerDestination(lambda _run_name, made=logger: made))  # type: ignore[misc]
        else:
            raise OptionError(
                f"Trainer(loggers=[{logger!r}]): must be a LoggerDestination, or a logger of "
                "trainer_hooks. Derive it from LoggerDestination."
            )
    if options.log_to_console and not any(
        isinstance(destination, ConsoleLogger) for destination in destinations
    ):
        destinations.append(ConsoleLogger(options.console_log_interval, options.console_stream))
    return destinations


# --- the trainer underneath ---


def make_native_trainer(
    options: TrainerOptions, state: State, source: TrainerEventSource
) -> tuple[Trainer, Any]:
    """Return the trainer of trainer_hooks that runs everything, and the saver of `save_folder`."""
    callbacks = list(ensure_tuple(options.callbacks))
    savers = [callback for callback in callbacks if isinstance(callback, CheckpointSaver)]
    folder = options.save_folder_of(state.run_name)
    saver: Any = savers[0] if savers else None
    if saver is None and folder is not None:
        saver = CheckpointSaver(
            folder,
            options.save_filename,
            latest_filename=options.save_latest_filename,
            save_interval=_native_save_interval(options.save_interval),
            overwrite=options.save_overwrite,
            weights_only=options.save_weights_only,
            ignore_keys=options.save_ignore_keys,
            num_checkpoints_to_keep=options.save_num_checkpoints_to_keep,
        )
        callbacks.append(saver)
    for candidate in (*savers, saver):
        if isinstance(candidate, CheckpointSaver):
            candidate.bind_run(source)
    state.callbacks = [*source.engine.logger.destinations, *callbacks]
    subset = options.train_subset_num_batches
    logger = _EngineLogger(source)
    native = Trainer(
        accelerator=state.device.name,
        devices=1 if state.device.name == "cpu" else "auto",
        precision=native_precision(state.precision.value),
        callbacks=[EngineEvents(source), *state.callbacks],
        logger=logger,
        max_epochs=-1,  # each fit sets its duration
        limit_train_batches=None if subset < 0 else subset,
        num_sanity_val_steps=0,  # Composer has no sanity check
        log_every_n_steps=1,
        microbatch_size=options.device_train_microbatch_size,  # type: ignore[arg-type]
        inference_mode=False,  # Composer evaluates with torch.no_grad()
        deterministic=options.deterministic_mode,
        enable_progress_bar=options.progress_bar,
        enable_checkpointing=saver is not None,
        enable_model_summary=False,
        enable_run_manifest=False,
    )
    # weak, so that a trainer is collected as soon as nobody refers to it
    logger.trainer = weakref.ref(native)
    return native, saver


def _native_save_interval(interval: Any) -> Any:
    """Return an interval for a saver: a number, a text, or a function."""
    # a Time prints as a text that trainer_hooks reads
    return interval if isinstance(interval, int) or callable(interval) else str(interval)


# --- optimizers and schedulers ---


def make_optimizer(options: TrainerOptions) -> Optimizer:
    """Return the optimizer of the options, or Composer's default with a warning.

    Raises:
        OptionError: there are several.
    """
    optimizers = ensure_tuple(options.optimizers)
    if len(optimizers) > 1:
        raise OptionError(
            f"Trainer(optimizers={len(optimizers)} of them): one is taken. Put the parameters into "
            "groups of one, or train with trainer_hooks.Module and manual optimization."
        )
    if optimizers:
        optimizer: Optimizer = optimizers[0]
        return optimizer
    warn(
        "Trainer(optimizers=None): DecoupledSGDW(lr=0.1) is taken. Pass optimizers to choose.",
        TrainerHooksWarning,
    )
    return DecoupledSGDW(options.model.parameters(), lr=0.1)


def set_schedulers(options: TrainerOptions, source: TrainerEventSource) -> None:
    """Put the schedulers of the options on the state, and set when they step.

    Raises:
        OptionError: an option for schedulers is given without any.
    """
    ratio, each_batch = options.scale_schedule_ratio, options.step_schedulers_every_batch
    if options.schedulers is None and (ratio != 1.0 or each_batch is not None):
        name = "scale_schedule_ratio" if ratio != 1.0 else "step_schedulers_every_batch"
        raise OptionError(f"Trainer({name}=...) has no effect without schedulers. Leave it out.")
    _compile_schedulers(source, options.schedulers, ratio, each_batch)


def set_fit_schedulers(
    source: TrainerEventSource,
    schedulers: Any,
    ratio: float,
    each_batch: bool | None,
    *,
    is_first: bool,
) -> None:
    """Put the schedulers that the first fit receives on the state.

    Args:
        source: the event source of the trainer.
        schedulers: a scheduler, or several.
        ratio: the factor that stretches them.
        each_batch: whether they step after each batch; None: unless one is torch's.
        is_first: whether nothing was trained yet.

    Raises:
        OptionError: it is not the first fit, or the trainer has schedulers.
    """
    if not is_first or source.state.schedulers:
        raise OptionError(
            "Trainer.fit(schedulers=...): the optimizer has its schedulers from the first fit on. "
            "Pass Trainer(schedulers=...)."
        )
    _compile_schedulers(source, schedulers, ratio, each_batch)


def _compile_schedulers(
    source: TrainerEventSource, schedulers: Any, ratio: float, each_batch: bool | None
) -> None:
    state, listed = source.state, ensure_tuple(schedulers)
    has_torch_scheduler = any(isinstance(scheduler, LRScheduler) for scheduler in listed)
    source.steps_schedulers_each_batch = (
        not has_torch_scheduler if each_batch is None else each_batch
    )
    state.schedulers = [
        scheduler
        if isinstance(scheduler, LRScheduler)
        else compile_composer_scheduler(scheduler, state, ratio)
        for scheduler in listed
    ]


# --- evaluators ---


def make_evaluators(
    eval_dataloader: Any,
    interval: Any,
    subset_num_batches: int,
    metrics: dict[str, Any],
    metrics_by_label: dict[str, Any],
) -> list[Evaluator]:
    """Return evaluators with their intervals, and keep the metrics of each.

    Args:
        eval_dataloader: a loader, an evaluator, or several of them.
        interval: when an evaluator without its own interval is due.
        subset_num_batches: at most so many batches of one without its own number; -1 for all.
        metrics: the model's metric objects, by name.
        metrics_by_label: the state's metric objects, to which each evaluator's are added.

    Raises:
        OptionError: evaluators and loaders are mixed, or two have one label.
    """
    listed = ensure_tuple(eval_dataloader)
    if len({isinstance(item, Evaluator) for item in listed}) > 1:
        raise OptionError(
            "eval_dataloader: evaluators and loaders were given together. Give each loader as an "
            "Evaluator(label=..., dataloader=...)."
        )
    evaluators = [ensure_evaluator(item, list(metrics)) for item in listed]
    labels = [evaluator.label for evaluator in evaluators]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(
                f"eval_dataloader: two of them have the label {label!r}. Give each an "
                "Evaluator(label=..., dataloader=...) of its own."
            )
    for evaluator in evaluators:
        if evaluator.eval_interval is None:
            evaluator.eval_interval = interval
        if evaluator.subset_num_batches is None:
            evaluator.subset_num_batches = subset_num_batches
        # copies, since evaluators must not add to each other's sums
        metrics_by_label[evaluator.label] = evaluator.copy_metrics(metrics)
    return evaluators


def make_native_evaluator(
    evaluator: Evaluator, is_due: Callable[[str], bool] | None, subset_num_batches: int = -1
) -> NativeEvaluator:
    """Return the evaluator of trainer_hooks for one of Composer's.

    Args:
        evaluator: Composer's evaluator.
        is_due: returns whether an evaluator is due, by its label; None if it always is.
        subset_num_batches: at most so many batches; as the evaluator says if -1.
    """
    label = evaluator.label
    most = evaluator.subset_num_batches if subset_num_batches < 0 else subset_num_batches
    return NativeEvaluator(
        label,
        evaluator.dataloader.dataloader,
        subset_num_batches=most,
        eval_interval=None if is_due is None else lambda _clock: is_due(label),
    )


# --- hyperparameters and checkpoints ---


def list_hyperparameters(options: TrainerOptions) -> dict[str, Any]:
    """Return the options that are plain numbers and strings, to log them."""
    values = {name: getattr(options, name) for name in options.__dataclass_fields__}
    return {name: v for name, v in values.items() if isinstance(v, str | int | float)}


def describe_run(state: State) -> dict[str, Any]:
    """Return the seed, processes and machine of a run, which Composer's Trainer logs always."""
    world, local = dist.get_world_size(), dist.get_local_world_size()
    return {
        "num_nodes": world // local,
        f"num_{state.device.name}s_per_node": local,
        "node_name": os.environ.get(
            "NODENAME", "unknown because NODENAME environment variable not set"
        ),
        "rank_zero_seed": state.rank_zero_seed,
    }


def load_start(
    options: TrainerOptions, source: TrainerEventSource, module: ComposerModule
) -> str | None:
    """Load the checkpoint to start from, between `BEFORE_LOAD` and `AFTER_LOAD`.

    The weights, the timestamp and the states of callbacks are loaded at once, as in Composer. A fit
    restores the rest when it begins, and the weights and the timestamp again.

    Args:
        options: the options that name the checkpoint.
        source: the event source, with the engine that fires the events and the state, whose
            timestamp is set.
        module: the module that receives the weights.

    Returns:
        The checkpoint that a fit resumes from; None if it starts anew, or with the weights alone.
    """
    state, engine = source.state, source.engine
    engine.run_event(Event.BEFORE_LOAD)
    path = _find_newest_checkpoint(options, state.run_name)
    # the newest checkpoint of this run itself is resumed whole, as in Composer
    weights_only = options.load_weights_only and path is None
    if path is None and options.load_path is not None:
        path = format_name_with_dist(str(options.load_path), state.run_name)
    if path is not None:
        state.load_path = path
        loaded = load_checkpoint(path)
        strict = options.load_strict_model_weights
        load_weights(module, loaded["state_dict"], path, strict=strict)
        if not weights_only:
            _load_callback_states(loaded.get("callbacks", {}), source)
    engine.run_event(Event.AFTER_LOAD)
    return None if weights_only else path


def _find_newest_checkpoint(options: TrainerOptions, run_name: str) -> str | None:
    """Return the newest checkpoint of this run if it resumes by itself; None if there is none."""
    folder = options.save_folder_of(run_name)
    if not options.autoresume or folder is None or options.save_latest_filename is None:
        return None
    path = Path(folder) / format_name_with_dist(options.save_latest_filename, run_name)
    return str(path) if path.exists() else None


def _load_callback_states(states: dict[str, Any], source: TrainerEventSource) -> None:
    """Restore the timestamp and Composer's callbacks from the callback states of a checkpoint."""
    state = source.state
    if "ComposerState" in states:
        state.timestamp.load_state_dict(states["ComposerState"]["timestamp"])
    for callback in state.callbacks:
        # the states of built-in ones are restored by the fit, as those of trainer_hooks
        is_composers = isinstance(callback, Callback) and not isinstance(callback, ComposerBuiltIn)
        if is_composers and ours(callback).is_stateful and callback.state_key in states:
            callback.load_state_dict(states[callback.state_key])
            source.hold_state(callback)
