"""`trainer-hooks doctor`, in sound and in broken installations."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer_hooks import __version__
from trainer_hooks.cli.doctor import examination
from trainer_hooks.cli.doctor.examination import is_allowed
from trainer_hooks.cli.doctor.privacy import without_private_parts

ROOT = Path(__file__).parents[3]


def doctor(*folders: Path, words=("--json",), **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command where `folders` come first on sys.path."""
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    return subprocess.run(
        [sys.executable, "-m", "trainer_hooks", "doctor", *words],
        # pytest tells each test's name, arguments and all, in a variable, whose words are hidden
        env={**os.environ, "PYTEST_CURRENT_TEST": "", "PYTHONPATH": path, **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def package(folder: Path, name: str, source: str) -> Path:
    """Write a package that takes the place of the installed one, and return its folder."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(source, encoding="utf-8")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "told"),
    [
        (
            "raise OSError('libcudart.so.13: cannot open shared object file')",
            "torch cannot be used: OSError: libcudart.so.13: cannot open shared object file",
        ),
        ("import nothing_of_this_name", "torch cannot be used: ModuleNotFoundError: No module"),
        ("raise SystemExit(3)", "torch cannot be used: exit code 3"),
        ("import os; os.abort()", "torch crash Python: SIGABRT"),
        ("ones = None", "torch cannot be used: ModuleNotFoundError: No module named 'torch.dist"),
    ],
)
def test_a_broken_torch_is_told(tmp_path, source, told) -> None:
    """Whatever torch does as it is imported, the rest of the facts is there, and the fault."""
    done = doctor(package(tmp_path, "torch", source))
    assert done.returncode == 1, done.stderr
    facts = json.loads(done.stdout)
    assert facts["version"] == __version__
    assert facts["torch"] is None
    assert facts["packages"]["numpy"] is not None
    assert [fault for fault in facts["broken"] if fault.startswith(told)], facts["broken"]


@pytest.mark.slow
def test_an_import_that_never_ends_is_told(tmp_path, monkeypatch) -> None:
    """A package that waits, as for a network file system, is given up."""
    package(tmp_path, "torch", "import signal; signal.pause()")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(examination, "_TIME_LIMIT", 1.0)
    broken: list[str] = []
    assert examination._in_child("torch", "torch", broken) is None
    assert broken == ["torch hang: no answer after 1 s"]


@pytest.mark.exhaustive
def test_a_dependency_that_cannot_be_imported_is_told(tmp_path) -> None:
    """Its metadata are there, and its code fails."""
    done = doctor(package(tmp_path, "tqdm", "raise ImportError('built for another Python')"))
    assert done.returncode == 1
    assert json.loads(done.stdout)["broken"] == [
        "tqdm cannot be imported: ImportError: built for another Python"
    ]


def test_a_file_of_the_working_folder_is_not_taken_for_a_package(tmp_path, monkeypatch) -> None:
    """A script called torch.py where the command is called is none of its business."""
    (tmp_path / "rich.py").write_text("raise ImportError('not this one')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    broken: list[str] = []
    assert examination._in_child("imports", "the dependencies", broken, "rich") == {"rich": ""}
    assert broken == []


def plugin(folder: Path, source: str) -> Path:
    """Write an installed plugin whose factory does `source`, and return its folder."""
    folder.mkdir()
    (folder / "acme_callbacks.py").write_text(f"def make():\n    {source}\n", encoding="utf-8")
    info = folder / "acme_callbacks-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-callbacks\nVersion: 2.0\n")
    group = "[trainer_hooks.callbacks_factory]\nacme = acme_callbacks:make\n"
    (info / "entry_points.txt").write_text(group, encoding="utf-8")
    return folder


@pytest.mark.exhaustive
def test_a_broken_plugin_is_told_without_what_is_private(tmp_path) -> None:
    """Its error stands there; the user, the machine, the paths and the password in it do not."""
    source = (
        "import getpass, os, socket; raise LookupError("
        "f'no licence of {getpass.getuser()} on {socket.gethostname()} in {os.getcwd()}/a/key.txt "
        'at https://me:pw@licences.example/x or {os.environ["ACME_TOKEN"]}\')'
    )
    folder = plugin(tmp_path / "site", source)
    only = {"TRAINER_HOOKS_DISABLE_PLUGINS": "", "TRAINER_HOOKS_ALLOW_PLUGINS": "acme-callbacks"}
    done = doctor(folder, ACME_TOKEN="tok-123456", **only)
    facts = json.loads(done.stdout)
    [fault] = facts["broken"]
    assert fault.startswith("plugin acme-callbacks 2.0 (entry point 'acme'): ")
    assert "LookupError: no licence of *** on *** in ***/key.txt at *** or ***" in fault
    assert {"distribution": "acme-callbacks", "version": "2.0", "entry_point": "acme",
            "status": "failed"} in facts["plugins"]  # fmt: skip
    assert "TRAINER_HOOKS_ALLOW_PLUGINS" in facts["environment_variables"]


@pytest.mark.exhaustive
def test_a_plugin_that_ends_the_process_is_told(tmp_path) -> None:
    """The facts are printed all the same."""
    folder = plugin(tmp_path / "site", "import os; os._exit(7)")
    done = doctor(folder, words=(), TRAINER_HOOKS_DISABLE_PLUGINS="")
    assert done.returncode == 1
    assert "the installed plugins cannot be used: exit code 7" in done.stdout
    assert f"trainer_hooks {__version__}\n" in done.stdout


@pytest.mark.slow
def test_nothing_private_is_printed() -> None:
    """In a sound installation nothing is broken; no user, machine or folder is named."""
    done = doctor(words=(), SECRET_OF_MINE="hunter2-hunter2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("broken\n  nothing")
    for private in (str(ROOT), str(Path.home()), socket.gethostname(), "hunter2", sys.executable):
        assert private not in done.stdout, private
    assert f" {getpass.getuser()} " not in done.stdout


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("in /srv/ann/acme/callback.py, line 7", "in ***/callback.py, line 7"),
        (r"in C:\Users\ann\callback.py", r"in ***/callback.py"),
        ("see https://ann:pw@host/x?token=1 now", "see *** now"),
        ("mail to ann@acme.example", "mail to ***"),
        ("no answer from 10.0.0.7:80", "no answer from ***:80"),
        ("TypeError: an int and a str", "TypeError: an int and a str"),
    ],
)
def test_what_is_private_is_cut_out(text, left, monkeypatch) -> None:
    """Paths but for the file's name, addresses and accounts; other text stays as it is."""
    monkeypatch.delenv("PYTEST_CURRENT_TEST")  # it holds the text, as the name of this case
    assert without_private_parts(text) == left


def test_values_of_the_environment_are_cut_out(monkeypatch) -> None:
    """A whole value, and a longer word of one; not the short words that occur anywhere."""
    monkeypatch.setenv("TOKEN", "s3cr3t")
    monkeypatch.setenv("HEADER", "Bearer of abcdef123456")
    text = "Bearer of s3cr3t and abcdef123456, s3cr3ts"
    assert without_private_parts(text) == "Bearer of *** and ***, s3cr3ts"


@pytest.mark.parametrize(
    ("version", "bounds", "allowed"),
    [
        ("1.5", ">=1.6", False),
        ("1.6", ">=1.6", True),
        ("1.6.0", ">=1.6", True),
        ("1.10", ">=1.6", True),
        ("2.13.0+cpu", ">=2.6", True),
        ("5.0", "<5,>=4.53", False),
        ("5", "<5.0", False),
        ("4.53.1", "<5,>=4.53", True),
        ("2.6.6", "==2.6.*", True),
        ("2.60", "==2.6.*", False),
        ("9", "", True),
    ],
)
def test_versions_are_compared_by_their_numbers(version, bounds, allowed) -> None:
    """A part that is missing is 0, and 10 is more than 6."""
    assert is_allowed(version, bounds) is allowed


def test_missing_and_old_packages_are_told() -> None:
    """A dependency with the line that installs it, a package of an extra with its extra."""
    faults = examination._faults_of_packages(
        {"numpy": ">=1.26", "tqdm": ">=4.60"},
        {"plots": {"matplotlib": ">=3.8", "pandas": ">=2.0"}},
        {"tqdm": "4.1", "matplotlib": "3.1"},
    )
    assert list(faults) == [
        "numpy is not installed: pip install 'numpy>=1.26'",
        "tqdm 4.1 is not >=4.60: pip install 'tqdm>=4.60'",
        "matplotlib 3.1 is not >=3.8: pip install 'trainer-hooks[plots]'",
    ]


def test_the_extras_are_those_for_users() -> None:
    """A dependency for other processors is none here; developers' extras are left out."""
    lines = [
        "torch>=2.6",
        'isal>=1.6; platform_machine in "no-such-machine"',
        'isal>=1.6; extra == "fast"',
        'jsonargparse[signatures]<5,>=4.53; extra == "cli"',
        'trainer-hooks[cli]; extra == "sweep"',
        'optuna>=4.9; extra == "sweep"',
        'ruff>=0.8; extra == "dev"',
        'pytorch-lightning==2.6.*; extra == "lightning-tests"',
    ]
    assert examination._requirements(SimpleNamespace(requires=lines)) == (
        {"torch": ">=2.6"},
        {
            "fast": {"isal": ">=1.6"},
            "cli": {"jsonargparse": "<5,>=4.53"},
            "sweep": {"optuna": ">=4.9"},
        },
    )


def test_two_installations_are_told(tmp_path, monkeypatch) -> None:
    """A second copy on sys.path is a frequent cause of an old version; a build's folder is none."""
    for name, file in (("trainer_hooks-0.0.1.dist-info", "METADATA"),
                       ("trainer_hooks.egg-info", "PKG-INFO")):  # fmt: skip
        (tmp_path / name).mkdir()
        text = "Metadata-Version: 2.1\nName: trainer-hooks\nVersion: 0.0.1\n"
        (tmp_path / name / file).write_text(text, encoding="utf-8")
    before = len(examination._own_distributions())
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(examination._own_distributions()) == before + 1
