"""Parts of a foreign callback's state that are no plain data: refused, or kept where named."""

from __future__ import annotations

import copy
import importlib

import pytest
from opaque_notes import OFF, Note, saved

from trainer_hooks import Callback, Trainer
from trainer_hooks.adapters import HostedCallback, keep_opaque
from trainer_hooks.errors import CheckpointStateError, UsageError
from trainer_hooks.testing import TinyModule


class Plugin:
    """The base of callbacks of a made-up framework."""


Plugin.__module__ = "otherlib.plugins"


class Keeping(Plugin):
    """One of somebody's whose state holds such a thing."""

    def __init__(self):
        self.note, self.count = Note("first"), 0

    def begin(self, engine):
        self.count += 1

    def state_dict(self):
        return {"note": self.note, "count": self.count}

    def load_state_dict(self, state):
        self.note, self.count = state["note"], state["count"]


class Hosted(HostedCallback):
    """The adapter."""

    framework = "otherlib"
    bases = frozenset({"otherlib.plugins.Plugin"})

    def translated(self, hook):
        return (lambda trainer, _: self.guest.begin(trainer)) if hook == "on_fit_start" else None


@pytest.fixture(autouse=True)
def adapted(monkeypatch):
    """Let a guest of the made-up framework be adapted, one adapter for each."""
    made: dict[int, Hosted] = {}

    def adopted(item, kind=Callback):
        if isinstance(item, Plugin):
            return made.setdefault(id(item), Hosted.hosting(item))
        return item

    for module in ("adapters.callback_adapter", "connector.registry"):
        module = importlib.import_module(f"trainer_hooks.{module}")
        monkeypatch.setattr(module, "adapt_if_foreign", adopted)
    Note.opened = 0


# --- bad input ---


def test_it_is_refused_when_it_is_saved(tmp_path) -> None:
    """Without a name the error says what is in the way, and how to name it; no file is left."""
    with pytest.raises(CheckpointStateError, match=r"Note at state\['note'\].*keep_opaque\(callba"):
        saved(Keeping(), tmp_path / "x.ckpt")
    assert not list(tmp_path.glob("*.ckpt"))


@pytest.mark.parametrize("names", [(), (1,)])
def test_names_that_are_none(names) -> None:
    """Names are texts, and there is one at least."""
    with pytest.raises(UsageError, match=r"keep_opaque\(Keeping, \.\.\.\): names .* must be keys"):
        keep_opaque(Keeping(), *names)


def test_one_of_ours_is_refused() -> None:
    """A callback of trainer_hooks returns plain data, always."""
    with pytest.raises(UsageError, match="for callbacks of other frameworks"):
        keep_opaque(Callback(), "note")


def test_a_resume_without_the_name_opens_nothing(tmp_path) -> None:
    """The error says what is in the file, what opening it means, and what to do; nothing is run."""
    path = saved(keep_opaque(Keeping(), "note"), tmp_path / "x.ckpt")
    with pytest.raises(CheckpointStateError, match=r"'note'.*runs whatever code.*keep_opaque"):
        Trainer(callbacks=[Keeping()], **OFF).fit(TinyModule(), ckpt_path=path)
    with pytest.raises(CheckpointStateError, match="'note' of the state of otherlib callback Kee"):
        other = keep_opaque(Keeping(), "count")
        Trainer(callbacks=[other], **OFF).fit(TinyModule(), ckpt_path=path)
    assert Note.opened == 0


# --- what it does ---


def test_named_again_it_is_back(tmp_path) -> None:
    """The same names at the resume give the state back."""
    guest = Keeping()
    guest.note.text = "second"
    path = saved(keep_opaque(guest, "note"), tmp_path / "x.ckpt")
    assert Note.opened == 0
    again = Keeping()
    callback = keep_opaque(again, "note")
    Trainer(callbacks=[callback], **{**OFF, "max_epochs": 2}).fit(TinyModule(), ckpt_path=path)
    assert Note.opened == 1
    assert (again.note.text, again.count) == ("second", 2)


def test_the_file_is_as_safe_to_open_as_any(tmp_path) -> None:
    """The rest of the file is read without running code, with the sealed part as bytes."""
    from trainer_hooks.checkpoint.file import load_checkpoint

    path = saved(keep_opaque(Keeping(), "note"), tmp_path / "x.ckpt")
    (state,) = load_checkpoint(path)["callbacks"].values()
    assert state["count"] == 1
    assert isinstance(state["trainer_hooks.opaque"]["note"], bytes)
    assert Note.opened == 0


def test_a_copy_keeps_the_names() -> None:
    """A deep copy of the adapter, as of a Trainer, seals the same parts."""
    again = copy.deepcopy(keep_opaque(Keeping(), "note"))
    assert again.opaque_names == {"note"}
