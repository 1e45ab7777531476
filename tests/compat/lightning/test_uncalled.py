"""Methods that Lightning calls on a user's class are called here, or there is a warning."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from for_each import for_each
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning.demos.boring_classes import BoringModel
from trainer_hooks.errors import TrainerHooksWarning

QUIET: dict[str, Any] = {
    **QUIET_OPTIONS,
    "max_epochs": 1,
    "limit_train_batches": 1,
    "limit_val_batches": 0,
}

OLD_HOOKS = [
    "on_init_start", "on_init_end", "on_configure_sharded_model", "on_keyboard_interrupt",
    "on_epoch_start", "on_epoch_end", "on_batch_start", "on_batch_end",
    "on_pretrain_routine_start", "on_pretrain_routine_end", "on_before_accelerator_backend_setup",
]  # fmt: skip
OLD_MODULE_HOOKS = [
    "on_epoch_start", "on_epoch_end", "on_batch_start", "on_batch_end",
    "on_pretrain_routine_start", "on_pretrain_routine_end", "on_post_move_to_device",
    "on_train_dataloader", "on_val_dataloader", "on_test_dataloader", "on_predict_dataloader",
    "on_hpc_save", "on_hpc_load", "training_step_end", "validation_step_end", "test_step_end",
    "predict_step_end", "training_end", "validation_end", "test_end", "predict_epoch_end",
    "get_progress_bar_dict", "tbptt_split_batch",
]  # fmt: skip


def _told(run: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TrainerHooksWarning)
        run()
    return [str(one.message) for one in caught if issubclass(one.category, TrainerHooksWarning)]


@for_each([("callback", name) for name in OLD_HOOKS] + [("module", n) for n in OLD_MODULE_HOOKS])
def test_a_hook_of_lightning_1_is_warned_of(kind, name):
    """Lightning 2 calls none of them, and says nothing; a helper that the class calls is none."""

    def fit(is_helper):
        def method(self, *args):
            raise AssertionError("nothing calls it")

        members = {name: method}
        if is_helper:
            source = f"lambda self: [self.{name}() for _ in ()]"
            members["caller"] = eval(source)
        base = BoringModel if kind == "module" else pl.Callback
        made = type("Own", (base,), members)()
        callbacks = [] if kind == "module" else [made]
        trainer = pl.Trainer(callbacks=callbacks, **QUIET)
        trainer.fit(made if kind == "module" else BoringModel())

    (message,) = _told(lambda: fit(False))
    assert f"nothing calls the method {name!r} here: it is " in message
    assert "of Lightning 1.x" in message
    # of other names that begin with `on_` there is a warning all the same, as of any typo
    assert not [message for message in _told(lambda: fit(True)) if "here: it is" in message]


def test_the_older_name_of_configure_model_is_called():
    """Lightning 2 calls it too, unless the class has both."""
    called = []

    class Older(BoringModel):
        def configure_sharded_model(self):
            called.append("older")

    pl.Trainer(**QUIET).fit(Older())
    assert called == ["older"]


ARGUMENTS: dict[str, dict[str, Any]] = {
    "WeightAveraging": {},
    "EMAWeightAveraging": {},
    "ModelCheckpoint": {"monitor": "val_loss", "mode": "max", "save_last": True},
    "LearningRateMonitor": {"log_momentum": True, "log_weight_decay": True},
    "StochasticWeightAveraging": {"swa_lrs": 0.1, "swa_epoch_start": 1},
    "Timer": {"duration": {"hours": 1}},
    "EarlyStopping": {"monitor": "val_loss", "patience": 5, "verbose": True},
    "ModelPruning": {"pruning_fn": "l1_unstructured", "amount": 0.1, "verbose": 1},
    "ModelSummary": {},
    "RichModelSummary": {},
    "RichProgressBar": {},
    "ThroughputMonitor": {"batch_size_fn": len},
    "DeviceStatsMonitor": {"cpu_stats": True},
    "GradientAccumulationScheduler": {"scheduling": {0: 1}},
    "SpikeDetection": {},
    "BackboneFinetuning": {"unfreeze_backbone_at_epoch": 1},
}
"""The built-in callbacks that may be overridden, each with arguments that make it work."""

ONLY_ON_A_TERMINAL = {"configure_columns", "refresh"}


def _methods(name: str) -> dict[str, bool]:
    """Return the methods of Lightning's class, each with whether it is static."""
    base = import_module("pytorch_lightning.callbacks").Callback
    found: dict[str, bool] = {}
    for kind in _class("pytorch_lightning", name).__mro__:
        if kind is base:
            break
        for method, value in vars(kind).items():
            function = value.__func__ if isinstance(value, staticmethod) else value
            if inspect.isfunction(function) and not method.startswith(("__", "on_")):
                found.setdefault(method, isinstance(value, staticmethod))
    return found


def _class(package: str, name: str) -> Any:
    place = ".callbacks.spike" if name == "SpikeDetection" else ".callbacks"
    return getattr(import_module(package + place), name)


def _called(package: str, name: str, folder: Any, methods: dict[str, bool]) -> tuple[Any, Any]:
    """Return the overridden methods that a fit calls, and the warnings."""
    lightning: Any = import_module(package)
    base, called = _class(package, name), set()

    def override(method: str, is_static: bool) -> Any:
        before = getattr(base, method, None)

        def call(*args: Any, **kwargs: Any) -> Any:
            called.add(method)
            return before(*args, **kwargs) if before else None

        return staticmethod(call) if is_static else call

    kind = type("Own", (base,), {m: override(m, is_static) for m, is_static in methods.items()})

    class Net(import_module(f"{package}.demos.boring_classes").BoringModel):  # type: ignore[misc]
        checks = 0

        def __init__(self) -> None:
            super().__init__()
            self.backbone = torch.nn.Linear(2, 2)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.checks += 1
            self.log("val_loss", float(self.checks))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    def fit() -> None:
        arguments = {**ARGUMENTS[name]}
        if name == "ModelCheckpoint":
            arguments["dirpath"] = folder / package
        trainer = lightning.Trainer(
            default_root_dir=folder, max_epochs=3, limit_train_batches=4, limit_val_batches=1,
            num_sanity_val_steps=0,
            callbacks=[kind(**arguments)], logger=lightning.loggers.CSVLogger(folder / package),
            enable_checkpointing=name == "ModelCheckpoint", log_every_n_steps=2, accelerator="cpu",
            enable_progress_bar="Bar" in name, enable_model_summary="Summary" in name,
        )  # fmt: skip
        torch.manual_seed(0)
        try:
            trainer.fit(Net())
        except RuntimeError as error:
            if "spike" not in str(error):
                raise

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return called, [str(one.message) for one in caught]


@pytest.mark.slow  # it imports Lightning
@for_each(ARGUMENTS)
def test_an_overridden_method_of_a_built_in_is_called_or_warned_of(name):
    """Each method that Lightning calls in a fit; one that is called here is not warned of."""
    methods = _methods(name)
    with tempfile.TemporaryDirectory() as folder:
        theirs, _ = _called("pytorch_lightning", name, Path(folder), methods)
        ours, told = _called("trainer_hooks.compat.lightning", name, Path(folder), methods)
    warned = {m for m in methods if any(f"the method {m!r} here" in message for message in told)}
    silent = theirs - ours - warned - ONLY_ON_A_TERMINAL
    assert (sorted(silent), sorted(ours & warned)) == ([], [])
