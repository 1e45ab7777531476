from __future__ import annotations

import contextlib
import gc

import pytest

from trainer_hooks import Callback, StopTraining
from trainer_hooks.callbacks import GarbageCollection


@pytest.fixture(autouse=True)
def collecting():
    """Python's own collecting is on before each test, and must be after it."""
    assert gc.isenabled()
    yield
    was_on = gc.isenabled()
    gc.enable()
    assert was_on


class Cycles(Callback):
    """Makes a cycle in each batch, and notes which are still there when each batch begins."""

    def __init__(self):
        self.alive = set()
        self.seen = []

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.seen.append(set(self.alive))
        number = trainer.progress.batches_completed

        class Node:
            def __del__(node):
                self.alive.discard(number)

        node = Node()
        node.itself = node
        self.alive.add(number)


@pytest.mark.slow
def test_cycles_are_collected_at_fixed_steps_and_nowhere_else(quiet_trainer, Tiny, batches):
    """Garbage stays until a step of the interval or an epoch's start, and is gone after it."""
    cycles = Cycles()
    collector = GarbageCollection(every_n_steps=3)
    trainer = quiet_trainer(callbacks=[cycles, collector], max_epochs=2)
    trainer.fit(Tiny(), batches(5))
    # collected after batches 3, 6, 9, and before 0 and 5
    assert [sorted(alive) for alive in cycles.seen] == [
        [], [0], [0, 1], [], [3],
        [], [], [6], [6, 7], [],
    ]  # fmt: skip
    assert collector.collections == 3 + 2


def test_python_does_not_collect_by_itself(quiet_trainer, Tiny, batches):
    """However much is made in a step, no collection comes between."""
    found = []

    class Maker(Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            before = len(found)
            self.kept = [[] for _ in range(20_000)]
            assert len(found) == before
            assert not gc.isenabled()

    def note(phase, info):
        found.append((phase, info["generation"]))

    gc.callbacks.append(note)
    try:
        trainer = quiet_trainer(callbacks=[Maker(), GarbageCollection(2, generation=0)])
        trainer.fit(Tiny(), batches(4))
    finally:
        gc.callbacks.remove(note)
    # when the epoch begins, and after the second and fourth batch
    during = [generation for phase, generation in found if phase == "stop"]
    assert [2, 0, 0] in [during[i : i + 3] for i in range(len(during))]


def test_batches_of_a_validation_count(quiet_trainer, Tiny, batches):
    """A long validation inside the fit collects by its own batches; the sanity check does not."""

    class Validated(Tiny):
        def validation_step(self, batch, batch_idx):
            self.log("val_loss", self.layer(batch).mean())

    collector = GarbageCollection(every_n_steps=4)
    trainer = quiet_trainer(callbacks=[collector], num_sanity_val_steps=-1)
    trainer.fit(Validated(), batches(3), batches(9))
    assert collector.collections == 1 + 2
    trainer.validate(dataloaders=batches(9), verbose=False)
    assert collector.collections == 1 + 2


class Ends(Callback):
    """Ends the run in the way it was told, in a batch."""

    def __init__(self, error=None):
        self.error = error
        self.was_off = False

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        self.was_off = not gc.isenabled()
        if batch_idx == 1 and self.error is not None:
            raise self.error


@pytest.mark.parametrize(
    "error",
    [None, StopTraining("enough"), RuntimeError("x"), KeyboardInterrupt(), SystemExit(3)],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("was_on", [True, False])
def test_it_is_as_before_however_the_run_ends(quiet_trainer, Tiny, batches, error, was_on):
    """Python's own collecting is on again after any end, and stays off if it was off before."""
    ends = Ends(error)
    trainer = quiet_trainer(callbacks=[GarbageCollection(), ends])
    if not was_on:
        gc.disable()
    is_raised = error is not None and not isinstance(error, StopTraining)
    with pytest.raises(type(error)) if is_raised else contextlib.nullcontext():
        trainer.fit(Tiny(), batches(3))
    assert ends.was_off
    assert gc.isenabled() is was_on
    gc.enable()


def test_an_error_in_another_callbacks_teardown_does_not_keep_it_off(quiet_trainer, Tiny, batches):
    """A teardown that fails before it has its turn leaves it to put things back all the same."""

    class Fails(Callback):
        def on_train_end(self, trainer, module):
            raise RuntimeError("first")

        def teardown(self, trainer, module, stage):
            raise RuntimeError("second")

    with pytest.raises(RuntimeError, match="first"):
        quiet_trainer(callbacks=[Fails(), GarbageCollection()]).fit(Tiny(), batches(2))
    assert gc.isenabled()


@pytest.mark.slow
def test_a_fit_inside_a_fit(quiet_trainer, Tiny, batches):
    """It is off until the outermost fit ends, whichever of two was there first."""

    class Inner(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 0:
                quiet_trainer(callbacks=[GarbageCollection()]).fit(Tiny(), batches(1))
                assert not gc.isenabled()

    trainer = quiet_trainer(callbacks=[Inner(), GarbageCollection(), GarbageCollection(7)])
    trainer.fit(Tiny(), batches(2))
    assert gc.isenabled()


@pytest.mark.slow
def test_one_that_is_taken_out_of_the_run(quiet_trainer, Tiny, batches):
    """Removed in the middle of a fit and let go of, it leaves nothing switched off."""

    class Removes(Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            found = [c for c in trainer.callbacks if isinstance(c, GarbageCollection)]
            if found:
                trainer.remove_callback(found[0])

    trainer = quiet_trainer(callbacks=[Removes(), GarbageCollection()])
    trainer.fit(Tiny(), batches(3))
    del trainer
    gc.collect()
    assert gc.isenabled()
