"""Classes under Lightning's names are those of trainer_hooks, and behave as Lightning's do."""

from __future__ import annotations

import random
from argparse import Namespace
from operator import attrgetter

import pytest
import torch
from for_each import for_each
from quiet_trainers import QUIET_OPTIONS

import trainer_hooks
import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning import cli as lightning_cli
from trainer_hooks.compat.lightning import demos
from trainer_hooks.compat.lightning.core import saving
from trainer_hooks.compat.lightning.core.mixins import HyperparametersMixin
from trainer_hooks.compat.lightning.demos import boring_classes
from trainer_hooks.compat.lightning.strategies import (
    DDPStrategy,
    FSDPStrategy,
    ParallelStrategy,
    SingleDeviceStrategy,
    Strategy,
)
from trainer_hooks.compat.lightning.utilities import LightningEnum
from trainer_hooks.compat.lightning.utilities.model_summary import get_human_readable_count
from trainer_hooks.compat.lightning.utilities.parameter_tying import (
    find_shared_parameters,
    set_shared_parameters,
)

QUIET = {**QUIET_OPTIONS, "max_epochs": 1, "limit_train_batches": 2, "limit_val_batches": 1}


@for_each(trainer_hooks.callbacks.__all__)
def test_a_built_in_callback_is_one_of_lightnings(name):
    """`issubclass(EarlyStopping, pl.Callback)`, of the class of trainer_hooks and of its name's."""
    kind = getattr(trainer_hooks.callbacks, name)
    is_base = kind is trainer_hooks.Callback
    if isinstance(kind, type) and issubclass(kind, trainer_hooks.Callback) and not is_base:
        assert issubclass(kind, pl.Callback)
        theirs = getattr(pl.callbacks, name, kind)
        assert issubclass(theirs, kind)
        assert issubclass(kind, theirs)


def test_a_hook_for_lightning_1_gets_the_index_of_its_only_loader():
    """So do a module's steps and hooks, and a subclass of a built-in callback.

    Where there are several loaders, they get their indices.
    """
    seen = []

    class Bar(pl.callbacks.TQDMProgressBar):
        def on_validation_batch_end(
            self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx
        ):
            super().on_validation_batch_end(
                trainer, pl_module, outputs, batch, batch_idx, dataloader_idx
            )
            seen.append(("bar", dataloader_idx))

    class Own(pl.Callback):
        def on_validation_batch_start(self, trainer, pl_module, batch, batch_idx, dataloader_idx):
            seen.append(("own", dataloader_idx))

    class Plain(trainer_hooks.Callback):
        def on_validation_batch_start(self, trainer, module, batch, batch_idx, dataloader_idx):
            seen.append(("plain", dataloader_idx))

    class Old(demos.BoringModel):
        def validation_step(self, batch, batch_idx, dataloader_idx):
            seen.append(("step", dataloader_idx))

        def on_validation_batch_start(self, batch, batch_idx, dataloader_idx):
            """Note it."""
            seen.append(("module", dataloader_idx))

    assert Old.on_validation_batch_start.__doc__ == "Note it."
    heard = ("bar", "module", "own", "plain", "step")
    options = {**QUIET, "enable_progress_bar": True, "num_sanity_val_steps": 0}
    trainer = pl.Trainer(callbacks=[Bar(), Own(), Plain()], **options)
    trainer.fit(Old())
    assert sorted(seen) == [(who, 0) for who in heard]
    seen.clear()
    loader = torch.utils.data.DataLoader(boring_classes.RandomDataset(32, 2))
    trainer.validate(Old(), [loader, loader], verbose=False)
    assert sorted(seen) == [(who, index) for who in heard for index in (0, 1)]


@pytest.mark.parametrize(
    ("option", "kinds"),
    [
        ("auto", {Strategy, SingleDeviceStrategy}),
        ("single_device", {Strategy, SingleDeviceStrategy}),
        ("ddp", {Strategy, ParallelStrategy, DDPStrategy}),
        ("ddp_find_unused_parameters_true", {Strategy, ParallelStrategy, DDPStrategy}),
        ("ddp_find_unused_parameters_false", {Strategy, ParallelStrategy, DDPStrategy}),
        (DDPStrategy(), {Strategy, ParallelStrategy, DDPStrategy}),
        ("fsdp", {Strategy, ParallelStrategy, FSDPStrategy}),
        (FSDPStrategy(), {Strategy, ParallelStrategy, FSDPStrategy}),
    ],
)
def test_the_strategy_of_a_trainer_has_its_class(option, kinds):
    """`isinstance(trainer.strategy, DDPStrategy)` tells one strategy from another."""
    strategy = pl.Trainer(strategy=option, **QUIET).strategy
    every = {Strategy, ParallelStrategy, SingleDeviceStrategy, DDPStrategy, FSDPStrategy}
    assert {kind for kind in every if isinstance(strategy, kind)} == kinds
    assert strategy.root_device == torch.device("cpu")


def test_a_class_for_isinstance_alone_cannot_be_made():
    """It says which option to pass."""
    with pytest.raises(ValueError, match=r"Pass Trainer\(strategy='single_device'\)"):
        SingleDeviceStrategy(device="cpu")
    assert issubclass(DDPStrategy, ParallelStrategy)
    assert not issubclass(DDPStrategy, SingleDeviceStrategy)
    assert not isinstance("ddp", Strategy)


@pytest.mark.parametrize("kind", ["BoringModel", "ManualOptimBoringModel"])
@pytest.mark.parametrize("data", ["", "BoringDataModule", "BoringDataModuleNoLen"])
def test_the_modules_of_bug_reports_run(kind, data):
    """Each module with its own loaders, and with each data module."""
    module = getattr(boring_classes, kind)()
    datamodule = getattr(boring_classes, data)() if data else None
    trainer = pl.Trainer(**QUIET, limit_test_batches=1, limit_predict_batches=1)
    trainer.fit(module, datamodule=datamodule)
    trainer.test(module, datamodule=datamodule, verbose=False)
    assert len(trainer.predict(module, datamodule=datamodule)) == 1
    assert trainer.global_step == 2


class Optimized(boring_classes.BoringModel):
    """Takes an optimizer and callbacks from the command line, as Lightning's pages teach."""

    def __init__(
        self,
        optimizer: lightning_cli.OptimizerCallable = torch.optim.Adam,
        scheduler: lightning_cli.LRSchedulerCallable = torch.optim.lr_scheduler.ConstantLR,
        own: list[pl.Callback] | None = None,
    ):
        super().__init__()
        self.make, self.own = (optimizer, scheduler), own

    def configure_optimizers(self):
        optimizer = self.make[0](self.parameters())
        return [optimizer], [self.make[1](optimizer)]


class Watched(boring_classes.BoringModel):
    """Leaves its optimizer to the command line."""

    configure_optimizers = pl.LightningModule.configure_optimizers

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", self.step(batch))


def command_line(module, *arguments):
    options = [f"--trainer.{name}={value}" for name, value in QUIET.items()]
    options = [option.replace("=False", "=false") for option in options]
    return lightning_cli.LightningCLI(
        module, save_config_callback=None, args=["fit", *options, *arguments]
    )


@pytest.mark.slow
def test_a_command_line_takes_optimizers_as_callables():
    """`OptimizerCallable`, `LRSchedulerCallable`, and callbacks typed `pl.Callback`."""
    made = command_line(
        Optimized, "--model.optimizer=SGD", "--model.optimizer.lr=0.3",
        "--model.scheduler=StepLR", "--model.scheduler.step_size=3",
        "--model.own+=EarlyStopping", "--model.own.monitor=val_loss",
    )  # fmt: skip
    optimizer, scheduler = made.trainer.optimizers[0], made.trainer.lr_scheduler_configs[0]
    assert (type(optimizer), optimizer.defaults["lr"]) == (torch.optim.SGD, 0.3)
    assert scheduler.scheduler.step_size == 3
    assert [isinstance(one, pl.callbacks.EarlyStopping) for one in made.model.own] == [True]


@pytest.mark.slow
def test_a_scheduler_of_the_command_line_monitors_a_metric():
    """`--lr_scheduler=ReduceLROnPlateau --lr_scheduler.monitor=val_loss`."""
    made = command_line(
        Watched, "--optimizer=SGD", "--optimizer.lr=0.1",
        "--lr_scheduler=ReduceLROnPlateau", "--lr_scheduler.monitor=val_loss",
    )  # fmt: skip
    config = made.trainer.lr_scheduler_configs[0]
    assert isinstance(config.scheduler, lightning_cli.ReduceLROnPlateau)
    assert config.monitor == "val_loss"
    assert isinstance(config.scheduler, lightning_cli.LRSchedulerTypeTuple)


def test_hyperparameters_of_a_class_of_ones_own():
    """`HyperparametersMixin` gives any class `save_hyperparameters`."""

    class Config(HyperparametersMixin):
        def __init__(self, width, depth=2):
            super().__init__()
            self.save_hyperparameters()

    assert dict(Config(3).hparams) == {"width": 3, "depth": 2}


@pytest.mark.parametrize("suffix", ["yaml", "csv"])
def test_hyperparameters_are_written_and_read(tmp_path, suffix):
    """Drawn plain values come back; other objects are left out of YAML with a warning."""
    draw = random.Random(3)
    save = {"yaml": saving.save_hparams_to_yaml, "csv": saving.save_hparams_to_tags_csv}[suffix]
    load = {"yaml": saving.load_hparams_from_yaml, "csv": saving.load_hparams_from_tags_csv}[suffix]
    for _ in range(20):
        choices = [draw.random(), draw.randrange(9), True, None, "a b", [1, 2], {"x": 0.5}]
        values = {f"v{i}": draw.choice(choices) for i in range(draw.randrange(1, 5))}
        save(tmp_path / f"h.{suffix}", Namespace(**values))
        assert load(tmp_path / f"h.{suffix}") == values
    with pytest.warns(UserWarning, match="there is no such file"):
        assert load(tmp_path / f"none.{suffix}") == {}
    with pytest.raises(TypeError, match="there is no folder"):
        save(tmp_path / "none" / f"h.{suffix}", {})
    with pytest.raises(TypeError, match="must be a mapping"):
        save(tmp_path / f"h.{suffix}", 3)
    if suffix == "yaml":
        with pytest.warns(UserWarning, match="'net', a Linear"):
            save(tmp_path / "h.yaml", {"net": torch.nn.Linear(1, 1), "lr": 0.1})
        assert load(tmp_path / "h.yaml") == {"lr": 0.1}
    nested = {"a": {"b": 1}, "c": 2}
    saving.update_hparams(nested, {"a": {"d": 3}, "c": 4})
    assert nested == {"a": {"b": 1, "d": 3}, "c": 4}


def test_small_helpers():
    """Counts as Lightning shows them, enums in any case, shared parameters."""
    counts = [0, 999, 1234, 99_949, 123_456, 999_999, 3 * 10**9, 4 * 10**15]
    shown = ["0  ", "999  ", "1.2 K", "99.9 K", "123 K", "999 K", "3.0 B", "4,000 T"]
    assert [get_human_readable_count(count) for count in counts] == shown

    class Mode(LightningEnum):
        FAST = "fast"

    assert Mode.FAST == "FAST"
    assert Mode.from_str("Fast") is Mode.FAST
    assert Mode.from_str("slow") is None
    assert {Mode.FAST: 1}["fast"] == 1
    net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    assert find_shared_parameters(net) == []
    set_shared_parameters(net, [["a.weight", "b.weight"]])
    assert find_shared_parameters(net) == [["a.weight", "b.weight"]]


@pytest.mark.parametrize("kind", ["CSVLogger", "TensorBoardLogger"])
def test_loggers_write_into_lightnings_folder(kind, tmp_path) -> None:
    """Their default name is Lightning's, and they are loggers of trainer_hooks."""
    logger = getattr(pl.loggers, kind)(tmp_path)
    assert logger.name == "lightning_logs"
    assert isinstance(logger, getattr(trainer_hooks.loggers, kind))
    assert getattr(pl.loggers, kind)(tmp_path, "mine", 3).log_dir == str(
        tmp_path / "mine/version_3"
    )
    assert isinstance(pl.Trainer(default_root_dir=tmp_path).logger, pl.loggers.TensorBoardLogger)


def test_a_module_can_be_summarized():
    """`ModelSummary(model, max_depth)` has Lightning's attributes; `summarize` makes one."""
    from trainer_hooks.compat.lightning.utilities.model_summary import ModelSummary, summarize

    module = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.ReLU()))
    module.example_input_array = torch.ones(1, 4)
    summary = ModelSummary(module, max_depth=-1)
    assert summary.layer_names == [name for name, _ in summary.named_modules] == ["0", "1", "1.0"]
    assert summary.layer_types == ["Linear", "Sequential", "ReLU"]
    assert (summary.param_nums, summary.total_parameters) == ([10, 0, 0], 10)
    assert (summary.trainable_parameters, summary.model_size) == (10, 40 / 1e6)
    assert (summary.in_sizes[0], summary.out_sizes[0]) == ([1, 4], [1, 2])
    assert summary.training_modes == [True, True, True]
    assert summary.total_training_modes == {"train": 3, "eval": 0}
    assert summary.total_flops == 16
    assert ModelSummary(torch.nn.Sequential(torch.nn.Linear(4, 2))).in_sizes == ["?"]
    assert summary.summarize()["0"].parameters == 10
    assert isinstance(summarize(module), ModelSummary)
    assert str(summarize(module)) == str(ModelSummary(module))


def test_internal_parts_that_others_use_are_there():
    """Those that packages around Lightning read; an error names the replacement of others."""
    seen = []

    class Reader(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            seen.append(trainer.fit_loop.epoch_loop._batches_that_stepped)
            assert trainer._logger_connector.should_update_logs in (True, False)
            assert not trainer._accelerator_connector.is_distributed
            assert "state_dict" in trainer._checkpoint_connector.dump_checkpoint()

    trainer = pl.Trainer(callbacks=[Reader()], **QUIET)
    trainer.fit(boring_classes.BoringModel())
    assert seen == [0, 1]
    assert trainer.fit_loop.epoch_loop._batches_that_stepped == 2
    assert not hasattr(trainer, "_data_connector")
    with pytest.raises(AttributeError, match=r"Trainer._results is not in .*: read trainer.callb"):
        trainer._results  # noqa: B018


@pytest.mark.parametrize(
    ("part", "advice"),
    [
        ("fit_loop._combined_loader", "read trainer.train_dataloader and trainer.val_dataloaders"),
        ("fit_loop._data_source", "trainer.datamodule is the data module"),
        ("fit_loop.epoch_loop.val_loop", "read trainer.num_val_batches"),
        ("strategy.checkpoint_io", "trainer.strategy.load_checkpoint reads one"),
    ],
)
def test_parts_of_loops_and_strategies_that_are_not_there_are_said(part, advice):
    """The error names the public way, and `hasattr` answers."""
    owner, _, name = part.rpartition(".")
    value = attrgetter(owner)(pl.Trainer(**QUIET))
    assert not hasattr(value, name)
    with pytest.raises(AttributeError, match=rf"trainer\.{part} is an internal part .*{advice}"):
        getattr(value, name)


def test_a_checkpoint_has_the_hyperparameters_under_the_keys_of_its_class(tmp_path):
    """`Net.CHECKPOINT_HYPER_PARAMS_KEY` and the data module's, as programs read them."""

    class Net(demos.BoringModel):
        def __init__(self, width=4):
            super().__init__()
            self.save_hyperparameters()

    class Data(demos.BoringDataModule):
        def __init__(self, size=2):
            super().__init__()
            self.save_hyperparameters()

    trainer = pl.Trainer(**QUIET)
    trainer.fit(Net(), datamodule=Data())
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    checkpoint = torch.load(tmp_path / "saved.ckpt", weights_only=True)
    assert checkpoint[Net.CHECKPOINT_HYPER_PARAMS_KEY] == {"width": 4}
    assert checkpoint[Data.CHECKPOINT_HYPER_PARAMS_KEY] == {"size": 2}
    assert checkpoint[Net.CHECKPOINT_HYPER_PARAMS_NAME] == "kwargs"


def test_a_predict_step_passes_the_index_of_the_loader_to_super():
    """Positionally and by name, as an override that has it does."""

    class Net(pl.LightningModule):
        def forward(self, batch):
            return batch + 1

        def predict_step(self, batch, batch_idx, dataloader_idx=0):
            by_name = super().predict_step(batch, batch_idx=batch_idx, dataloader_idx=0)
            return by_name, super().predict_step(batch, batch_idx, dataloader_idx)

    assert Net().predict_step(1, 0, 3) == (2, 2)


def test_averaging_callbacks_have_the_averaged_model_under_lightnings_name():
    """`_average_model`, which is private there, but read by many."""
    averaging = pl.callbacks.WeightAveraging()
    swa = pl.callbacks.StochasticWeightAveraging(0.1, swa_epoch_start=1)
    assert averaging._average_model is swa._average_model is None
    for callback in (averaging, swa):
        module = boring_classes.BoringModel()
        pl.Trainer(**{**QUIET, "max_epochs": 3}, callbacks=[callback]).fit(module)
        model = callback._average_model
        averaged = getattr(model, "module", model)
        assert torch.equal(averaged.layer.weight, module.layer.weight)


def test_the_strategy_reads_a_checkpoint(tmp_path):
    """`trainer.strategy.load_checkpoint(path)` returns its contents."""
    trainer = pl.Trainer(**QUIET)
    trainer.fit(boring_classes.BoringModel())
    trainer.save_checkpoint(tmp_path / "saved.ckpt")
    checkpoint = trainer.strategy.load_checkpoint(tmp_path / "saved.ckpt")
    assert checkpoint["global_step"] == trainer.global_step
    trainer.strategy.save_checkpoint(checkpoint, tmp_path / "again.ckpt")
    again = trainer.strategy.load_checkpoint(tmp_path / "again.ckpt")
    assert again["state_dict"].keys() == checkpoint["state_dict"].keys()


def test_an_optimizer_of_ones_own_is_wrapped():
    """`LightningOptimizer(optimizer)` is as the optimizer, and steps in no run."""
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1)
    wrapped = pl.core.optimizer.LightningOptimizer(sgd)
    assert wrapped.optimizer is sgd
    assert isinstance(wrapped, torch.optim.SGD)
    assert wrapped.param_groups is sgd.param_groups
    assert "SGD" in repr(wrapped)
    for method in (wrapped.step, wrapped.zero_grad):
        with pytest.raises(trainer_hooks.errors.UsageError, match="no run has made it"):
            method()


def test_a_method_that_is_none_is_not_overridden():
    """`configure_model = None` in a class switches it off."""
    kind = type("Off", (pl.LightningModule,), {"configure_model": None})
    assert not pl.utilities.model_helpers.is_overridden("configure_model", kind())


def test_the_loops_of_predictions_name_the_public_way():
    """`trainer.predict_loop` says where predictions are."""
    with pytest.raises(AttributeError, match=r"predict returns .* trainer\.predictions"):
        pl.Trainer(**QUIET).predict_loop  # noqa: B018


def test_accelerators_say_what_the_machine_has():
    """As programs ask at import; the device of a run is told by `isinstance`."""
    named = pl.accelerators
    assert named.CPUAccelerator.is_available()
    assert named.CPUAccelerator.auto_device_count() == 1
    assert named.CUDAAccelerator.is_available() is torch.cuda.is_available()
    assert named.CUDAAccelerator.auto_device_count() == torch.cuda.device_count()
    for kind in (named.XLAAccelerator, named.HPUAccelerator, pl.fabric.accelerators.TPUAccelerator):
        assert (kind.is_available(), kind.auto_device_count()) == (False, 0)
    trainer = pl.Trainer(**QUIET)
    assert isinstance(trainer.accelerator, (named.CPUAccelerator, named.Accelerator))
    assert isinstance(trainer.accelerator, named.Accelerator)
    assert not isinstance(trainer.accelerator, named.CUDAAccelerator)
    assert not isinstance("cpu", named.Accelerator)
    with pytest.raises(trainer_hooks.errors.OptionError, match=r"Trainer\(accelerator='cpu'\)"):
        named.CPUAccelerator()


def test_an_accelerator_of_others_is_registered_and_refused_by_the_trainer():
    """A library that registers one as it is imported goes on; a run takes none."""
    registry = pl.accelerators.AcceleratorRegistry

    class Other(pl.accelerators.Accelerator):
        name = "other"

    assert Other().name == "other"

    @registry.register("decorated")
    class Decorated(Other):
        pass

    registry.register("other", Other, description="theirs", cache=True)
    assert registry.available_accelerators() >= {"other", "decorated"}
    assert (registry["other"], registry["decorated"]) == (Other, Decorated)
    with pytest.raises(trainer_hooks.errors.OptionError, match="accelerator='other'"):
        pl.Trainer(**{**QUIET, "accelerator": "other"})


@pytest.mark.slow
def test_projects_and_experiments_are_called_as_in_lightning(tmp_path, monkeypatch) -> None:
    """The default of Weights & Biases and of MLflow is Lightning's; the environment wins."""
    pytest.importorskip("wandb")
    pytest.importorskip("mlflow")
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    assert pl.loggers.WandbLogger(save_dir=tmp_path, offline=True).name == "lightning_logs"
    assert pl.loggers.MLFlowLogger(save_dir=tmp_path).name == "lightning_logs"
    assert trainer_hooks.loggers.WandbLogger(save_dir=tmp_path).name == "trainer_logs"
    monkeypatch.setenv("WANDB_PROJECT", "digits")
    assert pl.loggers.WandbLogger(save_dir=tmp_path).name == "digits"
