"""Events: the catalogue as an enum."""

from __future__ import annotations

import copy
import pickle

import pytest
from quiet_trainers import QUIET_OPTIONS

from trainer_hooks import Callback, Event, Trainer
from trainer_hooks.hooks.spec import ALIASES, EVENT_NAMES, HOOKS
from trainer_hooks.testing import TinyModule


def test_each_hook_is_an_event() -> None:
    """The members are the hooks, in their order, and each equals its hook's name."""
    assert list(Event) == list(HOOKS)
    for name in HOOKS:
        assert Event[name.upper()] is Event(name) is Event(name.upper())


def test_each_name_of_composer_is_an_alias() -> None:
    """Composer's name of a moment finds our hook, validation's where it has one for two."""
    for name in EVENT_NAMES.values():
        assert Event[name.upper()] is Event(name)
        assert EVENT_NAMES[Event(name)] == name
    assert Event.BATCH_END is Event("batch_end") is Event.ON_TRAIN_BATCH_END
    assert Event.EVAL_START is Event.ON_VALIDATION_START
    assert Event.EPOCH_END is Event.ON_TRAIN_BATCHES_END
    for alias, hook in ALIASES.items():
        assert Event(alias) == hook


@pytest.mark.parametrize("value", ["", "batch", "on_batch_ende", None, 3, "mro"])
def test_what_is_no_event(value) -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="is not a valid Event"):
        Event(value)


def test_before_and_after_come_in_pairs() -> None:
    """Each hook before something has a matching one after it, of the same canonical name."""
    before = [event for event in Event if event.is_before_event]
    after = [event for event in Event if event.is_after_event]
    assert len(before) == len(after) > 20
    assert not set(before) & set(after)
    pairs = sorted(event.canonical_name for event in before)
    assert pairs == sorted(event.canonical_name for event in after)
    # validation and test, which do not overlap, share Composer's; no others are shared
    assert {name for name in pairs if pairs.count(name) > 1} == {"eval", "eval_batch"}


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("batch_start", "batch"), ("batch_end", "batch"), ("before_train_batch", "train_batch"),
        ("after_train_batch", "train_batch"), ("eval_before_forward", "eval_forward"),
        ("eval_after_all", "eval_all"), ("on_train_epoch_start", "train_epoch"),
        ("on_before_optimizer_step", "optimizer_step"), ("batch_checkpoint", "batch_checkpoint"),
        ("setup", "setup"), ("on_train_batches_end", "train_batches_end"), ("init", "init"),
    ],
)  # fmt: skip
def test_canonical_names(name, canonical) -> None:
    """Composer's where both of a pair have one, ours otherwise, whole without a pair."""
    assert Event(name).canonical_name == canonical


def test_the_phases() -> None:
    """Validation and test are evaluation; prediction is told apart; training is neither."""
    assert {e for e in Event if e.is_eval} == {
        e for e in Event if "validation" in e or "test" in e or "evaluation" in e
    }
    assert {e for e in Event if e.is_predict} == {e for e in Event if "predict" in e}
    assert not Event.BATCH_END.is_eval
    assert not Event.BATCH_END.is_predict


def test_events_are_values() -> None:
    """They copy and pickle to themselves."""
    assert pickle.loads(pickle.dumps(Event.BATCH_END)) is Event.BATCH_END
    assert copy.deepcopy(Event.BATCH_END) is Event.BATCH_END


def test_a_callback_that_routes_events_can_compare_them() -> None:
    """`run_event` is told of hooks by name, which events equal, and calls one that it is given."""

    class Router(Callback):
        def __init__(self) -> None:
            self.seen: list[Event] = []
            self.batches = 0

        def run_event(self, event, *args) -> None:
            self.seen.append(Event(event))
            if event == Event.BATCH_END:
                super().run_event(Event("batch_end"), *args)

        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
            self.batches += 1

    router = Router()
    trainer = Trainer(max_steps=3, callbacks=router, **QUIET_OPTIONS)
    trainer.fit(TinyModule())
    assert router.batches == 3
    assert router.seen.count(Event.BATCH_START) == 3
    assert Event.FIT_END in router.seen
