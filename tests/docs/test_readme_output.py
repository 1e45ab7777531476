"""The output that the README shows is that of its example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # it trains in a process of its own

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def without_numbers(line: str) -> str:
    """Mask what differs between two machines: times, speeds, last digits and the folder."""
    line = re.sub(r"\S*/(?=trainer_logs/)", "", line)
    return re.sub(r"[\d.:?]*\d[\d.:?]*(?:s/it|it/s)?", "N", line.rstrip())


def test_the_readme_shows_what_its_example_prints(tmp_path) -> None:
    """From the bars to the end no line is left out, and no advice stands before them."""
    section = README[README.index("## A first run") : README.index("The logged values")]
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE))
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "TRAINER_HOOKS_DISABLE_PLUGINS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=True,
    )
    (shown,) = re.findall(r"^```text\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    head, *tail = shown.split("...\n")
    printed = [without_numbers(line) for line in re.split(r"[\r\n]+", done.stdout) if line.strip()]
    expected = [without_numbers(line) for line in tail[0].splitlines()]
    assert printed[-len(expected) :] == expected
    assert [line for line in printed if "Advice" in line] == []
    assert without_numbers(head) in printed
