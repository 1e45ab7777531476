"""Write down Lightning's public names: `python docs/lightning_names.py`, where Lightning is there.

    pip install -c constraints.txt lightning

The names go into docs/lightning_names.json, so that the page of differences can be made, and be
compared in the tests, without Lightning.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("lightning_names.json")


def main() -> None:
    """Write the file."""
    lightning = importlib.import_module("lightning.pytorch")
    torch_module = set(dir(importlib.import_module("torch").nn.Module()))
    trainer = lightning.Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    callbacks = _classes("lightning.pytorch.callbacks")
    loggers = _classes("lightning.pytorch.loggers")
    names: dict[str, Any] = {
        "version": importlib.import_module("lightning").__version__,
        "packages": sorted(
            m.name for m in pkgutil.iter_modules(lightning.__path__) if m.name[0] != "_"
        ),
        "top": sorted(lightning.__all__),
        "options": _arguments(lightning.Trainer),
        "trainer": _public(trainer),
        "module": [n for n in _public(lightning.LightningModule()) if n not in torch_module],
        "datamodule": _public(lightning.LightningDataModule()),
        "callback": _public(lightning.Callback()),
        "tuner": _public(importlib.import_module("lightning.pytorch.tuner").Tuner),
        "callbacks": {name: _arguments(kind) for name, kind in callbacks.items()},
        "loggers": {name: _arguments(kind) for name, kind in loggers.items()},
    }
    FILE.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


def _public(owner: object) -> list[str]:
    return sorted(name for name in dir(owner) if name[0] != "_")


def _classes(package: str) -> dict[str, type]:
    loaded = importlib.import_module(package)
    return {name: getattr(loaded, name) for name in sorted(loaded.__all__)}


def _arguments(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name not in ("args", "kwargs")]


if __name__ == "__main__":
    main()
