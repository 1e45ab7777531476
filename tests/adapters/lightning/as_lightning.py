"""The scripts of this folder with `lightning` for `pytorch_lightning`: `as_lightning.py TARGET`.

The other package cannot be imported then. `as_lightning.py TARGET SCRIPT` runs all of one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
SOME = (
    "BasePredictionWriter", "EarlyStopping", "LearningRateFinder", "ModelCheckpoint-last",
    "StochasticWeightAveraging", "TQDMProgressBar",
)  # fmt: skip
"""The cases of `cases.py` that are run unless a script is named: those with adapters of their own,
and those that count as something."""


def renamed(text: str) -> str:
    """Return a text that speaks of the package `lightning`."""
    text = text.replace("pytorch_lightning", "lightning.pytorch")
    return text.replace("lightning_fabric", "lightning.fabric")


def loaded(name: str) -> ModuleType:
    """Return a script of this folder as a module."""
    module = sys.modules[name] = ModuleType(name)
    vars(module)["__file__"] = str(HERE / f"{name}.py")
    text = renamed(HERE.joinpath(f"{name}.py").read_text(encoding="utf-8"))
    exec(compile(text, f"{name}.py", "exec"), vars(module))
    return module


def main(target: str, script: str = "") -> None:
    for other in ("pytorch_lightning", "lightning_fabric"):
        sys.modules[other] = None  # type: ignore[assignment]
    cases = loaded("cases")  # which others import
    if script:
        (cases if script == "cases" else loaded(script)).main(target)
        return
    cases.main(target, *SOME)


if __name__ == "__main__":
    main(*sys.argv[1:])
