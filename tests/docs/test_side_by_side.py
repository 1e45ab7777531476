"""The pages with the same training in another framework and here: both programs, compared."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import warm_python

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "side-by-side"
STAND_INS = ROOT / "tests" / "adapters" / "composer" / "stand_ins"
"""Modules that Composer imports, and that nothing here uses."""

FRAMEWORKS = {
    "lightning": "pytorch_lightning",
    "composer": "composer",
    "pytorch-accelerated": "pytorch_accelerated",
    "transformers": "transformers",
    "accelerate": "accelerate",
    "plain-loop": "torch",
}
"""The package of each page's first program."""

_PROGRAM = re.compile(r"^```python\n# (there|here)\.py\n(.*?)^```", re.DOTALL | re.MULTILINE)
_KEEP = """
torch.save({"accuracy": accuracy, "weights": net.state_dict()}, "result.pt")
"""


def programs(page: str) -> dict[str, str]:
    return dict(_PROGRAM.findall((FOLDER / f"{page}.md").read_text(encoding="utf-8")))


def test_each_page_has_both_programs() -> None:
    """The folder, the index and the frameworks agree; also where a package is not installed."""
    pages = {page.stem for page in FOLDER.glob("*.md")} - {"index"}
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert pages == set(FRAMEWORKS) == set(re.findall(r"\]\(([\w-]+)\.md\)", index))
    for page in pages:
        texts = programs(page)
        assert list(texts) == ["there", "here"]
        for place, text in texts.items():
            compile(text, f"{page}.md, {place}", "exec")
        assert ("trainer_hooks" in texts["there"], "trainer_hooks" in texts["here"]) == (0, 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", FRAMEWORKS)
def test_both_programs_end_with_the_same_weights(page: str, tmp_path: Path) -> None:
    """The bits of the weights and the accuracy are equal at the same seed."""
    if find_spec(FRAMEWORKS[page]) is None:
        pytest.skip(f"{FRAMEWORKS[page]} is not installed: its program is compiled only")
    results = {}
    for place, text in programs(page).items():
        folder = tmp_path / place
        folder.mkdir()
        (folder / "train.py").write_text(text + _KEEP, encoding="utf-8")
        done = warm_python.run(
            [sys.executable, "train.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(STAND_INS), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        results[place] = torch.load(folder / "result.pt", weights_only=False)
    there, here = results["there"], results["here"]
    assert there["accuracy"] == pytest.approx(here["accuracy"])
    assert here["accuracy"] > 0.8
    assert list(there["weights"]) == list(here["weights"])
    for name, weight in there["weights"].items():
        assert torch.equal(weight, here["weights"][name]), name
