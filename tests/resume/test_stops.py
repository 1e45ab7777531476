"""A stop that was requested before the cut ends the resumed run where it ended the uncut one."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from samples import one_in
from torch.utils.data import DataLoader

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import EarlyStopping, ModelCheckpoint

BATCH_OF_STOP = 7


class Stopper(Callback):
    """Requests a stop at a hook, once a number of batches is done; keeps no state."""

    def __init__(self, hook: str = "on_train_batch_end", how: str = "stop") -> None:
        self.hook, self.how = hook, how

    def run_event(self, event: str, *args) -> None:
        trainer = args[0]
        if event != self.hook or trainer.progress.batches_completed < BATCH_OF_STOP:
            return
        if self.how == "should_stop":
            trainer.should_stop = True
        elif not trainer.should_stop:
            trainer.stop("enough")
            if self.how == "raise":
                raise StopTraining("enough")


class Deciding(Stopper):
    """Leaves it to its own hooks whether a resumed run stops; here it does not."""

    renews_stop = True


def setup_of(kit, *callbacks, **options):
    return kit.Setup(
        kit.Net(), DataLoader(kit.Samples(), kit.BATCH_SIZE), DataLoader(kit.Samples(11), 4),
        options, list(callbacks),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hook", "how"),
    one_in(4, [
        pytest.param(hook, how, id=f"{hook}-{how}")
        for hook in ("on_train_batch_end", "on_validation_end", "on_train_epoch_end")
        for how in ("stop", "should_stop", "raise")
    ]),
)  # fmt: skip
def test_a_run_that_was_to_stop_stops(lab, kit, hook, how) -> None:
    """From every slot of the run, after the request too, the rest of it is the same."""
    assert lab.check(lambda: setup_of(kit, Stopper(hook, how)), drawn=None) > BATCH_OF_STOP


@pytest.mark.slow
def test_a_stop_waits_for_the_minimum_length(lab, kit) -> None:
    """A request that is put off by `min_epochs` is put off in the resumed run, too."""
    make = lambda: setup_of(kit, Stopper(), min_epochs=3, max_epochs=5)  # noqa: E731
    assert lab.check(make, cuts=lambda cut: cut in ("batch-07", "epoch-01", "batch-12")) == 3


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("pytorch_lightning") is None, reason="needs pytorch-lightning"
)
def test_a_guest_that_was_to_stop_the_run_stops_it(lab, kit) -> None:
    """Lightning's EarlyStopping, which does not ask again by itself."""
    from pytorch_lightning.callbacks import EarlyStopping as Guest

    make = lambda: setup_of(kit, Guest("val_loss", patience=1, min_delta=100.0))  # noqa: E731
    assert lab.check(make, cuts=lambda cut: cut.startswith("epoch")) == 2


@pytest.fixture
def stopped(lab, kit):
    """Return a function that runs to a stop, and resumes from the last checkpoint with others."""

    def resume(first, then=(), **options):
        saver = lambda: ModelCheckpoint(kit.folder / "saved", save_last=True)  # noqa: E731
        uncut = lab.run(lambda: setup_of(kit, first, saver()), "uncut")
        assert uncut.trainer.current_epoch == 2
        path = kit.folder / "saved" / "last.ckpt"
        return lab.run(lambda: setup_of(kit, *then, saver(), **options), "resumed", path).trainer

    return resume


def test_other_limits_go_on_beyond_a_stop(stopped) -> None:
    """With a `max_epochs` that was raised a finished run goes on, as in Lightning."""
    assert stopped(Stopper("on_epoch_end"), max_epochs=4).current_epoch == 4


def test_a_run_without_the_callback_goes_on(stopped) -> None:
    """A stop does not outlive the callback that requested it."""
    assert stopped(Stopper("on_epoch_end")).current_epoch == 3


class Raises(Stopper):
    """Ends the run by an error alone."""

    def run_event(self, event: str, *args) -> None:
        if event == self.hook and args[0].progress.batches_completed == BATCH_OF_STOP:
            raise StopTraining("enough")


def test_a_callback_that_raised_nothing_is_no_stopper(lab, kit) -> None:
    """With the checkpoint of a `StopTraining` the last callback of the hook is not named."""
    last = Stopper("none")  # listens at each hook
    path = kit.folder / "x.ckpt"

    class Saves(Callback):
        def on_batch_checkpoint(self, trainer, module) -> None:
            if trainer.should_stop:
                trainer.save_checkpoint(path)

    lab.run(lambda: setup_of(kit, Raises(), Saves(), last), "uncut")
    stop = torch.load(path, weights_only=True)["trainer_hooks"]["stop"]
    assert (stop["reason"], stop["stoppers"]) == ("enough", [""])


def test_a_callback_may_decide_itself(stopped) -> None:
    """With `renews_stop` the request in the checkpoint is left to the callback."""
    assert stopped(Deciding("on_epoch_end"), [Deciding("none")]).current_epoch == 3


def test_a_hook_may_withdraw_the_stop(stopped) -> None:
    """`trainer.should_stop = False` in `on_train_start` lets the run go on."""

    class Goes(Callback):
        def on_train_start(self, trainer, module) -> None:
            assert (trainer.should_stop, trainer.stop_reason) == (True, "enough")
            trainer.should_stop = False

    assert stopped(Stopper("on_epoch_end"), [Stopper("none"), Goes()]).current_epoch == 3


def test_more_patience_goes_on(stopped) -> None:
    """What stops early decides by its present options, as before."""
    stopper = EarlyStopping("val_loss", patience=1, min_delta=100.0)
    more = EarlyStopping("val_loss", patience=9, min_delta=100.0)
    assert stopped(stopper, [more]).current_epoch == 3


@pytest.mark.slow
def test_a_checkpoint_after_the_fit_holds_no_stop(lab, kit) -> None:
    """A run that has followed the request is over: a resume from its end goes on."""
    first = lab.run(lambda: setup_of(kit, Stopper()), "uncut").trainer
    path = kit.folder / "after.ckpt"
    first.save_checkpoint(path)
    resumed = lab.run(lambda: setup_of(kit, Stopper("none")), "resumed", path).trainer
    assert (first.current_epoch, resumed.current_epoch) == (2, 3)
