"""Where handlers of Ignite go, what is refused, and what they share."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("ignite")

from ignite.engine import Engine, Events
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EarlyStopping,
    TerminateOnNan,
    TimeLimit,
)

from trainer_hooks import Trainer
from trainer_hooks.adapters.ignite import adapt, attach
from trainer_hooks.connector import CallbackConnector
from trainer_hooks.errors import CallbackError, UsageError
from trainer_hooks.testing import TinyModule

OFF = {
    "accelerator": "cpu", "logger": False, "plugins": False, "enable_progress_bar": False,
    "enable_model_summary": False, "enable_run_manifest": False, "max_epochs": 2,
}  # fmt: skip


def fit(*callbacks, **options):
    trainer = Trainer(
        callbacks=list(callbacks), **{**OFF, "enable_checkpointing": False, **options}
    )
    trainer.fit(TinyModule())
    return trainer


def listened(*callbacks) -> set[str]:
    connector = CallbackConnector(list(callbacks), discover=False)
    return set(connector.relay.listened)


# --- bad input ---


def test_a_handler_of_no_known_place_is_refused() -> None:
    """The error says how to name the event."""
    with pytest.raises(CallbackError, match=r"nobody says on which event.*event=Events\.EPOCH_COM"):
        adapt(lambda engine: None)


@pytest.mark.parametrize("event", [Events.DATALOADER_STOP_ITERATION, Events.INTERRUPT])
def test_an_event_that_is_not_fired_is_refused(event) -> None:
    """Such a handler would wait for ever: the error names the event, and those that there are."""
    with pytest.raises(CallbackError, match=rf"on Events\.{event.name} of the engine of train"):
        adapt(lambda: None, event=event)
    with pytest.raises(CallbackError, match=r"Events\.GET_BATCH_STARTED of the engine of valid"):
        adapt(lambda: None, event=Events.GET_BATCH_STARTED, on="validation")


def test_an_unknown_engine_is_refused() -> None:
    """There are two."""
    with pytest.raises(CallbackError, match="must be 'train' or 'validation'"):
        adapt(lambda: None, event=Events.STARTED, on="test")


def test_a_handler_runs_no_engine() -> None:
    """`engine.run()` and the end of a validation are errors with what to do instead."""
    guest = adapt(lambda engine: engine.run([1]), event=Events.STARTED)
    with pytest.raises(UsageError, match=r"engine\.run\(\) was called by a handler of Ignite"):
        fit(guest)
    guest = adapt(lambda engine: engine.terminate(), event=Events.STARTED, on="validation")
    with pytest.raises(UsageError, match="a validation here runs to its end"):
        fit(guest)


# --- what it does ---


def test_only_what_is_wanted_is_wired() -> None:
    """A handler costs nothing at the hooks of events to which it does not listen."""
    always = {"setup", "on_train_epoch_start"}
    assert listened(adapt(TerminateOnNan())) == {*always, "on_train_batch_end"}
    early = EarlyStopping(2, lambda engine: 1.0, Engine(lambda engine, batch: None))
    assert listened(adapt(early)) == {*always, "on_validation_end"}


def test_a_saver_takes_the_place_of_the_default_one(tmp_path) -> None:
    """A Checkpoint of Ignite counts as one."""
    module = TinyModule()
    saver = Checkpoint({"model": module}, DiskSaver(tmp_path / "there"))
    trainer = Trainer(callbacks=[adapt(saver)], **OFF, default_root_dir=tmp_path)
    assert [callback.guest for callback in trainer.checkpoint_callbacks] == [saver]


def test_guests_share_the_engines() -> None:
    """Events are fired once, in the order of the callbacks, on one engine for all."""
    seen = []
    first = adapt(lambda engine: seen.append(("first", engine)), event=Events.EPOCH_COMPLETED)
    second = attach(
        lambda train, validation: train.add_event_handler(
            Events.EPOCH_COMPLETED, lambda engine: seen.append(("second", engine))
        )
    )
    fit(first, second)
    assert [name for name, _ in seen] == ["first", "second"] * 2
    assert len({id(engine) for _, engine in seen}) == 1


def test_each_fit_has_engines_of_its_own() -> None:
    """A guest takes part in a second fit as in a first one."""
    seen = []
    guest = adapt(lambda engine: seen.append(engine.state.iteration), event=Events.COMPLETED)
    fit(guest)
    fit(guest)
    assert seen == [6, 6]


def test_a_copy_keeps_its_place() -> None:
    """A deep copy of an adapter listens to the same events, with a copy of the handler."""
    guest = adapt(TimeLimit(60), event=Events.EPOCH_COMPLETED)
    other = copy.deepcopy(guest)
    assert other.guest is not guest.guest
    assert listened(other) == listened(guest)


def test_a_module_without_validation_fires_none() -> None:
    """The engine of validations stands still where nothing is validated, and in a sanity check."""
    seen = []
    guest = adapt(lambda: seen.append(1), event=Events.COMPLETED, on="validation")
    fit(guest, limit_val_batches=0)
    assert not seen
    fit(guest, num_sanity_val_steps=1)
    assert len(seen) == 2
