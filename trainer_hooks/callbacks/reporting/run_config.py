"""RunConfigCallback: keep the config of a run in its folder and its checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._files import replace_file
from trainer_hooks._log import log
from trainer_hooks._text import first_few
from trainer_hooks.callback import Callback
from trainer_hooks.checkpoint.paths import is_remote
from trainer_hooks.hooks.spec import keeps_optimizers
from trainer_hooks.loggers.conversion import flattened

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainer_hooks.context.context import Trainer
    from trainer_hooks.module.module import Module

_KEY = "config"
_ABSENT = object()
_OF_RESUME = ("ckpt_path", "overrides")
"""The arguments that say how a run resumes: no difference of the training."""
_SHOWN = 8
"""The largest number of differences in a log line."""


class RunConfigCallback(Callback):
    """Keep the config of a run; the command line of a training adds this callback.

    The config is written to the run's folder as a run begins. No file is overwritten: where another
    config stands already, the new file gets a number. It is part of each checkpoint, under
    `"config"`. A fit that resumes a checkpoint with another config logs the differences.

    Args:
        text: the config as the content of the file in the run's folder.
        values: the same as plain data, without secrets, for checkpoints.
        shown: the same as text, without secrets, for journal and report.
        identity: the values that distinguish this run from others; `ckpt_path="auto"` compares
            them.
        filename: the name of the file.
        overwrite: whether to overwrite another config.

    Attributes:
        command: the command line that trains this config; empty: that of this process.
    """

    # a record of the run must not end the run: an error only disables this callback
    on_error: str = "disable"

    def __init__(
        self,
        text: str,
        values: Mapping[str, Any],
        shown: str | None = None,
        identity: Mapping[str, Any] | None = None,
        filename: str = "config.yaml",
        overwrite: bool = False,
    ) -> None:
        self.text = text
        self.values = dict(values)
        self.shown = text if shown is None else shown
        self.identity = dict(self.values if identity is None else identity)
        self.filename = filename
        self.overwrite = overwrite
        self.command: list[str] = []
        self._is_fit = False

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Note whether the run is a fit."""
        self._is_fit = stage == "fit"

    @keeps_optimizers
    def on_fit_start(self, trainer: Trainer, module: Module) -> None:
        """Write the config."""
        self._write(trainer)

    on_predict_start = on_fit_start

    def on_evaluation_run_start(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write the config."""
        self._write(trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Add the config to the checkpoint."""
        checkpoint[_KEY] = self.values

    @keeps_optimizers
    def on_load_checkpoint(
        self, trainer: Trainer, module: Module, checkpoint: dict[str, Any]
    ) -> None:
        """Log how the config differs from the checkpoint's."""
        before = checkpoint.get(_KEY)
        if not self._is_fit or not isinstance(before, dict):
            return
        differences = list(config_differences(before, self.values))
        if differences:
            shown = first_few(differences, _SHOWN, "; ")
            log.info("the config differs from the one of the checkpoint: %s", shown)

    def _write(self, trainer: Trainer) -> None:
        folder = trainer.log_dir
        if not trainer.is_global_zero or trainer.fast_dev_run or folder is None:
            return
        if not trainer.loggers or is_remote(folder):
            return
        path = self._unused_path(Path(folder))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write_to(path)

    # the command line writes the file in its own way
    def _write_to(self, path: Path) -> None:
        replace_file(path, lambda file: file.write(self.text))

    def _unused_path(self, folder: Path) -> Path | None:
        """Return the file to write; None where the same config stands already."""
        path, number = folder / self.filename, 1
        while path.exists() and not self.overwrite:
            if path.read_text(encoding="utf-8") == self.text:
                return None
            number += 1
            first = Path(self.filename)
            path = folder / f"{first.stem}-{number}{first.suffix}"
        return path


def config_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yield each difference between two configs as text."""
    old, new = (flattened(with_numbered_lists(values), ".") for values in (before, now))
    for key in [*new, *(key for key in old if key not in new)]:
        was, is_ = old.get(key, _ABSENT), new.get(key, _ABSENT)
        if key in _OF_RESUME or was == is_:
            continue
        if was is _ABSENT:
            yield f"{key} is new, {is_!r}"
        else:
            yield f"{key} is {'gone' if is_ is _ABSENT else repr(is_)}, was {was!r}"


def with_numbered_lists(value: Any) -> Any:
    """Return nested data in which lists of dicts, such as callbacks, are dicts by their numbers."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if isinstance(value, dict):
        return {name: with_numbered_lists(item) for name, item in value.items()}
    return value
