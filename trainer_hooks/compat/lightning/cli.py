"""Lightning's command line, which is not here yet."""

from __future__ import annotations

from trainer_hooks.compat.lightning._refusing import refusing

__all__: list[str] = []

_BY_HAND = (
    "a training from the command line is written by hand here, with jsonargparse or Hydra; see "
    "docs/sweeps-and-configs.md"
)

__getattr__ = refusing(
    __name__,
    dict.fromkeys(
        (
            "LightningArgumentParser",
            "LightningCLI",
            "SaveConfigCallback",
            "instantiate_class",
            "instantiate_module",
        ),
        _BY_HAND,
    ),
)
