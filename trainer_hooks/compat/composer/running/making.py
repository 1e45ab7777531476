"""What Composer's Trainer is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.optim.lr_scheduler import LRScheduler

from trainer_hooks import data, loggers, trainer
from trainer_hooks._log import warn
from trainer_hooks.compat.composer.callbacks import CheckpointSaver
from trainer_hooks.compat.composer.core.evaluator import Evaluator, ensure_evaluator
from trainer_hooks.compat.composer.core.precision import native_precision
from trainer_hooks.compat.composer.loggers.console import ConsoleLogger
from trainer_hooks.compat.composer.loggers.destination import LoggerDestination
from trainer_hooks.compat.composer.loggers.hosted import Hosted
from trainer_hooks.compat.composer.optim import DecoupledSGDW, compile_composer_scheduler
from trainer_hooks.compat.composer.running.guests import events_of
from trainer_hooks.compat.composer.utils import ensure_tuple
from trainer_hooks.errors import OptionError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch.optim import Optimizer

    from trainer_hooks.compat.composer.core.state import State
    from trainer_hooks.compat.composer.options import TrainerOptions
    from trainer_hooks.compat.composer.running.links import Links

__all__ = [
    "compile_schedulers",
    "destinations",
    "evaluators",
    "hyperparameters",
    "late_schedulers",
    "native_evaluator",
    "native_trainer",
    "optimizer",
]

_ACCELERATORS = {"cpu": "cpu", "gpu": "gpu", "mps": "mps"}


class _Forward(loggers.Logger):
    """Hand what callbacks of trainer_hooks log to Composer's destinations.

    Args:
        links: whose destinations.
    """

    def __init__(self, links: Links) -> None:
        self._links = links

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Hand values on, but not those that Composer's trainer logs under names of its own."""
        found = {name: v for name, v in metrics.items() if name not in ("train_loss", "epoch")}
        if found:
            self._links.engine.logger.log_metrics(found, step)

    def log_image(
        self,
        key: str,
        images: Any,
        step: int | None = None,
        *,
        captions: Any = None,
        channels_last: bool = False,
    ) -> None:
        """Hand images on."""
        self._links.engine.logger.log_images(list(images), key, channels_last, step)

    def log_table(
        self,
        key: str,
        columns: Any = None,
        data: Any = None,
        dataframe: Any = None,
        step: int | None = None,
    ) -> None:
        """Hand a table on."""
        if dataframe is not None:
            columns, data = list(dataframe.columns), dataframe.to_numpy().tolist()
        self._links.engine.logger.log_table(list(columns), list(data), key, step)


def destinations(options: TrainerOptions) -> list[LoggerDestination]:
    """Return the destinations that were asked for.

    Raises:
        OptionError: one is none.
    """
    found: list[LoggerDestination] = []
    for given in ensure_tuple(options.loggers):
        if isinstance(given, LoggerDestination):
            found.append(given)
        elif isinstance(given, loggers.Logger):
            found.append(Hosted(lambda _name, logger=given: logger))  # type: ignore[misc]
        else:
            raise OptionError(
                f"Trainer(loggers=[{given!r}]): must be a LoggerDestination, or a logger of "
                "trainer_hooks. Derive it from LoggerDestination."
            )
    if options.log_to_console and not any(isinstance(one, ConsoleLogger) for one in found):
        found.append(ConsoleLogger(options.console_log_interval, options.console_stream))
    return found


def native_trainer(
    options: TrainerOptions, state: State, links: Links
) -> tuple[trainer.Trainer, Any]:
    """Return the trainer of trainer_hooks that does it, and the saver of `save_folder`."""
    callbacks = list(ensure_tuple(options.callbacks))
    savers = [one for one in callbacks if isinstance(one, CheckpointSaver)]
    folder = options.place(state.run_name)
    saver: Any = savers[0] if savers else None
    if saver is None and folder is not None:
        saver = CheckpointSaver(
            folder,
            options.save_filename.replace("{run_name}", state.run_name),
            latest_filename=options.save_latest_filename,
            save_interval=options.native_saving(lambda due: _of_clock(due, links)),
            overwrite=options.save_overwrite,
            weights_only=options.save_weights_only,
            ignore_keys=options.save_ignore_keys,
            num_checkpoints_to_keep=options.save_num_checkpoints_to_keep,
        )
        callbacks.append(saver)
    state.callbacks = [*links.engine.logger.destinations, *callbacks]
    subset = options.train_subset_num_batches
    native = trainer.Trainer(
        accelerator=_ACCELERATORS[state.device.name],
        devices=1 if state.device.name == "cpu" else "auto",
        precision=native_precision(state.precision.value),
        callbacks=[*events_of(links), *state.callbacks],
        logger=_Forward(links),
        max_epochs=-1,
        limit_train_batches=None if subset < 0 else subset,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        microbatch_size=options.device_train_microbatch_size,  # type: ignore[arg-type]
        inference_mode=False,
        deterministic=options.deterministic_mode,
        enable_progress_bar=options.progress_bar,
        enable_checkpointing=saver is not None,
        enable_model_summary=False,
        enable_run_manifest=False,
    )
    return native, saver


def _of_clock(due: Callable[..., Any], links: Links) -> Callable[[Any], bool]:
    return lambda _clock: bool(due(links.state, links.saving_event))


def optimizer(options: TrainerOptions) -> Optimizer:
    """Return the optimizer that was given, or Composer's own default.

    Raises:
        OptionError: several were given.
    """
    given = ensure_tuple(options.optimizers)
    if len(given) > 1:
        raise OptionError(
            f"Trainer(optimizers={len(given)} of them): one is taken. Put the parameters into "
            "groups of one, or train with trainer_hooks.Module and manual optimization."
        )
    if given:
        found: Optimizer = given[0]
        return found
    warn(
        "Trainer(optimizers=None): DecoupledSGDW(lr=0.1) is taken. Pass optimizers to choose.",
        TrainerHooksWarning,
    )
    return DecoupledSGDW(options.model.parameters(), lr=0.1)


def evaluators(
    source: Any, interval: Any, subset: int, metrics: dict[str, Any], known: dict[str, Any]
) -> list[Evaluator]:
    """Return what is to be evaluated, each with its interval and metrics.

    Args:
        source: a loader, an evaluator, or several of them.
        interval: when those are due that do not say so themselves.
        subset: how many batches, likewise.
        metrics: the model's.
        known: where the metrics of each label are kept.

    Raises:
        OptionError: evaluators and loaders are mixed, or two have one label.
    """
    given = ensure_tuple(source)
    kinds = {isinstance(one, Evaluator) for one in given}
    if len(kinds) > 1:
        raise OptionError(
            "eval_dataloader: evaluators and loaders were given together. Give each loader as an "
            "Evaluator(label=..., dataloader=...)."
        )
    found = [ensure_evaluator(one, list(metrics)) for one in given]
    labels = [one.label for one in found]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(
                f"eval_dataloader: two of them have the label {label!r}. Give each an "
                "Evaluator(label=..., dataloader=...) of its own."
            )
    for one in found:
        if one.eval_interval is None:
            one.eval_interval = interval
        if one.subset_num_batches is None:
            one.subset_num_batches = subset
        known[one.label] = one.chosen(metrics)
    return found


def native_evaluator(
    evaluator: Evaluator, is_wanted: Callable[[str], bool] | None, subset: int = -1
) -> data.Evaluator:
    """Return an evaluator as trainer_hooks takes it.

    Args:
        evaluator: it.
        is_wanted: says whether one of its label is due now; None if it just is.
        subset: how many batches; those of the evaluator if -1.
    """
    label = evaluator.label
    most = evaluator.subset_num_batches if subset < 0 else subset
    return data.Evaluator(
        label,
        evaluator.dataloader.dataloader,
        subset_num_batches=most,
        eval_interval=None if is_wanted is None else lambda _clock: is_wanted(label),
    )


def compile_schedulers(options: TrainerOptions, links: Links) -> None:
    """Put the schedulers on the state, and note when they step."""
    ratio, each = options.scale_schedule_ratio, options.step_schedulers_every_batch
    if options.schedulers is None and (ratio != 1.0 or each is not None):
        name = "scale_schedule_ratio" if ratio != 1.0 else "step_schedulers_every_batch"
        raise OptionError(f"Trainer({name}=...) has no effect without schedulers. Leave it out.")
    _compile(links, options.schedulers, ratio, each)


def late_schedulers(
    links: Links, schedulers: Any, ratio: float, each_batch: bool | None, *, is_first: bool
) -> None:
    """Put schedulers on the state that the first fit brings.

    Raises:
        OptionError: it is not the first, or the trainer has some.
    """
    if not is_first or links.state.schedulers:
        raise OptionError(
            "Trainer.fit(schedulers=...): the optimizer has its schedulers from the first fit on. "
            "Pass Trainer(schedulers=...)."
        )
    _compile(links, schedulers, ratio, each_batch)


def _compile(links: Links, schedulers: Any, ratio: float, each_batch: bool | None) -> None:
    given = ensure_tuple(schedulers)
    state = links.state
    has_torchs = any(isinstance(one, LRScheduler) for one in given)
    links.steps_each_batch = not has_torchs if each_batch is None else each_batch
    state.schedulers = [
        one if isinstance(one, LRScheduler) else compile_composer_scheduler(one, state, ratio)
        for one in given
    ]


def hyperparameters(options: TrainerOptions) -> dict[str, Any]:
    """Return the options that are plain numbers and texts, to be logged."""
    names = options.__dataclass_fields__
    found = {name: getattr(options, name) for name in names}
    return {n: v for n, v in found.items() if isinstance(v, str | int | float)}
