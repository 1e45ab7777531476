"""The best checkpoints and their scores as a YAML file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_hooks._files import replace_file
from trainer_hooks.checkpoint import is_remote, joined
from trainer_hooks.errors import UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from torch import Tensor

__all__ = ["write_best"]


def write_best(
    models: Mapping[str, Tensor],
    filepath: str | os.PathLike[str] | None,
    folder: str | None,
    where: str,
) -> None:
    """Write checkpoints and their scores, a line for each.

    Args:
        models: the paths and the scores.
        filepath: the file; `best_k_models.yaml` in `folder` unless given.
        folder: where the checkpoints are, if a run said so already.
        where: whose they are.

    Raises:
        UsageError: there is no folder yet, or it is no local one.
    """
    if filepath is None and folder is None:
        raise UsageError(
            f"{where}.to_yaml() was called before a run resolved dirpath: pass "
            "filepath, or call it after fit."
        )
    path = joined(folder or "", "best_k_models.yaml") if filepath is None else filepath
    if is_remote(str(path)):
        raise UsageError(
            f"filepath {str(path)!r} of {where}.to_yaml(): it must be a local file. Pass one."
        )
    lines = [f"{json.dumps(path)}: {score.item()!r}\n" for path, score in models.items()]
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    replace_file(target, lambda file: file.writelines(lines or ["{}\n"]))
