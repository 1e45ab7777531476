"""`trainer-hooks hooks`: the catalogue, and all about one hook."""

from __future__ import annotations

import inspect
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pyte
import pytest
from for_each import for_each

from trainer_hooks import Callback, Hooks
from trainer_hooks.cli.hooks.listing import example_of, signature_of
from trainer_hooks.cli.main import main
from trainer_hooks.hooks.check import hook_warnings
from trainer_hooks.hooks.loop_tree import positions_of
from trainer_hooks.hooks.spec import HOOKS, overrides

ROOT = Path(__file__).parents[2]

PAGE = """\
on_close (Composer: CLOSE)
Called by `trainer.close()`, to flush and close files.

def on_close(self, trainer: Trainer, module: Module) -> None

Composer      close
if one fails  every callback has its turn, even if one before it fails

where it stands in the loop:
  trainer.close()
    before on_post_close

to copy:

from trainer_hooks import Callback


class MyCallback(Callback):
    def on_close(self, trainer, module):
        print("on_close")
"""


def answer(capsys, *arguments: str) -> str:
    assert main(["hooks", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_the_list_has_every_hook_with_its_arguments(capsys) -> None:
    """Name, when it fires, arguments: a line each, in firing order."""
    header, _, *lines = answer(capsys).splitlines()
    assert header.split() == ["hook", "fires", "arguments"]
    assert [line.split()[0] for line in lines] == list(HOOKS)
    (line,) = [line for line in lines if line.startswith("on_log ")]
    assert "with the metrics that go to the loggers" in line
    assert line.endswith("trainer, module, metrics, step")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_list_on_a_narrow_terminal_keeps_names_whole(monkeypatch) -> None:
    """The table is drawn; what a hook is called can be copied from it."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["hooks"]) == 0
    screen = pyte.Screen(80, 400)
    pyte.Stream(screen).feed(terminal.getvalue().replace("\n", "\r\n"))
    shown = [line[1:].split(" ")[1] for line in screen.display if line[2:3].strip()]
    assert [name for name in shown if name in HOOKS] == list(HOOKS)
    assert "\u2500" in "".join(screen.display)


def test_the_list_as_json(capsys) -> None:
    """The same as data, with the names in other frameworks."""
    hooks = json.loads(answer(capsys, "--json"))
    assert [hook["name"] for hook in hooks] == list(HOOKS)
    assert hooks[list(HOOKS).index("on_fit_start")] == {
        "name": "on_fit_start",
        "fires": HOOKS["on_fit_start"].summary,
        "arguments": ["trainer", "module"],
        "elsewhere": {
            "Lightning": "on_fit_start",
            "Composer": "fit_start",
            "pytorch-accelerated": "on_training_run_start",
        },
        "is_isolated": False,
        "supplier": "trainer_hooks",
    }


def test_the_page_of_a_hook(capsys) -> None:
    """It tells what the hook is here, when it fires, with what and where, and how to write it."""
    assert answer(capsys, "CLOSE") == PAGE


def test_a_place_is_told_with_what_is_around_it(capsys) -> None:
    """Each place of a hook has the lines around it and its neighbours."""
    page = answer(capsys, "on_validation_start")
    assert (
        "  fit > if there is a sanity check > the validation loop\n"
        "    after on_sanity_check_start, before on_epoch_start\n"
    ) in page
    assert "  validate > the validation loop\n" in page
    assert "every callback has its turn" not in page


def test_all_that_a_name_stands_for_is_told(capsys) -> None:
    """A hook's name that means another moment elsewhere tells of both."""
    page = answer(capsys, "on_train_epoch_end")
    assert page.startswith("on_train_epoch_end\n")
    assert "\non_train_batches_end (pytorch-accelerated: on_train_epoch_end)\n" in page


def test_the_page_as_json(capsys) -> None:
    """The same as data: what was asked, and a record for each hook that it stands for."""
    found = json.loads(answer(capsys, "--json", "eval_end"))
    assert found["name"] == "eval_end"
    assert [hook["name"] for hook in found["hooks"]] == ["on_validation_end", "on_test_end"]
    hook = found["hooks"][1]
    assert hook["asked_as"] == "Composer"
    assert hook["places"] == [
        {
            "path": ["test", "the test loop"],
            "above": "on_epoch_end",
            "below": "on_evaluation_run_end",
        }
    ]
    assert hook["signature"] == "def on_test_end(self, trainer: Trainer, module: Module) -> None"
    assert hook["example"] == example_of(HOOKS["on_test_end"])
    assert hook["fires"] == HOOKS["on_test_end"].summary


@pytest.mark.parametrize("name", HOOKS)
def test_every_example_is_a_callback_that_works(name, capsys) -> None:
    """What is shown to copy runs, overrides the hook, and can be called with its arguments."""
    names: dict = {}
    exec(example_of(HOOKS[name]), names)
    callback = names["MyCallback"]()
    assert isinstance(callback, Callback)
    assert overrides(callback, name)
    assert hook_warnings(callback) == ()
    getattr(callback, name)(*HOOKS[name].arguments)
    assert capsys.readouterr().out == f"{name}\n"


@for_each(HOOKS)
def test_every_signature_is_the_catalogues(name) -> None:
    """The signature that is shown is Python, and the same as that of the catalogue's method."""
    names: dict = {}
    text = signature_of(HOOKS[name])
    exec(f"from __future__ import annotations\n{text}: pass", names)
    assert inspect.signature(names[name]) == inspect.signature(getattr(Hooks, name))
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("name", HOOKS)
def test_every_page_can_be_written(name, capsys) -> None:
    """Each hook's page has its sentence and all of its places."""
    page = answer(capsys, name)
    assert HOOKS[name].summary in page
    told = page.partition("where it stands in the loop:\n")[2].partition("\n\n")[0].splitlines()
    assert len(told) == 2 * len(positions_of(name))
    for place, neighbours in zip(positions_of(name), told[1::2], strict=True):
        assert neighbours.split()[1::2] == [
            *([f"{place.above}," if place.below else place.above] if place.above else []),
            *([place.below] if place.below else []),
        ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_misspelt_hook_is_refused_with_the_nearest(options, capsys) -> None:
    """Exit code 2, nothing on stdout, and the name that was probably meant."""
    assert main(["hooks", "on_train_bach_end", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        "trainer-hooks hooks: error: 'on_train_bach_end' is no hook, here or in another "
        "framework. Did you mean 'on_train_batch_end'? List them with: trainer-hooks hooks\n"
    )


@pytest.mark.parametrize("name", ["", "xyzzy", "[red]"])
def test_what_is_near_nothing_is_refused_without_a_guess(name, capsys) -> None:
    """No name is suggested that has nothing to do with what was asked."""
    assert main(["hooks", name]) == 2
    captured = capsys.readouterr()
    assert repr(name) in captured.err
    assert "Did you mean" not in captured.err


def test_two_names_are_refused(capsys) -> None:
    """One hook at a time."""
    with pytest.raises(SystemExit) as exit_:
        main(["hooks", "setup", "teardown"])
    assert exit_.value.code == 2
    assert "teardown" in capsys.readouterr().err


def run(code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["hooks"], ["hooks", "setup", "--json"], ["hooks", "x"]])
def test_it_does_not_wait_for_torch(arguments) -> None:
    """The command answers without importing torch."""
    done = run(
        "import sys\n"
        "from trainer_hooks.cli.main import main\n"
        f"main({arguments})\n"
        "assert 'torch' not in sys.modules"
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_who_leaves_is_no_error() -> None:
    """Where the output goes to `head`, which reads some of it, there is no traceback."""
    done = run(
        "import os, sys\n"
        "read, write = os.pipe()\n"
        "os.close(read)\n"
        "os.dup2(write, 1)\n"
        "from trainer_hooks.cli.main import main\n"
        "sys.exit(main(['hooks']))"
    )
    assert (done.returncode, done.stderr) == (141, "")


class DriftHooks(Hooks):
    def on_drift_detected(self, trainer, module, score: float) -> None:
        """Called when a batch is unlike those before."""


def test_hooks_that_packages_add(capsys, monkeypatch, installed_distributions) -> None:
    """They are listed with who brings them, found by name, and offered for a misspelt one."""
    module = ModuleType("drift")
    module.DriftHooks = DriftHooks  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "drift", module)
    monkeypatch.delenv("TRAINER_HOOKS_DISABLE_PLUGINS")
    entry = ("hooks", "drift:DriftHooks", "trainer_hooks.hooks")
    installed_distributions.append(installed_distributions.make("drift", "2.0", [entry]))
    header, _, *lines = answer(capsys).splitlines()
    assert header.split() == ["hook", "fires", "arguments", "by"]
    assert lines[0].split()[-1] == "trainer_hooks"
    assert lines[-1].split()[0] == "on_drift_detected"
    assert lines[-1].endswith("drift 2.0")
    page = answer(capsys, "on_drift_detected")
    assert "def on_drift_detected(self, trainer, module, score: float) -> None" in page
    assert "fired by drift 2.0, through trainer.call_event('on_drift_detected', ...)" in page
    assert main(["hooks", "on_drift_detectd"]) == 2
    assert "Did you mean 'on_drift_detected'?" in capsys.readouterr().err
