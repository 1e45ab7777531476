"""SaveConfigCallback: write the resolved config of the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer_hooks.callbacks.reporting.run_config import RunConfigCallback
from trainer_hooks.callbacks.reporting.run_facts import without_secrets
from trainer_hooks.cli.run.arguments import METHOD_ARGUMENTS_OF_ALL

if TYPE_CHECKING:
    from pathlib import Path

    from jsonargparse import ArgumentParser, Namespace

    from trainer_hooks.module.module import Module
    from trainer_hooks.trainer.trainer import Trainer


class SaveConfigCallback(RunConfigCallback):
    """Write the config of a `TrainerCLI` to the run's folder; subclass it to write it elsewhere.

    Args:
        parser: the parser of the config.
        config: the config with all values resolved.
        config_filename: the file's name in the run's folder.
        overwrite: whether to overwrite another config; else the file gets a number.
        multifile: whether to write a second copy, split into the files that it was read from, to a
            folder with the file's name.
        save_to_log_dir: whether to write the file. The checkpoints hold the config either way.
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
        import yaml  # type: ignore[import-untyped]

        # a copy: TrainerCLI still needs the ckpt_path that is taken out
        config = config.clone()
        if config.get("ckpt_path") in ("auto", "last", "best"):
            config.ckpt_path = None  # it is another file at each start
        of_command = [
            *getattr(parser, "method_arguments", ()),
            *getattr(parser, "command_arguments", ()),
        ]
        for name in of_command:
            if name not in METHOD_ARGUMENTS_OF_ALL and name in config:
                del config[name]  # the other commands, which take the file too, do not know it
        # it was checked as it was parsed, and lacks now what the command alone requires
        text = parser.dump(config, skip_unset=False, skip_validation=True)
        dumped = parser.dump(config, skip_default=True, skip_validation=True)
        chosen = yaml.safe_load(dumped) or {}
        chosen.pop("ckpt_path", None)
        values = without_secrets(yaml.safe_load(text))
        shown = yaml.safe_dump(values, sort_keys=False)
        super().__init__(text, values, shown, chosen, config_filename, overwrite)
        self.parser = parser
        self.config = config
        self.multifile = multifile
        self.save_to_log_dir = save_to_log_dir

    def setup(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Write the config, and call `save_config` on rank 0."""
        super().setup(trainer, module, stage)
        if trainer.is_global_zero:
            self.save_config(trainer, module, stage)

    def save_config(self, trainer: Trainer, module: Module, stage: str) -> None:
        """Override it to save the config elsewhere; called on rank 0."""

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
