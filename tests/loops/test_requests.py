"""trainer.request_validation() and trainer.request_checkpoint(): when they are served."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from samples import one_in

from trainer_hooks import Callback, Module
from trainer_hooks.callbacks import Checkpoint, EarlyStopping, ModelCheckpoint
from trainer_hooks.clock.progress import Progress
from trainer_hooks.errors import StopTraining, TrainerHooksWarning, UsageError
from trainer_hooks.hooks.spec import HOOKS
from trainer_hooks.loops.batch_end import UnfinishedSlot

VALIDATION, CHECKPOINT = "request_validation", "request_checkpoint"


class Saving(Checkpoint):
    """Records where it had to save, with the requests that a checkpoint would hold."""

    def __init__(self) -> None:
        self.saved: list[tuple] = []

    def save_now(self, trainer, module) -> None:
        progress = trainer.progress
        assert not progress.is_checkpoint_requested
        self.saved.append((progress.batches_completed, str(progress.stage)))


class Stepless(Module):
    """Trains, and has nothing to validate with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def asking(verb, hook, at, times=1):
    """Return reactions that ask at a hook when so many batches are completed."""

    def react(trainer, *args):
        if trainer.progress.batches_completed in at and not trainer.sanity_checking:
            for _ in range(times):
                getattr(trainer, verb)()

    return {hook: react}


@pytest.fixture
def fit(bare, tiny, recorder, batches):
    """A function that fits two epochs of four batches with reactions; returns recorder, trainer.

    The recorder's `validated` holds how many batches were completed at each validation.
    """

    def run(reactions, *callbacks, val=1, module=None, **options):
        seen = recorder()
        seen.validated = []

        def note(trainer, *args):
            if not trainer.sanity_checking:
                seen.validated.append(trainer.progress.batches_completed)

        seen.at = {"on_validation_start": note}
        for hook, react in reactions.items():
            seen.at[hook] = _both(seen.at.get(hook), react)
        options = {
            "max_epochs": 2,
            "enable_checkpointing": any(isinstance(c, Checkpoint) for c in callbacks),
            **options,
        }
        trainer = bare(seen, *callbacks, **options)
        trainer.fit(module or tiny(), batches(4), batches(val) if val else None)
        return seen, trainer

    return run


def _both(first, second):
    def react(*args):
        if first is not None:
            first(*args)
        second(*args)

    return react


# --- validation ---


@pytest.mark.parametrize(
    ("hook", "at", "validated"),
    [
        ("on_train_start", 0, [1, 4, 8]),
        ("setup", 0, [1, 4, 8]),
        ("on_sanity_check_end", 0, [1, 4, 8]),
        ("on_train_epoch_start", 4, [4, 5, 8]),
        ("on_before_dataloader", 1, [2, 4, 8]),
        ("on_train_batch_start", 1, [2, 4, 8]),
        ("on_before_backward", 1, [2, 4, 8]),
        ("on_train_batch_end", 2, [2, 4, 8]),
        ("on_batch_checkpoint", 2, [3, 4, 8]),
        ("on_train_batch_start", 3, [4, 8]),
        ("on_train_batch_end", 4, [4, 8]),
        ("on_batch_checkpoint", 4, [4, 8]),
        ("on_train_batches_end", 4, [4, 8]),
        ("on_validation_end", 4, [4, 8]),
        ("on_train_epoch_end", 4, [4, 5, 8]),
        ("on_epoch_checkpoint", 4, [4, 5, 8]),
    ],
)
def test_where_a_validation_is_run(hook, at, validated, fit) -> None:
    """After the batch in work; at an epoch's end as its own; between epochs after the next."""

    def ask(trainer, *args):
        if trainer.progress.batches_completed == at:
            trainer.request_validation()

    seen, trainer = fit({hook: ask}, num_sanity_val_steps=1)
    assert seen.validated == validated
    assert not trainer.progress.is_validation_requested
    seen.assert_paired()


def test_the_place_of_a_requested_validation(fit) -> None:
    """It comes between on_train_batch_end and on_batch_checkpoint, with all its hooks, once."""
    seen, _ = fit(asking(VALIDATION, "on_train_batch_start", {1}, times=3), max_epochs=1)
    start = seen.names.index("on_validation_run_start")
    assert seen.names[start - 1] == "on_train_batch_end"
    assert seen.names[seen.names.index("on_validation_run_end") + 1] == "on_batch_checkpoint"
    assert seen.count("on_validation_run_start") == 2


def test_on_the_last_batch_it_is_the_epochs_own(fit) -> None:
    """It comes after on_train_batches_end, also where no validation was due in that epoch."""
    reactions = asking(VALIDATION, "on_train_batch_start", {3})
    seen, _ = fit(reactions, max_epochs=1, check_val_every_n_epoch=2)
    start = seen.names.index("on_validation_run_start")
    assert seen.names[start - 1] == "on_train_batches_end"
    assert seen.validated == [4]


def test_a_request_for_weights_that_were_just_validated(fit) -> None:
    """At an epoch's end it is served by the validation that was; no later one comes of it."""
    seen, _ = fit(asking(VALIDATION, "on_batch_checkpoint", {4}), val_check_interval=2)
    assert seen.validated == [2, 4, 6, 8]


@pytest.mark.parametrize(
    ("options", "without"),
    [
        ({}, [4, 8]),
        ({"val_check_interval": 2}, [2, 4, 6, 8]),
        ({"val_check_interval": 0.75}, [3, 7]),
        ({"val_check_interval": 3, "check_val_every_n_epoch": None}, [3, 6]),
        ({"check_val_every_n_epoch": 2}, [8]),
        ({"check_val_every_n_epoch": 3}, []),
        ({"val_check_interval": 2, "check_val_every_n_epoch": 2}, [6, 8]),
        ({"max_steps": 7, "val_check_interval": 4}, [4, 7]),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", range(7))
def test_with_any_schedule(at, options, without, fit) -> None:
    """A request adds one validation after its batch to whatever is scheduled, and moves none."""
    seen, _ = fit(asking(VALIDATION, "on_train_batch_start", {at}), **options)
    assert seen.validated == sorted({*without, at + 1})


def test_asked_for_after_each_batch(fit) -> None:
    """A request a batch gives a validation a batch."""
    seen, _ = fit(asking(VALIDATION, "on_train_batch_end", set(range(9))))
    assert seen.validated == list(range(1, 9))


@pytest.mark.parametrize("end", ["stop", "raise", "max_steps"])
def test_a_request_in_the_batch_that_ends_the_run(end, fit) -> None:
    """The final weights are validated once, whatever ends the run inside an epoch."""

    def react(trainer, *args):
        if trainer.progress.batches_completed == 1:
            trainer.request_validation()
            if end == "stop":
                trainer.stop()
            elif end == "raise":
                raise StopTraining("enough")

    options = {"max_steps": 2} if end == "max_steps" else {}
    seen, _ = fit({"on_train_batch_start": react}, **options)
    assert seen.validated == [2]
    seen.assert_paired()


def test_an_epoch_of_unknown_length(bare, tiny, recorder, batches) -> None:
    """The last batch of an iterable is known as such: its validation is the epoch's."""
    validated = []
    seen = recorder().on("on_validation_start", lambda trainer, *args: validated.append(1))
    seen.on("on_train_batch_end", lambda trainer, *args: trainer.request_validation())

    class Endless:
        def __iter__(self):
            return iter(batches(3))

    bare(seen).fit(tiny(), Endless(), batches(1))
    assert len(validated) == 3


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("step", "Stepless has no validation_step"),
        ("data", "fit was given no validation data"),
        ("limit", "the validation loaders give no batch"),
    ],
)
@pytest.mark.parametrize("at", [{0, 1, 2, 5}, {3}])
def test_a_request_where_nothing_can_be_validated(why, said, at, fit, tiny) -> None:
    """It is warned of once a fit, with the reason; the training goes on."""
    options = {"limit_val_batches": 0} if why == "limit" else {}
    module = Stepless() if why == "step" else tiny()
    reactions = asking(VALIDATION, "on_train_batch_start", at)
    with pytest.warns(TrainerHooksWarning, match=said) as caught:
        seen, trainer = fit(reactions, val=1 if why == "limit" else 0, module=module, **options)
    # besides the advice before the fit
    assert len([one for one in caught if one.category is TrainerHooksWarning]) == 1
    assert seen.validated == []
    assert trainer.global_step == 8
    assert not trainer.progress.is_validation_requested


def test_a_requested_validation_is_what_early_stopping_waits_for(fit) -> None:
    """Where validations are counted, a requested one counts."""
    stopping = EarlyStopping(
        "val_loss", patience=1, min_delta=100.0, check_on_train_epoch_end=False
    )
    seen, trainer = fit(asking(VALIDATION, "on_train_batch_end", {1, 2}), stopping)
    assert seen.validated == [1, 2]
    assert trainer.should_stop


def test_a_checkpoint_waits_for_the_requested_validation(fit, tmp_path) -> None:
    """A save due on the last batch waits for the validation that ranks it, also a requested one."""
    saver = ModelCheckpoint(tmp_path / "saved", monitor="val_loss", every_n_train_steps=4)
    reactions = asking(VALIDATION, "on_train_batch_start", {3})
    seen, trainer = fit(reactions, saver, max_epochs=1, check_val_every_n_epoch=2)
    assert seen.validated == [4]
    assert saver.best_model_score == trainer.callback_metrics["val_loss"]


# --- checkpoints ---


@pytest.mark.parametrize(
    ("hook", "at", "saved"),
    [
        ("setup", 0, (1, "batches")),
        ("on_train_start", 0, (1, "batches")),
        ("on_train_batch_start", 1, (2, "batches")),
        ("on_train_batch_end", 2, (2, "batches")),
        ("on_batch_checkpoint", 2, (2, "batches")),
        ("on_train_batch_end", 4, (4, "batches")),
        ("on_train_batches_end", 4, (4, "ended")),
        ("on_validation_batch_end", 4, (4, "ended")),
        ("on_train_epoch_end", 4, (4, "ended")),
        ("on_epoch_checkpoint", 4, (4, "ended")),
        ("on_iteration_end", 4, (4, "between")),
        ("on_iteration_start", 4, (5, "batches")),
    ],
)
def test_where_a_checkpoint_is_saved(hook, at, saved, fit) -> None:
    """At the next slot: after the batch in work, the epoch, or the cycle; by every callback."""
    savers = [Saving(), Saving()]
    seen, _ = fit(asking(CHECKPOINT, hook, {at}, times=2), *savers, iteration_length=1)
    assert [saver.saved for saver in savers] == [[saved], [saved]]
    seen.assert_paired()


def test_it_is_saved_after_the_hook_of_its_slot(fit) -> None:
    """So the file holds the changes of every callback in that hook."""
    order = []

    class Late(Saving):
        def on_batch_checkpoint(self, trainer, module):
            order.append("hook")

        def save_now(self, trainer, module):
            order.append("file")

    fit(asking(CHECKPOINT, "on_train_batch_start", {1}), Late(), max_epochs=1)
    assert order == ["hook", "hook", "file", "hook", "hook"]


@pytest.mark.parametrize("hook", ["on_checkpoint_saved", "on_save_checkpoint"])
def test_a_request_while_saving(hook, fit, tmp_path) -> None:
    """One made while another is served waits for the next slot, and does not go round forever."""
    saver = ModelCheckpoint(tmp_path / "saved", every_n_epochs=0)
    reactions = asking(CHECKPOINT, "on_train_batch_start", {0})
    reactions[hook] = lambda trainer, *args: trainer.request_checkpoint()
    with pytest.warns(TrainerHooksWarning, match="neither a batch nor an epoch ended after"):
        fit(reactions, saver, max_epochs=1)
    assert len(list((tmp_path / "saved").iterdir())) == 5


def test_a_trainer_without_a_checkpoint_callback(fit) -> None:
    """It warns once per fit that nothing is saved, and names the callback to add."""
    with pytest.warns(TrainerHooksWarning, match=r"no checkpoint .*add ModelCheckpoint") as caught:
        _, trainer = fit(asking(CHECKPOINT, "on_train_batch_start", {0, 3, 5}))
    assert len(caught) == 1
    assert not trainer.progress.is_checkpoint_requested


def test_a_dry_run_saves_nothing(fit, tmp_path) -> None:
    """fast_dev_run writes no file and warns of none, with or without a callback."""
    reactions = asking(CHECKPOINT, "on_train_batch_start", {0})
    fit(reactions, fast_dev_run=True)
    fit(reactions, ModelCheckpoint(tmp_path / "saved"), fast_dev_run=True)
    assert not (tmp_path / "saved").exists()


def test_a_checkpoint_callback_that_cannot_save_on_request(fit) -> None:
    """One without save_now is named in a warning; the others save."""

    class Plain(Checkpoint):
        pass

    saver = Saving()
    with pytest.warns(TrainerHooksWarning, match=r"Plain \(state_key .*Plain'\) has no save_now"):
        fit(asking(CHECKPOINT, "on_train_batch_start", {1}), Plain(), saver)
    assert saver.saved == [(2, "batches")]


def test_a_save_that_fails(fit, tmp_path) -> None:
    """The error names the callback, and a later checkpoint still holds the request."""

    class Fails(Checkpoint):
        def save_now(self, trainer, module):
            raise OSError("disk full")

        def on_exception(self, trainer, module, exception):
            trainer.save_checkpoint(tmp_path / "after.ckpt")

    with pytest.raises(OSError, match="disk full") as caught:
        fit(asking(CHECKPOINT, "on_train_batch_start", {1}), Fails())
    assert any("raised by save_now() of callback" in note for note in caught.value.__notes__)
    counters = torch.load(tmp_path / "after.ckpt", weights_only=True)["trainer_hooks"]["progress"]
    assert counters["is_checkpoint_requested"]


def test_a_save_that_fails_in_a_callback_to_be_disabled(fit) -> None:
    """It is treated as a hook that fails: the callback is taken out, the others save."""

    class Fails(Checkpoint):
        on_error = "disable"

        def save_now(self, trainer, module):
            raise OSError("disk full")

    fails, saver = Fails(), Saving()
    with pytest.warns(TrainerHooksWarning, match="save_now"):
        _, trainer = fit(asking(CHECKPOINT, "on_train_batch_start", {1, 2}), fails, saver)
    assert fails not in trainer.callbacks
    assert saver.saved == [(2, "batches"), (3, "batches")]


def test_stop_training_raised_while_saving(fit) -> None:
    """It ends the run in order, after all the others have saved."""

    class Stops(Checkpoint):
        def save_now(self, trainer, module):
            raise StopTraining("enough is kept")

    saver = Saving()
    seen, _ = fit(asking(CHECKPOINT, "on_train_batch_start", {1}), Stops(), saver)
    assert saver.saved == [(2, "batches")]
    assert seen.count("on_train_batch_end") == 2
    assert seen.count("on_stop_training_error") == 1
    seen.assert_paired()


# --- both ---

IN_FIT = [
    hook
    for hook in HOOKS
    if not hook.startswith(("on_init", "on_test", "on_predict", "on_evaluation", "on_close"))
    and hook not in {"on_exception", "on_keyboard_interrupt", "on_post_close", "on_load_checkpoint"}
    and hook not in {"on_stop_training_error", "on_before_restore"}
]
TOO_LATE = {"on_train_end", "on_fit_end", "teardown"}


@pytest.mark.parametrize("hook", one_in(2, IN_FIT, otherwise="slow"))
def test_asking_in_any_hook(hook, fit, defaulted, tmp_path) -> None:
    """Both can be requested in every hook of fit, once each, and both are served."""
    left = [True]

    def ask(trainer, *args):
        if left and left.pop():
            trainer.request_validation()
            trainer.request_checkpoint()

    saver = Saving()
    scheduled = ModelCheckpoint(tmp_path / "scheduled", every_n_train_steps=3)
    options = {"num_sanity_val_steps": 1, "iteration_length": 1, "log_every_n_steps": 1}
    arguments = ({hook: ask}, saver, scheduled)
    if hook in TOO_LATE:
        with pytest.warns(TrainerHooksWarning, match="neither a batch nor an epoch ended after"):
            seen, trainer = fit(*arguments, module=defaulted(), **options)
        assert saver.saved == []
    else:
        seen, trainer = fit(*arguments, module=defaulted(), **options)
        assert len(saver.saved) == 1
    assert left == []
    assert {4, 8} <= set(seen.validated)
    assert not trainer.progress.is_validation_requested
    assert not trainer.progress.is_checkpoint_requested
    seen.assert_paired()


def test_a_request_for_both(fit) -> None:
    """The validation comes first, so that the checkpoint holds its metrics."""
    found = []

    class Looks(Saving):
        def save_now(self, trainer, module):
            found.append("val_loss" in trainer.callback_metrics)

    reactions = asking(VALIDATION, "on_train_batch_start", {1})
    reactions["on_train_batch_end"] = asking(CHECKPOINT, "", {2})[""]
    fit(reactions, Looks(), max_epochs=1)
    assert found == [True]


def test_a_validation_asked_for_too_late(fit) -> None:
    """Where weights that were not validated stay so, it is said; a later fit does not do it."""
    options = {"check_val_every_n_epoch": 3, "max_epochs": 1}
    with pytest.warns(TrainerHooksWarning, match="no training batch ended after it"):
        seen, trainer = fit(asking(VALIDATION, "on_train_end", {4}), **options)
    assert seen.validated == []
    assert not trainer.progress.is_validation_requested


def test_a_run_that_is_broken_off_forgets_its_requests(bare, tiny, recorder, batches) -> None:
    """Requests of a fit that failed are neither served in the next one nor warned of."""
    seen = recorder()

    def fail(trainer, *args):
        trainer.request_validation()
        trainer.request_checkpoint()
        seen.at.clear()
        raise ValueError("no")

    trainer, module = bare(seen.on("on_train_batch_start", fail)), tiny()
    with pytest.raises(ValueError, match="no"):
        trainer.fit(module, batches(3), batches(1))
    trainer.fit(module, batches(3), batches(1))
    assert seen.count("on_validation_start") == 1


@pytest.mark.parametrize(
    ("verb", "instead"),
    [(VALIDATION, r"trainer\.validate"), (CHECKPOINT, r"trainer\.save_checkpoint")],
)
def test_outside_of_fit(verb, instead, bare, tiny, recorder, batches) -> None:
    """It is a UsageError outside of fit, and names the method to call instead."""
    trainer = bare()
    with pytest.raises(UsageError, match=f"{verb}.. was called outside of a run.*{instead}"):
        getattr(trainer, verb)()
    trainer.fit(tiny(), batches(1))
    with pytest.raises(UsageError, match="outside of a run"):
        getattr(trainer, verb)()
    for fn in ("validate", "test", "predict"):
        inside = bare(recorder().on("setup", lambda trainer, *args: getattr(trainer, verb)()))
        with pytest.raises(UsageError, match=f"called in {fn}"):
            getattr(inside, fn)(tiny(), batches(1))


def test_requests_before_a_state_is_loaded_still_stand() -> None:
    """A request in a setup hook survives the restore of a checkpoint after it."""
    progress = Progress(is_validation_requested=True)
    progress.load_state_dict(Progress(is_checkpoint_requested=True).state_dict())
    assert (progress.is_validation_requested, progress.is_checkpoint_requested) == (True, True)


class Named(Callback):
    """Makes its state key anew each time, as one of parts does."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def state_key(self) -> str:
        return f"the {self.name}"


@pytest.mark.parametrize(
    ("hook", "after", "is_open"),
    [
        ("on_batch_checkpoint", "first", True),
        ("on_batch_checkpoint", "second", False),
        ("on_batch_checkpoint", "one that is gone", False),
        ("save_now", "second", True),
        ("save_now", "third", False),
        ("save_now", "first", False),  # it is no saver
    ],
)
def test_whose_turn_a_resumed_slot_still_holds(hook, after, is_open) -> None:
    """Those after the one that had saved, by its key: the hook's listeners, or the savers asked."""
    first, second, third = callbacks = [Named(name) for name in ("first", "second", "third")]
    context = SimpleNamespace(
        resumed={"trainer_hooks": {"slot": {"hook": hook, "after": f"the {after}"}}},
        training=SimpleNamespace(progress=Progress()),
        connector=SimpleNamespace(callbacks=callbacks),
        hooks=SimpleNamespace(has_listeners_after=lambda _, found: found is first),
    )
    assert UnfinishedSlot(context, SimpleNamespace(savers=[second, third])).is_open is is_open
