from __future__ import annotations

import sys
from types import SimpleNamespace
from weakref import WeakSet

import pytest
import tqdm as tqdm_package

from trainer_hooks.callbacks import TQDMProgressBar
from trainer_hooks.errors import CallbackError, UsageError


@pytest.mark.parametrize("position", [-1, 0.5, None, False])
def test_process_position_that_breaks_its_rule(position):
    """A position that is no whole number from 0 on is refused."""
    with pytest.raises(CallbackError, match=r"process_position .* of TQDMProgressBar: must be"):
        TQDMProgressBar(process_position=position)


@pytest.mark.parametrize("which", ["train", "val", "test", "predict"])
def test_bar_that_is_not_open(which):
    """Asking for a tqdm bar before any run is an error that says when there is one."""
    with pytest.raises(UsageError, match=r"something to count|from the hook `setup` on"):
        getattr(TQDMProgressBar(), f"{which}_progress_bar")


class Marked(TQDMProgressBar):
    """Marks each bar that it makes, and keeps it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.made = {}

    def init_sanity_tqdm(self):
        return self.mark("sanity", super().init_sanity_tqdm())

    def init_train_tqdm(self):
        return self.mark("train", super().init_train_tqdm())

    def init_validation_tqdm(self):
        return self.mark("validation", super().init_validation_tqdm())

    def init_test_tqdm(self):
        return self.mark("test", super().init_test_tqdm())

    def init_predict_tqdm(self):
        return self.mark("predict", super().init_predict_tqdm())

    def mark(self, phase, bar):
        bar.bar_format = f"<{phase}> {{n_fmt}}/{{total_fmt}}"
        self.made.setdefault(phase, []).append(bar)
        return bar


def test_each_bar_is_made_by_a_method_that_can_be_overridden(terminal, run):
    """An overridden init method decides how its bar looks, and can be found by its name."""
    bar = Marked()
    fired = run(bar, num_val_batches=[3], num_sanity_val_batches=[2], max_epochs=1)
    seen = []

    def look(count):
        assert bar.val_progress_bar in (bar.made["validation" if len(seen) > 1 else "sanity"])
        seen.append(terminal.screen)

    fired.at_val_batch = look
    fired.at_batch = lambda count: bar.made["train"].index(bar.train_progress_bar)
    fired.fit()
    assert seen[1] == ["<sanity> 2/2"]
    assert seen[4] == ["<train> 4/4", "<validation> 3/3"]
    fired.at_val_batch = lambda count: bar.made["test"].index(bar.test_progress_bar)
    fired.evaluate("test", [5])
    fired.at_val_batch = lambda count: bar.made["predict"].index(bar.predict_progress_bar)
    fired.evaluate("predict", [6])
    assert terminal.screen == ["<train> 4/4", "<test> 5/5", "<predict> 6/6"]


@pytest.mark.parametrize(("leave", "made"), [(False, 1), (True, 3)])
def test_one_bar_serves_all_epochs_unless_each_stays(terminal, run, leave, made):
    """The bar of an epoch is started anew for the next one; with leave=True a new one is made."""
    bar = Marked(leave=leave)
    run(bar, max_epochs=3).fit()
    assert len(bar.made["train"]) == made


def test_bar_that_the_user_switched_off(terminal, run):
    """An init method may return a bar that tqdm itself does not show."""

    class Hidden(tqdm_package.tqdm):
        monitor_interval = 0  # no thread of this test is left for the others

    class Silent(TQDMProgressBar):
        def init_train_tqdm(self):
            return Hidden(disable=True)

    run(Silent()).fit()
    assert terminal.screen == []


@pytest.mark.parametrize(("loaders", "shown"), [([2], "said"), ([2, 2], "said DataLoader 0")])
def test_description_of_an_overridden_method_stays(terminal, run, loaders, shown):
    """What `set_description` says in an init method stands before the bar, in every epoch."""

    class Described(TQDMProgressBar):
        def init_train_tqdm(self):
            bar = super().init_train_tqdm()
            bar.set_description("running training")
            return bar

        def init_validation_tqdm(self):
            bar = super().init_validation_tqdm()
            bar.set_description("said")
            return bar

    fired = run(Described(), num_val_batches=loaders, max_epochs=2)
    screens = []
    fired.at_val_batch = lambda count: screens.append(terminal.screen)
    fired.fit()
    assert all(screen[1].startswith(f"{shown}: ") for screen in screens[:2])
    assert screens[-1][0].startswith("running training: ")


def test_bar_of_ones_own_with_our_description_tells_the_epoch(terminal, run):
    """A bar that is made with `desc=self.train_description` is told the next epoch's."""

    class Quiet(tqdm_package.tqdm):
        monitor_interval = 0  # no thread of this test is left for the others

    Quiet._instances = WeakSet()  # bars that others have left would take the places of these

    class Own(TQDMProgressBar):
        def init_train_tqdm(self):
            return Quiet(desc=self.train_description, file=sys.stdout)

        def init_validation_tqdm(self):
            return Quiet(desc=self.validation_description, file=sys.stdout, position=1, leave=False)

    fired = run(Own(), num_val_batches=[2, 2], max_epochs=3)
    shown = []

    def look(count):
        epoch, validation = terminal.screen
        shown.append((epoch.partition(":")[0], validation.partition(":")[0]))

    fired.at_val_batch = look
    fired.fit()
    assert [epoch for epoch, _ in shown] == [f"Epoch {n}/2" for n in range(3) for _ in range(4)]
    assert {name for _, name in shown} == {"Validation DataLoader 0", "Validation DataLoader 1"}


def test_bar_format_of_the_class(terminal, run):
    """BAR_FORMAT composes all bars; a rate below 1 is in batches a second too."""

    class Short(TQDMProgressBar):
        BAR_FORMAT = "{n_fmt} of {total_fmt}{postfix}"

    assert "{rate_noinv_fmt}" in TQDMProgressBar.BAR_FORMAT
    run(Short(), max_epochs=1).fit()
    assert terminal.screen == ["4 of 4, loss=0.5"]


def test_metrics_of_an_overridden_method(terminal, run):
    """get_metrics decides what stands beside the bar: here, no version."""

    class Anonymous(TQDMProgressBar):
        def get_metrics(self, trainer, module):
            metrics = super().get_metrics(trainer, module)
            metrics.pop("v_num", None)
            return metrics

    for kind, shown in ((TQDMProgressBar, True), (Anonymous, False)):
        fired = run(kind(), max_epochs=1)
        fired.trainer.logger = SimpleNamespace(version="run-of-today")
        fired.fit()
        assert ("v_num=oday" in terminal.screen[-1]) is shown


def test_bar_that_is_put_in(terminal, run):
    """A bar may be set as the property too, as hooks of Lightning bars do."""

    class Put(TQDMProgressBar):
        def on_train_start(self, trainer, module):
            self.train_progress_bar = self.init_train_tqdm()
            assert self.main_progress_bar is self.train_progress_bar
            super().on_train_start(trainer, module)

    run(Put(), max_epochs=1).fit()
    [line] = terminal.screen
    assert "4/4" in line


@pytest.mark.parametrize("where", ["log", "another process"])
def test_hooks_that_change_a_bar_work_where_there_is_none(run, capsys, where):
    """A hook that describes its bar does so in a log and on every process, without effect."""

    class Described(TQDMProgressBar):
        def on_train_epoch_start(self, trainer, module):
            super().on_train_epoch_start(trainer, module)
            self.train_progress_bar.set_description("mine")
            self.train_progress_bar.set_postfix(loss=1)

    run(Described(), max_epochs=1, is_global_zero=where == "log").fit()
    out = capsys.readouterr()
    assert out.err == ""
    assert out.out.startswith("Epoch 0/0: 4/4") is (where == "log")


@pytest.mark.parametrize(
    ("environment", "given", "rate"),
    [
        ({"TQDM_MINITERS": "7"}, 1, 7),
        ({"TQDM_MINITERS": "7"}, 9, 9),
        ({"TQDM_MINITERS": "7"}, 0, 0),
        ({"COLAB_JUPYTER_IP": "172.28.0.12"}, 1, 20),
        ({"COLAB_JUPYTER_IP": "172.28.0.12"}, 2, 2),
    ],
)
def test_refresh_rate_of_the_environment(monkeypatch, environment, given, rate):
    """tqdm's own variable makes the rate larger, and Colab gets fewer drawings."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert TQDMProgressBar(refresh_rate=given).refresh_rate == rate


def test_refresh_rate_of_the_environment_that_is_no_number(monkeypatch):
    """A variable that is no number is refused, by its name."""
    monkeypatch.setenv("TQDM_MINITERS", "often")
    with pytest.raises(CallbackError, match="TQDM_MINITERS 'often' in the environment of TQDMPro"):
        TQDMProgressBar()


def test_metrics_that_are_awkward(terminal, run):
    """A NaN, an infinity and a name longer than the screen leave one whole line."""
    fired = run(TQDMProgressBar(), max_epochs=1)
    fired.trainer.metrics = {"a": float("nan"), "b": float("inf"), "n" * 300: 1.0}
    fired.fit()
    [line] = terminal.screen
    assert "a=nan, b=inf, nnn" in line
    assert len(line) <= 120


def test_process_position_moves_the_bars_down(terminal, run):
    """The bars of a second run start two lines lower, below the bars of the first."""
    fired = run(TQDMProgressBar(process_position=1), num_val_batches=[2], max_epochs=1)
    lines = []
    fired.at_val_batch = lambda count: lines.append([bool(line) for line in terminal.lines[:4]])
    fired.fit()
    assert lines == [[False, False, True, True]] * 2


def test_rate_counts_the_batches_of_this_run(terminal, run):
    """After a resume the rate is that of the batches done since, not of those done before."""
    bar = TQDMProgressBar()
    fired = run(bar, num_training_batches=20, max_epochs=1)
    fired.start()
    fired.trainer.progress.begin_epoch()
    fired.trainer.progress.batches_in_epoch = 15
    bar.on_train_epoch_start(*fired.args)
    assert (bar.train_progress_bar.n, bar.train_progress_bar.initial) == (15, 15)
