"""The commands of docs/command-line.md run as they stand there, with the files that it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
_FILE = re.compile(r"^```(?:python|yaml)\n# (\S+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    """One after another, in a folder with the page's files, each ends well."""
    for name, text in _FILE.findall(PAGE):
        if name != "train.py":
            (tmp_path / name).write_text(text, encoding="utf-8")
    commands = [block for block in _COMMANDS.findall(PAGE) if "pip install" not in block]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    found = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        ["bash", "-e", "-c", "".join(commands)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": found},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the config differs from the one of the checkpoint: trainer.max_epochs" in done.stderr
    assert (tmp_path / "trainer_logs" / "version_0" / "config-2.yaml").exists()
