"""The adapters of those that reach deeper into the state than others: savers and exporters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks.adapters.composer.guest import ComposerGuest
from trainer_hooks.module import Module, without_run

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ExportGuest", "SaverGuest"]


class SaverGuest(ComposerGuest):
    """Stand for a `CheckpointSaver`, which says when to save, where to, and what to keep.

    Its files hold a checkpoint of trainer_hooks, from which a fit goes on exactly, and beside it
    Composer's `state/model`, so that Composer loads the weights.
    """

    @property
    def has_named_folder(self) -> bool:
        """Whether the files are looked for in the folder that the guest has."""
        return True

    def folders(self) -> list[str]:
        """Return the folder that it saves to, once the name of the run is known."""
        folder = str(self.guest.folder)
        return [] if "{" in folder else [folder]

    def candidates(self, trainer: Any) -> list[str]:  # noqa: ARG002 - a saver's
        """Return the files that it may have saved."""
        return [
            str(file)
            for folder in self.folders()
            for file in sorted(Path(folder).glob("*.pt"))
            if not file.is_symlink()
        ]

    def tell(self, event: str) -> None:
        """Deliver an event; what the guest saves meanwhile is our checkpoint."""
        if not event.endswith("_checkpoint"):
            super().tell(event)
            return
        kept = self.guest.ignore_keys
        self.guest.ignore_keys = self._filling(kept)
        try:
            super().tell(event)
        finally:
            self.guest.ignore_keys = kept

    def _filling(self, ignore_keys: Any) -> Callable[[dict[str, Any]], None]:
        """Return what puts our checkpoint into Composer's, of which the model's part stays."""

        def fill(found: dict[str, Any]) -> None:
            if callable(ignore_keys):
                ignore_keys(found)
            state = found.get("state", {})
            model = {"model": state["model"]} if "model" in state and not ignore_keys else {}
            found.clear()
            found.update(self.home.trainer.dump_checkpoint(bool(self.guest.weights_only)))
            found["state"] = model

        return fill


class ExportGuest(ComposerGuest):
    """Stand for an `ExportForInferenceCallback`: exporters see the module without its run."""

    def tell(self, event: str) -> None:
        """Deliver an event."""
        if event != "fit_end":
            super().tell(event)
            return
        with without_run(self.home.trainer.module, Module):
            super().tell(event)
