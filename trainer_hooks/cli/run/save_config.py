"""SaveConfigCallback: write down the config that the command line resolved."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting.run_config import RunConfig
from trainer_hooks.callbacks.reporting.run_facts import without_secrets

if TYPE_CHECKING:
    from pathlib import Path

    from jsonargparse import ArgumentParser, Namespace

    from trainer_hooks.module import Module
    from trainer_hooks.trainer import Trainer

__all__ = ["SaveConfigCallback"]


class SaveConfigCallback(RunConfig):
    """Write down the config of a `TrainerCLI`; subclass it to write it elsewhere as well.

    Args:
        parser: what parsed the config.
        config: the config, all values resolved.
        config_filename: the name of the file in the run's folder.
        overwrite: whether to write over another one; else it gets a number.
        multifile: whether to write it once more, in the files in which it was given, to a folder of
            the file's name.
        save_to_log_dir: whether to write the file. Without it the checkpoints have the config.
    """

    def __init__(
        self,
        parser: ArgumentParser,
        config: Namespace,
        config_filename: str = "config.yaml",
        overwrite: bool = False,
        multifile: bool = False,
        save_to_log_dir: bool = True,
    ) -> None:
        yaml: Any = import_module("yaml")  # which tells no types without a package of its own
        config = config.clone()
        if config.get("ckpt_path") in ("auto", "last", "best"):
            config.ckpt_path = None  # it is another file at each start
        text = parser.dump(config, skip_unset=False)
        chosen = yaml.safe_load(parser.dump(config, skip_default=True)) or {}
        chosen.pop("ckpt_path", None)
        values = without_secrets(yaml.safe_load(text))
        shown = yaml.safe_dump(values, sort_keys=False)
        super().__init__(text, values, shown, chosen, config_filename, overwrite)
        self.parser = parser
        self.config = config
        self.multifile = multifile
        self.save_to_log_dir = save_to_log_dir

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Let a subclass save the config in another place."""
        super().setup(trainer, module, stage)
        if trainer.is_global_zero:
            self.save_config(trainer, module, stage)

    def save_config(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Override it to save the config in another place, in the first of all processes."""

    def _write(self, trainer: Any) -> None:
        if self.save_to_log_dir:
            super()._write(trainer)

    def _write_to(self, path: Path) -> None:
        super()._write_to(path)
        if self.multifile:
            folder = path.with_suffix("")
            folder.mkdir(exist_ok=True)
            self.parser.save(
                self.config, folder / path.name, skip_unset=False, multifile=True, overwrite=True
            )
