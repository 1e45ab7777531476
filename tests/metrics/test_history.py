"""`trainer.history`: every value by name, in bounded memory, the same after a resume."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from trainer_hooks import Callback
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.clock.progress import Progress
from trainer_hooks.errors import MetricError
from trainer_hooks.metrics.history import LIMIT, History, MetricPoint, MetricSeries
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.filterwarnings(
    "ignore:a checkpoint was saved in the hook"  # what these look at does not depend on the place
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def history() -> History:
    return History(Progress())


# --- what is refused ---


def test_the_latest_of_an_unknown_name_is_an_error_that_names_near_ones(history) -> None:
    """A misspelt name is a ValueError with the nearest name."""
    history.update_metric("val_loss", 1.0)
    with pytest.raises(ValueError, match=r"get_latest_metric\('val_los'\).*val_loss"):
        history.get_latest_metric("val_los")
    with pytest.raises(MetricError, match="there is nothing"):
        History(Progress()).get_latest_metric("x")


def test_deleting_what_is_not_there_is_an_error(history) -> None:
    """delete_metric of an unknown name says so."""
    with pytest.raises(MetricError, match=r"delete_metric\('x'\)"):
        history.delete_metric("x")


@pytest.mark.parametrize("value", ["1", None, [1.0], {"a": 1}, torch.ones(2), 1j])
def test_what_is_no_number_is_kept_as_it_is(history, value) -> None:
    """update_metric takes any value, and a later change of it does not reach the history."""
    history.update_metric("x", value)
    history.update_metric("x", value)
    assert history.get_metric_names() == {"x"}
    found = history.get_metric_values("x")
    assert len(found) == 2
    assert found[0] is not value or value in ("1", None, 1j)
    assert torch.equal(found[0], value) if isinstance(value, torch.Tensor) else found[0] == value
    assert len(history.get_metric_points("x")) == 2


def test_names_and_prefixes_are_strings(history) -> None:
    """Anything else is refused."""
    with pytest.raises(MetricError, match="must be a string"):
        history.update_metric(3, 1.0)
    with pytest.raises(MetricError, match="must be a string"):
        history.set_metric_name_prefix(None)


# --- the methods of pytorch-accelerated's RunHistory ---


def test_values_by_name(history) -> None:
    """What was added is found under its name, in order, the last one alone too."""
    for value in (3, 2.5, torch.tensor([2.0])):
        history.update_metric("loss", value)
    assert history.get_metric_names() == {"loss"}
    assert history.get_metric_values("loss") == [3.0, 2.5, 2.0]
    assert history.get_latest_metric("loss") == 2.0
    assert history.get_metric_values("other") == []
    assert history.get_metric_names() == {"loss"}
    history.delete_metric("loss")
    assert history.get_metric_names() == set()


def test_a_prefix_is_of_what_is_written(history) -> None:
    """The prefix is put before names that are written, and not before those that are read."""
    history.update_metric("loss", 1.0)
    history.set_metric_name_prefix("ema_")
    assert history.metric_name_prefix == "ema_"
    history.update_metric("loss", 2.0)
    history.record({"acc": 3.0, "step": 7}, 7)
    history.set_metric_name_prefix()
    assert history.get_metric_values("loss") == [1.0]
    assert history.get_metric_values("ema_loss") == [2.0]
    assert history.get_metric_points("ema_acc") == [MetricPoint(0, 7, 3.0)]
    history.reset()
    assert history.get_metric_names() == set()


def test_the_epoch_is_the_trainings_from_one_on() -> None:
    """current_epoch counts from 1, as in pytorch-accelerated."""
    progress = Progress()
    history = History(progress)
    assert history.current_epoch == 1
    progress.epochs_completed = 3
    assert history.current_epoch == 4


# --- memory ---


@pytest.mark.parametrize("count", [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 5 * LIMIT + 3, 100_001])
def test_a_long_series_is_spread_evenly_and_keeps_its_last(count) -> None:
    """Of n values at most LIMIT + 1 are kept: each stride-th one and the last."""
    series = MetricSeries()
    for number in range(count):
        series.add(0, number, float(number))
    steps = [point.step for point in series]
    assert len(series) == len(steps) <= LIMIT + 1
    assert steps == sorted({*range(0, count, series.stride), *([count - 1] if count else [])})
    assert series.values == [float(step) for step in steps]
    assert count < LIMIT or len(steps) >= LIMIT // 2
    other = MetricSeries()
    other.load_state_dict(series.state_dict())
    assert list(other) == list(series)


@pytest.mark.parametrize("cut", [1, LIMIT - 1, LIMIT, 12_345])
def test_a_restored_series_goes_on_as_the_uncut_one(cut) -> None:
    """What is kept depends on how many came, wherever the series was saved."""
    whole, first, second = MetricSeries(), MetricSeries(), MetricSeries()
    for number in range(30_000):
        whole.add(number // 100, number, math.sin(number))
        if number < cut:
            first.add(number // 100, number, math.sin(number))
    second.load_state_dict(first.state_dict())
    for number in range(cut, 30_000):
        second.add(number // 100, number, math.sin(number))
    assert second.state_dict() == whole.state_dict()


_MILLIONS = """
import json, resource
from trainer_hooks.metrics.history import History
from trainer_hooks.callbacks import EarlyStopping
from trainer_hooks.clock.progress import Progress

def memory():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

progress = Progress()
history = History(progress)
before = memory()
for step in range(10_000_000):
    history.record({"loss_step": step * 0.5}, step)
print(json.dumps([memory() - before, history.get_latest_metric("loss_step")]))
"""


@pytest.mark.exhaustive
def test_ten_million_steps_stay_small() -> None:
    """Ten million logged steps take less than 300 MB over the start: a hundredth of that."""
    done = subprocess.run(
        [sys.executable, "-c", _MILLIONS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    megabytes, last = json.loads(done.stdout)
    assert megabytes < 3
    assert last == 9_999_999 * 0.5


# --- in a run ---


def net_of(Tiny):
    class LogsLosses(Tiny):
        def training_step(self, batch, batch_idx):
            self.log("loss", batch.mean(), on_epoch=True)
            self.log("quiet", batch.mean() * 2, logger=False)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.log("val_loss", batch.mean(), on_step=True)

    return LogsLosses()


@pytest.mark.parametrize("has_logger", [True, False])
def test_a_fit_writes_its_history(Tiny, quiet_trainer, batches, MemoryLogger, has_logger) -> None:
    """With a logger and without, step values every n steps and each epoch's values are there."""

    class Own(Callback):
        def on_train_epoch_end(self, trainer, module):
            trainer.history.update_metric("mine", torch.tensor(trainer.current_epoch + 0.5))

    logger = MemoryLogger() if has_logger else False
    trainer = quiet_trainer(logger=logger, log_every_n_steps=2, max_epochs=2, callbacks=[Own()])
    trainer.fit(net_of(Tiny), batches(5), batches(2))
    history = trainer.history
    assert trainer.run_history is history
    assert history.get_metric_names() == {
        "loss_step", "loss_epoch", "quiet", "val_loss_step", "val_loss_epoch", "mine",
    }  # fmt: skip
    places = [
        MetricPoint(0, 1, 2.0),
        MetricPoint(0, 3, 4.0),
        MetricPoint(1, 5, 1.0),
        MetricPoint(1, 7, 3.0),
    ]
    assert history.get_metric_points("loss_step") == [*places, MetricPoint(1, 9, 5.0)]
    assert history.get_metric_values("quiet") == [4.0, 8.0, 2.0, 6.0, 10.0]
    assert history.get_metric_points("loss_epoch") == [
        MetricPoint(0, 4, 3.0),
        MetricPoint(1, 9, 3.0),
    ]
    assert history.get_metric_values("val_loss_step") == [1.0, 2.0, 1.0, 2.0]
    assert [p.step for p in history.get_metric_points("val_loss_step")] == [0, 1, 2, 3]
    assert history.get_metric_values("mine") == [0.5, 1.5]
    assert history.current_epoch == 3


def test_the_sanity_check_is_no_part_of_it(Tiny, quiet_trainer, batches) -> None:
    """What is logged in the sanity check is not in the history."""
    trainer = quiet_trainer(num_sanity_val_steps=2)
    trainer.fit(net_of(Tiny), batches(1), batches(2))
    assert trainer.history.get_metric_values("val_loss_epoch") == [1.5]


def test_another_module_begins_anew(Tiny, quiet_trainer, batches) -> None:
    """A fit of another module has a history of its own; a second fit of the same goes on."""
    trainer, net = quiet_trainer(), net_of(Tiny)
    trainer.fit(net, batches(1))
    trainer.max_epochs = 2
    trainer.fit(net, batches(1))
    assert len(trainer.history.get_metric_values("loss_epoch")) == 2
    trainer.fit(net_of(Tiny), batches(1))
    assert len(trainer.history.get_metric_values("loss_epoch")) == 2  # two epochs of its own


def test_a_checkpoint_of_inside_a_validation_counts_it_once(
    Tiny, quiet_trainer, batches, tmp_path
) -> None:
    """A validation that is run again on a resume is in the history, and on the x axis, once."""

    class Saver(Callback):
        def on_validation_end(self, trainer, module):
            if trainer.current_epoch == 0 and self.saves:
                trainer.save_checkpoint(tmp_path / "inside.ckpt")

        saves = True

    uncut = quiet_trainer(max_epochs=2, callbacks=[Saver()])
    uncut.fit(net_of(Tiny), batches(2), batches(2))
    resumed_saver = Saver()
    resumed_saver.saves = False
    resumed = quiet_trainer(max_epochs=2, callbacks=[resumed_saver])
    resumed.fit(net_of(Tiny), batches(2), batches(2), ckpt_path=tmp_path / "inside.ckpt")
    assert resumed.history.state_dict() == uncut.history.state_dict()
    points = resumed.history.get_metric_points("val_loss_step")
    assert [point.step for point in points] == [0, 1, 2, 3]


# --- views ---


def test_as_a_data_frame(Tiny, quiet_trainer, batches) -> None:
    """A row for each place, a column for each name, NaN where nothing was logged."""
    pytest.importorskip("pandas")
    trainer = quiet_trainer(log_every_n_steps=2)
    trainer.fit(net_of(Tiny), batches(3))
    frame = trainer.history.to_pandas()
    assert list(frame.index) == [(0, 1), (0, 2)]
    assert frame.index.names == ["epoch", "step"]
    assert frame["loss_step"].tolist()[0] == 2.0
    assert math.isnan(frame["loss_step"].tolist()[1])
    assert frame["loss_epoch"].tolist()[1] == 2.0
    assert History(Progress()).to_pandas().empty


def test_a_plot_draws_what_is_named(history, monkeypatch) -> None:
    """A forked name stands for both; the x axis is of steps or epochs; all without a name."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    for step in range(4):
        history.record({"loss_step": 4.0 - step}, step)
    history.record({"loss_epoch": 2.5, "val_loss": 2.0}, 3)
    ax = history.plot("loss", "val_loss")
    drawn = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert drawn == {"loss_step": [0, 1, 2, 3], "loss_epoch": [3], "val_loss": [3]}
    assert history.plot("val_loss", ax=ax) is ax
    assert len(history.plot(x="epoch").lines) == 3
    pyplot.close("all")
    with pytest.raises(MetricError, match=r"plot\('los'\)"):
        history.plot("los")
    with pytest.raises(MetricError, match="'step' or 'epoch'"):
        history.plot("loss", x="time")


@pytest.mark.parametrize(("method", "package"), [("plot", "matplotlib"), ("to_pandas", "pandas")])
def test_a_library_that_is_not_installed_is_named(history, monkeypatch, method, package) -> None:
    """The error says what to install."""
    history.update_metric("x", 1.0)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.pyplot", None)
    with pytest.raises(MetricError, match=r"pip install trainer-hooks\[plots\]"):
        getattr(history, method)()


# --- values that are no numbers, and who watches those that are ---


def test_objects_come_back_from_a_state_and_make_room(history) -> None:
    """The last thousand values of a name are kept, with their places, over a checkpoint."""
    history.update_metric("matrix", 1.0)  # a name may become one of objects
    for number in range(1003):
        history.update_metric("matrix", torch.full((2, 2), float(number)))
    history.update_metric("matrix", 2.5)
    restored = History(Progress())
    restored.load_state_dict(history.state_dict())
    for kept in (history, restored):
        values = kept.get_metric_values("matrix")
        assert len(values) == 1000
        assert values[-1] == kept.get_latest_metric("matrix") == 2.5
        assert torch.equal(values[-2], torch.full((2, 2), 1002.0))
    assert history.to_pandas().empty


@pytest.mark.parametrize("has_own_step", [True, False])
def test_a_value_that_a_callback_adds_can_be_watched(
    quiet_trainer, Tiny, batches, has_own_step
) -> None:
    """EarlyStopping and ModelCheckpoint find what was put into the history."""

    class Own(Callback):
        def on_validation_epoch_end(self, trainer, module):
            trainer.run_history.update_metric("matrix", torch.zeros(3, 3))
            value = 1.0 - trainer.current_epoch
            trainer.run_history.update_metric("mine", torch.tensor([value]))

    stopper = EarlyStopping("mine", mode="max", patience=1)
    module = net_of(Tiny) if has_own_step else TinyModule()
    loaders = (batches(2), batches(2)) if has_own_step else ()
    trainer = quiet_trainer(max_epochs=5, callbacks=[Own(), stopper], num_sanity_val_steps=0)
    trainer.fit(module, *loaders)
    assert trainer.current_epoch == 2
    assert float(stopper.best_score) == 1.0
    assert trainer.callback_metrics["mine"].shape == ()


def test_the_default_step_keeps_the_mean_loss_of_each_epoch(quiet_trainer) -> None:
    """`train_loss_epoch` is there however short the fit, and is the mean weighted by batch size."""

    class Losses(TinyModule):
        def loss(self, outputs, batch):
            value = [1.0, 9.0][self.trainer.clock.batches_in_epoch] if self.training else 1.0
            return outputs.sum() * 0 + value

    trainer = quiet_trainer(max_epochs=1)
    trainer.fit(Losses(), [(torch.ones(3, 2), torch.zeros(3, 2)), (torch.ones(1, 2),) * 2])
    assert trainer.history.get_metric_values("train_loss_epoch") == [3.0]
    assert float(trainer.callback_metrics["train_loss_epoch"]) == 3.0
