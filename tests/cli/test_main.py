"""The command line: what it answers, and with which exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import heed_ctrl_c
from samples import one_in

from trainer_hooks import __version__
from trainer_hooks.cli.demo import demo
from trainer_hooks.cli.main import main

ROOT = Path(__file__).parents[2]


ADVISED = """
import sys, warnings
import trainer_hooks.cli.main as cli
from trainer_hooks._log import warn
from trainer_hooks.errors import TrainerHooksAdvice

def advised(words):
    warn("a piece of advice", TrainerHooksAdvice)
    warnings.warn("of another library", UserWarning, stacklevel=1)
    return 0

cli._run_other_command = advised
sys.exit(cli.main([]))
"""


def test_a_warning_of_the_command_points_at_no_line_of_ours(tmp_path) -> None:
    """The script that pip installed is the caller, which says nothing to the user."""
    script = tmp_path / "trainer-hooks"
    script.write_text(ADVISED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert "TrainerHooksAdvice: a piece of advice\n" in done.stderr
    assert "cli.main(" not in done.stderr


def run(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a fresh process that finds this checkout."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=heed_ctrl_c,
    )


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """`trainer-hooks --version` prints the version and ends well."""
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"trainer-hooks {__version__}\n"


def test_without_arguments_it_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command the help goes to stderr, names the demo, and the exit code is 2."""
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: trainer-hooks" in captured.err
    assert "trainer-hooks demo --fast" in captured.err


@pytest.mark.parametrize("arguments", [["train"], ["demo", "--quick"], ["demo", "--dir"]])
def test_what_it_does_not_know_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown command or option, or a missing value, is named on stderr, with exit code 2."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert arguments[-1] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"), [(["ftt"], "fit"), (["checkpoint", "shw"], "show"), (["xyz"], None)]
)
def test_a_command_with_a_letter_wrong_is_told(words, meant, capsys) -> None:
    """Of the commands and of their actions."""
    with pytest.raises(SystemExit):
        main(words)
    err = capsys.readouterr().err
    assert err.endswith(f"Did you mean '{meant}'?\n" if meant else "'doctor')\n")


def test_help_of_the_demo_tells_when_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    """`trainer-hooks demo --help` names the options and what exit code 0 stands for."""
    with pytest.raises(SystemExit) as exit_:
        main(["demo", "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    assert "--fast" in text
    assert "--dir" in text
    assert "over 97%." in text


@pytest.mark.parametrize("code", [0, 1])
def test_the_demo_gets_its_options_and_gives_the_exit_code(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--fast` and `--dir` reach the demo, and its exit code is the command's."""
    calls = []

    def stand_in(folder: Path | None, *, is_fast: bool, processes: int) -> int:
        calls.append((folder, is_fast, processes))
        return code

    monkeypatch.setattr(demo, "run_demo", stand_in)
    assert main(["demo"]) == code
    assert main(["demo", "--fast", "--dir", "here", "--processes", "2"]) == code
    assert calls == [(None, False, 1), (Path("here"), True, 2)]


def test_ctrl_c_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Ctrl-C of the user ends the demo with exit code 130 and one line."""

    def stand_in(folder: Path | None, *, is_fast: bool, processes: int) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run_demo", stand_in)
    assert main(["demo"]) == 130
    assert capsys.readouterr().err == "\ninterrupted\n"


def test_python_dash_m_is_the_same_command(tmp_path: Path) -> None:
    """`python -m trainer_hooks` answers as the command does, exit code included."""
    done = run(["-m", "trainer_hooks"], tmp_path)
    assert done.returncode == 2
    assert "usage: trainer-hooks" in done.stderr


def in_shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which `$trainer_hooks` is the command."""
    env = {**os.environ, "trainer_hooks": f"{sys.executable} -m trainer_hooks"}
    return subprocess.run(
        ["sh", "-c", line], cwd=folder, env=env, check=False, capture_output=True, text=True
    )


@pytest.mark.slow
def test_no_standard_output(tmp_path: Path) -> None:
    """A command whose output was closed before it began does its work and ends with code 0."""
    done = in_shell("$trainer_hooks hooks on_fit_start >&-", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.linux
def test_a_full_disk_is_told_in_a_line(tmp_path: Path) -> None:
    """A command whose work is its output ends with code 1."""
    done = in_shell("$trainer_hooks hooks >/dev/full", tmp_path)
    told = "trainer-hooks: the output is not whole: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)


@pytest.mark.exhaustive
@pytest.mark.parametrize("output", one_in(3, [">/dev/full", ">&-", ">&- 2>&-"]))
def test_a_training_that_can_print_nothing(output: str, tmp_path: Path) -> None:
    """A training ends with code 0 wherever its output goes, and no file gets its text."""
    line = (
        "$trainer_hooks fit --model trainer_hooks.testing.TinyModule --trainer.max_epochs 1 "
        "--trainer.enable_model_summary true --trainer.accelerator cpu"
    )
    done = in_shell(f"{line} {output}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.rglob("*.ckpt"))


def test_the_help_waits_for_nothing(tmp_path: Path) -> None:
    """It is printed without torch, and without the modules that carry the commands out."""
    code = (
        "import sys\n"
        "from trainer_hooks.cli.main import main\n"
        "assert main([]) == 2\n"
        "ours = [name for name in sys.modules if name.startswith('trainer_hooks.')]\n"
        "print('torch' in sys.modules, 'trainer_hooks.hooks.spec' in ours, len(ours))"
    )
    done = run(["-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    has_torch, has_catalogue, modules = done.stdout.split()
    assert (has_torch, has_catalogue) == ("False", "False")
    assert int(modules) <= 40


INTERRUPTED_IMPORT = """
import os, signal, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
"""


def test_ctrl_c_in_the_first_imports_is_one_line(tmp_path: Path) -> None:
    """A Ctrl-C while the command is being imported ends it as one later does."""
    program = f"{INTERRUPTED_IMPORT}from trainer_hooks.__main__ import main\nsys.exit(main())"
    done = run(["-c", program, "trainer_hooks.cli.main"], tmp_path)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "module", one_in(2, ["trainer_hooks.trainer.run.lifecycle", "trainer_hooks.loops.fit"])
)
def test_ctrl_c_in_the_imports_of_a_fit_is_one_line(tmp_path: Path, module: str) -> None:
    """A Ctrl-C while fit imports what it needs is told without a traceback."""
    fit = (
        "from trainer_hooks import Trainer\nfrom trainer_hooks.testing import TinyModule\n"
        "trainer = Trainer(max_epochs=1, accelerator='cpu', logger=False, plugins=False,"
        " enable_checkpointing=False)\ntrainer.fit(TinyModule())"
    )
    done = run(["-c", INTERRUPTED_IMPORT + fit, module], tmp_path)
    # 1 where `tabulate` is installed: torch uses it at the exit, and Python forgets the Ctrl-C
    assert done.returncode in (-2, 1)
    assert done.stderr == "KeyboardInterrupt\n"
