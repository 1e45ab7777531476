"""Find a checkpoint among those that were saved: the newest that is whole, or the best."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainer_hooks._log import warn
from trainer_hooks.checkpoint.file import summarize, verify_checkpoint
from trainer_hooks.checkpoint.loading import load_parts
from trainer_hooks.checkpoint.target import exists, folder_of, joined, modified_at, name_of
from trainer_hooks.errors import CheckpointError, CheckpointNotFoundError, TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from trainer_hooks.checkpoint.seal import Summary

__all__ = ["Search"]

_SHOWN = 8


@dataclass(slots=True)
class Search:
    """What to look for, and what was passed over.

    Only the ends of the files are read until one is chosen, and only that one is verified.

    Attributes:
        asked: what the user asked for, `"last"`, `"best"` or `"auto"`, for messages.
        files: where checkpoints may be.
        module: the name of the class of the module that is to be loaded.
        is_resume: whether a training is to go on, for which weights alone are not enough, and the
            class must be the same; an evaluation may use another that has the same weights.
        is_own: says of a path and its summary whether this run saved it, when it was started
            before; `"auto"` takes no other, `"last"` and `"best"` only where there is none.
        passed_over: files that were not taken though newer, each with the reason.
        of_others: files that another run saved, and when.
        taken: the file that was chosen, or that said what is best.
    """

    asked: str
    files: Iterable[str]
    module: str
    is_resume: bool
    is_own: Callable[[str, Summary], bool]
    passed_over: list[str] = field(default_factory=list)
    of_others: dict[str, int] = field(default_factory=dict)
    taken: str | None = None

    def newest(self) -> str | None:
        """Return the newest whole checkpoint of the module, or None; say what was passed over."""
        chosen = next((path for path in self._newest_first() if self._is_whole(path)), None)
        self._tell(chosen)
        return chosen

    def best(self, state_key: str) -> str:
        """Return the best checkpoint by the books that the newest one holds.

        Args:
            state_key: of the callback that kept the books.

        Raises:
            CheckpointNotFoundError: no checkpoint holds books, or what they name is gone.
            CheckpointError: what they name is damaged.
        """
        for path in self._newest_first():
            named = self._best_in(path, state_key)
            if not named:
                continue
            self._tell(path)
            # the folder may have been moved as a whole
            for candidate in (named, joined(folder_of(path), name_of(named))):
                if exists(candidate):
                    verify_checkpoint(candidate)
                    return candidate
            raise CheckpointNotFoundError(
                f"ckpt_path={self.asked!r}: the best checkpoint by the books in {path!r} is "
                f"{named!r}, which is not there. Give a path, or 'last'."
            )
        self._tell(None)
        raise CheckpointNotFoundError(
            f"ckpt_path={self.asked!r}: no checkpoint callback of this trainer has saved one that "
            "says what is best. Train first, without save_weights_only, or give a path."
        )

    def _newest_first(self) -> Iterator[str]:
        """Give the files that can be taken, by when they were saved; note those that cannot.

        Those of other runs come last.
        """
        for _, _, _, path, reason in sorted(map(self._looked_at, set(self.files)), reverse=True):
            if reason is None:
                yield path
            elif reason:
                self.passed_over.append(f"{path!r} ({reason})")

    def _looked_at(self, path: str) -> tuple[bool, int, int, str, str | None]:
        """Return whose a file is, when it was saved, and why it cannot be taken: None if it can."""
        try:
            summary = summarize(path)
        except CheckpointNotFoundError:
            return False, 0, 0, path, ""  # another process removed it meanwhile
        except CheckpointError as error:
            return True, modified_at(path), 0, path, _reason(error)
        reason, is_own = None, self.is_own(path, summary)
        if self.is_resume and not summary.is_resumable:
            reason = ""
        elif not is_own and self.asked == "auto":
            reason = ""
            self.of_others[path] = summary.saved_at
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
            states = load_parts(path).get("callbacks", {})
        except CheckpointError as error:
            self.passed_over.append(f"{path!r} ({_reason(error)})")
            return ""
        books = states.get(state_key)
        return str(books.get("best_model_path", "")) if isinstance(books, dict) else ""

    def _tell(self, chosen: str | None) -> None:
        """Note what was chosen, and warn once of all that was passed over."""
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
    """Return what a message says beyond the file's name, which stands before it."""
    text = str(error)
    return text.partition("is damaged: ")[2].partition(". Resume")[0] or text.partition("' ")[2]
