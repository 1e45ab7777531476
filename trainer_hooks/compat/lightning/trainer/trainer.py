"""Lightning's trainer."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import trainer_hooks

if TYPE_CHECKING:
    from trainer_hooks.loggers import Logger

__all__ = ["Trainer"]

_FOLDER = "lightning_logs"


class Trainer(trainer_hooks.Trainer):
    """A `trainer_hooks.Trainer`, whose options are Lightning's, with Lightning's default logger.

    That is TensorBoard where it is installed, else CSV files, in `lightning_logs/version_0` and so
    on. Hooks are given the loss of a batch divided by `accumulate_grad_batches`, as there.
    """

    @property
    def divides_outputs(self) -> bool:
        """Whether hooks get losses divided by `accumulate_grad_batches`, as in Lightning."""
        return True

    @classmethod
    def default_logger(cls, root: str) -> Logger:
        """Return the logger of `Trainer(logger=True)`.

        Args:
            root: the run's root folder.
        """
        if find_spec("tensorboard") is not None:
            from trainer_hooks.loggers import TensorBoardLogger

            return TensorBoardLogger(root, name=_FOLDER)
        from trainer_hooks.loggers import CSVLogger

        return CSVLogger(root, name=_FOLDER)
