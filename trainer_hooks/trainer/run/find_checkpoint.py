"""The checkpoints that `ckpt_path="last"`, `"best"` and `"auto"` stand for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
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
from trainer_hooks.trainer.run.failed_start import warn_of_failed_start
from trainer_hooks.trainer.run.resume_line import resume_line
from trainer_hooks.trainer.run.run_origin import (
    compute_run_origin,
    is_running_elsewhere,
    run_config,
    shown_command,
    training_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer_hooks.checkpoint.seal import CheckpointSummary
    from trainer_hooks.context.context import Trainer
    from trainer_hooks.trainer.run.trainer_core import TrainerCore

_SHOWN = 8


@dataclass(slots=True)
class CheckpointSearch:
    """A search for a checkpoint among files, and the files that it skipped.

    Only the ends of the files are read until one is chosen, and only that one is verified.

    Attributes:
        asked: the user's argument, `"last"`, `"best"` or `"auto"`, for messages.
        files: the files to consider.
        module: the name of the class of the module to load.
        is_resume: whether a training is to resume, for which weights alone are not enough, and the
            class must be the same; an evaluation may use another with the same weights.
        is_own: returns for a path and its summary whether this run saved it before a restart;
            `"auto"` takes no other, `"last"` and `"best"` only where there is none.
        passed_over: newer files that were skipped, each with the reason.
        of_others: files that another run saved, and when.
        taken: the file that was chosen, or that named the best.
    """

    asked: str
    files: Iterable[str]
    module: str
    is_resume: bool
    is_own: Callable[[str, CheckpointSummary], bool]
    passed_over: list[str] = field(default_factory=list)
    of_others: dict[str, int] = field(default_factory=dict)
    taken: str | None = None

    def newest(self) -> str | None:
        """Return the newest whole checkpoint of the module, or None; warn of skipped files."""
        chosen = next((path for path in self._newest_first() if self._is_whole(path)), None)
        self._tell(chosen)
        return chosen

    def best(self, state_key: str) -> str:
        """Return the best checkpoint by the saver's state in the newest one.

        Args:
            state_key: the state key of the saver.

        Raises:
            CheckpointNotFoundError: no checkpoint names a best one, or that file is gone.
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
                    verify_checkpoint(candidate)
                    return candidate
            raise CheckpointNotFoundError(
                f"ckpt_path={self.asked!r}: the best checkpoint that {path!r} records is "
                f"{named!r}, which is not there. Give a path, or 'last'."
            )
        self._tell(None)
        raise CheckpointNotFoundError(
            f"ckpt_path={self.asked!r}: no checkpoint callback of this trainer has saved one that "
            "says what is best. Train first, without save_weights_only, or give a path."
        )

    def _newest_first(self) -> Iterator[str]:
        """Yield the usable files, latest first, other runs' last; record why files are skipped."""
        # a set: two savers may have one folder
        # each path is there once, so that reasons, None or a text, are never compared
        for _, _, _, path, reason in sorted(map(self._looked_at, set(self.files)), reverse=True):
            if reason is None:
                yield path
            elif reason:
                self.passed_over.append(f"{path!r} ({reason})")

    def _looked_at(self, path: str) -> tuple[bool, int, int, str, str | None]:
        """Return a file's sort key: whether it is the run's own, and when it was saved.

        The last item is the reason for which the file cannot be used: None if it can, and an empty
        text if it is skipped silently.
        """
        try:
            summary = summarize(path)
        except CheckpointNotFoundError:
            return False, 0, 0, path, ""  # another process deleted it meanwhile
        except CheckpointError as error:
            # no summary says when it was saved: the file's own time places it among the others
            return True, modified_at(path), 0, path, _reason(error)
        reason, is_own = None, self.is_own(path, summary)
        if self.is_resume and not summary.is_resumable:
            reason = ""
        elif not is_own and self.asked == "auto":
            reason = ""
            self.of_others[path] = summary.saved_at
        # an empty name: another tool wrote the file
        elif self.is_resume and summary.module not in ("", self.module):
            reason = f"saved with a {summary.module}"
        elif not is_own:
            self.of_others[path] = summary.saved_at
        return is_own, summary.saved_at, summary.batches, path, reason

    def _is_whole(self, path: str) -> bool:
        try:
            verify_checkpoint(path)
        except CheckpointError as error:
            self.passed_over.append(f"{path!r} ({_reason(error)})")
            return False
        return True

    def _best_in(self, path: str, state_key: str) -> str:
        try:
            # without tensors in shards: only the callbacks' states are looked at
            states = load_checkpoint(path, reads_shards=False).get("callbacks", {})
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
    trainer: Trainer, asked: str, fn: str, module: Module, entry_point: str = "fit"
) -> str | None:
    """Return the path of a checkpoint, or None where `"auto"` finds none.

    Args:
        trainer: the trainer, whose checkpoint callbacks say where to look.
        asked: `"last"`, `"best"` or `"auto"`.
        fn: `"fit"`, `"validate"`, `"test"` or `"predict"`; fit needs more than weights.
        module: the module to load, of another framework too.
        entry_point: the name of the user's call that trains.

    Raises:
        OptionError: `"auto"` was passed to another entry point than fit.
        CheckpointNotFoundError: there is none.
        CheckpointError: the best one is damaged.
    """
    if asked == "auto" and fn != "fit":
        raise OptionError(
            f"ckpt_path='auto' of {fn}: starting anew makes sense for fit alone. Give a path, "
            "'last' or 'best'."
        )
    search = _search(trainer, asked, fn, adapt_if_foreign(module, Module))
    if asked == "best":
        saver = next(iter(_with_books(trainer)), None)
        # what this process has recorded itself comes before what files say
        if saver is not None and saver.best_model_path and exists(saver.best_model_path):
            verify_checkpoint(saver.best_model_path)
            return str(saver.best_model_path)
        checkpoint_path: str | None = search.best("" if saver is None else saver.state_key)
    else:
        checkpoint_path = search.newest()
    if checkpoint_path is None and asked == "last":
        folders = [
            repr(folder)
            for saver in map(ours, trainer.checkpoint_callbacks)
            if saver.has_named_folder
            for folder in saver.folders()
        ]
        looked = f" Looked in {', '.join(folders)}." if folders else ""
        raise CheckpointNotFoundError(
            "ckpt_path='last': no checkpoint callback of this trainer has saved one"
            f"{'' if fn != 'fit' else ' that a training can go on from'}."
            f"{looked} Train first, give a path, or "
            "let fit start anew where there is none: ckpt_path='auto'."
        )
    _tell_of_others(trainer, search, adapt_if_foreign(module, Module), entry_point)
    if checkpoint_path is not None and fn == "fit":
        warn_of_failed_start(checkpoint_path, asked)
    return checkpoint_path


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
    if not best or not exists(best):
        return None
    if summarize(best).batches != training.progress.batches_completed:
        warn(
            f"{fn} was given neither a model nor a ckpt_path: it takes the best checkpoint of the "
            f"last fit, {best!r}, and the module has its weights from here on. Pass "
            "ckpt_path='best' to say so, or the model to take the weights that it has.",
            TrainerHooksWarning,
        )
    return "best"


def _with_books(trainer: Trainer) -> list[Any]:
    """Return the savers that know the best checkpoint, of other frameworks too."""
    return [one for one in trainer.checkpoint_callbacks if hasattr(one, "best_model_path")]


def _search(trainer: Trainer, asked: str, fn: str, module: Module) -> CheckpointSearch:
    """Return a search of all files that the trainer's savers, now or in earlier runs, have saved.

    All files of a folder that the user named belong to this run. In default folders, which several
    runs share, a run is recognised by its origin; and a fit ignores runs that are still going.
    """
    savers = [ours(saver) for saver in trainer.checkpoint_callbacks]
    named = [path for one in savers if one.has_named_folder for path in one.candidates(trainer)]
    shared = {
        path for one in savers if not one.has_named_folder for path in one.candidates(trainer)
    }
    if asked == "auto" and not savers:
        folders = earlier_folders(trainer)
        shared = {path for folder in folders for path in files_in(folder, Saver.FILE_EXTENSION)}
    # "auto" must not resume another run's training by accident, nor one that is still going
    origin, is_resume = (
        compute_run_origin(ours(module).saved_hparams, trainer.callbacks),
        fn == "fit",
    )

    def is_own(path: str, summary: CheckpointSummary) -> bool:
        if path not in shared:
            return True
        return summary.origin in ("", origin) and not (is_resume and is_running_elsewhere(summary))

    return CheckpointSearch(
        asked, [*named, *shared], unsharded_class(module).__name__, is_resume, is_own
    )


def _tell_of_others(
    trainer: Trainer, search: CheckpointSearch, module: Module, entry_point: str
) -> None:
    """Report if all checkpoints, or the chosen one, belong to other runs."""
    if not search.of_others:
        return
    if search.taken is None:
        newest = max(search.of_others, key=search.of_others.__getitem__)
        trainer.print(
            f"ckpt_path={search.asked!r}: a new training. All checkpoints here "
            f"({len(search.of_others)}) are of other runs; the newest is {newest!r}, and "
            f"{'; '.join(_differences(trainer, module, newest))}. To resume it all the same: "
            f"{resume_line(trainer, newest, entry_point)}"
        )
    elif search.taken in search.of_others:
        warn(
            f"ckpt_path={search.asked!r} took {search.taken!r}, which another run has saved "
            f"({'; '.join(_differences(trainer, module, search.taken))}): this one has saved none. "
            "Give the path of the one that is meant.",
            TrainerHooksWarning,
        )


def _differences(trainer: Trainer, module: Module, path: str) -> list[str]:
    """Return why a checkpoint is not taken for one of this run, each reason as text."""
    from trainer_hooks.callbacks.reporting.run_config import config_differences
    from trainer_hooks.trainer.run.restoring import setting_changes

    summary = summarize(path)
    reasons = []
    if is_running_elsewhere(summary):
        reasons.append("its process is still going")
    name = unsharded_class(module).__name__
    if summary.module not in ("", name):
        reasons.append(f"it was saved with a {summary.module}, not a {name}")
    command = shown_command(trainer.callbacks)
    if summary.command != command and summary.command:
        reasons.append(f"its command line was {summary.command!r}, here it is {command!r}")
    try:
        # without tensors in shards: only the options are looked at
        checkpoint = load_checkpoint(path, reads_shards=False)
    except CheckpointError as error:
        return [*reasons, _reason(error)]
    config = run_config(trainer.callbacks)
    saved = checkpoint.get("config")
    if config is not None and isinstance(saved, dict):
        reasons += config_differences(training_values(saved), training_values(config.values))
    hparams = checkpoint.get("hyper_parameters")
    known = hparams if isinstance(hparams, dict) else {}
    changes = setting_changes(known, dict(ours(module).saved_hparams or {}))
    reasons += [f"hyperparameter {change}" for change in changes]
    hidden = len(reasons) - _SHOWN
    more = [f"{hidden} more differences"] if hidden > 0 else []
    return [*reasons[:_SHOWN], *more] or ["it does not say how it was started"]
