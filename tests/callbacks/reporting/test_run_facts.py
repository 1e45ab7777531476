"""What a run is made with: all that is told, and nothing that must not be."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from trainer_hooks import __version__
from trainer_hooks._system import process_start
from trainer_hooks.callbacks.reporting import run_facts


def test_versions_are_those_of_what_is_loaded(monkeypatch) -> None:
    """Loaded packages are told by their own word; asking them loads nothing more."""

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise AssertionError("it was asked for an attribute that it does not have")

    known = types.ModuleType("some_package")
    known.__version__ = "7.1"
    monkeypatch.setitem(sys.modules, "some_package", known)
    monkeypatch.setitem(sys.modules, "lazy_package", Lazy("lazy_package"))
    monkeypatch.setitem(sys.modules, "odd_package", None)
    told = run_facts.versions()
    assert told["some_package"] == "7.1"
    assert told["torch"] == torch.__version__
    assert told["trainer_hooks"] == __version__
    assert told["python"] == sys.version.split()[0]
    assert not {"lazy_package", "odd_package", "re", "json"} & set(told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["--api-key", "abc", "--x", "1"], ["--api-key", "***", "--x", "1"]),
        (["--password=abc"], ["--password=***"]),
        (["logger.api_key=abc"], ["logger.api_key=***"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--max_tokens", "5", "--tokenizer=gpt"], ["--max_tokens", "5", "--tokenizer=gpt"]),
        (["s3://me:secret@host/x"], ["s3://***@host/x"]),
        (["--model", "{a: {api_key: b c}, lr: 1}"], ["--model", "{a: {api_key: ***}, lr: 1}"]),
        (['--model={"api_key":"a\\", b", "lr": 1}'], ['--model={"api_key":***, "lr": 1}']),
        (["{'token' : 'a''b'}", "lr: 1\nkey: a\n"], ["{'token' : ***}", "lr: 1\nkey: ***\n"]),
        (["{keys: [1], key: [a, 'b]'], lr: 1}"], ["{keys: [1], key: ***, lr: 1}"]),
        (['{"api_key": ["a", "b"], "lr": 1}'], ['{"api_key": ***, "lr": 1}']),
        (["API_KEY=a", "lr=1,api_key=a,b=2"], ["API_KEY=***", "lr=1,api_key=***,b=2"]),
        (["{monkey: 1, key_size: 2}", "my.key:Name"], ["{monkey: 1, key_size: 2}", "my.key:Name"]),
        ([], []),
    ],
)
def test_secrets_in_the_command_line_are_left_out(given, told) -> None:
    """The value of an option that is named like a secret is not told; all else is."""
    assert run_facts.command(given) == told


def test_the_command_is_this_processs() -> None:
    """Without arguments it is what this process was started with."""
    assert run_facts.command() == run_facts.command(sys.orig_argv)


def test_the_environment_is_a_list_of_harmless_variables(monkeypatch) -> None:
    """No variable is told that is not on the list, however it is called."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abc")
    monkeypatch.setenv("MY_OWN", "abc")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = run_facts.environment()
    assert told["OMP_NUM_THREADS"] == "3"
    assert "abc" not in told.values()


def git(folder, *arguments) -> str:
    own = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *own, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_the_commit_and_what_was_changed_since(tmp_path, monkeypatch) -> None:
    """Commit, branch and the number of changed files are those of the working directory."""
    git(tmp_path, "init", "-b", "trunk")
    (tmp_path / "a.py").write_text("1")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-m", "first")
    monkeypatch.chdir(tmp_path)
    told = run_facts.git_state()
    assert told == {
        "commit": git(tmp_path, "rev-parse", "HEAD"),
        "branch": "trunk",
        "changed_files": 0,
        "folder": str(tmp_path),
    }
    (tmp_path / "a.py").write_text("2")
    (tmp_path / "untracked.py").write_text("2")
    assert run_facts.git_state()["changed_files"] == 1


def test_without_a_repository_there_is_nothing_to_tell(tmp_path, monkeypatch) -> None:
    """Outside of git, no commit is told, and nothing fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "train.py")])
    assert run_facts.git_state() is None


def test_without_git_there_is_nothing_to_tell(monkeypatch, tmp_path) -> None:
    """Where git is not installed, no commit is told, and nothing fails."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run_facts.git_state() is None


def test_seeds_are_the_two_that_matter(monkeypatch) -> None:
    """The seed of seed_everything is told if there was one, and torch's own."""
    torch.manual_seed(11)
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    assert run_facts.seeds() == {"seed_everything": 5, "torch": 11}
    monkeypatch.setenv("PL_GLOBAL_SEED", "no number")
    assert run_facts.seeds() == {"seed_everything": None, "torch": 11}


@pytest.mark.posix  # Windows does not tell its memory
def test_the_hardware_is_told() -> None:
    """The device, the processor and the memory are told in plain data."""
    told = run_facts.hardware(torch.device("cpu"))
    assert told["device"] == "cpu"
    assert told["cores"] == os.cpu_count()
    assert told["memory_bytes"] > 0
    assert "gpus" not in told


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_gpus_are_told() -> None:
    """With CUDA, each GPU is told by name."""
    told = run_facts.hardware(torch.device("cuda", 0))
    assert len(told["gpus"]) == torch.cuda.device_count()
    assert told["gpus"][0]["name"] == torch.cuda.get_device_name(0)


def test_a_process_is_told_from_another_with_its_number() -> None:
    """The start of a process that is there is told, that of one that is not is None."""
    assert process_start(os.getpid())
    assert process_start(os.getpid()) == process_start(os.getpid())
    assert process_start(2**22 + 1) is None


def test_secrets_in_lists_are_left_out() -> None:
    """As a single one is; a number is none."""
    given = {"api_key": ["a", "b"], "model": [{"token": "c", "key": 1}], "keys": ["d"]}
    told = {"api_key": "***", "model": [{"token": "***", "key": 1}], "keys": ["d"]}
    assert run_facts.without_secrets(given) == told


def test_a_process_whose_end_nobody_notices_has_ended():
    """In a container without an init a killed run stays a zombie, and must not seem to go on."""
    with subprocess.Popen(["sleep", "60"]) as child:
        assert process_start(child.pid) is not None
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it is not reaped
        assert Path(f"/proc/{child.pid}/stat").exists()
        assert process_start(child.pid) is None
