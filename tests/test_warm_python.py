"""Processes forked from one that waits do as new interpreters do: words, files, codes, ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

pytestmark = pytest.mark.exhaustive  # it starts new interpreters to compare with

SEEN = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "name": __name__,
    "file": globals().get("__file__"), "folder": os.getcwd(), "environ": dict(os.environ),
    "session": os.getsid(0) == os.getpid(),
}))
"""


def both(*words: str, **options):
    """Run a command in both ways; return what was seen of each."""
    options = {"capture_output": True, "text": True, "timeout": 60, "check": False, **options}
    found = []
    for run in (warm_python.run, subprocess.run):
        done = run([sys.executable, *words], **options)
        found.append((done.returncode, done.stdout, done.stderr))
    return found


@pytest.mark.parametrize("start_new_session", [False, True])
@pytest.mark.parametrize("way", ["-c", "-m", "file"])
def test_a_program_sees_the_same(way, start_new_session, tmp_path) -> None:
    """Its words, folder, variables, and the path that it imports from."""
    (tmp_path / "program.py").write_text(SEEN, encoding="utf-8")
    words = {"-c": ["-c", SEEN], "-m": ["-m", "program"], "file": ["program.py"]}[way]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "own"), "NAME": "\u00fc"}
    seen = [
        json.loads(output)
        for _, output, _ in both(
            *words, "a", "b c", cwd=tmp_path, start_new_session=start_new_session, env=environ
        )
    ]
    for one in seen:
        one["environ"].pop("LC_CTYPE", None)  # Python's own, where no language is set
    assert seen[0] == seen[1]
    assert seen[0]["environ"] == environ


@pytest.mark.parametrize(
    "code",
    [
        "import sys; print('told', file=sys.stderr); sys.exit(3)",
        "import sys; sys.exit('a reason')",
        "raise SystemExit",
        "def f():\n    1 / 0\nf()",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "raise KeyboardInterrupt",
        "import atexit; atexit.register(print, 'at the end'); print('before')",
        "import threading, time; threading.Timer(0.1, print, ['late']).start()",
        "class A:\n    def __del__(self): print('gone')\na = A()",
        "import sys; print(sys.stdin.read().upper(), end='')",
        "import warnings; warnings.warn('odd')",
        "import random, torch; print(random.random() == random.random(), torch.is_grad_enabled())",
    ],
    ids=lambda code: code.splitlines()[0][:40],
)
@pytest.mark.parametrize("options", [(), ("-W", "error", "-u")], ids=str)
def test_it_ends_in_the_same_way(code, options, tmp_path) -> None:
    """The code, the output, and the errors with their tracebacks."""
    warm, new = both(*options, "-c", code, cwd=tmp_path, input="typed")
    assert warm == new


@pytest.mark.parametrize(
    "name", ["torch._dynamo", "trainer_hooks.loops.fit", "trainer_hooks.callbacks.early_stopping"]
)
def test_modules_are_imported_already(name) -> None:
    """That is what it is for."""
    warm, new = both("-c", f"import sys; print({name!r} in sys.modules)")
    assert (warm[1], new[1]) == ("True\n", "False\n")


@pytest.mark.parametrize("name", ["trainer_hooks", "tqdm", "json"])
@pytest.mark.parametrize("place", ["PYTHONPATH", "folder of the program", "-c", "-m"])
def test_another_file_of_a_loaded_module_is_imported(name, place, tmp_path) -> None:
    """Such as a package of another checkout, or a module that stands in for a package."""
    code = f"import {name}, sys; print({name}.__file__, sys.argv[1:])"
    for folder in ("programs", "path", "elsewhere"):
        (tmp_path / folder).mkdir()
    (tmp_path / "programs" / "program.py").write_text(code, encoding="utf-8")
    words, folder = ["-c", code], "elsewhere"
    found_in = {"-c": "elsewhere", "-m": "programs", "PYTHONPATH": "path"}.get(place, "programs")
    if place == "-m":
        words, folder = ["-m", "program"], "programs"
    elif place == "folder of the program":
        words = [str(tmp_path / "programs" / "program.py")]
    package = tmp_path / found_in / name
    package.mkdir()
    (package / "__init__.py").touch()
    warm, new = both(
        *words, "word", cwd=tmp_path / folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path / "path")},
    )  # fmt: skip
    assert warm == new == (0, f"{package / '__init__.py'} ['word']\n", "")


def test_a_signal_that_is_ignored_here_is_not_ignored_there() -> None:
    """A shell lets a job in the background ignore Ctrl-C, and its children inherit that."""
    code = "import signal; print(signal.getsignal(2) is signal.default_int_handler)"
    start = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path.insert(0, {str(Path(warm_python.__file__).parent)!r})
import warm_python
warm_python.run([sys.executable, "-c", {code!r}])
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("drawn", ["random.random()", "numpy.random.rand()", "torch.rand(1)"])
def test_two_processes_draw_other_numbers(drawn) -> None:
    """They do not go on from the state of the one that waits."""
    words = [sys.executable, "-c", f"import random, numpy, torch; print({drawn})"]
    found = [warm_python.run(words, capture_output=True, text=True).stdout for _ in range(3)]
    assert len(set(found)) == 3


def test_an_open_file_is_written_to_its_end(tmp_path) -> None:
    """What is left in a buffer is not lost."""
    both("-c", "file = open('kept', 'a'); file.write('flushed ')", cwd=tmp_path)
    assert (tmp_path / "kept").read_text() == "flushed flushed "


def test_a_sitecustomize_is_imported(tmp_path) -> None:
    """Of the first folder that the variable names."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.seen = 1")
    warm, new = both("-c", "print(seen)", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert warm == new == (0, "1\n", "")


def test_a_signal_reaches_it_and_its_code_comes_back() -> None:
    """So do the end of its input, and the time that it may take."""
    words = [sys.executable, "-c", "print('here', flush=True); input()"]
    with warm_python.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == process.poll() == -signal.SIGTERM
    with pytest.raises(subprocess.TimeoutExpired):
        warm_python.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.2)
    with pytest.raises(subprocess.CalledProcessError):
        warm_python.run([sys.executable, "-c", "1 / 0"], capture_output=True, check=True)


def test_what_a_child_cannot_become_starts_anew() -> None:
    """Another option of the interpreter, another program, a function to call before."""
    warm, new = both("-X", "utf8", "-c", "import sys; print(sys.flags.utf8_mode)")
    assert warm == new == (0, "1\n", "")
    done = warm_python.run(["echo", "said"], capture_output=True, text=True)
    assert done.stdout == "said\n"
    warm, new = both("-c", "print(1)", preexec_fn=os.setsid)
    assert warm == new == (0, "1\n", "")


def test_files_are_passed_with_their_numbers(tmp_path) -> None:
    """Where those are of files of the process that waits, too; a lock is held with its file."""
    with (tmp_path / "lock").open("w") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        taken = [os.dup(locked.fileno()) for _ in range(8)]
        for number in (*taken, locked.fileno()):
            os.write(number, b"%d " % number)
        code = (
            "import os, sys; [os.write(int(n), b'child ') for n in sys.argv[1:]]; sys.stdin.read()"
        )
        words = [sys.executable, "-c", code, *map(str, taken)]
        with warm_python.Popen(words, pass_fds=taken, stdin=subprocess.PIPE) as process:
            for number in taken:
                os.close(number)
            locked.close()
            with (tmp_path / "lock").open() as other, pytest.raises(BlockingIOError):
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert process.returncode == 0
    assert (tmp_path / "lock").read_text().count("child") == 8
    with (tmp_path / "lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_what_is_read_at_the_start_has_a_process_for_each_value() -> None:
    """The threads of torch, and the seed of hashes."""
    words = ("-c", "import torch; print(torch.get_num_threads(), hash('a'))")
    warm, new = both(*words, env={**os.environ, "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "7"})
    assert warm == new
    assert new[1].startswith("2 ")
    done = warm_python.run([sys.executable, *words], capture_output=True, text=True)
    assert done.stdout.startswith("1 ")


def test_a_module_that_cannot_be_imported_is_told() -> None:
    """The error of the process that waits is shown."""
    with pytest.raises(RuntimeError, match="No module named 'nothing_of_this_name'"):
        warm_python.run([sys.executable, "-c", "1"], imports=("nothing_of_this_name",))


def test_children_of_a_child_are_forked_as_well() -> None:
    """They have its files, come back with their codes, and outlast a parent that is killed."""
    inner = "import os, sys; print('torch' in sys.modules, input(), flush=True); os._exit(3)"
    outer = f"""
import os, subprocess, sys
done = subprocess.run([sys.executable, "-c", {inner!r}], env={{**os.environ, "OWN": "1"}})
print(done.returncode, subprocess.run(["echo", "said"], capture_output=True).stdout, flush=True)
waits = subprocess.Popen([sys.executable, "-c", "print('here', flush=True); print(input())"])
input()
"""
    with warm_python.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        forks_children=True,
    ) as process:  # fmt: skip
        process.stdin.write("typed\n")
        process.stdin.flush()
        lines = [process.stdout.readline() for _ in range(3)]
        assert lines == ["True typed\n", "3 b'said\\n'\n", "here\n"]
        process.kill()
        assert process.wait(60) == -signal.SIGKILL
        process.stdin.write("after its end\n")
        process.stdin.flush()
        assert process.stdout.readline() == "after its end\n"


def test_further_modules_are_imported_once() -> None:
    """By a process that is forked from the one that has imported torch."""
    words = [
        sys.executable,
        "-c",
        "import sys; print('this' in sys.modules, 'torch' in sys.modules)",
    ]
    for imports, found in ((("this",), "True True\n"), ((), "False True\n")):
        done = warm_python.run(words, capture_output=True, text=True, imports=imports)
        assert (done.stdout, done.stderr) == (found, "")


def test_a_folder_is_where_further_modules_are_looked_for(tmp_path) -> None:
    """It is in the path of no child."""
    (tmp_path / "apart.py").write_text("VALUE = 3\n")
    words = [sys.executable, "-c", "import sys, apart; print(apart.VALUE, sys.argv[1] in sys.path)"]
    done = warm_python.run(
        [*words, str(tmp_path)], capture_output=True, text=True, imports=(str(tmp_path), "apart")
    )
    assert (done.stdout, done.stderr) == ("3 False\n", "")
