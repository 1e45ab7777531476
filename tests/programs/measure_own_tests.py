"""Run Lightning's own tests with our import lines: `python measure_own_tests.py SOURCE FOLDER`.

    git clone --depth 1 --branch 2.6.5 https://github.com/Lightning-AI/pytorch-lightning SOURCE
    pip install -c constraints.txt pytorch-lightning libcst pytest pytest-xdist
    python tests/programs/measure_own_tests.py SOURCE FOLDER callbacks core loggers

The tests are copied into FOLDER, ported by `trainer-hooks port`, and run as they are: no assertion,
text or class of an error is loosened. The fixtures and helpers of the tests themselves go on with
Lightning's own internal parts, flags that say which packages are installed are Lightning's, and an
internal part that a test replaces by a mock is replaced in Lightning, where it changes nothing.
Printed are the numbers, and the first causes of the failures. No test of the project runs this: it
needs the sources, and takes half an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

FOLDERS = ["callbacks", "trainer", "models", "checkpointing", "loops", "core", "loggers"]
_HARNESS = ("conftest.py", "helpers/runif.py", "helpers/utils.py", "helpers/deterministic_model.py")
"""Files of which every missing name is Lightning's: they test nothing."""
_PARTS = r"(?:fabric|pytorch)\.(?:accelerators|plugins|strategies)\."
"""Packages of Lightning's whose flags the fixtures set."""
_SETTINGS = """[pytest]
addopts = --strict-markers --disable-pytest-warnings -p one_at_a_time
markers =
    cloud: of Lightning
    flaky: of Lightning
filterwarnings =
    error::FutureWarning
    ignore:You are using `torch.load` with `weights_only=False`.*:FutureWarning
    ignore::FutureWarning:torch.distributed.algorithms.ddp_comm_hooks
xfail_strict = true
"""
_PLUGIN = '''"""End a test that hangs, and fail one that a KeyboardInterrupt leaves."""
import signal

import pytest


def ring(*_):
    signal.alarm(5)
    raise TimeoutError("the test took too long")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(40)
    try:
        return (yield)
    finally:
        signal.alarm(0)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    try:
        return (yield)
    except (KeyboardInterrupt, SystemExit) as error:
        raise RuntimeError(f"{type(error).__name__} left the test") from error
'''


def main() -> None:
    """Copy, port and run the tests, and print the numbers and causes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("source", type=Path, help="a checkout of Lightning's repository")
    parser.add_argument("folder", type=Path, help="where the ported tests are kept")
    parser.add_argument("parts", nargs="*", default=FOLDERS, help="folders of tests_pytorch")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    ported = folder / "tests"
    if not ported.exists():
        port(arguments.source / "tests" / "tests_pytorch", ported / "tests_pytorch")
    (folder / "pytest.ini").write_text(_SETTINGS, encoding="utf-8")
    (folder / "one_at_a_time.py").write_text(_PLUGIN, encoding="utf-8")
    root = Path(__file__).parents[2]
    subprocess.run(
        [
            sys.executable, "-m", "pytest", "-c", str(folder / "pytest.ini"), "-q", "-n", "2",
            "--rootdir", str(ported), "--dist", "worksteal", "--tb", "short",
            "--continue-on-collection-errors", "-p", "no:cacheprovider",
            "--junitxml", str(folder / "results.xml"),
            *(f"tests_pytorch/{part}" for part in arguments.parts),
        ],
        cwd=ported, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, ported, root)))},
    )  # fmt: skip
    tell(folder / "results.xml")


def port(tests: Path, target: Path) -> None:
    """Copy the tests and change their import lines."""
    shutil.copytree(tests, target)
    command = [sys.executable, "-m", "trainer_hooks", "port", str(target)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode in (0, 1), told.stderr
    missing = r"trainer_hooks\.compat\.missing\.lightning"
    for file in target.rglob("*.py"):
        name = file.relative_to(target).as_posix()
        is_harness = name in _HARNESS
        names = r"\w+" if is_harness else r"_[A-Z0-9_]+\b"
        text = file.read_text(encoding="utf-8")
        if is_harness and re.search(rf"\blightning\.{_PARTS}", text):
            text = f"import lightning_fabric\nimport pytorch_lightning\n{text}"
            for package, home in (("fabric", "lightning_fabric"), ("pytorch", "pytorch_lightning")):
                text = re.sub(rf"\(lightning\.(?={_PARTS}){package}\.", f"({home}.", text)
        for module, package in ((rf"{missing}\.fabric", "lightning_fabric"), (missing, "")):
            lightnings = package or "pytorch_lightning"
            text = re.sub(rf"from {module}(\S*) import ({names})", rf"from {lightnings}\1 import \2", text)  # noqa: E501  # fmt: skip
        text = re.sub(r'(logger=)"lightning\.[\w.]*"', r'\1"trainer_hooks"', text)
        text = re.sub(r"([\"']|error::)lightning\.pytorch\.", r"\1pytorch_lightning.", text)
        text = re.sub(r"([\"']|error::)lightning\.fabric\.", r"\1lightning_fabric.", text)
        file.write_text(text, encoding="utf-8")


def tell(results: Path) -> None:
    """Print how many tests passed, failed and were skipped, and the causes of the failures."""
    ended: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for case in ET.parse(results).iter("testcase"):
        failed = [part for part in case if part.tag in {"failure", "error"}]
        if not failed:
            ended["skipped" if case.find("skipped") is not None else "passed"] += 1
            continue
        ended["failed"] += 1
        lines = re.findall(r"^E   (\S.*)$", failed[0].text or "", re.MULTILINE)
        raised = [line for line in lines if re.match(r"[\w.]*(Error|Warning|Failed|assert)", line)]
        cause = (raised or lines or [failed[0].get("message", "")])[-1]
        causes[re.sub(r"0x[0-9a-f]+|/tmp/\S+|\d+", "N", cause)[:150]] += 1
    print(dict(ended))
    for cause, count in causes.most_common(60):
        print(f"{count:5} {cause}")


if __name__ == "__main__":
    main()
