"""FileNames: the paths of a saver's checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks._log import warn
from trainer_hooks.callbacks.saving.saved_files import free_path
from trainer_hooks.callbacks.saving.templates import fill_template, template_names
from trainer_hooks.checkpoint import joined
from trainer_hooks.errors import TrainerHooksWarning

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trainer_hooks.callbacks.saving.saver import Saver

__all__ = ["FileNames"]


class FileNames:
    """Make paths of a saver's template and its folder.

    Args:
        saver: whose checkpoints they are.
    """

    def __init__(self, saver: Saver) -> None:
        self._saver = saver
        self._gaps_told: set[str] = set()

    def path(self, metrics: Mapping[str, Any], filename: str | None, ver: int | None) -> str:
        """Return the path of a checkpoint with these metrics, inside `dirpath` if it is known.

        Args:
            metrics: numbers or one-element tensors; a missing one shows as `nan`.
            filename: template to use instead of the saver's own.
            ver: a version to append, as in `-v1`.
        """
        saver = self._saver
        template = filename or saver.filename or f"{{epoch}}{saver.CHECKPOINT_JOIN_CHAR}{{step}}"
        name = fill_template(
            template, metrics, saver.CHECKPOINT_EQUALS_CHAR, saver.auto_insert_metric_name
        )
        version = "" if ver is None else f"{saver.CHECKPOINT_JOIN_CHAR}v{ver}"
        return joined(saver.dirpath or "", f"{name}{version}{saver.FILE_EXTENSION}")

    def free(
        self,
        metrics: Mapping[str, Any],
        filename: str | None = None,
        reusable: Collection[str] = (),
        *,
        is_versioned: bool = False,
    ) -> str:
        """Return a path for a new file: one that no file has, or that may be written over.

        Args:
            metrics: numbers or one-element tensors, for the template.
            filename: template to use instead of the saver's own.
            reusable: paths that may be written over.
            is_versioned: whether a name that is taken gets a version, whatever the user chose.
        """
        saver = self._saver
        self._warn_of_gaps(metrics, filename or saver.filename or "")
        if saver.ledger.under_way is not None:
            saver.ledger.under_way.save.wait()  # the name that it takes is not free any more

        def name(version: int | None) -> str:
            return saver.format_checkpoint_name(metrics, filename, version)

        if not saver.enable_version_counter and not is_versioned:
            return name(None)
        return free_path(name, saver.STARTING_VERSION, reusable, saver.ledger.claims)

    def _warn_of_gaps(self, metrics: Mapping[str, Any], template: str) -> None:
        """Say once which metrics of a filename were not logged."""
        gaps = sorted(set(template_names(template)) - set(metrics) - self._gaps_told)
        if gaps:
            self._gaps_told.update(gaps)
            warn(
                f"metrics {', '.join(gaps)} in filename {template!r} of "
                f"{type(self._saver).__name__}: not logged when a checkpoint was saved, so they "
                "show as nan. Log them, or take them out of the filename.",
                TrainerHooksWarning,
            )
