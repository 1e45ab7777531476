"""Messages about a fit: advice before it, log lines at a resume and at its end.

The log lines go to the logger `trainer_hooks` at level INFO; that logger's level switches them
off. Advice is a warning of the class `TrainerHooksAdvice`.
"""

from __future__ import annotations

import math
import os
import signal
from typing import TYPE_CHECKING, Any, cast

from torch.utils.data import DataLoader, RandomSampler

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import log, warn
from trainer_hooks._names import ours
from trainer_hooks._system import shell_line
from trainer_hooks._text import count_with_noun, first_few
from trainer_hooks.checkpoint.paths import exists, is_remote
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.data.data_hooks import defines
from trainer_hooks.data.loaders import describe_loader
from trainer_hooks.errors import (
    TerminationSignal,
    TrainerHooksAdvice,
    TrainerHooksWarning,
    did_you_mean,
)
from trainer_hooks.loops.module_steps import has_validation_step
from trainer_hooks.module.datamodule import DataModule
from trainer_hooks.module.module import Module
from trainer_hooks.trainer.messages.resume_line import resume_line, shown_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.callbacks import ModelCheckpoint
    from trainer_hooks.connector.callback_state import LoadReport
    from trainer_hooks.context.context import RunContext, Trainer
    from trainer_hooks.context.training import TrainingState
    from trainer_hooks.trainer.core.run_inputs import RunInputs
    from trainer_hooks.trainer.core.trainer_core import TrainerCore

_COUNTS = {"epoch": "epoch", "global_step": "step"}
_LIMITS = ("max_epochs", "max_steps", "max_duration")


def log_resume(
    training: TrainingState, report: LoadReport, path: str, epoch_length: int | float
) -> None:
    """Log the position at which a training resumes, and how many callback states were restored.

    Args:
        training: the restored state.
        report: the callback states that were restored.
        path: the checkpoint.
        epoch_length: the number of batches of its epoch, infinity if unknown.
    """
    states = f"callback states restored: {len(report.restored)}"
    if report.upgraded:
        states += f", upgraded: {len(report.upgraded)}"
    log.info("resuming from %r at %s (%s)", shown_path(path), _place_of(training), states)
    progress = training.progress
    is_over = progress.stage not in (EpochStage.BETWEEN, EpochStage.BATCHES)
    if is_over and 0 < progress.batches_in_epoch < epoch_length < math.inf:
        log.info(
            "epoch %d was ended after %d of its %d batches, and the others are left out: to go on "
            "inside an epoch, resume from a checkpoint that was saved after a batch, as by "
            "ModelCheckpoint(every_n_train_steps=...)",
            progress.epochs_completed,
            progress.batches_in_epoch,
            epoch_length,
        )


def log_repeated_epoch(core: TrainerCore, trainer: Trainer) -> None:
    """Log that an epoch, inside which the last fit was broken off, begins again.

    Args:
        core: the core of the trainer whose fit begins.
        trainer: the trainer.
    """
    progress = core.training.progress
    if not progress.batches_in_epoch or core.is_trial or not trainer.is_global_zero:
        return
    newest = core.training.newest_path
    if newest and not _lost(core.training):
        way = f"pass ckpt_path={shown_path(newest)!r}"
    else:
        way = "call save_checkpoint(path) first, and pass ckpt_path=path"
    log.info(
        "epoch %d was left after %s: it begins again, with the batches that it has trained; "
        "to go on inside it, %s",
        progress.epochs_completed,
        count_with_noun(progress.batches_in_epoch, "batch"),
        way,
    )


def log_loaded(fn: str, checkpoint: Mapping[str, Any], path: str) -> None:
    """Log which checkpoint an evaluation or prediction has taken its weights from."""
    counts = (f"{unit} {checkpoint[key]}" for key, unit in _COUNTS.items() if key in checkpoint)
    place = ", ".join(counts)
    log.info("%s: weights of %r%s", fn, shown_path(path), f" ({place})" if place else "")


def warn_of_nothing_to_do(context: RunContext, reason: str, name: str) -> bool:
    """Warn if a fit has nothing to train, unless this fit requested a stop itself.

    Returns:
        Whether it warned.

    Args:
        context: the run.
        reason: why the training is over already; empty if it is not.
        name: the name of the user's call.
    """
    progress, stream = context.training.progress, context.data.stream
    is_over = progress.stage in (EpochStage.BETWEEN, EpochStage.ENDED)
    if not reason or not is_over:
        return False
    if context.should_stop:
        if context.resumed:
            log.info(
                "%s has nothing to do: %s before its checkpoint was saved. To go on, set "
                "trainer.max_epochs, trainer.max_steps or trainer.max_duration to more, take the "
                "callback out that requested the stop, or set trainer.should_stop = False in "
                "on_train_start.",
                name,
                reason,
            )
        return False
    if stream is not None and stream.num_batches == 0:
        advice = "Set limit_train_batches to more, or call validate() to run the validation alone."
        warn(f"{name} has nothing to do: {reason}. {advice}", TrainerHooksWarning)
        return True
    epochs = progress.epochs_completed + (progress.stage is EpochStage.ENDED)
    anew = "leave ckpt_path out" if context.resumed else "pass another module"
    warn(
        f"{name} has nothing to do: {reason} (epoch {epochs}, step {progress.steps_completed}). "
        "Set trainer.max_epochs, trainer.max_steps or trainer.max_duration to more to go on, or "
        f"{anew} to start anew.",
        TrainerHooksWarning,
    )
    return True


def log_end(
    core: TrainerCore, trainer: Trainer, reason: str, error: BaseException | None = None
) -> None:
    """Log in two lines how a fit ended, with its best or newest file, and the call to go on with.

    Args:
        core: the core of the trainer whose fit is over.
        trainer: the trainer.
        reason: the limit that ended the training; empty if none did.
        error: the exception that ended the fit, if one did.
    """
    if core.is_trial or not trainer.is_global_zero:
        return
    place = _place_of(core.training)
    how = f"ended at {place}: {reason}" if error is None else f"{_broken_by(error)} at {place}"
    if trainer.fast_dev_run:
        log.info("%s %s", core.entry_point, how)
        return
    newest = core.training.newest_path
    if newest and not is_remote(newest) and not exists(newest):
        newest = ""  # somebody removed it
    if error is None and not trainer.checkpoint_callbacks and _lost(core.training):
        newest = ""  # it is older than what was trained now, and nothing was to save that
    is_expected = bool(newest or trainer.checkpoint_callbacks) or error is not None
    parts = (
        how,
        (_best(trainer) if error is None else "")
        or (
            _newest(trainer, core.training, newest, is_failed=error is not None)
            if is_expected
            else ""
        ),
        _report_of(trainer),
    )
    log.info("%s %s", core.entry_point, "; ".join(filter(None, parts)))
    if newest:
        log.info("%s", _way_on(core, trainer, newest, reason))


def _place_of(training: TrainingState) -> str:
    progress = training.progress
    place = f"epoch {progress.epochs_completed}, step {progress.steps_completed}"
    if progress.stage is EpochStage.BETWEEN:
        return place
    if progress.stage is EpochStage.BATCHES:
        return f"{place}, after {count_with_noun(progress.batches_in_epoch, 'batch')}"
    return f"the end of {place}"


def _broken_by(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted (Ctrl-C)"
    if isinstance(error, TerminationSignal):
        return f"made way for {signal.Signals(error.signum).name}"
    return f"failed with {type(error).__name__}"


def _newest(trainer: Trainer, training: TrainingState, newest: str, *, is_failed: bool) -> str:
    """Return the line about the newest checkpoint, or about why there is none."""
    if not newest:
        # of a fit that trained nothing there is nothing to save
        savers = _savers(trainer) if training.progress.batches_completed else []
        cure = ""
        if savers and not is_failed:
            # here: a fit without a saver does not load it
            from trainer_hooks.callbacks.saving.model_checkpoint import describe_trigger

            names = ", ".join(
                f"{type(saver).__name__}({describe_trigger(saver)})" for saver in savers
            )
            cure = (
                f" (no save of {names} came due: save_last=True saves one at the end, or choose "
                "another trigger)"
            )
        elif savers and not any(saver.save_on_exception for saver in savers):
            cure = " (ModelCheckpoint(save_on_exception=True) saves one at such a moment)"
        return f"no checkpoint was saved{cure}"
    lost = _lost(training)
    since = f"saved {count_with_noun(lost, 'batch')} earlier" if lost else "saved at that moment"
    return f"newest checkpoint: {shown_path(newest)!r} ({since})"


def _lost(training: TrainingState) -> int:
    """Return the number of batches since the newest checkpoint."""
    return training.progress.batches_completed - training.newest_batches


def _best(trainer: Trainer) -> str:
    """Return the line about the best checkpoint; empty where no metric ranks them."""
    for saver in _savers(trainer):
        if saver.monitor is not None and saver.best_model_path:
            score = saver.best_model_score
            value = "" if score is None else f" ({saver.monitor} {score.item():.5g})"
            return f"best checkpoint: {shown_path(saver.best_model_path)!r}{value}"
    return ""


def _savers(trainer: Trainer) -> list[ModelCheckpoint]:
    """Return the trainer's `ModelCheckpoint`s."""
    kind = class_if_loaded("trainer_hooks.callbacks.saving.model_checkpoint", "ModelCheckpoint")
    savers = [saver for saver in trainer.checkpoint_callbacks if isinstance(saver, kind)]
    return cast("list[ModelCheckpoint]", savers)


def _report_of(trainer: Trainer) -> str:
    """Return the command that makes a report of the run's folder; empty without one."""
    if not trainer.loggers:
        return ""
    from trainer_hooks.callbacks.reporting.journal import journal_folder  # a bare fit needs none

    folder = journal_folder(trainer.loggers)
    if folder is None or not os.path.isdir(folder):  # noqa: PTH112 - any text
        return ""
    return f"for a report: trainer-hooks report {shell_line([shown_path(folder)])}"


def _way_on(core: TrainerCore, trainer: Trainer, newest: str, reason: str) -> str:
    """Return the line with the command or call that resumes from the newest checkpoint.

    It ends with that, and names before it what has to change first.
    """
    # a reason begins with its limit, as in "max_epochs=3 epochs are done"
    limit = reason.partition("=")[0]
    stoppers = (
        entry
        for entry in core.connector.entries
        if ours(entry.callback).renews_stop and f": {type(entry.callback).__name__}: " in reason
    )
    stopper = next(stoppers, None)
    condition = ""
    if limit in _LIMITS:
        condition = f", with a higher {limit}"
    elif stopper is not None and stopper.origin == "default":
        # of the defaults only the Timer stops a run, and the user knows it as this option
        condition = ", with a higher max_time"
    elif stopper is not None:
        name = type(stopper.callback).__name__
        condition = f", without {name} or with options of it that stop later"
    raised = limit if limit in ("max_epochs", "max_steps") else ""
    line = resume_line(
        trainer, newest, core.entry_point, finds_itself=core.start_checkpoint.is_auto, limit=raised
    )
    return f"to go on{condition}: {line}"


def advise(core: TrainerCore, context: RunContext) -> None:
    """Warn of settings of a fit that may not be intended; each once per trainer."""
    if core.is_trial or core.config.fast_dev_run:
        return
    for subject, advice in (
        ("length", _on_length(core, context)),
        ("logging", _on_logging(core, context)),
        ("modes", _on_modes(context)),
        ("hparams", _on_hparams(core)),
    ):
        if advice and subject not in core.advised:
            core.advised.add(subject)
            warn(advice, TrainerHooksAdvice)


def warn_of_half_a_validation(core: TrainerCore, inputs: RunInputs, context: RunContext) -> None:
    """Warn once if a fit has validation data and no step for it, or a step and no data."""
    is_off = context.plan.limit_val_batches == 0 and inputs.evaluation is None
    if core.is_trial or inputs.own_loop is not None or is_off or "validation" in core.advised:
        return
    module, datamodule = inputs.module, inputs.datamodule
    makers = [maker for maker in (datamodule, module) if maker and defines(maker, "val_dataloader")]
    name = type(module).__qualname__
    if not has_validation_step(module):
        if inputs.evaluation is not None:
            data = "was given val_dataloaders"
        elif makers:
            data = f"has {type(makers[0]).__qualname__}.val_dataloader()"
        else:
            return
        core.advised.add("validation")
        warn(
            f"fit {data}, but {name} has no validation_step, so nothing is validated: define it, "
            f"or leave the loaders out.{_misspelt('validation_step', module)}",
            TrainerHooksWarning,
        )
    elif inputs.evaluation is None and not makers and defines(module, "validation_step", Module):
        core.advised.add("validation")
        warn(
            f"{name} has a validation_step, but fit was given no validation data, so nothing is "
            "validated: pass val_dataloaders=, or define val_dataloader() in the module or data "
            "module. Trainer(limit_val_batches=0) says that this is meant."
            f"{_misspelt('val_dataloader', datamodule, module)}",
            TrainerHooksAdvice,
        )


def _misspelt(name: str, *owners: object) -> str:
    """Return a sentence about the first method of the user's that may be meant as `name`."""
    for owner in filter(None, owners):
        methods = {*dir(type(owner))}.difference(dir(Module), dir(DataModule))
        for method in sorted(methods):
            if callable(getattr(type(owner), method, None)) and (
                hint := did_you_mean(method, (name,))
            ):
                return f" There is {type(owner).__qualname__}.{method}().{hint}"
    return ""


def advise_on_shuffling(core: TrainerCore, context: RunContext) -> None:
    """Warn once per stage if an evaluation draws its samples in random order."""
    if core.is_trial:
        return
    for stage, data in context.data.evaluation.items():
        for loader in data.loaders:
            is_shuffled = isinstance(loader, DataLoader) and isinstance(
                loader.sampler, RandomSampler
            )
            if is_shuffled and stage not in core.advised:
                core.advised.add(stage)
                warn(
                    f"the {stage} loader {describe_loader(loader)} draws its samples in a random "
                    "order, so that batches cannot be compared between two evaluations. Make it "
                    "with shuffle=False.",
                    TrainerHooksAdvice,
                )


def _on_length(core: TrainerCore, context: RunContext) -> str:
    config, plan = core.config, context.plan
    # neither passed by the user nor changed since
    is_default = config.max_epochs is None and plan.max_epochs == config.plan().max_epochs >= 0
    if not is_default or plan.max_duration is not None or plan.max_steps >= 0:
        return ""
    return (
        f"no length of the training was given, so that it ends after {plan.max_epochs} epochs. Set "
        "max_epochs, to -1 for no end."
    )


def _on_logging(core: TrainerCore, context: RunContext) -> str:
    stream, plan = context.data.stream, context.plan
    if not core.loggers or stream is None or stream.num_batches in (0, math.inf):
        return ""
    steps = math.ceil(stream.num_batches / plan.accumulate_grad_batches)
    if steps >= plan.log_every_n_steps:
        return ""
    return (
        f"an epoch has {steps} steps, and loggers are given single values every "
        f"{plan.log_every_n_steps}: some epochs have none. Set Trainer(log_every_n_steps=...) to "
        f"{steps} or less."
    )


def _on_modes(context: RunContext) -> str:
    module = context.module
    names = [
        name or type(module).__qualname__
        for name, part in module.named_modules()
        # a frozen layer is meant to be in eval mode, and one without parameters may be
        if not part.training
        and (part is module or any(p.requires_grad for p in part.parameters(recurse=False)))
    ]
    if not names:
        return ""
    return (
        f"{first_few(names, 3)} will be trained in eval mode, in which dropout and batch "
        "statistics are off. Call train() on it before fit, or freeze it with "
        "requires_grad_(False)."
    )


def _differ(one: Any, other: Any) -> bool:
    """Return whether two hyperparameters differ; an array or tensor compares by element."""
    try:
        return bool(one != other)
    # of several elements there is no truth value
    except (RuntimeError, ValueError):
        return repr(one) != repr(other)


def _on_hparams(core: TrainerCore) -> str:
    if not core.loggers or core.datamodule is None or core.module is None:
        return ""
    parts = (core.datamodule, core.module)
    data, module = (ours(part).logged_hparams or {} for part in parts)
    both = sorted(
        repr(name) for name in data if name in module and _differ(data[name], module[name])
    )
    if not both:
        return ""
    return (
        f"the hyperparameters {', '.join(both)} have one value in the data module and "
        "another in the module, whose value the loggers are given. Rename them, or leave them out "
        "with save_hyperparameters(ignore=...) in one of the two."
    )
