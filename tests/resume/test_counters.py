"""Two instances of one callback keep their states apart."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from trainer_hooks import Callback
from trainer_hooks.errors import CheckpointError, StateKeyError, TrainerHooksWarning


class Counter(Callback):
    """Counts batches or epochs."""

    def __init__(self, what: str, verbose: bool = True) -> None:
        self.what = what
        self.verbose = verbose  # what is shown is no part of the key
        self.state = {"epochs": 0, "batches": 0}

    @property
    def state_key(self) -> str:
        return self._generate_state_key(what=self.what)

    def on_train_epoch_end(self, *args, **kwargs) -> None:
        if self.what == "epochs":
            self.state["epochs"] += 1

    def on_train_batch_end(self, *args, **kwargs) -> None:
        if self.what == "batches":
            self.state["batches"] += 1

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state.update(state_dict)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.state)


BATCHES, EPOCHS = "Counter{'what': 'batches'}", "Counter{'what': 'epochs'}"


def setup(kit, callbacks, **options):
    options["limit_val_batches"] = 0
    return kit.Setup(
        kit.Net(), DataLoader(kit.Samples(), batch_size=4), None, options, list(callbacks)
    )


def test_each_state_is_saved_under_a_key_of_its_own(lab, kit):
    """The checkpoint holds both states, under the class's name with the arguments."""
    counters = [Counter("epochs"), Counter("batches")]
    outcome = lab.run(lambda: setup(kit, counters), "run")
    assert outcome.end["callbacks"] == {
        BATCHES: {"epochs": 0, "batches": 15},
        EPOCHS: {"epochs": 3, "batches": 0},
    }


def test_each_state_comes_back_to_the_same_object(lab, kit):
    """On a resume each instance is given its own state, whatever the order they are passed in."""
    uncut = lab.run(
        lambda: setup(kit, [Counter("epochs"), Counter("batches")], max_epochs=2), "uncut"
    )
    batches, epochs = Counter("batches", verbose=False), Counter("epochs")
    end = lab.folder / "uncut" / "end.ckpt"
    resumed = lab.run(lambda: setup(kit, [batches, epochs]), "resumed", end)
    assert uncut.end["callbacks"][BATCHES] == {"epochs": 0, "batches": 10}
    assert batches.state == {"epochs": 0, "batches": 15}
    assert epochs.state == {"epochs": 3, "batches": 0}
    assert batches in resumed.trainer.callbacks
    assert resumed.trainer.load_report.restored == (BATCHES, EPOCHS)


def test_two_stateful_callbacks_with_one_key_are_refused(lab, kit):
    """Two counters of one thing would write to one place: the trainer says so when it is made."""
    with pytest.raises(StateKeyError, match=r"Counter\{'what': 'epochs'\}"):
        lab.run(lambda: setup(kit, [Counter("epochs"), Counter("epochs")]), "run")


def test_what_does_not_match_is_reported_and_said_once(lab, kit):
    """States without a callback and callbacks without a state are data, and one warning."""
    lab.run(lambda: setup(kit, [Counter("epochs")], max_epochs=1), "uncut")
    end = lab.folder / "uncut" / "end.ckpt"
    with pytest.warns(TrainerHooksWarning) as said:
        resumed = lab.run(lambda: setup(kit, [Counter("batches")]), "resumed", end)
    (warning,) = said
    assert str(warning.message) == (
        f'the checkpoint and this run\'s callbacks differ: no state for "{BATCHES}"; state '
        f'without a callback: "{EPOCHS}".'
    )
    report = resumed.trainer.load_report
    assert (report.missing, report.unexpected) == ((BATCHES,), (EPOCHS,))
    assert report.restored == ()


class Empty(Callback):
    """Has a state with nothing in it yet."""

    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        self.loaded = state_dict


def test_an_empty_state_is_saved_and_restored_too(lab, kit):
    """A callback whose state is empty finds it again, and is not reported as missing."""
    outcome = lab.run(lambda: setup(kit, [Empty()], max_epochs=1), "uncut")
    assert outcome.end["callbacks"] == {"Empty": {}}
    callback = Empty()
    end = lab.folder / "uncut" / "end.ckpt"
    resumed = lab.run(lambda: setup(kit, [callback], max_epochs=2), "resumed", end)
    assert callback.loaded == {}
    assert resumed.trainer.load_report.summary == ""


def test_an_error_in_load_state_dict_names_the_callback(lab, kit):
    """A callback that cannot take its state back is named, and its own error is the cause."""
    lab.run(lambda: setup(kit, [Counter("epochs")], max_epochs=1), "uncut")

    class Failing(Counter):
        __qualname__ = "Counter"

        def load_state_dict(self, state_dict):
            raise KeyError("steps")

    end = lab.folder / "uncut" / "end.ckpt"
    with pytest.raises(CheckpointError, match=r"load_state_dict\(\) of callback Counter") as caught:
        lab.run(lambda: setup(kit, [Failing("epochs")]), "resumed", end)
    cause = caught.value.__cause__
    assert (type(cause), str(cause)) == (KeyError, "'steps'")
    assert any("load_state_dict() of callback" in note for note in cause.__notes__)


class Record:
    """What installed plugins a checkpoint says took part."""

    def __init__(self, version: str) -> None:
        self.record = {
            "distribution": "acme-monitor",
            "version": version,
            "entry_point": "monitor",
            "class": "Monitor",
            "state_key": "Monitor",
        }


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ([], "plugin acme-monitor 1.0 does not take part now"),
        ([Record("2.0").record], "plugin acme-monitor is 2.0 now and was 1.0"),
        ([Record("1.0").record], None),
    ],
    ids=["gone", "another version", "same"],
)
def test_a_plugin_that_is_gone_or_changed_is_said(lab, kit, now, said):
    """A resume compares the plugins that took part with those that do now."""
    lab.run(lambda: setup(kit, [], max_epochs=1), "uncut")
    end = lab.folder / "uncut" / "end.ckpt"
    checkpoint = torch.load(end, weights_only=True)
    assert checkpoint["trainer_hooks"]["plugins"] == []
    checkpoint["trainer_hooks"]["plugins"] = [Record("1.0").record]
    torch.save(checkpoint, end)

    class Claiming(Callback):
        def on_before_load(self, trainer, module, path):
            trainer._core.connector.plugin_records = lambda: now

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resumed = lab.run(lambda: setup(kit, [Claiming()], max_epochs=2), "resumed", end)
    expected = [said] if said else []
    assert list(resumed.trainer.load_report.plugins) == expected
    assert len(caught) == len(expected)
    assert all(said in str(warning.message) for warning in caught)
