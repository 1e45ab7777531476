"""The commands of docs/command-line.md run as they stand there, with the files that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from new_processes import forget_trainings

from trainer_hooks.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
_FILE = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"(\w+)=(\S+) ")


def commands() -> Iterator[tuple[dict[str, str], str]]:
    """Give the commands of a training with the variables that stand before each."""
    for block in _COMMANDS.findall(PAGE):
        for line in block.replace("\\\n", " ").splitlines():
            variables = {}
            while found := _VARIABLE.match(line):
                variables[found[1]] = found[2]
                line = line[found.end() :]
            if line.startswith("trainer-hooks "):
                yield variables, line


def words_of(command: str) -> list[str]:
    """Let bash read a command, and return its words but the first."""
    read = ["bash", "-e", "-c", f'for word in {command}; do printf "%s\\0" "$word"; done']
    done = subprocess.run(read, capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[1:-1]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::trainer_hooks.errors.TrainerHooksWarning")
def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch, caplog, capsys) -> None:
    """One after another, in a folder with the page's files, each ends well."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    monkeypatch.setenv("PL_SEED_WORKERS", "0")
    for name, text in _FILE.findall(PAGE):
        if name != "train.py":
            Path(name).write_text(text, encoding="utf-8")
    caplog.set_level("INFO", "trainer_hooks")
    ran = []
    # the page's module stays imported: the parser looks among all classes that there are
    for variables, command in commands():
        forget_trainings()
        with monkeypatch.context() as patch:
            for name, value in variables.items():
                patch.setenv(name, value)
            try:
                code = main(words_of(command))
            except SystemExit as exit_:  # the help
                code = exit_.code or 0
            assert code == 0, (command, capsys.readouterr())
        ran.append(shlex.split(command)[1])
    assert ran.count("fit") >= 6
    assert "test" in ran
    differs = "the config differs from the one of the checkpoint: trainer.max_epochs"
    assert differs in caplog.text
    assert Path("trainer_logs/version_0/config-2.yaml").exists()
