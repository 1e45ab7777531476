from __future__ import annotations

from itertools import starmap

import pytest
import torch
from samples import one_in
from torch.utils.data import DataLoader

from trainer_hooks import DataModule, Tuner
from trainer_hooks.callbacks import BatchSizeFinder
from trainer_hooks.callbacks.tuning.batch_size_finder import find_largest_fitting_size
from trainer_hooks.errors import OptionError, TrainerHooksWarning, UsageError
from trainer_hooks.runtime.device import is_out_of_memory

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)


@pytest.mark.parametrize(
    ("limit", "options", "expected"),
    [
        (100, {"mode": "power"}, [2, 4, 8, 16, 32, 64, 128]),
        (100, {"mode": "power", "start": 300}, [300, 150, 75]),
        (100, {"mode": "power", "max_trials": 3}, [2, 4, 8]),
        (9999, {"mode": "power", "largest": 50}, [2, 4, 8, 16, 32, 50]),
        (9999, {"mode": "power", "start": 99, "largest": 50}, [50]),
        (100, {"mode": "binsearch"}, [2, 4, 8, 16, 32, 64, 128, 96, 112, 104, 100, 102, 101]),
        (100, {"mode": "binsearch", "start": 300}, [300, 150, 75, 112, 93, 102, 97, 99, 100, 101]),
        (1, {"mode": "binsearch", "start": 5}, [5, 2, 1]),
        (9999, {"mode": "binsearch", "largest": 50}, [2, 4, 8, 16, 32, 50]),
    ],
)
def test_the_search(limit, options, expected):
    """The sizes are tried in this order, and the largest that was tried and fits is found."""
    tried = []

    def fits(size):
        tried.append(size)
        return size <= limit

    found = find_largest_fitting_size(
        fits, **{"start": 2, "largest": 4096, "max_trials": 25, **options}
    )
    assert tried == expected
    assert found == max(size for size in tried if size <= limit)


def test_no_size_fits():
    """Where not even one sample fits, or none of the trials, it is said."""
    with pytest.raises(UsageError, match="batch sizes of 1: none fits"):
        find_largest_fitting_size(
            lambda size: False, mode="power", start=4, largest=99, max_trials=9
        )
    with pytest.raises(UsageError, match="batch sizes down to 32: none fits"):
        find_largest_fitting_size(
            lambda size: False, mode="power", start=64, largest=99, max_trials=2
        )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("[enforce fail] . DefaultCPUAllocator: can't allocate memory: x"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error"), True),
        (MemoryError(), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_what_running_out_of_memory_is(error, expected):
    """Allocators of devices and of the host, and their libraries, say so in these words."""
    assert is_out_of_memory(error) is expected


def test_this_hosts_own_words():
    """An allocation that no host can serve is known as one."""
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(2**60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    one_in(
        4,
        starmap(
            pytest.param,
            [
                ({}, 16),
                ({"mode": "binsearch", "margin": 0}, 20),
                ({"mode": "binsearch", "margin": 0.1}, 18),
                ({"max_val": 5}, 5),
            ],
        ),
    ),
)
def test_the_largest_that_fits_is_used(bare, probed, run, options, expected):
    """Memory errors are recovered from, and the run has batches of the size found."""
    finder, module = BatchSizeFinder(**options), probed(limit=20)
    trainer = bare(finder)
    trainer.fit(module)
    assert finder.optimal_batch_size == expected == module.batch_size
    assert module.hparams.batch_size == module.saved_hparams["batch_size"] == expected
    steps = 64 // expected
    assert run[-2 * steps :][:steps] == [("train", expected)] * steps or expected in (20, 18, 5)
    assert trainer.num_training_batches == trainer.global_step == steps
    assert module.calls == steps


def test_no_size_over_the_data_set(bare, probed, run):
    """A batch cannot have more samples than there are."""
    module = probed(samples=24)
    bare(BatchSizeFinder(steps_per_trial=2)).fit(module)
    assert module.batch_size == 24
    trials = [size for stage, size in run if stage == "train"]
    assert trials == [2, 2, 4, 4, 8, 8, 16, 16, 24, 24, 24]


@pytest.mark.slow
def test_validation_is_tried_too(bare, probed, run):
    """A fit must be able to validate with the size as well."""
    module = probed()
    module.validation_step = lambda batch, batch_idx: (
        module._allocate(batch[0]) if len(batch[0]) <= 8 else module.missing()
    )
    module.missing = lambda: (_ for _ in ()).throw(torch.OutOfMemoryError("out of memory"))
    bare(BatchSizeFinder()).fit(module)
    assert module.batch_size == 8


@pytest.mark.slow
def test_the_training_is_that_with_the_size(bare, probed):
    """A fit after the search ends bit for bit as one that was given the size."""
    ends = []
    for callbacks, size in (((BatchSizeFinder(),), 2), ((), 16)):
        module = probed(limit=20, batch_size=size)
        bare(*callbacks, max_epochs=2).fit(module)
        ends.append((module.state_dict(), module.notes["losses"], torch.get_rng_state()))
    assert all(torch.equal(v, ends[1][0][k]) for k, v in ends[0][0].items())
    assert ends[0][1] == ends[1][1]
    assert torch.equal(ends[0][2], ends[1][2])


def test_errors_of_other_kinds(bare, probed):
    """Any other error is raised, and the size is as it was."""
    module = probed(batch_size=3)
    module.training_step = lambda batch, batch_idx: 1 / 0
    with pytest.raises(ZeroDivisionError):
        bare(BatchSizeFinder()).fit(module)
    assert module.batch_size == 3


def test_what_cannot_be_searched(bare, probed):
    """Passed loaders, no such attribute, and loaders that do not follow it are refused."""
    module = probed()
    with pytest.raises(UsageError, match="whose loaders were passed to it"):
        bare(BatchSizeFinder()).fit(module, module.train_dataloader())
    with pytest.raises(UsageError, match=r"has no 'batch_sizes'.*Did you mean 'batch_size'"):
        bare(BatchSizeFinder(batch_arg_name="batch_sizes")).fit(module)
    loader = module.train_dataloader()
    module.train_dataloader = lambda: loader
    unchanged = "set to 2 and to 4, but the loaders have batches of 2"
    with pytest.raises(UsageError, match=unchanged) as caught:
        bare(BatchSizeFinder()).fit(module)
    assert caught.type is UsageError, "its name stands in the user's traceback"
    assert module.batch_size == 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["validate", "test", "predict"])
def test_other_stages(bare, probed, run, method):
    """Validation, test and prediction of their own are searched for and run with the size."""
    module = probed(limit=20)
    trainer = bare(BatchSizeFinder())
    getattr(trainer, method)(module)
    assert module.batch_size == 16
    assert run[-4:] == [(method, 16)] * 4
    run.clear()
    module = probed()
    loader = module.val_dataloader()
    setattr(
        module, "val_dataloader" if method == "validate" else f"{method}_dataloader", lambda: loader
    )
    with pytest.warns(TrainerHooksWarning, match="The size stays 2"):
        getattr(trainer, method)(module)
    assert module.batch_size == 2


class Data(DataModule):
    def __init__(self, module):
        self.make = module.train_dataloader
        self.batch_size = 2

    def train_dataloader(self):
        return DataLoader(self.make().dataset, self.batch_size)


@pytest.mark.slow
def test_a_data_module_that_has_the_size(bare, probed):
    """The attribute may be the data module's; the module's of that name follows."""
    module = probed(limit=20)
    data = Data(module)
    trainer = bare(BatchSizeFinder())
    trainer.fit(module, datamodule=data)
    assert data.batch_size == module.batch_size == 16
    assert data.trainer is trainer
    assert Tuner(bare()).scale_batch_size(probed(limit=9), datamodule=data) == 8
    assert data.batch_size == 8


@pytest.mark.slow
def test_a_resume_goes_on_with_the_size(bare, probed, run, tmp_path):
    """Inside an epoch too, the loaders of the resumed run are those of the run that was cut."""
    module = probed(limit=20)

    def save(outputs, batch, batch_idx):
        if module.trainer.progress.batches_completed == 2:
            module.trainer.save_checkpoint(tmp_path / "2.ckpt")

    module.on_train_batch_end = save
    bare(BatchSizeFinder()).fit(module)
    run.clear()
    again, finder = probed(limit=20), BatchSizeFinder()
    bare(finder).fit(again, ckpt_path=tmp_path / "2.ckpt")
    assert [entry for entry in run if entry[0] == "train"] == [("train", 16)] * 2
    assert finder.optimal_batch_size == again.batch_size == 16
    ends = [m.state_dict() for m in (module, again)]
    assert all(torch.equal(v, ends[1][k]) for k, v in ends[0].items())


@pytest.mark.slow
def test_in_the_middle_of_a_training(bare, probed, run):
    """At the start of a later epoch the loaders are made anew, and the epoch has their length."""

    class Later(BatchSizeFinder):
        def on_fit_start(self, trainer, pl_module):
            return

        def on_train_epoch_start(self, trainer, pl_module):
            if trainer.current_epoch == 1:
                self.scale_batch_size(trainer, pl_module)

    steps, module = [], probed(limit=20)
    trainer = bare(Later(), max_epochs=3, val_check_interval=0.5)
    module.on_train_epoch_end = lambda: (
        steps.append(trainer.global_step) if module.trainer is trainer else None
    )
    trainer.fit(module)
    assert steps == [32, 36, 40]


def test_reloading_where_it_cannot_be(bare, probed, Tiny, batches):
    """Loaders that were passed, or whose epoch is under way, cannot be made anew."""
    with pytest.raises(UsageError, match="outside of a run"):
        bare().reload_dataloaders()
    module = Tiny()
    module.on_fit_start = lambda: module.trainer.reload_dataloaders()
    with pytest.raises(UsageError, match="in a fit whose loaders were passed"):
        bare().fit(module, batches())
    module = probed()
    module.on_train_batch_start = lambda batch, batch_idx: module.trainer.reload_dataloaders()
    with pytest.raises(UsageError, match="inside an epoch"):
        bare().fit(module)
    with pytest.raises(UsageError, match="outside of a fit"):
        bare().renew_learning_rates()


class TestTuner:
    @pytest.mark.slow
    @pytest.mark.parametrize("method", ["fit", "validate", "test", "predict"])
    def test_it_leaves_the_trainer_alone(self, bare, probed, method):
        """The module gets the size, and is otherwise as it was; the trainer has run nothing."""
        module, trainer = probed(limit=20), bare()
        weights = {k: v.clone() for k, v in module.state_dict().items()}
        numbers = torch.get_rng_state()
        assert Tuner(trainer).scale_batch_size(module, method=method) == 16
        assert module.batch_size == module.hparams.batch_size == 16
        assert all(torch.equal(v, weights[k]) for k, v in module.state_dict().items())
        assert torch.equal(numbers, torch.get_rng_state())
        assert (trainer.module, trainer.global_step, module.calls) == (None, 0, 0)

    def test_bad_use(self, bare, probed):
        """Whatever makes no sense is an error with what to do."""
        with pytest.raises(OptionError, match="method 'train' of Tuner"):
            Tuner(bare()).scale_batch_size(probed(), method="train")
        with pytest.raises(UsageError, match="has a BatchSizeFinder"):
            Tuner(bare(BatchSizeFinder())).scale_batch_size(probed())
        with pytest.raises(UsageError, match="whose loaders were passed"):
            Tuner(bare()).scale_batch_size(probed(), probed().train_dataloader())
        with pytest.raises(UsageError, match="other loaders than validate takes"):
            Tuner(bare()).scale_batch_size(probed(), val_dataloaders=[1], method="validate")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_that_really_runs_out(bare, probed):
    """A CUDA device that has no memory left is recovered, and freed again."""
    module = probed(samples=64)
    total = torch.cuda.get_device_properties(0).total_memory

    def allocate(x):
        torch.empty(total // 20 * len(x), dtype=torch.uint8, device=x.device)

    module._allocate = allocate
    before = torch.cuda.memory_allocated()
    bare(BatchSizeFinder(), accelerator="cuda", devices=1).fit(module)
    assert module.batch_size in (8, 16)
    assert torch.cuda.memory_allocated() - before < total // 20
