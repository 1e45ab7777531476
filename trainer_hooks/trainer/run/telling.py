"""What a fit says of itself: where it goes on, why it ended, what it left, and how to go on.

It is logged at INFO by the logger `trainer_hooks`, whose level turns it off.
"""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING, Any

from trainer_hooks._lazy import class_if_loaded
from trainer_hooks._log import log, warn
from trainer_hooks.checkpoint import exists, is_inside, is_remote
from trainer_hooks.clock import EpochStage
from trainer_hooks.errors import TerminationSignal, TrainerHooksWarning

if TYPE_CHECKING:
    from trainer_hooks.connector import LoadReport
    from trainer_hooks.context import RunContext, Trainer, Training
    from trainer_hooks.trainer.run.session import Session

__all__ = ["tell_end", "tell_resume", "warn_of_nothing_to_do"]

_LIMITS = ("max_epochs", "max_steps", "max_duration")


def tell_resume(training: Training, report: LoadReport, path: str) -> None:
    """Say where a training goes on, and how many callbacks had their state handed back."""
    states = f"callback states restored: {len(report.restored)}"
    if report.upgraded:
        states += f", upgraded: {len(report.upgraded)}"
    log.info("resuming from %r at %s (%s)", _shown(path), _place_of(training), states)


def warn_of_nothing_to_do(context: RunContext, reason: str) -> None:
    """Warn of a fit that has nothing to train, unless that was asked for.

    Args:
        context: the run.
        reason: why there is nothing more to train; empty if there is something.
    """
    progress, stream = context.training.progress, context.data.stream
    is_over = progress.stage in (EpochStage.BETWEEN, EpochStage.ENDED)
    if not reason or not is_over or context.has_to_stop:
        return
    if stream is not None and stream.num_batches == 0:
        advice = "Set limit_train_batches to more, or call validate() to run the validation alone."
        warn(f"fit has nothing to do: {reason}. {advice}", TrainerHooksWarning)
        return
    epochs = progress.epochs_completed + (progress.stage is EpochStage.ENDED)
    anew = "leave ckpt_path out" if context.resumed else "pass another module"
    warn(
        f"fit has nothing to do: {reason} (epoch {epochs}, step {progress.steps_completed}). Set "
        "trainer.max_epochs, trainer.max_steps or trainer.max_duration to more to go on, or "
        f"{anew} to start anew.",
        TrainerHooksWarning,
    )


def tell_end(
    session: Session, trainer: Trainer, reason: str, error: BaseException | None = None
) -> None:
    """Say in at most four lines how a fit ended, what it left, and how to go on.

    Args:
        session: the run that is over.
        trainer: whose run it is.
        reason: why there was nothing more to train.
        error: what broke it off, if anything did.
    """
    if session.is_trial or not trainer.is_global_zero:
        return
    place = _place_of(session.training)
    if error is None:
        log.info("fit ended at %s: %s", place, reason)
    else:
        log.info("fit %s at %s", _broken_by(error), place)
    if trainer.fast_dev_run:
        return
    newest = session.training.newest_path
    if newest and not is_remote(newest) and not exists(newest):
        newest = ""  # somebody removed it
    if error is None and not trainer.checkpoint_callbacks and _lost(session.training):
        newest = ""  # it is older than what was trained now, and nothing was to save that
    is_expected = bool(newest or trainer.checkpoint_callbacks) or error is not None
    for line in (
        (_best(trainer) if error is None else "")
        or (_newest(session.training, newest) if is_expected else ""),
        _report_of(trainer),
        _way_on(trainer, newest, reason if error is None else "", is_over=error is None),
    ):
        if line:
            log.info("%s", line)


def _place_of(training: Training) -> str:
    progress = training.progress
    place = f"epoch {progress.epochs_completed}, step {progress.steps_completed}"
    if progress.stage is EpochStage.BETWEEN:
        return place
    if progress.stage is EpochStage.BATCHES:
        return f"{place}, after {progress.batches_in_epoch} batches"
    return f"the end of {place}"


def _broken_by(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "was interrupted (Ctrl-C)"
    if isinstance(error, TerminationSignal):
        return f"made way for {signal.Signals(error.signum).name}"
    return f"failed with {type(error).__name__}"


def _newest(training: Training, newest: str) -> str:
    """Return the line on what a run that was broken off can go on from."""
    if not newest:
        return "no checkpoint was saved"
    lost = _lost(training)
    since = f"saved {lost} batches earlier" if lost else "saved at that moment"
    return f"newest checkpoint: {_shown(newest)!r} ({since})"


def _lost(training: Training) -> int:
    """Return how many batches were done since the newest checkpoint."""
    return training.progress.batches_completed - training.newest_batches


def _best(trainer: Trainer) -> str:
    """Return the line on the best checkpoint; empty where no metric ranks them."""
    kind = class_if_loaded("trainer_hooks.callbacks.saving.model_checkpoint", "ModelCheckpoint")
    savers: list[Any] = [saver for saver in trainer.checkpoint_callbacks if isinstance(saver, kind)]
    for saver in savers:
        if saver.monitor is not None and saver.best_model_path:
            score = saver.best_model_score
            value = "" if score is None else f" ({saver.monitor} {score.item():.5g})"
            return f"best checkpoint: {_shown(saver.best_model_path)!r}{value}"
    return ""


def _report_of(trainer: Trainer) -> str:
    """Return the line on the folder of the logs, and what makes a report of it."""
    folder = trainer.log_dir if trainer.logger is not None else None
    if folder is None or is_remote(folder) or not os.path.isdir(folder):  # noqa: PTH112 - any text
        return ""
    shown = _shown(folder)
    return f"logs: {shown!r}; for a report: trainer-hooks report {shlex.quote(shown)}"


def _way_on(trainer: Trainer, newest: str, reason: str, *, is_over: bool) -> str:
    """Return the line on what to write to go on from the newest checkpoint."""
    if not newest:
        return ""
    from trainer_hooks.callbacks.saving.saver import Saver

    savers = [saver for saver in trainer.checkpoint_callbacks if isinstance(saver, Saver)]
    is_found = any(saver.dirpath and is_inside(newest, saver.dirpath) for saver in savers)
    asked = ("last" if is_over else "auto") if is_found else _shown(newest)
    limit = reason.partition("=")[0]
    more = f" with a higher {limit}" if limit in _LIMITS else ""
    return f'to go on: fit(..., ckpt_path="{asked}"){more}'


def _shown(path: str) -> str:
    """Return a path as it is written in the working directory."""
    if is_remote(path):
        return path
    near = os.path.relpath(path)
    return path if near.startswith(os.pardir) else near
