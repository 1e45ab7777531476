"""LightningArgumentParser: the parser of a LightningCLI; importing it needs jsonargparse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jsonargparse import Namespace

from trainer_hooks.cli.run.parser import TrainerParser

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ArgsType", "LightningArgumentParser"]

ArgsType = list[str] | dict[str, Any] | Namespace | None
"""The command line that a `LightningCLI` may be given, `args`."""


class LightningArgumentParser(TrainerParser):
    """A `TrainerParser` whose environment variables begin with `PL_`."""

    def __init__(self, *args: Any, env_prefix: str = "PL", **kwargs: Any) -> None:
        super().__init__(*args, env_prefix=env_prefix, **kwargs)

    def add_lightning_class_args(
        self,
        lightning_class: type | Callable[..., Any],
        nested_key: str,
        subclass_mode: bool = False,
        required: bool = True,
    ) -> list[str]:
        """Add the arguments of a class, as `add_class_args` does."""
        return self.add_class_args(
            lightning_class, nested_key, subclass_mode=subclass_mode, required=required
        )
