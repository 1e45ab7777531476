from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace

import pytest

from trainer_hooks.callbacks import ProgressBar
from trainer_hooks.errors import UsageError
from trainer_hooks.hooks.band import Band


@pytest.fixture
def attached(run):
    """A bar and its trainer, after setup."""

    def attach(**options):
        bar = ProgressBar()
        fired = run(bar, **options)
        fired.start()
        return bar, fired.trainer

    return attach


def test_trainer_before_a_run():
    """Asking for the trainer before setup is an error that says when it is known."""
    with pytest.raises(UsageError, match="is known from the hook `setup` on"):
        ProgressBar().total_train_batches  # noqa: B018


def test_totals(attached):
    """The totals are the trainer's, for all loaders and for the one in use."""
    bar, trainer = attached(
        num_training_batches=7,
        num_val_batches=[2, 3],
        num_sanity_val_batches=[1, 2],
        num_test_batches=[4, 5],
        num_predict_batches=[6, math.inf],
    )
    assert bar.trainer is trainer
    assert bar.total_train_batches == 7
    assert (bar.total_val_batches, bar.total_val_batches_current_dataloader) == (5, 2)
    assert (bar.total_test_batches, bar.total_test_batches_current_dataloader) == (9, 4)
    assert (bar.total_predict_batches, bar.total_predict_batches_current_dataloader) == (
        math.inf,
        6,
    )
    assert bar.has_dataloader_changed(1)
    assert not bar.has_dataloader_changed(1)
    assert bar.total_val_batches_current_dataloader == 3
    assert bar.total_test_batches_current_dataloader == 5
    trainer.sanity_checking = True
    assert (bar.total_val_batches, bar.total_val_batches_current_dataloader) == (3, 2)
    bar.reset_dataloader_idx_tracker()
    assert bar.total_val_batches_current_dataloader == 1


def test_counts_of_the_base(run):
    """A bar of one's own is told how many batches are done, as in Lightning 1."""
    seen = []
    fired = run(ProgressBar(), num_val_batches=[2], max_epochs=1)
    fired.at_batch = lambda count: seen.append(fired.bar.train_batch_idx)
    fired.at_val_batch = lambda count: seen.append(fired.bar.val_batch_idx)
    fired.fit()
    assert seen == [1, 2, 3, 4, 1, 2]
    fired.at_val_batch = lambda count: seen.append(
        (fired.bar.test_batch_idx, fired.bar.predict_batch_idx)
    )
    fired.evaluate("test", [2])
    fired.evaluate("predict", [1])
    assert seen[6:] == [(1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize(("max_epochs", "described"), [(10, "Epoch 3/9"), (-1, "Epoch 3")])
def test_description_of_an_epoch(attached, max_epochs, described):
    """An epoch is described by its index, and the last index where there is one."""
    bar, trainer = attached(max_epochs=max_epochs)
    trainer.progress.epochs_completed = 3
    assert bar.train_description == described


def test_metrics_and_version(attached):
    """get_metrics returns the trainer's metrics, with the logger's version in front if known."""
    bar, trainer = attached()
    assert bar.get_metrics(trainer, None) == {"loss": 0.5}
    trainer.logger = SimpleNamespace(version=None)
    assert bar.get_metrics(trainer, None) == {"loss": 0.5}
    trainer.logger = SimpleNamespace(version=4)
    assert list(bar.get_metrics(trainer, None).items()) == [("v_num", 4), ("loss", 0.5)]
    trainer.metrics["v_num"] = 9
    assert bar.get_metrics(trainer, None)["v_num"] == 9


def test_other_processes_show_nothing(attached):
    """On a process that is not the main one the bar is switched off."""
    assert attached(is_global_zero=True)[0].is_enabled
    assert attached(is_global_zero=False)[0].is_disabled


def test_enable_and_disable():
    """A bar can be switched off and on."""
    bar = ProgressBar()
    bar.disable()
    assert (bar.is_enabled, bar.is_disabled) == (False, True)
    bar.enable()
    assert (bar.is_enabled, bar.is_disabled) == (True, False)


def test_print_is_the_builtin(capsys):
    """print takes what the builtin takes, and goes to the same place."""
    bar = ProgressBar()
    bar.print("a", 1, sep="-", end="!\n", flush=True)
    bar.print("b", file=sys.stderr)
    assert capsys.readouterr() == ("a-1!\n", "b\n")


def test_bars_come_after_the_module():
    """A bar shows what the module and the controls did at the same hook."""
    assert ProgressBar().band is Band.SINK


_IMPORT = """
import sys
sys.modules["tqdm"] = sys.modules["rich"] = None  # importing either is an ImportError now
import trainer_hooks.callbacks
bars = [trainer_hooks.callbacks.TQDMProgressBar(), trainer_hooks.callbacks.RichProgressBar()]
"""


@pytest.mark.slow
def test_importing_the_callbacks_imports_neither_tqdm_nor_rich():
    """The package and the constructors do without the libraries that draw."""
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
