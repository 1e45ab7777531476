"""Where handlers of Ignite go, what is refused, and what they share."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("ignite")

import torch
from ignite.engine import Engine, EventEnum, Events
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EarlyStopping,
    ModelCheckpoint,
    TerminateOnNan,
    TimeLimit,
    global_step_from_engine,
)
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Module, Trainer
from trainer_hooks.adapters.ignite import adapt, attach
from trainer_hooks.connector.connector import CallbackConnector
from trainer_hooks.errors import CallbackError, StateKeyError, UsageError
from trainer_hooks.testing import TinyModule

pytestmark = pytest.mark.slow  # the import of the framework alone is

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


class FailingValidation(TinyModule):
    def validation_step(self, batch, batch_idx):
        raise ValueError("no such label")


class FailingTraining(TinyModule):
    def training_step(self, batch, batch_idx):
        raise ValueError("no such label")

    def validation_step(self, batch, batch_idx):
        """Pass."""


@pytest.mark.parametrize(
    ("module", "wanted"),
    [(FailingValidation, ["validation", "train"]), (FailingTraining, ["train"])],
)
def test_an_error_is_told_to_the_engine_that_it_leaves(module, wanted) -> None:
    """One of a validation goes through both engines, as it does where a handler evaluates."""
    seen, quiet = [], {**OFF, "enable_checkpointing": False}

    def add(train, validation) -> None:
        train.add_event_handler(Events.EXCEPTION_RAISED, note, "train")
        validation.add_event_handler(Events.EXCEPTION_RAISED, note, "validation")

    def note(engine, error, name) -> None:
        assert str(error) == "no such label"
        seen.append(name)

    trainer = Trainer(callbacks=[attach(add)], num_sanity_val_steps=0, **quiet)
    with pytest.raises(ValueError, match="no such label"):
        trainer.fit(module())
    assert seen == wanted
    seen.clear()
    alone = adapt(note, "alone", event=Events.EXCEPTION_RAISED, on="validation")
    trainer = Trainer(callbacks=[alone], num_sanity_val_steps=0, **quiet)
    with pytest.raises(ValueError, match="no such label"):
        trainer.fit(module())
    assert seen == (["alone"] if "validation" in wanted else [])


# --- bad input ---


def test_a_handler_of_no_known_place_is_refused() -> None:
    """The error says how to name the event."""
    with pytest.raises(CallbackError, match=r"its event is not known.*event=Events\.EPOCH_COM"):
        adapt(lambda engine: None)


@pytest.mark.parametrize("event", [Events.GET_BATCH_STARTED, Events.INTERRUPT])
def test_an_event_that_is_not_fired_is_refused(event) -> None:
    """Such a handler would wait for ever: the error names the event, and those that there are."""
    with pytest.raises(CallbackError, match=rf"Events\.{event.name} of the engine of valid"):
        adapt(lambda: None, event=event, on="validation")


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
    guest = adapt(lambda engine: engine.interrupt(), event=Events.STARTED, on="validation")
    with pytest.raises(UsageError, match=r"or interrupt\(\) on the engine of a validation"):
        fit(guest)


# --- what it does ---


def test_only_what_is_wanted_is_wired() -> None:
    """A handler costs nothing at the hooks of events to which it does not listen."""
    always = {"setup", "on_train_start", "on_train_epoch_start"}
    assert listened(adapt(TerminateOnNan())) == {*always, "on_train_batch_end"}
    early = EarlyStopping(2, lambda engine: 1.0, Engine(lambda engine, batch: None))
    # the batches of a validation are counted for the handlers of its end
    of_validation = {"on_validation_start", "on_validation_batch_end", "on_validation_end"}
    assert listened(adapt(early)) == {*always, *of_validation}


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


def test_generators_of_loaders_are_not_saved_as_those_of_a_handler() -> None:
    """The engines' `state.dataloader` is the run's loader, whose generators are saved with it."""
    seen, names = [], set()

    class Saves(Callback):
        def on_train_epoch_end(self, trainer, module) -> None:
            names.update(trainer.dump_checkpoint()["trainer_hooks"]["generators"])

    def look(engine) -> None:
        seen.append(id(engine.state.dataloader))  # the loader would be reachable from `look`

    generator = torch.Generator()
    data = TensorDataset(torch.ones(4, 2), torch.zeros(4, dtype=torch.long))
    loaders = [DataLoader(data, generator=generator), DataLoader(data, generator=generator)]
    trainer = Trainer(
        callbacks=[
            adapt(look, event=Events.ITERATION_COMPLETED),
            attach(lambda _, validation: validation.add_event_handler(Events.COMPLETED, look)),
            Saves(),
        ],
        **{**OFF, "max_epochs": 1},
        enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(TinyModule(), *loaders)
    assert set(seen) == set(map(id, loaders))
    assert names == set()


def test_an_event_of_ones_own_is_refused() -> None:
    """The engines here do not know it; the message names the event."""

    class Own(EventEnum):
        FOO = "foo"

    with pytest.raises(CallbackError, match=r"on Own\.FOO: such an event is not fired here"):
        adapt(lambda: None, event=Own.FOO)
    with pytest.raises(ValueError, match="the user's"):
        attach(lambda *_: raise_value_error())


def raise_value_error() -> None:
    raise ValueError("the user's")


def test_two_handlers_of_one_class_need_two_keys() -> None:
    """The error says how: the key is made of the class's name."""

    def patient():
        return EarlyStopping(2, lambda _: 0.0, Engine(lambda *_: None))

    with pytest.raises(StateKeyError, match="Make one of them an object of a subclass"):
        Trainer(callbacks=[patient(), patient()], **OFF)
    other = type("Other", (EarlyStopping,), {})(2, lambda _: 0.0, Engine(lambda *_: None))
    keys = {one.state_key for one in Trainer(callbacks=[patient(), other], **OFF).callbacks}
    assert {"ignite:EarlyStopping", "ignite:Other"} <= keys


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


class Recording:
    """Add handlers that write down the events of the training, with the counters."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def __call__(self, train, validation=None) -> None:
        for event in Events:
            if event.name not in ("EXCEPTION_RAISED", "TERMINATE_SINGLE_EPOCH"):
                train.add_event_handler(event, self._note, event.name)

    def _note(self, engine, name) -> None:
        self.seen.append((name, engine.state.epoch, engine.state.iteration))


class SaveInside(Callback):
    """Save after a batch, inside an epoch."""

    def __init__(self, batches: int, path) -> None:
        self.batches, self.path = batches, path

    def on_batch_checkpoint(self, trainer, module) -> None:
        if trainer.progress.batches_completed == self.batches:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("done", [1, 3, 4])
def test_a_resume_inside_an_epoch_begins_it_again(done, tmp_path) -> None:
    """The epoch is begun once more for the handlers, by an engine of Ignite and here."""
    there, here = Recording(), Recording()
    engine = Engine(lambda engine, batch: None)
    there(engine)
    engine.load_state_dict({"iteration": done, "max_epochs": 3, "epoch_length": 3})
    engine.run([0, 1, 2])
    path = tmp_path / "cut.ckpt"
    fit(SaveInside(done, path), max_epochs=2)
    # what listens to the start of an epoch comes first: all hear of the start of the run before
    started = []
    guests = [adapt(lambda: started.append("epoch"), event=Events.EPOCH_STARTED), attach(here)]
    trainer = Trainer(callbacks=guests, **{**OFF, "enable_checkpointing": False, "max_epochs": 3})
    trainer.fit(TinyModule(), ckpt_path=path)
    theirs, found = there.seen, here.seen
    if done == 3:  # the epoch whose batches are done is ended first, with its events
        assert here.seen[:2] == [("STARTED", 0, 3), ("EPOCH_COMPLETED", 1, 3)]
        theirs, found = theirs[1:], found[2:]
        assert len(started) == 2
    else:  # there, the loader begins anew, and ends inside of an epoch
        theirs = [one for one in theirs if one[0] != "DATALOADER_STOP_ITERATION"]
        found = [one for one in found if one[0] != "DATALOADER_STOP_ITERATION"]
    assert found == theirs


def test_an_interrupt_ends_the_fit_without_its_last_events() -> None:
    """`engine.interrupt()` fires INTERRUPT, and no event of an end, as on an engine of Ignite."""
    there, here = Recording(), Recording()

    def both(record):
        def attach_to(train, validation=None):
            record(train)
            train.add_event_handler(Events.ITERATION_COMPLETED(once=4), lambda e: e.interrupt())

        return attach_to

    engine = Engine(lambda engine, batch: None)
    both(there)(engine)
    engine.run([0, 1, 2], max_epochs=3)
    trainer = fit(attach(both(here)), max_epochs=3)
    assert here.seen == there.seen
    assert here.seen[-1] == ("INTERRUPT", 2, 4)
    assert (trainer.global_step, trainer.stop_reason) == (
        4,
        "a handler of Ignite called engine.interrupt()",
    )


def test_the_end_of_a_loader_that_is_limited_is_not_reached() -> None:
    """DATALOADER_STOP_ITERATION is fired where the epoch before has taken all batches."""
    seen = []
    guest = adapt(lambda e: seen.append(e.state.epoch), event=Events.DATALOADER_STOP_ITERATION)
    fit(guest, max_epochs=3)
    assert seen == [2, 3]
    fit(guest, max_epochs=3, limit_train_batches=2)
    assert seen == [2, 3]


def test_an_error_names_the_handler_that_broke() -> None:
    """Another guest's hook fires the event that both hang on: the note tells which one it was."""

    def sound(engine):
        pass

    def breaks(engine):
        raise ValueError("broken here")

    event = Events.ITERATION_COMPLETED(every=2)
    with pytest.raises(ValueError, match="broken here") as caught:
        fit(adapt(sound, event=event), adapt(breaks, event=event))
    notes = "\n".join(caught.value.__notes__)
    assert "<locals>.breaks of Ignite, on Events.ITERATION_COMPLETED" in notes
    assert "sound of Ignite" not in notes


def test_a_function_is_called_by_its_name() -> None:
    """Reports and labels tell functions apart."""
    keys = [adapt(f, event=Events.STARTED).state_key for f in (fit, listened)]
    assert keys == ["ignite:fit", "ignite:listened"]


# --- the states of the engines ---


def at_home(add, max_epochs: int) -> None:
    """Run handlers on engines of Ignite, with batches and a validation as those of TinyModule."""
    train, validation = Engine(lambda *_: 0.5), Engine(lambda *_: 0.25)
    train.add_event_handler(Events.EPOCH_COMPLETED, lambda _: validation.run([0, 1]))
    add(train, validation)
    train.run([0, 1, 2], max_epochs=max_epochs)


@pytest.mark.parametrize(
    "listened_to", [None, Events.EPOCH_STARTED, Events.EPOCH_COMPLETED, Events.ITERATION_COMPLETED]
)
def test_each_state_is_right_in_the_handlers_of_the_other_engine(listened_to) -> None:
    """Whatever events else have a handler, as Ignite's global_step_from_engine needs it."""
    seen: list[tuple] = []

    def add(train, validation) -> None:
        if listened_to is not None:
            train.add_event_handler(listened_to, lambda: None)
        step = global_step_from_engine(train)
        for event in (Events.STARTED, Events.EPOCH_COMPLETED, Events.COMPLETED):
            validation.add_event_handler(event, note, event, step, train.state, validation.state)

    def note(engine, event, step, *states) -> None:
        counts = [(state.epoch, state.iteration, state.max_epochs) for state in states]
        seen.append((event, step(engine, event), *counts))

    at_home(add, 3)
    theirs = seen.copy()
    seen.clear()
    fit(attach(add), max_epochs=3, num_sanity_val_steps=1)
    assert seen == theirs
    assert theirs[-1][1:] == (3, (3, 9, 3), (1, 2, 1))


def test_the_training_reads_what_its_validation_left() -> None:
    """The state of a validation without a handler, and the last output of the training."""
    seen = []

    def add(train, validation) -> None:
        train.add_event_handler(Events.EPOCH_STARTED, look, train, validation)
        train.add_event_handler(Events.EPOCH_COMPLETED, look, train, validation)

    def look(train, validation) -> None:
        state = validation.state
        output = train.state.output
        seen.append((state.epoch, state.iteration, type(output), train.state.batch is None))

    at_home(add, 2)
    theirs = seen.copy()
    seen.clear()
    fit(attach(add))
    assert seen == theirs
    assert theirs[-1] == (1, 2, float, False)


def test_the_last_output_is_there_at_the_end_of_an_epoch() -> None:
    """Without a handler of batches, for a handler that knows its own engine alone."""
    seen, outputs = [], []
    guest = adapt(lambda engine: seen.append(engine.state.output), event=Events.EPOCH_COMPLETED)

    class Notes(Callback):
        def on_train_batch_end(self, trainer, module, outputs_of_batch, batch, batch_idx) -> None:
            outputs.append(outputs_of_batch["loss"].item())

    fit(guest, Notes())
    assert seen == outputs[2::3]


@pytest.mark.parametrize("on", ["train", "validation"])
@pytest.mark.parametrize("max_epochs", [1, 4])
def test_a_handler_changes_the_number_of_epochs(on, max_epochs) -> None:
    """`engine.state.max_epochs = ...` counts during a run, in a handler of either engine."""
    seen: list[int] = []

    def add(train, validation) -> None:
        def change() -> None:
            train.state.max_epochs = max_epochs

        if on == "train":
            train.add_event_handler(Events.EPOCH_STARTED(once=1), change)
        else:
            validation.add_event_handler(Events.COMPLETED, change)
        train.add_event_handler(Events.EPOCH_COMPLETED, lambda: seen.append(train.state.max_epochs))

    at_home(add, 2)
    theirs = seen.copy()
    seen.clear()
    assert fit(attach(add)).max_epochs == max_epochs
    assert seen == theirs == [max_epochs] * max_epochs


@pytest.mark.parametrize(
    ("event", "on"),
    [
        (Events.GET_BATCH_COMPLETED, "train"),
        (Events.ITERATION_STARTED, "train"),
        (Events.ITERATION_STARTED, "validation"),
    ],
)
def test_a_new_batch_of_a_handler_is_refused(event, on) -> None:
    """The step does not look at the engine's state: the batch would be ignored."""

    def replace(engine) -> None:
        engine.state.batch = list(engine.state.batch)

    with pytest.raises(UsageError, match=rf"engine\.state\.batch at Events\.{event.name}"):
        fit(adapt(replace, event=event, on=on))


@pytest.mark.parametrize("when", ["after the epoch", "after a batch"])
def test_a_validation_that_stops_the_fit_leaves_the_epoch_its_end(when) -> None:
    """EPOCH_COMPLETED is fired if the validation follows the epoch, not if it is in the middle."""
    seen: list[str] = []

    def add(train, validation) -> None:
        validation.add_event_handler(Events.COMPLETED, lambda: train.terminate())
        for event in (Events.EPOCH_COMPLETED, Events.TERMINATE, Events.COMPLETED):
            train.add_event_handler(event, seen.append, event.name)

    if when == "after a batch":
        fit(attach(add), val_check_interval=1)
        assert seen == ["TERMINATE", "COMPLETED"]
        return
    at_home(add, 3)
    theirs = seen.copy()
    seen.clear()
    fit(attach(add))
    assert seen == theirs == ["EPOCH_COMPLETED", "TERMINATE", "COMPLETED"]


@pytest.mark.parametrize("returns_more", [False, True])
def test_the_loss_of_a_step_that_returns_more_is_a_tensor(returns_more) -> None:
    """A lone loss is a number; beside other values it stays as the step returned it."""
    seen: list = []

    class Returns(Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, batch_idx):
            loss = self.layer(batch).square().mean()
            return {"loss": loss, "count": batch_idx} if returns_more else loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    guest = adapt(lambda e: seen.append(e.state.output), event=Events.ITERATION_COMPLETED)
    trainer = Trainer(callbacks=[guest], enable_checkpointing=False, **{**OFF, "max_epochs": 1})
    trainer.fit(Returns(), list(torch.ones(3, 4, 2)))
    losses = [output["loss"] for output in seen] if returns_more else seen
    assert {type(loss) for loss in losses} == {torch.Tensor if returns_more else float}
    assert len(losses) == 3


@pytest.mark.parametrize("is_listened_to", [False, True])
def test_a_handler_that_is_added_in_a_run_needs_another_beside_it(is_listened_to) -> None:
    """An event without a handler at the start is not fired; on an engine of Ignite it is."""
    seen: list[int] = []

    def add(train, validation) -> None:
        if is_listened_to:
            train.add_event_handler(Events.ITERATION_COMPLETED, lambda: None)

        @train.on(Events.STARTED)
        def add_another() -> None:
            handler = lambda: seen.append(train.state.iteration)  # noqa: E731
            train.add_event_handler(Events.ITERATION_COMPLETED, handler)

    at_home(add, 2)
    assert seen == [1, 2, 3, 4, 5, 6]
    seen.clear()
    fit(attach(add))
    assert seen == ([1, 2, 3, 4, 5, 6] if is_listened_to else [])


def test_a_validation_is_over_before_the_end_of_the_epoch() -> None:
    """There it is a handler of that event, and comes after those that were added before it."""
    seen: list[str] = []

    def add(train, validation) -> None:
        validation.add_event_handler(Events.COMPLETED, seen.append, "validation")
        train.add_event_handler(Events.EPOCH_COMPLETED, seen.append, "epoch")

    def first(train, validation) -> None:
        train.add_event_handler(Events.EPOCH_COMPLETED, seen.append, "epoch")
        validation.add_event_handler(Events.COMPLETED, seen.append, "validation")
        train.add_event_handler(Events.EPOCH_COMPLETED, lambda _: validation.run([0, 1]))

    engines = Engine(lambda *_: 0.5), Engine(lambda *_: 0.25)
    first(*engines)
    engines[0].run([0, 1, 2], max_epochs=2)
    assert seen == ["epoch", "validation"] * 2
    seen.clear()
    fit(attach(add))
    assert seen == ["validation", "epoch"] * 2


def test_a_saver_of_models_saves_the_module_unless_told(tmp_path) -> None:
    """`adapt(handler, {...})` names other objects, as the argument beside the event there."""
    saved: list[dict] = []

    class Saves(ModelCheckpoint):
        def __call__(self, engine, to_save) -> None:
            saved.append(to_save)

    net, module = torch.nn.Linear(1, 1), TinyModule()
    saver = Saves(tmp_path, "net")
    for guest, expected in ((saver, {"model": module}), (adapt(saver, {"net": net}), {"net": net})):
        saved.clear()
        Trainer(callbacks=[guest], **OFF).fit(module)
        assert saved == [expected] * 2
