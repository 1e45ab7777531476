"""Names of checkpoint files: templates filled with metrics, and one fixed path."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer_hooks._system import name_fault, path_fault
from trainer_hooks.checkpoint.paths import exists, is_remote
from trainer_hooks.errors import MetricError, OptionError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from trainer_hooks.context.context import Trainer

_FIELD = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_COUNTERS = ("epoch", "step")
COUNTERS_AND_RANKS = (*_COUNTERS, "batch", "batch_in_epoch", "rank", "world_size")
"""The names in a template that are no metrics, as `template_counts` gives them."""


def template_names(template: str) -> tuple[str, ...]:
    """Return the metrics that a template names, in order."""
    return tuple(match[1] for match in _FIELD.finditer(template))


def template_counts(trainer: Trainer) -> dict[str, int]:
    """Return the counters and ranks that a filename can contain; no metric is computed for them."""
    return {
        "epoch": trainer.clock.epochs,
        "step": trainer.global_step,
        "batch": trainer.progress.batches_completed,
        "batch_in_epoch": trainer.progress.batches_in_epoch,
        "rank": trainer.global_rank,
        "world_size": trainer.world_size,
    }


def template_values(trainer: Trainer) -> dict[str, Any]:
    """Return all values that a filename can contain: metrics, overridden by the counters."""
    return {**trainer.callback_metrics, **template_counts(trainer)}


def check_template(template: object, where: str, name: str = "filename") -> str:
    """Return `template` if it can be filled.

    Args:
        template: the argument.
        where: the class that has the argument.
        name: the argument's name.

    Raises:
        OptionError: it is no text, a brace is left open, a name is missing, or a format is unknown.
    """
    if not isinstance(template, str) or not template:
        raise OptionError(
            f"{name} {template!r} of {where}: it must be a non-empty text. Pass one such as "
            "'{epoch}-{val_loss:.2f}', or None for '{epoch}-{step}'."
        )
    if any(brace in _FIELD.sub("", template) for brace in "{}") or "" in template_names(template):
        raise OptionError(
            f"{name} {template!r} of {where}: every brace must belong to a field such as "
            "{epoch} or {val_loss:.2f}. Close it, or take it out."
        )
    fault = name_fault(_FIELD.sub("x", template))
    if fault and "://" not in template:  # not of an address
        raise OptionError(f"{name} {template!r} of {where}: {fault}. Write another character.")
    for match in _FIELD.finditer(template):
        # a value may be an int or a float, and 'd' takes an int alone
        if not any(_can_format(sample, match[2] or "") for sample in (1, 1.0)):
            raise OptionError(
                f"format {match[2]!r} of {match[1]!r} in {name} {template!r} of {where}: it must "
                "be one for numbers. Write one such as '.2f' or '03d'."
            )
    return template


def fill_template(template: str, metrics: Mapping[str, Any], equals: str, insert: bool) -> str:
    """Return `template` with its fields replaced by the values of `metrics`.

    A missing counter counts as 0; any other missing metric shows as `nan`.

    Args:
        template: text with fields such as `{val_loss:.2f}`; the name may contain `/` and `.`.
        metrics: numbers and one-element tensors.
        equals: the text between a metric's name and its value.
        insert: whether the name is written before the value.

    Raises:
        MetricError: a value does not fit its format.
    """
    filled, end = "", 0
    for match in _FIELD.finditer(template):
        name, spec = match[1], match[2] or ""
        value = metrics.get(name, 0 if name in _COUNTERS else math.nan)
        number = value.item() if hasattr(value, "item") else value
        if not math.isfinite(number):
            spec = re.sub(r"[a-zA-Z%]$", "f", spec)  # the formats for integers reject nan and inf
        elif spec.endswith("d") and number == int(number):
            number = int(number)  # logged integers are stored as floats, which 'd' rejects
        try:
            text = format(number, spec)
        except ValueError as error:
            raise MetricError(
                f"value {number!r} of metric {name!r} in a checkpoint's filename: it must go with "
                f"its format {spec!r}. Choose a format such as '.2f' in "
                "ModelCheckpoint(filename=...)."
            ) from error
        filled += template[end : match.start()] + (f"{name}{equals}" if insert else "") + text
        end = match.end()
    return filled + template[end:]


def read_template(template: str, name: str) -> dict[str, str] | None:
    """Return the texts that a file's name has in place of the fields, or None if it does not match.

    Where a field is repeated, the first counts. Counters match digits alone.

    Args:
        template: text with fields, as `fill_template` fills it without inserting names.
        name: a file's name.
    """
    pattern, end, names = "", 0, []
    for match in _FIELD.finditer(template):
        is_counter = match[1] in COUNTERS_AND_RANKS
        pattern += re.escape(template[end : match.start()])
        # lazy: in "{a}-{b}", the first field ends at the first "-"
        pattern += r"(\d+)" if is_counter else r"([^/]+?)"
        names.append(match[1])
        end = match.end()
    match_of_name = re.fullmatch(pattern + re.escape(template[end:]), name)
    if match_of_name is None:
        return None
    # reversed: of a repeated field the first occurrence is set last, and so counts
    return dict(reversed(list(zip(names, match_of_name.groups(), strict=True))))


def _can_format(sample: float, spec: str) -> bool:
    try:
        format(sample, spec)
    except ValueError:
        return False
    return True


class FixedSavePath:
    """The path of a saver that always overwrites one file, split into its parts.

    Args:
        save_path: the path.
        where: the class that has the argument.

    Attributes:
        folder: the folder.
        stem: the name without the suffix.
        suffix: the suffix.

    Raises:
        OptionError: it is no path of a file.
    """

    def __init__(self, save_path: str | os.PathLike[str], where: str) -> None:
        text = str(save_path) if isinstance(save_path, Path) else save_path
        if not isinstance(text, str) or not Path(text).name:
            raise OptionError(
                f"save_path {save_path!r} of {where}: it must be the path of a file. Pass one, "
                "such as 'best_model.pt'."
            )
        fault = "" if is_remote(text) else path_fault(text)
        if fault:
            raise OptionError(f"save_path {save_path!r} of {where}: {fault}. Pass another path.")
        folder, _, name = text.rpartition("/") if is_remote(text) else ("", "", text)
        path = Path(name)
        self.folder = folder or str(path.parent)
        self.stem, self.suffix = path.stem, path.suffix

    def among(self, path: str, files: list[str], leaving_template: str) -> list[str]:
        """Return the file, if it exists, and the files that were saved before leaving.

        Args:
            path: the file's path.
            files: the files in the folder.
            leaving_template: the template of names of files saved before leaving.
        """
        begin = leaving_template.partition("{")[0]
        left = [file for file in files if Path(file).name.startswith(begin)]
        return [path, *left] if exists(path) else left
