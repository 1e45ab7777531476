"""`trainer.end_epoch()`: the epoch under way ends after a batch."""

from __future__ import annotations

import pytest

from trainer_hooks import Callback, once
from trainer_hooks.clock.schedules import DueTracker
from trainer_hooks.errors import UsageError


class Ends(Callback):
    """Ends epoch 1 in a hook, from its second batch on."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def run_event(self, event: str, *args) -> None:
        early = event in ("on_train_batch_start", "on_after_backward")
        is_due = event == self.hook and args[0].current_epoch == 1
        if is_due and args[0].progress.batches_completed >= 6 - early:
            args[0].end_epoch()


class Saves(Callback):
    """Saves at a hook of epoch 1."""

    def __init__(self, hook: str, path) -> None:
        self.hook, self.path = hook, path

    def run_event(self, event: str, *args) -> None:
        is_due = event == self.hook and not self.path.exists()
        if is_due and args[0].progress.batches_completed == 6:
            args[0].save_checkpoint(self.path)


@pytest.fixture
def Seen(Tiny):
    """A module that writes down its steps."""

    class Seen(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.seen = []

        def training_step(self, batch, batch_idx):
            self.seen.append((self.current_epoch, batch_idx))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            self.seen.append("validated")

    return Seen


# --- bad input ---


def test_outside_of_a_fit_it_is_an_error(quiet_trainer, Tiny, batches) -> None:
    """There is no epoch to end where nothing is trained."""
    with pytest.raises(UsageError, match=r"trainer.end_epoch\(\) was called outside of a run"):
        quiet_trainer().end_epoch()


# --- what it does ---


@pytest.mark.parametrize(
    "hook", ["on_train_batch_start", "on_after_backward", "on_train_batch_end"]
)
def test_the_epoch_ends_after_the_batch_in_work(hook, Seen, quiet_trainer, batches) -> None:
    """The batch is trained, the epoch's validation follows, and the next epoch is whole."""
    module = Seen()
    trainer = quiet_trainer(max_epochs=3, callbacks=Ends(hook))
    trainer.fit(module, batches(4), batches(1))
    assert module.seen == [
        (0, 0), (0, 1), (0, 2), (0, 3), "validated",
        (1, 0), (1, 1), "validated",
        (2, 0), (2, 1), (2, 2), (2, 3), "validated",
    ]  # fmt: skip
    assert (trainer.global_step, trainer.current_epoch) == (10, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"val_check_interval": 2},
        {"val_check_interval": 0.5},
        {"val_check_interval": 6, "check_val_every_n_epoch": None},
    ],
)
def test_a_validation_due_on_the_last_batch_is_run(options, Seen, quiet_trainer, batches) -> None:
    """A validation that is due on the batch in work comes at the epoch's end, and once."""
    module = Seen()
    trainer = quiet_trainer(max_epochs=2, callbacks=Ends("on_train_batch_end"), **options)
    trainer.fit(module, batches(4), batches(1))
    assert module.seen[-3:] == [(1, 0), (1, 1), "validated"]


def test_a_validation_that_is_not_due_is_not_run(Seen, quiet_trainer, batches) -> None:
    """An epoch that ends between two validations inside it has none of its own."""
    module = Seen()
    options = {"val_check_interval": 4, "max_epochs": 2}
    quiet_trainer(callbacks=Ends("on_train_batch_end"), **options).fit(
        module, batches(4), batches(1)
    )
    assert module.seen[-3:] == ["validated", (1, 0), (1, 1)]


def test_a_window_is_stepped_with(Seen, quiet_trainer, batches) -> None:
    """What is accumulated is not lost, as at the end of a loader that is short."""
    trainer = quiet_trainer(
        max_epochs=2, accumulate_grad_batches=3, callbacks=Ends("on_train_batch_end")
    )
    trainer.fit(Seen(), batches(4))
    assert trainer.global_step == 3
    assert trainer.progress.batches_stepped == 3


def test_an_epoch_is_as_long_as_ever(Seen, quiet_trainer, batches) -> None:
    """How many batches an epoch has does not change with one that is ended early."""
    lengths = []

    class Looks(Callback):
        def run_event(self, event: str, *args) -> None:
            if event.startswith("on_train_") and args[0].global_step:
                lengths.append(args[0].num_training_batches)

    trainer = quiet_trainer(max_epochs=2, callbacks=[Ends("on_train_batch_end"), Looks()])
    trainer.fit(Seen(), batches(4))
    assert trainer.global_step == 6
    assert trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
    assert {*lengths, trainer.num_training_batches, trainer.fit_loop.max_batches} == {4}


def test_asked_for_after_the_last_batch_it_does_nothing(Seen, quiet_trainer, batches) -> None:
    """A request at the end of an epoch is none for the next one."""
    module = Seen()
    quiet_trainer(max_epochs=3, callbacks=Ends("on_train_epoch_end")).fit(module, batches(4))
    assert len(module.seen) == 12


def test_asked_for_at_its_start_one_batch_is_left(Seen, quiet_trainer, batches) -> None:
    """An epoch has a batch at least."""

    class AtOnce(Callback):
        def on_train_epoch_start(self, trainer, module):
            trainer.end_epoch()

    module = Seen()
    quiet_trainer(max_epochs=2, callbacks=AtOnce()).fit(module, batches(4))
    assert module.seen == [(0, 0), (1, 0)]


@pytest.mark.parametrize("hook", ["on_train_batch_start", "on_train_batch_end"])
def test_a_filter_that_ends_the_epoch_is_due_once(hook, Seen, quiet_trainer, batches) -> None:
    """`once` is due where its callback ends the epoch by it, and not again in the next epoch."""
    due_at = []

    class EndsOnce(Callback):
        def on_train_start(self, trainer, module):
            self.due = DueTracker(once("6ba"))
            self.due.start(trainer.clock)

        def run_event(self, event: str, *args) -> None:
            super().run_event(event, *args)
            if event == hook and self.due.is_due(args[0].clock):
                due_at.append(args[0].clock.batches)
                args[0].end_epoch()

    module = Seen()
    quiet_trainer(max_epochs=4, callbacks=EndsOnce()).fit(module, batches(4))
    assert due_at == [6]
    # asked for before a batch, that batch is trained too
    early = 1 if hook == "on_train_batch_start" else 0
    lengths = [[epoch for epoch, _ in module.seen].count(number) for number in range(4)]
    assert lengths == [4, 2 + early, 4, 4]


@pytest.mark.filterwarnings("ignore:a checkpoint was saved in the hook")
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    ("asked", "saved"),
    [
        ("on_train_batch_end", "on_train_batch_end"),
        ("on_batch_checkpoint", "on_batch_checkpoint"),
        ("on_train_batch_end", "on_epoch_checkpoint"),
    ],
)
def test_a_resume_keeps_the_request(
    asked, saved, accumulate, Seen, quiet_trainer, batches, tmp_path
) -> None:
    """A checkpoint from between the request and the end goes on as the uncut run does."""
    path = tmp_path / "cut.ckpt"
    options = {"max_epochs": 3, "accumulate_grad_batches": accumulate}
    uncut = Seen()
    quiet_trainer(callbacks=[Ends(asked), Saves(saved, path)], **options).fit(uncut, batches(4))
    module = Seen()
    trainer = quiet_trainer(**options)
    trainer.fit(module, batches(4), ckpt_path=path)
    assert module.seen == uncut.seen[6:]
    assert module.layer.weight.equal(uncut.layer.weight)
