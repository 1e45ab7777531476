"""The checkpoints that `ckpt_path="last"`, `"best"` and `"auto"` stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import log, warn
from trainer_hooks._names import ours
from trainer_hooks.callbacks.saving.saver import Saver, earlier_folders
from trainer_hooks.checkpoint.file import load_checkpoint, summarize, verify_checkpoint
from trainer_hooks.checkpoint.paths import (
    exists,
    file_name,
    files_in,
    join_path,
    modified_at,
    parent_folder,
)
from trainer_hooks.connector.registry import adapt_if_foreign
from trainer_hooks.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    OptionError,
    TrainerHooksWarning,
    did_you_mean,
)
from trainer_hooks.module.module import Module
from trainer_hooks.module.torch_wrappers import unsharded_class
from trainer_hooks.trainer.identity.run_identity import (
    RunLabel,
    RunMatcher,
    differences,
)
from trainer_hooks.trainer.identity.run_origin import (
    compute_run_origin,
    run_config,
    shown_command,
    training_values,
)
from trainer_hooks.trainer.messages.failed_start import warn_of_failed_start
from trainer_hooks.trainer.messages.resume_line import resume_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trainer_hooks.checkpoint.custom_io import CustomIO
    from trainer_hooks.checkpoint.seal import CheckpointSummary
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.trainer.core.trainer_core import TrainerCore

_SHOWN = 8


@dataclass(slots=True)
class CheckpointSearch:
    """A search for a checkpoint among files, and the files that it skipped.

    Only the ends of the files are read until one is chosen, and only that one is verified.

    Attributes:
        files: the files to consider.
        module: the name of the class of the module to load.
        matcher: tells the files of this run from those of others.
        passed_over: newer files that were skipped, each with the reason.
        of_others: files that another run saved, and when.
        reasons: why those are of another run, as far as their summaries tell it.
        summaries: the summaries of all files.
        of_run: the summaries of the files that this run saved.
        of_process: the summaries of the files that other trainings of this process saved.
        taken: the file that was chosen, or that named the best.
        io: reads the files, where the user's own object writes them.
    """

    files: Iterable[str]
    module: str
    matcher: RunMatcher
    passed_over: list[str] = field(default_factory=list)
    of_others: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    summaries: dict[str, CheckpointSummary] = field(default_factory=dict)
    of_run: dict[str, CheckpointSummary] = field(default_factory=dict)
    of_process: dict[str, CheckpointSummary] = field(default_factory=dict)
    taken: str | None = None
    io: CustomIO | None = None

    @property
    def asked(self) -> str:
        """The user's argument: `"last"`, `"best"` or `"auto"`."""
        return self.matcher.asked

    def newest(self) -> str | None:
        """Return the newest whole checkpoint of the module, or None; warn of skipped files."""
        chosen = next((path for path in self._newest_first() if self._is_whole(path)), None)
        self._tell(chosen)
        return chosen

    def best(self, state_key: str) -> str | None:
        """Return the best checkpoint by the saver's state in the newest one, or None.

        Args:
            state_key: the state key of the saver.

        Raises:
            CheckpointNotFoundError: the best file is gone, or another run has written over it.
            CheckpointError: the best one is damaged.
        """
        for path in self._newest_first():
            named = self._best_in(path, state_key)
            if not named:
                continue
            self._tell(path)
            # the folder may have been moved with all its files
            for candidate in (named, join_path(parent_folder(path), file_name(named))):
                if exists(candidate):
                    verify_checkpoint(candidate, self.io)
                    saved_at = summarize(candidate, self.io).saved_at
                    if saved_at > summarize(path, self.io).saved_at:
                        raise CheckpointNotFoundError(
                            f"ckpt_path={self.asked!r}: {candidate!r}, which {path!r} records as "
                            "the best checkpoint, was written over since. Give a path, or 'last'."
                        )
                    return candidate
            raise CheckpointNotFoundError(
                f"ckpt_path={self.asked!r}: the best checkpoint that {path!r} records is "
                f"{named!r}, which is not there. Give a path, or 'last'."
            )
        self._tell(None)
        return None

    def _newest_first(self) -> Iterator[str]:
        """Yield the usable files of this run, surest and latest first; record skipped ones.

        Raises:
            CheckpointNotFoundError: nothing says which of several trainings is meant.
        """
        summaries, order = self.summaries, list[tuple[int, int, int, str, str]]()
        damaged = list[tuple[int, int, str, str]]()
        for path in set(self.files):  # two savers may have one folder
            try:
                summaries[path] = summarize(path, self.io)
            except CheckpointNotFoundError:
                continue  # another process deleted it meanwhile
            except CheckpointError as error:
                # no summary says when it was saved: the file's own time places it among the others
                damaged.append((modified_at(path), 0, path, _reason(error)))
        for path, verdict in self.matcher.judge(summaries).items():
            summary, reason = summaries[path], ""
            if self.matcher.is_resume and not summary.is_resumable:
                continue
            if not verdict.rank:
                if not (verdict.is_silent and self.asked == "auto"):
                    self.of_others[path] = summary.saved_at
                    self.reasons[path] = verdict.reason
                if verdict.is_of_process:
                    self.of_process[path] = summary
                continue
            self.of_run[path] = summary
            # an empty name: another tool wrote the file
            if self.matcher.is_resume and summary.module not in ("", self.module):
                reason = f"saved with a {summary.module}"
            order.append((verdict.rank, summary.saved_at, summary.batches, path, reason))
        surest = max((rank for rank, *_ in order), default=0)
        self._require_one_training(surest)
        order += [(surest, *each) for each in damaged]
        for _, _, _, path, reason in sorted(order, reverse=True):
            if reason:
                self.passed_over.append(f"{path!r} ({reason})")
            else:
                yield path

    def _require_one_training(self, surest: int) -> None:
        """Refuse to choose among several trainings of a process for a word that names none.

        Raises:
            CheckpointNotFoundError: the files are of several, and none is the trainer's own.
        """
        # an exact match, and the trainer's own, leave no choice; but an evaluation has neither
        if self.asked == "auto" or surest != 1:
            return
        newest: dict[tuple[Any, ...], tuple[int, str]] = {}
        # what this process has trained is as likely to be meant as what an earlier one has
        for path, summary in {**self.of_run, **self.of_process}.items():
            identity = summary.identity
            if identity.run:
                run = identity.run if path in self.of_process else ""
                key = (run, identity.seed, identity.data, identity.ordinal, identity.position)
                newest[key] = max(newest.get(key, (0, "")), (summary.saved_at, path))
        if len(newest) > 1:
            listed = ", ".join(repr(path) for _, path in sorted(newest.values(), reverse=True))
            raise CheckpointNotFoundError(
                f"ckpt_path={self.asked!r}: the checkpoints here are of {len(newest)} trainings, "
                "such as folds or seeds, and nothing says which is meant. Give the path of one; "
                f"the newest of each: {listed}."
            )

    def _is_whole(self, path: str) -> bool:
        try:
            verify_checkpoint(path, self.io)
        except CheckpointError as error:
            self.passed_over.append(f"{path!r} ({_reason(error)})")
            return False
        return True

    def _best_in(self, path: str, state_key: str) -> str:
        try:
            # without tensors in shards: only the callbacks' states are looked at
            states = load_checkpoint(path, reads_shards=False, io=self.io).get("callbacks", {})
        except CheckpointError as error:
            self.passed_over.append(f"{path!r} ({_reason(error)})")
            return ""
        books = states.get(state_key)
        return str(books.get("best_model_path", "")) if isinstance(books, dict) else ""

    def _tell(self, chosen: str | None) -> None:
        """Record the chosen file, and warn once of all that were skipped."""
        self.taken = chosen
        if not self.passed_over:
            return
        shown = "; ".join(self.passed_over[:_SHOWN])
        more = len(self.passed_over) - _SHOWN
        outcome = f"took {chosen!r}" if chosen else "found no other"
        warn(
            f"ckpt_path={self.asked!r} {outcome}, and passed over {shown}"
            f"{f' and {more} more' if more > 0 else ''}. Remove what is damaged; give each kind of "
            "module a dirpath or default_root_dir of its own.",
            TrainerHooksWarning,
        )


def _reason(error: Exception) -> str:
    """Return the part of an error message after the file's name."""
    text = str(error)
    # the messages are those of checkpoint/file.py
    return text.partition("is damaged: ")[2].partition(". Resume")[0] or text.partition("' ")[2]


def refuse_misspelt(asked: str) -> None:
    """Raise if a word that is the path of no file is nearly one of those for a checkpoint.

    Raises:
        CheckpointNotFoundError: it is.
    """
    if hint := did_you_mean(asked, ("auto", "best", "last")):
        raise CheckpointNotFoundError(f"ckpt_path={asked!r}: there is no such file.{hint}")


def find_checkpoint(
    trainer: Trainer,
    asked: str,
    fn: str,
    module: Module,
    entry_point: str = "fit",
    label: RunLabel | None = None,
) -> str | None:
    """Return the path of a checkpoint, or None where `"auto"` finds none.

    Args:
        trainer: the trainer, whose checkpoint callbacks say where to look.
        asked: `"last"`, `"best"` or `"auto"`.
        fn: `"fit"`, `"validate"`, `"test"` or `"predict"`; fit needs more than weights.
        module: the module to load, of another framework too.
        entry_point: the name of the user's call that trains.
        label: the label of the run; None if nothing is known but the command and the module.

    Raises:
        OptionError: `"auto"` was passed to another entry point than fit.
        CheckpointNotFoundError: there is none of this run.
        CheckpointError: the best one is damaged.
    """
    if asked == "auto" and fn != "fit":
        raise OptionError(
            f"ckpt_path='auto' of {fn}: starting anew makes sense for fit alone. Give a path, "
            "'last' or 'best'."
        )
    module = adapt_if_foreign(module, Module)
    if asked == "best":
        # what this process has recorded itself comes before what files say
        saver = next(iter(_with_books(trainer)), None)
        io = trainer.custom_io
        if (
            saver is not None
            and saver.best_model_path
            # the user's own object may write elsewhere than to files
            and (io is not None or exists(saver.best_model_path))
        ):
            verify_checkpoint(saver.best_model_path, io)
            return str(saver.best_model_path)
    if label is None:
        origin = compute_run_origin(ours(module).saved_hparams, trainer.callbacks)
        label = RunLabel(origin)
    search = _search(trainer, asked, fn, module, label)
    if asked == "best":
        checkpoint_path = search.best("" if saver is None else saver.state_key)
    else:
        checkpoint_path = search.newest()
    if checkpoint_path is None:
        _tell_of_none(trainer, search, fn, module, entry_point)
    elif fn == "fit":
        _tell_of_doubt(search, label)
        warn_of_failed_start(checkpoint_path, asked, trainer.custom_io)
    return checkpoint_path


def _tell_of_none(
    trainer: Trainer, search: CheckpointSearch, fn: str, module: Module, entry_point: str
) -> None:
    """Report where `"auto"` found checkpoints of other runs alone.

    Raises:
        CheckpointNotFoundError: another word found none of this run.
    """
    asked, others = search.asked, ""
    newest = max(search.of_others, key=search.of_others.__getitem__, default=None)
    if newest is not None:
        reasons = _differences(trainer, module, newest, search.reasons[newest])
        others = (
            f"All checkpoints here ({len(search.of_others)}) are of other runs; the newest is "
            f"{newest!r}, and {'; '.join(reasons)}."
        )
    if asked == "auto":
        if newest is not None:
            cure = (
                " Give each run its own default_root_dir, or its logger a version."
                if search.reasons[newest]
                else ""
            )
            trainer.print(
                f"ckpt_path='auto': a new training. {others}{cure} To resume it all the same: "
                f"{resume_line(trainer, newest, entry_point)}"
            )
        return
    if asked == "best":
        message = (
            "no checkpoint callback of this trainer has saved one that says what is best. "
            f"{others or 'Train first, without save_weights_only, or give a path.'}"
        )
    else:
        folders = [
            repr(folder)
            for saver in map(ours, trainer.checkpoint_callbacks)
            if saver.has_named_folder
            for folder in saver.folders()
        ]
        looked = f" Looked in {', '.join(folders)}." if folders else ""
        message = (
            "no checkpoint callback of this trainer has saved one"
            f"{'' if fn != 'fit' else ' that a training can go on from'}.{looked}"
        )
        message += f" {others}" if others else ""
        if not others:
            message += (
                " Train first, give a path, or let fit start anew where there is none: "
                "ckpt_path='auto'."
            )
    if others:
        message += f" To take it all the same, give its path: ckpt_path={newest!r}."
    raise CheckpointNotFoundError(f"ckpt_path={asked!r}: {message}")


def _tell_of_doubt(search: CheckpointSearch, label: RunLabel) -> None:
    """Report where a checkpoint was taken for this run's although another might be meant."""
    path = search.taken
    summary = search.of_run.get(path or "")
    if summary is None:
        return
    mine = label.identity
    if summary.identity.run and (difference := differences(summary.identity, mine)):
        log.info(
            "ckpt_path=%r takes %r for this run's by its folder, although %s. Give each run a "
            "dirpath of its own.",
            search.asked,
            path,
            difference,
        )
    alike = {
        other.identity.ordinal
        for other in search.summaries.values()
        if other.origin == label.origin
        and (other.identity.seed, other.identity.data) == (mine.seed, mine.data)
    }
    if len(alike) > 1 and summary.identity.run not in label.runs:
        log.info(
            "ckpt_path=%r: %d trainings of one process with this command, seed and data saved "
            "here. This is number %d of its process, and takes that one's. A seed, a "
            "default_root_dir or a logger's version for each tells them apart in any order.",
            search.asked,
            len(alike),
            mine.ordinal + 1,
        )


def best_of_last_fit(trainer: Trainer, core: TrainerCore, fn: str) -> str | None:
    """Return `"best"` for an evaluation that gets neither a module nor a checkpoint, or None.

    It is None where the last run's module was not trained, or its fit saved nothing: then the
    module is evaluated as it is. A warning is given if the best checkpoint is not the newest state.
    """
    training = core.training
    if core.module is not training.module or training.progress.is_untrained:
        return None
    savers = _with_books(trainer)
    best = next((saver.best_model_path for saver in savers if saver.best_model_path), "")
    io = core.custom_io
    if not best or (io is None and not exists(best)):
        return None
    if summarize(best, io).batches != training.progress.batches_completed:
        warn(
            f"{fn} was given neither a model nor a ckpt_path: it takes the best checkpoint of the "
            f"last fit, {best!r}, and the module has its weights from here on. Pass "
            "ckpt_path='best' to say so, or the model to take the weights that it has.",
            TrainerHooksWarning,
        )
    return "best"


def _with_books(trainer: Trainer) -> list[Any]:
    """Return the savers that know the best checkpoint, of other frameworks too."""
    return [saver for saver in trainer.checkpoint_callbacks if hasattr(saver, "best_model_path")]


def _search(
    trainer: Trainer, asked: str, fn: str, module: Module, label: RunLabel
) -> CheckpointSearch:
    """Return a search of all files that the trainer's savers, now or in earlier runs, have saved.

    Files of a folder that the user named belong to this run, as `RunMatcher` says. In default
    folders, which several runs share, a run is recognised; and a fit ignores runs that go on.
    """
    savers = [ours(saver) for saver in trainer.checkpoint_callbacks]
    named = [
        path for saver in savers if saver.has_named_folder for path in saver.candidates(trainer)
    ]
    shared = {
        path for saver in savers if not saver.has_named_folder for path in saver.candidates(trainer)
    }
    if asked == "auto" and not savers:
        folders = earlier_folders(trainer)
        shared = {path for folder in folders for path in files_in(folder, Saver.FILE_EXTENSION)}
    shared -= set(named)
    matcher = RunMatcher(asked, fn == "fit", label, frozenset(shared))
    name = unsharded_class(module).__name__
    return CheckpointSearch([*named, *shared], name, matcher, io=trainer.custom_io)


def _differences(trainer: Trainer, module: Module, path: str, reason: str) -> list[str]:
    """Return why a checkpoint is not taken for one of this run, each reason as text.

    Args:
        trainer: the trainer.
        module: the module.
        path: the checkpoint.
        reason: the reason that its summary tells; empty if it tells none.
    """
    from trainer_hooks.callbacks.reporting.run_config import config_differences
    from trainer_hooks.trainer.restoring.changed_settings import setting_changes

    summary = summarize(path, trainer.custom_io)
    reasons = [reason] if reason else []
    name = unsharded_class(module).__name__
    if summary.module not in ("", name):
        reasons.append(f"it was saved with a {summary.module}, not a {name}")
    command = shown_command(trainer.callbacks)
    if summary.command != command and summary.command:
        reasons.append(f"its command line was {summary.command!r}, here it is {command!r}")
    try:
        # without tensors in shards: only the options are looked at
        checkpoint = load_checkpoint(path, reads_shards=False, io=trainer.custom_io)
    except CheckpointError as error:
        return [*reasons, _reason(error)]
    config = run_config(trainer.callbacks)
    saved = checkpoint.get("config")
    if config is not None and isinstance(saved, dict):
        reasons += config_differences(training_values(saved), training_values(config.values))
    hparams = checkpoint.get("hyper_parameters")
    saved_hparams = hparams if isinstance(hparams, dict) else {}
    changes = setting_changes(saved_hparams, dict(ours(module).saved_hparams or {}))
    reasons += [f"hyperparameter {change}" for change in changes]
    hidden = len(reasons) - _SHOWN
    more = [f"{hidden} more differences"] if hidden > 0 else []
    unknown = (
        "it had other hyperparameters of the data, or another folder, logger name or version"
        if summary.origin
        else "it does not say how it was started"
    )
    return [*reasons[:_SHOWN], *more] or [unknown]
