"""Templates of file names: filled with metrics, and read back."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from trainer_hooks.errors import MetricError, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_hooks.context import Trainer

__all__ = [
    "check_template",
    "counts_of",
    "fill_template",
    "names_of",
    "read_template",
    "template_names",
]

_FIELD = re.compile(r"\{([^{}:]*)(?::([^{}]*))?\}")
_COUNTERS = ("epoch", "step")
_WHOLE = (*_COUNTERS, "batch", "batch_in_epoch", "rank", "world_size")


def template_names(template: str) -> tuple[str, ...]:
    """Return the metrics that a template names, in order."""
    return tuple(match[1] for match in _FIELD.finditer(template))


def counts_of(trainer: Trainer) -> dict[str, int]:
    """Return the counts that can stand in a filename: what is completed, and which process it is.

    Unlike a look at the metrics, it computes nothing.
    """
    return {
        "epoch": trainer.clock.epochs,
        "step": trainer.global_step,
        "batch": trainer.progress.batches_completed,
        "batch_in_epoch": trainer.progress.batches_in_epoch,
        "rank": trainer.global_rank,
        "world_size": trainer.world_size,
    }


def names_of(trainer: Trainer) -> dict[str, Any]:
    """Return what can stand in a filename: metrics, and the counts, whatever was logged so."""
    return {**trainer.callback_metrics, **counts_of(trainer)}


def check_template(template: object, where: str, name: str = "filename") -> str:
    """Return `template`, an argument of the given name, if it can be filled.

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
    for match in _FIELD.finditer(template):
        if not any(_can_format(sample, match[2] or "") for sample in (1, 1.0)):
            raise OptionError(
                f"format {match[2]!r} of {match[1]!r} in {name} {template!r} of {where}: it must "
                "be one for numbers. Write one such as '.2f' or '03d'."
            )
    return template


def fill_template(template: str, metrics: Mapping[str, Any], equals: str, insert: bool) -> str:
    """Return `template` with its fields replaced by the values of `metrics`.

    A counter that is missing counts as 0; any other metric that is missing shows as `nan`.

    Args:
        template: text with fields such as `{val_loss:.2f}`; the name may contain `/` and `.`.
        metrics: numbers and one-element tensors.
        equals: what stands between a metric's name and its value.
        insert: whether the name is written before the value.

    Raises:
        MetricError: a value does not go with its format.
    """

    def filled(match: re.Match[str]) -> str:
        name, spec = match[1], match[2] or ""
        text = _format(name, metrics.get(name, 0 if name in _COUNTERS else math.nan), spec)
        return f"{name}{equals}{text}" if insert else text

    return _FIELD.sub(filled, template)


def read_template(template: str, name: str) -> dict[str, str] | None:
    """Return the texts that `name` has in the places of the fields, or None if it has others.

    Where a field is repeated, the first counts. Counters match digits alone.

    Args:
        template: text with fields, as `fill_template` fills it without inserting names.
        name: a file's name.
    """
    pattern, end, names = "", 0, []
    for match in _FIELD.finditer(template):
        is_counter = match[1] in _WHOLE
        pattern += re.escape(template[end : match.start()])
        pattern += r"(\d+)" if is_counter else r"([^/]+?)"
        names.append(match[1])
        end = match.end()
    found = re.fullmatch(pattern + re.escape(template[end:]), name)
    if found is None:
        return None
    return dict(reversed(list(zip(names, found.groups(), strict=True))))


def _format(name: str, value: Any, spec: str) -> str:
    number = value.item() if hasattr(value, "item") else value
    if not math.isfinite(number):
        spec = re.sub(r"[a-zA-Z%]$", "f", spec)  # 'd' has no way to write nan
    elif spec.endswith("d") and number == int(number):
        number = int(number)  # a logged count comes back as a float
    try:
        return format(number, spec)
    except ValueError as error:
        raise MetricError(
            f"value {number!r} of metric {name!r} in a checkpoint's filename: it must go with its "
            f"format {spec!r}. Choose a format such as '.2f' in ModelCheckpoint(filename=...)."
        ) from error


def _can_format(sample: float, spec: str) -> bool:
    try:
        format(sample, spec)
    except ValueError:
        return False
    return True
