"""The page of differences from Lightning: its names from a file, ours from the code.

A name of Lightning that is neither here nor in `_INSTEAD` is an error, and so is a reason for a
name that is here by now. `lightning_names.py` writes the file.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainer_hooks
from tables import cell
from trainer_hooks import Callback, DataModule, Module, Trainer, Tuner, callbacks, loggers
from trainer_hooks.trainer.options import NOT_YET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["lightning_page"]

_NAMES = Path(__file__).with_name("lightning_names.json")

_ONE = "there is one process, with one device, as yet"
_KEY = "a constant of the checkpoint format; the key is `hyper_parameters`"
_LOOP = (
    "read `trainer.progress` and `trainer.clock`; act by `trainer.stop()`, `trainer.skip_batch()`"
)
_KEEP = "keep its arguments as attributes; what must be in a checkpoint, return from `state_dict`"

_ADVICE = dict(NOT_YET)

_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "top": {
        "LightningModule": "`Module`",
        "LightningDataModule": "`DataModule`",
    },
    "packages": {
        "accelerators": "`Trainer(accelerator=...)` takes names",
        "cli": "not available yet; [by hand](sweeps-and-configs.md)",
        "core": "`Module`, `DataModule`",
        "demos": "`trainer-hooks demo`",
        "loops": _LOOP,
        "overrides": _ONE,
        "plugins": "`Trainer(precision=...)` takes names; plugins are [packages](plugins.md) here",
        "profilers": "`trainer.profile_hooks()`, [torch's profiler](callbacks/Profiler.md)",
        "serve": "not available",
        "strategies": _ONE,
        "trainer": "`Trainer`",
        "tuner": "`Tuner`",
        "utilities": "`CombinedLoader`, `trainer.is_global_zero`; torch has the rest",
    },
    "options": _ADVICE,
    "trainer": {
        "accelerator": "`trainer.device`",
        "barebones": _ADVICE["barebones"],
        "device_ids": "`trainer.device`",
        "distributed_sampler_kwargs": _ONE,
        "enable_autolog_hparams": _ADVICE["enable_autolog_hparams"],
        "enable_validation": "`trainer.val_dataloaders` is empty where nothing is validated",
        "fit_loop": _LOOP,
        "init_module": "build large layers in `configure_model`",
        "node_rank": _ONE,
        "num_devices": _ONE,
        "num_nodes": _ONE,
        "overfit_batches": "`trainer.limit_train_batches` is the number then",
        "predict_loop": _LOOP,
        "profiler": _ADVICE["profiler"],
        "received_sigterm": "`trainer.is_leaving`",
        "reload_dataloaders_every_n_epochs": _ADVICE["reload_dataloaders_every_n_epochs"],
        "scaler": "`trainer.precision_plugin`",
        "strategy": _ONE,
        "test_loop": _LOOP,
        "val_check_batch": "`trainer.val_check_interval`",
        "validate_loop": _LOOP,
    },
    "module": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "all_gather": _ONE,
        "allow_zero_length_dataloader_with_multiple_devices": _ONE,
        "configure_sharded_model": "`configure_model`",
        "device_mesh": _ONE,
        "fabric": "not available",
        "hparams_initial": "`module.saved_hparams`",
        "local_rank": "`module.trainer.local_rank`",
        "on_gpu": 'module.device.type == "cuda"',
        "on_validation_model_zero_grad": "gradients are cleared as each window begins",
        "prepare_data_per_node": _ONE,
        "remove_ignored_hparams": "`save_hyperparameters(ignore=[...])`",
        "strict_loading": "`load_from_checkpoint(..., strict=False)`",
        "to_onnx": "[ExportForInferenceCallback](callbacks/ExportForInferenceCallback.md)",
        "to_tensorrt": "not available",
        "to_torchscript": "[ExportForInferenceCallback](callbacks/ExportForInferenceCallback.md)",
    },
    "datamodule": {
        "CHECKPOINT_HYPER_PARAMS_KEY": _KEY,
        "CHECKPOINT_HYPER_PARAMS_NAME": _KEY,
        "CHECKPOINT_HYPER_PARAMS_TYPE": _KEY,
        "allow_zero_length_dataloader_with_multiple_devices": _ONE,
        "hparams": _KEEP,
        "hparams_initial": _KEEP,
        "load_from_checkpoint": _KEEP,
        "name": "an attribute of your own",
        "prepare_data_per_node": _ONE,
        "remove_ignored_hparams": _KEEP,
        "save_hyperparameters": _KEEP,
    },
    "callback": {},
    "tuner": {},
    "callbacks": {"Callback": "`from trainer_hooks import Callback`"},
    "loggers": {
        "CometLogger": "not available; a logger of your own is [a class](loggers.md)",
        "LitLogger": "not available; a logger of your own is [a class](loggers.md)",
        "MLFlowLogger": "`MLflowLogger`",
    },
}
"""Of each of Lightning's names that is not here, what to write instead, or why it is not."""

_MEANINGS = (
    ("Passing data", "`fit(model, datamodule)`", "`fit(module, datamodule=datamodule)`"),
    ("The module argument of hooks", "`pl_module`", "`module`; hooks are called by position"),
    (
        "What hooks return",
        "-1 from the module's `on_train_batch_start` ends the epoch",
        "nothing is looked at; call `trainer.skip_batch()` or `trainer.stop()`",
    ),
    (
        "Order of a step",
        "`training_step`, `zero_grad`, `backward`",
        "`zero_grad`, `training_step`, `backward`",
    ),
    (
        "`test`, `validate`, `predict` without a model, after fit",
        "load the best checkpoint",
        'take the weights that the module has; `ckpt_path="best"` for the best',
    ),
    (
        "A second `fit` with another module",
        "epochs go on",
        "starts from nothing; with the same module it goes on",
    ),
    (
        "Loaders are made",
        "after `on_fit_start`",
        "before `configure_optimizers` and `on_fit_start`",
    ),
    (
        "Schedulers that step each epoch",
        "before the last batch's `on_train_batch_end`",
        "after the last batch's hooks and saves, before the epoch's validation",
    ),
    (
        "`max_steps` reached inside an epoch",
        "no validation",
        "the epoch is validated as if it were over",
    ),
    ("`trainer.max_epochs`, `max_steps`", "can be read", "can be set, to go on"),
    ("A resume", "runs the sanity check", "runs none"),
    (
        "A resume inside an epoch",
        "loaders and random numbers begin anew",
        "goes on at the very batch, bit for bit",
    ),
    ("`teardown` after an exception", "is not called", "is called for callbacks, module and data"),
    ("Ctrl-C", "`SystemExit`", "`KeyboardInterrupt`, after the batch"),
    ("SIGTERM", "exit code 0", "a checkpoint is saved; exit code 143"),
    (
        "Order of callbacks",
        "as listed, checkpoints last",
        "by [bands](writing-a-callback.md), as listed inside one",
    ),
    ("Default logger", "TensorBoard, `lightning_logs`", "CSV, `trainer_logs`"),
    ("`trainer.val_dataloaders` and the like", "what was passed", "always a list"),
    (
        "`trainer.max_epochs`, `num_sanity_val_steps`, `fast_dev_run`",
        "None for no end; inf; True",
        "-1 for no end; -1; a number",
    ),
    (
        "`ModelCheckpoint(save_on_exception=True)`",
        "writes `filename`",
        "writes `exception-epoch=E-step=S.ckpt`",
    ),
    ("`ModelCheckpoint` where the metric is NaN", "it may be the best", "it is never the best"),
    (
        "State that only running code could load",
        "is saved; refused, or run, when loaded",
        "is refused when it is saved, by name",
    ),
    (
        "An unknown key of a scheduler's dict",
        "is warned of",
        "is an error",
    ),
    ("Copying or pickling a Trainer", "works", "is a `TypeError`; a Module is copied without it"),
)
"""What has one name and means two things: where, in Lightning, here."""

_EXAMPLE = """
import torch

from trainer_hooks import Module, Trainer


class Line(Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.seen = []

    def on_before_zero_grad(self, optimizer):
        self.seen.append("zero_grad")

    def training_step(self, batch, batch_idx):
        self.seen.append("training_step")
        return self.layer(batch).square().mean()

    def on_before_backward(self, loss):
        self.seen.append("backward")

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.layer(batch).square().mean())

    def on_validation_start(self):
        self.seen.append("validation")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
batches = list(torch.randn(4, 8, 4))
module, trainer = Line(), Trainer(max_steps=1, num_sanity_val_steps=0, **quiet)
trainer.fit(module, batches, batches)
assert module.seen == ["zero_grad", "training_step", "backward", "validation"]
assert (trainer.max_epochs, trainer.fast_dev_run) == (-1, 0)

weights = module.layer.weight.clone()
trainer.validate(dataloaders=batches, verbose=False)
assert torch.equal(module.layer.weight, weights)
trainer.fit(Line(), batches)
assert trainer.global_step == 1  # from nothing
""".strip()


def lightning_page() -> str:
    """Return docs/differences-from-lightning.md.

    Raises:
        ValueError: a name of Lightning is neither here nor explained, or both.
    """
    names = json.loads(_NAMES.read_text(encoding="utf-8"))
    lines = [
        "# Differences from Lightning",
        "",
        "<!-- made by docs/generate.py from the code and docs/lightning_names.json:",
        "do not edit -->",
        "",
        f"For those who know Lightning; compared with {names['version']}. What is not listed has",
        "the same name, arguments and meaning in both. Checkpoints of Lightning 2.x are read and",
        "resumed from, and Lightning reads ours: [checkpoints.md](checkpoints.md).",
        "",
        "## Another meaning",
        "",
        "| | in Lightning | here |",
        "|---|---|---|",
        *(f"| {' | '.join(map(cell, row))} |" for row in _MEANINGS),
        "",
        "Some of it, as code:",
        "",
        "```python",
        *_EXAMPLE.splitlines(),
        "```",
        "",
        "## In Lightning, and not here",
    ]
    for title, kind, ours in _kinds():
        lines += _missing(title, kind, names[kind], ours())
    lines += _arguments(names)
    lines += ["", "## Here, and not in Lightning", "", "| | names |", "|---|---|"]
    for title, kind, ours in _kinds():
        more = [] if kind == "packages" else sorted(set(ours()) - set(names[kind]))
        if more:
            lines.append(f"| {title} | {', '.join(f'`{name}`' for name in more)} |")
    lines += [
        "",
        "Hooks are in [hooks.md](hooks.md), options, attributes and methods of the Trainer in",
        "[trainer.md](trainer.md), callbacks in [callbacks](callbacks/README.md).",
    ]
    return "\n".join(lines) + "\n"


def _kinds() -> Iterable[tuple[str, str, Callable[[], Iterable[str]]]]:
    """Return of each kind of names its title, its key, and what finds those that are here."""
    torch_module = {*dir(Module.__mro__[1]()), "forward"}
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu", plugins=False)
    return (
        ("Names of the package", "top", lambda: trainer_hooks.__all__),
        ("Packages", "packages", lambda: ("callbacks", "loggers")),
        ("Options of the Trainer", "options", lambda: inspect.signature(Trainer).parameters),
        ("Attributes and methods of the Trainer", "trainer", lambda: _public(trainer)),
        ("The Module", "module", lambda: _public(Module()) - torch_module),
        ("The DataModule", "datamodule", lambda: _public(DataModule())),
        ("The Callback", "callback", lambda: _public(Callback())),
        ("The Tuner", "tuner", lambda: _public(Tuner(trainer))),
        ("Callbacks", "callbacks", lambda: callbacks.__all__),
        ("Loggers", "loggers", lambda: loggers.__all__),
    )


def _public(owner: object) -> set[str]:
    return {name for name in dir(owner) if name[0] != "_"}


def _missing(title: str, kind: str, theirs: Iterable[str], ours: Iterable[str]) -> list[str]:
    """Return the table of what is not here, each with its reason."""
    missing = set(theirs) - set(ours)
    wrong = missing ^ set(_INSTEAD[kind])
    if wrong:
        raise ValueError(
            f"{kind}: {', '.join(sorted(wrong))}: say in _INSTEAD of docs/lightning_page.py what "
            "there is instead of each name that is not here, and of no other."
        )
    if not missing:
        return []
    rows = [f"| `{name}` | {cell(_INSTEAD[kind][name])} |" for name in sorted(missing)]
    return ["", f"### {title}", "", "| name | instead |", "|---|---|", *rows]


def _arguments(names: Mapping[str, Any]) -> list[str]:
    """Return the lines on arguments of callbacks and loggers that both have.

    Raises:
        ValueError: one of Lightning's is missing here.
    """
    rows = []
    for kind, package in (("callbacks", callbacks), ("loggers", loggers)):
        for name in set(names[kind]) & set(package.__all__):
            ours = inspect.signature(getattr(package, name)).parameters
            takes_any = any(p.kind is p.VAR_KEYWORD for p in ours.values())
            missing = [] if takes_any else [a for a in names[kind][name] if a not in ours]
            if missing:
                raise ValueError(f"{name} lacks Lightning's arguments {missing}.")
            more = [] if takes_any else [a for a in ours if a not in names[kind][name]]
            if more:
                rows.append(f"| `{name}` | {', '.join(f'`{a}`' for a in more)} |")
    head = ["", "## Arguments", "", "Callbacks and loggers that both have take all of Lightning's"]
    return [*head, "arguments. Some take more:", "", "| | also |", "|---|---|", *sorted(rows)]
