"""Writer: a plan carried out: files are written first, and only then is tidied up."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.saving.saved_files import is_removable, link_to
from trainer_hooks.checkpoint import exists, summarize
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from trainer_hooks.callbacks.saving.books import Books
    from trainer_hooks.callbacks.saving.saved_files import Plan
    from trainer_hooks.callbacks.saving.saver import Saver
    from trainer_hooks.context import Trainer

__all__ = ["Writer"]


class Writer:
    """Write the files of a saver's plans, and remove what they replace once they are durable.

    Args:
        saver: whose plans they are; its books are changed with the files.

    Attributes:
        left_over: what a run that was cut had replaced, and not removed yet.
        around: what is entered while a plan is carried out.
        is_to_save: whether the run saves, so that it matters whose the files are.

    State: the books, the folder that they belong to, and what a save that is under way replaces.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self.left_over: tuple[str, ...] = ()
        self.is_to_save = True
        self.around: Callable[[Plan], AbstractContextManager[None]] = _nothing
        self._for_now: tuple[str, ...] = ()

    def write(self, trainer: Trainer, plan: Plan, books: Books) -> None:
        """Write the files of a plan under new books, or begin to; a failure leaves the old ones.

        The books come first, because they are part of what is saved.

        Raises:
            CheckpointError: they cannot be written, or those before, in the background, could not.
        """
        with self.around(plan):
            self._write(trainer, plan, books)

    def settle(self, trainer: Trainer, path: str) -> None:
        """Link to a file that is now durable, and remove what it replaces."""
        saver = self._saver
        plan = saver.ledger.close(path)
        if plan is None or not trainer.is_global_zero:
            saver.ledger.claims.release(path)
            return
        if plan.link is not None:
            link_to(plan.files[0], plan.link)
        saver.ledger.claims.release(path, plan.link)
        for old in plan.obsolete:
            is_wanted = saver.ledger.books.names(old) or old in plan.files or old == plan.link
            if not is_wanted and is_removable(old, saver.dirpath, trainer.named_ckpt_path):
                saver.remove_checkpoint(trainer, old)

    def tidy(self, trainer: Trainer) -> None:
        """Remove what the checkpoint that this fit was given had replaced, if a kill left it.

        A checkpoint that was saved for now, and named itself, goes with the next save.
        """
        saver = self._saver
        left, self.left_over = self.left_over, ()
        resumed_from = trainer.ckpt_path
        if resumed_from is None or not trainer.is_global_zero:
            return
        self._for_now = tuple(old for old in left if old == resumed_from)
        for old in left:
            is_wanted = saver.ledger.books.names(old) or not exists(old)
            if is_wanted or not is_removable(old, saver.dirpath, resumed_from):
                continue
            # another training may have used the name since
            if summarize(old).saved_at < summarize(resumed_from).saved_at:
                saver.remove_checkpoint(trainer, old)

    def forget(self) -> None:
        """Open new books for another training. The files of the one before stay."""
        self._saver.ledger.open(self._saver.mode)
        self.left_over = self._for_now = ()

    def state_dict(self) -> dict[str, Any]:
        """Return the books, the folder, and what the save under way replaces.

        If the process is killed between the two, it is removed after the resume.
        """
        ledger = self._saver.ledger
        books = ledger.books.state_dict()
        return {"dirpath": self._saver.dirpath, "obsolete": ledger.obsolete, **books}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take the books back; of another folder's only the best path."""
        saver, books = self._saver, self._saver.ledger.books
        folder = state_dict.get("dirpath", saver.dirpath)
        if saver.dirpath in (None, folder):
            books.load_state_dict(state_dict)
            self.left_over = tuple(state_dict.get("obsolete", ()))
            return
        counts = ("best_model_path", "saved_step", "considered_at")
        books.load_state_dict({k: v for k, v in state_dict.items() if k in counts})
        if not self.is_to_save:
            return
        warn(
            f"dirpath {saver.dirpath!r} of {type(saver).__name__}: the checkpoint's was "
            f"{folder!r}, so only best_model_path is taken over, and the files there are left "
            "alone. Pass that dirpath to go on with its best checkpoints.",
            TrainerHooksWarning,
        )

    def _write(self, trainer: Trainer, plan: Plan, books: Books) -> None:
        saver, ledger = self._saver, self._saver.ledger
        is_in_background = saver.async_save and not plan.is_for_now
        if is_in_background:
            trainer.finish_saves()  # what it replaces goes first: it may end with the same file
        plan = replace(plan, obsolete=(*plan.obsolete, *self._for_now))
        before = ledger.enter(plan, books)
        weights_only = saver.save_weights_only and not plan.is_for_now
        try:
            if is_in_background:
                save = trainer.save_in_background(*plan.files, weights_only=weights_only)
                ledger.follow(save, before)
            else:
                for path in plan.files:
                    trainer.save_checkpoint(path, weights_only)
        except BaseException:
            ledger.strike(plan, before)
            raise
        self._for_now = ()


def _nothing(_plan: Plan) -> AbstractContextManager[None]:
    return nullcontext()
