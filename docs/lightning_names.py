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

MODULES = [
    "", "accelerators", "callbacks", "callbacks.early_stopping", "callbacks.finetuning",
    "callbacks.model_checkpoint", "callbacks.prediction_writer", "callbacks.progress.rich_progress",
    "callbacks.progress.tqdm_progress", "cli", "core", "core.hooks", "core.optimizer", "loggers",
    "loggers.logger", "plugins", "plugins.environments", "plugins.io", "plugins.precision",
    "profilers", "strategies", "trainer", "trainer.states", "tuner.tuning", "utilities",
    "utilities.combined_loader", "utilities.data", "utilities.deepspeed", "utilities.enums",
    "utilities.exceptions", "utilities.grads", "utilities.memory", "utilities.model_helpers",
    "utilities.model_summary", "utilities.parsing", "utilities.rank_zero", "utilities.seed",
    "utilities.types", "utilities.warnings",
]  # fmt: skip
"""Modules whose names are documented, or are imported from there in what is published."""

FROM_ELSEWHERE = {
    "callbacks.progress.tqdm_progress": ["Tqdm"],
    "plugins.environments": [
        "ClusterEnvironment", "KubeflowEnvironment", "LSFEnvironment", "LightningEnvironment",
        "MPIEnvironment", "SLURMEnvironment", "TorchElasticEnvironment", "XLAEnvironment",
    ],
    "utilities.combined_loader": ["CombinedLoader"],
    "utilities.exceptions": ["MisconfigurationException"],
    "utilities.model_summary": [
        "DeepSpeedSummary", "LayerSummary", "ModelSummary", "get_formatted_model_size",
        "get_human_readable_count", "parse_batch_shape", "summarize",
    ],
    "utilities.rank_zero": [
        "rank_zero_debug", "rank_zero_deprecation", "rank_zero_info", "rank_zero_only",
        "rank_zero_warn",
    ],
    "utilities.seed": ["isolate_rng"],
    "utilities.types": [
        "EVAL_DATALOADERS", "STEP_OUTPUT", "TRAIN_DATALOADERS", "LRSchedulerPLType",
        "LRSchedulerTypeTuple", "LRSchedulerTypeUnion", "OptimizerLRScheduler",
    ],
    "utilities.warnings": ["PossibleUserWarning"],
}  # fmt: skip
"""What a module offers without having made it."""

NOT_OFFERED = {
    "ABC", "CPU_DEVICE", "DistributedDataParallel", "EVAL_DATALOADERS", "IO", "LBFGS",
    "MODULE_OPTIMIZERS", "ModuleType", "ReduceLROnPlateau", "STEP_OUTPUT", "SWALR", "T",
    "TRAIN_DATALOADERS", "TYPE_CHECKING",
}  # fmt: skip
"""What modules have imported, whose own names these are not."""


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
        "modules": {name: _offered(name) for name in MODULES},
        "paths": {**_paths("lightning.pytorch", ""), **_paths("lightning.fabric", "fabric")},
    }
    FILE.write_text(json.dumps(names, indent=1) + "\n", encoding="utf-8")


def _offered(name: str) -> list[str]:
    """Return the public names of a module, without what it has imported for itself alone."""
    module = importlib.import_module(f"lightning.pytorch.{name}".rstrip("."))
    found = getattr(module, "__all__", None) or [
        key
        for key, value in vars(module).items()
        if key[0] != "_"
        and (getattr(value, "__module__", None) == module.__name__ or key.isupper())
    ]
    more = FROM_ELSEWHERE.get(name, [])
    assert all(hasattr(module, one) for one in more), name
    return sorted({*found} - NOT_OFFERED | {*more})


def _paths(package: str, place: str) -> dict[str, list[str]]:
    """Return the public names of all public modules of a package, by their paths.

    Args:
        package: the package's name.
        place: the path of the package below the compatibility package.
    """
    root = importlib.import_module(package)
    modules = [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
    paths = {}
    for name in modules:
        if any(part[0] == "_" for part in name.split(".")):
            continue
        module = importlib.import_module(name)
        own = getattr(module, "__all__", None) or [
            key
            for key, value in vars(module).items()
            if not inspect.ismodule(value)
            and (getattr(value, "__module__", None) == name or key.isupper())
        ]
        path = f"{place}{name.removeprefix(package)}".removeprefix(".")
        paths[path] = sorted({key for key in own if key[0] != "_"} - NOT_OFFERED)
    return paths


def _public(owner: object) -> list[str]:
    return sorted(name for name in dir(owner) if name[0] != "_")


def _classes(package: str) -> dict[str, type]:
    loaded = importlib.import_module(package)
    return {name: getattr(loaded, name) for name in sorted(loaded.__all__)}


def _arguments(kind: type) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name not in ("args", "kwargs")]


if __name__ == "__main__":
    main()
