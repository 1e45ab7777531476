"""Names that libraries around Lightning import: helpers, and plugins as objects."""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module
from typing import Any

import pytest
import torch
from for_each import for_each

import trainer_hooks.compat.lightning as pl
from trainer_hooks.compat.lightning import cli, plugins
from trainer_hooks.compat.lightning.callbacks.progress.tqdm_progress import convert_inf
from trainer_hooks.compat.lightning.core import hooks
from trainer_hooks.compat.lightning.demos.boring_classes import (
    BoringModel,
    RandomDataset,
    RandomIterableDatasetWithLen,
)
from trainer_hooks.compat.lightning.loggers.logger import merge_dicts
from trainer_hooks.compat.lightning.plugins import environments
from trainer_hooks.compat.lightning.utilities import data, parsing, rank_zero
from trainer_hooks.compat.lightning.utilities.model_summary import parse_batch_shape
from trainer_hooks.compat.lightning.utilities.signature_utils import is_param_in_hook_signature
from trainer_hooks.errors import OptionError, TrainerHooksWarning

QUIET: dict[str, Any] = {
    "logger": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "enable_checkpointing": False,
    "accelerator": "cpu",
    "max_epochs": 1,
    "limit_train_batches": 1,
    "limit_val_batches": 1,
}


class Sized(BoringModel):
    def __init__(self, width: int = 3, *, note: str = "n"):
        super().__init__()
        parsing.save_hyperparameters(self)
        self.found = parsing.collect_init_args(inspect.currentframe(), [], classes=(Sized,))


def _args(self, batch, *args):
    """Take any further argument."""


def _plain(self, batch, batch_idx):
    """Take two arguments."""


NESTED = [{"a": 1, "n": {"x": 1.0}}, {"a": 3, "b": 5, "n": {"x": 4.0, "y": 2.0}}]


@for_each(
    [
        (convert_inf(float("inf")), None),
        (convert_inf(float("nan")), None),
        (convert_inf(None), None),
        (convert_inf(3), 3),
        (merge_dicts(NESTED), {"a": 2, "n": {"x": 2.5, "y": 2.0}, "b": 5}),
        (
            merge_dicts(NESTED, {"a": max, "n": {"x": sum}}, min),
            {"a": 3, "n": {"x": 5.0, "y": 2.0}, "b": 5},
        ),
        (
            cli.instantiate_class((1, 2), {"class_path": "fractions.Fraction"}),
            __import__("fractions").Fraction(1, 2),
        ),
        (cli.instantiate_class(7, {"class_path": "builtins.int"}), 7),
        (parse_batch_shape([torch.zeros(2, 3), (torch.zeros(1), "x")]), [[2, 3], [[1], "?"]]),
        (is_param_in_hook_signature(_plain, "batch_idx"), True),
        (is_param_in_hook_signature(_plain, "dataloader_iter"), False),
        (is_param_in_hook_signature(_args, "dataloader_iter"), True),
        (is_param_in_hook_signature(_args, "dataloader_iter", explicit=True), False),
        (is_param_in_hook_signature(_plain, "other", min_args=3), True),
        (data.has_len(iter([])), False),
        (data.has_iterable_dataset(torch.utils.data.DataLoader(RandomDataset(2, 2))), False),
    ]
)
def test_helpers_return(found, wanted):
    """The same as Lightning's."""
    assert found == wanted


def test_lengths_are_asked_of_all_ranks():
    """With a warning of an empty loader, and of an iterable data set that has a length."""
    strategy = pl.Trainer(**QUIET).strategy
    full = torch.utils.data.DataLoader(RandomDataset(2, 4), batch_size=2)
    assert data.has_len_all_ranks(full, strategy)
    assert not data.has_len_all_ranks(iter([]), strategy)
    iterable = torch.utils.data.DataLoader(RandomIterableDatasetWithLen(2, 4))
    with pytest.warns(TrainerHooksWarning, match="its IterableDataset has a length"):
        assert data.has_len_all_ranks(iterable, strategy)
    with pytest.warns(TrainerHooksWarning, match="has the length 0"):
        assert data.has_len([])

    class OfTwo:
        root_device = torch.device("cpu")

        def reduce(self, tensor, reduce_op):
            return tensor + 3

    with pytest.raises(RuntimeError, match="no batch on this rank, and others have some"):
        data.has_len_all_ranks([], OfTwo())


def test_attributes_are_found_in_the_module_its_hyperparameters_and_its_data():
    """They are set wherever they are."""
    module = Sized(5, note="other")
    assert dict(module.hparams) == {"width": 5, "note": "other"}
    assert module.found[0] == {"width": 5, "note": "other"}
    module.lr = 0.1
    assert parsing.lightning_hasattr(module, "lr")
    assert not parsing.lightning_hasattr(module, "missing")
    parsing.lightning_setattr(module, "lr", 0.2)
    parsing.lightning_setattr(module, "width", 6)
    assert (module.lr, parsing.lightning_getattr(module, "width")) == (0.2, 6)
    for call in (parsing.lightning_getattr, lambda m, n: parsing.lightning_setattr(m, n, 1)):
        with pytest.raises(AttributeError, match="'missing' is neither an attribute of Sized"):
            call(module, "missing")
    kept = {"a": 1, "b": lambda: None}
    with pytest.warns(TrainerHooksWarning, match="'b' is removed"):
        parsing.clean_namespace(kept)
    assert kept == {"a": 1}


def test_a_warning_is_given_once():
    """By each cache of its own."""
    cache = rank_zero.WarningCache()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            cache.warn("first")
            cache.deprecation("second")
    assert [str(one.message) for one in caught] == ["first", "second"]
    assert "first" in cache
    assert issubclass(rank_zero.LightningDeprecationWarning, DeprecationWarning)


def test_hooks_as_mixins_do_nothing_and_may_be_overridden():
    """`super().on_train_start()` in a mixin goes on to the module."""
    called = []

    class Mixin(hooks.ModelHooks, hooks.CheckpointHooks):
        def on_train_start(self):
            super().on_train_start()
            called.append("start")

        def on_save_checkpoint(self, checkpoint):
            super().on_save_checkpoint(checkpoint)
            called.append("save")

    class Net(Mixin, BoringModel):
        pass

    trainer = pl.Trainer(**QUIET)
    trainer.fit(Net())
    trainer.dump_checkpoint()
    assert called == ["start", "save"]
    assert issubclass(pl.LightningDataModule, hooks.DataHooks)


@for_each(
    [
        ([plugins.HalfPrecision("bf16-true")], "precision", "bf16-true"),
        (plugins.DoublePrecision(), "precision", "64-true"),
        ([plugins.MixedPrecision("bf16-mixed", "cpu")], "precision", "bf16-mixed"),
        ([environments.SLURMEnvironment(auto_requeue=False)], "precision", "32-true"),
        ([environments.LightningEnvironment()], "world_size", 1),
    ]
)
def test_a_plugin_as_an_object_is_an_option(given, name, value):
    """The Trainer's other plugins stay."""
    assert getattr(pl.Trainer(plugins=given, **QUIET), name) == value


def test_plugins_that_contradict_each_other_are_refused():
    """Each other, or the option for which one stands; so is a scaler of gradients."""
    half, double = plugins.HalfPrecision("bf16-true"), plugins.DoublePrecision()
    for options in ({"plugins": [half, double]}, {"plugins": half, "precision": "32-true"}):
        with pytest.raises(OptionError, match=r"(Keep one|contradict each other)"):
            pl.Trainer(**options, **QUIET)
    with pytest.raises(OptionError, match="the scaler of gradients itself"):
        plugins.MixedPrecision("16-mixed", "cuda", scaler=object())
    with pytest.raises(ImportError, match="XLACheckpointIO is not in trainer_hooks"):
        from trainer_hooks.compat.lightning.plugins.io import XLACheckpointIO  # noqa: F401
    assert "precision" in inspect.signature(pl.Trainer).parameters


def test_synchronized_layers_are_those_of_torch():
    """`TorchSyncBatchNorm` stands for `sync_batchnorm=True`, and converts a module by hand."""
    assert plugins.TorchSyncBatchNorm().trainer_options() == {"sync_batchnorm": True}
    converted = plugins.TorchSyncBatchNorm().apply(torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
    assert type(converted[0]) is torch.nn.SyncBatchNorm


@for_each(
    [
        ("SLURMEnvironment", ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")),
        ("TorchElasticEnvironment", ("WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK")),
    ]
)
def test_an_environment_reads_its_variables(name, variables):
    """Only where all are set the processes were started so."""
    kind = getattr(environments, name)
    with pytest.MonkeyPatch.context() as patch:
        for variable in variables:
            patch.delenv(variable, raising=False)
        assert not kind.detect()
        for variable, value in zip(variables, "4312", strict=True):
            patch.setenv(variable, value)
        found = kind()
        assert kind.detect()
        numbers = found.world_size(), found.global_rank(), found.local_rank(), found.node_rank()
        assert numbers == (4, 3, 1, 2)


def test_the_machines_of_a_slurm_job():
    """The first of the list is rank 0's; a job's number is none in an interactive shell."""
    first = environments.SLURMEnvironment.resolve_root_node_address
    lists = {"a,b": "a", "n[5-9]": "n5", "n[5,7],m": "n5", "alone": "alone", "a b": "a"}
    assert {given: first(given) for given in lists} == lists
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_JOB_ID", "12")
        patch.setenv("SLURM_JOB_NAME", "train")
        assert environments.SLURMEnvironment.job_id() == 12
        assert environments.SLURMEnvironment.job_name() == "train"
        patch.setenv("SLURM_JOB_NAME", "bash")
        assert environments.SLURMEnvironment.job_id() is None


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("demos", "WikiText2", "it downloads its text: take the Transformer of demos"),
        ("demos.transformer", "LightningTransformer", "it downloads its text"),
        ("demos.mnist_datamodule", "MNISTDataModule", "it downloads its images: write a"),
        ("demos.mnist_datamodule", "MNIST", "it downloads its images: take torchvision"),
    ],
)
def test_demos_that_download_are_refused_with_advice(module, name, advice):
    """The one that needs no network is offered."""
    assert pl.demos.Transformer is pl.demos.transformer.Transformer
    with pytest.raises((ImportError, AttributeError), match=advice):
        getattr(import_module(f"trainer_hooks.compat.lightning.{module}"), name)
