"""SaveTrainingStateCallback: what a resume needs, after epochs, steps and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer_hooks.callbacks.monitoring import check_choice, check_count, is_training
from trainer_hooks.callbacks.saving.saved_files import Plan
from trainer_hooks.callbacks.saving.saver_options import check_dirpath
from trainer_hooks.callbacks.saving.unranked_saver import UnrankedSaver
from trainer_hooks.errors import OptionError

if TYPE_CHECKING:
    import os

    from trainer_hooks.context import Trainer
    from trainer_hooks.module import Module

__all__ = ["SaveTrainingStateCallback"]

_WHERE = "SaveTrainingStateCallback"


class SaveTrainingStateCallback(UnrankedSaver):
    """Save all that a resume needs, every so many epochs or steps, and when the training is over.

    The files are `epoch_3.ckpt`, `step_500.ckpt` and `final.ckpt`: the number is of the epochs or
    steps that are done. `fit(ckpt_path=...)` goes on from any of them: a run of three epochs that
    is resumed from `epoch_2.ckpt` trains the third, and no more. A step is one of the optimizer,
    however many batches it takes. A file of the same name is written over.

    Args:
        save_dir: the folder.
        save_every_n_epochs: how many epochs lie between two files; no file by epochs unless given.
        save_every_n_steps: how many steps do; no file by steps unless given.
        save_at_end: whether `final.ckpt` is written.
        max_checkpoints: how many of the newest are kept, `final.ckpt` not counted; all unless
            given. What was kept is part of the state, so a resumed run goes on with it.

    Attributes:
        save_every_n_epochs: as given.
        save_every_n_steps: as given.
        save_at_end: as given.
        max_checkpoints: as given.

    Raises:
        OptionError: an argument is outside its rule, or nothing would ever be saved.

    State: which files it keeps, and when it saved last.

    Example::

        from trainer_hooks.compat.accelerated.callbacks import SaveTrainingStateCallback

        def trainer_of(epochs):
            saver = SaveTrainingStateCallback("states", save_every_n_epochs=1, max_checkpoints=1)
            return Trainer(max_epochs=epochs, callbacks=[saver])

        trainer_of(2).fit(module, train_loader, val_loader)
        trainer_of(3).fit(module, train_loader, val_loader, ckpt_path="states/epoch_2.ckpt")
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str] = "training_states",
        save_every_n_epochs: int | None = None,
        save_every_n_steps: int | None = None,
        save_at_end: bool = True,
        max_checkpoints: int | None = None,
    ) -> None:
        for name, number in (
            ("save_every_n_epochs", save_every_n_epochs),
            ("save_every_n_steps", save_every_n_steps),
            ("max_checkpoints", max_checkpoints),
        ):
            if number is not None:
                check_count(name, number, _WHERE, least=1)
        check_choice("save_at_end", save_at_end, _WHERE, (True, False))
        if not (save_every_n_epochs or save_every_n_steps or save_at_end):
            raise OptionError(
                f"save_at_end {save_at_end!r} of {_WHERE}: without save_every_n_epochs and "
                "save_every_n_steps nothing would ever be saved. Pass one of them."
            )
        super().__init__(check_dirpath(save_dir, _WHERE))
        self.save_every_n_epochs = save_every_n_epochs
        self.save_every_n_steps = save_every_n_steps
        self.save_at_end = save_at_end
        self.max_checkpoints = max_checkpoints

    @property
    def state_key(self) -> str:
        """The class with what tells two instances apart: when they save."""
        return self._generate_state_key(
            save_every_n_epochs=self.save_every_n_epochs, save_every_n_steps=self.save_every_n_steps
        )

    def on_batch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if that is due by steps."""
        every, done = self.save_every_n_steps, trainer.progress.batches_stepped
        if every and done and done % every == 0 and done != self.ledger.books.saved_step:
            self._save(trainer, f"step_{done}")

    def on_epoch_checkpoint(self, trainer: Trainer, module: Module) -> None:
        """Save if that is due by epochs."""
        done = trainer.current_epoch + 1
        if self.save_every_n_epochs and done % self.save_every_n_epochs == 0:
            self._save(trainer, f"epoch_{done}")

    def on_train_end(self, trainer: Trainer, module: Module) -> None:
        """Save the end of the training."""
        if self.save_at_end and is_training(trainer):
            books, path = self.ledger.books.copy(), self.format_checkpoint_name({}, "final")
            books.last_model_path = path
            self._writer.write(trainer, Plan((path,)), books)

    def save_now(self, trainer: Trainer, module: Module) -> None:
        """Save because `trainer.request_checkpoint()` was called."""
        self._save(trainer, f"step_{trainer.progress.batches_stepped}")

    def _save(self, trainer: Trainer, name: str) -> None:
        """Save, and let the oldest go of those that are too many."""
        if not is_training(trainer):
            return
        books, path = self.ledger.books.copy(), self.format_checkpoint_name({}, name)
        keep = -1 if self.max_checkpoints is None else self.max_checkpoints
        books.best_k_models.pop(path, None)  # one of the same name is written over
        replaced = books.outranked(keep)
        books.add(path, torch.tensor(trainer.progress.batches_completed), keep)
        books.saved_step = trainer.progress.batches_stepped
        self._writer.write(trainer, Plan((path,), tuple(replaced)), books)
