"""Versions of callback states: old ones are upgraded, new ones refused, nothing half restored."""

from __future__ import annotations

import pytest
import torch
from quiet_trainers import QUIET_OPTIONS
from torch.utils.data import DataLoader, TensorDataset

from trainer_hooks import Callback, Trainer
from trainer_hooks.errors import CallbackError, CheckpointError, TrainerHooksWarning


class Counter(Callback):
    """The first version: it calls its number `n`."""

    def __init__(self) -> None:
        self.count = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.count += 1

    def state_dict(self):
        return {"n": self.count, "log": [1]}

    def load_state_dict(self, state_dict):
        self.count = state_dict["n"]


first_version = Counter


class Counter(first_version):
    """The third version, which knows the first and the second."""

    state_version = 3

    def __init__(self) -> None:
        super().__init__()
        self.upgraded = []

    def state_dict(self):
        return {"batches": self.count}

    def load_state_dict(self, state_dict):
        self.count = state_dict["batches"]

    def upgrade_state_dict(self, state, from_version):
        self.upgraded.append(from_version)
        return {"batches": state.pop("n")}


class Other(Callback):
    """A bystander."""

    def __init__(self) -> None:
        self.loaded = []

    def state_dict(self):
        return {"a": 1}

    def load_state_dict(self, state_dict):
        self.loaded.append(state_dict)


@pytest.fixture
def saved(fitted, tmp_path):
    """Return a function that saves a checkpoint of a fit with a callback."""

    def save(callback):
        fitted(callbacks=[Other(), callback]).save_checkpoint(tmp_path / "a.ckpt")
        return tmp_path / "a.ckpt"

    return save


def resume(path, net_type, *callbacks, **options):
    """Go on for an epoch; return the trainer."""
    trainer = Trainer(callbacks=callbacks, max_epochs=2, **QUIET_OPTIONS, **options)
    trainer.module_given = module = net_type()
    trainer.before = {name: value.clone() for name, value in module.state_dict().items()}
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    trainer.fit(module, data, ckpt_path=path)
    return trainer


def test_the_version_stands_beside_the_states(saved):
    """A file holds each state's version, and the states themselves as the callbacks gave them."""
    checkpoint = torch.load(saved(Counter()), weights_only=True)
    assert checkpoint["trainer_hooks"]["state_versions"] == {"Counter": 3, "Other": 1}
    assert checkpoint["callbacks"]["Counter"] == {"batches": 2}


def test_an_older_state_is_upgraded(saved, net_type, caplog):
    """A file of an older class: upgraded once, from its version, taken back, reported."""
    callback = Counter()
    trainer = resume(saved(first_version()), net_type, Other(), callback)
    assert callback.upgraded == [1]
    assert callback.count == 4
    assert trainer.load_report.upgraded == ("Counter from state_version 1 to 3",)
    assert trainer.load_report.restored == ("Other", "Counter")
    assert "(callback states restored: 2, upgraded: 1)" in caplog.text


def test_a_state_of_the_same_version_is_not_upgraded(saved, net_type):
    """The present version's state goes to load_state_dict as it is."""
    callback = Counter()
    trainer = resume(saved(Counter()), net_type, Other(), callback)
    assert callback.upgraded == []
    assert callback.count == 4
    assert trainer.load_report.upgraded == ()


class NoWay(Counter):
    """Its author counted the version up, and did not say how to upgrade."""

    state_key = "Counter"
    upgrade_state_dict = Callback.upgrade_state_dict


class Wrong(Counter):
    """Its upgrade returns nothing."""

    state_key = "Counter"

    def upgrade_state_dict(self, state, from_version):
        state.clear()


class Failing(Counter):
    """Its upgrade fails midway."""

    state_key = "Counter"

    def upgrade_state_dict(self, state, from_version):
        state.clear()
        raise KeyError("m")


def refused(path, net_type, callback, error=CheckpointError):
    """Make sure that a resume is refused before anything is restored; return the message."""
    bystander = Other()
    module = net_type()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trainer = Trainer(callbacks=[bystander, callback], **QUIET_OPTIONS)
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    with pytest.raises(error) as caught:
        trainer.fit(module, data, ckpt_path=path)
    assert bystander.loaded == []
    assert callback.count == 0
    assert trainer.progress.is_new_training
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_a_version_without_an_upgrade_says_what_to_write(saved, net_type):
    """The default upgrade is an error with the method to define; nothing is restored."""
    text = refused(saved(first_version()), net_type, NoWay())
    assert "the state of NoWay was saved by its state_version 1, and it is 3 here" in text
    assert "Define NoWay.upgrade_state_dict(self, state, from_version)" in text


def test_a_newer_state_is_refused(saved, net_type):
    """A state of a version that this class does not know yet stops the resume at once."""
    text = refused(saved(Counter()), net_type, first_version())
    assert "was saved by its state_version 3, and it is 1 here" in text
    assert "Install the version of the callback that saved it" in text


def test_an_upgrade_that_returns_no_state_is_refused(saved, net_type):
    """Forgetting to return is named."""
    text = refused(saved(first_version()), net_type, Wrong())
    assert "returned None of type NoneType: it must return the state, a dict" in text


def test_an_upgrade_that_fails_is_named(saved, net_type):
    """The error says in whose upgrade it was."""
    text = refused(saved(first_version()), net_type, Failing())
    assert "raised by upgrade_state_dict() of callback Failing" in text


@pytest.mark.parametrize("callback_type", [Failing, NoWay, first_version])
def test_a_disabled_callback_keeps_its_state_and_version(saved, net_type, tmp_path, callback_type):
    """Where errors disable, the run goes on, and the next file has the state as it was."""
    source = Counter() if callback_type is first_version else first_version()
    path = saved(source)
    before = torch.load(path, weights_only=True)
    with pytest.warns(TrainerHooksWarning) as said:
        trainer = resume(
            path, net_type, Other(), callback_type(), callback_errors={"Counter": "disable"}
        )
    assert any("failed in hook 'upgrade_state_dict'" in str(item.message) for item in said)
    trainer.save_checkpoint(tmp_path / "b.ckpt")
    after = torch.load(tmp_path / "b.ckpt", weights_only=True)
    assert after["callbacks"]["Counter"] == before["callbacks"]["Counter"]
    versions = [held["trainer_hooks"]["state_versions"]["Counter"] for held in (before, after)]
    assert versions[0] == versions[1]


@pytest.mark.parametrize("version", [0, -1, "2", 1.0, True, None])
def test_a_version_that_is_none_is_refused_when_it_is_saved(fitted, tmp_path, version):
    """state_version must be an int from 1 on; another type is told by the Trainer."""
    callback = first_version()
    callback.state_version = version
    rule = rf"state_version {version!r} of .*an int from 1 on|'state_version' of .* another int"
    with pytest.raises(CallbackError, match=rule):
        fitted(callbacks=[callback]).save_checkpoint(tmp_path / "a.ckpt")


def test_callbacks_without_a_state_have_no_version(fitted, tmp_path):
    """Only what is saved has a version."""

    class Plain(Callback):
        pass

    fitted(callbacks=[Plain()]).save_checkpoint(tmp_path / "a.ckpt")
    own = torch.load(tmp_path / "a.ckpt", weights_only=True)["trainer_hooks"]
    assert own["state_versions"] == {}
