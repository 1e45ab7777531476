"""The command `plugins`: its arguments, and what `new` writes or refuses to."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import pytest

from trainer_hooks.cli import templates
from trainer_hooks.cli.main import main
from trainer_hooks.cli.templates import PackageNames

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("arguments", [[], ["lists"], ["new"], ["check", "--all"]])
def test_what_it_does_not_know_is_refused(arguments: list[str], capsys) -> None:
    """Without an action, or with one that cannot be understood, the exit code is 2."""
    with pytest.raises(SystemExit) as exit_:
        main(["plugins", *arguments])
    assert exit_.value.code == 2
    assert "trainer-hooks" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "check", "new"])
def test_each_action_has_help(action: str, capsys) -> None:
    """`--help` describes the action and ends well."""
    with pytest.raises(SystemExit) as exit_:
        main(["plugins", action, "--help"])
    assert exit_.value.code == 0
    assert f"usage: trainer-hooks plugins {action}" in capsys.readouterr().out


def test_without_plugins_the_list_says_how_to_begin(installed_distributions, capsys) -> None:
    """An empty list is said in words, or is an empty JSON list."""
    assert main(["plugins", "list"]) == 0
    assert "No plugin is installed" in capsys.readouterr().out
    assert main(["plugins", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize("action", [["list"], ["list", "--json"], ["check"]])
def test_a_misspelt_name_in_the_environment_is_one_line(
    action: list[str], monkeypatch, capsys
) -> None:
    """The command with which one looks for the mistake names it, with the exit code of misuse."""
    pytest.importorskip("trainer_hooks_monitoring")  # so that there is a plugin to block
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS", raising=False)
    monkeypatch.setenv("TRAINER_HOOKS_BLOCK_PLUGINS", "nosuch")
    code = main(["plugins", *action])
    captured = capsys.readouterr()
    assert (code, captured.out, captured.err.count("\n")) == (2, "", 1)
    assert "plugin 'nosuch' in TRAINER_HOOKS_BLOCK_PLUGINS is not installed" in captured.err


def test_a_new_plugin_is_written_whole(tmp_path: Path, capsys) -> None:
    """All files are there, no placeholder is left in them, and what to do next is said."""
    assert main(["plugins", "new", "My.Rate-meter"]) == 0
    folder = tmp_path / "My.Rate-meter"
    files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert files == {
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "src/my_rate_meter/__init__.py",
        "src/my_rate_meter/callback.py",
        "src/my_rate_meter/factories.py",
        "src/my_rate_meter/py.typed",
        "tests/test_callback.py",
    }
    for name in files:
        text = (folder / name).read_text()
        assert "$" not in text
        assert "PACKAGE" not in text.replace("TRAINER_HOOKS_", "")
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "My.Rate-meter"
    assert project["entry-points"]["trainer_hooks.callbacks_factory"] == {
        "my-rate-meter": "my_rate_meter.factories:make_callbacks"
    }
    assert project["dependencies"] == ["trainer-hooks>=0.1"]
    told = capsys.readouterr().out
    assert told.startswith(
        "distribution My.Rate-meter, package my_rate_meter, callback MyRateMeterCallback, entry "
        "point my-rate-meter\n"
    )
    assert '  cd My.Rate-meter\n  pip install -e ".[test]"\n  pytest\n' in told


@pytest.mark.parametrize(
    ("name", "callback"),
    [
        ("rate", "RateCallback"),
        ("rate-callback", "RateCallback"),
        ("rate_callbacks", "RateCallback"),
        ("callback", "CallbackCallback"),
        ("trainer", "TrainerCallback"),
        ("a--b..c", "ABCCallback"),
    ],
)
def test_the_class_never_has_a_name_of_ours(name: str, callback: str) -> None:
    """Its name ends in Callback, once, and is never that of the class that it derives from."""
    assert PackageNames(name).callback == callback
    assert PackageNames(name).fault == ""


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "has only letters"),
        ("a b", "has only letters"),
        ("-rate", "begins and ends with a letter"),
        ("rate.", "begins and ends with a letter"),
        ("../rate", "has only letters"),
        ("raté", "has only letters"),
        ("rate\n", "has only letters"),
        ("3d", "cannot be imported. Begin it with a letter, and add a word: my-3d"),
        ("class", "cannot be imported"),
        ("json", "Python's own library. Add a word: my-json"),
        ("trainer-hooks", "its package 'trainer_hooks' is there already"),
        ("Trainer.Hooks", "its package 'trainer_hooks' is there already"),
        ("importlib-metadata", "is there already"),
        ("types-tqdm", "a distribution of that name is installed already"),
    ],
)
def test_a_name_that_cannot_be_is_refused(name: str, rule: str, tmp_path: Path, capsys) -> None:
    """The rule is named on stderr, the exit code is 2, and nothing is written."""
    assert main(["plugins", "new", "--", name]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"the name {name!r} is refused: " in captured.err
    assert rule in captured.err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys) -> None:
    """A folder with something in it, or a file, is refused and left as it was."""
    (tmp_path / "rate").mkdir()
    (tmp_path / "rate" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    assert main(["plugins", "new", "rate"]) == 2
    assert "rate is there already: nothing is overwritten" in capsys.readouterr().err
    assert main(["plugins", "new", "rate", "--dir", "file"]) == 2
    assert [path.name for path in (tmp_path / "rate").iterdir()] == ["notes"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_may_be_chosen(tmp_path: Path, capsys) -> None:
    """`--dir` names a new or an empty folder; its parents are made."""
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "new/deep"):
        assert main(["plugins", "new", "rate", "--dir", folder]) == 0
        assert (tmp_path / folder / "pyproject.toml").exists()
        assert f"  cd {folder}\n" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_said(monkeypatch, capsys) -> None:
    """An error of the file system is one line on stderr, and exit code 1."""

    def refuse(folder, target: Path, values):
        raise PermissionError(13, "Permission denied", str(target))

    monkeypatch.setattr(templates, "_write_templates", refuse)
    assert main(["plugins", "new", "rate"]) == 1
    assert capsys.readouterr().err == (
        "trainer-hooks plugins new: error: [Errno 13] Permission denied: 'rate'\n"
    )
