from __future__ import annotations

import io
import math
import re
import sys
import threading

import pytest

from trainer_hooks.callbacks import RichProgressBar, TQDMProgressBar
from trainer_hooks.clock.progress import EpochStage
from trainer_hooks.errors import CallbackError
from trainer_hooks.hooks.spec import overrides


def holds(line: str, *parts: str) -> bool:
    """Whether a line of the screen has these parts, in this order."""
    return re.search(".*".join(map(re.escape, parts)), line) is not None


def plain(text: str) -> list[str]:
    """The lines of a log without what depends on the speed of the machine."""
    return re.sub(r"(<[\d:]+)?, [\d.]+it/s", "", text).splitlines()


@pytest.mark.parametrize("rate", [-1, 0.5, "1", None, True])
def test_refresh_rate_that_breaks_its_rule(kind, rate):
    """A refresh rate that is no whole number from 0 on is refused, with the bar's name."""
    with pytest.raises(CallbackError, match=rf"refresh_rate .* of {kind.__name__}: must be a whol"):
        kind(refresh_rate=rate)


# --- On a terminal


def test_final_screen(kind, terminal, run):
    """After a fit the screen shows the last epoch, its counts and the metrics, and nothing else."""
    fired = run(kind(), num_val_batches=[3], num_sanity_val_batches=[2])
    fired.trainer.metrics = {"train_loss": 0.123456, "best": 7}
    fired.fit()
    [line] = terminal.screen
    assert holds(line, "Epoch 1/1", "4/4", "train_loss=0.12", "best=7")
    assert not terminal.cursor_is_hidden
    assert terminal.cursor_line == 1


def test_bar_of_each_epoch_stays_if_asked(kind, terminal, run):
    """With leave=True each epoch leaves its line, with the metrics that it ended with."""
    fired = run(kind(leave=True), max_epochs=3)
    fired.at_batch = lambda count: fired.trainer.metrics.update(
        loss=float(fired.trainer.current_epoch)
    )
    fired.fit()
    assert len(terminal.screen) == 3
    for epoch, line in enumerate(terminal.screen):
        assert holds(line, f"Epoch {epoch}/2", "4/4", f"loss={epoch}")


def test_bar_that_stays_has_the_metrics_of_its_validation(kind, terminal, run, clock):
    """With leave=True even the shortest epoch's line has what its validation came to."""
    fired = run(kind(leave=True), num_val_batches=[1])
    fired.at_val_batch = lambda count: fired.trainer.metrics.update(
        val_loss=float(fired.trainer.current_epoch)
    )
    fired.fit()
    first, second = terminal.screen
    assert holds(first, "Epoch 0/1", "val_loss=0")
    assert holds(second, "Epoch 1/1", "val_loss=1")


def test_validation_is_shown_below_the_epoch(kind, terminal, run):
    """Inside fit a validation has a line of its own, below the epoch's, that goes away again."""
    fired = run(kind(), num_val_batches=[3], max_epochs=1)
    screens = []
    fired.at_val_batch = lambda count: screens.append(terminal.screen)
    fired.fit()
    for screen in screens:
        assert holds(screen[0], "Epoch 0/0", "4/4")
        assert len(screen) == 2
    assert holds(screens[-1][1], "Validation", "3/3")
    [line] = terminal.screen
    assert holds(line, "Epoch 0/0", "4/4")


def test_validation_within_an_epoch(kind, terminal, run):
    """A validation in the middle of an epoch leaves the epoch's bar where it was."""
    fired = run(kind(), num_val_batches=[3], max_epochs=1)
    screens = []

    def validate(count):
        if count == 2:
            fired.validate()
            screens.append(terminal.screen)

    fired.at_batch = validate
    fired.fit()
    assert len(screens[0]) == 1
    assert holds(terminal.screen[0], "Epoch 0/0", "4/4")


def test_sanity_check_leaves_no_trace(kind, terminal, run):
    """The sanity check is shown while it runs, and is gone when training starts."""
    fired = run(kind(), num_sanity_val_batches=[2])
    screens = []
    fired.at_val_batch = lambda count: screens.append(terminal.screen)
    fired.start()
    fired.sanity_check()
    assert holds(screens[-1][0], "Sanity Checking", "2/2")
    assert terminal.screen == []
    assert terminal.cursor_line == 0


@pytest.mark.parametrize(
    ("what", "title", "has_metrics"),
    [
        ("validation", "Validation", True),
        ("test", "Testing", True),
        ("predict", "Predicting", False),
    ],
)
def test_evaluation_of_its_own(kind, terminal, run, what, title, has_metrics):
    """validate, test and predict leave one line with counts; a prediction has no metrics."""
    fired = run(kind())
    fired.evaluate(what, [5])
    [line] = terminal.screen
    assert holds(line, title, "5/5")
    assert ("loss=0.5" in line) == has_metrics
    assert "DataLoader" not in line


def test_several_loaders_are_told_apart(kind, terminal, run):
    """With several loaders the line says which one is counted, from its own 1 to its own total."""
    fired = run(kind())
    screens = []
    fired.at_val_batch = lambda count: screens.append(terminal.screen)
    fired.evaluate("test", [2, 3])
    assert all(len(screen) == 1 for screen in screens)
    assert holds(screens[1][0], "Testing DataLoader 0", "2/2")
    assert holds(screens[4][0], "Testing DataLoader 1", "3/3")


def test_evaluation_without_loaders(kind, terminal, run):
    """Nothing to count is nothing to show."""
    run(kind()).evaluate("validation", [])
    assert terminal.screen == []


def test_unknown_length(kind, terminal, run):
    """An epoch of unknown length shows how far it came, its last batch too, and no time left."""
    fired = run(kind(), num_training_batches=math.inf, max_epochs=1)
    fired.fit(batches=12)
    [line] = terminal.screen
    assert holds(line, "Epoch 0/0", "12/?", "00:00", "it/s", "loss=0.5")
    assert "<" not in line


def test_last_batch_that_nobody_could_know_of(kind, terminal, run, clock):
    """The last batch of an epoch of unknown length is shown before its validation begins."""
    fired = run(kind(), num_training_batches=math.inf, num_val_batches=[1], max_epochs=1)
    screens = []
    fired.at_val_batch = lambda count: screens.append(terminal.screen)
    fired.fit(batches=12)
    assert holds(screens[0][0], "Epoch 0/0", "12")


def test_length_that_becomes_known(kind, terminal, run):
    """The total of an epoch may be another one than that of the epoch before."""
    fired = run(kind(), num_training_batches=math.inf, max_epochs=3)
    fired.start()
    fired.epoch(batches=5)
    fired.trainer.num_training_batches = 6
    fired.epoch()
    assert holds(terminal.screen[0], "6/6")
    fired.trainer.num_training_batches = 8
    fired.epoch()
    assert holds(terminal.screen[0], "8/8")


def test_resume_at_the_end_of_an_epoch(kind, terminal, run):
    """Resumed when only the epoch's end hooks are left, they find a bar."""
    fired = run(kind(), max_epochs=1)
    progress = fired.trainer.progress
    progress.batches_in_epoch, progress.stage = 4, EpochStage.CLOSING
    fired.start()
    fired.bar.on_train_start(*fired.args)
    fired.bar.on_train_epoch_end(*fired.args)
    fired.bar.on_train_end(*fired.args)
    [line] = terminal.screen
    assert holds(line, "Epoch 0/0", "4/4", "loss=0.5")


def test_training_with_nothing_left_to_do(kind, terminal, run):
    """A fit that trains no epoch shows no bar."""
    run(kind(), max_epochs=0).fit()
    assert terminal.screen == []


def test_epoch_that_is_cut_short(kind, terminal, run):
    """An epoch that ends before its last batch shows how far it came."""
    run(kind(), num_training_batches=10, max_epochs=1).fit(batches=7)
    assert holds(terminal.screen[0], "7/10")


def test_print_does_not_tear_the_bars(kind, terminal, run):
    """Text printed while bars are open stands above them, as it is; the bars stay whole."""
    fired = run(kind(), num_val_batches=[2], max_epochs=1)

    def say(count):
        fired.bar.print("said", count, "[bold] 100% :smile:", sep="|")

    fired.at_batch = fired.at_val_batch = say
    fired.fit()
    *said, line = terminal.screen
    assert said == [f"said|{count}|[bold] 100% :smile:" for count in (1, 2, 3, 4, 1, 2)]
    assert holds(line, "Epoch 0/0", "4/4", "loss=0.5")


def test_print_outside_a_run_and_to_other_files(kind, terminal, run):
    """Without an open bar, or to another file, print is the builtin."""
    fired = run(kind())
    other = io.StringIO()
    fired.at_batch = lambda count: fired.bar.print(count, file=other)
    fired.bar.print("before")
    fired.fit()
    fired.bar.print("after")
    assert other.getvalue() == "1\n2\n3\n4\n" * 2
    assert [terminal.screen[0], terminal.screen[-1]] == ["before", "after"]
    assert len(terminal.screen) == 3


@pytest.mark.parametrize("through", ["on_exception", "teardown"])
def test_exception_closes_the_bars(kind, terminal, run, through):
    """After an exception all bars are closed at their last count, and the cursor is back."""
    fired = run(kind(), num_val_batches=[2], num_training_batches=10)

    def fail(count):
        if count == 1 and through == "on_exception":
            raise RuntimeError
        if count == 2:
            raise KeyboardInterrupt

    fired.at_val_batch = fail
    fired.start()
    with pytest.raises((RuntimeError, KeyboardInterrupt)) as caught:
        fired.epoch(batches=7)
    if through == "on_exception":
        fired.bar.on_exception(*fired.args, caught.value)
        fired.bar.on_exception(*fired.args, caught.value)
    fired.bar.teardown(*fired.args, "fit")
    print("Traceback")
    assert not terminal.cursor_is_hidden
    assert holds(terminal.screen[0], "Epoch 0/1", "7/10", "loss=0.5")
    assert terminal.screen[1:] == ["Traceback"]
    assert sys.stdout is terminal.file


def test_bar_is_usable_again(kind, terminal, run):
    """The same bar serves a second fit, also after one that never came to its teardown."""
    bar = kind()
    broken = run(bar, max_epochs=5)
    broken.start()
    broken.epoch(batches=2)
    run(bar, max_epochs=1).fit()
    run(bar, max_epochs=1, num_training_batches=6).fit()
    screen = terminal.screen
    assert len(screen) == 3
    assert holds(screen[0], "Epoch 0/4", "2/4")
    assert holds(screen[1], "Epoch 0/0", "4/4")
    assert holds(screen[2], "Epoch 0/0", "6/6")


@pytest.mark.parametrize("how", ["refresh_rate", "disable", "rank"])
def test_bar_that_is_off(kind, terminal, run, how):
    """A bar that is off draws nothing and reads no metrics, and print still prints."""
    bar = kind(leave=True, **({"refresh_rate": 0} if how == "refresh_rate" else {}))
    if how == "disable":
        bar.disable()
    fired = run(bar, num_val_batches=[2], num_sanity_val_batches=[1], is_global_zero=how != "rank")
    fired.fit()
    fired.evaluate("test", [2])
    bar.print("said")
    assert bar.is_disabled
    assert terminal.screen == ["said"]
    assert fired.trainer.metrics_read == 0


def test_switching_off_and_on_in_a_run(kind, terminal, run):
    """Switched off the bar closes at once; switched on it is back with the next epoch."""
    fired = run(kind(), max_epochs=2)

    def switch(count):
        if count == 2 and fired.trainer.current_epoch == 0:
            fired.bar.disable()
        if count == 4:
            fired.bar.enable()

    fired.at_batch = switch
    fired.fit()
    first, second = terminal.screen
    assert holds(first, "Epoch 0/1", "2/4")
    assert holds(second, "Epoch 1/1", "4/4")


# --- How often


def draws(bar, monkeypatch):
    """Record what is drawn, as (phase, count)."""
    drawn = []
    draw_bar = bar.canvas.draw_bar

    def record(phase, pace, metrics):
        drawn.append((str(phase), pace.count))
        draw_bar(phase, pace, metrics)

    monkeypatch.setattr(bar.canvas, "draw_bar", record)
    return drawn


def test_drawn_ten_times_a_second_and_at_the_last_batch(kind, terminal, run, clock, monkeypatch):
    """Between batches the bar is drawn when 0.1 s have passed, and metrics are read only then."""
    fired = run(kind(), num_training_batches=100, max_epochs=1)
    drawn = draws(fired.bar, monkeypatch)
    fired.at_batch = lambda count: setattr(clock, "seconds", 1000 + count * 0.0251)
    fired.start()
    fired.trainer.progress.begin_epoch()
    fired.bar.on_train_epoch_start(*fired.args)
    fired.batches()
    assert [count for _, count in drawn] == [*range(1, 100, 4), 100]
    assert fired.trainer.metrics_read == len(drawn)


def test_refresh_rate_chooses_the_batches(kind, terminal, run, clock, monkeypatch):
    """With a refresh rate, only its multiples and the last batch are drawn, if it is time."""
    fired = run(kind(refresh_rate=30), num_training_batches=100, max_epochs=1)
    drawn = draws(fired.bar, monkeypatch)
    fired.at_batch = lambda count: setattr(clock, "seconds", 1000 + count)
    fired.start()
    fired.epoch()
    assert [count for _, count in drawn] == [30, 60, 90, 100, 100]


def test_short_epochs_are_not_drawn_more_often(kind, terminal, run, clock, monkeypatch):
    """Many epochs within 0.1 s cost one drawing each, for the last batch."""
    fired = run(kind(), max_epochs=20)
    drawn = draws(fired.bar, monkeypatch)
    fired.fit()
    assert drawn == [("train", 1), *[("train", 4)] * 21]


def test_validation_is_drawn_as_seldom(kind, terminal, run, clock, monkeypatch):
    """Validation batches follow the same rule, and read no metrics while inside fit."""
    fired = run(kind(), num_val_batches=[50], max_epochs=1)
    drawn = draws(fired.bar, monkeypatch)
    fired.at_val_batch = lambda count: setattr(clock, "seconds", 1000 + count * 0.0251)
    fired.start()
    fired.validate()
    of_its_own = fired.trainer.metrics_read
    assert [count for _, count in drawn] == [*range(1, 50, 4), 50, 50]
    assert of_its_own == 1


def test_batches_that_are_not_drawn_touch_nothing(kind, terminal, run, clock):
    """When no drawing is due, a batch looks neither at the trainer nor at what it is given."""
    fired = run(kind(), num_training_batches=1000)
    fired.start()
    fired.trainer.progress.begin_epoch()
    fired.bar.on_train_epoch_start(*fired.args)
    fired.batches(until=1)
    terminal.sync()
    before = len(terminal.output)
    for index in range(1, 999):
        fired.bar.on_train_batch_end(None, None, None, None, index)
    terminal.sync()
    assert len(terminal.output) - before == len(b"\x1b]2;asked 2\x07")
    with pytest.raises(AttributeError):
        fired.bar.on_train_batch_end(None, None, None, None, 999)


@pytest.mark.parametrize(
    "hook", ["on_before_dataloader", "on_train_batch_start", "on_validation_batch_start"]
)
def test_hooks_of_the_hot_path_that_a_bar_leaves_alone(kind, hook):
    """A bar listens once a batch."""
    assert not overrides(kind(), hook)


def test_no_thread_is_started(kind, terminal, run):
    """The libraries' own threads would be in the way of workers that are forked."""
    fired = run(kind(), max_epochs=1)
    threads, before = [], set(threading.enumerate())  # another test may have started one
    fired.at_batch = lambda count: threads.extend(threading.enumerate())
    fired.fit()
    assert len(threads) >= 4
    modules = {type(thread).__module__.partition(".")[0] for thread in set(threads) - before}
    assert not modules & {"rich", "tqdm"}


# --- Where there is no terminal


def test_log_has_a_line_an_epoch(kind, run, capsys):
    """Without a terminal each epoch writes one plain line, when its validation is done."""
    fired = run(kind(), num_training_batches=1000, num_val_batches=[5], num_sanity_val_batches=[2])
    fired.at_val_batch = lambda count: fired.trainer.metrics.update(val_loss=0.25)
    fired.fit()
    assert plain(capsys.readouterr().out) == [
        "Epoch 0/1: 1000/1000 [00:00, loss=0.5, val_loss=0.25]",
        "Epoch 1/1: 1000/1000 [00:00, loss=0.5, val_loss=0.25]",
    ]


def test_log_has_a_line_every_ten_seconds(kind, run, capsys, clock):
    """Within a long epoch or validation a line is written every 10 s, not more often."""
    fired = run(kind(), num_training_batches=30, num_val_batches=[25], max_epochs=1)

    def tick(count):
        clock.seconds += 1

    fired.at_batch = fired.at_val_batch = tick
    fired.fit()
    assert capsys.readouterr().out.splitlines() == [
        "Epoch 0/0: 11/30 [00:10<00:17, 1.10it/s, loss=0.5]",
        "Epoch 0/0: 21/30 [00:20<00:08, 1.05it/s, loss=0.5]",
        "Validation: 11/25 [00:10<00:12, 1.10it/s]",
        "Validation: 21/25 [00:20<00:03, 1.05it/s]",
        "Epoch 0/0: 30/30 [00:30, 1.00it/s, loss=0.5]",
    ]


def test_log_of_an_evaluation(kind, run, capsys):
    """Without a terminal an evaluation of its own writes one line."""
    run(kind()).evaluate("test", [3])
    assert plain(capsys.readouterr().out) == ["Testing: 3/3 [00:00, loss=0.5]"]


def test_log_of_unknown_length(kind, run, capsys):
    """Without a total the line has the count alone."""
    run(kind(), num_training_batches=math.inf, max_epochs=1).fit(batches=7)
    assert plain(capsys.readouterr().out) == ["Epoch 0/0: 7 [00:00, loss=0.5]"]


def test_log_after_an_exception_says_how_far_it_came(kind, run, capsys):
    """Without a terminal too, a run that fails leaves its last count."""
    fired = run(kind())
    fired.start()
    fired.trainer.progress.begin_epoch()
    fired.bar.on_train_epoch_start(*fired.args)
    fired.batches(until=3)
    fired.bar.on_exception(*fired.args, RuntimeError())
    fired.bar.teardown(*fired.args, "fit")
    assert plain(capsys.readouterr().out) == ["Epoch 0/1: 3/4 [00:00]"]


def test_print_in_a_log(kind, run, capsys):
    """Without a terminal print is the builtin."""
    fired = run(kind(), max_epochs=1, num_training_batches=1)
    fired.at_batch = lambda count: fired.bar.print("said", "[bold]")
    fired.fit()
    assert capsys.readouterr().out.splitlines()[0] == "said [bold]"


def test_output_that_does_not_know_whether_it_is_a_terminal(run, monkeypatch):
    """Something that stands in for stdout and can only write is treated as a log."""

    class Sink:
        text = ""

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    fired = run(TQDMProgressBar(), max_epochs=1)
    monkeypatch.setattr(sys, "stdout", Sink())
    fired.fit()
    assert plain(sys.stdout.text) == ["Epoch 0/0: 4/4 [00:00, loss=0.5]"]


def test_forced_colours_do_not_make_a_log_a_terminal(run, capsys, monkeypatch):
    """FORCE_COLOR, which build servers set, does not fill a log with drawings."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    run(RichProgressBar(), max_epochs=1).fit()
    assert plain(capsys.readouterr().out) == ["Epoch 0/0: 4/4 [00:00, loss=0.5]"]
