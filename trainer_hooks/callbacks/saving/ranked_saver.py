"""RankedSaver: the best checkpoints by a metric, and the last one beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks.callbacks.saving.saved_files import Plan
from trainer_hooks.callbacks.saving.saver import Saver
from trainer_hooks.callbacks.watched_metric import WatchedMetric
from trainer_hooks.checkpoint import is_remote, joined
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    import os

    from torch import Tensor

    from trainer_hooks.callbacks.saving.ranking import Books
    from trainer_hooks.context import Trainer

__all__ = ["RankedSaver"]


class RankedSaver(Saver):
    """Decide of a checkpoint whether it is among the best, and which ones it replaces.

    Args:
        *options: those of `Saver`, in its order.
        monitor: the metric that ranks; None if the newest counts as the best.
        save_top_k: how many of the best to keep; -1 all.
        save_last: whether the last is saved beside them, or linked to (`"link"`).
        verbose: whether each decision is logged at level INFO.
    """

    CHECKPOINT_NAME_LAST: str = "last"

    def __init__(
        self,
        *options: Any,
        monitor: str | None,
        save_top_k: int,
        save_last: Any,
        verbose: bool,
    ) -> None:
        super().__init__(*options)
        self.monitor = monitor
        self.save_top_k = save_top_k
        self.save_last = save_last
        self.verbose = verbose
        self._watched = WatchedMetric(monitor, type(self).__name__)

    def check_monitor_top_k(self, trainer: Trainer, current: Tensor | None = None) -> bool:
        """Return whether a checkpoint with the score `current` would be among the best."""
        if current is None or self.save_top_k == 0:
            return False
        return self._books.admits(current, self.save_top_k)

    def to_yaml(self, filepath: str | os.PathLike[str] | None = None) -> None:
        """Write the best checkpoints and their scores to a YAML file, a line for each.

        Args:
            filepath: the file; `best_k_models.yaml` in `dirpath` unless given.

        Raises:
            UsageError: there is no folder yet, or it is no local one.
        """
        if filepath is None and self.dirpath is None:
            raise UsageError(
                f"{type(self).__name__}.to_yaml() was called before a run resolved dirpath: pass "
                "filepath, or call it after fit."
            )
        path = joined(self.dirpath or "", "best_k_models.yaml") if filepath is None else filepath
        if is_remote(str(path)):
            raise UsageError(
                f"filepath {str(path)!r} of {type(self).__name__}.to_yaml(): it must be a local "
                "file. Pass one."
            )
        lines = [f"{json.dumps(p)}: {s.item()!r}\n" for p, s in self.best_k_models.items()]
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, lambda file: file.writelines(lines or ["{}\n"]))

    def _planned(
        self, top: str | None, replaced: list[str], metrics: dict[str, Any], books: Books
    ) -> Plan:
        """Return what to write: `top`, if there is one, and the last checkpoint if it moves."""
        files = [] if top is None else [top]
        link = None
        if self._is_last_wanted(top, books):
            previous = books.last_model_path
            last = self.free_path(metrics, self.CHECKPOINT_NAME_LAST, reusable=(previous,))
            books.last_model_path = last
            replaced = [*replaced, previous]
            if self.save_last == "link" and top is not None:
                link = last
            else:
                files.append(last)
        return Plan(tuple(files), tuple(filter(None, replaced)), link)

    def _is_last_wanted(self, top: str | None, books: Books) -> bool:
        """Return whether the last checkpoint moves: each time, a link only with what it names."""
        if self.save_last == "link":
            return top is not None or not books.best_model_path
        return bool(self.save_last)

    def _enter_best(
        self, trainer: Trainer, metrics: dict[str, Any], books: Books
    ) -> tuple[str | None, list[str]]:
        """Enter this moment among the best; return its path, or None, and the paths it replaces."""
        k = self.save_top_k
        if k == 0:
            return None, []
        if self.monitor is None:
            replaced = [books.best_model_path] if k == 1 else []
            books.best_model_path = path = self.free_path(metrics, reusable=replaced)
            self._tell(trainer, f"saving {path!r}")
            return path, replaced
        score = self._watched.score(trainer)
        if score is None:
            return None, []
        books.current_score = score
        if not books.admits(score, k):
            self._tell(trainer, f"{self.monitor} {score:.5g} is not among the best {k}")
            return None, []
        replaced = books.outranked(k)
        path = self.free_path(metrics, reusable=replaced)
        books.add(path, score, k)
        self._tell(trainer, f"{self.monitor} {score:.5g} is among the best; saving {path!r}")
        return path, replaced

    def _tell(self, trainer: Trainer, message: str) -> None:
        if self.verbose:
            log.info("epoch %d, step %d: %s", trainer.current_epoch, trainer.global_step, message)
