"""Installed packages whose metadata holds control characters: none of them reaches the terminal."""

from __future__ import annotations

import sys

import pytest

from trainer_hooks import Trainer
from trainer_hooks.cli.main import main

CHARACTERS = "\x1b[31m\x07\x7f\x9b2J\u202e"

CLASS, MESSAGE = f"Fine{CHARACTERS}", f"no\n{CHARACTERS}"

SOURCE = f"""
from trainer_hooks import Callback
from trainer_hooks.hooks.catalogue import Hooks

class Fine(Callback):
    @property
    def state_key(self):
        return {CHARACTERS!r}
    def state_dict(self):
        return {{"a": 1}}

Fine.__qualname__ = Fine.__name__ = {CLASS!r}

def make():
    return Fine()

def fails():
    raise LookupError({MESSAGE!r})

def wrong():
    return {CHARACTERS!r}
"""


@pytest.fixture
def installed(tmp_path, monkeypatch) -> None:
    """A package with hostile names, as a folder of installed packages holds it."""
    name = f"evil{CHARACTERS}"
    (tmp_path / "evil_words.py").write_text(SOURCE)
    facts = tmp_path / "evil_words-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0{CHARACTERS}\n", encoding="utf-8"
    )
    entries = [f"{made}{CHARACTERS} = evil_words:{made}\n" for made in ("make", "fails", "wrong")]
    entries.append(f"gone = evil_words{CHARACTERS}:x\n")
    (facts / "entry_points.txt").write_text(
        "[trainer_hooks.callbacks_factory]\n" + "".join(entries), encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    yield
    sys.modules.pop("evil_words", None)


def is_clean(text: str) -> bool:
    return text.replace("\n", "").isprintable()


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["plugins", "list"],
        ["plugins", "list", "--json"],
        ["plugins", "check", f"fails{CHARACTERS}", f"wrong{CHARACTERS}"],
        ["plugins", "check", f"wrong{CHARACTERS}", "--json"],
        ["plugins", "check", f"absent{CHARACTERS}"],
        ["plugins", "new", f"absent{CHARACTERS}"],
        ["hooks"],
        ["hooks", f"on_fit{CHARACTERS}"],
    ],
    ids=lambda words: " ".join(words[:3]).partition("\x1b")[0],
)
def test_the_commands_escape_them(words, installed, capsys) -> None:
    """Names, versions, values, classes, state keys and errors are told, as text."""
    main(words)
    out, err = capsys.readouterr()
    assert is_clean(out), out
    assert is_clean(err), err
    if words == ["plugins", "list"]:
        assert r"evil\x1b[31m\x07\x7f\x9b2J\u202e" in out
        assert r"fails\x1b[31m" in out


def test_the_trainer_escapes_them(installed, tmp_path) -> None:
    """The warnings about broken plugins hold none, nor does what describes a trainer."""
    with pytest.warns(UserWarning) as caught:  # noqa: PT030 - of several messages
        Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path)
    assert len(caught) >= 3
    for warning in caught:
        assert is_clean(str(warning.message)), warning.message


def test_arguments_are_escaped(capsys) -> None:
    """A shell makes arguments of the names of files."""
    with pytest.raises(SystemExit):
        main(["checkpoint", "show", "x", f"-{CHARACTERS}"])
    err = capsys.readouterr().err
    assert is_clean(err)
    assert r"unrecognized arguments: -\x1b[31m" in err
